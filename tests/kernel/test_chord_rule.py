"""The rule for circuits of one variable: sharp, and never below the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.functions import named
from headsmith.kernel.core.graph import Node
from headsmith.kernel.rules.chord import Curve, check_curve
from headsmith.language.graph import Affine, Graph, Input, Relu, Term
from headsmith.plan.evidence.cells import chord_ends

Circuit = list[tuple[Any, ...]]


def polygon(function: Callable[[Any], Any], knots: np.ndarray) -> Circuit:
    """The circuit that interpolates a function at knots: one gate for each inner knot."""
    heights = function(knots)
    slopes = np.diff(heights) / np.diff(knots)
    gates = ("affine", [(0, np.ones((len(slopes), 1)))], -knots[:-1])
    weights = np.concatenate([slopes[:1], np.diff(slopes)])
    return [gates, ("relu", 1), ("affine", [(2, weights[None])], heights[:1])]


def random_circuit(seed: int, width: int) -> Circuit:
    rng = np.random.default_rng(seed)
    first = ("affine", [(0, rng.normal(size=(width, 1)))], rng.normal(size=width))
    second = (
        "affine",
        [(2, rng.normal(size=(width, width)) / width), (1, rng.normal(size=width))],
        rng.normal(size=width),
    )
    return [first, ("relu", 1), second, ("relu", 3), ("affine", [(4, rng.normal(size=(1, width)))], np.zeros(1))]


def values_of(circuit: Circuit, points: np.ndarray) -> Any:
    known: list[Any] = [points.astype(np.longdouble)[None]]
    for node in circuit:
        if node[0] == "relu":
            known.append(np.maximum(known[node[1]], 0))
            continue
        parts = [(w[:, None] * known[i] if w.ndim == 1 else w.astype(np.longdouble) @ known[i]) for i, w in node[1]]
        known.append(sum(parts) + np.asarray(node[2], dtype=np.longdouble)[:, None])
    return known


def curve(
    circuit: Circuit, low: float, high: float, function: str, parameter: float | None = None, size: int = 1
) -> Curve:
    """A circuit as the kernel sees it."""
    nodes, sizes = dict[int, Node](), [size]
    for number, node in enumerate(circuit, start=1):
        if node[0] == "affine":
            sizes.append(len(node[2]))
            reads = tuple(zip(*node[1], strict=True))
            nodes[number] = Node("affine", sizes[-1], *reads, np.asarray(node[2], dtype=np.float64))
        else:
            sizes.append(sizes[node[1]])
            nodes[number] = Node(node[0], sizes[-1], (node[1],))
    return Curve(nodes, {0: None}, size, named(function, parameter), low, high)


def checked(
    size: int, circuit: Circuit, low: float, high: float, function: str, parameter: float | None, ends: Any
) -> tuple[Interval, list[Interval]]:
    error, ranges = check_curve(curve(circuit, low, high, function, parameter, size), ends)
    return error, list(ranges.values())


def graph_of(circuit: Circuit) -> Graph:
    nodes: list[Any] = [Input(("x",))]
    for node in circuit:
        if node[0] == "relu":
            nodes.append(Relu(node[1], nodes[node[1]].size))
        else:
            nodes.append(Affine(tuple(Term(i, w) for i, w in node[1]), node[2]))
    return Graph(tuple(nodes), len(nodes) - 1)


CASES: dict[str, tuple[Circuit, float, float, str, float | None, Any]] = {
    "square": (polygon(np.square, np.linspace(-1, 1, 33)), -1.0, 1.0, "square", None, np.square),
    "exp": (polygon(np.exp, np.linspace(-2, 2, 100)), -2.0, 2.0, "exp", None, np.exp),
    "sqrt": (polygon(np.sqrt, np.linspace(0, 1.5, 40) ** 2), 0.0, 2.25, "sqrt", None, np.sqrt),
    "tanh": (polygon(np.tanh, np.linspace(-4, 4, 60)), -4.0, 4.0, "tanh", None, np.tanh),
    "power": (polygon(lambda x: x**2.5, np.linspace(0, 2, 30)), 0.0, 2.0, "power", 2.5, lambda x: x**2.5),
    "random": (random_circuit(1, 12), -2.0, 2.0, "sin", None, np.sin),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_are_sharp(name: str) -> None:
    circuit, low, high, function, parameter, value = CASES[name]
    ends = chord_ends(curve(circuit, low, high, function, parameter))
    error, ranges = checked(1, circuit, low, high, function, parameter, ends)
    points = np.linspace(low, high, 20001)
    known = values_of(circuit, points)
    truth = known[-1][0] - value(points.astype(np.longdouble))
    bound = max(-error.low[0], error.high[0])
    assert np.all(truth >= error.low[0])
    assert np.all(truth <= error.high[0])
    assert bound <= 1.003 * np.max(np.abs(truth)) + 1e-15
    for found, node in zip(ranges, known[1:], strict=True):
        assert np.all(node.min(axis=1) >= found.low)
        assert np.all(node.max(axis=1) <= found.high)
        assert np.all(found.high - found.low <= 1.001 * (node.max(axis=1) - node.min(axis=1)) + 1e-14)


def test_the_constant_is_attained() -> None:
    """A chord of x^2 over a cell of the width h is h^2 / 4 above it in the middle, and nowhere more."""
    circuit = polygon(np.square, np.linspace(-1.0, 1.0, 17))
    error, _ = checked(1, circuit, -1.0, 1.0, "square", None, np.linspace(-1.0, 1.0, 17))
    assert 0.125**2 / 4 <= error.high[0] <= 0.125**2 / 4 * (1.0 + 1e-12)
    assert -1e-15 <= error.low[0] <= 0.0


def test_many_copies_are_compared_at_once() -> None:
    one = polygon(np.square, np.linspace(-1.0, 1.0, 9))
    ((_, ((_, first),), bias), gate, (_, ((_, last),), height)) = one
    diagonal = np.kron(np.eye(3), first), np.kron(np.eye(3), last)
    three = [("affine", [(0, diagonal[0])], np.tile(bias, 3)), gate, ("affine", [(2, diagonal[1])], np.tile(height, 3))]
    ends = np.linspace(-1.0, 1.0, 9)
    single, triple = (checked(n, each, -1.0, 1.0, "square", None, ends)[0] for n, each in ((1, one), (3, three)))
    assert triple.high.shape == (3,)
    assert np.allclose(triple.high, single.high, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["exp", "sqrt", "random"])
def test_other_ends_or_weights_never_give_a_bound_below_the_truth(name: str) -> None:
    circuit, low, high, function, parameter, value = CASES[name]
    ends = chord_ends(curve(circuit, low, high, function, parameter))
    points = np.linspace(low, high, 3001)
    rng = np.random.default_rng(5)
    for trial in range(12):
        inner, changed = ends[1:-1].copy(), list(circuit)
        if trial % 3 == 0:
            inner = inner[rng.random(len(inner)) < 0.7]
        elif trial % 3 == 1:
            inner = np.sort(np.clip(inner + rng.normal(size=len(inner)) * 1e-3, low, high))
        else:
            kind, ((source, weights), *others), bias = circuit[-1]
            changed[-1] = kind, [(source, weights * (1.0 + 1e-3 * rng.normal(size=weights.shape))), *others], bias
        moved = np.concatenate([[low], inner, [high]])
        error, _ = checked(1, changed, low, high, function, parameter, moved)
        truth = values_of(changed, points)[-1][0] - value(points.astype(np.longdouble))
        assert np.all(truth >= error.low[0])
        assert np.all(truth <= error.high[0])


@pytest.mark.parametrize(
    "ends",
    [[-1.0], [-1.0, 0.5], [-0.5, 1.0], [-1.0, 0.5, 0.0, 1.0], [-1.0, np.nan, 1.0], [-1.0, np.inf, 1.0], [[-1.0, 1.0]]],
)
def test_ends_that_do_not_cover_the_interval_in_order_are_refused(ends: Any) -> None:
    with pytest.raises(Refused):
        checked(1, polygon(np.square, np.linspace(-1, 1, 5)), -1.0, 1.0, "square", None, np.array(ends))


def test_a_function_that_is_undefined_is_refused() -> None:
    with pytest.raises(Refused):
        checked(1, polygon(np.square, np.linspace(-1, 1, 5)), -1.0, 1.0, "log", None, np.linspace(-1, 1, 5))
    with pytest.raises(Refused):
        checked(1, [("pool", 0)], -1.0, 1.0, "exp", None, np.linspace(-1, 1, 5))
