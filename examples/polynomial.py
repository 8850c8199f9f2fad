"""A polynomial of any degree in one variable is one head; by squares and products it would be many."""

from show import show

import headsmith as hs

model = hs.compile("x**3 - 2*x + 1", {"x": (-1, 1)}, error=1e-4)
print(f"at x = 0.5: {model(x=0.5):.5f}, exactly {0.5**3 - 2 * 0.5 + 1}")
show(model)
