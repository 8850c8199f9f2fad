"""Rule Power: Newton's iteration, that is 2^k steps of gradient descent in k levels. What is known of it by norms.

    Q_0 = kept I - rate mean(x x^T)          w_0 = rate mean(y x)          means over all tokens
    Q_(k+1) = Q_k Q_k                        w_(k+1) = w_k + Q_k w_k

A symmetric matrix is stored as its entries i <= j, row by row; `often` says how often each stands in it.

Spectrum.  For |x| <= S the eigenvalues of Q_0 lie in kept - rate [0, S^2]. If that lies in [-1, 1], those of Q_k lie in
    [0, q^(2^k)], k >= 1, q the larger of the sizes of both ends.
Entries.  If the eigenvalues of A lie in [l, h], so do its diagonal entries; the others lie within +-(h - l) / 2, for
    A_ij = (u^T A u - v^T A v) / 2 with the unit vectors u, v = (e_i +- e_j) / sqrt(2).
Length.  w_k = sum over j < m of Q_0^j rate b, m = 2^k, b = mean(y x), so for |y| <= Y, 0 <= kept <= 1, rate > 0:
    |w_k| <= Y min(m rate S, sqrt(m rate), 1 / (2 sqrt(decay))), decay = (1 - kept) / rate (for k = 0: the first). With
    the singular values s of X / sqrt(n), t = s^2 + decay, z = rate t in [0, 2]: |w_k| <= Y max s (1 - (1 - z)^m) / t,
    and (1 - z)^m is in [0, 1] for even m and at least 1 - m z. So s / t and m rate s are bounds, the smaller is at most
    sqrt(m rate), and s / (s^2 + decay) <= 1 / (2 sqrt(decay)).
Errors.  Let E be what Q is off by, at most e in every entry, so |E| <= d e (Frobenius), and D what w is off by.
    Squares are off by QE + EQ + EE, and w + Qw by D + QD + Ew + ED. Split into linear maps of E and D in any way, their
    norms are at most 2 |Q| + 2 d e for a square; 1 + |Q| + d e by D and |w| + sqrt(d) e by E for w + Qw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, smallest
from .errors import Refused
from .graph import PRODUCT, Graph, Node, dense

if TYPE_CHECKING:
    from .proof import Region


@dataclass(frozen=True, eq=False)
class Power:
    """A node that is Q_k (labels < 0) or w_k, of features x and labels y. From level 1 on it is made of the nodes
    `matrix` and `vector` (-1 for a square), through the `factors` of a product and the product `inner`."""

    output: int
    level: int
    features: int
    labels: int
    rate: float
    kept: float
    matrix: int = -1
    vector: int = -1
    inner: int = -1
    factors: tuple[int, ...] = ()


def triangle(size: int) -> tuple[Any, Any, Any]:
    """Rows and columns of the stored entries of a symmetric matrix, and where each entry is stored."""
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return rows, columns, place


def power_of(circuit: Graph, regions: Mapping[int, Region], number: int, known: Mapping[int, Power]) -> Power:
    """The power at a node; Refused if it is none. `known` are those of smaller numbers."""
    nodes, node = circuit.nodes, circuit.nodes[number]
    require(node.kind == "affine" and len(node.arguments) in (1, 2), number)
    *before, inner = node.arguments
    mean = nodes[inner]
    if mean.kind == "pool":
        require(mean.name == "mean" and not mean.causal and not before, inner)
        return _first(circuit, regions, number, node, mean.arguments[0])
    left, right = factors_of(circuit, regions, inner)
    matrix = known.get(nodes[left].arguments[0])
    if matrix is None or matrix.labels >= 0:
        raise Refused(f"node {number} is no power of a matrix that is known as one")
    size = nodes[matrix.features].size
    *_, place = triangle(size)
    require(left not in regions and right not in regions, number)
    pairs, one = _pairs(nodes, left, right), node.weights[0]
    sums = [np.flatnonzero(row).tolist() for row in dense(node.weights[-1])]
    require(set(np.unique(node.weights[-1])) <= {0.0, 1.0} and not node.constants.any(), number)
    level, common = matrix.level + 1, (matrix.features, matrix.rate, matrix.kept)
    if not before:
        require(nodes[right].arguments[0] == matrix.output, right)
        wanted = [[(place[i, k], place[k, j]) for k in range(size)] for i, j in zip(*triangle(size)[:2], strict=True)]
        found = [sorted(tuple(sorted(pairs[p])) for p in row) for row in sums]
        require(found == [sorted(tuple(sorted(each)) for each in row) for row in wanted], number)
        return Power(number, level, common[0], -1, *common[1:], matrix.output, -1, inner, (left, right))
    vector = known.get(before[0])
    if vector is None or vector.labels < 0 or nodes[right].arguments[0] != vector.output:
        raise Refused(f"node {number} is no power of a vector that is known as one")
    same = (vector.level, vector.features, vector.rate) == (matrix.level, matrix.features, matrix.rate)
    require(
        same and (not vector.level or vector.kept == matrix.kept) and one.ndim == 1 and bool(np.all(one == 1)), number
    )
    wanted = [[(place[i, k], k) for k in range(size)] for i in range(size)]
    require([sorted(pairs[p] for p in row) for row in sums] == [sorted(row) for row in wanted], number)
    return Power(
        number, level, common[0], vector.labels, *common[1:], matrix.output, vector.output, inner, (left, right)
    )


def require(holds: bool, number: int, what: str = "what a power needs") -> None:
    """Raise Refused unless something holds of a node."""
    if not holds:
        raise Refused(f"node {number} is not {what}")


def factors_of(circuit: Graph, regions: Mapping[int, Region], number: int) -> tuple[int, ...]:
    """The two factors of a region that compares itself anew with a product."""
    region = regions.get(number)
    if region is None or region.margin is None or circuit.nodes[region.stands_for].program != PRODUCT:
        raise Refused(f"node {number} is not a product, as steps and powers need it")
    return region.arguments


def _pairs(nodes: Sequence[Node], left: int, right: int) -> list[tuple[int, int]]:
    """Which components two nodes, which gather those of others, meet in each product."""
    for number in (left, right):
        node = nodes[number]
        require(node.kind == "affine" and len(node.arguments) == 1 and not node.constants.any(), number)
        rows = dense(node.weights[0])
        require(bool(np.all((rows == 1.0).sum(axis=1) == 1) and np.all((rows != 0.0).sum(axis=1) == 1)), number)
    places = [dense(nodes[number].weights[0]).argmax(axis=1).tolist() for number in (left, right)]
    return list(zip(*places, strict=True))


def _first(circuit: Graph, regions: Mapping[int, Region], number: int, node: Node, product: int) -> Power:
    """Q_0 or w_0."""
    nodes, weights = circuit.nodes, node.weights[0]
    left, right = factors_of(circuit, regions, product)
    require(weights.ndim == 1 and bool(np.all(weights == weights[0])), number)
    rate, label = float(weights[0]), nodes[right]
    require(
        right not in regions and label.kind == "affine" and len(label.arguments) == 1 and not label.constants.any(),
        right,
    )
    if nodes[label.arguments[0]].size == 1 and label.arguments[0] != left and not node.constants.any():
        require(bool(np.all(dense(label.weights[0]) == 1.0)), right)
        return Power(number, 0, left, label.arguments[0], rate, 1.0)
    require(left not in regions, left)
    features, pairs = label.arguments[0], _pairs(nodes, left, right)
    rows, columns, _ = triangle(nodes[features].size)
    kept = float(node.constants[0])
    require(
        nodes[left].arguments[0] == features and pairs == list(zip(rows.tolist(), columns.tolist(), strict=True)), left
    )
    require(np.array_equal(node.constants, np.where(rows == columns, kept, 0.0)), number)
    return Power(number, 0, features, -1, -rate, kept)


def spectrum(power: Power, features: Interval) -> Interval:
    """Where the eigenvalues of Q_k lie, of the power's level; everywhere, if those of Q_0 may be beyond 1."""
    square = Interval(0.0, (features.magnitude * features.magnitude).sum().value)
    first = interval(power.kept) - square * power.rate
    if not (first.low >= -1.0 and first.high <= 1.0):
        return Interval(-np.inf, np.inf)
    largest = first.magnitude
    for _ in range(power.level):
        largest = smallest(largest * largest, 1.0)
    return Interval(0.0, largest.value) if power.level else first


