"""The reciprocal: one head for every factor of four in accuracy, without a single division."""

from show import show

import headsmith as hs

model = hs.compile("1/x", {"x": (0.1, 1)}, error=1e-6)
print(f"1 / 0.7 = {model(x=0.7):.6f}")
show(model)

for error in (1e-2, 1e-4, 1e-6):
    bill = hs.compile("1/x", {"x": (0.1, 1)}, error).bill
    print(f"error {error:g}: {bill.heads} heads in {bill.layers} layers")
