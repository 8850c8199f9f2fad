"""An independent count: convex polygons clipped one by one, in rationals, with nothing shared with the package."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from headsmith.regions.levels import Levels, levels_of

Point = tuple[Fraction, ...]
Row = tuple[Fraction, ...]


def clipped_patterns(target: object, low: list[float], high: list[float]) -> set[tuple[int, ...]]:
    """The patterns of all cells with an interior, in one or two dimensions, by clipping with Fractions."""
    levels = levels_of(target)
    d = len(low)
    ends = [(Fraction(a), Fraction(b)) for a, b in zip(low, high, strict=True)]
    if d == 1:
        start = [(ends[0][0],), (ends[0][1],)]
    else:
        (a, b), (c, e) = ends
        start = [(a, c), (b, c), (b, e), (a, e)]
    inputs = [tuple(Fraction(int(i == j)) for j in range(d + 1)) for i in range(d)]
    return {pattern for _, pattern in _walk(levels, 0, start, inputs, ())}


def _walk(levels: Levels, stage: int, polygon: list[Point], state: list[Row], pattern: tuple[int, ...]):
    if stage == len(levels.levels):
        yield polygon, pattern
        return
    level = levels.levels[stage]
    rows = [_combined(w, b, state) for w, b in zip(level.weights.tolist(), level.bias.tolist(), strict=True)]
    zero = tuple(Fraction(0) for _ in state[0])
    units = [[zero if r < 0 else rows[r] for r in level.row[level.unit == u]] for u in range(level.units)]
    cells = [(polygon, ())]
    for pieces in units:
        cells = [found for cell, before in cells for found in _winners(cell, before, pieces)]
    for cell, winners in cells:
        after = [state[i] for i in level.carry] + [pieces[w] for pieces, w in zip(units, winners, strict=True)]
        yield from _walk(levels, stage + 1, cell, after, pattern + winners)


def _winners(cell: list[Point], before: tuple[int, ...], pieces: list[Row]):
    for i, own in enumerate(pieces):
        part: list[Point] | None = cell
        for j, other in enumerate(pieces):
            gap = tuple(x - y for x, y in zip(own, other, strict=True))
            if j == i or part is None:
                continue
            tie = all(_value(gap, p) == 0 for p in part)
            part = (None if j < i else part) if tie else _clip(part, gap)
        if part is not None:
            yield part, (*before, i)


def _clip(polygon: list[Point], row: Row) -> list[Point] | None:
    """The part where the form is not negative; None unless it is positive somewhere."""
    values = [_value(row, p) for p in polygon]
    if max(values) <= 0:
        return None
    if min(values) >= 0:
        return polygon
    found: list[Point] = []
    for i, (p, v) in enumerate(zip(polygon, values, strict=True)):
        q, w = polygon[(i + 1) % len(polygon)], values[(i + 1) % len(polygon)]
        if v >= 0:
            found.append(p)
        if v * w < 0 and not (len(polygon) == 2 and i == 1):
            t = v / (v - w)
            found.append(tuple(x + t * (y - x) for x, y in zip(p, q, strict=True)))
    return found


def _combined(weights: list[float], bias: float, state: list[Row]) -> Row:
    total = [Fraction(0)] * len(state[0])
    for w, row in zip(weights, state, strict=True):
        total = [t + Fraction(w) * r for t, r in zip(total, row, strict=True)]
    total[-1] += Fraction(bias)
    return tuple(total)


def _value(row: Row, point: Point) -> Fraction:
    return sum((a * x for a, x in zip(row, point, strict=False)), row[-1])


def volumes(regions: object) -> np.ndarray:
    """Lengths, areas or volumes of regions, from their vertices."""
    found = []
    for region in regions:
        v = region.vertices
        if v.shape[1] == 1:
            found.append(v[1, 0] - v[0, 0])
        elif v.shape[1] == 2:
            w = np.roll(v, -1, axis=0)
            found.append(0.5 * np.sum(v[:, 0] * w[:, 1] - v[:, 1] * w[:, 0]))
        else:
            total = 0.0
            for loop in region.faces:
                corners = v[list(loop)] - region.point
                for a, b in pairwise(corners[1:]):
                    total += abs(np.linalg.det(np.stack([corners[0], a, b]))) / 6.0
            found.append(total)
    return np.array(found)
