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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.functions import FUNCTIONS
from headsmith.core.rounding import FLOAT64, Precision
from headsmith.lower.fit_curve import (
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
from headsmith.lower.fit_points import points_of, with_ones
from headsmith.lower.fit_search import Search, search
from headsmith.lower.fit_solve import Head, Problem, problem_of, project, softmax_weights

NODES = 48  # of the grid that finds the products
MOST_PRODUCTS = 12
SAMPLES, DENSE = 24, 161  # points along each axis
MOST_SCATTERED = 20
UNEVEN = 0.15  # the share of the error for the axis with fewer tokens, in a second try

Range = tuple[float, float]
Named = tuple[str, float | None]  # a function and its parameter
Surface = Callable[[Any, Any], Any]


def fit_bivariate(
    function: Surface,
    x_range: Range,
    y_range: Range,
    error: float,
    *,
    max_tokens: int = 64,
    separable: bool = True,
    precision: Precision = FLOAT64,
) -> Fit | None:
    """One head for a vectorised smooth `function(x, y)` on a box, with the fewest tokens that were found; or None.

    An estimate: error + rounding <= 0.97 of what was asked. Separable heads have `factors`; others may need fewer
    tokens, and take seconds to find.
    """
    patch = Patch(function, x_range, y_range, error, precision)
    products = products_of(patch)
    pairs = None if products is None else _fit_pairs(patch, products, max_tokens if separable else 4 * max_tokens)
    return pairs if separable else _fit_scattered(patch, pairs, max_tokens)


def fit_product(
    left: Named,
    right: Named,
    x_range: Range,
    y_range: Range,
    error: float,
    *,
    max_tokens: int = 64,
    precision: Precision = FLOAT64,
) -> Fit | None:
    """One separable head for left(x) right(y), two named functions; or None. Its `factors` fit just these two.

    x y is ("power", 1.0) times ("power", 1.0), and x / y is ("power", 1.0) times ("reciprocal", None).
    """
    return _fit_product(left, right, tuple(x_range), tuple(y_range), error, max_tokens, precision)


@lru_cache(maxsize=512)
def _fit_product(
    left: Named,
    right: Named,
    x_range: Range,
    y_range: Range,
    error: float,
    max_tokens: int,
    precision: Precision,
) -> Fit | None:
    (f, f_parameter), (g, g_parameter) = ((FUNCTIONS[name], parameter) for name, parameter in (left, right))
    if not (f.domain(f_parameter).covers(*x_range) and g.domain(g_parameter).covers(*y_range)):
        return None
    patch = Patch(lambda x, y: f.value(x, f_parameter) * g.value(y, g_parameter), x_range, y_range, error, precision)
    x, y = patch.axes(NODES)
    products = Products(
        lambda points: f.value(points, f_parameter)[:, None],
        lambda points: g.value(points, g_parameter)[:, None],
        np.max(np.abs(f.value(x, f_parameter)), keepdims=True),
        np.max(np.abs(g.value(y, g_parameter)), keepdims=True),
    )
    return _fit_pairs(patch, products, max_tokens)


@dataclass(frozen=True)
class Patch:
    """A function on a box, with the error that it may have."""

    function: Surface
    x_range: Range
    y_range: Range
    error: float
    precision: Precision

    def __post_init__(self) -> None:
        for low, high in (self.x_range, self.y_range):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"cannot fit on [{low}, {high}]: the interval must be finite, its low end first")
        if not self.error > 0.0:
            raise ValueError(f"cannot fit to the error {self.error}: it must be positive")

    @property
    def middles(self) -> Array:
        return np.array([(low + high) / 2.0 for low, high in (self.x_range, self.y_range)])

    @property
    def halves(self) -> Array:
        return np.array([(high - low) / 2.0 for low, high in (self.x_range, self.y_range)])

    def axes(self, count: int, kind: Any = np.float64) -> tuple[Any, Any]:
        """Chebyshev points of both axes, ends included."""
        nodes = np.cos(np.linspace(0.0, np.pi, count)).astype(kind)
        ranges = zip((self.x_range, self.y_range), self.middles, self.halves, strict=True)
        x, y = (np.clip(middle + half * nodes, low, high) for (low, high), middle, half in ranges)
        return x, y

    def sampled(self) -> tuple[Array, Array]:
        """Scaled variables with a column of ones, and targets in units of the error, at a grid of Chebyshev points."""
        nodes = np.cos(np.linspace(0.0, np.pi, SAMPLES))
        places = np.meshgrid(nodes, nodes, indexing="ij")
        targets = self.function(*np.meshgrid(*self.axes(SAMPLES), indexing="ij")) / self.error
        return with_ones(places[0].ravel(), places[1].ravel()), np.asarray(targets, dtype=np.float64).reshape(-1, 1)

    def measured(self, found: Fit, axes: tuple[Any, Any]) -> Fit:
        """The same weights with the error on a dense grid, in the floating point of `axes`, and the largest score."""
        assert found.beta is not None
        x, y = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
        keys = np.stack([found.alpha, found.beta, found.offset], axis=1)
        outputs = softmax_weights(with_ones(x, y), keys.astype(np.longdouble)) @ found.values
        error = np.max(np.abs(outputs[:, 0] - self.function(x, y)))
        corners = np.array([[x, y, 1.0] for x in self.x_range for y in self.y_range])
        score, terms = score_sizes(corners, keys)
        return replace(found, error=frozen([error]), largest_score=score, largest_terms=terms)

    def met_by(self, found: Fit) -> bool:
        return float(found.error[0] + found.rounding(self.precision)[0]) <= MARGIN * self.error


