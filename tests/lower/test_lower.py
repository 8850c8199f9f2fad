"""Bookkeeping: one head for each gate that may cross zero, one layer for each layer that has such a gate, nothing for
the rest.

Growth is linear: the non-zero weights of the transformer are at most a small multiple of the network's parameters.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.effort import tried
from helpers.models.networks import random_circuit, random_network, shifted_network
from helpers.oracles.exact import crossing_gates, exact, exact_error, exact_ranges
from hypothesis import given, settings
from hypothesis import strategies as st

import headsmith as hs
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph

KINDS = [
    ["active"],
    ["dead"],
    ["free"],
    ["active", "free"],
    ["dead", "free"],
    ["active", "dead"],
    ["active", "free", "dead"],
]


def crossing(network: hs.Network, low: float, high: float) -> list[int]:
    """How many gates of each layer may cross zero, by exact interval arithmetic."""
    size = network.graph.input.size
    return list(crossing_gates(network.graph, [low] * size, [high] * size).values())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("widths", [[2, 6, 1], [3, 6, 9, 2], [4, 5, 6, 7, 3]], ids=str)
def test_heads_are_the_gates_that_may_cross_zero(kinds, widths) -> None:
    network = shifted_network(widths, 11, -1.0, 1.0, kinds)
    model = hs.compile(network, (-1, 1), error=1e-3)
    wanted = [count for count in crossing(network, -1.0, 1.0) if count]
    assert list(model.bill.heads_per_layer) == wanted
    assert model.bill.heads == sum(wanted) <= network.graph.gates
    assert model.bill.layers == len(wanted)


@settings(max_examples=tried(60, 10))
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(0, 99), st.floats(0.0, 3.0))
def test_heads_of_random_networks(widths, seed, bias) -> None:
    """Never more than gates that may cross zero as far as intervals know; of one hidden layer, just as many."""
    network = random_network(widths, seed, bias=bias)
    model = hs.compile(network, (-1, 1), error=1e-2)
    wanted = [count for count in crossing(network, -1.0, 1.0) if count]
    assert model.bill.heads <= sum(wanted)
    assert model.bill.layers <= len(wanted)
    if len(widths) <= 3:
        assert list(model.bill.heads_per_layer) == wanted


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kinds", [["active"], ["dead"], ["active", "dead"]], ids="-".join)
def test_without_crossing_gates_there_are_no_heads_and_no_softmax_error(kinds, dtype, tokens, rng) -> None:
    network = shifted_network([3, 8, 8, 2], 1, -1.0, 1.0, kinds)
    model = hs.compile(network, (-1, 1), error=1e-3, tokens=tokens, dtype=dtype)
    assert (model.bill.heads, model.bill.layers, model.bill.reference_tokens) == (0, 0, 0)
    assert model.certificate.parts["softmax"] == 0.0
    assert model.certificate.parts["leak"] == 0.0
    for x in rng.uniform(-1, 1, (3, tokens, 3)):
        found = model(x if tokens > 1 else x[0]).reshape(tokens, 2)
        for row, point in zip(found, x, strict=True):
            assert exact_error(row, exact(network.graph, point)) <= model.certificate.error


def test_a_constant_network_is_exact() -> None:
    """All gates dead: what remains is the last bias, to the bit."""
    network = hs.Network([(np.ones((4, 3)), np.full(4, -10.0)), (np.ones((2, 4)), [0.1, -7.25])])
    model = hs.compile(network, (-1, 1), error=1e-12)
    assert model.bill.heads == 0
    assert model([0.3, 0.1, -0.2]).tolist() == [0.1, -7.25]
    assert model.certificate.error < 1e-14
    zero = hs.Network([(np.zeros((1, 2)), [0.5])])
    assert hs.compile(zero, (-1, 1), error=1e-12)([0.3, 0.1]).tolist() == [0.5]


def test_gates_that_only_feed_dead_gates_cost_nothing(rng) -> None:
    """A layer of dead gates silences everything before it."""
    layers = [
        (rng.normal(size=(4, 3)), np.zeros(4)),
        (rng.normal(size=(4, 4)), np.full(4, -50.0)),
        (np.ones((2, 4)), [0.1, 0.2]),
    ]
    model = hs.compile(hs.Network(layers), (-1, 1), error=1e-12)
    assert model.bill.heads == 0
    assert model([0.3, 0.1, -0.2]).tolist() == [0.1, 0.2]


def test_a_domain_of_one_point_has_no_gates(rng) -> None:
    network = random_network([3, 6, 6, 2])
    point = rng.normal(size=3)
    model = hs.compile(network, np.stack([point, point], axis=1), error=1e-9)
    assert model.bill.heads == 0
    assert exact_error(model(point), exact(network.graph, point)) <= model.certificate.error


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.0, 1.0),  # pixels
        (0.0, 0.0),
    ],
)
def test_gates_that_touch_zero_but_do_not_cross_it_cost_nothing(low, high) -> None:
    identity = hs.Network([(np.eye(3), np.zeros(3)), (np.full((2, 3), 0.1), np.zeros(2)), (np.ones((1, 2)), [0.0])])
    assert hs.compile(identity, (low, high), error=1e-6).bill.heads == 0
    negative = hs.Network([(-np.eye(3), np.zeros(3)), (np.ones((1, 3)), [0.0])])
    assert hs.compile(negative, (low, high), error=1e-6).bill.heads == 0


def test_neurons_without_weights_cost_nothing() -> None:
    network = hs.Network([([[0.0, 0.0], [1.0, -1.0]], [0.0, 0.1]), ([[5.0, 1.0]], [0.0])])
    assert hs.compile(network, (-1, 1), error=1e-3).bill.heads == 1


class TestGrowth:
    """Non-zero weights at most linear in the network's parameters."""

    @pytest.mark.one_in(2)
    @pytest.mark.parametrize(
        "widths", [[2, 30, 30, 2], [20, 60, 1], [1, 100, 1], [5, 20, 20, 20, 20, 20, 20, 3], [50, 80, 80, 10]], ids=str
    )
    def test_crossing_gates(self, widths) -> None:
        network = random_network(widths, 2, bias=0.1)
        model = hs.compile(network, (-1, 1), error=1e-3)
        assert model.bill.nonzeros <= 3 * network.parameters + 100

    @pytest.mark.one_in(4)
    @pytest.mark.parametrize("kinds", KINDS, ids="-".join)
    @pytest.mark.parametrize(
        "widths", [[5, 30, 30, 4], [3, 20, 20, 20, 20, 2], [40, 10, 40, 3], [10, 60, 5, 60, 2]], ids=str
    )
    def test_stable_gates(self, widths, kinds) -> None:
        network = shifted_network(widths, 4, -1.0, 1.0, kinds)
        model = hs.compile(network, (-1, 1), error=1e-3)
        assert model.bill.nonzeros <= 3 * network.parameters + 100

    def test_several_tokens_cost_a_logarithm(self) -> None:
        network = random_network([5, 40, 40, 2])
        bills = {n: hs.compile(network, (-1, 1), error=1e-3, tokens=n).bill for n in (1, 4, 64)}
        heads = bills[1].heads
        assert bills[64].nonzeros <= bills[1].nonzeros + heads * (2 * 6 + 2) + 64 * 6
        assert bills[64].d_model == bills[1].d_model + 6

    def test_deep_narrow_circuits_stay_narrow(self) -> None:
        """A running sum, y <- y + 0.25 relu(2 z - 1): six levels, and the stream does not grow by a column for
        each."""
        graph = running_sum(6)
        model = hs.compile(graph, (0, 1), error=1e-2)
        assert model.bill.layers == 6
        assert model.bill.d_model <= 8
        assert model.bill.nonzeros <= 25 * 6


