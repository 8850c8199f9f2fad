"""Where a function differs from a reference in alternating directions: the search behind lower bounds.

A reference r and points at which f - r alternates prove that heads cannot be better (kernel/rules/lower_bound.py): the
best bound is that of the reference whose smallest difference at so many points is largest. For heads of two tokens that
is the best head itself, by Remez' exchange: a head of two tokens has four numbers, and its best errors alternate at the
five points that the proof needs. Where the best heads have values without limit, their limit is c + u e^(b s), of three
numbers, and four points will do. So nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array

DENSE = 4001
ROUNDS, STEPS = 30, 12
SCANNED = 4
"""Heads of a scan that are moved."""
Function = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Reference:
    """r = line[0] s + line[1] + a head with these slopes, offsets and values (perhaps of no tokens); the points at
    which f - r alternates, and its smallest size there: an estimate."""

    line: tuple[float, float]
    slopes: Array
    offsets: Array
    values: Array
    points: Array
    size: float
    limit: bool = False
    """Whether the head is c + u e^(b s): one token, whose value is u."""

    def outputs(self, s: Array) -> Array:
        """What the reference is at these places."""
        line = self.line[0] * s + self.line[1]
        if not len(self.slopes):
            return np.asarray(line)
        scores = np.multiply.outer(s, self.slopes) + self.offsets
        if self.limit:
            return np.asarray(line + self.values[0] * np.exp(scores[:, 0]))
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(line + powers @ self.values / powers.sum(axis=1))


def grid(low: float, high: float) -> Array:
    """Many points of an interval, both ends among them, towards which they are denser."""
    return np.asarray((low + high) / 2.0 - (high - low) / 2.0 * np.cos(np.linspace(0.0, np.pi, DENSE)))


def alternating(left: Array, count: int) -> tuple[Array, float]:
    """The places of `count` differences that alternate in sign, and whose smallest is as large as possible, with that;
    no places and 0 where there are not so many."""
    starts = np.flatnonzero(np.append(True, np.diff(np.sign(left)) != 0.0))
    ends = np.append(starts[1:], len(left))
    peaks = [int(a + np.argmax(np.abs(left[a:b]))) for a, b in zip(starts, ends, strict=True)]
    peaks = [peak for peak in peaks if left[peak] != 0.0]
    while len(peaks) > count:
        # Leave out the smallest: with a neighbour where it is inside, so that signs still alternate.
        smallest = min(range(len(peaks)), key=lambda place: abs(left[peaks[place]]))
        if smallest in (0, len(peaks) - 1):
            del peaks[smallest]
        elif len(peaks) == count + 1:
            sides = (0, len(peaks) - 1)
            del peaks[min(sides, key=lambda place: abs(left[peaks[place]]))]
        else:
            other = min(smallest - 1, smallest + 1, key=lambda place: abs(left[peaks[place]]))
            for place in sorted((smallest, other), reverse=True):
                del peaks[place]
    if len(peaks) < count:
        return np.zeros(0, dtype=np.int64), 0.0
    return np.array(peaks), float(np.min(np.abs(left[peaks])))


def assessed(function: Function, s: Array, reference: Reference, count: int) -> Reference:
    """The reference with the best points for it among s."""
    left = function(s) - reference.outputs(s)
    places, size = alternating(left, count)
    return replace(reference, points=s[places], size=size)


def constant_reference(function: Function, s: Array, count: int, incline: float = 0.0) -> Reference:
    """The best constant, which is a head of one token."""
    values = function(s) - incline * s
    empty = np.zeros(0)
    best = Reference((incline, 0.0), empty, empty, empty, empty, 0.0)
    low, high = float(np.min(values)), float(np.max(values))
    for _ in range(3):
        for level in np.linspace(low, high, 41).tolist():
            found = assessed(function, s, replace(best, line=(incline, level)), count)
            best = found if found.size > best.size else best
        reach = (high - low) / 20.0
        low, high = best.line[1] - reach, best.line[1] + reach
    return best


def line_reference(function: Function, s: Array, count: int) -> Reference:
    """The best line of a net of them, each with the best constant: then finer and finer."""
    values, empty = function(s), np.zeros(0)
    width = float(s[-1] - s[0])
    steepest = float(np.max(np.abs(np.diff(values[::40]) / np.diff(s[::40]))))
    middle, reach, best = 0.0, steepest, Reference((0.0, 0.0), empty, empty, empty, empty, 0.0)
    for _ in range(6):
        for slope in np.linspace(middle - reach, middle + reach, 33).tolist():
            rest = values - slope * s
            low, high = float(np.min(rest)), float(np.max(rest))
            shares = (0.5,) if count <= 3 else (0.5, 0.3, 0.4, 0.6, 0.7)
            for share in shares:
                line = (slope, low + share * (high - low))
                found = assessed(function, s, replace(best, line=line), count)
                best = found if found.size > best.size else best
        middle, reach = best.line[0], reach / 12.0
    return best if width > 0.0 else replace(best, size=0.0)


def head_reference(function: Function, s: Array, incline: float) -> Reference:
    """The best head of two tokens: slopes and centres from a scan, with values by least squares, then exchanges."""
    few, half, middle = s[::40], float(s[-1] - s[0]) / 2.0, float(s[0] + s[-1]) / 2.0
    wanted = function(few) - incline * few
    slopes, centres = (
        each.ravel()
        for each in np.meshgrid(np.geomspace(0.2, 60.0, 28) / half, middle + half * np.linspace(-1.6, 1.6, 33))
    )
    weights = 1.0 / (1.0 + np.exp(np.clip(slopes * (centres - few[:, None]), -500.0, 500.0)))
    spread = weights - weights.mean(axis=0)
    rise = (wanted - wanted.mean()) @ spread / np.maximum(np.sum(spread**2, axis=0), 1e-300)
    low = wanted.mean() - rise * weights.mean(axis=0)
    errors = np.max(np.abs(low + rise * weights - wanted[:, None]), axis=0)
    none, found = np.zeros(0), list[Reference]()
    for place in np.argsort(errors)[:SCANNED].tolist():
        values = np.array([low[place], low[place] + rise[place]])
        head = np.array([0.0, slopes[place]]), np.array([0.0, -slopes[place] * centres[place]]), values
        found.append(exchanged(function, s, Reference((incline, 0.0), *head, none, 0.0)))
    return max(found, key=lambda each: each.size)


def exchanged(function: Function, s: Array, start: Reference) -> Reference:
    """Remez' exchange for a head of two tokens: the difference to f is +e, -e, ... at five points, by Newton's method
    on (slope, offset, two values, e); then the points move to where it is largest. The best on the way."""
    best = current = assessed(function, s, start, 5)
    for _ in range(ROUNDS):
        if len(current.points) != 5:
            break
        solved = _levelled(function, current)
        if solved is None:
            break
        current = assessed(function, s, solved, 5)
        if current.size <= best.size * (1.0 + 1e-9):
            best = current if current.size > best.size else best
            break
        best = current
    return best


def limit_reference(function: Function, s: Array, incline: float) -> Reference:
    """The best c + u e^(b s): b from a scan, then all three and the error by Newton's method, exchange by exchange."""
    wanted, middle = function(s) - incline * s, float(s[0] + s[-1]) / 2.0
    half, none = float(s[-1] - s[0]) / 2.0, np.zeros(0)
    scan = np.geomspace(0.05, 40.0, 40) / half
    best = Reference((incline, 0.0), none, none, none, none, 0.0)
    few = s[::40]
    found = []
    for rate in np.concatenate([-scan, scan]).tolist():
        columns = np.stack([np.ones(len(few)), np.exp(rate * (few - middle) - abs(rate) * half)], axis=1)
        (c, u), *_ = np.linalg.lstsq(columns, wanted[::40], rcond=None)
        found.append((float(np.max(np.abs(columns @ [c, u] - wanted[::40]))), rate, c, u))
    for _, rate, c, u in sorted(found)[:3]:
        offsets = np.array([-rate * middle - abs(rate) * half])
        start = Reference((incline, float(c)), np.array([rate]), offsets, np.array([u]), none, 0.0, True)
        current = assessed(function, s, start, 4)
        for _ in range(ROUNDS):
            best = current if current.size > best.size and _turned(function, current) else best
            solved = _levelled_limit(function, current) if len(current.points) == 4 else None
            if solved is None:
                break
            before, current = current.size, assessed(function, s, solved, 4)
            if current.size <= before * (1.0 + 1e-9):
                break
        best = current if current.size > best.size and _turned(function, current) else best
    return best


