"""Layers that were written unit by unit are one vector node; fixed values need no head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.intervals import as_box
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Function, Input
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.reading import as_graph, read
from headsmith.plan.rewrite.simplify import in_layers, without_fixed

SQUARE = {"x": (-1, 1), "y": (-1, 1)}


def units(count: int, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    weights, bias, last = random.normal(size=(count, 2)), random.normal(size=count), random.normal(size=count)

    def function(x: Any, y: Any) -> Any:
        hidden = [hs.gelu(float(a) * x + float(b) * y + float(c)) for (a, b), c in zip(weights, bias, strict=True)]
        second = [hs.tanh(h - 0.5 * hidden[0]) for h in hidden]
        return [sum(float(w) * h for w, h in zip(last, second, strict=True)), hidden[1] * hidden[2]]

    return function


def test_units_become_one_node_for_each_layer_and_the_function_stays() -> None:
    graph = as_graph(units(12), SQUARE)
    layered = in_layers(graph)
    assert sorted(node.size for node in layered.nodes if isinstance(node, Function)) == [12, 12]
    points = np.random.default_rng(1).uniform(-1, 1, size=(50, 2))
    np.testing.assert_allclose(evaluate(layered, points), evaluate(graph, points), rtol=0, atol=1e-14)


def test_few_units_and_units_of_one_number_stay_as_they_are() -> None:
    few = as_graph(units(4), SQUARE)
    assert in_layers(few) is few
    one = as_graph(lambda x: sum(hs.tanh(x + k) for k in range(12)), {"x": (-1, 1)})
    assert in_layers(one) is one


def test_a_layer_is_one_bank_with_one_table() -> None:
    random = np.random.default_rng(0)
    weights = random.normal(size=(16, 2))
    model = hs.compile(lambda x, y: sum(hs.tanh(float(a) * x + float(b) * y) for a, b in weights) / 16.0, SQUARE, 1e-2)
    (layer,) = model.transformer.layers
    (bank,) = layer.banks
    assert bank.heads == 16
    assert hs.verify(model).error <= 1e-2


@pytest.mark.parametrize(
    ("formula", "domain"),
    [
        ("x*y", {"x": (1, 1), "y": (-1, 1)}),
        ("x*y + z", {"x": (-2, 2), "y": (0.3, 0.3), "z": (0, 1)}),
        ("sqrt(x)*y", {"x": (4, 4), "y": (-1, 1)}),
        ("x - x + y", {"x": (-1, 1), "y": (2, 2)}),
        ("exp(x)*0 + 3", {"x": (-1, 1)}),
    ],
)
def test_fixed_values_take_no_head(formula: str, domain: dict[str, tuple[float, float]]) -> None:
    model = hs.compile(formula, domain, 1e-12)
    assert (model.bill.layers, model.bill.heads) == (0, 0)
    middle = {name: (low + high) / 2.0 for name, (low, high) in domain.items()}
    graph = as_graph(formula, domain)
    wanted = evaluate(graph, np.array([middle[name] for name in graph.input.names]))
    assert abs(float(model(**middle)) - float(wanted[0])) <= 1e-12


def test_fixed_factors_become_weights() -> None:
    graph = as_graph("x*y", {"x": (3, 3), "y": (-1, 1)})
    simpler = without_fixed(graph, ranges(graph, as_box({"x": (3, 3), "y": (-1, 1)}, graph.input.names)))
    assert all(isinstance(node, Input | Affine) for node in simpler.nodes)


def test_numbers_beyond_what_heads_can_hold_are_refused() -> None:
    huge = {"x": (-1e150, 1e150), "y": (-1e150, 1e150)}
    with pytest.raises(hs.UnreachableError, match=r"as large as 1e\+300.*scale the inputs"):
        read("x*y", huge, 1e-6, 1, "float64")


def test_absurd_numbers_of_tokens_are_refused_and_large_ones_cost_nothing() -> None:
    with pytest.raises(hs.TargetError, match="at most 1048576"):
        hs.compile("x*y", SQUARE, tokens=10**8)
    model = hs.compile("relu(x - y)", SQUARE, 1e-3, tokens=10**6)
    assert model([[0.1, 0.2], [0.9, 0.4], [0.5, 0.6]]).shape == (3, 1)


@pytest.mark.parametrize(("count", "nodes"), [(63, 63), (64, 1)])
def test_many_functions_of_one_number_are_a_layer(count: int, nodes: int) -> None:
    """A few could be one head; of many, the sum turns too often for that, and each would be fitted on its own."""
    graph = in_layers(as_graph(lambda x: sum(hs.sin(float(k + 1) * x) for k in range(count))))
    assert sum(isinstance(node, Function) for node in graph.nodes) == nodes
