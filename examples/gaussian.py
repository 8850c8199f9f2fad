"""A Gaussian bump: two squares, a sum and an exponential are one expression of two variables, and one head."""

import sys

from show import show

import headsmith as hs
from headsmith.report.plots import plot

model = hs.compile(lambda x, y: hs.exp(-(x**2 + y**2)), {"x": (-2, 2), "y": (-2, 2)}, error=1e-3)
print(f"at (0.5, 0.5): {model(x=0.5, y=0.5):.4f}, exactly exp(-1/2) = 0.6065...")
show(model)

if len(sys.argv) > 1:
    plot(model, sys.argv[1])
    print(f"drawn into {sys.argv[1]}")
