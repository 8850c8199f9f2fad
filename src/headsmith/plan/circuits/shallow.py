"""Depth one: the piecewise linear function with the fewest pieces that stays in a tube round f.

n pieces, n - 1 gates (polygon.py). On a piece of length h the best line errs by about h^2 |f''| / 16, so
n ~ I2 / (4 sqrt(error)), I2 = integral of sqrt |f''|. (This is an asymptotic count, not a bound: x^4 on [0, 1] needs
more.) The knots lie on the edge of the tube: at f - error where f is convex, at f + error where it is concave.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.polygon import place_knots, polygon
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.target import Density, Target, density

LARGEST = 3000
SAMPLES = 32
FEW = 32


def shallow(knots: Any, values: Any, error: float) -> Fragment:
    """The piecewise linear function through (knots, values), for which `error` was estimated. One knot: a constant.

    Guarantee: equals the interpolation of the knots on [knots[0], knots[-1]], up to rounding of its weights.
    """
    t, y = np.array(knots, dtype=np.float64), np.array(values, dtype=np.float64)
    builder = Builder(["x"])
    if len(t) == 1:
        output = scalar(builder, [], y[0])
    else:
        output = scalar(builder, *polygon(builder, place_knots(builder, t, y), y))
    return Fragment("shallow", builder.graph(output), float(t[0]), float(t[-1]), float(error))


def expected_pieces(bend: Density, error: float) -> int:
    """About how many pieces are needed: the asymptotic count."""
    pieces = bend.total / (4.0 * math.sqrt(error))
    return max(math.ceil(pieces), 1) if math.isfinite(pieces) else LARGEST + 1


def shallow_option(target: Target, low: float, high: float, error: float) -> Fragment | None:
    """A shallow fragment within `error` with nearly the fewest gates, or None where that is more than LARGEST."""
    if low == high:
        return shallow([low], [float(target.value(low))], 0.0)
    bend = density(target, low, high, 2)
    pieces = expected_pieces(bend, error)
    if not pieces <= LARGEST:
        return None
    grid = bend.places((SAMPLES if not target.slow else SAMPLES // 2) * pieces + 129)
    values = target.value(grid)
    if not np.isfinite(values).all():
        return None
    line = _line(grid, values)
    if line.error <= error:
        return line
    first = float(np.sign(target.derivative(0.5 * (grid[:1] + grid[1:2]), 2)[0]))
    for share in (0.9975, 0.98, 0.9):
        knots, heights = _march(grid, values, share * error, first)
        knots, heights = _tighten(grid, values, share * error, first, knots, heights)
        reached = _measure(target, grid, values, knots, heights)
        if reached <= error:
            return shallow(knots, heights, reached)
    return None


def shallow_proposals(target: Target, low: float, high: float, error: float) -> list[Proposal]:
    """One proposal, or none if too many gates are needed. Its count is asymptotic; the fragment may have more."""
    pieces = expected_pieces(density(target, low, high, 2), error)
    if not pieces <= LARGEST:
        return []
    return [Proposal(pieces - 1, int(pieces > 1), partial(_make, target, low, high, error))]


def _make(target: Target, low: float, high: float, error: float) -> Fragment:
    found = shallow_option(target, low, high, error)
    return found if found is not None else shallow([low], [0.0], math.inf)


def _line(grid: Array, values: Array) -> Fragment:
    """No gate at all: the chord, moved so that its largest deviations up and down are equal."""
    heights = values[[0, -1]]
    gap = np.interp(grid, grid[[0, -1]], heights) - values
    middle = 0.5 * float(gap.max() + gap.min())
    return shallow(grid[[0, -1]], heights - middle, 0.5 * float(gap.max() - gap.min()))


def _tighten(
    grid: Array, values: Array, error: float, first: float, knots: Array, heights: Array
) -> tuple[Array, Array]:
    """A narrower tube that needs no more pieces: when they are few, the last is seldom used to its end."""
    if len(knots) > FEW:
        return knots, heights
    narrow, wide = 0.25 * error, error
    for _ in range(6):
        middle = math.sqrt(narrow * wide)
        found = _march(grid, values, middle, first)
        if len(found[0]) <= len(knots):
            (knots, heights), wide = found, middle
        else:
            narrow = middle
    return knots, heights


def _march(grid: Array, values: Array, error: float, first: float) -> tuple[Array, Array]:
    """Knots and heights of a polygon inside the tube values -+ error: from each knot as far as one line can go.

    From (u, y) a line of slope s stays inside up to x as long as s lies in the cone [max (f - e - y)/(x' - u), min
    (f + e - y)/(x' - u)] over x' <= x. Where the cone closes, the extreme line leaves the tube: the next knot is
    put there, on the tube's edge.
    """
    lower, upper = values - error, values + error
    u, y = float(grid[0]), float(values[0] - first * error)
    knots, heights = [u], [y]
    window = start = 1
    while True:
        x = grid[start : start + window] - u
        low = np.maximum.accumulate((lower[start : start + window] - y) / x)
        high = np.minimum.accumulate((upper[start : start + window] - y) / x)
        closed = int(np.argmax(low > high)) if low[-1] > high[-1] else len(x)
        if closed == len(x) and start + window < len(grid):
            window *= 2
            continue
        if closed == len(x):
            knots.append(float(grid[-1]))
            heights.append(y + 0.5 * float(low[-1] + high[-1]) * (knots[-1] - u))
            return np.array(knots), np.array(heights)
        edge, slope = (lower, high[closed - 1]) if high[closed] == high[closed - 1] else (upper, low[closed - 1])
        u, y = _leave(grid, edge, start + closed, u, y, float(slope))
        knots.append(u)
        heights.append(y)
        start += closed
        # A grid point that is too close to the knot says nothing about slopes but rounding noise.
        if start + 1 < len(grid) and grid[start] - u < 0.02 * (grid[start + 1] - grid[start]):
            start += 1
        window = max(closed + closed // 2, 8)


def _leave(grid: Array, edge: Array, index: int, u: float, y: float, slope: float) -> tuple[float, float]:
    """Where the line from (u, y) crosses `edge`, between grid points index - 1 and index."""
    left, right = float(grid[index - 1]), float(grid[index])
    before = y + slope * (left - u) - float(edge[index - 1])
    after = y + slope * (right - u) - float(edge[index])
    part = min(max(before / (before - after), 0.0), 1.0) if before != after else 0.0
    v = left + part * (right - left)
    return v, y + slope * (v - u)


def _measure(target: Target, grid: Array, values: Array, knots: Array, heights: Array) -> float:
    """The largest deviation on the grid, between its points and at the knots; this misses less than 0.05 %."""
    middle = 0.5 * (grid[:-1] + grid[1:])
    between = np.abs(np.interp(middle, knots, heights) - target.value(middle))
    at_grid = np.abs(np.interp(grid, knots, heights) - values)
    at_knots = np.abs(heights - target.value(knots))
    return float(max(at_grid.max(), between.max(), at_knots.max()))
