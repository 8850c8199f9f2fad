"""Table heads for functions of one variable: out_j(s) = sum_k softmax_k(alpha_k s + offset_k) values[k, j].

Float64 execution adds about u (30 + largest terms) times the largest value, u = 2^-53: a few roundings of sums and
exponentials, and those of the scores, relative to the size of their terms. A fit counts that as part of its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.rounding import FLOAT64, Precision, held
from headsmith.plan.fit.points import cell_edges, points_of, with_ones
from headsmith.plan.fit.search import Accept, Search, grids, search
from headsmith.plan.fit.solve import (
    UNLIMITED,
    Meter,
    Problem,
    TableHead,
    descend,
    level,
    problem_of,
    project,
    softmax_weights,
)

ROUNDINGS = 30.0
ROUNDING_SHARE = 0.15  # of the asked error, at most
MARGIN = 0.97  # of the asked error: error and rounding of a finished fit together
# The same at the sample points of a search, and the density of these; tried in turn.
GOALS = ((0.95, 1), (0.9, 4))
USUAL_SCORE = 20.0
RIDGE = 0.5
MILD_VALUES = 300.0  # in units of the function
TIGHT = 64.0

Evaluate = Callable[[Any], Any]  # points -> (points, functions), in the floating point of the points


@dataclass(frozen=True)
class Fit:
    """A table head: keys and values of its tokens, and an ESTIMATE of its sup error on the domain.

    Scores are alpha_k s + offset_k, or alpha_k x + beta_k y + offset_k. `factors` are heads on x and on y, where the
    tokens are their pairs (those of y run faster), the scores their sums, and values[j, k] = sum_i x_values[j, i]
    y_values[k, i].
    """

    alpha: Array  # (tokens,)
    beta: Array | None  # (tokens,)
    offset: Array  # (tokens,)
    values: Array  # (tokens, functions)
    error: Array  # (functions,)
    largest_score: float
    largest_terms: float  # of |alpha_k s| + |offset_k|: what the rounding of scores is relative to
    factors: tuple[Fit, Fit] | None = None

    @property
    def tokens(self) -> int:
        return len(self.alpha)

    @property
    def largest_value(self) -> float:
        return float(np.max(np.abs(self.values)))

    @property
    def sides(self) -> tuple[int, ...]:
        """The tokens of the factors, or of the head if it has none."""
        return tuple(factor.tokens for factor in self.factors) if self.factors is not None else (self.tokens,)

    def rounding(self, precision: Precision = FLOAT64) -> Array:
        """An estimate of what execution adds to the error of each function."""
        size = np.max(np.abs(self.values), axis=0)
        return np.asarray(precision.inside * (ROUNDINGS + self.largest_terms) * size)


@dataclass(frozen=True)
class Curves:
    """Functions on an interval with their errors: targets of t in [-1, 1], in units of these errors."""

    evaluate: Evaluate
    low: float
    high: float
    errors: Array
    meter: Meter = UNLIMITED

    @property
    def middle(self) -> float:
        return self.low / 2.0 + self.high / 2.0

    @property
    def half(self) -> float:
        return (self.high / 2.0 - self.low / 2.0) or 1.0

    @cached_property
    def edges(self) -> Array:
        return cell_edges(self.targets)

    @cached_property
    def sizes(self) -> Array:
        """The largest target of each function at some points, or nan."""
        return np.asarray(np.max(np.abs(self.targets(np.cos(np.linspace(0.0, np.pi, 101)))), axis=0))

    def arguments(self, places: Any) -> Any:
        return np.clip(self.middle + self.half * places, self.low, self.high)

    def targets(self, places: Array) -> Array:
        return np.asarray(self.evaluate(self.arguments(places)) / self.errors, dtype=np.float64)

    def problem(self, tokens: int, ridge: float, density: int = 1) -> Problem:
        """A few points for each of the 3 tokens - 2 oscillations of the misfit, and for each cell of the functions."""
        places = points_of(self.edges, density * max(96, 12 * tokens, 8 * len(self.edges)))
        return problem_of(with_ones(places), self.targets(places), ridge, self.meter)

    def measured(self, alpha: Array, offset: Array, values: Array) -> Fit:
        """These weights as a Fit, with errors from dense evaluation in extended precision."""
        places = points_of(self.edges, max(2001, 60 * len(alpha)))
        points = self.arguments(places.astype(np.longdouble))
        keys = np.stack([alpha, offset], axis=1)
        outputs = softmax_weights(with_ones(points), keys.astype(np.longdouble)) @ values
        errors = np.max(np.abs(outputs - self.evaluate(points)), axis=0)
        scores = score_sizes(with_ones(np.array([self.low, self.high])), keys)
        return Fit(frozen(alpha), None, frozen(offset), frozen(values), frozen(errors), *scores)

    def met_by(self, found: Fit, precision: Precision) -> bool:
        return bool(np.all(found.error + found.rounding(precision) <= MARGIN * self.errors))


def fit_curves(
    curves: Curves,
    max_tokens: int,
    value_limits: Array,
    precision: Precision,
    least_tokens: int = 1,
    fewest: int = 1,
) -> Fit | None:
    """The head with the fewest tokens that is found, and values of each function within its limit; or None.

    The search starts with `least_tokens`, where fewer are not expected to do; less than `fewest` are not tried.
    """
    # Outputs are means of values: some value is as large as the function.
    if not np.all(curves.sizes <= np.minimum(value_limits / curves.errors, value_room(precision)) + 1.0):
        return None
    main = int(np.argmax(curves.sizes))
    ladders = ridge_ladders(curves.sizes[main], value_limits[main] / curves.errors[main], precision)
    stretch = np.array([1.0 + 2.0 * abs(curves.middle) / curves.half, 1.0])
    for goal, density in GOALS:
        accept = acceptable(goal, stretch, value_limits / curves.errors, precision)
        problems = partial(curves.problem, density=density)
        tasks = (Search(problems, ridges, accept, grids, max_tokens, least_tokens, fewest) for ridges in ladders)
        searches = (search(task) for task in tasks)
        head = next((head for head in searches if head is not None), None)
        if head is None:
            return None
        for polish in (_as_it_is, _denser):
            found = finished(curves, polish(curves, head, accept), precision)
            if curves.met_by(found, precision) and np.all(np.max(np.abs(found.values), axis=0) <= value_limits):
                return found
    return None


def value_room(precision: Precision) -> float:
    """The largest values that rounding allows, in units of the error, for usual scores."""
    return ROUNDING_SHARE / (precision.inside * (ROUNDINGS + USUAL_SCORE))


def ridge_ladders(size: float, value_limit: float, precision: Precision) -> list[tuple[float, ...]]:
    """Ridges for a target of that size, strongest first: for mild values, then for larger ones.

    Where there is little room, a ridge that is stronger than needed often leads to a better valley, but not always.
    """
    room = min(value_room(precision), value_limit)
    spare = room / (MILD_VALUES * max(size, 1.0))
    strong = max(spare, TIGHT)
    ladder = tuple(RIDGE / room * strong**power for power in (1.0, 0.5, 0.0))
    return [ladder] if spare >= TIGHT else [ladder, (RIDGE / room,)]


def acceptable(goal: float, stretch: Array, value_limits: Array, precision: Precision) -> Accept:
    """Whether worst misfit and rounding are within `goal`, values within limits (all in units of the errors).

    `stretch`: how large a score can be, for each unit of each key.
    """

    def accept(head: TableHead) -> bool:
        if head.worst > goal:
            return False
        sizes = np.max(np.abs(head.values), axis=0)
        score = float(np.max(np.abs(head.keys), axis=0) @ stretch)
        rounding = precision.inside * (ROUNDINGS + score) * float(np.max(sizes))
        return rounding <= ROUNDING_SHARE and head.worst + rounding <= goal and bool(np.all(sizes <= value_limits))

    return accept


def _as_it_is(curves: Curves, head: TableHead, accept: Accept) -> TableHead:
    return head


def _denser(curves: Curves, head: TableHead, accept: Accept) -> TableHead:
    """The head, polished again on more points: for a misfit that has its peaks between the points of the search."""
    problem = curves.problem(head.tokens, head.problem.ridge, density=6)
    places = problem.inputs[:, 0]
    emphasis = np.interp(places, head.problem.inputs[:, 0], head.problem.emphasis)
    problem = replace(problem, emphasis=emphasis / np.linalg.norm(emphasis), shares=head.problem.shares)
    return level(descend(project(problem, head.keys), 40, accept), accept)


def finished(curves: Curves, head: TableHead, precision: Precision) -> Fit:
    """The head with keys of s instead of t, in the model's precision.

    alpha t = (alpha / half) (s - middle). Softmax ignores what all scores share: slopes are centred, then scores.
    """
    slopes = head.keys[:, 0] - (np.max(head.keys[:, 0]) + np.min(head.keys[:, 0])) / 2.0
    scores = np.stack([head.keys[:, 1] - slopes, head.keys[:, 1] + slopes])
    shift = (np.max(scores) + np.min(scores)) / 2.0
    alpha = rounded(slopes / curves.half, precision)
    offset = rounded(head.keys[:, 1] - shift - alpha * curves.middle, precision)
    if precision != FLOAT64:  # The values follow the rounded keys.
        head = project(head.problem, np.stack([alpha * curves.half, offset + alpha * curves.middle], axis=1))
    return curves.measured(alpha, offset, rounded(head.values * curves.errors, precision))


def score_sizes(corners: Array, keys: Array) -> tuple[float, float]:
    """The largest score on a box with these corners, and the largest sum of the sizes of its terms."""
    return float(np.max(np.abs(corners @ keys.T))), float(np.max(np.abs(corners) @ np.abs(keys.T)))


def rounded(array: Array, precision: Precision) -> Array:
    """The nearest numbers of the model's precision."""
    return np.asarray(held(array, precision.name), dtype=np.float64)
