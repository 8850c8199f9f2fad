"""Vectors and matrices of intervals, rounded outwards, and boxes.

Large images are always rounded outwards (`linear_image`, `added_outwards`). Below, arithmetic that steps outwards only
where a result is not a double: the error of a floating-point sum or product is itself a double, found by error-free
transformations (Knuth's two-sum, Dekker's two-product), and its sign tells on which side of the computed result the
exact one lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen, locked, reals
from headsmith.core.errors import DomainError
from headsmith.core.rounding import FLOAT64, magnitude_product, upper
from headsmith.kernel.core.arithmetic import SAFE, product_rest, rounded_quotient, rounded_sum, stepped
from headsmith.kernel.core.sparse import Sparse


@dataclass(frozen=True, eq=False)
class Interval:
    """An array of closed intervals [low, high]."""

    low: Array
    high: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", locked(self.low))
        object.__setattr__(self, "high", locked(self.high))

    @property
    def magnitude(self) -> Array:
        """The largest absolute value in each interval."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def inflated(self, margin: Array) -> Interval:
        """Every interval widened by `margin` on both sides, rounded outwards."""
        return Interval(np.nextafter(self.low - margin, -np.inf), np.nextafter(self.high + margin, np.inf))

    def relu(self) -> Interval:
        """The image under max(., 0): exact."""
        return Interval(np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.low[index], self.high[index])


def first_columns(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Of ranges with columns, the first one."""
    return tuple(Interval(each.low[:, 0], each.high[:, 0]) for each in intervals)


def centre_and_radius(interval: Interval) -> tuple[Array, Array]:
    """A floating-point centre and a radius, rounded up, whose ball holds the interval."""
    centre = 0.5 * interval.low + 0.5 * interval.high
    radius = np.maximum(interval.high - centre, centre - interval.low)
    return centre, np.nextafter(radius, np.inf)


def ball(centre: Array, radius: Array) -> Interval:
    """[centre - radius, centre + radius], rounded outwards."""
    return Interval(np.nextafter(centre - radius, -np.inf), np.nextafter(centre + radius, np.inf))


def linear_image(weights: Array, interval: Interval) -> Interval:
    """Encloses weights @ x for all x in `interval`; `weights` dense (to, from) or diagonal (a vector).

    Guarantee: with c, r the centre and radius, W x lies within |W| r of W c exactly, and the computed W c within
    gamma_n |W| |c| of W c.
    """
    centre, radius = centre_and_radius(interval)
    count = 1 if weights.ndim == 1 else weights.shape[1]
    image = (weights * centre.T).T if weights.ndim == 1 else weights @ centre
    spread = upper(radius + FLOAT64.gamma(count + 1) * np.abs(centre), 2)
    found = ball(image, magnitude_product(weights, spread) + (count + 1) * FLOAT64.smallest_normal)
    return _kept_at_zero(weights, interval, found) if found.low.ndim == 1 else found


def _kept_at_zero(weights: Array, interval: Interval, found: Interval) -> Interval:
    """A sum of non-negative products is not negative: undo the outward step, or stable gates seem to cross zero."""
    margin = 1e-9 * (found.high - found.low) + 1e-290
    low, high = found.low, found.high
    rows = np.flatnonzero(((low < 0.0) & (low >= -margin)) | ((high > 0.0) & (high <= margin)))
    if not len(rows):
        return found
    low, high = low.copy(), high.copy()
    if weights.ndim == 1:
        parts, ends = weights[rows, None], interval[rows, None]
    else:
        parts, ends = weights[rows], interval
    if isinstance(parts, Sparse):
        parts, columns = parts.packed()
        ends = interval[columns]
    rises, falls = (parts > 0.0), (parts < 0.0)
    negative = ((rises & (ends.low < 0.0)) | (falls & (ends.high > 0.0))).any(axis=1)
    positive = ((rises & (ends.high > 0.0)) | (falls & (ends.low < 0.0))).any(axis=1)
    low[rows] = np.where(negative, low[rows], np.maximum(low[rows], 0.0))
    high[rows] = np.where(positive, high[rows], np.minimum(high[rows], 0.0))
    return Interval(low, high)


def added_outwards(left: Interval, right: Interval) -> Interval:
    """Encloses every sum of one member of each; adding zero is exact."""
    return Interval(_sum(left.low, right.low, -np.inf), _sum(left.high, right.high, np.inf))


def _sum(left: Array, right: Array, outwards: float) -> Array:
    total = left + right
    return np.where((left == 0.0) | (right == 0.0), total, np.nextafter(total, outwards))


def point(values: Array) -> Interval:
    """The interval that holds exactly `values`."""
    return Interval(values, values)


@dataclass(frozen=True, eq=False)
class Box:
    """A domain: one finite interval for each input, with the inputs' names."""

    names: tuple[str, ...]
    low: Array
    high: Array

    def __repr__(self) -> str:
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), strict=True)
        shown = [f"{name}: [{low:g}, {high:g}]" for name, low, high in list(ends)[:4]]
        return f"Box({', '.join(shown)}{f', ... ({len(self.names)} intervals)' if len(self.names) > 4 else ''})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", frozen(self.low))
        object.__setattr__(self, "high", frozen(self.high))
        if not len(self.names) == len(self.low) == len(self.high):
            raise DomainError(
                f"the domain has {len(self.low)} lower and {len(self.high)} upper ends for {len(self.names)} inputs"
            )
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not (np.isfinite(low) and np.isfinite(high)):
                raise DomainError(f"the domain of {name} is [{low}, {high}]; both ends must be finite numbers")
            if low > high:
                raise DomainError(f"the domain of {name} is [{low}, {high}]: reversed; write ({high}, {low})")

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)

    def contains(self, inputs: Array) -> Any:
        """Whether each number of `inputs` (..., size) lies inside; what is no number does not."""
        return (inputs >= self.low) & (inputs <= self.high)

    def refuse_outside(self, inputs: Array, remedy: str = 'pass outside="allow"') -> None:
        """Raise DomainError naming the first coordinate of `inputs` (..., size) that lies outside, or is no number, and
        its row where there are several."""
        inside = self.contains(inputs)
        if inside.all():
            return
        where = tuple(map(int, np.argwhere(~inside)[0]))
        coordinate = where[-1]
        row = f" in row {', '.join(map(str, where[:-1]))}" if inputs.size > self.size else ""
        if np.isnan(inputs[where]):
            raise DomainError(f"input {self.names[coordinate]}{row} is nan, which is not a number")
        raise DomainError(
            f"input {self.names[coordinate]} = {float(inputs[where])!r}{row} lies outside its domain "
            f"[{float(self.low[coordinate])!r}, {float(self.high[coordinate])!r}]; the certificate holds only inside "
            f"(compile for a larger domain, or {remedy} to run without any promise)"
        )


