"""Theorem: the cells found are those of exact linear programs also where everything that can coincide does.

Neurons are equal, opposite, multiples of one another, zero or constant. Hyperplanes are parallel, go through the
corners of the box and along its sides. Weights are small integers, so that many hyperplanes share a point. The oracle
(helpers/oracles/polygons.py) asks of each sign vector, unit by unit, whether its inequalities have a strict solution,
in rationals. It shares the normal form of networks with the package, and nothing else.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.oracles.polygons import programmed_patterns
from helpers.oracles.region_counts import maxout_level

from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import Levels
from headsmith.language.network import Network

WIDTHS = {
    1: [[6], [4, 4], [3, 3, 3]],
    2: [[5], [4, 3], [3, 2, 2]],
    3: [[5], [4, 2]],
    4: [[4], [3, 2]],
    5: [[4], [3, 2]],
}


def degenerate_network(dimension: int, seed: int) -> Network:
    """A network of small integers, each neuron of a kind that is drawn."""
    random = np.random.default_rng([dimension, seed])
    widths = [dimension, *WIDTHS[dimension][seed % len(WIDTHS[dimension])], 1]
    layers = []
    for before, after in pairwise(widths):
        W = random.integers(-2, 3, (after, before)).astype(np.float64)
        b = random.integers(-3, 4, after) / 2.0
        for i in range(after):
            other = random.integers(0, i + 1)
            match random.integers(0, 8):
                case 0:  # equal, opposite or a multiple of an earlier one
                    factor = random.choice([-3.0, -1.0, 1.0, 2.0])
                    W[i], b[i] = factor * W[other], factor * b[other]
                case 1:  # parallel to an earlier one
                    W[i] = random.choice([-1.0, 1.0, 3.0]) * W[other]
                case 2:  # zero or constant
                    W[i] = 0.0
                case 3:  # through a corner of the box
                    b[i] = -W[i] @ random.choice([-1.0, 1.0], before)
                case 4:  # along a side of the box, or parallel to one
                    W[i] = np.eye(before)[random.integers(before)]
                    b[i] = random.choice([-1.0, 0.0, 1.0])
                case 5:  # through the middle
                    b[i] = 0.0
        layers.append((W, b))
    return Network(layers)


def degenerate_maxout(dimension: int, seed: int) -> Levels:
    """Units of three pieces of small integers, some of them equal."""
    random = np.random.default_rng([7, dimension, seed])
    W = random.integers(-1, 2, (3, 2, dimension)).astype(np.float64)
    b = random.integers(-1, 2, (3, 2)) / 2.0
    if seed % 2:
        W[2, 0], b[2, 0] = W[seed % 4 // 2, 0], b[seed % 4 // 2, 0]
    names = tuple(f"x{i}" for i in range(dimension))
    return Levels(names, (maxout_level(W, b),), np.ones((1, 2)), np.zeros(1))


def compare(target: Network | Levels, dimension: int) -> None:
    found = regions(target, [(-1.0, 1.0)] * dimension, workers=1)
    patterns = list(map(tuple, found.patterns.tolist()))
    assert len(set(patterns)) == len(patterns) == len(found)
    assert set(patterns) == programmed_patterns(target, [-1.0] * dimension, [1.0] * dimension)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
def test_degenerate_networks_have_the_cells_of_linear_programs(dimension: int) -> None:
    for seed in range({1: 12, 2: 12, 3: 6, 4: 4, 5: 2}[dimension]):
        compare(degenerate_network(dimension, seed), dimension)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_degenerate_maxout_levels_have_the_cells_of_linear_programs(dimension: int) -> None:
    for seed in range({1: 8, 2: 6, 3: 3, 4: 2}[dimension]):
        compare(degenerate_maxout(dimension, seed), dimension)
