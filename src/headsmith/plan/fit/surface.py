"""Table heads for functions of two variables: out(x, y) = sum_k softmax_k(alpha_k x + beta_k y + offset_k) values_k.

Separable heads. Tokens that are all pairs (j, k) of tokens of a head on x and one on y, with scores that are sums, have
weights w_j(x) w_k(y). If f(x, y) = sum_i a_i(x) b_i(y), one head on x fits all a_i, one on y all b_i, and the values
sum_i A_ij B_ik make the output sum_i A_i(x) B_i(y) with A_i = a_i + d_i and B_i = b_i + e_i. So

    |out - f| <= sum_i ( |b_i| |d_i| + |a_i| |e_i| + |d_i| |e_i| ),

and the error is shared among the factors. x y is one product of two identities, x / y of an identity and a reciprocal;
for other functions the products come from the singular values of f on a grid.

Other heads have all keys free. Why that helps: with t = a x, 3 tokens give x to fourth order in a,
(3/a) sinh t / (cosh t + 2) = x - a^4 x^5 / 180 + ..., so 3 x 3 pairs give x y; but 5 tokens, the four corners and a
centre, give (3/a^2) sinh(a x) sinh(a y) / (cosh(a x) cosh(a y) + 2) = x y (1 + O(a^4)) too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen
from headsmith.core.rounding import FLOAT64, Precision
from headsmith.plan.fit.curve import (
    GOALS,
    MARGIN,
    Curves,
    Fit,
    acceptable,
    fit_curves,
    ridge_ladders,
    rounded,
    score_sizes,
    value_room,
)
from headsmith.plan.fit.points import points_of, with_ones
from headsmith.plan.fit.search import Search, scattered, search
from headsmith.plan.fit.solve import UNLIMITED, Meter, Problem, TableHead, problem_of, project

NODES = 48  # of the grid that finds the products
MOST_PRODUCTS = 12
SAMPLES, DENSE = 24, 161  # points along each axis
MOST_SCATTERED = 20
UNEVEN = 0.15  # the share of the error for the axis with fewer tokens, in a second try

Range = tuple[float, float]
Surface = Callable[[Any, Any], Any]


def fit_surfaces(
    surfaces: Sequence[Surface],
    x_range: Range,
    y_range: Range,
    errors: Sequence[float],
    *,
    max_tokens: int = 64,
    separable: bool = True,
    value_limit: float = math.inf,
    precision: Precision = FLOAT64,
    meter: Meter = UNLIMITED,
) -> Fit | None:
    """One head for vectorised smooth functions of (x, y) on a box, with the fewest tokens that were found; or None.

    An estimate: error + rounding <= 0.97 of what was asked. Separable heads have `factors`; others may need fewer
    tokens, and take seconds to find.
    """
    patch = Patch(tuple(surfaces), x_range, y_range, np.array(errors, dtype=np.float64), value_limit, precision, meter)
    products = products_of(patch)
    pairs = None if products is None else fit_pairs(patch, products, max_tokens if separable else 4 * max_tokens)
    return pairs if separable else fit_scattered(patch, pairs, max_tokens)


@dataclass(frozen=True)
class Patch:
    """Functions on a box, with the errors that they may have."""

    surfaces: tuple[Surface, ...]
    x_range: Range
    y_range: Range
    errors: Array
    value_limit: float = math.inf
    precision: Precision = FLOAT64
    meter: Meter = UNLIMITED

    def __post_init__(self) -> None:
        for low, high in (self.x_range, self.y_range):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"cannot fit on [{low}, {high}]: the interval must be finite, its low end first")
        if not np.all(self.errors > 0.0):
            raise ValueError(f"cannot fit to the errors {self.errors}: they must be positive")

    @property
    def middles(self) -> Array:
        return np.array([(low + high) / 2.0 for low, high in (self.x_range, self.y_range)])

    @property
    def halves(self) -> Array:
        return np.array([(high - low) / 2.0 for low, high in (self.x_range, self.y_range)])

    def function(self, x: Any, y: Any) -> Any:
        """All functions, along a new last axis."""
        return np.stack([surface(x, y) for surface in self.surfaces], axis=-1)

    def axes(self, count: int, kind: Any = np.float64) -> tuple[Any, Any]:
        """Chebyshev points of both axes, ends included."""
        nodes = np.cos(np.linspace(0.0, np.pi, count)).astype(kind)
        ranges = zip((self.x_range, self.y_range), self.middles, self.halves, strict=True)
        x, y = (np.clip(middle + half * nodes, low, high) for (low, high), middle, half in ranges)
        return x, y

    def sampled(self) -> tuple[Array, Array]:
        """Scaled variables with a column of ones, and targets in units of the errors, at a grid of Chebyshev points."""
        nodes = np.cos(np.linspace(0.0, np.pi, SAMPLES))
        places = np.meshgrid(nodes, nodes, indexing="ij")
        targets = self.function(*np.meshgrid(*self.axes(SAMPLES), indexing="ij")) / self.errors
        flat = np.asarray(targets, dtype=np.float64).reshape(-1, len(self.surfaces))
        return with_ones(places[0].ravel(), places[1].ravel()), flat

    def measured(self, found: Fit, axes: tuple[Any, Any]) -> Fit:
        """The errors of these weights on a dense grid, in the floating point of `axes`, and the largest score."""
        assert found.beta is not None
        keys = np.stack([found.alpha, found.beta, found.offset], axis=1)
        # Scores are sums over the axes: exponentials along each are enough, within the range of extended precision.
        along_x, along_y = (
            np.multiply.outer(axes[0], found.alpha) + found.offset,
            np.multiply.outer(axes[1], found.beta),
        )
        on_x, on_y = (np.exp(along - np.max(along, axis=1, keepdims=True)) for along in (along_x, along_y))
        with np.errstate(all="ignore"):
            means = [(on_x * column) @ on_y.T / (on_x @ on_y.T) for column in found.values.T]
            wanted = self.function(axes[0][:, None], axes[1][None, :])
            errors = np.max(np.abs(np.stack(means, axis=-1) - wanted), axis=(0, 1))
        corners = np.array([[x, y, 1.0] for x in self.x_range for y in self.y_range])
        score, terms = score_sizes(corners, keys)
        return replace(found, error=frozen(errors), largest_score=score, largest_terms=terms)

    def met_by(self, found: Fit) -> bool:
        within = np.all(found.error + found.rounding(self.precision) <= MARGIN * self.errors)
        return bool(within) and found.largest_value <= self.value_limit


@dataclass(frozen=True)
class Products:
    """f_j(x, y) = sum of left(x)_i right(y)_i over the i with owner_i = j, and the largest sizes of the factors."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]
    left_sizes: Array
    right_sizes: Array
    owners: Indices


