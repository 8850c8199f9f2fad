"""Gains and deviations, as the planner asks the kernel for them, hold for every pattern of errors: run a circuit twice,
once exactly and once with an error in every gate.

Theorem: if every gate commits an error e (and inputs and affine nodes may too), the output moves by sum c e with c in
the gains, and every node by at most what `arriving` says. The test runs both circuits and looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.effort import tried
from helpers.models.networks import folding_circuit, random_circuit, random_network, shifted_network
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headsmith.core.intervals import Box
from headsmith.core.intervals import Interval as CoreInterval
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.slopes import edges_of
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, Graph, Input, Relu
from headsmith.plan.analysis.flow import Flow, flow_of, kernel_interval, known_of
from headsmith.plan.analysis.ranges import ranges

SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds of the chord slope of every gate of one relu node."""

    low: Any
    high: Any


def box_of(graph: Graph) -> Box:
    return Box(graph.input.names, np.full(graph.input.size, -1.0), np.full(graph.input.size, 1.0))


def flow_with(graph: Graph, box: Box, slopes: dict[int, Slopes]) -> Flow:
    """The flow if exactly the gates whose slopes are not known have heads."""
    known, found = known_of(graph, {}), [kernel_interval(each) for each in ranges(graph, box)]
    places = {number: np.flatnonzero(each.low < each.high) for number, each in slopes.items()}
    return Flow(known, edges_of(known, found, {number: each for number, each in places.items() if len(each)}, {}))


def slopes_of(graph: Graph, box: Box, headed_fraction: float, rng: np.random.Generator) -> dict[int, Slopes]:
    """[0, 1] for gates with a head: all that cross zero, and some of the others; 1 or 0 for the rest."""
    found = ranges(graph, box)
    slopes = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Relu):
            argument = found[node.argument]
            dead = argument.high <= 0.0
            active = ~dead & (argument.low >= 0.0)
            headed = ~(active | dead) | (rng.random(node.size) < headed_fraction)
            low = np.where(headed, 0.0, active.astype(float))
            slopes[number] = Slopes(low, np.where(headed, 1.0, active.astype(float)))
    return slopes


def run(graph: Graph, x, slopes, errors) -> list:
    """The circuit with errors committed at nodes; a gate without a head is its argument or zero, whatever its
    argument becomes."""
    values: list = []
    for number, node in enumerate(graph.nodes):
        match node:
            case Input():
                value = np.asarray(x, dtype=np.longdouble)
            case Affine():
                value = node.bias.astype(np.longdouble)
                for term in node.terms:
                    weights = term.weights.astype(np.longdouble)
                    value = value + (weights * values[term.node] if term.diagonal else weights @ values[term.node])
            case Relu():
                argument = values[node.argument]
                low, high = slopes[number].low, slopes[number].high
                value = np.where(low == 1.0, argument, np.where(high == 0.0, 0.0, np.maximum(argument, 0.0)))
        values.append(value + errors.get(number, 0.0))
    return values


def patterns(graph: Graph, slopes, rng: np.random.Generator):
    """Errors in all gates with heads, at all nodes, or at a single one; of one sign or mixed, small or large."""
    for kind in ("gates", "everywhere", "one", "one sign"):
        size = 10.0 ** rng.uniform(-3, 1)
        errors = {}
        for number, node in enumerate(graph.nodes):
            headed = slopes[number].high > slopes[number].low if isinstance(node, Relu) else np.zeros(node.size, bool)
            where = np.ones(node.size) if kind == "everywhere" else headed.astype(float)
            errors[number] = size * rng.uniform(-1, 1, node.size) * where
            if kind == "one sign":
                errors[number] = -np.abs(errors[number])
        if kind == "one":
            chosen = int(rng.integers(len(graph.nodes)))
            errors = {chosen: size * rng.choice([-1.0, 1.0], graph.nodes[chosen].size)}
        yield errors


def check(graph: Graph, seed: int, headed_fraction: float) -> None:
    rng = np.random.default_rng(seed)
    box = box_of(graph)
    slopes = slopes_of(graph, box, headed_fraction, rng)
    flow = flow_with(graph, box, slopes)
    gains = {number: gain.here for number, gain in flow.gains.items()}
    for _ in range(4):
        x = rng.uniform(-1, 1, graph.input.size)
        exact = run(graph, x, slopes, {})
        for errors in patterns(graph, slopes, rng):
            moved = run(graph, x, slopes, errors)
            low, high = np.zeros(graph.nodes[graph.output].size), np.zeros(graph.nodes[graph.output].size)
            for number, error in errors.items():
                if number in gains:
                    corners = [end.T * error for end in (gains[number].low, gains[number].high)]
                    low += np.minimum(*corners).sum(axis=1)
                    high += np.maximum(*corners).sum(axis=1)
            difference = moved[graph.output] - exact[graph.output]
            room = SLACK * (1.0 + np.abs(low) + np.abs(high))
            assert np.all(difference >= low - room)
            assert np.all(difference <= high + room)
            own = {number: np.abs(error) for number, error in errors.items()}
            deviations: dict[int, np.ndarray] = {}
            for number in sorted(gains):
                deviations[number] = flow.arriving(number, deviations, own, {}) + own.get(number, 0.0)
                off = np.abs(moved[number] - exact[number]).astype(float)
                assert np.all(off <= deviations[number] * (1 + SLACK) + SLACK)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 0.5]))
