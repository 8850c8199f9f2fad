"""What a model may cost: hard limits, what exceeds them, and one step more of each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from headsmith.core.errors import TargetError
from headsmith.transformer.bill import Bill

WHOLE = ("layers", "heads", "reference_tokens", "parameters", "d_model", "d_head")
STEPS = {"parameters": 1.25, "max_weight": 2.0, "max_score": 2.0}
"""One step more: by that factor; of all others one more."""


@dataclass(frozen=True)
class Limits:
    """The most of each that a model may have; None where it does not matter."""

    layers: int | None = None
    heads: int | None = None
    reference_tokens: int | None = None
    parameters: int | None = None
    d_model: int | None = None
    d_head: int | None = None
    max_weight: float | None = None
    max_score: float | None = None

    @property
    def asked(self) -> dict[str, float]:
        """The limits that there are, by name."""
        every = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value for name, value in every if value is not None}

    def hold(self, bill: Bill) -> bool:
        """Whether a model is within all limits."""
        return all(getattr(bill, name) <= limit for name, limit in self.asked.items())

    def relaxed(self) -> Iterator[tuple[str, Limits]]:
        """Each limit with one step more."""
        for name, limit in self.asked.items():
            more = limit * STEPS[name] if name in STEPS else limit + 1
            step: dict[str, Any] = {name: math.ceil(more) if name in WHOLE else more}
            yield name, replace(self, **step)


def checked(limits: Limits) -> Limits:
    """The limits, if they are some: TargetError otherwise."""
    if not limits.asked:
        names = ", ".join(each.name for each in fields(limits))
        raise TargetError(f"nothing is limited, so no error is the smallest: give at least one of {names}")
    for name, limit in limits.asked.items():
        whole = name in WHOLE
        if isinstance(limit, bool) or not (math.isfinite(limit) and limit >= 0) or (whole and limit != int(limit)):
            kind = "a whole number" if whole else "a finite number"
            raise TargetError(f"{name} is {limit!r}; it must be {kind}, not negative")
    return limits