def as_box(domain: Any, names: Sequence[str]) -> Box:
    """Read a domain: a mapping from names, one pair for all inputs, a sequence of pairs, or two arrays: all lower ends
    and all upper ends."""
    names = tuple(names)
    if domain is None:
        raise DomainError(f"no domain was given; give one interval for each of {', '.join(names[:6])}, e.g. (-1, 1)")
    if isinstance(domain, Box):
        if domain.size != len(names):
            raise DomainError(f"the domain has {domain.size} intervals and the target {len(names)} inputs")
        return Box(names, domain.low, domain.high)
    if isinstance(domain, Mapping):
        return _box_from_mapping(domain, names)
    pairs = _pairs(domain, len(names))
    if len(pairs) != len(names):
        raise DomainError(f"the domain has {len(pairs)} intervals and the target {len(names)} inputs")
    return Box(names, pairs[:, 0], pairs[:, 1])


def _pairs(domain: Any, count: int) -> Array:
    """The intervals (count, 2) of a domain without names. Two arrays are all lower ends and all upper ends; where two
    arrays of two numbers each could as well be two pairs, and both readings make sense, they are refused."""
    try:
        read = reals(domain)
    except (TypeError, ValueError):
        read = np.zeros(0)
    if read.shape == (2,):
        return np.tile(read, (count, 1))
    if read.ndim == 2 and read.shape == (2, count) != (2, 2):
        return np.asarray(read.T)
    if read.ndim != 2 or read.shape[1] != 2:
        raise DomainError(
            f"the domain {shortly(domain)} is neither a pair (low, high) for all inputs, nor a pair for each of the "
            f"{count} inputs, nor {{name: (low, high), ...}}"
            + ("; of data, take hs.domain_of(data)" if read.ndim == 2 and read.shape[1] == count else "")
        )
    arrays = isinstance(domain, tuple) and all(isinstance(part, np.ndarray) for part in domain)
    if not arrays or count != 2 or not (read[0] < read[1]).all():
        return read
    if (read[:, 0] < read[:, 1]).all():
        raise DomainError(
            f"the domain {shortly(domain)} may be two pairs (low, high), or all lower and all upper ends: write "
            f"[(low, high), (low, high)], or numpy.stack([low, high], axis=1)"
        )
    return np.asarray(read.T)


def shortly(given: Any) -> str:
    """What was given, for a message: itself, or its shape where it is long."""
    text = " ".join(repr(given).split())
    if len(text) <= 80:
        return text
    shape = np.shape(given) if isinstance(given, np.ndarray) else None
    return f"of shape {shape}" if shape is not None else f"{text[:60]}..."


def _box_from_mapping(domain: Mapping[str, Any], names: tuple[str, ...]) -> Box:
    missing = [name for name in names if name not in domain]
    unknown = [name for name in domain if name not in names]
    if missing or unknown:
        parts = [f"no interval for {', '.join(missing)}"] * bool(missing)
        parts += [f"an interval for {', '.join(map(str, unknown))}, which the target does not use"] * bool(unknown)
        raise DomainError("the domain has " + " and ".join(parts))
    pairs = []
    for name in names:
        try:
            low, high = (float(end) for end in domain[name])
        except (TypeError, ValueError):
            raise DomainError(f"the domain of {name} is {shortly(domain[name])}; write a pair (low, high)") from None
        pairs.append((low, high))
    ends = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return Box(names, ends[:, 0], ends[:, 1])


# Outwards only where a result is not a double -------------------------------------------------------------------------


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


def range_of_sum(constant: Fraction, terms: Sequence[tuple[Fraction, Array, Array]], columns: int) -> Interval:
    """The constant plus c [low, high] summed over `terms`, for every column; the first column is rounded once only."""
    fixed = interval_of(constant)
    if not terms:
        return Interval(np.full(columns, fixed.low), np.full(columns, fixed.high))
    low, high = np.empty((2, columns))
    if columns > 1:
        total = fixed
        for coefficient, start, end in terms:
            total = added(total, multiple(coefficient, Interval(start, end)))
        low, high = np.array(total.low), np.array(total.high)
    low[0], high[0] = exact_sum([(c, float(start[0]), float(end[0])) for c, start, end in terms], constant)
    return Interval(low, high)


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
