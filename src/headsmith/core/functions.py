"""Named functions of one variable: their values, their rigorous enclosures, where they are defined."""

from __future__ import annotations

from typing import Any, Protocol


class Univariate(Protocol):
    name: str

    def value(self, x: Any, parameter: float | None = None) -> Any: ...


FUNCTIONS: dict[str, Univariate] = {}
