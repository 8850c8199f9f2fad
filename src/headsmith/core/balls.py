"""Ball arithmetic: the one module that talks to Arb (through python-flint), and rounds its answers outwards.

Enclosing a function of one variable over an interval needs no interval arithmetic: between two of its critical points
a derivative f^(k) is monotone: its range is the hull of its values at the two ends and at the critical points inside.
A `Shape` is one f^(k) in that form: how to evaluate it at a point, and where it turns (core.shapes has the named ones).
Functions that only come as a program are enclosed through their Taylor series over balls instead.

Precision belongs to the whole process in flint: it is set here, inside `precision`, and given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import factorial, inf
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx

from headsmith.core.arrays import Array

PRECISION_BITS = 128
FAST_BITS, FINE_BITS = 80, 256

Ball = arb
Evaluate = Callable[[Ball], Ball]
Bounds = tuple[Array, Array]
Turn = tuple[float, float, float, float]


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with `bits` bits inside, and give flint's process-wide precision back afterwards."""
    saved = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = saved


def upper_float(value: arb) -> float:
    """A double at or above every number in the ball."""
    return _outward(value.upper(), np.inf)


def lower_float(value: arb) -> float:
    """A double at or below every number in the ball."""
    return _outward(value.lower(), -np.inf)


def _outward(end: arb, direction: float) -> float:
    # float() rounds to nearest, and may land on the wrong side: step once, and check exactly.
    nearest = float(end)
    if np.isnan(nearest):
        return direction
    return float(np.nextafter(nearest, direction))


@cache
def gate_constant() -> float:
    """W(1/e), rounded up: the largest value of b (relu(z) - z sigmoid(b z))."""
    with precision(PRECISION_BITS):
        return upper_float((-arb(1)).exp().lambertw())


@cache
def boltzmann_constant(tokens: int) -> float:
    """W((tokens - 1)/e), rounded up: the largest value of b (max z - softmax mean of z) over `tokens` numbers."""
    if tokens <= 1:
        return 0.0
    with precision(PRECISION_BITS):
        return upper_float(((-arb(1)).exp() * (tokens - 1)).lambertw())


# Points -------------------------------------------------------------------------------------------------------------


def point_bounds(evaluate: Evaluate, points: Array) -> Bounds:
    """Doubles just below and just above `evaluate` at each point: two steps apart, or equal if it is a double.

    Points are evaluated with 80 bits, and again with 256 where cancellation left too few of them.
    """
    middle, radius = np.empty(len(points)), np.empty(len(points))
    exact = np.zeros(len(points), dtype=bool)
    every = np.arange(len(points))
    for bits in (FAST_BITS, FINE_BITS):
        with precision(bits):
            _measure(evaluate, points, every, middle, radius, exact)
        every = np.flatnonzero(~exact & ~(radius <= 2.0**-56 * np.abs(middle)))
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = np.nextafter(middle, -inf), np.nextafter(middle, inf)
        # The nearest double of the middle, moved one step, clears the middle by at least 2^-54 of its size, which
        # covers a radius of 2^-56 of it. Elsewhere (a wide ball, or subnormal doubles) the radius is subtracted.
        wide = ~(radius <= 2.0**-56 * np.abs(middle)) | (np.abs(middle) < 2.0**-1000) | ~np.isfinite(middle)
        margin = np.nextafter(radius, inf)
        low = np.where(wide, np.nextafter(low - margin, -inf), low)
        high = np.where(wide, np.nextafter(high + margin, inf), high)
    unknown = ~np.isfinite(middle)
    if unknown.any():
        with precision(FINE_BITS):
            balls = [evaluate(arb(point)) for point in points[unknown].tolist()]
        low[unknown], high[unknown] = [lower_float(b) for b in balls], [upper_float(b) for b in balls]
    return np.where(exact, middle, low), np.where(exact, middle, high)


def _measure(
    evaluate: Evaluate, points: Array, which: Any, middle: Array, radius: Array, exact: np.ndarray[Any, Any]
) -> None:
    """Fill in the middles, the radii, and which values are doubles, of the points `which`."""
    middles, radii, exacts = [], [], []
    for point in points[which].tolist():
        value = evaluate(arb(point))
        nearest, spread = float(value), float(value.rad())
        middles.append(nearest)
        radii.append(spread)
        exacts.append(spread == 0.0 and arb(nearest) == value)
    middle[which], radius[which], exact[which] = middles, radii, exacts