def _turned(function: Function, reference: Reference) -> bool:
    """Whether the difference has the sign of u at the end where the exponential is large."""
    if len(reference.points) != 4:
        return False
    left = function(reference.points) - reference.outputs(reference.points)
    return bool(left[-1 if reference.slopes[0] > 0.0 else 0] * reference.values[0] > 0.0)


def _levelled_limit(function: Function, reference: Reference) -> Reference | None:
    """The limit of heads whose differences at the reference's four points are equal in size."""
    points, signs = reference.points, np.array([1.0, -1.0, 1.0, -1.0])
    (rate,), (offset,), (u,) = reference.slopes, reference.offsets, reference.values
    place = -offset / rate
    c, wanted = reference.line[1], function(points) - reference.line[0] * points
    level = float(np.mean(signs * (wanted - (reference.outputs(points) - reference.line[0] * points))))
    for _ in range(STEPS):
        power = np.exp(np.clip(rate * (points - place), -500.0, 500.0))
        left = wanted - c - u * power - signs * level
        columns = np.stack([u * power * (points - place), np.ones(4), power, signs], axis=1)
        try:
            step = np.linalg.solve(columns, left)
        except np.linalg.LinAlgError:
            return None
        step *= min(1.0, 0.5 * abs(rate) / max(abs(float(step[0])), 1e-300))
        rate, c, u, level = np.array([rate, c, u, level]) + step
        if not np.all(np.isfinite([rate, c, u, level])) or rate == 0.0:
            return None
    line = (reference.line[0], float(c))
    return replace(
        reference, line=line, slopes=np.array([rate]), offsets=np.array([-rate * place]), values=np.array([u])
    )


