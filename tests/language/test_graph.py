"""The source graph's checker fires on every malformed node; evaluation of circuits agrees with exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.models.networks import random_circuit
from helpers.oracles.exact import exact_nodes
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.errors import TargetError
from headsmith.language.evaluation import evaluate, node_values
from headsmith.language.graph import Affine, Graph, Input, Relu, Term


@given(st.integers(0, 2**32 - 1))
def test_evaluation_is_exact_up_to_rounding(seed) -> None:
    graph = random_circuit(seed)
    point = np.random.default_rng(seed).normal(size=graph.input.size)
    for found, wanted in zip(node_values(graph, point), exact_nodes(graph, point), strict=True):
        assert np.allclose(found, [float(w) for w in wanted], rtol=1e-12, atol=1e-12)


def test_evaluation_takes_any_leading_shape() -> None:
    graph = random_circuit(3)
    inputs = np.random.default_rng(0).normal(size=(2, 3, 4, graph.input.size))
    whole = evaluate(graph, inputs)
    assert whole.shape[:3] == (2, 3, 4)
    assert np.allclose(whole[1, 2, 3], evaluate(graph, inputs[1, 2, 3]))


@pytest.mark.parametrize(
    ("nodes", "output", "message"),
    [
        ((), 0, "starts with its input"),
        ((Relu(0, 1),), 0, "starts with its input"),
        ((Input(("x",)), Input(("y",))), 1, "second input"),
        ((Input(("x",)), Relu(1, 1)), 1, "reads node 1, which does not come before"),
        ((Input(("x",)), Relu(-1, 1)), 1, "reads node -1"),
        ((Input(("x",)), Relu(0, 2)), 1, "relu of width 2 on 1"),
        ((Input(("x",)),), 1, "the output is node 1"),
        ((Input(("x",)),), -1, "the output is node -1"),
        ((Input(("x",)), Affine((Term(5, np.ones(1)),), np.zeros(1))), 1, "reads node 5"),
        ((Input(("x",)), Affine((Term(0, np.ones((1, 2))),), np.zeros(1))), 1, "cannot take node 0"),
        ((Input(("x",)), Affine((Term(0, np.ones((2, 1))),), np.zeros(1))), 1, "cannot take node 0"),
        ((Input(("x",)), Affine((Term(0, np.ones(2)),), np.zeros(2))), 1, "cannot take node 0"),
        ((Input(("x", "y")), Affine((Term(0, np.ones(2)),), np.zeros(1))), 1, "cannot take node 0"),
        ((Input(("x",)), Affine((Term(0, np.float64(2.0)),), np.zeros(1))), 1, "cannot take node 0"),
        ((Input(("x",)), Affine((), np.zeros((1, 1)))), 1, "it must be a vector"),
        ((Input(("x",)), Affine((), np.array([0.0, np.nan]))), 1, "bias 1 is not a finite"),
        ((Input(("x",)), Affine((Term(0, np.array([[np.inf]])),), np.zeros(1))), 1, r"weight \(0, 0\) is not a finite"),
    ],
)
def test_malformed_graphs_are_refused(nodes, output, message) -> None:
    with pytest.raises(TargetError, match=message):
        Graph(nodes, output)
