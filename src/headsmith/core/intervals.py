"""Vectors and matrices of intervals, rounded outwards, and boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError
from headsmith.core.rounding import FLOAT64, magnitude_product, upper


@dataclass(frozen=True, eq=False)
class Interval:
    """An array of closed intervals [low, high]."""

    low: Array
    high: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", frozen(self.low))
        object.__setattr__(self, "high", frozen(self.high))

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
    rises, falls = (parts > 0.0), (parts < 0.0)
    negative = ((rises & (ends.low < 0.0)) | (falls & (ends.high > 0.0))).any(axis=1)
    positive = ((rises & (ends.high > 0.0)) | (falls & (ends.low < 0.0))).any(axis=1)
    low[rows] = np.where(negative, low[rows], np.maximum(low[rows], 0.0))
    high[rows] = np.where(positive, high[rows], np.minimum(high[rows], 0.0))
    return Interval(low, high)


def add(left: Interval, right: Interval) -> Interval:
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

    def refuse_outside(self, inputs: Array) -> None:
        """Raise DomainError naming the first coordinate of `inputs` (..., size) that lies outside, or is no number."""
        inside = (inputs >= self.low) & (inputs <= self.high)
        if inside.all():
            return
        where = np.argwhere(~inside)[0]
        coordinate = int(where[-1])
        raise DomainError(
            f"input {self.names[coordinate]} = {float(inputs[tuple(where)])!r} lies outside its domain "
            f"[{float(self.low[coordinate])!r}, {float(self.high[coordinate])!r}]; the certificate holds only inside "
            f'(compile for a larger domain, or pass outside="allow" to run without any promise)'
        )


def as_box(domain: Any, names: Sequence[str]) -> Box:
    """Read a domain: a mapping from names, one pair for all inputs, or a sequence of pairs."""
    names = tuple(names)
    if domain is None:
        raise DomainError(f"no domain was given; give one interval for each of {', '.join(names[:6])}, e.g. (-1, 1)")
    if isinstance(domain, Box):
        if domain.size != len(names):
            raise DomainError(f"the domain has {domain.size} intervals and the target {len(names)} inputs")
        return Box(names, domain.low, domain.high)
    if isinstance(domain, Mapping):
        return _box_from_mapping(domain, names)
    try:
        pairs = np.asarray(domain, dtype=np.float64)
    except (TypeError, ValueError):
        raise DomainError(f"the domain {domain!r} is neither a pair (low, high) nor a sequence of pairs") from None
    if pairs.shape == (2,):
        pairs = np.tile(pairs, (len(names), 1))
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DomainError(f"the domain {domain!r} is neither a pair (low, high) nor a sequence of pairs")
    if len(pairs) != len(names):
        raise DomainError(f"the domain has {len(pairs)} intervals and the target {len(names)} inputs")
    return Box(names, pairs[:, 0], pairs[:, 1])


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
            raise DomainError(f"the domain of {name} is {domain[name]!r}; write a pair (low, high)") from None
        pairs.append((low, high))
    ends = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return Box(names, ends[:, 0], ends[:, 1])