@dataclass(frozen=True)
class Products:
    """f(x, y) = sum_i left(x)_i right(y)_i, and the largest sizes of the factors."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]
    left_sizes: Array
    right_sizes: Array


def products_of(patch: Patch) -> Products | None:
    """The products that matter, from singular vectors of f on a grid; None if there are too many."""
    x, y = patch.axes(NODES)
    grid = np.asarray(patch.function(x[:, None], y[None, :]), dtype=np.float64)
    if not np.all(np.isfinite(grid)):
        return None
    u, sigma, v = np.linalg.svd(grid)
    rank = max(1, int(np.sum(sigma * np.max(np.abs(u), axis=0) * np.max(np.abs(v), axis=1) > 0.01 * patch.error)))
    if rank > MOST_PRODUCTS:
        return None
    # grid v_i / sqrt(sigma_i) = sqrt(sigma_i) u_i is a combination of the curves x -> f(x, y_n): known for every x.
    root = np.sqrt(sigma[:rank])
    to_left, to_right = v[:rank].T / root, u[:, :rank] / root
    return Products(
        lambda points: patch.function(points[:, None], y.astype(points.dtype)[None, :]) @ to_left,
        lambda points: patch.function(x.astype(points.dtype)[None, :], points[:, None]) @ to_right,
        root * np.max(np.abs(u[:, :rank]), axis=0),
        root * np.max(np.abs(v[:rank]), axis=1),
    )


def _fit_pairs(patch: Patch, products: Products, max_tokens: int) -> Fit | None:
    """The separable head: the error shared evenly first, then with more for the axis that needs more tokens."""
    best = _pairs(patch, products, 0.5, max_tokens)
    if best is None or best.factors is None or best.tokens <= 4:
        return best
    share = UNEVEN if best.factors[0].tokens <= best.factors[1].tokens else 1.0 - UNEVEN
    return _pairs(patch, products, share, best.tokens - 1) or best


def _pairs(patch: Patch, products: Products, share: float, max_tokens: int) -> Fit | None:
    """The head whose tokens are pairs, with that share of the error for x. Values are at most sum_i |A_i| |B_i|."""
    a, b, count = products.left_sizes, products.right_sizes, len(products.left_sizes)
    if not np.all((a > 0.0) & (b > 0.0)):
        return None
    gain = np.sqrt(patch.error * value_room(patch.precision) / (count * a * b))
    # |d| |e| is a small part of the error, as each is a small part of its factor.
    x_curves = Curves(products.left, *patch.x_range, share * patch.error / (count * b))
    y_curves = Curves(products.right, *patch.y_range, (1.0 - share) * patch.error / (count * a))
    on_x = fit_curves(x_curves, max_tokens, a * gain, patch.precision)
    on_y = fit_curves(y_curves, max_tokens // on_x.tokens, b * gain, patch.precision) if on_x is not None else None
    if on_x is None or on_y is None:
        return None
    found = Fit(
        alpha=frozen(np.repeat(on_x.alpha, on_y.tokens)),
        beta=frozen(np.tile(on_y.alpha, on_x.tokens)),
        offset=frozen(rounded(np.add.outer(on_x.offset, on_y.offset).ravel(), patch.precision)),
        values=frozen(rounded((on_x.values @ on_y.values.T).reshape(-1, 1), patch.precision)),
        error=frozen([math.inf]),
        largest_score=math.inf,
        largest_terms=math.inf,
        factors=(on_x, on_y),
    )
    x, y = (curves.arguments(points_of(curves.edges, DENSE).astype(np.longdouble)) for curves in (x_curves, y_curves))
    found = patch.measured(found, (x, y))
    return found if patch.met_by(found) else None


def _fit_scattered(patch: Patch, pairs: Fit | None, max_tokens: int) -> Fit | None:
    """A head with all keys free: grown from scattered keys, or else a separable one without the tokens it can spare."""
    inputs, targets = patch.sampled()
    if not np.all(np.isfinite(targets)):
        return None

    def problems(tokens: int, ridge: float) -> Problem:
        return problem_of(inputs, targets, ridge)

    ridges = ridge_ladders(float(np.max(np.abs(targets))), math.inf, patch.precision)[0]
    stretch = np.append(1.0 + 2.0 * np.abs(patch.middles) / patch.halves, 1.0)
    fewer = min(max_tokens, MOST_SCATTERED, pairs.tokens - 1 if pairs is not None else max_tokens)
    for goal, _ in GOALS:
        accept = acceptable(goal, stretch, np.array([math.inf]), patch.precision)
        task = Search(problems, ridges, accept, scattered, fewer)
        head = search(task)
        if head is None and pairs is not None:
            head = search(task, _head_of(patch, pairs, problems(pairs.tokens, ridges[-1])))
        found = None if head is None else patch.measured(_fit_of(patch, head), patch.axes(DENSE, np.longdouble))
        if found is None or (found.tokens <= max_tokens and patch.met_by(found)):
            return found
    return pairs if pairs is not None and pairs.tokens <= max_tokens else None


def _head_of(patch: Patch, found: Fit, problem: Problem) -> Head:
    """Keys of x and y as keys of the scaled variables."""
    assert found.beta is not None
    slopes = np.stack([found.alpha, found.beta], axis=1)
    keys = np.concatenate([slopes * patch.halves, (found.offset + slopes @ patch.middles)[:, None]], axis=1)
    return project(problem, keys - np.mean(keys, axis=0))


def _fit_of(patch: Patch, head: Head) -> Fit:
    """Keys of the scaled variables as keys of x and y, in the model's precision, with the error not yet known."""
    slopes = rounded(head.keys[:, :2] / patch.halves, patch.precision)
    offset = rounded(head.keys[:, 2] - slopes @ patch.middles, patch.precision)
    values = rounded(head.values * patch.error, patch.precision)
    alpha, beta = (frozen(column) for column in slopes.T)
    return Fit(alpha, beta, frozen(offset), frozen(values), frozen([math.inf]), math.inf, math.inf)


