"""A rational function: one expression of one variable, so one head, and how many tokens each error asks for."""

from show import show

import headsmith as hs

model = hs.compile("(1 + x)/(1 + x**2)", {"x": (-1, 1)}, error=1e-4)
print(f"at x = 0.5: {model(x=0.5):.5f}, exactly {1.5 / 1.25}")
show(model)

for error in (1e-2, 1e-4, 1e-6):
    bill = hs.compile("(1 + x)/(1 + x**2)", {"x": (-1, 1)}, error).bill
    print(f"error {error:g}: {bill.reference_tokens} reference tokens")
