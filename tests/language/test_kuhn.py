"""Interpolation on Kuhn triangulations: the graph is the interpolant, and the error constants hold and are attained."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.effort import tried
from helpers.oracles.exact import exact
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.core.intervals import as_box
from headsmith.language.graph import Minimum, Relu
from headsmith.language.kuhn import grid_on, interpolant
from headsmith.plan.analysis.smoothness import (
    Hessian,
    Lipschitz,
    as_smoothness,
    fewest_steps,
    largest_coordinate_constant,
)


def box_of(*pairs):
    return as_box(list(pairs), [f"x{i}" for i in range(len(pairs))])


def interpolated(grid, values, point) -> Fraction:
    """The definition, exactly: sort the fractions of the cell, walk from its lowest corner to its highest."""
    table = values.reshape(grid.shape)
    corner, fractions = [], []
    for knots, x in zip(grid.knots, point, strict=True):
        places = [Fraction(float(knot)) for knot in knots]
        cell = min(sum(place <= Fraction(x) for place in places) - 1, max(len(places) - 2, 0))
        corner.append(cell)
        width = places[cell + 1] - places[cell] if len(places) > 1 else 1
        fractions.append((Fraction(x) - places[cell]) / width)
    total = Fraction(float(table[tuple(corner)]))
    for axis in sorted(range(len(corner)), key=lambda i: -fractions[i]):
        if fractions[axis]:
            before = Fraction(float(table[tuple(corner)]))
            corner[axis] += 1
            total += fractions[axis] * (Fraction(float(table[tuple(corner)])) - before)
    return total


@settings(max_examples=tried(40, 3))
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 10**6), st.booleans())
def test_the_graph_is_the_interpolant(counts, seed, awkward) -> None:
    rng = np.random.default_rng(seed)
    ends = [(0.1, 0.1 + (0.7 if n else 0.0)) if awkward else (-1.0, -1.0 + n) for n in counts]
    grid = grid_on(box_of(*ends), counts)
    values = rng.normal(size=(grid.nodes, 1)) if awkward else rng.integers(-9, 9, (grid.nodes, 1)).astype(float)
    graph, moved = interpolant(grid, values)
    assert moved <= 1e-11
    inside = rng.uniform(grid.box.low, grid.box.high, (4, len(counts)))
    corners = np.array(list(product(*(knots.tolist() for knots in grid.knots))))
    for point in [*inside, *corners[:: max(len(corners) // 4, 1)]]:
        assert abs(exact(graph, point)[0] - interpolated(grid, values, point)) <= Fraction(moved)


def test_several_outputs_share_the_gates() -> None:
    grid = grid_on(box_of((0.0, 1.0), (0.0, 1.0)), (4, 4))
    rng = np.random.default_rng(0)
    values = rng.normal(size=(25, 3))
    graph, moved = interpolant(grid, values)
    alone, _ = interpolant(grid, values[:, :1])
    assert _gates(graph) == _gates(alone)
    point = [0.3, 0.71]
    for column in range(3):
        wanted = interpolated(grid, values[:, column], point)
        assert abs(exact(graph, point)[column] - wanted) <= Fraction(moved)


def _gates(graph) -> int:
    return sum(node.size for node in graph.nodes if isinstance(node, Relu | Minimum))


@pytest.mark.parametrize(("counts", "most"), [((20,), 19), ((12, 12), 11 + 11 + 143 + 23), ((5, 5, 5), None)])
def test_one_gate_for_each_node_and_few_more(counts, most) -> None:
    grid = grid_on(box_of(*[(0.0, 1.0)] * len(counts)), counts)
    graph, _ = interpolant(grid, np.random.default_rng(0).normal(size=(grid.nodes, 1)))
    assert _gates(graph) == most if most else _gates(graph) <= 1.5 * grid.nodes


def test_terms_are_left_out_within_what_is_spare() -> None:
    grid = grid_on(box_of((0.0, 1.0), (0.0, 1.0)), (8, 8))
    x, y = grid.points.T
    values = (x * y + 1e-6 * np.sin(50.0 * x * y))[:, None]
    full, _ = interpolant(grid, values)
    short, moved = interpolant(grid, values, 1e-2)
    assert _gates(short) < _gates(full) / 2
    assert moved <= 1e-2
    for point in np.random.default_rng(0).uniform(size=(20, 2)):
        assert abs(exact(short, point)[0] - interpolated(grid, values, point)) <= Fraction(moved)


def test_grids_stay_inside_and_say_how_far_off_they_are() -> None:
    for low, high in [(0.0, 1.0), (-1e-3, 1e9), (1e6, 1e6 + 1.0), (0.1, 0.3)]:
        grid = grid_on(box_of((low, high)), (7,))
        for index, knot in enumerate(grid.knots[0].tolist()):
            place = Fraction(float(grid.scale[0])) * Fraction(knot) + Fraction(float(grid.offset[0]))
            assert abs(place - index) <= Fraction(float(grid.drift[0]))
            assert 0 <= place <= 7
        assert (grid.knots[0][0], grid.knots[0][-1]) == (low, high)
    with pytest.raises(DomainError, match="too thin for 100 steps"):
        grid_on(box_of((1.0, 1.0 + 1e-15)), (100,))


# The constants. E |x - v| over a simplex, from the definition, for fractions u.


def mean_distance(u, steps, distance) -> float:
    order = np.argsort(-u)
    vertex = np.zeros(len(u))
    weights = -np.diff(np.concatenate([[1.0], u[order], [0.0]]))
    total = weights[0] * distance((vertex - u) * steps)
    for axis, weight in zip(order, weights[1:], strict=True):
        vertex[axis] = 1.0
        total += weight * distance((vertex - u) * steps)
    return float(total)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("norm", ["1", "2", "inf"])
def test_lipschitz_constants_hold_and_are_attained(dimension, norm) -> None:
    rng = np.random.default_rng(dimension)
    equal = norm == "inf"
    steps = np.ones(dimension) if equal else rng.uniform(0.5, 2.0, dimension)
    constants = rng.uniform(0.5, 2.0, dimension) if norm == "1" else np.full(dimension, 1.7)
    stated = Lipschitz(constants, norm)
    bound = stated.bound(steps)
    samples = [mean_distance(u, steps, stated.distance) for u in rng.uniform(size=(3000, dimension))]
    assert max(samples) <= bound
    best = worst_fractions(dimension) if norm == "inf" else np.full(dimension, 0.5)
    assert mean_distance(best, steps, stated.distance) == pytest.approx(bound, rel=1e-9)


def worst_fractions(dimension: int):
    """Where the mean distance in the inf-norm is largest, by the derivation."""
    m, odd = divmod(dimension, 2)
    if odd:
        return np.arange(1, dimension + 1) / (dimension + 1)
    scale = 2 * m**2 + 4 * m + 1
    p, q = m * (m + 2) / scale, (m**2 + 3 * m + 1) / scale
    return np.concatenate([p * np.arange(1, m + 1) / m, q + (1.0 - q) * np.arange(m) / m])


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5, 6, 7, 8])
def test_the_constant_of_the_largest_coordinate(dimension) -> None:
    """The least loss over all numbers a and b of intervals below and above the middle one, by fine search."""
    p, q = np.meshgrid(np.linspace(0.0, 0.5, 401), np.linspace(0.5, 1.0, 401))
    least = math.inf
    for a in range(dimension + 1):
        b = dimension - a
        loss = ((1.0 - p) ** 2 + q**2 - 0.5) / 2.0 - p * (q - p)
        loss = loss + (p**2 / (2 * a) if a else np.where(p > 0.0, np.inf, 0.0))
        loss = loss + ((1.0 - q) ** 2 / (2 * b) if b else np.where(q < 1.0, np.inf, 0.0))
        least = min(least, float(loss[p >= 1.0 - q - 1e-12].min()))
    assert 0.75 - least <= largest_coordinate_constant(dimension) + 1e-12
    assert largest_coordinate_constant(dimension) <= 0.75 - least + 1e-5


def test_the_first_constants_of_the_largest_coordinate() -> None:
    assert [largest_coordinate_constant(d) for d in (0, 1, 2, 3, 4)] == [0.0, 0.5, 4 / 7, 0.625, 11 / 17]
    assert largest_coordinate_constant(10**6) < 0.75


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["spectral", "entries"])
def test_hessian_constants_hold_and_are_attained(dimension, kind) -> None:
    """f = x' M x / 2, in the middle of a cell and elsewhere."""
    rng = np.random.default_rng(dimension)
    steps = rng.uniform(0.5, 2.0, dimension)
    bounds = rng.uniform(0.0, 1.0, (dimension, dimension))
    matrix = 1.3 * np.eye(dimension) if kind == "spectral" else bounds + bounds.T
    stated = Hessian(None, 1.3, dimension) if kind == "spectral" else Hessian(matrix, 0.0, dimension)

    def gap(u, hessian) -> float:
        f = lambda v: 0.5 * (v @ hessian @ v)  # noqa: E731
        return abs(f(u * steps) - mean_distance(u, steps, lambda v: f(v + u * steps)))

    assert gap(np.full(dimension, 0.5), matrix) == pytest.approx(stated.bound(steps), rel=1e-12)
    for u in rng.uniform(size=(500, dimension)):
        signs = rng.choice([-1.0, 1.0], (dimension, dimension))
        other = matrix if kind == "spectral" else np.triu(signs * matrix) + np.triu(signs * matrix, 1).T
        assert gap(u, other) <= stated.bound(steps) * (1.0 + 1e-12)