def _levelled(function: Function, reference: Reference) -> Reference | None:
    """The head whose differences at the reference's five points are equal in size."""
    points, signs = reference.points, np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    slope, offset = (float(each[1] - each[0]) for each in (reference.slopes, reference.offsets))
    low, high = reference.values.tolist()
    wanted = function(points) - reference.line[0] * points - reference.line[1]
    level = float(np.mean(signs * (function(points) - reference.outputs(points))))
    for _ in range(STEPS):
        weight = 1.0 / (1.0 + np.exp(-np.clip(slope * points + offset, -500.0, 500.0)))
        left = wanted - low - (high - low) * weight - signs * level
        bend = (high - low) * weight * (1.0 - weight)
        slopes = np.stack([bend * points, bend, 1.0 - weight, weight, signs], axis=1)
        try:
            step = np.linalg.solve(slopes, left)
        except np.linalg.LinAlgError:
            return None
        share = min(1.0, 0.5 / max(float(np.max(np.abs(step[:2]) / (1.0 + np.abs([slope, offset])))), 1e-300))
        slope, offset, low, high, level = np.array([slope, offset, low, high, level]) + share * step
        if not np.all(np.isfinite([slope, offset, low, high, level])):
            return None
    return replace(
        reference,
        slopes=np.array([0.0, slope]),
        offsets=np.array([0.0, offset]),
        values=np.array([low, high]),
    )