def scattered(tokens: int) -> Iterator[Array]:
    """First guesses of the keys for two variables: Gaussian kernels on grids, on grids with a centre, on a spiral."""
    if tokens == 1:
        yield np.zeros((1, 3))
        return
    for nodes in _node_sets(tokens):
        for reach in (1.2, 2.5, 10.0, 40.0):
            for sharpness in (0.2, 0.6, 2.0):
                bend = sharpness * max(math.sqrt(tokens) - 1.0, 1.0) ** 2 / 4.0
                offset = -bend * np.sum(nodes**2, axis=1, keepdims=True)
                yield np.concatenate([2.0 * bend / reach * nodes, offset], axis=1)


def _node_sets(tokens: int) -> Iterator[Array]:
    for extra in (0, 1):
        for rows in range(2, tokens):
            columns, left = divmod(tokens - extra, rows)
            if left == 0 and columns > 1:
                sides = np.meshgrid(np.linspace(-1.0, 1.0, rows), np.linspace(-1.0, 1.0, columns), indexing="ij")
                yield np.concatenate([np.stack([side.ravel() for side in sides], axis=1), np.zeros((extra, 2))])
    turns = np.arange(tokens) + 0.5
    radius, angle = 1.2 * np.sqrt(turns / tokens), turns * math.pi * (3.0 - math.sqrt(5.0))
    yield np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
