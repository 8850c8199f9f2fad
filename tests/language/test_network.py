"""Networks as targets: exact semantics, and every malformed one refused with its layer and its numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.models.networks import random_network
from helpers.oracles.exact import exact

import headsmith as hs
from headsmith.language.graph import Affine, Input, Relu


def test_a_network_is_an_affine_and_a_relu_node_for_each_layer() -> None:
    network = random_network([3, 5, 4, 2])
    kinds = [type(node) for node in network.graph.nodes]
    assert kinds == [Input, Affine, Relu, Affine, Relu, Affine]
    assert [node.size for node in network.graph.nodes] == [3, 5, 5, 4, 4, 2]
    assert network.graph.gates == 9
    assert network.parameters == 3 * 5 + 5 + 5 * 4 + 4 + 4 * 2 + 2
    assert repr(network) == "Network(3-5-4-2)"


def test_its_value_is_the_exact_one_up_to_rounding(rng) -> None:
    network = random_network([3, 7, 6, 2], 1)
    for point in rng.normal(size=(5, 3)):
        wanted = exact(network.graph, point)
        assert np.allclose(network(point), [float(w) for w in wanted], atol=1e-13)


def test_the_exact_oracle_by_hand() -> None:
    network = hs.Network([([[0.1], [-0.1]], [0.0, 0.0]), ([[1.0, 1.0]], [0.5])])  # |x| / 10 + 1/2
    assert exact(network.graph, [-3.0]) == [3 * Fraction(0.1) + Fraction(1, 2)]


def test_a_network_keeps_its_own_copy() -> None:
    W, b = np.ones((2, 2)), np.zeros(2)
    network = hs.Network([(W, b)])
    W[0, 0] = 7.0
    assert network([1.0, 1.0]).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        network.layers[0][0][0, 0] = 7.0


def test_names() -> None:
    network = hs.Network([(np.ones((1, 2)), [0.0])], names=["height", "weight"])
    assert network.names == ("height", "weight")
    for names in (["a"], ["a", "a"], ["a", "b", "c"]):
        with pytest.raises(hs.TargetError, match="names for 2 inputs"):
            hs.Network([(np.ones((1, 2)), [0.0])], names=names)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "no layers"),
        ([(np.ones((2, 3)), np.zeros(2)), (np.ones((1, 3)), np.zeros(1))], "pair 0 has 2 outputs but pair 1 takes 3"),
        ([(np.ones((2, 3)), np.zeros(3))], r"pair 0: b has shape \(3,\); W has 2 rows"),
        ([(np.ones((2, 3)), 0.0)], r"pair 0: b has shape \(\)"),
        ([(np.ones(3), np.zeros(3))], r"pair 0: W has shape \(3,\); it must be a matrix"),
        ([(np.ones((2, 2, 2)), np.zeros(2))], "it must be a matrix"),
        ([(np.ones((0, 3)), np.zeros(0))], "pair 0: .*width zero"),
        ([(np.ones((3, 0)), np.zeros(3))], "pair 0: .*width zero"),
        ([(np.ones((2, 2)), np.zeros(2)), (np.ones((0, 2)), np.zeros(0))], "pair 1: .*width zero"),
        ([([[1.0, np.nan]], [0.0])], r"pair 0: W\[0, 1\] is nan; weights must be finite"),
        ([([[1.0, np.inf]], [0.0])], r"pair 0: W\[0, 1\] is inf"),
        ([([[1.0, -np.inf]], [0.0])], r"pair 0: W\[0, 1\] is -inf"),
        ([([[1.0, 1.0]], [np.nan])], r"pair 0: b\[0\] is nan"),
        ([([["a"]], [0.0])], "pair 0 is not a pair"),
        ([3], "pair 0 is not a pair"),
        ([(np.ones((1, 1)),)], "pair 0 is not a pair"),
        ([([[1.0], [1.0, 2.0]], [0.0, 0.0])], "pair 0 is not a pair"),
        ([([[1j]], [0.0])], "pair 0 is not a pair"),
        ([([[None]], [0.0])], "pair 0"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_malformed_networks_are_refused_with_their_layer(layers, message) -> None:
    with pytest.raises(hs.TargetError, match=message):
        hs.Network(layers)
