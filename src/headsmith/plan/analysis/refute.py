"""Samples against what is stated of a function: a contradiction is an error that shows the points.

Agreement proves nothing; it is only that no contradiction was seen at the nodes and in the middles of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.language.kuhn import Grid
from headsmith.plan.analysis.smoothness import Hessian, Lipschitz, Smoothness

MOST_MIDDLES = 1000
MOST_SIGNED = 6
ROOM = 1.0 + 1e-9


def refute(smoothness: Smoothness, grid: Grid, values: Array, slack: float, sample: Callable[[Array], Array]) -> None:
    """Raise TargetError if values (nodes, outputs) at the grid's nodes, or new samples between them, contradict the
    stated smoothness by more than `slack` at each point explains."""
    table = values.reshape(*grid.shape, -1)
    points = grid.points.reshape(*grid.shape, -1)
    if isinstance(smoothness, Lipschitz):
        compare_neighbours(smoothness, points, table, slack)
    else:
        slack += _off_middle(smoothness, grid, table)
        for step in _possible(table):
            middle = tuple(slice(1, -1) if move else slice(None) for move in step)
            outer = [tuple(_ends(move, side) for move in step) for side in (-1, 1)]
            ends = [points[where] for where in outer]
            _bend(smoothness, ends, points[middle], [table[where] for where in outer], table[middle], slack)
    corners = np.argwhere(np.ones([max(count, 1) for count in grid.counts]))
    if len(corners) > MOST_MIDDLES:
        corners = corners[np.linspace(0, len(corners) - 1, MOST_MIDDLES).astype(int)]
    opposite = np.minimum(corners + 1, np.array(grid.counts))
    first, last = points[tuple(corners.T)], points[tuple(opposite.T)]
    centres = (first + last) / 2.0
    found = sample(centres)
    low, high = table[tuple(corners.T)], table[tuple(opposite.T)]
    match smoothness:
        case Lipschitz():
            _compare(smoothness, first, centres, low, found, slack)
            _compare(smoothness, centres, last, found, high, slack)
        case Hessian():
            _bend(smoothness, [first, last], centres, [low, high], found, slack)


def compare_neighbours(stated: Lipschitz, points: Array, table: Array, slack: float) -> None:
    """Raise TargetError if values (..., outputs) at neighbouring nodes (..., inputs) of a grid, diagonals included,
    contradict the stated bound by more than `slack` at each explains.

    For a bound of the kind sum L_i |x_i - y_i| neighbours are enough: other pairs of nodes are joined by them.
    """
    for step in _possible(table):
        before, after = _shifted(step, -1), _shifted(step, 1)
        _compare(stated, points[before], points[after], table[before], table[after], slack)


def _possible(table: Array) -> Iterator[tuple[int, ...]]:
    """Steps along coordinates that have more than one node."""
    sizes = table.shape[:-1]
    for step in directions(len(sizes)):
        if not any(move and size == 1 for move, size in zip(step, sizes, strict=True)):
            yield step


def directions(dimension: int) -> Iterator[tuple[int, ...]]:
    """Steps to neighbouring nodes, one of each pair of opposite ones; in many dimensions those without -1 only."""
    for step in product((-1, 0, 1) if dimension <= MOST_SIGNED else (0, 1), repeat=dimension):
        if any(step) and next(move for move in step if move) == 1:
            yield step


def _shifted(step: tuple[int, ...], side: int) -> tuple[slice, ...]:
    """All nodes that have a neighbour at `step` (side -1), or those neighbours, in the same order (side 1)."""
    return tuple(slice(None) if not move else slice(1, None) if move * side > 0 else slice(None, -1) for move in step)


def _ends(move: int, side: int) -> slice:
    """The neighbours at a step (side 1) or against it (side -1) of nodes that have both."""
    return slice(None) if not move else slice(2, None) if move * side > 0 else slice(None, -2)


def _off_middle(stated: Hessian, grid: Grid, table: Array) -> float:
    """A rounded node is not quite in the middle of its neighbours: how much f may change on that way."""
    total = 0.0
    for axis, (knots, count) in enumerate(zip(grid.knots, grid.counts, strict=True)):
        if count:
            step = float(np.diff(knots).min())
            steepest = (float(np.abs(np.diff(table, axis=axis)).max()) + float(stated.curvature(grid.steps))) / step
            total += steepest * 2.0**-50 * float(np.abs(knots).max())
    return total


def _compare(stated: Lipschitz, x: Array, y: Array, at_x: Array, at_y: Array, slack: float) -> None:
    allowed = stated.distance(x - y)[..., None] * ROOM + 2.0 * slack
    excess = np.abs(at_x - at_y) - allowed
    if excess.size and excess.max() > 0.0:
        where = np.unravel_index(int(np.argmax(excess)), excess.shape)
        p, q = x[where[:-1]].tolist(), y[where[:-1]].tolist()
        raise TargetError(
            f"the stated Lipschitz bound is false: f({p}) = {float(at_x[where])!r} and f({q}) = {float(at_y[where])!r} "
            f"differ by {abs(float(at_x[where] - at_y[where])):.6g}, but {stated} allows "
            f"{float(allowed[where[:-1]][0]):.6g}"
        )


def _bend(stated: Hessian, ends: list[Array], middle: Array, at_ends: list[Array], at: Array, slack: float) -> None:
    """|f(m + v) - 2 f(m) + f(m - v)| <= the largest |v' H v|."""
    half = np.abs(ends[1] - ends[0]) / 2.0
    allowed = stated.curvature(half)[..., None] * ROOM + 4.0 * slack
    bends = np.abs(at_ends[0] - 2.0 * at + at_ends[1])
    excess = bends - allowed
    if excess.size and excess.max() > 0.0:
        where = np.unravel_index(int(np.argmax(excess)), excess.shape)
        shown = [
            (part[where[:-1]].tolist(), float(value[where]))
            for part, value in zip((ends[0], middle, ends[1]), (at_ends[0], at, at_ends[1]), strict=True)
        ]
        text = ", ".join(f"f({point}) = {value!r}" for point, value in shown)
        raise TargetError(
            f"the stated Hessian bound is false: {text} bend by {float(bends[where]):.6g} = |f(p) - 2 f(m) + f(q)|; "
            f"that {stated} allows {float(allowed[where]):.6g}"
        )
