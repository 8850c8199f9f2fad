"""A rational function, and how the error that is asked for shows in its bill."""

from show import show

import headsmith as hs

model = hs.compile("(1 + x)/(1 + x**2)", {"x": (-1, 1)}, error=1e-4)
print(f"at x = 0.5: {model(x=0.5):.5f}, exactly {1.5 / 1.25}")
show(model)