def length(power: Power, features: Interval, labels: Interval) -> Upper:
    """A bound of |w_k|."""
    furthest = (features.magnitude * features.magnitude).sum().sqrt()
    many, known = Upper(power.rate) * 2.0**power.level, np.isfinite(spectrum(power, features).high)
    found = many * furthest
    if power.level and known and 0.0 <= power.kept <= 1.0:
        decay = (interval(1.0) - power.kept) / power.rate
        found = smallest(found, many.sqrt(), Upper(0.5) / np.sqrt(decay.low) * (1.0 + 2.0**-50))
    usable = power.rate > 0.0 and (known or not power.level)
    return found * labels.magnitude.max() if usable else Upper(np.inf)


def entries(power: Power, found: Sequence[Interval]) -> Interval:
    """Where the components of a power lie."""
    features = found[power.features]
    size = len(features.low)
    if power.labels >= 0:
        most = np.full(size, length(power, features, found[power.labels]).value)
        return Interval(-most, most)
    rows, columns, _ = triangle(size)
    values = spectrum(power, features)
    half = (values.width * 0.5).value
    once = rows == columns
    return Interval(np.where(once, values.low, -half), np.where(once, values.high, half))


def factors(power: Power, found: Sequence[Interval], known: Mapping[int, Power], margin: float) -> dict[int, Upper]:
    """By how much errors of what a power is made of grow, at most `margin` in every entry."""
    matrix, size = known[power.matrix], len(found[power.features].low)
    large = spectrum(matrix, found[power.features]).magnitude + Upper(margin) * size
    if power.vector < 0:
        return {power.matrix: large + large}
    vector = length(known[power.vector], found[power.features], found[power.labels])
    return {power.matrix: vector + Upper(float(size)).sqrt() * margin, power.vector: large + 1.0}


def often(power: Power, size: int) -> Array:
    """How often each component stands in the matrix or vector."""
    if power.labels >= 0:
        return np.ones(size)
    rows, columns, _ = triangle(int(np.sqrt(2 * size)))
    return np.where(rows == columns, 1.0, 2.0)
