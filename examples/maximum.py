"""The largest of several numbers: one head less than there are numbers, whatever the error."""

from show import show

import headsmith as hs

model = hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)
print(f"max(0.3, 0.5) = {model(x=0.3, y=0.5):.6f}")
show(model)

names = [f"x{place}" for place in range(8)]
bill = hs.compile(f"max({', '.join(names)})", dict.fromkeys(names, (-1, 1)), error=1e-9).bill
print(f"the largest of 8 within 1e-9: {bill.heads} heads in {bill.layers} layers")
