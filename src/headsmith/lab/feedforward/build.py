"""Feed-forward networks for targets: ReLU circuits as they are, and gated units where those are exact or cheaper.

    relu        the circuit of the relu recipe, every sink head the gate that it stands for: its error is the
                approximation part of that model's certificate, which the kernel proves
    gated       products are two units each, exactly, and gelu one unit: so polynomials are exact. A target of one
                variable that is no polynomial becomes one, by Horner's rule in the variable, or in its square where the
                target is even or odd; the kernel bounds what that errs by (kernel/rules/approximates.py)

All bounds are about exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box
from headsmith.kernel.core.same import Forms
from headsmith.lab.feedforward.network import FeedForward, FeedForwardBlock, Kind
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Function, Graph, Input, Node, Product
from headsmith.lower.lower import Setting, lower
from headsmith.model import Compiled
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.evidence.approximates import search_cells
from headsmith.prove.prove import refusals
from headsmith.transformer.dense import dense

DEGREES = 40
POINTS = 400


@dataclass(frozen=True, eq=False)
class Built:
    """A feed-forward network, what it computes in exact arithmetic, and how far that is from the target."""

    network: FeedForward
    graph: Graph
    certified: float


def relu_network(model: Compiled) -> Built:
    """The circuit of a model of the relu recipe, without attention."""
    circuit = model.computed.graph
    skeleton = lower(circuit, ranges(circuit, model.box), {}, Setting(), reuse=False)
    written, blocks = dense(skeleton), []
    data = written.columns["data"].start
    keep = [column for column in range(written.d_model) if column not in (data, written.columns["reference"].start)]
    for layer in written.layers:
        values, outputs = layer.W_V[:, :, 0], layer.W_O[:, 0]
        blocks.append(FeedForwardBlock(values[:, keep], values[:, data], outputs[:, keep].T))
    W_U, b_U = written.W_U[keep].T, written.b_U + written.W_U[data]
    network = FeedForward("relu", written.W_E[:, keep].T, written.b_E[keep], tuple(blocks), W_U, b_U)
    return Built(network, circuit, model.certificate.parts["approximation"])


def gated_network(target: Graph, box: Box, error: float, most: int | None = None) -> Built | None:
    """SwiGLU or GeGLU units within the error of a target; None where they are not exact, and no polynomial does with
    fewer than `most` weights that are not zero."""
    nodes = target.nodes
    if all(_exact(node) for node in nodes):
        kind: Kind = "geglu" if any(isinstance(node, Function) and node.name == "gelu" for node in nodes) else "swiglu"
        return Built(_units(target, kind), target, 0.0)
    if target.input.size > 1 or nodes[target.output].size > 1:
        return None
    for degree in range(1, DEGREES):
        found, sampled = _polynomial(target, box, degree)
        if sampled <= error:
            network = _units(found, "swiglu")
            if most is not None and network.work.nonzeros >= most:
                return None
            bound = distance(found, target, box, error)
            if bound <= error:
                return Built(network, found, bound)
    return None


def distance(graph: Graph, target: Graph, box: Box, error: float) -> float:
    """How far two functions of a few variables are apart, proven by the kernel's rules."""
    pair = kernel_graph(graph), kernel_graph(target)
    forms = Forms()
    if forms.of(pair[0], [pair[0].output]) == forms.of(pair[1], [pair[1].output]):
        return 0.0

    def difference(points: Array) -> Array:
        return np.asarray(evaluate(graph, points) - evaluate(target, points))

    with refusals():
        return search_cells(*pair, box.low, box.high, difference, error).bound


def _exact(node: Node) -> bool:
    known = isinstance(node, Function) and node.name in ("square", "gelu") and node.parameter is None
    return known or isinstance(node, Input | Affine | Product)


