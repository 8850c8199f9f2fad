"""Ranges enclose: every exact value at every point of the box lies in its interval, and they hold the exact interval
propagation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from helpers.effort import tried
from helpers.models.networks import folding_circuit, random_circuit, random_network
from helpers.oracles.exact import exact_nodes, exact_ranges
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.plan.analysis.ranges import ranges


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


@settings(max_examples=tried(60, 8))
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


# ---- a value and its pools over the tokens are in order: min <= own <= max, min <= mean <= max ----------------------

KINDS = ("max", "min", "mean")


def pooled(weights: list[float], causal: bool = False, curved: bool = False) -> Graph:
    """weights times (a, max a, min a, mean a) + 0.1, for a = x - 2 y, or its square root."""
    b = Builder(["x", "y"])
    a = b.affine([(0, [[1.0, -2.0]])], [4.0])
    a = b.function("sqrt", a) if curved else a
    nodes = [a, *(b.pool(kind, a, causal) for kind in KINDS)]
    terms = [(node, [[weight]]) for node, weight in zip(nodes, weights, strict=True) if weight]
    return b.graph(b.affine(terms, [0.125]))


def output_range(graph: Graph) -> tuple[float, float]:
    found = ranges(graph, Box(("x", "y"), np.array([-1.0, -1.0]), np.array([1.0, 1.0])))[graph.output]
    return float(found.low[0]), float(found.high[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ([0, 1, -1, 0], (0.0, 6.0)),
        ([1, 0, -1, 0], (0.0, 6.0)),
        ([1, -1, 0, 0], (-6.0, 0.0)),
        ([0, 1, 0, -1], (0.0, 6.0)),
        ([2, -1, -1, 0], (-6.0, 6.0)),
        ([1, 0, 0, -1], (-6.0, 6.0)),
        ([0.1, 0, -0.1, 0], (0.0, 0.6)),
        ([0, 2, -1, -1], (0.0, 12.0)),
    ],
    ids=str,
)
def test_pools_are_in_order(weights: list[float], wanted: tuple[float, float], causal: bool) -> None:
    """a lies in [1, 7]. Where a sum cancels, its end is exact."""
    low, high = output_range(pooled(weights, causal))
    assert low == wanted[0] + 0.125
    assert high == pytest.approx(wanted[1] + 0.125, abs=1e-15)


@given(
    st.lists(st.integers(-8, 8), min_size=4, max_size=4).filter(any),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_sums_of_pools_hold_every_value(weights: list[int], causal: bool, curved: bool, seed: int) -> None:
    """With cells (where the graph has functions) and without; never wider than term by term."""
    graph = pooled([weight / 4 for weight in weights], causal, curved)
    low, high = output_range(graph)
    rng = np.random.default_rng(seed)
    tokens = [rng.uniform(-1, 1, (40, 4, 2)), rng.integers(-1, 2, (40, 4, 2)), rng.integers(-1, 2, (40, 2, 2))]
    for inputs in tokens:
        values = evaluate(graph, inputs, np.longdouble)
        assert low - 1e-15 <= values.min()
        assert values.max() <= high + 1e-15
    ends = np.sqrt([1.0, 7.0]) if curved else np.array([1.0, 7.0])
    each = np.array(weights)[:, None] / 4 * ends
    assert each.min(axis=1).sum() + 0.125 - 1e-12 <= low
    assert high <= each.max(axis=1).sum() + 0.125 + 1e-12


def test_a_value_in_its_own_cell() -> None:
    """(a - min(a)) (a - 1): the token's own a is in its cell, so where a is small there is little above the minimum."""
    b = Builder(["x"])
    gap = b.affine([(0, [[1.0]]), (b.pool("min", 0), [[-1.0]])], [0.0])
    graph = b.graph(b.product(gap, b.affine([(0, [[1.0]])], [-1.0])))
    found = ranges(graph, Box(("x",), np.array([-1.0]), np.array([1.0])))[graph.output]
    # (a + 1) (a - 1) at most, and at least -1: intervals would allow -4.
    assert -1.1 <= found.low[0] <= -1.0
    assert found.high[0] == 0.0


def test_pools_of_different_masks_or_arguments_are_not_compared() -> None:
    b = Builder(["x", "y"])
    x, y = (b.affine([(0, [row])], [0.0]) for row in ([1.0, 0.0], [0.0, 1.0]))
    for first, second in (
        (b.pool("max", x), b.pool("min", x, causal=True)),
        (b.pool("max", x), b.pool("min", y)),
        (b.pool("max", x), b.move(x, [1, 0])),
    ):
        assert output_range(b.graph(b.affine([(first, [[1.0]]), (second, [[-1.0]])], [0.0]))) == (-2.0, 2.0)


def pools_of_pools(inner: Sequence[int], outer: Sequence[int]) -> Graph:
    """A sum of x and its pools, of whose value a there are pools again; then a sum of all of them, a's pools first."""
    b = Builder(["x"])
    x = b.affine([(0, [[1.0]])], [0.0])
    first = [x, *(b.pool(kind, x) for kind in KINDS)]
    a = b.affine([(node, [[float(weight)]]) for node, weight in zip(first, inner, strict=True) if weight], [0.0])
    nodes = [*(b.pool(kind, a) for kind in KINDS), *first]
    return b.graph(b.affine([(n, [[float(weight)]]) for n, weight in zip(nodes, outer, strict=True) if weight], [0.0]))


small = st.integers(-2, 2)


@given(st.lists(small, min_size=4, max_size=4).filter(any), st.lists(small, min_size=7, max_size=7).filter(any))
@example([1, 0, 0, 2], [1, -1, 1, 2, 2, -1, -2])
@example([1, 2, -1, 1], [2, -2, -1, -2, -1, -1, 1])
def test_what_is_pooled_holds_pools(inner: list[int], outer: list[int]) -> None:
    """Taking a = x + 2 mean(x) out of a sum leaves another multiple of mean(x) than there was."""
    graph, rng = pools_of_pools(inner, outer), np.random.default_rng(0)
    found = ranges(graph, Box(("x",), np.array([-1.0]), np.array([1.0])))[graph.output]
    values = evaluate(graph, rng.choice([-1.0, -1.0, 0.0, 1.0], (400, 8, 1)), np.longdouble)
    assert found.low[0] - 1e-12 <= values.min()
    assert values.max() <= found.high[0] + 1e-12


def test_two_groups_in_one_sum() -> None:
    """(max x - min x) - (max y - min y): each difference is in order, and they have nothing to do with each other."""
    b = Builder(["x", "y"])
    terms = []
    for row, sign in (([1.0, 0.0], 1.0), ([0.0, 1.0], -1.0)):
        value = b.affine([(0, [row])], [0.0])
        terms += [(b.pool("max", value), [[sign]]), (b.pool("min", value), [[-sign]])]
    assert output_range(b.graph(b.affine(terms, [0.0]))) == (-2.0, 2.0)


def test_scaling_by_the_spread_is_defined() -> None:
    model = hs.compile_sequence(
        lambda x: (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0) + 0.5), tokens=4, domain=(-1, 1), error=0.2
    )
    x = np.random.default_rng(0).uniform(-1, 1, (30, 4, 1))
    wanted = (x - x.min(axis=1, keepdims=True)) / (np.ptp(x, axis=1, keepdims=True) + 0.5)
    assert np.abs(model(x) - wanted).max() <= model.certificate.error
