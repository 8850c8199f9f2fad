"""Rule Linear: ranges by linear bounds hold whatever the slopes are, and are far smaller than those of intervals."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.models.carried import carried, network

import headsmith as hs
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph, Node
from headsmith.kernel.core.ranges import linear_range, node_range
from headsmith.plan.evidence.linear import find_linear


def circuit_of(weights: list[Any], biases: list[Any], skips: bool = False) -> Graph:
    """x, W_1 x + b_1, its gates, W_2 of these, ...; with skips, sums also read what the layer before them read."""
    size = weights[0].shape[1]
    nodes, before, earlier = [Node("input", size, names=("x",) * size)], 0, -1
    for place, (matrix, bias) in enumerate(zip(weights, biases, strict=True)):
        arguments, terms = (before,), (matrix,)
        if skips and earlier >= 0 and nodes[earlier].size == len(matrix):
            arguments, terms = (before, earlier), (matrix, np.linspace(-1.0, 2.0, len(matrix)))
        nodes.append(Node("affine", len(matrix), arguments, terms, bias))
        earlier = len(nodes) - 1
        if place + 1 < len(weights):
            nodes.append(Node("relu", len(matrix), (earlier,)))
            before = len(nodes) - 1
    return Graph(tuple(nodes), len(nodes) - 1)


def hostile(kind: str, widths: list[int], random: np.random.Generator) -> list[Any]:
    weights = [random.normal(size=(b, a)) for a, b in pairwise(widths)]
    for matrix in weights:
        match kind:
            case "huge range":
                matrix *= 10.0 ** random.uniform(-40.0, 40.0, size=(len(matrix), 1))
            case "tiny":
                matrix *= 1e-110
            case "zero rows":
                matrix[random.uniform(size=len(matrix)) < 0.5] = 0.0
            case "cancelling":
                matrix[:, 1::2] = -matrix[:, : matrix.shape[1] - 1 : 2] * (1.0 + 1e-15)
    return weights


def values_of(graph: Graph, x: Any) -> list[Any]:
    """The exact value of every node, as fractions."""
    found: list[Any] = [[Fraction(float(each)) for each in x]]
    for node in graph.nodes[1:]:
        if node.kind == "relu":
            found.append([max(each, Fraction(0)) for each in found[node.arguments[0]]])
            continue
        total = [Fraction(float(each)) for each in node.constants]
        for argument, weights in zip(node.arguments, node.weights, strict=True):
            matrix = np.diag(weights) if weights.ndim == 1 else weights
            for row, each in enumerate(matrix):
                total[row] += sum(Fraction(float(w)) * v for w, v in zip(each, found[argument], strict=True))
        found.append(total)
    return found


def ranges_of(graph: Graph, box: Interval, random: np.random.Generator | None) -> list[Interval]:
    """Ranges of all nodes by intervals; and by linear bounds with random slopes."""
    found, gates = [box], 0
    for number, node in enumerate(graph.nodes[1:], start=1):
        found.append(node_range(node, [found[each][:, None] for each in node.arguments])[:, 0])
        if random is not None and node.kind == "affine":
            slopes = random.choice([0.0, 1.0, random.uniform()], size=(2, gates))
            found[-1] = found[-1].meet(linear_range(graph, number, slopes, found, ()))
        gates += node.size if node.kind == "relu" else 0
    return found


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("kind", ["random", "huge range", "tiny", "zero rows", "cancelling"])
def test_no_exact_value_leaves_a_linear_range(kind: str, skips: bool) -> None:
    """Theorem: by any slopes, exact values of all nodes at random inputs, corners and centres lie in their ranges."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        graph = circuit_of(hostile(kind, [3, 4, 4, 4, 2], random), [*random.normal(size=(3, 4)), np.zeros(2)], skips)
        low = random.uniform(-2.0, 1.0, size=3)
        box = Interval(low, low + random.choice([0.0, 1e-12, 1.0], size=3))
        ways = [ranges_of(graph, box, random), list(find_linear(graph, box).ranges or ())]
        for turn in range(12):
            inside = np.clip(random.uniform(box.low, box.high), box.low, box.high)
            x = inside if turn % 2 else np.where(random.uniform(size=3) < 0.5, box.low, box.high)
            for values, *found in zip(values_of(graph, x), *ways, strict=True):
                for each in found:
                    for value, lowest, highest in zip(values, each.low, each.high, strict=True):
                        assert Fraction(float(lowest)) <= value <= Fraction(float(highest))


def test_linear_bounds_are_attained_where_gates_do_not_bend() -> None:
    """Of active gates nothing is lost: x - x is zero, up to rounding, and intervals say [-1, 1]."""
    graph = circuit_of([np.eye(2), np.ones((2, 2)), np.array([[1.0, -1.0]])], [*np.full((2, 2), 2.0), np.zeros(1)])
    box = Interval(-np.ones(2), np.ones(2))
    found = ranges_of(graph, box, None)
    assert float(found[-1].high[0]) == pytest.approx(4.0)
    tight = linear_range(graph, graph.output, np.ones((2, 4)), found, ())
    assert -1e-13 < float(tight.low[0]) <= 0.0 <= float(tight.high[0]) < 1e-13


def test_deep_networks_have_ranges_that_do_not_explode() -> None:
    """Sixteen layers of sixteen gates: a hundred times smaller than intervals."""
    random = np.random.default_rng(0)
    graph = circuit_of([random.normal(size=(16, 16)) * np.sqrt(2.0 / 16) for _ in range(16)], [np.zeros(16)] * 16)
    box = Interval(-np.ones(16), np.ones(16))
    plain, better = ranges_of(graph, box, None), find_linear(graph, box).ranges
    assert better is not None
    last = graph.nodes[graph.output].arguments[0]
    assert float(better[last].magnitude.max().value) < 0.01 * float(plain[last].magnitude.max().value)


def test_gates_that_cannot_cross_zero_have_no_head() -> None:
    """relu(x) - relu(x - 1) is never negative: intervals do not know, linear bounds do."""
    clipped = hs.Network([([[1.0], [1.0]], [2.0, 1.5]), ([[1.0, -1.0]], [0.0]), ([[1.0]], [0.0])])
    assert hs.compile(clipped, (-1, 1), 1e-3, recipe="relu").bill.heads == 0


def model() -> tuple[Any, Any]:
    return carried(hs.compile(network(4, 12, 12, 12, 2), (-1, 1), 1e-3))


def test_forged_slopes_are_refused_or_harmless() -> None:
    """Slopes beyond [0, 1], of another shape, or nan are refused; any others prove something, and nothing false."""
    header, tensors = model()
    honest = proved(header, tensors)
    names = [each["slopes"] for each in header["proof"]["linear"]]
    assert names
    for name in names:
        slopes = tensors[name]
        for forged in (slopes - 1.5, slopes + 0.001, slopes * np.nan, slopes[:1], slopes[:, :-1], slopes[0]):
            with pytest.raises(Refused):
                proved(header, {**tensors, name: forged})
        for harmless in (0.0 * slopes, 0.0 * slopes + 1.0, 1.0 - slopes):
            assert proved(header, {**tensors, name: harmless}).max_score >= 0.2 * honest.max_score
    for node in (0, 99, -1):
        with pytest.raises(Refused):
            proved({**header, "proof": {**header["proof"], "linear": [{"node": node, "slopes": names[0]}]}}, tensors)
    assert proved({**header, "proof": {**header["proof"], "linear": []}}, tensors).max_score > honest.max_score
