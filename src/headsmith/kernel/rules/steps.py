"""Rule Step: steps of gradient descent and soft thresholds do not expand distances, though their parts do.

    descent      w' = kept w - rate mean over the tokens of x (f(x . w) + rest),     f the identity or one function
    threshold    w' = relu(w - t) - relu(-w - t),     t >= 0

Descent. Products are bilinear: x~ w~ - x w = x~ (w~ - w) + w (x~ - x), and x~ is the same number in both products. So
if all tokens have the same w~ - w = C, what C does to w' is (kept - rate mean c x~ x~^T) C, c the slopes of f: a
symmetric matrix whose eigenvalues lie in kept - rate c [0, S^2], |x~| <= S. Its factor is the largest size of these.

Length. All tokens have the same exact w: else w' at one of them may lead away from it, towards the mean of the others.
Then |w'| <= (factor) |w| + |w' for w = 0|, in the 2-norm. If f is the identity and rest = -y at all components, let
r = x . w - y, 0 <= kept <= 1 and s = rate S^2 + 1 - kept < 2. Then |w'|^2 = |w|^2 - 2 rate <w, g> + rate^2 |g|^2 for
the gradient g of mean r^2 / 2 + decay |w|^2 / 2; <w, g> = R + mean r y with R = mean r^2 + decay |w|^2, and |g|^2 <=
(S^2 + decay) R. So |w'|^2 <= |w|^2 + rate (2 |r| |y| - (2 - s) |r|^2) <= |w|^2 + rate y^2 / (2 - s).

Threshold. The chord of a soft threshold has a slope in [0, 1]: if both gates have heads, their slopes add up to that.

Rule Power: Newton's iteration, that is 2^k steps of gradient descent in k levels. What is known of it by norms.

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

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arithmetic import Array, Interval, Upper, interval, smallest
from ..core.errors import Refused, refuse
from ..core.flow import Growth, Steps, norm
from ..core.functions import enclose
from ..core.graph import PRODUCT, Graph, dense, needed
from ..core.same import Forms, Polynomial, Row
from ..core.same import number as constant

if TYPE_CHECKING:
    from ..core.proof import Proof, Region


# Powers -------------------------------------------------------------------------------------------------------------


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


def solution(power: Power, features: Interval, labels: Interval) -> Upper:
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
        most = np.full(size, solution(power, features, found[power.labels]).value)
        return Interval(-most, most)
    rows, columns, _ = triangle(size)
    values, once = spectrum(power, features), rows == columns
    half = (values.width * 0.5).value
    return Interval(np.where(once, values.low, -half), np.where(once, values.high, half))


def factors(power: Power, found: Sequence[Interval], known: Mapping[int, Power], margin: float) -> dict[int, Upper]:
    """By how much errors of what a power is made of grow, at most `margin` in every entry."""
    matrix, size = known[power.matrix], len(found[power.features].low)
    large = spectrum(matrix, found[power.features]).magnitude + Upper(margin) * size
    if power.vector < 0:
        return {power.matrix: large + large}
    vector = solution(known[power.vector], found[power.features], found[power.labels])
    return {power.matrix: vector + Upper(float(size)).sqrt() * margin, power.vector: large + 1.0}


def often(power: Power, size: int) -> Array:
    """How often each component stands in the matrix or vector."""
    if power.labels >= 0:
        return np.ones(size)
    rows, columns, _ = triangle(int(np.sqrt(2 * size)))
    return np.where(rows == columns, 1.0, 2.0)


# Steps --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Step:
    """Nodes of a step. Of a descent: `inner` is w x, `curve` is f (-1 for the identity), `residual` the sum that
    multiplies x, `gradient` that product, `pool` its mean. Of a threshold, `gates` are the two relu nodes."""

    output: int
    source: int
    kept: float = 1.0
    rate: float = 0.0
    features: int = -1
    inner: int = -1
    curve: int = -1
    residual: int = -1
    gradient: int = -1
    pool: int = -1
    gates: tuple[int, ...] = ()
    inside: frozenset[int] = frozenset()
    """All nodes between the source and the output, and the output."""


def shared_nodes(circuit: Graph, regions: Mapping[int, Region]) -> set[int]:
    """Nodes whose exact value is the same at all tokens: means of all of them, and what is made of these alone."""
    found = set[int]()
    for number, node in enumerate(circuit.nodes):
        plain = number not in regions and node.kind in ("affine", "relu")
        if (node.kind == "pool" and not node.causal) or (plain and found.issuperset(node.arguments)):
            found.add(number)
    return found


def step_of(circuit: Graph, regions: Mapping[int, Region], output: int) -> Step:
    """The step whose result is a node; Refused if it is none."""
    nodes, node = circuit.nodes, circuit.nodes[output]
    require(node.kind == "affine" and len(node.arguments) == 2, output, "the sum of two nodes")
    source, pool = node.arguments
    if {nodes[source].kind, nodes[pool].kind} == {"relu"}:
        return _threshold(circuit, regions, output)
    require(nodes[pool].kind == "pool", pool, "a mean")
    require(source in shared_nodes(circuit, regions), source, "the same at all tokens, as weights of a descent are")
    gradient = nodes[pool].arguments[0]
    residual, features = factors_of(circuit, regions, gradient)
    kept, rate = (float(dense(weights).flat[0]) for weights in node.weights)
    first, *others = nodes[residual].arguments

    def score(forms: Forms) -> Polynomial:
        return dot(forms.free(circuit, features), forms.free(circuit, source))

    curve, inner, inside = -1, first, frozenset[int]()
    if first not in regions:
        curve, argument = first, nodes[first].arguments[0]
        alone = nodes[first].kind == "expression" and len(nodes[first].arguments) == nodes[first].size == 1
        require(alone, first, "a function of one number")
        inner = nodes[argument].arguments[0]
        inside = between(circuit, regions, argument, [source, features], lambda forms: [score(forms)]) | {first}
    require(factors_of(circuit, regions, inner) == (source, features), inner, "a product of the same features")

    def wanted(forms: Forms) -> Row:
        value = score(forms) if curve < 0 else forms.free(circuit, curve)[0]
        weights = nodes[residual].weights
        rest = replace(nodes[residual], weights=(np.zeros_like(dense(weights[0])), *weights[1:]))
        alone = Graph((*nodes[:residual], rest), residual)
        ((rests,),) = forms.of(alone, [residual], [first, *others])
        both = zip(forms.free(circuit, source), forms.free(circuit, features), rests, strict=True)
        return [w * constant(kept) + forms.mean(x * (value + more)) * constant(rate) for w, x, more in both]

    inside |= between(circuit, regions, output, {source, features, *others, curve}, wanted)
    apart = residual not in regions and (inside | {source}).isdisjoint(others)
    require(apart, residual, "a sum of f(x . w) and of what lies outside of the step")
    # One that is always open passes what arrives as it is, not its positive part: forms do not say what errors do.
    require("relu" not in {nodes[each].kind for each in inside}, output, "a step without gates")
    return Step(output, source, kept, -rate, features, inner, curve, residual, gradient, pool, inside=inside)


def _threshold(circuit: Graph, regions: Mapping[int, Region], output: int) -> Step:
    node, gates = circuit.nodes[output], circuit.nodes[output].arguments
    above, below = (circuit.nodes[circuit.nodes[gate].arguments[0]] for gate in gates)
    source, bias = above.arguments[0], above.constants
    # The slopes of both gates, component by component, belong to the same component of the result.
    alone = above.kind == below.kind == "affine" and above.arguments == below.arguments == (source,)
    alone = alone and all(weights.ndim == 1 for each in (node, above, below) for weights in each.weights)
    require(alone and bool(np.all(bias <= 0.0)), output, "a threshold")

    def wanted(forms: Forms) -> Row:
        pairs = [(w, constant(b)) for w, b in zip(forms.free(circuit, source), bias.tolist(), strict=True)]
        return [forms.relu(b + w) - forms.relu(b - w) for w, b in pairs]

    return Step(output, source, gates=gates, inside=between(circuit, regions, output, [source], wanted))


def _expansion(step: Step, size: Upper, slope: Interval) -> Upper:
    """The largest size of an eigenvalue of kept - rate c x x^T, |x| within `size` and c in `slope`."""
    square = Interval(0.0, (size * size).sum().value)
    return (interval(step.kept) - slope * square * step.rate).magnitude.max()


def length(step: Step, circuit: Graph, found: Sequence[Interval], source: Upper) -> Upper:
    """A bound of the 2-norm of the result, from that of the source, for exact values in their ranges."""
    if step.gates:
        return source
    node, size = circuit.nodes[step.residual], found[step.features].magnitude
    rest = interval(node.constants)
    for argument, weights in list(zip(node.arguments, node.weights, strict=True))[1:]:
        rest = rest + weights @ found[argument]
    slope, first = interval(np.ones(1)), rest
    if step.curve >= 0:
        curve = circuit.nodes[step.curve]
        slope = enclose(curve.program, found[curve.arguments[0]].hull(interval(np.zeros(1))), 1)
        first = rest + enclose(curve.program, interval(np.zeros(1)))
    linear = _expansion(step, size, slope) * source + norm(size * first.magnitude) * abs(step.rate)
    same = all(np.all(each == each[:1]) for each in (*map(dense, node.weights), node.constants))
    if step.curve >= 0 or not same or not 0.0 <= step.kept <= 1.0 or not step.rate >= 0.0:
        return linear
    steep, label = (size * size).sum() * step.rate + (Upper(1.0) - step.kept), rest.magnitude.max()
    energy = source * source + label * label * step.rate / -(steep - 2.0).value
    return smallest(linear, energy.sqrt())


def steps_of(proof: Proof, found: Sequence[Interval], edges: Mapping[int, Any], gates: dict[int, Interval]) -> Steps:
    """The steps that a proof names; Refused if something inside of one is read from outside."""
    readers: dict[int, set[int]] = {}
    for number, mine in edges.items():
        for argument, _, _ in mine:
            readers.setdefault(argument, set()).add(number)
    slopes, growth, counts = dict[int, Interval](), defaultdict[int, list[Growth]](list), dict[int, Array]()
    insides = {number: step.inside for number, step in proof.steps.items()}
    for number, power in proof.powers.items():
        counts[number] = often(power, proof.circuit.nodes[number].size)
        if power.level:
            insides[number] = power.inside
            for source, factor in factors(power, found, proof.powers, proof.regions[power.inner].margin or 0.0).items():
                growth[source].append((number, factor, power.inside))
    for number, inside in insides.items():
        read = any(not readers.get(inner, set()) <= inside for inner in inside - {number})
        refuse(read, f"a node inside of the step at node {number} is read from outside")
    for number, step in proof.steps.items():
        if step.gates:
            first, second = (gates[gate] for gate in step.gates)
            total, heads = first + second, (first.low < first.high) & (second.low < second.high)
            slopes[number] = Interval(total.low, np.where(heads, 1.0, total.high))
        else:
            margin = min(proof.regions[each].margin or 0.0 for each in (step.inner, step.gradient))
            slope = edges[step.curve][0][1] if step.curve >= 0 else interval(np.ones(1))
            factor = _expansion(step, found[step.features].widened(margin).magnitude, slope)
            growth[step.source].append((number, factor, step.inside))
    return Steps(proof.steps, slopes, shared_nodes(proof.circuit, proof.regions), counts, growth)
