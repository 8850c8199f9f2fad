"""Multiplication: one head whose weight on its own token rises with x; or, by recipe relu, squares that are folded."""

from show import show

import headsmith as hs

DOMAIN = {"x": (-1, 1), "y": (-1, 1)}

model = hs.compile("x*y", DOMAIN, error=1e-6)
print(f"0.3 * -0.7 = {model(x=0.3, y=-0.7):.6f}")
show(model)

# The relu recipe: x*y is the difference of two squares, a square is folded in two, layer after layer, and every
# ReLU gate is a head. Fewer layers cost more heads.
for layers in (10, 5, 3, 2):
    bill = hs.compile("x*y", DOMAIN, error=1e-6, recipe="relu", max_layers=layers).bill
    print(f"recipe relu, at most {layers} layers: {bill.heads} heads")
