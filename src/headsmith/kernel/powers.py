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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, smallest
from .errors import Refused, refuse
from .graph import PRODUCT, Graph, dense, needed
from .same import Forms, Polynomial, Row
from .same import number as constant

if TYPE_CHECKING:
    from .proof import Region


@dataclass(frozen=True, eq=False)
class Power:
    """A node that is Q_k (labels < 0) or w_k, of features x and labels y. From level 1 on it is made of the nodes
    `matrix` and `vector` (-1 for a square), through the `factors` of a product, the product `inner`, and nodes `inside`
    alone."""

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
    inside: frozenset[int] = frozenset()


def triangle(size: int) -> tuple[Any, Any, Any]:
    """Rows and columns of the stored entries of a symmetric matrix, and where each entry is stored."""
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return rows, columns, place


def power_of(circuit: Graph, regions: Mapping[int, Region], number: int, known: Mapping[int, Power]) -> Power:
    """The power at a node; Refused if it is none. `known` are those of smaller numbers."""
    nodes, node = circuit.nodes, circuit.nodes[number]
    require(node.kind == "affine" and len(node.arguments) in (1, 2), number, "a power: it is no sum")
    *before, inner = node.arguments
    if nodes[inner].kind == "pool":
        return _first(circuit, regions, number, *factors_of(circuit, regions, nodes[inner].arguments[0]))
    left, right = factors_of(circuit, regions, inner)
    matrix, vector = known.get(nodes[left].arguments[0]), known.get(before[0]) if before else None
    if matrix is None or matrix.labels >= 0 or (before and vector is None):
        raise Refused(f"node {number} is not made of a matrix and a vector that are known as powers")
    if vector is not None:
        same = (vector.level, vector.features, vector.rate) == (matrix.level, matrix.features, matrix.rate)
        same &= vector.labels >= 0 and (not vector.level or vector.kept == matrix.kept)
        require(same, number, "made of a matrix and a vector of the same level")
    sources = [matrix.output, matrix.output if vector is None else vector.output]
    for factor, source in zip((left, right), sources, strict=True):
        # What is off by at most the margin are the entries themselves.
        rows = dense(nodes[factor].weights[0])
        unit = bool(np.all(rows.sum(axis=1) == 1.0) and np.all(np.isin(rows, (0.0, 1.0))))
        require(unit and nodes[factor].arguments == (source,), factor, f"a copy of entries of node {source}")

    def wanted(forms: Forms) -> Row:
        rows, columns, place = triangle(nodes[matrix.features].size)
        q = forms.free(circuit, matrix.output)
        if vector is None:
            return [dot([q[k] for k in place[i]], [q[k] for k in place[j]]) for i, j in zip(rows, columns, strict=True)]
        w = forms.free(circuit, vector.output)
        return [w[i] + dot([q[k] for k in row], w) for i, row in enumerate(place)]

    inside = between(circuit, regions, number, sources, wanted)
    labels, own = (-1, -1) if vector is None else (vector.labels, vector.output)
    made = (matrix.output, own, inner, (left, right), inside)
    return Power(number, matrix.level + 1, matrix.features, labels, matrix.rate, matrix.kept, *made)


def _first(circuit: Graph, regions: Mapping[int, Region], number: int, left: int, right: int) -> Power:
    """Q_0, which has a constant, or w_0."""
    node, source = circuit.nodes[number], circuit.nodes[right].arguments[0]
    rate, kept = float(dense(node.weights[0]).flat[0]), float(node.constants[0])

    def matrix(forms: Forms) -> Row:
        x, pairs = forms.free(circuit, source), zip(*triangle(circuit.nodes[source].size)[:2], strict=True)
        return [forms.mean(x[i] * x[j]) * constant(rate) + constant(kept if i == j else 0) for i, j in pairs]

    def vector(forms: Forms) -> Row:
        (y,) = forms.free(circuit, source)
        return [forms.mean(x * y) * constant(rate) for x in forms.free(circuit, left)]

    if kept:
        size = circuit.nodes[source].size
        require(2 * node.size == size * (size + 1), number, "a symmetric matrix")
        between(circuit, regions, number, [source], matrix)
        return Power(number, 0, source, -1, -rate, kept)
    require(circuit.nodes[source].size == 1, source, "a label")
    between(circuit, regions, number, [left, source], vector)
    return Power(number, 0, left, source, rate, 1.0)


def dot(left: Row, right: Row) -> Polynomial:
    """The sum of the products of components."""
    return sum((a * b for a, b in zip(left, right, strict=True)), start=constant(0))


def require(holds: bool, number: int, what: str) -> None:
    """Raise Refused unless something holds of a node."""
    refuse(not holds, f"node {number} is not {what}")


def factors_of(circuit: Graph, regions: Mapping[int, Region], number: int) -> tuple[int, ...]:
    """The two factors of a region that compares itself anew with a product."""
    region = regions.get(number)
    if region is None or region.margin is None or circuit.nodes[region.stands_for].program != PRODUCT:
        raise Refused(f"node {number} is not a product, as steps and powers need it")
    return region.arguments


def between(
    circuit: Graph, regions: Mapping[int, Region], number: int, sources: Collection[int], wanted: Callable[[Forms], Row]
) -> frozenset[int]:
    """The node, and all between it and its sources: sums, means, gates, and products that compare themselves anew.
    Raises Refused unless the node is what is wanted of the sources (rule Same)."""
    nodes = [circuit.nodes[regions[n].stands_for] if n in regions else node for n, node in enumerate(circuit.nodes)]
    meant, forms = Graph(tuple(nodes), number), Forms()
    inside = frozenset(needed(meant, [number], sources)) - {*sources}
    for each in inside:
        if each in regions or nodes[each].kind not in ("affine", "pool", "relu"):
            factors_of(circuit, regions, each)
    refuse(forms.of(meant, [number], sources) != [[wanted(forms)]], f"node {number} is not the step or power it seems")
    return inside


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
