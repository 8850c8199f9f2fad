"""Rule Step: steps of gradient descent and soft thresholds do not expand distances, though their parts do.

    descent      w' = kept w - rate mean over the tokens of x (f(x . w) + rest),     f the identity or one function
    threshold    w' = relu(w - t) - relu(-w - t),     t >= 0

Descent. Products are bilinear: x~ w~ - x w = x~ (w~ - w) + w (x~ - x), and x~ is the same number in both products. So
if all tokens have the same w~ - w = C, what C does to w' is (kept - rate mean c x~ x~^T) C, c the slopes of f: a
symmetric matrix whose eigenvalues lie in kept - rate c [0, S^2], |x~| <= S. Its factor is the largest size of these.

Length. |w'| <= (factor) |w| + |w' for w = 0|, in the 2-norm. If f is the identity and rest = -y at all components, let
r = x . w - y, 0 <= kept <= 1 and s = rate S^2 + 1 - kept < 2. Then |w'|^2 = |w|^2 - 2 rate <w, g> + rate^2 |g|^2 for
the gradient g of mean r^2 / 2 + decay |w|^2 / 2; <w, g> = R + mean r y with R = mean r^2 + decay |w|^2, and |g|^2 <=
(S^2 + decay) R. So |w'|^2 <= |w|^2 + rate (2 |r| |y| - (2 - s) |r|^2) <= |w|^2 + rate y^2 / (2 - s).

Threshold. The chord of a soft threshold has a slope in [0, 1]: if both gates have heads, their slopes add up to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, smallest
from .errors import Refused
from .flow import Growth, Steps, norm
from .functions import enclose
from .graph import Graph, dense
from .powers import between, dot, factors_of, often, require
from .powers import factors as expansions
from .same import Forms, Polynomial, Row
from .same import number as constant

if TYPE_CHECKING:
    from .proof import Proof, Region


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


def step_of(circuit: Graph, regions: Mapping[int, Region], output: int) -> Step:
    """The step whose result is a node; Refused if it is none."""
    nodes, node = circuit.nodes, circuit.nodes[output]
    require(node.kind == "affine" and len(node.arguments) == 2, output, "the sum of two nodes")
    source, pool = node.arguments
    if {nodes[source].kind, nodes[pool].kind} == {"relu"}:
        return _threshold(circuit, regions, output)
    require(nodes[pool].kind == "pool", pool, "a mean")
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
        score = found[curve.arguments[0]].hull(interval(np.zeros(1)))
        slope = enclose(curve.program, score, 1)
        first = rest + enclose(curve.program, interval(np.zeros(1)))
    linear = _expansion(step, size, slope) * source + norm(size * first.magnitude) * abs(step.rate)
    same = all(np.all(each == each[:1]) for each in (*map(dense, node.weights), node.constants))
    if step.curve >= 0 or not same or not 0.0 <= step.kept <= 1.0 or not step.rate >= 0.0:
        return linear
    steep, label = (size * size).sum() * step.rate + (Upper(1.0) - step.kept), rest.magnitude.max()
    energy = source * source + label * label * step.rate / -(steep - 2.0).value
    return smallest(linear, energy.sqrt())


def steps_of(
    proof: Proof, found: Sequence[Interval], edges: Mapping[int, Sequence[Any]], gates: Mapping[int, Interval]
) -> Steps:
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
            margin = proof.regions[power.inner].margin or 0.0
            for source, factor in expansions(power, found, proof.powers, margin).items():
                growth[source].append((number, factor, power.inside))
    for number, inside in insides.items():
        if any(not readers.get(inner, set()) <= inside for inner in inside - {number}):
            raise Refused(f"a node inside of the step at node {number} is read from outside")
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
    shared: set[int] = set()
    for number, node in enumerate(proof.circuit.nodes):
        pooled = node.kind == "pool" and not node.causal
        plain = number not in proof.regions and node.kind in ("affine", "relu")
        if pooled or (plain and shared.issuperset(node.arguments)):
            shared.add(number)
    return Steps(proof.steps, slopes, shared, counts, growth)
