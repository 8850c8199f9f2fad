"""The difference of a network and a function at one input, between two doubles: what disproves a claim.

Intervals round outwards, and functions come from Arb. The input is a double, and is taken as exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.kernel.core.arithmetic import Interval, interval, joined, rational
from headsmith.kernel.core.functions import enclose, named, run
from headsmith.kernel.core.graph import Graph, Node, dense, needed


def least_difference(network: Graph, function: Graph, place: npt.NDArray[np.float64]) -> float:
    """At most the largest |network - function| of all outputs at this input."""
    gap = value_at(network, place) - value_at(function, place)
    return float(np.maximum(np.maximum(gap.low, -gap.high), 0.0).max())


def value_at(graph: Graph, place: npt.NDArray[np.float64]) -> Interval:
    """The outputs, between doubles."""
    known = {0: interval(place)}
    with np.errstate(all="ignore"):
        for number in needed(graph, [graph.output]):
            if number:
                node = graph.nodes[number]
                known[number] = _node(node, [known[each] for each in node.arguments])
    return known[graph.output]


def _node(node: Node, read: list[Interval]) -> Interval:
    match node.kind:
        case "affine":
            pairs = zip(map(dense, node.weights), read, strict=True)
            return sum((weights @ each for weights, each in pairs), start=interval(node.constants))
        case "relu":
            return read[0].relu()
        case "maximum" | "minimum":
            pick = np.maximum if node.kind == "maximum" else np.minimum
            return Interval(pick.reduce([each.low for each in read]), pick.reduce([each.high for each in read]))
        case "average":
            return _average(node, *read)
        case _:
            found: Interval = run(node.program, read, _linear, _call, _times)
            return found + np.zeros(node.size)


def _linear(terms: list[tuple[Any, Interval]], constant: Any) -> Interval:
    return sum((each * rational(factor) for factor, each in terms), start=rational(constant))


def _call(name: str, parameter: float | None, x: Interval) -> Interval:
    return enclose(named(name, parameter), x)


def _times(left: Interval, right: Interval) -> Interval:
    return left * right


def _average(node: Node, scores: Interval, values: Interval) -> Interval:
    keys = node.keys
    groups = len(scores.low) // keys
    held = values.mapped(lambda end: end.reshape(-1, keys, node.size // groups))
    s = scores.mapped(lambda end: end.reshape(groups, keys))
    powers = _call("exp", None, s - s.low.max(axis=1, keepdims=True))
    rows = []
    for group in range(groups):
        mine, shares = held[group // (groups // len(held.low))], powers[group][:, None]
        total = np.ones((1, keys)) @ shares
        rows.append((np.ones((1, keys)) @ (mine * shares)) / total)
    return joined(rows).mapped(lambda end: end.reshape(-1))
