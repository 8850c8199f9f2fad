"""Two independent counts in rationals, with nothing shared with the package: convex polygons clipped one by one, and,
in any dimension, linear programs that ask of each sign vector whether it has an interior."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from flint import fmpq

from headsmith.lab.regions.levels import Levels, levels_of

Point = tuple[fmpq, ...]
Row = tuple[fmpq, ...]

BOUND = fmpq(100)


def exactly(number: float) -> fmpq:
    """A double as a rational."""
    return fmpq(*float(number).as_integer_ratio())


def clipped_patterns(target: object, low: list[float], high: list[float]) -> set[tuple[int, ...]]:
    """The patterns of all cells with an interior, in one or two dimensions, by clipping with rationals."""
    levels = levels_of(target)
    d = len(low)
    ends = [(exactly(a), exactly(b)) for a, b in zip(low, high, strict=True)]
    if d == 1:
        start = [(ends[0][0],), (ends[0][1],)]
    else:
        (a, b), (c, e) = ends
        start = [(a, c), (b, c), (b, e), (a, e)]
    inputs = [tuple(exactly(int(i == j)) for j in range(d + 1)) for i in range(d)]
    return {pattern for _, pattern in _walk(levels, 0, start, inputs, ())}


def _walk(levels: Levels, stage: int, polygon: list[Point], state: list[Row], pattern: tuple[int, ...]):
    if stage == len(levels.levels):
        yield polygon, pattern
        return
    level = levels.levels[stage]
    rows = [_combined(w, b, state) for w, b in zip(level.weights.tolist(), level.bias.tolist(), strict=True)]
    zero = tuple(exactly(0) for _ in state[0])
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
    total = [exactly(0)] * len(state[0])
    for w, row in zip(weights, state, strict=True):
        total = [t + exactly(w) * r for t, r in zip(total, row, strict=True)]
    total[-1] += exactly(bias)
    return tuple(total)


def _value(row: Row, point: Point) -> fmpq:
    return sum((a * x for a, x in zip(row, point, strict=False)), row[-1])


def programmed_patterns(target: object, low: list[float], high: list[float]) -> set[tuple[int, ...]]:
    """The patterns of all cells with an interior, in any dimension, by linear programs with rationals."""
    levels, d = levels_of(target), len(low)
    one = [tuple(exactly(int(i == j)) for j in range(d + 1)) for i in range(d)]
    sides = [(*row[:-1], -exactly(a)) for row, a in zip(one, low, strict=True)]
    sides += [(*(-x for x in row[:-1]), exactly(b)) for row, b in zip(one, high, strict=True)]
    found: set[tuple[int, ...]] = set()

    def walk(stage: int, sides: list[Row], state: list[Row], pattern: tuple[int, ...]) -> None:
        if stage == len(levels.levels):
            found.add(pattern)
            return
        level = levels.levels[stage]
        rows = [_combined(w, b, state) for w, b in zip(level.weights.tolist(), level.bias.tolist(), strict=True)]
        zero = tuple(exactly(0) for _ in state[0])
        units = [[zero if r < 0 else rows[r] for r in level.row[level.unit == u]] for u in range(level.units)]
        cells: list[tuple[list[Row], tuple[int, ...]]] = [(sides, ())]
        for pieces in units:
            cells = [(more, (*won, i)) for own, won in cells for i, more in _possible(own, pieces)]
        for own, won in cells:
            after = [state[i] for i in level.carry] + [pieces[w] for pieces, w in zip(units, won, strict=True)]
            walk(stage + 1, own, after, pattern + won)

    walk(0, sides, one, ())
    return found


def _possible(sides: list[Row], pieces: list[Row]):
    """The pieces that are largest, lower ones at equality, on a set with an interior; and the sides of that set."""
    for i, own in enumerate(pieces):
        gaps = [tuple(x - y for x, y in zip(own, other, strict=True)) for other in pieces]
        # A piece that equals a lower one everywhere never wins; one that equals a higher one wins without a side.
        if any(not any(gap) for gap in gaps[:i]):
            continue
        more = sides + [gap for j, gap in enumerate(gaps) if j != i and any(gap)]
        if has_interior(more):
            yield i, more


def has_interior(sides: list[Row]) -> bool:
    """Whether some x (of entries below 100) has a . x + c > 0 for all sides (a, c): the largest t with a . x + c >= t
    is positive."""
    d = len(sides[0]) - 1
    slack = [(*side[:-1], exactly(-1), side[-1]) for side in sides]
    best = _maximum([exactly(0)] * d + [exactly(1)], slack)
    return best is not None and best[-1] > 0


def _maximum(goal: list[fmpq], sides: list[Row]) -> list[fmpq] | None:
    """Where goal . x is largest among a . x + c >= 0 and |x_i| <= 100. One side after the other: the best point so far
    stays, or it moves to where the new side is zero, a problem of one variable less (Seidel)."""
    if len(goal) == 1:
        low, high = -BOUND, BOUND
        for a, c in sides:
            if a == 0 and c < 0:
                return None
            low, high = max(low, -c / a) if a > 0 else low, min(high, -c / a) if a < 0 else high
        return None if low > high else [high if goal[0] >= 0 else low]
    best = [BOUND if g >= 0 else -BOUND for g in goal]
    for count, side in enumerate(sides):
        if _value(side, tuple(best)) >= 0:
            continue
        place = max(range(len(goal)), key=lambda j, side=side: abs(side[j]))
        if side[place] == 0:
            return None
        solved = [-x / side[place] for x in side]  # x_place = solved, with its own entry left out
        axis = [exactly(int(j == place)) for j in range(len(goal))]
        ends = [(*axis, BOUND), (*(-x for x in axis), BOUND)]
        inner = [_without(row, place, solved) for row in [*sides[:count], *ends]]
        rest = _maximum(list(_without((*goal, exactly(0)), place, solved)[:-1]), inner)
        if rest is None:
            return None
        rest.insert(place, exactly(0))
        rest[place] = sum((a * x for a, x in zip(solved, rest, strict=False)), solved[-1])
        best = rest
    return best


def _without(row: Row, place: int, solved: list[fmpq]) -> Row:
    return tuple(x + row[place] * y for j, (x, y) in enumerate(zip(row, solved, strict=True)) if j != place)


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