@settings(max_examples=tried(40, 3))
def test_circuits(seed, headed_fraction) -> None:
    check(random_circuit(seed), seed, headed_fraction)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 0.5]))
@settings(max_examples=tried(40, 3))
def test_folding_circuits(seed, headed_fraction) -> None:
    check(folding_circuit(seed), seed, headed_fraction)


@given(st.integers(0, 10**6))
@example(0)
@settings(max_examples=tried(10, 3))
def test_networks(seed) -> None:
    check(random_network([2, 5, 1, 6, 2], seed).graph, seed, 0.0)
    check(shifted_network([2, 5, 1, 6, 2], seed, -1.0, 1.0, ["active", "free"]).graph, seed, 0.0)


@pytest.mark.parametrize("outer", ["read twice", "output"])
def test_gates_of_gates(outer) -> None:
    """A scalar feeds parallel gates, and those feed gates directly: no path may be lost."""
    builder = Builder(["x"])
    scalar = builder.relu(builder.affine([(builder.input, np.ones((1, 1)))], [0.0]))
    inner = builder.relu(builder.affine([(scalar, -2.0 * np.ones((4, 1)))], np.ones(4)))
    again = builder.relu(inner)
    if outer == "output":
        graph = builder.graph(again)
    else:
        graph = builder.graph(builder.affine([(again, np.ones((1, 4))), (inner, 1e-6 * np.ones((1, 4)))], [0.0]))
    for seed in range(5):
        check(graph, seed, 0.0)


def test_a_node_that_is_read_twice_counts_twice() -> None:
    """An affine node with two terms on the same node: both are read, and both through the gates after it."""
    builder = Builder(["x", "y"])
    twice = builder.affine([(builder.input, np.ones((2, 2))), (builder.input, np.array([3.0, -2.0]))], np.zeros(2))
    gate = builder.relu(twice)
    graph = builder.graph(builder.affine([(gate, np.ones((1, 2))), (builder.input, np.ones((1, 2)))], [0.0]))
    for seed in range(5):
        check(graph, seed, 0.0)


def gains_of(graph: Graph) -> dict[int, Interval]:
    """The gains if every gate may have any slope."""
    flow = flow_of(
        known_of(graph, {}), [CoreInterval(*np.tile([[-9.0], [9.0]], node.size)) for node in graph.nodes], {}
    )
    return {number: gain.here for number, gain in flow.gains.items()}


def test_gains_of_a_network_are_products_of_its_weights(rng) -> None:
    """Without gates the gain is the product of the matrices; with one layer of gates it is the interval between 0 and
    the product."""
    W, V = rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    builder = Builder(["a", "b", "c"])
    hidden = builder.affine([(builder.input, W)], np.zeros(4))
    graph = builder.graph(builder.affine([(hidden, V)], np.zeros(2)))
    gains = gains_of(graph)
    assert np.allclose(gains[0].low, (V @ W).T)
    assert np.allclose(gains[0].high, (V @ W).T)
    gate = builder.relu(hidden)
    graph = builder.graph(builder.affine([(gate, V)], np.zeros(2)))
    gains = gains_of(graph)
    assert np.allclose(gains[gate].low, V.T)
    assert np.allclose(gains[hidden].low, np.minimum(V.T, 0.0))
    assert np.allclose(gains[hidden].high, np.maximum(V.T, 0.0))
    parts = V[:, :, None] * W[None, :, :]
    assert np.all(gains[0].low <= np.minimum(parts, 0.0).sum(axis=1).T + 1e-12)
    assert np.all(gains[0].high >= np.maximum(parts, 0.0).sum(axis=1).T - 1e-12)


def test_a_fold_does_not_amplify() -> None:
    """z <- z - 2 relu(z - t): slope 1 or -1, so twenty of them have gain at most one, not 3^20."""
    builder = Builder(["x"])
    z = builder.affine([(builder.input, np.ones(1))], np.zeros(1))
    for _ in range(20):
        gate = builder.relu(builder.affine([(z, np.ones(1))], np.full(1, -0.3)))
        z = builder.affine([(z, np.ones(1)), (gate, np.full(1, -2.0))], np.zeros(1))
    gains = gains_of(builder.graph(z))
    assert max(float(gain.magnitude.value.max()) for gain in gains.values()) <= 2.0 + 1e-9