def products_of(patch: Patch) -> Products | None:
    """The products that matter, from singular vectors of each function on a grid; None if there are too many."""
    found = []
    for surface, error in zip(patch.surfaces, patch.errors.tolist(), strict=True):
        one = _products_of(patch, surface, error)
        if one is None:
            return None
        found.append(one)
    return Products(
        lambda points: np.concatenate([one.left(points) for one in found], axis=1),
        lambda points: np.concatenate([one.right(points) for one in found], axis=1),
        np.concatenate([one.left_sizes for one in found]),
        np.concatenate([one.right_sizes for one in found]),
        np.concatenate([one.owners + number for number, one in enumerate(found)]),
    )


def _products_of(patch: Patch, surface: Surface, error: float) -> Products | None:
    x, y = patch.axes(NODES)
    grid = np.asarray(surface(x[:, None], y[None, :]), dtype=np.float64)
    if not np.all(np.isfinite(grid)):
        return None
    u, sigma, v = np.linalg.svd(grid)
    rank = max(1, int(np.sum(sigma * np.max(np.abs(u), axis=0) * np.max(np.abs(v), axis=1) > 0.01 * error)))
    if rank > MOST_PRODUCTS or sigma[0] == 0.0:
        return None
    # grid v_i / sqrt(sigma_i) = sqrt(sigma_i) u_i is a combination of the curves x -> f(x, y_n): known for every x.
    root = np.sqrt(sigma[:rank])
    to_left, to_right = v[:rank].T / root, u[:, :rank] / root
    return Products(
        lambda points: surface(points[:, None], y.astype(points.dtype)[None, :]) @ to_left,
        lambda points: surface(x.astype(points.dtype)[None, :], points[:, None]) @ to_right,
        root * np.max(np.abs(u[:, :rank]), axis=0),
        root * np.max(np.abs(v[:rank]), axis=1),
        np.zeros(rank, dtype=np.int64),
    )


def fit_pairs(
    patch: Patch,
    products: Products,
    max_tokens: int,
    least_tokens: tuple[int, int] = (1, 1),
    fewest: tuple[int, int] = (1, 1),
) -> Fit | None:
    """The separable head: the error shared evenly first, then with more for the axis that needs more tokens."""
    best = _pairs(patch, products, 0.5, max_tokens, least_tokens, fewest)
    if best is None or best.factors is None or best.tokens <= 4:
        return best
    share = UNEVEN if best.factors[0].tokens <= best.factors[1].tokens else 1.0 - UNEVEN
    return _pairs(patch, products, share, best.tokens - 1, least_tokens, fewest) or best


