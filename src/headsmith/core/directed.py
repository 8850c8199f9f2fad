"""Interval arithmetic that steps outwards only where a result is not a double.

The error of a floating-point sum or product is itself a double, found by error-free transformations (Knuth's two-sum,
Dekker's two-product). Its sign tells on which side of the computed result the exact one lies.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.kernel.arithmetic import SAFE, product_rest, rounded_quotient, rounded_sum, stepped


def added(left: Interval, right: Interval) -> Interval:
    """Encloses every sum of one member of each."""
    return Interval(rounded_sum(left.low, right.low, -inf), rounded_sum(left.high, right.high, inf))


def multiplied(left: Interval, right: Interval) -> Interval:
    """Encloses every product of one member of each."""
    ends = np.broadcast_arrays(left.low, left.high, right.low, right.high)
    low, high = _products(np.stack([ends[0], ends[0], ends[1], ends[1]]), np.stack([ends[2], ends[3]] * 2))
    return Interval(low.min(axis=0), high.max(axis=0))


def squared(interval: Interval) -> Interval:
    """Encloses the square of every member."""
    magnitude = interval.magnitude
    nearest = np.maximum(np.maximum(interval.low, -interval.high), 0.0)
    ends = np.stack([nearest, magnitude])
    low, high = _products(ends, ends)
    return Interval(np.maximum(low[0], 0.0), high[1])


def divided(numerator: Interval, denominator: Interval) -> Interval:
    """Encloses every quotient; the denominators must not contain 0."""
    corners = [(a, b) for a in (numerator.low, numerator.high) for b in (denominator.low, denominator.high)]
    low = np.minimum.reduce([rounded_quotient(a, b, -inf) for a, b in corners])
    return Interval(low, np.maximum.reduce([rounded_quotient(a, b, inf) for a, b in corners]))


def intersected(left: Interval, right: Interval) -> Interval:
    """What both allow, for two enclosures of the same values; `right` where `left` is not a number."""
    low, high = np.maximum(left.low, right.low), np.minimum(left.high, right.high)
    return Interval(np.where(low <= high, low, right.low), np.where(low <= high, high, right.high))


def _products(a: Array, b: Array) -> tuple[Array, Array]:
    """The doubles next to a b, below and above."""
    with np.errstate(all="ignore"):
        result = a * b
        error = product_rest(a, b, result)
        small = (np.abs(result) < SAFE) & (a != 0.0) & (b != 0.0)
        error = np.where(small, np.nan, error)
        return stepped(result, error, -inf), stepped(result, error, inf)


def fraction_bounds(value: Fraction) -> tuple[float, float]:
    """The doubles next to an exact number on both sides; equal where it is a double."""
    try:
        nearest = float(value)
    except OverflowError:
        largest = float(np.finfo(np.float64).max)
        return (largest, inf) if value > 0 else (-inf, -largest)
    exact = Fraction(nearest)
    low = nearest if exact <= value else float(np.nextafter(nearest, -inf))
    return low, nearest if exact >= value else float(np.nextafter(nearest, inf))


def exact_sum(terms: list[tuple[Fraction, float, float]], constant: Fraction) -> tuple[float, float]:
    """The range of constant + sum coefficient * [low, high], rounded once, at the end."""
    low = constant + sum(c * Fraction(start if c > 0 else end) for c, start, end in terms)
    high = constant + sum(c * Fraction(end if c > 0 else start) for c, start, end in terms)
    return fraction_bounds(low)[0], fraction_bounds(high)[1]


def interval_of(value: Fraction) -> Interval:
    """An exact number as an interval of doubles."""
    low, high = fraction_bounds(value)
    return Interval(np.asarray(low), np.asarray(high))


def hull(*intervals: Interval) -> Interval:
    """The smallest interval round several."""
    low = np.minimum.reduce([interval.low for interval in intervals])
    return Interval(low, np.maximum.reduce([interval.high for interval in intervals]))


def multiple(factor: Fraction, interval: Interval) -> Interval:
    """Encloses factor times every member."""
    low, high = fraction_bounds(factor)
    if low != high:
        return multiplied(Interval(np.asarray(low), np.asarray(high)), interval)
    first, second = (interval.low, interval.high) if low >= 0.0 else (interval.high, interval.low)
    if abs(low) == 1.0:
        return Interval(low * first, low * second)
    below, above = _products(np.asarray(low), np.stack([first, second]))
    return Interval(below[0], above[1])
