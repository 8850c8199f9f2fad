"""Multiplication: x*y is the difference of two squares, and a square is folded in two, layer after layer."""

from show import show

import headsmith as hs

model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)
print(f"0.3 * -0.7 = {model(x=0.3, y=-0.7):.6f}")
show(model)

# Fewer layers cost more heads.
for layers in (10, 5, 3, 2):
    bill = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6, max_layers=layers).bill
    print(f"at most {layers} layers: {bill.heads} heads")
