"""Ranges enclose: every exact value at every point of the box lies in its interval, and they hold the exact interval
propagation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import folding_circuit, random_circuit, random_network
from oracle import exact_nodes, exact_ranges

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.source.ranges import ranges


@st.composite
def targets(draw):
    widths = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    scale = draw(st.sampled_from([1.0, 1e-160, 1e80]))
    network = random_network(widths, draw(st.integers(0, 99)), weight=scale, density=draw(st.sampled_from([1.0, 0.5])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = np.sort(rng.normal(size=(2, widths[0])) * 10.0 ** rng.integers(-3, 3), axis=0)
    return network.graph, Box(network.names, ends[0], ends[1]), rng


@given(targets())
def test_they_hold_exact_interval_propagation(case) -> None:
    graph, box, _ = case
    wanted = exact_ranges(graph, box.low, box.high)
    for found, (low, high) in zip(ranges(graph, box), wanted, strict=True):
        assert all(Fraction(float(f)) <= w for f, w in zip(found.low, low, strict=True))
        assert all(Fraction(float(f)) >= w for f, w in zip(found.high, high, strict=True))


@given(targets())
def test_they_hold_the_value_at_every_point(case) -> None:
    graph, box, rng = case
    found = ranges(graph, box)
    for t in (np.zeros(box.size), np.ones(box.size), rng.random(box.size), rng.integers(0, 2, box.size)):
        point = np.clip(box.low + t * (box.high - box.low), box.low, box.high)
        for interval, values in zip(found, exact_nodes(graph, point), strict=True):
            assert all(Fraction(float(a)) <= v for a, v in zip(interval.low, values, strict=True))
            assert all(Fraction(float(a)) >= v for a, v in zip(interval.high, values, strict=True))


@given(st.sampled_from([random_circuit, folding_circuit]), st.integers(0, 10**6))
def test_they_hold_the_values_of_circuits(build, seed) -> None:
    """Nodes that are read twice, sums of gates of one argument, cells: whatever is done to tighten a range, every
    value stays inside."""
    graph, rng = build(seed), np.random.default_rng(seed)
    size = graph.input.size
    box = Box(graph.input.names, np.full(size, -1.0), np.full(size, 1.0))
    found = ranges(graph, box)
    points = [*rng.uniform(-1, 1, (6, size)), np.ones(size), -np.ones(size), np.zeros(size), rng.integers(-1, 2, size)]
    for point in points:
        for interval, values in zip(found, exact_nodes(graph, point), strict=True):
            assert all(Fraction(float(a)) <= v for a, v in zip(interval.low, values, strict=True))
            assert all(Fraction(float(a)) >= v for a, v in zip(interval.high, values, strict=True))


def test_they_are_barely_wider(rng) -> None:
    network = random_network([5, 20, 20, 3])
    box = Box(network.names, np.full(5, -1.0), np.full(5, 1.0))
    for found, (low, high) in zip(
        ranges(network.graph, box), exact_ranges(network.graph, box.low, box.high), strict=True
    ):
        assert np.allclose(found.low, [float(x) for x in low], rtol=1e-12, atol=1e-12)
        assert np.allclose(found.high, [float(x) for x in high], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("low", "high", "sign"), [(0.0, 1.0, 1.0), (-1.0, 0.0, -1.0), (0.0, 0.0, 1.0)])
def test_a_gate_that_touches_zero_does_not_cross_it(low, high, sign) -> None:
    """Pixels in [0, 1] and non-negative weights: the argument is never negative, whatever rounding does."""
    network = hs.Network(
        [(sign * np.array([[0.1, 0.7], [0.3, 0.0]]), [0.0, 0.0]), ([[0.3, 0.1]], [0.0]), ([[1.0]], [0.0])]
    )
    found = ranges(network.graph, Box(network.names, np.full(2, low), np.full(2, high)))
    assert np.all(found[1].low >= 0.0)
    assert np.all(found[3].low >= 0.0)
