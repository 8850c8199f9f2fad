"""The reciprocal, without a single division: two more reference tokens for every factor of a hundred in accuracy."""

from show import show

import headsmith as hs

models = {error: hs.compile("1/x", {"x": (0.1, 1)}, error) for error in (1e-2, 1e-4, 1e-6)}
model = models[1e-6]
print(f"1 / 0.7 = {model(x=0.7):.6f}")
show(model)

# The relu recipe needs one head, and about one layer, for every factor of four.
for error, found in models.items():
    ours, gates = found.bill, hs.compile("1/x", {"x": (0.1, 1)}, error, recipe="relu").bill
    print(
        f"error {error:g}: {ours.heads} head with {ours.reference_tokens} reference tokens, "
        f"or {gates.heads} heads in {gates.layers} layers"
    )