def running_sum(depth: int) -> Graph:
    builder = Builder(["x"])
    z = builder.affine([(builder.input, np.ones(1))], np.zeros(1))
    y = z
    for _ in range(depth):
        fold = builder.relu(builder.affine([(z, 2.0 * np.ones(1))], -np.ones(1)))
        fresh = builder.affine([(z, np.full(1, 1.2)), (fold, np.full(1, -1.1))], np.full(1, 0.01))
        y = builder.affine([(y, np.ones(1)), (fold, np.full(1, 0.25))], np.zeros(1))
        z = fresh
    return builder.graph(y)


class TestRegisters:
    @pytest.mark.parametrize("kinds", KINDS, ids="-".join)
    def test_names_are_unique_and_survive_the_file(self, kinds, tmp_path) -> None:
        model = hs.compile(shifted_network([3, 8, 8, 8, 2], 4, -1.0, 1.0, kinds), (-1, 1), error=1e-3, tokens=3)
        names = [register.name for register in model.transformer.registers]
        assert len(set(names)) == len(names)
        assert all(names)
        model.save(tmp_path / "model.safetensors")
        again = hs.load(tmp_path / "model.safetensors")
        assert again.transformer.registers == model.transformer.registers

    def test_a_plain_network_has_a_register_for_each_layer(self) -> None:
        model = hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-3)
        assert [(r.name, r.size) for r in model.transformer.registers] == [
            ("data", 1),
            ("reference", 1),
            ("z1", 6),
            ("z2", 5),
            ("out", 2),
        ]


@given(st.integers(0, 2**32 - 1), st.sampled_from(["float64", "float32"]), st.sampled_from([1, 3]))
@settings(max_examples=tried(25, 8))
def test_any_circuit_compiles_to_its_own_function(seed, dtype, tokens) -> None:
    """Skip connections, diagonal terms, nodes that are read twice, relu or affine outputs: exact value at points,
    within the certificate."""
    graph = random_circuit(seed)
    error = 1e-2 if dtype == "float32" else 1e-6
    try:
        model = hs.compile(graph, (-1, 1), error=error, tokens=tokens, dtype=dtype)
    except hs.UnreachableError as refusal:
        model = hs.compile(graph, (-1, 1), error=refusal.smallest, tokens=tokens, dtype=dtype)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        points = rng.uniform(-1, 1, (tokens, graph.input.size))
        if rng.random() < 0.3:
            points = np.sign(points)
        found = model(points if tokens > 1 else points[0]).reshape(tokens, -1)
        for row, point in zip(found, points, strict=True):
            assert exact_error(row, exact(graph, point)) <= model.certificate.error


def test_the_oracle_of_ranges_by_hand() -> None:
    network = hs.Network([([[1.0], [-2.0]], [0.0, 5.0]), ([[1.0, 1.0]], [0.0])])
    low, high = exact_ranges(network.graph, [-1.0], [1.0])[1]
    assert (low, high) == ([-1, 3], [1, 7])
    assert crossing(network, -1.0, 1.0) == [1]
