"""Theorem: the cells found are the cells of the activation pattern, every one of them, once.

Three facts prove it for a given network: the patterns differ (cells are disjoint), every cell has an interior, and the
volumes add up to the box (nothing is missing). An independent clipper in rationals finds the same patterns.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from helpers.oracles.polygons import clipped_patterns, volumes
from helpers.oracles.region_counts import maxout_level, through_origin

from headsmith.core.intervals import as_box
from headsmith.lab.regions.bounds import zaslavsky
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import Levels, levels_of, relu_level, unit_values
from headsmith.lab.regions.result import Regions
from headsmith.language.formula import formula_graph
from headsmith.language.maxout import MaxoutNetwork
from headsmith.language.network import Network


def check(target: object, half: float, dimension: int) -> Regions:
    """Enumerate on [-half, half]^d and prove the count."""
    found = regions(target, [(-half, half)] * dimension)
    patterns = set(map(tuple, found.patterns.tolist()))
    sizes = volumes(found)
    assert found.complete
    assert len(patterns) == len(found) == len(sizes)
    assert np.all(sizes > 0.0)
    assert sizes.sum() == pytest.approx((2.0 * half) ** dimension, rel=1e-9)
    if dimension < 3:
        assert patterns == clipped_patterns(target, [-half] * dimension, [half] * dimension)
    levels = levels_of(target)
    inside = np.random.default_rng(0).uniform(-half, half, (2000, dimension))
    assert sampled_patterns(levels, inside) <= patterns
    for region in list(found)[:20]:
        scale = 1.0 + np.abs(region(region.vertices)).max()
        assert np.allclose(region(region.vertices), levels(region.vertices), atol=1e-10 * half * scale, rtol=1e-10)
        assert np.allclose(region(region.point), levels(region.point), atol=1e-10 * half * scale, rtol=1e-10)
    assert found.count("pieces") <= found.count("linear") <= found.count("cells") == len(found)
    return found


def sampled_patterns(levels: Levels, points: np.ndarray) -> set[tuple[int, ...]]:
    """The winners at points, by brute force in float64; points near a border are left out."""
    state, sure, found = points, np.ones(len(points), dtype=bool), []
    for level in levels.levels:
        rows = state @ level.weights.T + level.bias
        rows = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)[:, level.row]
        for unit in range(level.units):
            pieces = rows[:, level.unit == unit]
            found.append(np.argmax(pieces, axis=1))
            order = np.sort(pieces, axis=1)
            if pieces.shape[1] > 1:
                sure &= order[:, -1] - order[:, -2] > 1e-9 * (1.0 + np.abs(order).max())
        state = np.concatenate([state[:, level.carry], unit_values(level, state)], axis=1)
    return set(map(tuple, np.stack(found, axis=1)[sure].tolist()))


def relu_network(kind: str, widths: list[int], seed: int) -> Network:
    random = np.random.default_rng(seed)
    layers = []
    for before, after in pairwise(widths):
        W, b = random.normal(size=(after, before)), 0.3 * random.normal(size=after)
        match kind:
            case "small integers":
                W, b = random.integers(-1, 2, W.shape).astype(float), random.integers(-1, 2, after) / 2.0
            case "no bias":
                b = np.zeros(after)
            case "repeated and parallel":
                W[after // 2 :] = W[0] * random.integers(-2, 3, (after - after // 2, 1))
                b[-1] = b[0]
            case "zero neurons":
                W[::2], b[::2] = 0.0, random.integers(-1, 2, len(b[::2]))
        layers.append((W, b))
    return Network(layers)


KINDS = ["general", "small integers", "no bias", "repeated and parallel", "zero neurons"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_relu_networks_of_all_kinds(kind: str, dimension: int) -> None:
    for seed, half in product(range(4), (1.0, 1e5, 3e9)):
        depth = 1 + seed % 3
        check(relu_network(kind, [dimension, *[4 + seed % 2] * depth, 2], seed), half, dimension)


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_maxout_networks_of_mixed_ranks(integers: bool, dimension: int) -> None:
    random = np.random.default_rng(dimension)
    for _ in range(8):
        layers, before = [], dimension
        for rank, units in random.integers(1, 5, (2, 2)).tolist():
            W, b = random.normal(size=(rank, units, before)), 0.3 * random.normal(size=(rank, units))
            if integers:
                W, b = np.round(W), np.round(2.0 * b) / 2.0
            layers.append((W, b))
            before = units
        check(MaxoutNetwork([*layers, (np.ones((1, before)), np.zeros(1))]), 1.0, dimension)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 9])
def test_general_position_reaches_zaslavsky(dimension: int, count: int) -> None:
    """n hyperplanes in general position cut R^d, and a box that holds all their vertices, into sum C(n, j) regions."""
    random = np.random.default_rng(count)
    W, b = random.normal(size=(count, dimension)), random.normal(size=count)
    assert len(regions(Network([(W, b), (np.ones((1, count)), [0.0])]), (-1e6, 1e6))) == zaslavsky(count, dimension)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_central_arrangements_meet_in_one_point(dimension: int) -> None:
    """Twelve hyperplanes through the origin: a vertex that all of them pass through."""
    W = np.random.default_rng(0).normal(size=(12, dimension))
    found = regions(Network([(W, np.zeros(12)), (np.ones((1, 12)), [0.0])]), (-1.0, 1.0))
    assert len(found) == (2 if dimension == 1 else through_origin(12, dimension))


def test_many_lines_through_a_point_that_is_not_a_double() -> None:
    """w . x = w . (1/3, 1/7) for nine w, times 21: integers, but the point itself is no double; doubts are decided."""
    slopes = [(1, 0), (0, 1), (1, 1), (1, -1), (2, 1), (1, 2), (3, -1), (-1, 3), (5, 2)]
    W = 21.0 * np.array(slopes, dtype=float)
    b = -np.array([7.0 * p + 3.0 * q for p, q in slopes])
    found = regions(Network([(W, b), (np.ones((1, 9)), [0.0])]), (-1.0, 1.0))
    assert len(found) == 18
    assert found.oracle.asked > 0
    # Moved by one unit in the last place, one line misses the point, and meets the eight others one by one.
    b[4] = np.nextafter(b[4], 0.0)
    assert len(regions(Network([(W, b), (np.ones((1, 9)), [0.0])]), (-1.0, 1.0))) == 18 + 7


def test_borders_through_corners_and_along_edges_of_the_box() -> None:
    diagonals = Network([([[1.0, -1.0], [1.0, 1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    assert len(regions(diagonals, (-1.0, 1.0))) == 4
    along = Network([([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [1.0, 1.0, -2.0]), ([[1.0, 1.0, 1.0]], [0.0])])
    assert len(regions(along, (-1.0, 1.0))) == 1


def test_a_neuron_that_vanishes_on_a_cell_is_inactive() -> None:
    """relu(relu(x)): on x < 0 the second neuron is 0 throughout, and counts as inactive."""
    found = regions(Network([([[1.0]], [0.0]), ([[1.0]], [0.0]), ([[1.0]], [0.0])]), (-1.0, 1.0))
    assert sorted(tuple(map(tuple, region.pattern)) for region in found) == [((0,), (0,)), ((1,), (1,))]


def test_equal_pieces_are_resolved_to_the_lowest() -> None:
    level = maxout_level(np.array([[[1.0]], [[1.0]], [[-1.0]]]), np.zeros((3, 1)))
    twice = Levels(("x",), (level,), np.ones((1, 1)), np.zeros(1))
    assert sorted(int(region.pattern[0][0]) for region in regions(twice, (-1.0, 1.0))) == [0, 2]


def test_a_slice_of_many_inputs() -> None:
    """On origin + s u + t v a network is the network with its first layer composed with that map."""
    random = np.random.default_rng(2)
    origin, u, v = (random.integers(-4, 5, 50) / 4.0 for _ in range(3))
    W, b = random.integers(-8, 9, (12, 50)) / 16.0, random.normal(size=12)
    rest = [(random.normal(size=(12, 12)), random.normal(size=12)), (random.normal(size=(3, 12)), np.zeros(3))]
    sliced = regions(Network([(W, b), *rest]), (-2.0, 2.0), slice=(origin, u, v))
    # Small multiples of 1/64: the sums are exact in float64, and adding the bias moves lines by an ulp at most.
    first = relu_level(W @ np.column_stack([u, v]), W @ origin + b)
    plane = regions(Network([(first.weights, first.bias), *rest]), (-2.0, 2.0))
    assert len(sliced) == len(plane) > 30
    region = sliced[7]
    place = origin + region.point @ np.stack([u, v])
    assert np.allclose(region(region.point), Network([(W, b), *rest])(place))
    assert len(regions(Network([(W, b), *rest]), (-2.0, 2.0), slice=(origin, u))) > 3


def test_differences_of_one_ulp_are_seen() -> None:
    """Two breakpoints one unit in the last place apart enclose a region; equal ones do not."""
    third = 1.0 / 3.0
    near = Network([([[1.0], [1.0]], [-third, -np.nextafter(third, 1.0)]), ([[1.0, 1.0]], [0.0])])
    same = Network([([[1.0], [1.0]], [-third, -third]), ([[1.0, 1.0]], [0.0])])
    assert len(regions(near, (0.0, 1.0))) == 3
    assert len(regions(same, (0.0, 1.0))) == 2


def test_weights_of_extreme_size() -> None:
    """Products that overflow or underflow in float64 leave the decision to rationals."""
    for size in (1e-250, 1e-160, 1e160, 1e250):
        layers = [(size * np.array([[1.0, 2.0], [3.0, -1.0]]), [0.0, -size])]
        layers += [(size * np.array([[1.0, -1.0], [2.0, 1.0]]), [0.0, 0.0]), ([[1.0, 1.0]], [0.0])]
        expected = clipped_patterns(Network(layers), [-1.0, -1.0], [1.0, 1.0])
        assert set(map(tuple, regions(Network(layers), (-1.0, 1.0)).patterns.tolist())) == expected


def test_levels_of_a_graph_with_skips_and_minima() -> None:
    """A formula whose parts live on past later levels, with nested max, min, abs and clip."""
    formula = "min(max(x, y) - abs(x + y), 0.5 - max(x, -y, 0.25)) + 2*relu(max(x, y) - 0.5) - x"
    levels = levels_of(formula, ["x", "y"])
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (500, 2))
    x, y = points.T
    inner = np.minimum(np.maximum(x, y) - np.abs(x + y), 0.5 - np.maximum(np.maximum(x, -y), 0.25))
    expected = inner + 2.0 * np.maximum(np.maximum(x, y) - 0.5, 0.0) - x
    assert np.allclose(levels(points)[:, 0], expected)
    check(levels, 1.0, 2)


def test_a_model_stands_for_its_source_graph_and_domain() -> None:
    """Whatever carries a piecewise linear graph, and a box, can be asked for its regions."""

    class Model:
        graph = formula_graph("max(x, y, -x, -y)")
        box = as_box((-2.0, 2.0), graph.input.names)

    found = regions(Model())
    assert len(found) == 4
    assert np.array_equal(found.box.high, [2.0, 2.0])


def test_a_maxout_level_has_the_rows_of_its_weights() -> None:
    W, b = np.arange(12.0).reshape(3, 2, 2), np.arange(6.0).reshape(3, 2)
    x = np.array([[0.5, -1.0]])
    expected = (np.einsum("koi,ni->nko", W, x) + b).max(axis=1)
    assert np.array_equal(unit_values(maxout_level(W, b), x), expected)