# Intervals, by the points where the function turns ------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """One function of one variable, monotone between its turns and on each side of 0 where it is singular there.

    turns: rows (low, high, value_low, value_high), each an enclosure of a critical point and of the value there.
    turns_up_to: such rows for intervals within [-size, size], for all of these sizes; the function turns without end.
    waves: rows (m, n, value): the function turns at (m + n i) pi/2 for all whole i, and has that value there.
    poles: (m, n) for a function that is not defined at (m + n i) pi/2.
    zero: the one-sided limits at 0 from the left and from the right, where 0 is singular.
    within: the interval on which the function is defined. image: bounds that hold everywhere.
    """

    evaluate: Evaluate
    turns: tuple[Turn, ...] = ()
    turns_up_to: Callable[[Array], tuple[Turn, ...]] | None = None
    waves: tuple[tuple[int, int, float], ...] = ()
    poles: tuple[int, int] | None = None
    zero: tuple[float, float] | None = None
    within: tuple[float, float] = (-inf, inf)
    image: tuple[float, float] = (-inf, inf)


def enclose(shape: Shape, low: Any, high: Any) -> Bounds:
    """Bounds of the function over each interval [low, high]; (-inf, inf) where it is not defined on all of it.

    Guarantee: lower <= f(x) <= upper for every x in the interval, up to singular end points, where the limit counts.
    """
    low, high = np.broadcast_arrays(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    points, place = np.unique(np.concatenate([low.ravel(), high.ravel()]), return_inverse=True)
    below, above = point_bounds(shape.evaluate, points)
    left, right = place[: low.size].reshape(low.shape), place[low.size :].reshape(low.shape)
    lower_left, upper_left, lower_right, upper_right = below[left], above[left], below[right], above[right]
    if shape.zero is not None:
        lower_left, upper_left = (np.where(low == 0.0, shape.zero[1], ends) for ends in (lower_left, upper_left))
        lower_right, upper_right = (np.where(high == 0.0, shape.zero[0], ends) for ends in (lower_right, upper_right))
    lower, upper = np.minimum(lower_left, lower_right), np.maximum(upper_left, upper_right)
    for turn_low, turn_high, value_low, value_high in _turns(shape, low, high):
        inside = (low <= turn_high) & (high >= turn_low)
        lower = np.where(inside, np.minimum(lower, value_low), lower)
        upper = np.where(inside, np.maximum(upper, value_high), upper)
    for quarter, every, value in shape.waves:
        inside = hits(low, high, quarter, every)
        lower = np.where(inside, np.minimum(lower, value), lower)
        upper = np.where(inside, np.maximum(upper, value), upper)
    lower, upper = np.maximum(lower, shape.image[0]), np.minimum(upper, shape.image[1])
    undefined = _undefined(shape, low, high) | ~(lower <= upper)
    return np.where(undefined, -inf, lower), np.where(undefined, inf, upper)


def _turns(shape: Shape, low: Array, high: Array) -> tuple[Turn, ...]:
    if shape.turns_up_to is None:
        return shape.turns
    return shape.turns_up_to(np.maximum(np.abs(low), np.abs(high)))


def hits(low: Any, high: Any, quarter: int, every: int) -> Any:
    """Whether (quarter + every i) pi/2 may lie in [low, high] for some integer i: never a wrong no."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    period = every * np.pi / 2.0
    turn_low, turn_high = low / period - quarter / every, high / period - quarter / every
    # A few roundings, and pi: the relative error is below 1e-15 of the two terms.
    slack = 2e-15 * (np.maximum(np.abs(low), np.abs(high)) / period + abs(quarter / every) + 1.0)
    with np.errstate(invalid="ignore"):
        return np.ceil(turn_low - slack) <= np.floor(turn_high + slack)


def _undefined(shape: Shape, low: Array, high: Array) -> Any:
    wrong = ~(low <= high) | (low < shape.within[0]) | (high > shape.within[1])
    if shape.poles is not None:
        wrong = wrong | hits(low, high, *shape.poles) | ~np.isfinite(high - low)
    if shape.zero is not None:
        wrong = wrong | ((low < 0.0) & (high > 0.0))
    if shape.zero is not None and np.isinf(shape.zero[1]):
        wrong = wrong | ((low == 0.0) & (high == 0.0))
    return wrong


# Functions that come as a program -----------------------------------------------------------------------------------


def enclose_series(evaluator: Callable[[Any], Any], order: int, low: Any, high: Any, depth: int = 6) -> Bounds:
    """Bounds of the `order`-th derivative of a program on series over each interval.

    Guarantee: as `enclose`, if the program maps a power series over balls to an enclosure of its image.
    """
    low, high = np.broadcast_arrays(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
    with precision(PRECISION_BITS):
        pairs = [_by_series(evaluator, order, a, b, depth) for a, b in zip(low.flat, high.flat, strict=True)]
    ends = np.asarray(pairs, dtype=np.float64).reshape(*low.shape, 2)
    return ends[..., 0], ends[..., 1]


def _by_series(evaluator: Callable[[Any], Any], order: int, low: float, high: float, depth: int) -> tuple[float, float]:
    """Hull of the ends where the next derivative keeps its sign; else the mean value form, halved `depth` times."""
    start, end = arb(float(low)), arb(float(high))
    value, slope = taylor(evaluator, start.union(end), order)
    if low == high:
        return lower_float(value), upper_float(value)
    at_ends = [taylor(evaluator, place, order)[0] for place in (start, end)]
    if slope >= 0 or slope <= 0:
        return min(map(lower_float, at_ends)), max(map(upper_float, at_ends))
    middle = ((start + end) / 2).mid()
    by_mean = taylor(evaluator, middle, order)[0] + slope * (start.union(end) - middle)
    bounds = max(lower_float(value), lower_float(by_mean)), min(upper_float(value), upper_float(by_mean))
    spread = max(map(upper_float, at_ends)) - min(map(lower_float, at_ends))
    if depth == 0 or bounds[1] - bounds[0] <= 1.01 * spread:
        return bounds
    halves = [_by_series(evaluator, order, a, b, depth - 1) for a, b in ((low, float(middle)), (float(middle), high))]
    return max(bounds[0], min(h[0] for h in halves)), min(bounds[1], max(h[1] for h in halves))


def taylor(evaluator: Callable[[Any], Any], place: arb, order: int) -> tuple[arb, arb]:
    """The derivatives `order` and `order + 1` of a program at a ball."""
    result = evaluator(arb_series([place, 1], order + 2))
    if not isinstance(result, arb_series):  # a constant
        result = arb_series([result], order + 2)
    return result[order] * factorial(order), result[order + 1] * factorial(order + 1)


def midpoints(evaluator: Callable[[Any], Any], order: int, points: Any) -> Array:
    """The `order`-th derivative of a program at points: an estimate."""
    points = np.asarray(points, dtype=np.float64)
    with precision(PRECISION_BITS):
        values = [float(taylor(evaluator, arb(float(point)), order)[0]) for point in points.flat]
    return np.asarray(values, dtype=np.float64).reshape(points.shape)
