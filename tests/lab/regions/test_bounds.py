"""Bounds of the number of regions: above every count, reached where the theorem says so."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from helpers.oracles.region_counts import maxout_attainable, maxout_level, relu_attainable, zigzag_regions

from headsmith.lab.regions.bounds import bounds_of, deep_upper, one_maxout_level, relu_upper, zaslavsky
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import Levels, levels_of
from headsmith.lab.regions.zigzag import composed, feed_forward_block
from headsmith.language.network import Network


def random_network(widths: list[int], seed: int) -> Network:
    random = np.random.default_rng(seed)
    return Network([(random.normal(size=(out, before)), random.normal(size=out)) for before, out in pairwise(widths)])


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_counts_stay_below_every_bound(dimension: int) -> None:
    for seed, hidden in product(range(3), ([6], [4, 4], [2, 6], [5, 1, 5], [3, 3, 3])):
        network = random_network([dimension, *hidden, 1], seed)
        count = len(regions(network, (-10.0, 10.0)))
        for bound in bounds_of(levels_of(network), dimension):
            assert count <= bound.value
        # The bounds are ordered: Serra's is never above Montúfar's.
        assert relu_upper(hidden, dimension) <= deep_upper([[2] * width for width in hidden], dimension)


def test_one_layer_bounds_agree() -> None:
    """For one layer all are Zaslavsky's number."""
    for width, dimension in product(range(1, 9), (1, 2, 3)):
        number = zaslavsky(width, dimension)
        assert number == one_maxout_level([2] * width, dimension) == relu_upper([width], dimension)
        assert number == deep_upper([[2] * width], dimension) == relu_attainable([width], dimension)


def test_serras_bound_by_hand() -> None:
    """Widths 1, 2 on one input: j_1 = 1 leaves no dimension: (1 + 2) + 1 = 4, where the product is 6."""
    assert relu_upper([1, 2], 1) == 4
    assert deep_upper([[2], [2, 2]], 1) == 6


def test_maxout_bound_on_parallel_kinks() -> None:
    """Evenly spaced parallel kinks, directions in general position: equality, as Montúfar, Ren and Zhang prove."""
    random = np.random.default_rng(0)
    for rank, units, dimension in ((3, 2, 1), (4, 3, 1), (3, 3, 2), (4, 2, 2), (3, 3, 3)):
        normals, shifts = random.normal(size=(units, dimension)), random.normal(size=units)
        steps = np.arange(rank)[:, None]
        # max_j j (w . x + s) - j (j - 1) / 2 has kinks at w . x + s = 0, 1, ..., k - 2.
        W, b = steps[:, :, None] * normals[None], steps * shifts - steps * (steps - 1) / 2.0
        levels = Levels(tuple("xyz"[:dimension]), (maxout_level(W, b),), np.ones((1, units)), np.zeros(1))
        assert len(regions(levels, (-1e4, 1e4))) == one_maxout_level([rank] * units, dimension)


def test_constructions_reach_what_is_attainable() -> None:
    """Zigzags of width P in each layer have P^L regions; the lower bound of 2014 promises P^(L-1) (P + 1) somewhere."""
    for pieces, depth in ((2, 3), (3, 3), (4, 2)):
        count = len(regions(composed([feed_forward_block(pieces)] * depth), (-1.0, 2.0)))
        assert zigzag_regions(pieces, depth) <= count <= relu_upper([pieces] * depth, 1)
        assert relu_attainable([pieces] * depth, 1) == pieces ** (depth - 1) * (pieces + 1)
        assert relu_attainable([pieces] * depth, 1) <= relu_upper([pieces] * depth, 1)
    assert maxout_attainable(3, 2, 2) == 27 <= deep_upper([[3, 3], [3, 3]], 2)


def test_levels_that_carry_are_bounded_level_by_level() -> None:
    levels = levels_of("relu(x - abs(y)) + max(x, y, 0)", ["x", "y"])
    found = regions(levels, (-1.0, 1.0))
    (bound,) = bounds_of(levels, 2)
    assert len(found) <= bound.value