def _pairs(
    patch: Patch,
    products: Products,
    share: float,
    max_tokens: int,
    least_tokens: tuple[int, int],
    fewest: tuple[int, int],
) -> Fit | None:
    """The head whose tokens are pairs, with that share of the error for x. Values are at most sum_i |A_i| |B_i|."""
    a, b, owners = products.left_sizes, products.right_sizes, products.owners
    if not np.all((a > 0.0) & (b > 0.0)):
        return None
    error, count = patch.errors[owners], np.bincount(owners)[owners]
    room = np.minimum(error * value_room(patch.precision), patch.value_limit)
    gain = np.sqrt(room / (count * a * b))
    # |d| |e| is a small part of the error, as each is a small part of its factor.
    x_curves = Curves(products.left, *patch.x_range, share * error / (count * b), patch.meter)
    y_curves = Curves(products.right, *patch.y_range, (1.0 - share) * error / (count * a), patch.meter)
    on_x = fit_curves(x_curves, max_tokens, a * gain, patch.precision, least_tokens[0], fewest[0])
    if on_x is None:
        return None
    on_y = fit_curves(y_curves, max_tokens // on_x.tokens, b * gain, patch.precision, least_tokens[1], fewest[1])
    if on_y is None:
        return None
    every = on_x.values[:, None, :] * on_y.values[None, :, :]
    values = np.stack([np.sum(every[..., owners == j], axis=2).ravel() for j in range(len(patch.surfaces))], axis=1)
    found = Fit(
        alpha=frozen(np.repeat(on_x.alpha, on_y.tokens)),
        beta=frozen(np.tile(on_y.alpha, on_x.tokens)),
        offset=frozen(rounded(np.add.outer(on_x.offset, on_y.offset).ravel(), patch.precision)),
        values=frozen(rounded(values, patch.precision)),
        error=frozen(np.full(len(patch.surfaces), math.inf)),
        largest_score=math.inf,
        largest_terms=math.inf,
        factors=(on_x, on_y),
    )
    x, y = (curves.arguments(points_of(curves.edges, DENSE).astype(np.longdouble)) for curves in (x_curves, y_curves))
    found = patch.measured(found, (x, y))
    return found if patch.met_by(found) else None


def fit_scattered(patch: Patch, pairs: Fit | None, max_tokens: int) -> Fit | None:
    """A head with all keys free: grown from scattered keys, or else a separable one without the tokens it can spare."""
    inputs, targets = patch.sampled()
    if not np.all(np.isfinite(targets)):
        return None

    def problems(tokens: int, ridge: float) -> Problem:
        return problem_of(inputs, targets, ridge, patch.meter)

    limits = patch.value_limit / patch.errors
    # Outputs are means of values: some value is as large as the function.
    if not np.all(np.max(np.abs(targets), axis=0) <= np.minimum(limits, value_room(patch.precision)) + 1.0):
        return None
    ridges = ridge_ladders(float(np.max(np.abs(targets))), float(np.min(limits)), patch.precision)[0]
    stretch = np.append(1.0 + 2.0 * np.abs(patch.middles) / patch.halves, 1.0)
    fewer = min(max_tokens, MOST_SCATTERED, pairs.tokens - 1 if pairs is not None else max_tokens)
    for goal, _ in GOALS:
        accept = acceptable(goal, stretch, limits, patch.precision)
        task = Search(problems, ridges, accept, scattered, fewer)
        head = search(task)
        if head is None and pairs is not None and not patch.meter.empty:
            head = search(task, _head_of(patch, pairs, problems(pairs.tokens, ridges[-1])))
        if head is None:
            break
        found = patch.measured(_fit_of(patch, head), patch.axes(DENSE, np.longdouble))
        if found.tokens <= max_tokens and patch.met_by(found):
            return found
    return pairs if pairs is not None and pairs.tokens <= max_tokens else None


def _head_of(patch: Patch, found: Fit, problem: Problem) -> TableHead:
    """Keys of x and y as keys of the scaled variables."""
    assert found.beta is not None
    slopes = np.stack([found.alpha, found.beta], axis=1)
    keys = np.concatenate([slopes * patch.halves, (found.offset + slopes @ patch.middles)[:, None]], axis=1)
    return project(problem, keys - np.mean(keys, axis=0))


def _fit_of(patch: Patch, head: TableHead) -> Fit:
    """Keys of the scaled variables as keys of x and y, in the model's precision, with the error not yet known."""
    slopes = rounded(head.keys[:, :2] / patch.halves, patch.precision)
    offset = rounded(head.keys[:, 2] - slopes @ patch.middles, patch.precision)
    values = rounded(head.values * patch.errors, patch.precision)
    alpha, beta = (frozen(column) for column in slopes.T)
    unknown = frozen(np.full(len(patch.errors), math.inf))
    return Fit(alpha, beta, frozen(offset), frozen(values), unknown, math.inf, math.inf)
