"""Doublings: 2^k steps of gradient descent on least squares in k levels. Ranges, and how to recognise them.

With M = mean x x^T + decay I and b = mean y x, gradient descent from zero with a rate takes m steps to

    w_m = sum_{j < m} (I - rate M)^j rate b.

Let Q_k = (I - rate M)^(2^k) and w^(k) = w_m with m = 2^k. Then

    Q_0 = kept I - rate mean(x x^T)          w^(0) = rate mean(y x)             kept = 1 - rate decay
    Q_{k+1} = Q_k Q_k                        w^(k+1) = w^(k) + Q_k w^(k)

(Newton's iteration for the inverse of M, from rate I.) A symmetric matrix is stored as its entries i <= j. Interval by
interval a square is as large as d intervals: a few levels of it are enormous. Three lemmas are better.

Spectrum.  For |x| <= S the eigenvalues of Q_0 lie in [kept - rate S^2, kept]. If that lies in [-1, 1], those of Q_k lie
    in [0, q^(2^k)] for k >= 1, q the larger of the two magnitudes.

Entries.  If the eigenvalues of a symmetric A lie in [l, h], so do its diagonal entries, and the others lie within
    +-(h - l) / 2: A_ij = (u^T A u - v^T A v) / 2 with the unit vectors u, v = (e_i +- e_j) / sqrt(2).

Length.  For |y| <= Y and n examples let A = X / sqrt(n), with singular values s: b = A^T (y / sqrt(n)) and M = A^T A +
    decay I, so

        |w_m| <= Y max_s g(s),     g(s) = s h(t) / t,    t = s^2 + decay,    h(t) = 1 - (1 - rate t)^m,    0 <= s <= S.

    (where t = 0 we have s = 0 and b has no such part). By the first lemma z = rate t is in [0, 2]. For m = 1, h = z and
    g = rate s. For even m, (1 - z)^m is in [0, 1], so h <= 1; and h <= m z by Bernoulli's inequality, which holds for
    1 - z >= -1. So g <= min(s / t, m rate s), and

        |w_m| <= Y min(m rate S,  sqrt(m rate),  1 / (2 sqrt(decay))):

    the second because min(1 / s, c s) <= sqrt(c), the third because s / (s^2 + decay) is largest at s = sqrt(decay).

These are about the exact values. Means are over any tokens, as long as x x^T and y x have the same: all after the mean
is token by token, so every token may have its own (Q, w), and nothing is lost if computed copies differ.
Recognising is exact: weights must be the stated ones, and no node inside may be read from outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.intervals import Interval
from headsmith.core.rounding import lower, upper
from headsmith.source.graph import Affine, Graph, Pool, Product, arguments
from headsmith.source.node_programs import is_given
from headsmith.source.remembered import once_for_graph

MOST_LEVELS = 60

Ranges = Mapping[int, Interval] | Sequence[Interval]


@dataclass(frozen=True, eq=False)
class Iterate:
    """A node that is Q_k (labels < 0) or w^(k) of a run on `features` and `labels`. Above level 0 it is made of the
    nodes `matrix` and `vector` (-1 for a square) of the level before; `region` are the nodes in between, and itself."""

    node: int
    level: int
    features: int
    labels: int
    rate: float
    kept: float
    matrix: int = -1
    vector: int = -1
    region: frozenset[int] = frozenset()

    @property
    def is_matrix(self) -> bool:
        return self.labels < 0


def triangle(size: int) -> tuple[Indices, Indices]:
    """Rows and columns of the stored entries of a symmetric matrix."""
    rows, columns = np.triu_indices(size)
    return rows, columns


def counts(size: int) -> Array:
    """How often each stored entry stands in the matrix: once on the diagonal, twice elsewhere."""
    rows, columns = triangle(size)
    return np.where(rows == columns, 1.0, 2.0)


@lru_cache(maxsize=64)
def moment_maps(size: int) -> tuple[Array, Array]:
    """Matrices that take x to the factors of the stored entries of x x^T."""
    rows, columns = triangle(size)
    return _gather(rows, size), _gather(columns, size)


@lru_cache(maxsize=64)
def square_maps(size: int) -> tuple[Array, Array, Array]:
    """Matrices that take the stored entries of Q to the factors of all products in Q Q, each once, and these to the
    stored entries of Q Q."""
    place = _places(size)
    pairs: dict[tuple[int, int], int] = {}
    sums: list[tuple[int, int]] = []
    for entry, (i, j) in enumerate(zip(*triangle(size), strict=True)):
        for k in range(size):
            first, second = sorted((int(place[i, k]), int(place[k, j])))
            sums.append((entry, pairs.setdefault((first, second), len(pairs))))
    left, right = np.array(list(pairs)).T
    total = np.zeros((len(counts(size)), len(pairs)))
    total[tuple(np.array(sums).T)] = 1.0
    return _gather(left, len(counts(size))), _gather(right, len(counts(size))), total


@lru_cache(maxsize=64)
def apply_maps(size: int) -> tuple[Array, Array, Array]:
    """Matrices that take Q and w to the factors of the products in Q w, and these to their sums."""
    entries = _places(size).reshape(-1)
    columns = np.tile(np.arange(size), size)
    rows = np.repeat(np.arange(size), size)
    return _gather(entries, len(counts(size))), _gather(columns, size), _gather(rows, size).T.copy()


def _places(size: int) -> Indices:
    """Where entry (i, j) is stored."""
    rows, columns = triangle(size)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return place


def _gather(places: Indices, size: int) -> Array:
    return np.asarray(np.eye(size)[places])


# ---- the lemmas -----------------------------------------------------------------------------------------


def spectrum(iterate: Iterate, ranges: Ranges) -> tuple[float, float]:
    """The interval of the eigenvalues of Q_k; infinite where those of Q_0 may lie outside of [-1, 1]."""
    size = ranges[iterate.features].magnitude
    steep = float(upper(iterate.rate * float(upper(np.sum(size * size), len(size) + 2)), 2))
    low = float(np.nextafter(iterate.kept - steep, -np.inf))
    if not low >= -1.0:
        return -math.inf, math.inf
    if not iterate.level:
        return low, iterate.kept
    largest = max(iterate.kept, abs(low))
    for _ in range(iterate.level):
        largest = min(1.0, float(upper(largest * largest, 1)))
    return 0.0, largest


def norm_bound(iterate: Iterate, ranges: Ranges) -> float:
    """|Q_k| in the 2-norm of matrices."""
    return max(map(abs, spectrum(iterate, ranges)))


def length_bound(iterate: Iterate, ranges: Ranges) -> float:
    """|w^(k)| in the 2-norm; infinite where the spectrum is, above level 0."""
    if iterate.level and not math.isfinite(norm_bound(iterate, ranges)):
        return math.inf
    size = ranges[iterate.features].magnitude
    far = float(upper(np.sqrt(upper(np.sum(size * size), len(size) + 2)), 2))
    rate = float(upper(iterate.rate * 2.0**iterate.level, 1))
    found = [float(upper(rate * far, 1))]
    if iterate.level:
        found.append(float(upper(math.sqrt(rate), 1)))
        decay = float(lower((1.0 - iterate.kept) / iterate.rate, 2))
        if decay > 0.0:
            found.append(float(upper(0.5 / math.sqrt(decay), 3)))
    return float(upper(min(found) * float(np.max(ranges[iterate.labels].magnitude)), 1))


def entries(iterate: Iterate, size: int, ranges: Ranges) -> Interval:
    """Where the stored numbers of an iterate with so many components lie."""
    if not iterate.is_matrix:
        reach = np.full(size, length_bound(iterate, ranges))
        return Interval(-reach, reach)
    low, high = spectrum(iterate, ranges)
    half = float(np.nextafter(high - low, np.inf)) / 2.0
    once = counts(ranges[iterate.features].low.shape[0]) == 1.0
    return Interval(np.where(once, low, -half), np.where(once, high, half))


# ---- recognising ----------------------------------------------------------------------------------------


@once_for_graph
def iterates(graph: Graph) -> dict[int, Iterate]:
    """All nodes of such runs, by their numbers. Whether the rate is small enough is not known here."""
    if not any(isinstance(node, Pool) for node in graph.nodes):
        return {}
    readers: dict[int, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for argument in arguments(node):
            readers.setdefault(argument, set()).add(number)
    found: dict[int, Iterate] = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Affine):
            iterate = (
                _first_matrix(graph, number, node)
                or _first_vector(graph, number, node)
                or _square(graph, number, node, found)
                or _applied(graph, number, node, found)
            )
            if iterate is not None and _closed(iterate, readers, graph.output):
                found[number] = iterate
    return found


def _closed(iterate: Iterate, readers: Mapping[int, set[int]], output: int) -> bool:
    """Nothing outside reads what is inside, but for the result."""
    inner = iterate.region - {iterate.node}
    return output not in inner and all(readers.get(number, set()) <= iterate.region for number in inner)


def _first_matrix(graph: Graph, number: int, node: Affine) -> Iterate | None:
    product = _mean_of_products(graph, node)
    rate = _multiple(node)
    if product is None or rate is None or not rate < 0.0:
        return None
    features = _linear(graph, product.left)
    if features is None or not is_given(graph, features):
        return None
    size = graph.nodes[features].size
    if node.size != len(counts(size)):
        return None
    left, right = moment_maps(size)
    once = counts(size) == 1.0
    kept = float(node.bias[0])
    same = _maps(graph, product.left, features, left) and _maps(graph, product.right, features, right)
    if not same or not 0.0 <= kept <= 1.0 or not np.array_equal(node.bias, np.where(once, kept, 0.0)):
        return None
    return Iterate(number, 0, features, -1, -rate, kept)


def _first_vector(graph: Graph, number: int, node: Affine) -> Iterate | None:
    product = _mean_of_products(graph, node)
    rate = _multiple(node)
    if product is None or rate is None or not rate > 0.0 or node.bias.any():
        return None
    labels = _linear(graph, product.right)
    given = labels is not None and is_given(graph, labels) and is_given(graph, product.left)
    if labels is None or not given or not _maps(graph, product.right, labels, np.ones((node.size, 1))):
        return None
    # `kept` is that of the matrix which it meets.
    return Iterate(number, 0, product.left, labels, rate, math.nan)


def _square(graph: Graph, number: int, node: Affine, found: Mapping[int, Iterate]) -> Iterate | None:
    if len(node.terms) != 1 or node.bias.any():
        return None
    product = graph.nodes[node.terms[0].node]
    source = _linear(graph, product.left) if isinstance(product, Product) else None
    before = found.get(source) if source is not None else None
    if source is None or before is None or not isinstance(product, Product):
        return None
    if not before.is_matrix or before.level >= MOST_LEVELS:
        return None
    left, right, total = square_maps(graph.nodes[before.features].size)
    same = _maps(graph, product.left, source, left) and _maps(graph, product.right, source, right)
    if not same or not np.array_equal(node.terms[0].weights, total):
        return None
    region = frozenset({number, node.terms[0].node, product.left, product.right})
    return Iterate(
        number, before.level + 1, before.features, -1, before.rate, before.kept, matrix=source, region=region
    )


def _applied(graph: Graph, number: int, node: Affine, found: Mapping[int, Iterate]) -> Iterate | None:
    if len(node.terms) != 2 or node.bias.any():
        return None
    direct, summed = node.terms
    product, vector = graph.nodes[summed.node], found.get(direct.node)
    source = _linear(graph, product.left) if isinstance(product, Product) else None
    matrix = found.get(source) if source is not None else None
    if vector is None or matrix is None or not isinstance(product, Product):
        return None
    if not _meet(matrix, vector) or not np.array_equal(direct.weights, np.ones(node.size)):
        return None
    left, right, total = apply_maps(node.size)
    same = _maps(graph, product.left, matrix.node, left) and _maps(graph, product.right, vector.node, right)
    if not same or not np.array_equal(summed.weights, total):
        return None
    region = frozenset({number, summed.node, product.left, product.right})
    return Iterate(
        number,
        vector.level + 1,
        vector.features,
        vector.labels,
        vector.rate,
        matrix.kept,
        matrix=matrix.node,
        vector=vector.node,
        region=region,
    )


def _meet(matrix: Iterate, vector: Iterate) -> bool:
    """Whether they are Q_k and w^(k) of one run."""
    same = (matrix.level, matrix.features, matrix.rate) == (vector.level, vector.features, vector.rate)
    return (
        matrix.is_matrix
        and not vector.is_matrix
        and same
        and (not vector.level or vector.kept == matrix.kept)
        and vector.level < MOST_LEVELS
    )


def _mean_of_products(graph: Graph, node: Affine) -> Product | None:
    """The product whose mean over all tokens is the node's only term."""
    pool = graph.nodes[node.terms[0].node] if len(node.terms) == 1 else None
    if not isinstance(pool, Pool) or pool.kind != "mean" or pool.causal:
        return None
    product = graph.nodes[pool.argument]
    return product if isinstance(product, Product) else None


def _multiple(node: Affine) -> float | None:
    """c if the weights of the only term are c times the identity."""
    weights = node.terms[0].weights if len(node.terms) == 1 else np.zeros(0)
    return float(weights[0]) if weights.ndim == 1 and len(weights) and np.all(weights == weights[0]) else None


def _linear(graph: Graph, number: int) -> int | None:
    """What a linear map of one node reads."""
    node = graph.nodes[number]
    return node.terms[0].node if isinstance(node, Affine) and len(node.terms) == 1 and not node.bias.any() else None


def _maps(graph: Graph, number: int, source: int, weights: Array) -> bool:
    """Whether a node is weights @ source, and nothing else."""
    node = graph.nodes[number]
    return (
        _linear(graph, number) == source and isinstance(node, Affine) and np.array_equal(node.terms[0].weights, weights)
    )
