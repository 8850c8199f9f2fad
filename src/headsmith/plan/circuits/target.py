"""What a fragment approximates: a named function of one variable, perhaps less a linear part; and where it bends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.functions import FUNCTIONS

UNIFORM = 2048
DECADES = 16
DEEP_DECADES = 40


@dataclass(frozen=True)
class Target:
    """f(x) - slope x - offset, f = FUNCTIONS[name]."""

    name: str
    parameter: float | None = None
    slope: float = 0.0
    offset: float = 0.0

    def value(self, x: Any) -> Array:
        """The function's values, in double precision."""
        x = np.asarray(x, dtype=np.float64)
        found = FUNCTIONS[self.name].value(x, self.parameter)
        return np.asarray(found - self.slope * x - self.offset, dtype=np.float64)

    def derivative(self, x: Any, order: int) -> Array:
        """The second or third derivative."""
        assert order >= 2
        return np.asarray(FUNCTIONS[self.name].derivative(x, order, self.parameter), dtype=np.float64)

    @property
    def slow(self) -> bool:
        """Whether values come one at a time, from a program."""
        return getattr(FUNCTIONS[self.name], "program", None) is not None


@dataclass(frozen=True, eq=False)
class Density:
    """The integral of |f^(order)|^(1/order) up to each of `points`: knots that share it out share the error out."""

    points: Array
    cumulative: Array

    @property
    def total(self) -> float:
        return float(self.cumulative[-1])

    def places(self, count: int, floor: float = 0.05) -> Array:
        """`count` points from end to end, equally spaced in the integral; `floor` mixes in some equal spacing in x."""
        width = self.points[-1] - self.points[0]
        even = (self.points - self.points[0]) / width
        bend = self.cumulative / self.total if self.total > 0.0 else even
        mixed = (1.0 - floor) * bend + floor * even
        places = np.interp(np.linspace(0.0, 1.0, count), mixed / mixed[-1], self.points)
        places[0], places[-1] = self.points[0], self.points[-1]
        return places


def density(target: Target, low: float, high: float, order: int) -> Density:
    """Where `target` bends on [low, high], by the midpoint rule on cells that shrink towards both ends and towards 0.

    The ends may be singular (the root at 0), and 0 is where the named functions have their features on a wide domain.
    """
    points = _cells(low, high, UNIFORM // 8 if target.slow else UNIFORM)
    middle = 0.5 * (points[:-1] + points[1:])
    bend = np.abs(target.derivative(middle, order))
    bend = np.where(np.isfinite(bend), bend, 0.0) ** (1.0 / order)
    return Density(points, np.concatenate([[0.0], np.cumsum(bend * np.diff(points))]))


def _cells(low: float, high: float, uniform: int) -> Array:
    width = high - low
    shrinking = width * np.logspace(-DECADES, 0.0, uniform // 4)
    # Next to 0 doubles are dense: a power with a small exponent still bends there.
    deep = width * np.logspace(-DEEP_DECADES, 0.0, uniform // 2)
    parts = [np.linspace(low, high, uniform + 1)]
    parts.append(low + shrinking if low != 0.0 else deep)
    parts.append(high - shrinking if high != 0.0 else -deep)
    if low < 0.0 < high:
        parts += [shrinking, -shrinking]
    points = np.unique(np.concatenate(parts))
    return points[(points >= low) & (points <= high)]
