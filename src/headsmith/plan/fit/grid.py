"""Table heads whose keys are not moved: even grids of Gaussian kernels, values by least squares.

Softmax of -sharpness ((t - L_k) / h)^2 on an even grid with spacing h. A head with hundreds of tokens takes a fraction
of a second, where moving its keys would take minutes: for functions that oscillate, and for two variables.

On a box the tokens are pairs, with weights w_j(x) w_k(y). Values come in two steps: for each y the best values
a_j(y) on x, then the best values on y for these. With P the projection on the weights of x, Q on those of y, that
leaves f - P f Q = (f - P f) + P (f - f Q): each grid has to serve f along its own axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.rounding import Precision
from headsmith.plan.fit.curve import Curves, Fit, acceptable, finished, ridge_ladders, rounded
from headsmith.plan.fit.points import with_ones
from headsmith.plan.fit.search import grids
from headsmith.plan.fit.solve import TableHead, problem_of, project
from headsmith.plan.fit.surface import DENSE, Patch

FEWEST, MOST = 16, 512
KERNELS = ((0.2, 6), (0.1, 6), (0.4, 3))  # sharpness, and nodes past each end
GOAL = 0.9
NODES = 40  # of a box, along each axis
ALONG = (*range(1, 15), 16, 18, 20, 24)  # tokens along one axis of a box
SHARES = (0.3, 0.2, 0.1)  # of the error, along each axis, in turn


def fit_grid(curves: Curves, max_tokens: int, value_limits: Array, precision: Precision) -> Fit | None:
    """The head on an even grid with about the fewest tokens that do: more and more, then bisection; or None."""
    most = min(max_tokens, MOST)
    low, high = FEWEST, min(2 * FEWEST, most)
    while (best := _even(curves, high, value_limits, precision)) is None:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        head = _even(curves, middle, value_limits, precision)
        low, high, best = (middle, high, best) if head is None else (low, middle, head)
    for tokens in (high, high + high // 16 + 1, high + high // 8 + 2):
        head = best if tokens == high else _even(curves, tokens, value_limits, precision)
        found = None if head is None or tokens > most else finished(curves, head, precision)
        if found is not None and curves.met_by(found, precision) and np.all(np.abs(found.values) <= value_limits):
            return found
    return None


def _even(curves: Curves, tokens: int, value_limits: Array, precision: Precision) -> TableHead | None:
    stretch = np.array([1.0 + 2.0 * abs(curves.middle) / curves.half, 1.0])
    accept = acceptable(GOAL, stretch, value_limits / curves.errors, precision)
    return next(filter(accept, _heads(curves, tokens, value_limits, precision)), None)


def _heads(curves: Curves, tokens: int, value_limits: Array, precision: Precision) -> Iterator[TableHead]:
    # Even points see every oscillation, and Chebyshev's the ends.
    places = np.concatenate([np.linspace(-1.0, 1.0, 3 * tokens), np.cos(np.linspace(0.0, np.pi, tokens))])
    main = int(np.argmax(curves.sizes))
    ridge = ridge_ladders(curves.sizes[main], value_limits[main] / curves.errors[main], precision)[0][-1]
    problem = problem_of(with_ones(places), curves.targets(places), ridge)
    for sharpness, past in KERNELS:
        if tokens > 2 * past + 2:
            spacing = 2.0 / (tokens - 1 - 2 * past)
            nodes = np.arange(tokens) - (tokens - 1) / 2.0
            yield project(problem, np.stack([2.0 * sharpness * nodes / spacing, -sharpness * nodes**2], axis=1))


# Two variables ------------------------------------------------------------------------------------------------------


def fit_tensor(patch: Patch, max_tokens: int) -> Fit | None:
    """The head on pairs of two even grids, with about the fewest tokens along each axis that do; or None."""
    x, y = patch.axes(NODES)
    targets = np.asarray(patch.function(x[:, None], y[None, :]) / patch.errors, dtype=np.float64)
    if not np.all(np.isfinite(targets)):
        return None
    limit = float(np.min(patch.value_limit / patch.errors))
    ridges = ridge_ladders(float(np.max(np.abs(targets))), limit, patch.precision)[0]
    for ridge, share in zip(ridges, SHARES, strict=True):
        on_x = _along(targets.reshape(NODES, -1), ridge, share, max_tokens)
        most = 0 if on_x is None else max_tokens // on_x.tokens
        on_y = _along(targets.transpose(1, 0, 2).reshape(NODES, -1), ridge, share, most)
        if on_x is None or on_y is None:
            continue
        found = tensor(patch, on_x, on_y)
        if patch.met_by(found):
            return found
    return None


def _along(targets: Array, ridge: float, goal: float, max_tokens: int) -> TableHead | None:
    """The grid with the fewest tokens on which all columns of the targets, at Chebyshev points, are met to `goal`."""
    problem = problem_of(with_ones(np.cos(np.linspace(0.0, np.pi, NODES))), targets, ridge)
    for tokens in (count for count in ALONG if count <= max_tokens):
        head = min((project(problem, keys) for keys in grids(tokens)), key=lambda head: head.worst)
        if head.worst <= goal:
            return head
    return None


def tensor(patch: Patch, on_x: TableHead, on_y: TableHead) -> Fit:
    """Keys of the scaled variables as keys of x and y, and the best values on y for the best values on x."""
    count = len(patch.surfaces)
    wanted = on_x.values.reshape(on_x.tokens, NODES, count).transpose(1, 0, 2).reshape(NODES, -1)
    last = project(replace(on_y.problem, targets=wanted, shares=np.ones(wanted.shape[1])), on_y.keys)
    values = last.values.reshape(on_y.tokens, on_x.tokens, count).transpose(1, 0, 2).reshape(-1, count)
    slopes = [
        rounded(head.keys[:, 0] / half, patch.precision) for head, half in zip((on_x, on_y), patch.halves, strict=True)
    ]
    offsets = [
        head.keys[:, 1] - slope * middle
        for head, slope, middle in zip((on_x, on_y), slopes, patch.middles, strict=True)
    ]
    found = Fit(
        alpha=frozen(np.repeat(slopes[0], on_y.tokens)),
        beta=frozen(np.tile(slopes[1], on_x.tokens)),
        offset=frozen(rounded(np.add.outer(*offsets).ravel(), patch.precision)),
        values=frozen(rounded(values * patch.errors, patch.precision)),
        error=frozen(np.full(len(patch.surfaces), math.inf)),
        largest_score=math.inf,
        largest_terms=math.inf,
    )
    return patch.measured(found, patch.axes(DENSE, np.longdouble))
