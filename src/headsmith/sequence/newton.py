"""Newton's iteration on the examples of a context: 2^k steps of gradient descent in k layers.

Token i holds an example (x_i, y_i) and a query q_i of its own, as in sequence/descent.py. For least squares with
decay/2 |w|^2 gradient descent is linear: w <- Q w + b with Q = I - rate (mean x x^T + decay I) and b = rate mean y x.
Two steps are one step with (Q Q, b + Q b), and so on (kernel/rules/steps.py):

    all x_i x_j and x_i y          one layer of products       d (d + 1) / 2 + d heads
    their means                    one layer
    Q <- Q Q,  w <- w + Q w        one layer of products for each doubling: sums are free
    w . q                          one layer of products

It is also Newton's iteration X <- X (2 I - M X) for the inverse of M = mean x x^T + decay I, from X = rate I: there
I - M X = Q and w = X b. So 2^k steps take k + 3 layers instead of 3 2^k, and about d^3 / 2 heads in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.kernel.rules.steps import triangle
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import known_of_target
from headsmith.sequence.descent import (
    input_names,
    largest_rate,
    predicting_graph,
    same_graph,
    smoothness,
    token_parts,
)

MOST_LEVELS = 60


@dataclass(frozen=True)
class Newton:
    """What is run: 2^doublings steps. `kept` (1 - rate decay) is the double that graph and arithmetic share."""

    doublings: int
    features: int
    rate: float
    kept: float = 1.0

    @property
    def steps(self) -> int:
        """As many steps of gradient descent lead to the same weights."""
        return int(2**self.doublings)

    def predicted(self, X: Any, y: Any, queries: Any, dtype: Any = np.longdouble) -> Any:
        """w . q at every query, in plain arithmetic of `dtype`."""
        return np.asarray(queries, dtype=dtype) @ doubled(self, X, y, dtype)


def best_rate(largest: Array, decay: float) -> float:
    """The rate for which the matrix of one step has the smallest norm on the domain; 1/L without a decay.

    Eigenvalues of a step lie between 1 - rate (S^2 + decay) and 1 - rate decay, |x| <= S: both ends are equally far
    from zero for rate = 2 / (S^2 + 2 decay). Without a decay, negative ones would only do harm.
    """
    steepest = smoothness("squared", largest, decay)
    if not steepest > 0.0:
        return 1.0
    balanced = 2.0 / (steepest + decay) if decay > 0.0 else 1.0 / steepest
    return min(balanced, largest_rate("squared", largest, decay))


def counts(size: int) -> Array:
    """How often each stored entry stands in a symmetric matrix: once on the diagonal, twice elsewhere."""
    rows, columns, _ = triangle(size)
    return np.where(rows == columns, 1.0, 2.0)


@lru_cache(maxsize=64)
def moment_maps(size: int) -> tuple[Array, Array]:
    """Matrices that take x to the factors of the stored entries of x x^T."""
    rows, columns, _ = triangle(size)
    return np.eye(size)[rows], np.eye(size)[columns]


@lru_cache(maxsize=64)
def square_maps(size: int) -> tuple[Array, Array, Array]:
    """Matrices that take the stored entries of Q to the factors of all products in Q Q, each once, and these to the
    stored entries of Q Q."""
    rows, columns, place = triangle(size)
    pairs: dict[tuple[int, int], int] = {}
    sums: list[tuple[int, int]] = []
    for entry, (i, j) in enumerate(zip(rows, columns, strict=True)):
        for k in range(size):
            first, second = sorted((int(place[i, k]), int(place[k, j])))
            sums.append((entry, pairs.setdefault((first, second), len(pairs))))
    left, right = np.array(list(pairs)).T
    total = np.zeros((len(rows), len(pairs)))
    total[tuple(np.array(sums).T)] = 1.0
    return np.eye(len(rows))[left], np.eye(len(rows))[right], total


@lru_cache(maxsize=64)
def apply_maps(size: int) -> tuple[Array, Array, Array]:
    """Matrices that take Q and w to the factors of the products in Q w, and these to their sums."""
    rows, _, place = triangle(size)
    once = np.eye(size)
    factors, sums = np.eye(len(rows))[place.reshape(-1)], np.repeat(once, size, axis=0).T.copy()
    return factors, np.tile(once, (size, 1)), sums


def newton_graph(run: Newton, weights: bool = False) -> Graph:
    """The whole run as a source graph: at every token, its prediction w . q, and w itself if `weights`."""
    size = run.features
    build = Builder(input_names(size))
    features, labels, queries = token_parts(build, size)
    left, right = (build.affine([(features, each)], np.zeros(len(each))) for each in moment_maps(size))
    repeated = build.affine([(labels, np.ones((size, 1)))], np.zeros(size))
    often = counts(size)
    second = build.pool("mean", build.product(left, right))
    first = build.pool("mean", build.product(features, repeated))
    matrix = build.affine([(second, np.full(len(often), -run.rate))], np.where(often == 1.0, run.kept, 0.0))
    vector = build.affine([(first, np.full(size, run.rate))], np.zeros(size))
    for level in range(run.doublings):
        *factors, total = apply_maps(size)
        moved = build.product(*_gathered(build, (matrix, vector), factors))
        vector = build.affine([(vector, np.ones(size)), (moved, total)], np.zeros(size))
        if level + 1 < run.doublings:
            *factors, total = square_maps(size)
            squared = build.product(*_gathered(build, (matrix, matrix), factors))
            matrix = build.affine([(squared, total)], np.zeros(len(total)))
    return predicting_graph(build, vector, queries, weights)


def _gathered(build: Builder, nodes: tuple[int, int], maps: list[Array]) -> list[int]:
    return [build.affine([(node, each)], np.zeros(len(each))) for node, each in zip(nodes, maps, strict=True)]


def doubled(run: Newton, X: Any, y: Any, dtype: Any = np.longdouble) -> Any:
    """The weights after all doublings, in plain arithmetic of `dtype` (dtype object takes fractions)."""
    X, y = np.asarray(X, dtype=dtype), np.asarray(y, dtype=dtype)
    number: Any = Fraction if dtype is object else np.dtype(dtype).type
    rate, kept, count = number(run.rate), number(run.kept), number(len(X))
    matrix = kept * np.eye(run.features, dtype=int).astype(dtype) - rate * ((X.T @ X) / count)
    w = rate * ((X.T @ y) / count)
    for _ in range(run.doublings):
        w = w + matrix @ w
        matrix = matrix @ matrix
    return w


def newton_of(graph: Graph) -> Newton | None:
    """What a graph of `newton_graph` runs, read off its nodes; None for any other graph."""
    found = known_of_target(graph).powers.values()
    first = next((power for power in found if power.labels < 0 and not power.level), None)
    if first is None:
        return None
    doublings = max((power.level for power in found if power.labels >= 0), default=0)
    run = Newton(doublings, graph.nodes[first.features].size, first.rate, first.kept)
    same = newton_graph(run, weights=graph.nodes[graph.output].size > 1)
    if list(graph.input.names) != input_names(run.features) or not same_graph(graph, same):
        raise TargetError("this model learns in context by other steps than those of Newton's iteration")
    return run