def _polynomial(target: Graph, box: Box, degree: int) -> tuple[Graph, float]:
    """The target's interpolant at Chebyshev's points, as products, and how far it was found to be off."""
    middle, radius = (box.low[0] + box.high[0]) / 2.0, (box.high[0] - box.low[0]) / 2.0
    nodes = np.cos(np.pi * (2.0 * np.arange(degree + 1) + 1.0) / (2.0 * degree + 2.0))
    values = evaluate(target, (middle + radius * nodes)[:, None])[:, 0]
    series = np.polynomial.chebyshev.chebfit(nodes, values, degree)
    powers = np.polynomial.chebyshev.cheb2poly(np.where(np.abs(series) < 1e-15 * np.abs(series).max(), 0.0, series))
    graph = _horner(target.input.names, middle, radius, np.asarray(powers, dtype=np.float64))
    points = np.linspace(box.low[0], box.high[0], POINTS)[:, None]
    return graph, float(np.abs(evaluate(graph, points) - evaluate(target, points)).max())


def _horner(names: Sequence[str], middle: float, radius: float, powers: Array) -> Graph:
    """sum of powers[k] u^k, u = (x - middle) / radius."""
    builder = Builder(names)
    one = np.ones((1, 1))
    u = builder.affine([(builder.input, one / radius)], [-middle / radius])
    odd, even = not powers[::2].any(), not powers[1::2].any()
    variable = u
    if (odd or even) and len(powers) > 2:
        powers, variable = powers[1::2] if odd else powers[::2], builder.function("square", u)
    else:
        odd = False
    total = builder.affine([], powers[-1:])
    for place, power in enumerate(powers[-2::-1]):
        term = (variable, one * powers[-1]) if place == 0 else (builder.product(total, variable), one)
        total = builder.affine([term], [power])
    if odd:
        total = builder.product(total, u)
    return builder.graph(total)


def _units(graph: Graph, kind: Kind) -> FeedForward:
    """A graph of sums, products and activations as gated units, a column of the stream for each product."""
    inputs = graph.input.size
    products = [node for node in graph.nodes if isinstance(node, Product | Function)]
    width = inputs + sum(node.size for node in products)
    forms: list[tuple[Array, Array]] = []
    levels: list[int] = []
    rows: dict[int, list[tuple[Array, ...]]] = {}
    column = inputs
    for node in graph.nodes:
        match node:
            case Input():
                forms.append((np.eye(inputs, width), np.zeros(inputs)))
                levels.append(0)
            case Affine():
                total, bias = np.zeros((node.size, width)), np.array(node.bias)
                for term in node.terms:
                    weights = np.diag(term.weights) if term.weights.ndim == 1 else term.weights
                    total, bias = total + weights @ forms[term.node][0], bias + weights @ forms[term.node][1]
                forms.append((total, bias))
                levels.append(max((levels[term.node] for term in node.terms), default=0))
            case Product() | Function():
                left, right = (node.left, node.right) if isinstance(node, Product) else (node.argument, node.argument)
                level = max(levels[left], levels[right]) + 1
                plain = isinstance(node, Function) and node.name == "gelu"
                for component in range(node.size):
                    (a, b), (c, d) = ((forms[each][0][component], forms[each][1][component]) for each in (left, right))
                    c, d = (0.0 * c, np.ones(())) if plain else (c, d)
                    for sign in (1.0,) if plain else (1.0, -1.0):
                        place = np.eye(width)[column + component]
                        rows.setdefault(level, []).append((sign * a, sign * b, place, sign * c, sign * d))
                forms.append((np.eye(width)[column : column + node.size], np.zeros(node.size)))
                levels.append(level)
                column += node.size
            case _:
                raise TargetError("gated units are for sums, products and gelu")
    blocks = []
    for level in sorted(rows):
        W_in, b_in, places, W_gate, b_gate = (np.array(each) for each in zip(*rows[level], strict=True))
        blocks.append(FeedForwardBlock(W_in, b_in, places.T, W_gate, b_gate))
    W_U, b_U = forms[graph.output]
    return FeedForward(kind, np.eye(inputs, width).T, np.zeros(width), tuple(blocks), W_U, b_U)
