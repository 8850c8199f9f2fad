"""What heads hold for an expression: a table, the constants of a gate head, or nothing, where they multiply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headsmith.core.arrays import Array

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Table:
    """The table that computes one component of an expression: slopes (tokens, variables), offsets and values
    (tokens)."""

    slope: Array
    offset: Array
    values: Array


@dataclass(frozen=True, eq=False)
class GateHead:
    """A gate head that computes one component of y (intercept + incline x): slopes and offsets of its grid (tokens)."""

    slope: Array
    offset: Array


@dataclass(frozen=True, eq=False)
class Multiplied:
    """A product head of linear attention, or two neurons, that compute one component of a product or a square:
    exactly."""


Tables = Mapping[tuple[int, int], Table | GateHead | Multiplied]
"""By circuit node and component."""
