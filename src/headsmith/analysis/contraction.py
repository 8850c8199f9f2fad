"""Steps that do not expand distances: gradient steps of convex losses, and soft thresholds.

A gradient step of a convex loss whose gradient is L-Lipschitz, with a rate of at most 2/L, does not move two points
further apart in the 2-norm. Interval by interval that cannot be seen (|I| + rate |H| is larger than 1, and twenty steps
of it are enormous), so the step is recognised as a whole:

    p = w * x         r = loss'(sum p - y)        g = r * x        G = mean of g over the tokens
    w' = (1 - rate decay) w - rate G

with r = sum p - y (least squares), or sigmoid(sum p) - y (logistic). The Hessian of the loss is H = mean of c_i x x^T
+ decay I with 0 <= c_i <= c, c = 1 or 1/4: it lies between 0 and (c max|x|^2 + decay) I. All tokens share w, and w' is
the same at every token.

    soft threshold    w' = relu(u - t) - relu(-u - t)     acts component by component and is 1-Lipschitz
    exchange          w' = smaller or larger of w and a partner's w      see exchange.py: tokens need not share w

Recognising is exact: weights must be the stated ones, and no node inside may be read from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.analysis.exchange import exchange
from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.core.rounding import upper
from headsmith.source.graph import (
    Affine,
    Function,
    Graph,
    Input,
    Mixing,
    Pool,
    Positional,
    Product,
    Relu,
    Term,
    arguments,
)
from headsmith.source.node_programs import is_given
from headsmith.source.remembered import once_for_graph

CURVATURE = {"squared": 1.0, "logistic": 0.25}

GIVEN = ("threshold", "exchange")
"""Kinds that do not expand whatever their constants are, and take 0 to 0."""


@dataclass(frozen=True, eq=False)
class Contraction:
    """Node `result` is a function of node `source` (and of others) that does not expand the 2-norm. `region` are the
    nodes in between, and the result. For a gradient step, `features` and `labels` say what else it reads."""

    source: int
    result: int
    region: frozenset[int]
    kind: str
    rate: float = 0.0
    decay: float = 0.0
    features: int = -1
    labels: int = -1


@once_for_graph
def contractions(graph: Graph) -> dict[int, Contraction]:
    """All steps of these kinds, by their result. Whether the rate is small enough is not known here."""
    readers: dict[int, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for argument in arguments(node):
            readers.setdefault(argument, set()).add(number)
    found = {}
    shared = shared_nodes(graph)
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Affine):
            step = _gradient_step(graph, number, node) or _soft_threshold(graph, number, node)
            if step is not None and not _one_for_all(graph, step, shared):
                step = None
            if step is None and (exchanged := exchange(graph, number)) is not None:
                step = Contraction(exchanged[0], number, exchanged[1], "exchange")
            if step is not None and _closed(step, readers, graph.output):
                found[number] = step
    return found


def shared_nodes(graph: Graph) -> frozenset[int]:
    """Nodes whose exact value is the same at every token."""
    found: set[int] = set()
    for number, node in enumerate(graph.nodes):
        pooled = isinstance(node, Pool) and not node.causal
        own = isinstance(node, Input | Positional | Mixing)
        if pooled or (not own and all(argument in found for argument in arguments(node))):
            found.add(number)
    return frozenset(found)


def _one_for_all(graph: Graph, step: Contraction, shared: frozenset[int]) -> bool:
    """All tokens have the same source, and what else the step reads does not depend on it: inputs, up to affine
    maps."""
    given = [number for number in (step.features, step.labels) if number >= 0]
    return step.source in shared and all(is_given(graph, number) for number in given)


def expands(step: Contraction, ranges: Mapping[int, Interval] | Sequence[Interval]) -> bool:
    """Whether the step may expand distances, features lying in their ranges.

    Guarantee: False only if 0 <= rate and rate (c max |x|^2 + decay) <= 2.
    """
    if step.kind in GIVEN:
        return False
    return steepness(step, ranges[step.features].magnitude) > 2.0


def steepness(step: Contraction, size: Array) -> float:
    """rate (c |x|^2 + decay) for features within `size`, rounded up: a step with at most 2 does not expand."""
    if not (step.rate >= 0.0 and step.decay >= 0.0):
        return float("inf")
    steepest = float(upper(CURVATURE[step.kind] * float(upper(np.sum(size * size), len(size) + 2)) + step.decay, 4))
    return float(upper(step.rate * steepest, 2))


def shrinkage(step: Contraction, size: Array) -> float:
    """q with |f(w) - f(v)| <= q |w - v|, for features within `size`; infinite where s > 2.

    The eigenvalues of the step's Jacobian lie between 1 - s and 1 - rate decay, s the steepness: q is the larger size.
    """
    if step.kind in GIVEN:
        return 1.0
    steep = steepness(step, size)
    if steep > 2.0:
        return float("inf")
    # `decay` was rounded up by a few units in the last place.
    return min(1.0, max(float(upper(1.0 - step.rate * step.decay * (1.0 - 1e-12), 2)), steep - 1.0))


def norm(values: Array) -> float:
    """The 2-norm, rounded up."""
    return float(upper(np.sqrt(upper(np.sum(values * values), len(values) + 2)), 2))


def reach(step: Contraction, source: float, ranges: Mapping[int, Interval] | Sequence[Interval]) -> float:
    """A bound of |result| from |source|, 2-norms, for a step that does not expand: the smaller of two.

    Lipschitz    |f(w)| <= q |w| + |f(0)| with q the shrinkage, and
                 f(0) = -rate mean(loss'(0) x), at most rate max|loss'(0)| max|x|
    energy       least squares, r = w.x - y: |w'|^2 = |w|^2 - 2 rate mean(r (r + y)) + rate^2 |mean(r x)|^2 and
                 |mean(r x)|^2 <= max|x|^2 mean r^2, so |w'|^2 <= |w|^2 + rate (2 |r||y| - (2 - s) |r|^2)
                 <= |w|^2 + rate max y^2 / (2 - s); decay is one more example with y = 0
    """
    if step.kind in GIVEN:
        return source
    size = ranges[step.features].magnitude
    first = ranges[step.labels].magnitude
    if step.kind == "logistic":
        labels = ranges[step.labels]
        first = np.maximum(np.abs(0.5 - labels.low), np.abs(0.5 - labels.high))
    largest = float(np.max(first))
    linear = float(upper(shrinkage(step, size) * source + step.rate * largest * norm(size), 6))
    steep = steepness(step, size)
    if step.kind != "squared" or not steep < 2.0:
        return linear
    energy = float(upper(source * source + step.rate * largest * largest / (2.0 - steep) * (1.0 + 1e-12), 8))
    return min(linear, float(upper(np.sqrt(energy), 2)))


def _closed(step: Contraction, readers: Mapping[int, set[int]], output: int) -> bool:
    """Nothing outside reads what is inside, but for the result."""
    inner = step.region - {step.result}
    return output not in inner and all(readers.get(number, set()) <= step.region for number in inner)


def _gradient_step(graph: Graph, number: int, node: Affine) -> Contraction | None:
    if len(node.terms) != 2 or node.bias.any():
        return None
    for direct, term in (node.terms, node.terms[::-1]):
        pool = graph.nodes[term.node]
        kept, rate = _multiple(direct), _multiple(term)
        if not isinstance(pool, Pool) or pool.kind != "mean" or pool.causal or kept is None or rate is None:
            continue
        step = _gradient(graph, direct.node, pool.argument)
        if step is None or rate > 0.0:
            continue
        kind, features, labels, inside = step
        decay = (1.0 - kept) / -rate if rate else 0.0
        # kept = 1 - rate decay, up to the rounding of a quotient: what counts is that it lies between these.
        if not 0.0 <= kept <= 1.0:
            continue
        region = frozenset({number, term.node, *inside})
        decay = float(upper(decay, 3)) if kept < 1.0 else 0.0
        return Contraction(direct.node, number, region, kind, -rate, decay, features, labels)
    return None


def _gradient(graph: Graph, weights: int, number: int) -> tuple[str, int, int, set[int]] | None:
    """g = (r repeated) * x with r of w . x: (kind, x, y, nodes inside)."""
    product = graph.nodes[number]
    if not isinstance(product, Product):
        return None
    for spread, features in ((product.left, product.right), (product.right, product.left)):
        repeat = graph.nodes[spread]
        if not isinstance(repeat, Affine) or graph.nodes[features].size != product.size:
            continue
        found = _residual(graph, weights, features, spread, repeat)
        if found is not None:
            kind, labels, inside = found
            return kind, features, labels, {number, spread, *inside}
    return None


def _residual(graph: Graph, weights: int, features: int, number: int, node: Affine) -> tuple[str, int, set[int]] | None:
    """r at every component: sum(w * x) - y, or sigmoid(sum(w * x)) - y."""
    if node.bias.any() or len(node.terms) != 2:
        return None
    for score, label in (node.terms, node.terms[::-1]):
        if not _all_equal(label, -1.0) or graph.nodes[label.node].size != 1:
            continue
        inner = graph.nodes[score.node]
        if isinstance(inner, Product) and _all_equal(score, 1.0) and {inner.left, inner.right} == {weights, features}:
            return "squared", label.node, {score.node}
        if isinstance(inner, Function) and inner.name == "sigmoid" and inner.size == 1 and _all_equal(score, 1.0):
            linear = graph.nodes[inner.argument]
            if isinstance(linear, Affine) and len(linear.terms) == 1 and not linear.bias.any():
                product = graph.nodes[linear.terms[0].node]
                mine = isinstance(product, Product) and {product.left, product.right} == {weights, features}
                if mine and _all_equal(linear.terms[0], 1.0):
                    return "logistic", label.node, {score.node, inner.argument, linear.terms[0].node}
    return None


def _soft_threshold(graph: Graph, number: int, node: Affine) -> Contraction | None:
    if len(node.terms) != 2 or node.bias.any():
        return None
    for above, below in (node.terms, node.terms[::-1]):
        if _multiple(above) != 1.0 or _multiple(below) != -1.0:
            continue
        gates = [graph.nodes[term.node] for term in (above, below)]
        if not all(isinstance(gate, Relu) for gate in gates):
            continue
        places = [arguments(gate)[0] for gate in gates]
        sides = [graph.nodes[place] for place in places]
        if not all(isinstance(side, Affine) and len(side.terms) == 1 for side in sides):
            continue
        first, second = sides
        assert isinstance(first, Affine)
        assert isinstance(second, Affine)
        same = first.terms[0].node == second.terms[0].node and np.array_equal(first.bias, second.bias)
        signs = (_multiple(first.terms[0]), _multiple(second.terms[0])) == (1.0, -1.0)
        if same and signs and np.all(first.bias <= 0.0):
            region = frozenset({number, above.node, below.node, *places})
            return Contraction(first.terms[0].node, number, region, "threshold")
    return None


def _multiple(term: Term) -> float | None:
    """c if the weights are c times the identity."""
    weights: Array = term.weights
    diagonal = weights if weights.ndim == 1 else np.diag(weights) if weights.shape[0] == weights.shape[1] else None
    if diagonal is None or not len(diagonal) or np.any(diagonal != diagonal[0]):
        return None
    if weights.ndim == 2 and np.count_nonzero(weights) != np.count_nonzero(diagonal):
        return None
    return float(diagonal[0])


def _all_equal(term: Term, value: float) -> bool:
    """Every entry of a matrix is `value`: sums or repeats."""
    return bool(term.weights.ndim == 2 and np.all(term.weights == value)) or (
        term.weights.shape == (1,) and float(term.weights[0]) == value
    )
