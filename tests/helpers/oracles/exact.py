"""Ground truth that shares no arithmetic with the code under test: exact fractions, and 80-bit floats for many points
at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.language.graph import Affine, Graph, Input, Maximum, Minimum, Relu, arguments

ZERO = Fraction(0)


def exact_nodes(graph: Graph, point: Sequence[float]) -> list[list[Fraction]]:
    """Every node's exact value at one point: stored doubles are fractions, and so is everything computed from them."""
    values: list[list[Fraction]] = []
    for node in graph.nodes:
        match node:
            case Input():
                values.append([Fraction(float(x)) for x in point])
            case Affine():
                total = [Fraction(float(b)) for b in node.bias]
                for term in node.terms:
                    total = [a + b for a, b in zip(total, exact_image(term.weights, values[term.node]), strict=True)]
                values.append(total)
            case Relu():
                values.append([max(x, ZERO) for x in values[node.argument]])
            case Maximum() | Minimum():
                pick = max if isinstance(node, Maximum) else min
                values.append([pick(row) for row in zip(*(values[each] for each in node.arguments), strict=True)])
            case _:
                raise NotImplementedError(type(node).__name__)
    return values


def exact(graph: Graph, point: Sequence[float]) -> list[Fraction]:
    """The graph's exact output at one point."""
    return exact_nodes(graph, point)[graph.output]


def exact_image(weights: Any, vector: Sequence[Fraction]) -> list[Fraction]:
    """weights @ vector, for dense or diagonal weights."""
    if weights.ndim == 1:
        return [Fraction(float(w)) * x for w, x in zip(weights, vector, strict=True)]
    return [
        sum((Fraction(float(w)) * x for w, x in zip(row, vector, strict=True) if w), ZERO) for row in weights.tolist()
    ]


def exact_range(
    weights: Any, low: Sequence[Fraction], high: Sequence[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """The exact range of weights @ x for low <= x <= high, row by row."""
    lows, highs = [], []
    for row in np.diag(weights) if weights.ndim == 1 else weights:
        ends = [(Fraction(float(w)) * a, Fraction(float(w)) * b) for w, a, b in zip(row, low, high, strict=True)]
        lows.append(sum((min(pair) for pair in ends), ZERO))
        highs.append(sum((max(pair) for pair in ends), ZERO))
    return lows, highs


def exact_ranges(
    graph: Graph, low: Sequence[float], high: Sequence[float]
) -> list[tuple[list[Fraction], list[Fraction]]]:
    """Interval propagation without any rounding: what the ranges would be in exact arithmetic."""
    found: list[tuple[list[Fraction], list[Fraction]]] = []
    for node in graph.nodes:
        match node:
            case Input():
                found.append(([Fraction(float(x)) for x in low], [Fraction(float(x)) for x in high]))
            case Affine():
                lows = [Fraction(float(b)) for b in node.bias]
                highs = list(lows)
                for term in node.terms:
                    below, above = exact_range(term.weights, *found[term.node])
                    lows = [a + b for a, b in zip(lows, below, strict=True)]
                    highs = [a + b for a, b in zip(highs, above, strict=True)]
                found.append((lows, highs))
            case Relu():
                lows, highs = found[node.argument]
                found.append(([max(x, ZERO) for x in lows], [max(x, ZERO) for x in highs]))
            case _:
                raise NotImplementedError(type(node).__name__)
    return found


def crossing_gates(graph: Graph, low: Sequence[float], high: Sequence[float]) -> dict[int, int]:
    """For each relu node, how many of its gates may cross zero, by exact interval arithmetic; none where the node can
    only be heard through nodes whose gates are all dead."""
    found = exact_ranges(graph, low, high)
    alive, stack = set(), [graph.output]
    while stack:
        number = stack.pop()
        node = graph.nodes[number]
        if isinstance(node, Relu) and all(b <= 0 for b in found[node.argument][1]):
            continue
        if number not in alive:
            alive.add(number)
            stack.extend(arguments(node))
    return {
        number: sum(a < 0 < b for a, b in zip(*found[node.argument], strict=True)) if number in alive else 0
        for number, node in enumerate(graph.nodes)
        if isinstance(node, Relu)
    }


def extended_nodes(graph: Graph, inputs: Any) -> list[Any]:
    """Every node's value for many inputs (..., inputs), in 80-bit floats: off by about 1e-19 of the magnitudes
    involved."""
    inputs = np.asarray(inputs, dtype=np.longdouble)
    values: list[Any] = []
    for node in graph.nodes:
        match node:
            case Input():
                values.append(inputs)
            case Affine():
                total = np.zeros((*inputs.shape[:-1], node.size), dtype=np.longdouble) + node.bias.astype(np.longdouble)
                for term in node.terms:
                    weights = term.weights.astype(np.longdouble)
                    total = total + (
                        values[term.node] * weights if term.diagonal else np.dot(values[term.node], weights.T)
                    )
                values.append(total)
            case Relu():
                values.append(np.maximum(values[node.argument], 0))
            case _:
                raise NotImplementedError(type(node).__name__)
    return values


def extended(graph: Graph, inputs: Any) -> Any:
    """The graph's output for many inputs, in 80-bit floats."""
    return extended_nodes(graph, inputs)[graph.output]


def exact_error(got: Any, wanted: Sequence[Fraction]) -> float:
    """The largest |got_i - wanted_i|, exactly, then rounded to nearest."""
    return float(max(abs(Fraction(float(g)) - w) for g, w in zip(got, wanted, strict=True)))
