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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, smallest
from .errors import Refused
from .flow import Growth, Steps, norm
from .functions import enclose
from .graph import Graph, Node, dense
from .powers import factors as expansions
from .powers import factors_of, often, require

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
    closed: tuple[tuple[int, int], ...] = ()
    """Pairs (node, its only reader)."""


def step_of(circuit: Graph, regions: Mapping[int, Region], output: int) -> Step:
    """The step whose result is a node; Refused if it is none."""
    node = circuit.nodes[output]
    if node.kind != "affine" or len(node.arguments) != 2 or node.constants.any():
        raise Refused(f"node {output} is no step: it is not the sum of two nodes")
    if {circuit.nodes[argument].kind for argument in node.arguments} == {"relu"}:
        return _threshold(circuit, regions, output, node)
    source, pool = node.arguments
    kept, rate = (_multiple(weights) for weights in node.weights)
    mean = circuit.nodes[pool]
    require(mean.kind == "pool" and mean.name == "mean" and not mean.causal, pool, "the mean over all tokens")
    gradient = mean.arguments[0]
    residual, features = factors_of(circuit, regions, gradient)
    _ones(circuit, residual)
    first = circuit.nodes[residual].arguments[0]
    closed = [(pool, output), (gradient, pool), (residual, gradient)]
    curve, inner = -1, first
    if first not in regions:
        curve, argument = first, circuit.nodes[first].arguments[0]
        curved = circuit.nodes[first].kind == "expression" and len(circuit.nodes[first].arguments) == 1
        require(curved and circuit.nodes[first].size == 1, first, "a function of one number")
        _ones(circuit, argument)
        require(len(circuit.nodes[argument].arguments) == 1 and _unbiased(circuit.nodes[argument]), argument, "a sum")
        inner = circuit.nodes[argument].arguments[0]
        closed += [(first, residual), (argument, first), (inner, argument)]
    else:
        closed += [(inner, residual)]
    require(factors_of(circuit, regions, inner) == (source, features), inner, "a product of the same features")
    _refuse_regions(regions, [number for number, _ in closed if number not in (inner, gradient)])
    return Step(output, source, kept, -rate, features, inner, curve, residual, gradient, pool, closed=tuple(closed))


def _ones(circuit: Graph, number: int) -> None:
    """The node is a sum, and adds up all components of its first term."""
    node = circuit.nodes[number]
    require(node.kind == "affine" and bool(np.all(dense(node.weights[0]) == 1.0)), number, "a sum over components")


def _unbiased(node: Node) -> bool:
    return not node.constants.any()


def _multiple(weights: Array) -> float:
    """c if the weights are c times the identity."""
    if weights.ndim != 1 or np.any(weights != weights[0]):
        raise Refused("a step has weights that are no multiple of the identity")
    return float(weights[0])


def _refuse_regions(regions: Mapping[int, Region], numbers: Sequence[int]) -> None:
    """The output of a region stands for something else than the sum that it is."""
    for number in numbers:
        require(number not in regions, number, "the sum that it seems to be")


def _threshold(circuit: Graph, regions: Mapping[int, Region], output: int, node: Node) -> Step:
    above, below = (circuit.nodes[gate].arguments[0] for gate in node.arguments)
    sums = [circuit.nodes[number] for number in (above, below)]
    _refuse_regions(regions, (above, below))
    signs = [_multiple(weights) for each in (node, *sums) for weights in each.weights]
    biases = [each.constants for each in sums]
    require(all(each.kind == "affine" and len(each.arguments) == 1 for each in sums), output, "a threshold")
    require(sums[0].arguments == sums[1].arguments and signs == [1.0, -1.0, 1.0, -1.0], output, "a threshold")
    require(np.array_equal(biases[0], biases[1]) and bool(np.all(biases[0] <= 0.0)), output, "a threshold")
    closed = tuple(zip((above, below), node.arguments, strict=True)) + tuple((gate, output) for gate in node.arguments)
    return Step(output, sums[0].arguments[0], gates=node.arguments, closed=closed)


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
    closed = [pair for step in proof.steps.values() for pair in step.closed]
    for number, power in proof.powers.items():
        counts[number] = often(power, proof.circuit.nodes[number].size)
        if power.level:
            closed += [(power.inner, number), *((each, power.inner) for each in power.factors)]
            margin = proof.regions[power.inner].margin or 0.0
            for source, factor in expansions(power, found, proof.powers, margin).items():
                growth[source].append((number, factor, {number, *power.factors}))
    for inner, reader in closed:
        if readers.get(inner, set()) - {reader}:
            raise Refused(f"node {inner} inside of the step at node {reader} is read from outside")
    for number, step in proof.steps.items():
        if step.gates:
            first, second = (gates[gate] for gate in step.gates)
            total, heads = first + second, (first.low < first.high) & (second.low < second.high)
            slopes[number] = Interval(total.low, np.where(heads, 1.0, total.high))
        else:
            margin = min(proof.regions[each].margin or 0.0 for each in (step.inner, step.gradient))
            slope = edges[step.curve][0][1] if step.curve >= 0 else interval(np.ones(1))
            factor = _expansion(step, found[step.features].widened(margin).magnitude, slope)
            growth[step.source].append((number, factor, {number, step.inner}))
    shared: set[int] = set()
    for number, node in enumerate(proof.circuit.nodes):
        pooled = node.kind == "pool" and not node.causal
        if pooled or (
            number not in proof.regions
            and node.kind in ("affine", "relu")
            and all(each in shared for each in node.arguments)
        ):
            shared.add(number)
    return Steps(proof.steps, slopes, shared, counts, growth)