@pytest.mark.parametrize(
    "stated",
    [
        Lipschitz(np.array([3.0, 1.0]), "1"),
        Lipschitz(np.array([1.0, 1.0]), "2"),
        Lipschitz(np.array([1.0, 1.0]), "inf"),
        Hessian(None, 2.0, 2),
        Hessian(np.array([[4.0, 1.0], [1.0, 0.5]]), 0.0, 2),
        Hessian(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.0, 2),
        Hessian(np.array([[1.0, 0.0], [0.0, 0.0]]), 0.0, 2),
    ],
)
def test_no_smaller_grid_of_any_proportions_would_do(stated) -> None:
    box, target = box_of((0.0, 1.0), (0.0, 2.0)), 0.05
    counts = fewest_steps(box, stated, target, 10**6)
    bound = lambda a, b: stated.bound(np.array([1.0 / a, 2.0 / b]) * (1.0 + 1e-11))  # noqa: E731
    assert bound(*counts) <= target
    nodes = math.prod(count + 1 for count in counts)
    fewest = min((a + 1) * (b + 1) for a in range(1, 200) for b in range(1, 200) if bound(a, b) <= target)
    assert fewest <= nodes <= 1.05 * fewest + 2


def test_too_many_nodes_are_refused_with_what_can_be_met() -> None:
    box, stated = box_of(*[(0.0, 1.0)] * 4), Lipschitz(np.ones(4), "2")
    with pytest.raises(UnreachableError, match="nodes is needed, and at most 1000 are allowed") as refusal:
        fewest_steps(box, stated, 1e-3, 1000)
    counts = fewest_steps(box, stated, refusal.value.smallest, 1000)
    assert math.prod(count + 1 for count in counts) <= 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of lipschitz .* and hessian"),
        ({"lipschitz": 1.0, "hessian": 1.0}, "exactly one"),
        ({"lipschitz": -1.0}, "finite and not negative"),
        ({"lipschitz": np.inf}, "finite and not negative"),
        ({"lipschitz": "a"}, "real numbers"),
        ({"lipschitz": [1.0]}, r"shape \(1,\); it needs one number, or 2"),
        ({"lipschitz": 1.0, "norm": 3}, "norm is 3"),
        ({"hessian": [[1.0, 2.0], [3.0, 1.0]]}, "symmetric"),
        ({"hessian": [1.0, 2.0]}, "symmetric"),
    ],
)
def test_malformed_statements_are_refused(given, message) -> None:
    stated = {"lipschitz": None, "hessian": None, "norm": 2, **given}
    with pytest.raises(TargetError, match=message):
        as_smoothness(stated["lipschitz"], stated["hessian"], stated["norm"], 2)
