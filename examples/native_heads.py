"""Heads that do more than gates: a product, a reciprocal, two activations in one head; against ReLU circuits."""

from show import show

import headsmith as hs


def compare(formula: str | list[str], domain: dict[str, tuple[float, float]], error: float) -> hs.Compiled:
    """Compile with native heads and by the relu recipe, and print both bills."""
    model = hs.compile(formula, domain, error)
    gates = hs.compile(formula, domain, error, recipe="relu").bill
    bill = model.bill
    ratio = gates.layers * gates.heads / (bill.layers * bill.heads)
    print(f"{formula} within {error:g}")
    print(f"  a head for each gate   {gates.layers} layers, {gates.heads} heads")
    print(f"  native heads           {bill.layers} layer, {bill.heads} head, {bill.reference_tokens} reference tokens")
    print(f"  layers x heads         {ratio:.0f} times fewer; certified {model.certificate.error:.3g}\n")
    return model


compare("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-6)
compare("1/x", {"x": (0.1, 1)}, 1e-6)
pair = compare(["gelu(x)", "sigmoid(x)"], {"x": (-5, 5)}, 1e-6)
gelu, sigmoid = pair([0.5])
print(f"one head, two outputs: gelu(0.5) = {gelu:.6f}, sigmoid(0.5) = {sigmoid:.6f}")
show(pair)
