"""Sizes and intervals: how the small kernel's own arithmetic is kept from lying.

**Sizes** are arrays of numbers that are not negative, and they are only added, multiplied, divided by lower bounds,
compared, and put through sqrt and exp. Nothing cancels, so each such step loses at most a few units u = 2^-53 of
the result, however many numbers meet in it; a file has fewer than 2^21 of them in a row (`check.py` counts), which
together are less than 2^-30. A size is therefore raised by SLACK = 1 + 2^-29 wherever a decision or an answer
depends on it, and nowhere else. FLOOR, far above all that underflows, is added where products may be lost, and
nothing that is counted is above 1 / FLOOR.

**Intervals** are rounded outwards, end by end, and not at all where an end is a double: gates that touch zero
depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ROUNDOFF, FLOOR, SLACK, FEW = 2.0**-53, 2.0**-500, 1 + 2.0**-29, 32


class Refused(Exception):
    """The one sentence why nothing is proved: a condition that the file must meet does not hold."""


class Outside(Refused):
    """The file is of a kind that the small kernel does not know."""

    def __init__(self, what: str) -> None:
        super().__init__(f"outside the small kernel: {what}")


class Loose(Refused):
    """The bounds of the small kernel are too wide for the file; those of another kernel may not be."""


def require(condition: Any, sentence: str, kind: type[Refused] = Refused) -> None:
    """Go on if the condition holds; otherwise the file is refused."""
    if not condition:
        raise kind(sentence)


def gamma(k: Any, u: float = ROUNDOFF) -> Any:
    """gamma_k = k u / (1 - k u): how much k roundings may change a number, relative to its size."""
    k = np.asarray(k, dtype=float)
    return np.where(k * u < 0.5, k * u / (1 - k * u), np.inf)


def carried(weights: Array, sizes: Array) -> Array:
    """|weights| @ sizes. Weights that are a vector are a diagonal matrix."""
    size = np.abs(weights)
    return np.asarray(size @ sizes if size.ndim == 2 else size * sizes if sizes.ndim == 1 else size[:, None] * sizes)


def outwards(value: Array, error: Array) -> tuple[Array, Array]:
    """The doubles around value + error: value itself on the side where it is a bound already. No number: unknown."""
    low = np.where(error >= 0, value, np.nextafter(value, -np.inf))
    high = np.where(error <= 0, value, np.nextafter(value, np.inf))
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def added(a: Array, b: Array) -> tuple[Array, Array]:
    """The doubles around a + b: the error of a sum is a double itself (Knuth)."""
    s = a + b
    return outwards(s, (a - (s - (s - a))) + (b - (s - a)))


def multiplied(a: Array, b: Array) -> tuple[Array, Array]:
    """The doubles around a b: its error is a double (Dekker), unless something leaves the format."""
    p, zero = np.where((a == 0) | (b == 0), 0.0, a * b), (a == 0) | (b == 0)
    x, y = (c * 134217729.0 - (c * 134217729.0 - c) for c in (a, b))
    error = ((x * y - p) + x * (b - y) + (a - x) * y) + (a - x) * (b - y)
    return outwards(p, np.where(zero, 0.0, np.where(np.abs(p) < 2.0**-960, np.nan, error)))


class Span:
    """Intervals [low, high], entry by entry."""

    __array_ufunc__ = None

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = np.array(low, dtype=float), np.array(high, dtype=float)

    def __add__(self, other: Span) -> Span:
        return Span(added(self.low, other.low)[0], added(self.high, other.high)[1])

    def __neg__(self) -> Span:
        return Span(-self.high, -self.low)

    def __mul__(self, other: Span) -> Span:
        ends = [multiplied(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0))

    def __getitem__(self, index: Any) -> Span:
        return Span(self.low[index], self.high[index])

    def wider(self, by: Any) -> Span:
        """Wider by a size."""
        return self + Span(-by * SLACK, by * SLACK) if np.any(by) else self

    def hull(self, other: Span) -> Span:
        return Span(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def meet(self, other: Span) -> Span:
        return Span(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def over_cells(self, count: int = 0) -> Span:
        """The hull along the last axis, repeated `count` times if that is not 0."""
        low, high = self.low.min(axis=-1), self.high.max(axis=-1)
        return (
            Span(low, high) if not count else Span(*(np.repeat(end[..., None], count, axis=-1) for end in (low, high)))
        )

    @property
    def size(self) -> Array:
        return np.asarray(np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def sides(self) -> tuple[Array, Array]:
        """How far the interval goes below zero, and above."""
        return np.maximum(-self.low, 0.0), np.maximum(self.high, 0.0)


def point(x: Any) -> Span:
    return Span(x, x)


def image(weights: Array, x: Span) -> Span:
    """weights @ x: term by term where rows have few entries, else from midpoints and radii."""
    if weights.ndim == 1:
        return point(weights.reshape(-1, *[1] * (x.low.ndim - 1))) * x
    count = np.count_nonzero(weights, axis=1)
    most = int(count.max(initial=0))
    if most > FEW:
        middle = x.low / 2 + x.high / 2
        slack = (
            carried(weights, np.maximum(x.high - middle, middle - x.low))
            + gamma(most + 2) * carried(weights, x.size)
            + FLOOR
        )
        return point(weights @ middle).wider(slack)
    rows, columns = np.nonzero(weights)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    entries, reads = np.zeros((len(weights), most)), np.zeros((len(weights), most), dtype=int)
    entries[rows, place], reads[rows, place] = weights[rows, columns], columns
    total = point(np.zeros((len(weights), *x.low.shape[1:])))
    for k in range(most):
        total = total + image(entries[:, k], x[reads[:, k]])
    return total
