"""The range of a program over many small boxes at once, by interval arithmetic in float64, rounded outwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from headsmith.core import directed
from headsmith.core.arrays import Array
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval
from headsmith.core.program import Arithmetic, Program, run_program


def program_range(program: Program, lows: Any, highs: Any) -> tuple[Array, Array]:
    """Bounds of the program over each box: `lows` and `highs` have the shape (variables, boxes).

    Guarantee: low <= f(s) <= high for all s of the box; (-inf, inf) where the program may not be defined on all of it,
    or overflows; never nan.
    """
    low, high = np.broadcast_arrays(np.asarray(lows, dtype=np.float64), np.asarray(highs, dtype=np.float64))
    shape = low.shape[1:]
    with np.errstate(all="ignore"):
        result = run_program(program, [_known(Interval(a, b)) for a, b in zip(low, high, strict=True)], NUMBERS)
    return np.broadcast_to(result.low, shape).copy(), np.broadcast_to(result.high, shape).copy()


MOST_BOXES, DEEPEST = 400, 30


def defined_on(program: Program, box: Sequence[tuple[float, float]]) -> bool:
    """Whether the program has bounded values on all of the box; no, where halving boxes does not show it soon."""
    low, high = (np.array([[pair[end]] for pair in box], dtype=np.float64) for end in (0, 1))
    for level in range(DEEPEST * len(box)):
        unknown = ~np.isfinite(program_range(program, low, high)[0])
        if not unknown.any():
            return True
        low, high = low[:, unknown], high[:, unknown]
        if low.shape[1] > MOST_BOXES:
            return False
        middle = low / 2.0 + high / 2.0
        axis = (np.arange(len(box)) == level % len(box))[:, None]
        low, high = (
            np.concatenate([low, np.where(axis, middle, low)], axis=1),
            np.concatenate([np.where(axis, middle, high), high], axis=1),
        )
    return False


def _known(interval: Interval) -> Interval:
    """What is infinite, crossed or not a number at one end is unknown: nothing that follows from it is known."""
    fine = np.isfinite(interval.low) & np.isfinite(interval.high) & (interval.low <= interval.high)
    return Interval(np.where(fine, interval.low, -inf), np.where(fine, interval.high, inf))


def _lifted(operation: Callable[..., Interval]) -> Callable[..., Interval]:
    """The operation where all operands are known."""

    def lifted(*operands: Interval) -> Interval:
        found = _known(operation(*operands))
        known = np.asarray(True)
        for operand in operands:
            known = known & np.isfinite(operand.low)
        return Interval(np.where(known, found.low, -inf), np.where(known, found.high, inf))

    return lifted


def _product(left: Interval, right: Interval) -> Interval:
    return directed.squared(left) if left is right else directed.multiplied(left, right)


def _quotient(numerator: Interval, denominator: Interval) -> Interval:
    zero = (denominator.low <= 0.0) & (denominator.high >= 0.0)
    safe = Interval(np.where(zero, 1.0, denominator.low), np.where(zero, 1.0, denominator.high))
    found = directed.divided(numerator, safe)
    return Interval(np.where(zero, -inf, found.low), np.where(zero, inf, found.high))


def _multiple(coefficient: Fraction, value: Interval) -> Interval:
    return value if coefficient == 1 else _lifted(lambda operand: directed.multiple(coefficient, operand))(value)


def _image(name: str, parameter: float | None, value: Interval) -> Interval:
    function = FUNCTIONS[name]

    def image(operand: Interval) -> Interval:
        fine = np.isfinite(operand.low) & function.domain(parameter).covers(operand.low, operand.high)
        low, high = np.full(operand.low.shape, -inf), np.full(operand.low.shape, inf)
        low[fine], high[fine] = function.enclose(operand.low[fine], operand.high[fine], 0, parameter)
        return Interval(low, high)

    return _lifted(image)(value)


NUMBERS = Arithmetic(
    constant=directed.interval_of,
    scaled=_multiple,
    added=_lifted(directed.added),
    multiplied=_lifted(_product),
    divided=_lifted(_quotient),
    called=_image,
)
