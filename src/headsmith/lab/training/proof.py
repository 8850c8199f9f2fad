"""The certificate after training. What was proven of the built weights is not about trained ones, and is dropped; a
model of one data token is proven anew by `hs.certify`, from its own weights, or it has no bound."""

from __future__ import annotations

from typing import Any

import headsmith
from headsmith.core.errors import HeadsmithError
from headsmith.lab.training.cases import Case

RATIO, SECONDS = 1.05, 10.0


def proven(case: Case, weights: Any, found: float) -> float | None:
    """A bound of a trained model's error in float64, at best RATIO times what was found; None where none is proven."""
    certify = getattr(headsmith, "certify", None)
    if certify is None or case.student.tokens > 1:
        return None
    try:
        certified = certify(
            case.module(weights),
            case.model.wanted,
            dict(zip(case.model.box.names, zip(case.field.low, case.field.high, strict=True), strict=True)),
            ratio=RATIO,
            dtype="float64",
            timeout=SECONDS,
        )
    except HeadsmithError:
        return None
    return float(certified.error)
