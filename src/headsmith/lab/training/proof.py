"""The certificate after training. What was proven of the built weights is not about trained ones, and is dropped; a
model of one data token is proven anew by `hs.certify`, from its own weights as they run in float64, or it has no
bound."""

from __future__ import annotations

from headsmith.certify import certify
from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.lab.training.cases import Case

RATIO, SECONDS = 1.02, 20.0
"""How close a bound shall come to what was found, and how long that may take."""
LOOSE = 1.25
"""A bound that is further from what was found says nothing of the trained model, and is not shown."""


def proven(case: Case, weights: Array, found: float) -> float | None:
    """A proven bound of a trained model's error in float64, close to what was found; None where there is
    none: several data tokens, errors that no proof comes near in the time."""
    if case.student.tokens > 1:
        return None
    box = {
        name: (float(low), float(high))
        for name, low, high in zip(case.model.box.names, case.field.low, case.field.high, strict=True)
    }
    try:
        certified = certify(
            case.matrices(weights),
            case.model.wanted,
            box,
            ratio=RATIO,
            dtype="float64",
            timeout=SECONDS,
            progress=False,
        )
        bound = certified.error
    except HeadsmithError:
        return None
    return bound if bound <= LOOSE * found else None
