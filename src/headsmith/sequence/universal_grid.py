"""The grid of a sampled callable, coordinate by coordinate: cells, their middles as doubles, and steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box
from headsmith.kernel.rules.sampled import BEYOND


@dataclass(frozen=True, eq=False)
class Axes:
    """The grid, coordinate by coordinate: t = scale * (s - middle) is a number in steps; `drift` bounds how far knots,
    which are doubles, are from the nodes that they stand for."""

    knots: tuple[Array, ...]
    nodes: tuple[Array, ...]
    steps: Array
    scale: Array
    middle: Array
    drift: Array


def axes_of(box: Box, counts: tuple[int, ...]) -> Axes:
    """The grid with these counts of cells on the box; DomainError where doubles are too coarse or too few for it."""
    found = [_axis(*item) for item in zip(box.names, box.low.tolist(), box.high.tolist(), counts, strict=True)]
    knots, nodes, steps, scale, middle, drift = zip(*found, strict=True)
    return Axes(knots, nodes, frozen(steps), frozen(scale), frozen(middle), frozen(drift))


def _axis(name: str, low: float, high: float, count: int) -> tuple[Array, Array, float, float, float, float]:
    """(knots, nodes, step, scale, middle, drift) of one coordinate."""
    if low == high:
        if count != 1:
            raise DomainError(f"the domain of {name} is one number, {low!r}: {count} cells do not fit into it")
        return frozen([low]), frozen([0.0]), 0.0, 0.0, low, 0.0
    start, end = Fraction(low), Fraction(high)
    nodes = [Fraction(2 * k - count + 1, 2) for k in range(count)]
    try:
        scale = float(count / (end - start))
        step = math.nextafter(float(1 / Fraction(scale)), math.inf)
    except (OverflowError, ZeroDivisionError):
        raise DomainError(
            f"the domain of {name}, [{low!r}, {high!r}], is too thin or too wide for {count} cells"
        ) from None
    middle = float((start + end) / 2)
    exact = [Fraction(middle) + node / Fraction(scale) for node in nodes]
    knots = np.array([float(min(max(knot, start), end)) for knot in exact])
    drift = max(abs(Fraction(float(knot)) - at) for knot, at in zip(knots, exact, strict=True))
    beyond = max(abs(Fraction(scale) * (at - Fraction(middle))) - Fraction(count, 2) for at in (start, end))
    if not (np.diff(knots) > 0.0).all() or beyond > BEYOND / 4.0:
        raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin for {count} cells in doubles")
    return frozen(knots), frozen(nodes), step, scale, middle, math.nextafter(float(drift), math.inf)
