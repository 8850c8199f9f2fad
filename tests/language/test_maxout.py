"""Maxout networks: exact semantics, one node per rank and layer, certified models, and every malformed one refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.models.networks import random_network
from helpers.oracles.exact import exact
from hypothesis import given
from hypothesis import strategies as st

from headsmith.cli.inputs import read_npz, read_target
from headsmith.compile import compile
from headsmith.core.errors import TargetError
from headsmith.files import load
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Input, Maximum
from headsmith.language.maxout import MaxoutNetwork, maxout
from headsmith.language.network import Network
from headsmith.language.trace import graph_of
from headsmith.report.falsify import falsify
from headsmith.verify import verify


def random_maxout(widths, ranks, seed: int = 0) -> MaxoutNetwork:
    """A rank for each layer; 0 stands for an affine layer."""
    rng = np.random.default_rng([seed, *widths, *ranks])
    layers = []
    for inputs, outputs, rank in zip(widths, widths[1:], ranks, strict=False):
        lead = (rank, outputs) if rank else (outputs,)
        layers.append((rng.normal(size=(*lead, inputs)) / np.sqrt(inputs), 0.3 * rng.normal(size=lead)))
    return MaxoutNetwork(layers)


def by_hand(network: MaxoutNetwork, point) -> list[Fraction]:
    """The definition, in fractions."""
    x = [Fraction(float(entry)) for entry in point]
    for weights, bias in network.layers:
        pieces = [
            [
                sum((Fraction(float(w)) * e for w, e in zip(row, x, strict=True)), Fraction(float(b)))
                for row, b in zip(W, c, strict=True)
            ]
            for W, c in zip(weights.reshape(-1, *weights.shape[-2:]), bias.reshape(-1, bias.shape[-1]), strict=True)
        ]
        x = [max(column) for column in zip(*pieces, strict=True)]
    return x


def test_a_layer_is_as_many_affine_nodes_as_its_rank_and_one_maximum() -> None:
    network = random_maxout([3, 5, 4, 2], [4, 3, 0])
    kinds = [type(node) for node in network.graph.nodes]
    assert kinds == [Input, *[Affine] * 4, Maximum, *[Affine] * 3, Maximum, Affine]
    assert repr(network) == "MaxoutNetwork(3-5[4]-4[3]-2)"
    assert network.ranks == (4, 3, 1)
    assert network.parameters == 4 * (3 * 5 + 5) + 3 * (5 * 4 + 4) + 4 * 2 + 2


@given(
    widths=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    ranks=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    seed=st.integers(0, 1000),
)
def test_the_graph_is_the_definition(widths, ranks, seed) -> None:
    network = random_maxout(widths, ranks[: len(widths) - 1], seed)
    point = np.random.default_rng(seed).normal(size=widths[0])
    wanted = by_hand(network, point)
    assert exact(network.graph, point) == wanted
    assert np.allclose(network(point), [float(entry) for entry in wanted], atol=1e-12)


@pytest.mark.parametrize(
    ("widths", "ranks"),
    [
        ([2, 1, 1], [3, 0]),
        ([1, 1], [2]),
        ([3, 4, 2], [1, 0]),
        ([2, 3, 3, 3, 3, 3, 1], [2, 3, 2, 4, 2, 0]),
        ([2, 6], [5]),
    ],
    ids=["width 1", "one unit, maxout last", "rank 1", "depth 5", "maxout last"],
)
def test_the_certificate_holds(widths, ranks) -> None:
    network = random_maxout(widths, ranks)
    model = compile(network, (-1.0, 1.0), 1e-4)
    assert falsify(model).error <= model.certificate.error <= 1e-4
    units = sum(max(rank - 1, 0) * width for rank, width in zip(ranks, widths[1:], strict=True))
    assert model.bill.heads <= units
    assert model.bill.layers <= sum(int(np.ceil(np.log2(max(rank, 1)))) for rank in ranks)


@pytest.mark.parametrize("kind", ["repeated", "zero", "parallel"])
def test_degenerate_pieces(kind) -> None:
    rng = np.random.default_rng(5)
    W, b = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 3))
    match kind:
        case "repeated":
            W[1:], b[1:] = W[0], b[0]
        case "zero":
            W[:], b[:] = 0.0, 0.0
        case "parallel":
            W[1:] = W[0]
    network = MaxoutNetwork([(W, b), (rng.normal(size=(1, 3)), [0.1])])
    model = compile(network, (-1.0, 1.0), 1e-5)
    points = rng.uniform(-1.0, 1.0, (50, 2))
    wanted = np.array([[float(entry) for entry in by_hand(network, point)] for point in points])
    assert np.abs(model(points) - wanted).max() <= model.certificate.error
    assert model.bill.heads == 0  # which piece is the largest does not depend on the input


def test_a_relu_network_is_one_of_rank_two() -> None:
    network = random_network([3, 6, 5, 2])
    as_maxout = MaxoutNetwork.from_network(network)
    assert as_maxout.ranks == (2, 2, 1)
    points = np.random.default_rng(0).normal(size=(20, 3))
    for point in points:
        assert exact(as_maxout.graph, point) == exact(network.graph, point)
    first, second = (compile(each, (-1.0, 1.0), 1e-4).bill for each in (network, as_maxout))
    assert (first.heads, first.layers) == (second.heads, second.layers)


def test_saved_loaded_verified(tmp_path) -> None:
    model = compile(random_maxout([2, 4, 3], [3, 2]), (-1.0, 1.0), 1e-3)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert verify(again).error == model.certificate.error
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (30, 2))
    assert (again(points) == model(points)).all()


def test_an_npz_file_with_a_three_dimensional_w_is_a_maxout_network(tmp_path) -> None:
    network = random_maxout([2, 4, 3], [3, 0])
    path = str(tmp_path / "net.npz")
    arrays = {
        f"{letter}{i}": array for i, pair in enumerate(network.layers) for letter, array in zip("Wb", pair, strict=True)
    }
    np.savez(path, names=np.array(["left", "right"]), **arrays)
    again = read_npz(path)
    assert isinstance(again, MaxoutNetwork)
    assert repr(again) == repr(network)
    assert again.names == ("left", "right")
    assert read_target([path])[1] == ("left", "right")
    np.savez(path, W0=np.ones((2, 2)), b0=np.zeros(2))
    assert isinstance(read_npz(path), Network)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("widths", "ranks"),
    [([196, 64, 10], [4, 0]), ([784, 256, 10], [4, 0]), ([64, 64, 64, 64, 10], [3, 3, 3, 0])],
)
def test_wide_networks_compile(widths, ranks) -> None:
    network = random_maxout(widths, ranks)
    model = compile(network, (-1.0, 1.0), 1e-3)
    assert model.certificate.error <= 1e-3
    assert model.bill.nonzeros <= 3.0 * network.parameters
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (5, widths[0]))
    assert np.abs(model(points) - network(points)).max() <= model.certificate.error + 1e-12


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "no layers"),
        (
            [(np.ones((2, 3, 2)), np.zeros(3))],
            r"pair 0: b has shape \(3,\); W has shape \(2, 3, 2\), so b needs \(2, 3\)",
        ),
        ([(np.ones((3, 2)), np.zeros((2, 3)))], r"b has shape \(2, 3\).*needs \(3,\)"),
        ([(np.ones(3), np.zeros(3))], r"pair 0: W has shape \(3,\); it must be \(rank, out, in\)"),
        ([(np.ones((1, 2, 3, 4)), np.zeros((1, 2, 3)))], "it must be"),
        ([(np.ones((0, 3, 2)), np.zeros((0, 3)))], "pair 0: .*width zero"),
        (
            [(np.ones((2, 3, 2)), np.zeros((2, 3))), (np.ones((1, 4)), [0.0])],
            "pair 0 has 3 outputs but pair 1 takes 4",
        ),
        ([(np.full((2, 3, 2), np.nan), np.zeros((2, 3)))], r"pair 0: W\[0, 0, 0\] is nan"),
        ([(np.ones((2, 3, 2)), [[0.0, 0.0, 0.0], [0.0, np.inf, 0.0]])], r"pair 0: b\[1, 1\] is inf"),
        ([3], "pair 0 is not a pair"),
    ],
)
def test_malformed_networks_are_refused_with_their_layer(layers, message) -> None:
    with pytest.raises(TargetError, match=message):
        MaxoutNetwork(layers)


def test_names_are_checked() -> None:
    with pytest.raises(TargetError, match="names for 2 inputs"):
        MaxoutNetwork([(np.ones((2, 1, 2)), np.zeros((2, 1)))], names=["x", "x"])


PIECES = [((1.0, -1.0), 0.5), ((0.0, 2.0), -0.25), ((0.0, 0.0), 0.0)]


def test_maxout_of_traced_values_and_of_numbers() -> None:
    graph = graph_of(lambda x, y: maxout(PIECES, [x, y]), ["x", "y"])
    points = np.random.default_rng(3).uniform(-1.0, 1.0, (200, 2))
    wanted = np.max([points @ np.array(a) + c for a, c in PIECES], axis=0)
    assert np.allclose(evaluate(graph, points)[:, 0], wanted, atol=1e-15)
    assert np.allclose(maxout(PIECES, points), wanted, atol=1e-15)
    assert maxout(PIECES, [0.0, 0.0]) == 0.5
    assert maxout([(2.0, 1.0), (-1.0, 0.0)], -3.0) == 3.0
    one = graph_of(lambda x: maxout([(2.0, 1.0), (-1.0, 0.0)], x), ["x"])
    assert exact(one, [-3.0]) == [3]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "no pieces"),
        ([(1.0,)], "piece 0 is"),
        ([((1.0, 2.0), 0.0), ((1.0,), 0.0)], r"piece 1 has slopes of shape \(1,\); they need \(2,\)"),
        ([((1.0, np.nan), 0.0)], "piece 0 .* finite"),
        ([((1.0, 2.0), 0.0)], "take 2 inputs, and x has shape"),
    ],
)
def test_malformed_pieces_are_refused(pieces, message) -> None:
    with pytest.raises(TargetError, match=message):
        maxout(pieces, [1.0, 2.0, 3.0])
