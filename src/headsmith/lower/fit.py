"""Table heads that approximate functions: the fewest reference tokens for an asked error.

    out_j(s) = sum_k softmax_k(alpha_k s + offset_k) values[k, j]                       one variable, `fit`
    out(x, y) = sum_k softmax_k(alpha_k x + beta_k y + offset_k) values[k]              two variables, `fit_bivariate`

sigmoid and tanh are softmax over two tokens exactly. Everything else is approximated, with all keys and values free.
What float64 execution adds is about u (30 + largest score) times the largest value; a fit keeps it below a tenth of the error.
All errors here are ESTIMATES, from dense evaluation in extended precision; proofs are the kernel's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.functions import FUNCTIONS
from headsmith.core.rounding import FLOAT64, Precision
from headsmith.lower.fit_points import cell_edges, points_of, with_ones
from headsmith.lower.fit_search import Search, grids, search
from headsmith.lower.fit_solve import Head, Problem, descend, level, problem_of, project, softmax_weights

ROUNDINGS = 30.0
TYPICAL_SCORE=20.
ROUNDING_SHARE = 0.2
MARGIN = 0.97
RIDGE = 1.0
MILD_VALUES = 100.0

Evaluate = Callable[[Any], Any]  # points -> (points, functions), in the floating point of the points


@dataclass(frozen=True)
class Fit:
    """A table head: keys, values, and the estimated sup error of every function."""

    alpha: Array
    beta: Array | None
    offset: Array
    values: Array
    error: Array
    largest_score: float

    @property
    def tokens(self) -> int:
        return len(self.alpha)

    @property
    def largest_value(self) -> float:
        return float(np.max(np.abs(self.values)))


def fit(
    functions: Sequence[tuple[str, float | None]],
    low: float,
    high: float,
    error: float | Sequence[float],
    *,
    max_tokens: int = 64,
    largest_value: float = math.inf,
    precision: Precision = FLOAT64,
) -> Fit | None:
    named = [(FUNCTIONS[name], parameter) for name, parameter in functions]

    def evaluate(points: Any) -> Any:
        return np.stack([function.value(points, parameter) for function, parameter in named], axis=1)

    errors = np.broadcast_to(np.asarray(error, dtype=np.float64), (len(named),))
    exact = _exact([name for name, _ in functions], low, high, evaluate)
    if exact is not None:
        return exact
    return fit_evaluated(evaluate, low, high, errors, max_tokens=max_tokens, largest_value=largest_value, precision=precision)


def fit_evaluated(
    evaluate: Evaluate, low: float, high: float, errors: Array, *, max_tokens: int=64, largest_value: float=math.inf, precision: Precision=FLOAT64
) -> Fit | None:
    middle, half = (low + high) / 2.0, (high - low) / 2.0

    def targets(places: Array) -> Array:
        return np.asarray(evaluate(np.clip(middle + half * places, low, high)) / errors, dtype=np.float64)

    edges = cell_edges(targets)
    sampled = targets(points_of(edges, 100))
    if not np.all(np.isfinite(sampled)):
        return None
    stretch = 1.0 + 2.0 * abs(middle) / half
    room = ROUNDING_SHARE / precision.unit_roundoff / (ROUNDINGS+TYPICAL_SCORE)
    cap = min(room, largest_value / np.max(errors))
    mild = max(1.0, cap / (MILD_VALUES * np.max(np.abs(sampled))))
    ridges = [RIDGE / cap * mild**power for power in (1.0, 0.5, 0.0)]
    if mild == 1.0: ridges = ridges[:1]
    tables = {}
    def problems(tokens: int, ridge: float) -> Problem:
        count = max(96, 12 * tokens, 8*len(edges))
        if count not in tables:
            places = points_of(edges, count)
            tables[count] = with_ones(places), targets(places)
        return problem_of(*tables[count], ridge)

    for goal in (0.95, 0.8, 0.6):
        def accept(head: Head) -> bool:
            score = stretch * np.max(np.abs(head.keys[:, 0])) + np.max(np.abs(head.keys[:, 1]))
            largest = np.max(np.abs(head.values), axis=0)
            rounding = precision.unit_roundoff * (ROUNDINGS + score) * np.max(largest)
            return bool(rounding <= ROUNDING_SHARE and head.worst + rounding <= goal and np.all(largest * errors <= largest_value))
        head = search(Search(problems, tuple(ridges), accept, grids, max_tokens))
        if head is None:
            return None
        found = _fit_of(head, middle, half, errors)
        dense = np.clip(middle + half * points_of(edges, 2001).astype(np.longdouble), low, high)
        found, ok = _measured(found, dense, evaluate, errors)
        if ok: return found
        print("failed dense",found.error/errors,head.worst)
        count=4*max(96,12*len(head.keys))
        places=points_of(edges,count); pr=problem_of(with_ones(places),targets(places),ridges[0])
        head=level(pr,descend(pr,project(pr,head.keys),100,accept),accept)
        found = _fit_of(head, middle, half, errors)
        found, ok = _measured(found, dense, evaluate, errors)
        if ok: return found
        print("failed dense again",found.error/errors,head.worst)
    return None

def _fit_of(head, middle, half, errors):
    keys = head.keys
    alpha = keys[:, 0] - (keys[:, 0].max() + keys[:, 0].min()) / 2
    offset = keys[:, 1] - alpha * middle / half
    alpha = alpha / half
    return Fit(alpha, None, offset, head.values * errors, None, 0.)

def _measured(f, dense, evaluate, errors):
    W = softmax_weights(with_ones(dense), np.stack([f.alpha, f.offset], 1).astype(np.longdouble))
    e = np.abs(W @ f.values - evaluate(dense)).max(0)
    sc = np.outer([dense[0], dense[-1]], f.alpha) + f.offset
    c = (sc.max() + sc.min()) / 2
    score = float(np.abs(sc - c).max())
    g = Fit(f.alpha, None, np.asarray(f.offset - c, float), f.values, e.astype(float), score)
    return g, bool(np.all(e + (30+score)*2.**-53*np.abs(f.values).max(0) <= MARGIN * errors))

def _exact(names, low, high, evaluate):
    return None
