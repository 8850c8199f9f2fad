"""Theorem: in any dimension the cells found are those whose sign vectors have an interior, and no others.

The oracle asks of each sign vector, unit by unit, whether its inequalities have a strict solution, by elimination in
rationals. Classical counts of arrangements say the same of larger ones.
"""

from __future__ import annotations

from math import comb, factorial

import numpy as np
import pytest
from helpers.oracles.polygons import exactly, has_interior, programmed_patterns
from helpers.oracles.region_counts import through_origin
from test_enumeration import KINDS, relu_network, sampled_patterns

from headsmith.lab.regions.bounds import zaslavsky
from headsmith.lab.regions.complex import Complex, corners, members
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import levels_of
from headsmith.language.maxout import MaxoutNetwork
from headsmith.language.network import Network


def box(dimension: int, half: float = 1.0) -> tuple[list[float], list[float]]:
    return [-half] * dimension, [half] * dimension


def test_the_oracle_knows_interiors() -> None:
    rows = [[1, 0, 0], [0, 1, 0], [-1, -1, 1]]
    assert has_interior([tuple(map(exactly, row)) for row in rows])
    assert not has_interior([tuple(map(exactly, row)) for row in [*rows[:2], [-1, -1, 0]]])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dimension", "widths"), [(3, [3, 3]), (4, [3, 2])])
def test_relu_networks_have_the_cells_of_linear_programs(kind: str, dimension: int, widths: list[int]) -> None:
    for seed in range(2):
        network = relu_network(kind, [dimension, *widths, 1], seed)
        found = regions(network, (-1.0, 1.0))
        patterns = list(map(tuple, found.patterns.tolist()))
        assert len(set(patterns)) == len(patterns)
        assert set(patterns) == programmed_patterns(network, *box(dimension))


@pytest.mark.parametrize("integers", [False, True])
def test_maxout_networks_have_the_cells_of_linear_programs(integers: bool) -> None:
    """Units of three and four pieces, cut piece by piece, and merged."""
    random = np.random.default_rng(5)
    for rank, units, dimension in ((3, 2, 3), (4, 1, 3), (3, 2, 4), (4, 1, 4), (5, 1, 4)):
        W, b = random.normal(size=(rank, units, dimension)), 0.3 * random.normal(size=(rank, units))
        if integers:
            W, b = np.round(W), np.round(2.0 * b) / 2.0
        network = MaxoutNetwork([(W, b), (np.ones((1, units)), np.zeros(1))])
        found = regions(network, [(-1.0, 1.0)] * dimension)
        assert set(map(tuple, found.patterns.tolist())) == programmed_patterns(network, *box(dimension))
        assert len({tuple(row) for row in found.patterns.tolist()}) == len(found)


@pytest.mark.parametrize(("dimension", "count"), [(4, 9), (5, 8), (6, 8)])
def test_general_position_reaches_zaslavsky(dimension: int, count: int) -> None:
    random = np.random.default_rng(count)
    W, b = random.normal(size=(count, dimension)), random.normal(size=count)
    network = Network([(W, b), (np.ones((1, count)), [0.0])])
    assert len(regions(network, (-1e6, 1e6))) == zaslavsky(count, dimension)
    assert len(regions(Network([(W, 0 * b), (np.ones((1, count)), [0.0])]), (-1.0, 1.0))) == through_origin(
        count, dimension
    )


@pytest.mark.parametrize("dimension", [3, 4, 5])
def test_the_braid_arrangement_has_the_orders_as_cells(dimension: int) -> None:
    """x_i = x_j for all pairs: d! cells, and all planes share a line. Every vertex but two is on several of them."""
    pairs = [(i, j) for i in range(dimension) for j in range(i)]
    W = np.array([np.eye(dimension)[i] - np.eye(dimension)[j] for i, j in pairs])
    found = regions(Network([(W, np.zeros(len(pairs))), (np.ones((1, len(pairs))), [0.0])]), (0.0, 1.0))
    assert len(found) == factorial(dimension)
    # Every one of them is a simplex.
    assert np.all(np.diff(found.starts) == dimension + 1)


def test_a_grid_of_parallel_planes_has_boxes_as_cells() -> None:
    """Three thirds along each of four axes, in numbers that are no doubles: 3 W x = 1, 2."""
    W = np.repeat(3.0 * np.eye(4), 2, axis=0)
    found = regions(Network([(W, -np.array([1.0, 2.0] * 4)), (np.ones((1, 8)), [0.0])]), (0.0, 1.0))
    assert len(found) == 81
    assert np.all(np.diff(found.starts) == 16)


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
def test_the_faces_are_a_complex(dimension: int) -> None:
    """Euler: the faces of each cell, of dimensions 0 to d, alternate to 1, and so do all faces of the box."""
    network = relu_network("small integers", [dimension, 5, 4, 1], 1)
    found = regions(network, (-1.0, 1.0))
    (part,) = found.parts
    used = [np.arange(len(part))]
    for k in range(dimension, 0, -1):
        used.append(np.unique(members(part, k, used[-1])[1]))
    assert sum((-1) ** (dimension - i) * len(rows) for i, rows in enumerate(used)) == 1
    for cell in range(0, len(part), max(1, len(part) // 20)):
        assert sum((-1) ** k * count for k, count in enumerate(face_counts(part, cell))) == 1


def face_counts(part: Complex, cell: int) -> list[int]:
    """How many faces of each dimension a cell has."""
    counts, rows = [1], np.array([cell])
    for k in range(part.dimension, 0, -1):
        rows = np.unique(members(part, k, rows)[1])
        counts.append(len(rows))
    assert len(rows) == len(corners(part, part.dimension, np.array([cell]))[1])
    return counts[::-1]


def test_four_inputs_and_three_layers() -> None:
    network = relu_network("general", [4, 6, 6, 6, 2], 3)
    found = regions(network, (-1.0, 1.0))
    patterns = set(map(tuple, found.patterns.tolist()))
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (20000, 4))
    assert sampled_patterns(levels_of(network), points) <= patterns
    assert len(patterns) == len(found)
    for region in found[::25]:
        assert np.allclose(region(region.point), network(region.point), atol=1e-9)
        assert np.allclose(region(region.vertices), network(region.vertices), atol=1e-9)
    assert found.count("pieces") <= found.count("linear") <= len(found)


def test_a_slice_of_four_directions() -> None:
    """A cube of four coordinates in seven inputs; each cell is one of the network there."""
    random = np.random.default_rng(0)
    network = relu_network("general", [7, 5, 4, 1], 0)
    origin, *directions = random.normal(size=(5, 7))
    found = regions(network, (-1.0, 1.0), slice=(origin, *directions))
    assert found.box.names == ("s0", "s1", "s2", "s3")
    region = found[len(found) // 2]
    assert np.allclose(region(region.point), network(origin + region.point @ np.array(directions)))


def test_counts_of_dimensions_add_up() -> None:
    """One hyperplane in general position after the other: C(n, j) new ones, j at most d."""
    assert [zaslavsky(8, d) for d in (4, 5)] == [sum(comb(8, j) for j in range(d + 1)) for d in (4, 5)]
