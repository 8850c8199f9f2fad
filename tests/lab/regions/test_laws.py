"""Laws that hold for every network: tried on networks of small integers, where everything that can coincide does."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import numpy as np
import pytest
from helpers.effort import tried
from helpers.oracles.polygons import clipped_patterns, volumes
from helpers.oracles.region_counts import maxout_level
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.lab.regions.complex import FIRST, SECOND, box_complex, members
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import Levels
from headsmith.language.network import Network

small = st.integers(-2, 2)


@st.composite
def relu_networks(draw: st.DrawFn, inputs: int) -> Network:
    widths = [inputs, *draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)), 1]
    layers = []
    for before, after in pairwise(widths):
        weights = draw(st.lists(small, min_size=before * after, max_size=before * after))
        bias = draw(st.lists(small, min_size=after, max_size=after))
        layers.append((np.array(weights, dtype=float).reshape(after, before), np.array(bias) / 2.0))
    return Network(layers)


@st.composite
def maxout_networks(draw: st.DrawFn, inputs: int) -> Levels:
    levels, before = [], inputs
    for _ in range(draw(st.integers(1, 2))):
        rank, units = draw(st.integers(1, 5)), draw(st.integers(1, 3))
        weights = draw(st.lists(small, min_size=rank * units * before, max_size=rank * units * before))
        bias = draw(st.lists(small, min_size=rank * units, max_size=rank * units))
        shape = (rank, units)
        levels.append(maxout_level(np.reshape(weights, (*shape, before)).astype(float), np.reshape(bias, shape) / 2.0))
        before = units
    names = tuple(f"x{i}" for i in range(inputs))
    return Levels(names, tuple(levels), np.ones((1, before)), np.zeros(1))


@settings(max_examples=tried(120, 3), deadline=None)
@given(st.integers(1, 2).flatmap(lambda d: st.tuples(st.just(d), st.one_of(relu_networks(d), maxout_networks(d)))))
def test_the_cells_are_those_of_a_rational_clipper(case: tuple[int, Network | Levels]) -> None:
    dimension, target = case
    found = regions(target, [(-1.0, 1.0)] * dimension)
    patterns = [tuple(row) for row in found.patterns.tolist()]
    assert len(set(patterns)) == len(patterns)
    assert set(patterns) == clipped_patterns(target, [-1.0] * dimension, [1.0] * dimension)


@settings(max_examples=tried(60, 3), deadline=None)
@given(st.one_of(relu_networks(3), maxout_networks(3)))
def test_polytopes_fill_the_cube(target: Network | Levels) -> None:
    found = regions(target, (-1.0, 1.0))
    assert len({tuple(row) for row in found.patterns.tolist()}) == len(found)
    sizes = volumes(found)
    assert np.all(sizes > 0.0)
    assert np.isclose(sizes.sum(), 8.0)
    for region in found:
        # Euler: V - E + F = 2; every edge lies on two faces.
        edges = sum(len(loop) for loop in region.faces) // 2
        assert len(region.vertices) - edges + len(region.faces) == 2


@settings(max_examples=tried(40, 3), deadline=None)
@given(relu_networks(2), st.integers(1, 6))
def test_scaling_box_and_biases_changes_nothing(network: Network, power: int) -> None:
    """x -> network with biases times 2^k on the box times 2^k is the same partition, drawn larger."""
    factor = 2.0 ** (8 * power)
    larger = Network([(weights, factor * bias) for weights, bias in network.layers])
    here, there = regions(network, (-1.0, 1.0)), regions(larger, (-factor, factor))
    assert sorted(here.patterns.tolist()) == sorted(there.patterns.tolist())


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
def test_the_box_itself_is_a_complex(dimension: int) -> None:
    """A cube has C(d, k) 2^(d - k) faces of dimension k; each bounds faces of dimension k + 1, two of a third one."""
    box = box_complex(np.zeros(dimension), np.ones(dimension))
    assert [len(face) for face in box.face] == [comb(dimension, k) << (dimension - k) for k in range(dimension + 1)]
    for k in range(1, dimension + 1):
        owner, member = members(box, k)
        assert np.all(np.bincount(owner) == 2 * k)
        assert np.all(np.bincount(member) == dimension - k + 1)
    ends = box.point[box.face[1][:, [FIRST, SECOND]]]
    assert np.all(np.abs(ends[:, 0] - ends[:, 1]).sum(axis=1) == 1.0)
