"""Any function of a short sequence by attention alone: gather all tokens, then look the answer up."""

import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

import headsmith as hs
from headsmith.report.tables import bill_table
from headsmith.sequence.universal_fit import fitted


def leaning(x):  # type: ignore[no-untyped-def]
    """Every token leans towards the mean of all, the more the further away it is: no one-token function does that."""
    away = x.mean(axis=0) - x
    return x + 0.5 * away * abs(away)


# On [-1, 1] with two tokens |away| <= 1: slopes 1 - |away|/2 by the own token, |away|/2 by the other.
limits = [[1.0], [1.0]]
inputs = np.array([[0.9], [-0.4]])
points = np.random.default_rng(0).uniform(-1.0, 1.0, (2000, 2, 1))
wanted = np.array([leaning(point) for point in points])
for architecture in ("two layers", "one layer and a softmax"):
    model = hs.compile_sequence(
        leaning, tokens=2, domain=(-1, 1), error=0.1, lipschitz=limits, architecture=architecture
    )
    print(
        f"{architecture}: leaning(0.9, -0.4) = {leaning(inputs)[:, 0].round(4)}, model {model(inputs)[:, 0].round(4)}"
    )
    print(f"Certificate: error {model.error:.6g} for {model.counts} cells")
    print(f"proven: {model.proven}")
    print(f"assumed: {model.assumed}")
    Console(highlight=False).print(bill_table(model.bill))
    print(f"worst error found: {np.abs(model(points) - wanted).max():.4g}, in {len(points)} random sequences")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaning.safetensors"
        model.save(path)
        again = hs.load(path)
        print(f"saved, loaded and proven again from the matrices: error {hs.verify(path).error:.6g}")
        print(f"sampled again: answers within {again.check(leaning):.2g} of the callable's\n")

fit = fitted(leaning, 2, domain=(-1, 1), grid=12)
print(f"fitted answers on 12 x 12 nodes: error {fit.estimate:.2g} (an estimate, not proven)")

# The same function can be traced, too. Then nothing is assumed, and the error is proven to be far smaller.
traced = hs.compile_sequence(leaning, tokens=2, domain=(-1, 1), error=1e-6)
print(f"traced: error {traced.certificate.error:.2g}, proven, with {traced.bill.reference_tokens} reference tokens")
