"""Bessel functions of the first kind and of whole order: values, rigorous derivatives, where they turn.

Everything follows from the integral of Bessel, for all real x and all orders k of derivatives:

    J_n(x) = (1 / 2 pi) integral of cos(n s - x sin s) ds       over a period, so |J_n^(k)(x)| <= 1
    2^k J_n^(k) = sum_j (-1)^j binom(k, j) J_(n - k + 2 j)       and J_(-m) = (-1)^m J_m
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb, inf
from typing import Any

import numpy as np
from flint import arb

from headsmith.core.arrays import Array
from headsmith.core.balls import PRECISION_BITS, Ball, Evaluate, Shape, Turn, lower_float, precision, upper_float

NARROW = 2.0**-28
"""A critical point is enclosed in intervals of this width: the function moves by no more than its square there."""
LARGEST = 256.0
"""Critical points beyond this are not looked for: the function is somewhere in [-1, 1] there."""
MOST_SUMMED = 2000.0


# Over balls ---------------------------------------------------------------------------------------------------------


def bessel_derivative(n: int, order: int, x: Ball) -> Ball:
    """J_n^(order) at a narrow ball."""
    return _combined(n, order, {m: x.bessel_j(m) for m in {abs(n - order + 2 * j) for j in range(order + 1)}})


def _combined(n: int, order: int, known: dict[int, Ball]) -> Ball:
    """J_n^(order) from the J_m with m >= 0 that it needs."""
    total = arb(0)
    for j in range(order + 1):
        m = n - order + 2 * j
        total += (-1) ** (j + min(m, 0) % 2) * comb(order, j) * known[abs(m)]
    return total / arb(2**order)


def bessel_derivatives(n: int) -> Callable[[int], Evaluate]:
    """order -> J_n^(order), at points."""
    return lambda order: lambda x: bessel_derivative(n, order, x)


# Where a function turns whose derivatives are all at most 1 -----------------------------------------------------------


def wave(derivatives: Callable[[int], Evaluate], order: int) -> Shape:
    """The shape of a derivative of an even or odd function all of whose derivatives lie in [-1, 1]."""
    value, slope, bend = (derivatives(order + more) for more in range(3))

    @lru_cache(maxsize=16)
    def rows(reach: float) -> tuple[Turn, ...]:
        return _rows(value, slope, bend, reach)

    def turns_up_to(sizes: Array) -> tuple[Turn, ...]:
        # An interval that reaches beyond LARGEST has all of [-1, 1] as its range: it needs no other rows.
        near, reach = sizes[sizes <= LARGEST], 4.0
        while reach < np.max(near, initial=0.0):
            reach *= 2.0
        beyond: tuple[Turn, ...] = ((LARGEST, inf, -1.0, 1.0), (-inf, -LARGEST, -1.0, 1.0))
        return (*(rows(reach) if near.size else ()), *(beyond if np.any(sizes > LARGEST) else ()))

    return Shape(value, turns_up_to=turns_up_to, image=(-1.0, 1.0))


def _rows(value: Evaluate, slope: Evaluate, bend: Evaluate, reach: float) -> tuple[Turn, ...]:
    """Intervals that hold all roots of `slope` in [-reach, reach], each with the range of `value` on it.

    On [m - r, m + r] the slope moves by at most |bend(m)| r + r^2 / 2 from its value at m: where that is larger, there
    is no root. What is left after halving has value(m) +- (|slope(m)| r + r^2 / 2) as its range.
    """

    def may_turn(place: Ball, radius: Ball) -> bool:
        return not abs(slope(place)) > abs(bend(place)) * radius + radius * radius / 2

    width = 0.5
    places = np.arange(-reach, reach, width) + width / 2.0
    with precision(PRECISION_BITS):
        while True:
            radius = arb(width / 2.0)
            places = places[[may_turn(arb(place), radius) for place in places.tolist()]]
            if width <= NARROW:
                break
            width /= 2.0
            places = np.concatenate([places - width / 2.0, places + width / 2.0])
        found: list[Turn] = []
        for place in np.sort(places).tolist():
            spread = abs(slope(arb(place))) * radius + radius * radius / 2
            ball = value(arb(place)) + spread * arb(0, 1)
            row = place - width / 2.0, place + width / 2.0, lower_float(ball), upper_float(ball)
            if found and found[-1][1] >= row[0]:
                row = found[-1][0], row[1], min(found[-1][2], row[2]), max(found[-1][3], row[3])
                found.pop()
            found.append(row)
    return tuple(found)


# In floating point --------------------------------------------------------------------------------------------------


def bessel_values(n: int, order: int, x: Any) -> Any:
    """J_n^(order) in the floating point of `x`: an estimate.

    The mean of the integrand at N points misses J_(N-n)(x) and less, which is below 1e-19 where N exceeds |x| enough.
    """
    x = np.asarray(x)
    with np.errstate(invalid="ignore"):
        size = float(np.max(np.abs(x[np.abs(x) <= MOST_SUMMED]), initial=0.0)) if x.ndim else float(abs(x))
    if x.ndim == 0:
        return bessel_values(n, order, x[None])[0]
    small = np.abs(x) <= MOST_SUMMED
    result = np.full(x.shape, np.nan, dtype=x.dtype)
    count = int(size + 10.0 * size ** (1.0 / 3.0) + 44.0 + n)
    kind = x.dtype.type
    angles = (2 * _pi(kind) / count) * np.arange(count).astype(x.dtype)
    sines, phase = np.sin(angles), kind(n) * angles
    waves = (np.cos, lambda a: -np.sin(a), lambda a: -np.cos(a), np.sin)[order % 4]
    flat = x[small]
    parts = [
        np.mean((-sines) ** order * waves(phase - part[:, None] * sines), axis=1)
        for part in np.array_split(flat, max(1, len(flat) // 4096))
    ]
    result[small] = np.concatenate(parts)
    for index in zip(*np.nonzero(~small & np.isfinite(x)), strict=True):
        result[index] = float(bessel_derivative(n, order, arb(float(x[index]))))
    return result


def _pi(kind: Any) -> Any:
    """pi in the format, from two doubles."""
    return kind(np.pi) + kind(1.2246467991473532e-16)
