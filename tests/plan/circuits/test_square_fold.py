"""The folding square, its perspective, and 1/x: closed forms that are attained."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.oracles.exact import exact
from helpers.theorems.fragments import check_form, check_theorem

from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.plan.circuits.radix import cells_of, radices
from headsmith.plan.circuits.reciprocal import reciprocal, reciprocal_proposals
from headsmith.plan.circuits.square import square, square_proposals

SPLITS = [(), (2,), (3,), (2, 2, 2, 2), (3, 4), (2, 3, 5), (8, 2), (7,), (2,) * 9]
INTERVALS = [(0.0, 1.0), (-1.0, 1.0), (-3.0, 5.0), (-7.5, -7.25), (1e4, 1e4 + 1.0), (0.0, 1e-6), (-1e4, 3.0)]


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("interval", INTERVALS, ids=str)
def test_square_theorem(interval: tuple[float, float], split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = square(low, high, split)
    cells = cells_of(split)
    assert fragment.error == pytest.approx((high - low) ** 2 / (8 * cells**2))
    assert (fragment.gates, fragment.depth) == (sum(split) - len(split), len(split))
    check_theorem(fragment, "square", slack=1.001)
    check_form(fragment)


def test_square_interpolates_at_its_knots_exactly() -> None:
    fragment = square(0.0, 1.0, (2, 2, 2), centred=False)
    for i in range(9):
        assert exact(fragment.graph, [i / 8])[0] == (i * i) / 64
    x = np.linspace(0.0, 1.0, 4097)
    gap = fragment(x) - x * x
    assert gap.min() >= -1e-16
    assert gap.max() == pytest.approx(1 / 256)


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 30, 354, 5000])
def test_radices_are_the_best_of_their_depth(cells: int) -> None:
    found = radices(cells)
    costs = [(sum(split) - len(split), len(split)) for split in found]
    assert all(cells_of(split) >= cells for split in found)
    assert all(more[0] > less[0] and more[1] < less[1] for less, more in pairwise(costs))
    if cells > 1:
        assert found[-1] == (cells,)
    for gates, depth in costs:
        # One gate less does not suffice at this depth: the best product of that sum is balanced.
        base, rest = divmod(gates - 1 + depth, max(depth, 1))
        assert not depth or base ** (depth - rest) * (base + 1) ** rest < cells


@pytest.mark.parametrize(
    ("error", "gates", "depth"), [(1e-2, 2, 2), (1e-4, 6, 4), (1e-6, 9, 8), (9.5367431640625e-7 / 2, 9, 9)]
)
def test_square_costs(error: float, gates: int, depth: int) -> None:
    first = square_proposals(0.0, 1.0, error)[0]
    assert (first.gates, first.depth) == (gates, depth)
    made = first.make()
    assert (made.gates, made.depth) == (gates, depth)
    assert made.error <= error


@pytest.mark.parametrize("split", [(2, 2, 2), (3, 4)], ids=str)
def test_every_bias_times_v_gives_the_perspective(split: tuple[int, ...]) -> None:
    fragment = square(0.0, 1.0, split)
    for v in (0.25, 3.0):
        builder = Builder(["x"])
        for node in fragment.graph.nodes[1:]:
            if hasattr(node, "bias"):
                builder.affine([(term.node, term.weights) for term in node.terms], node.bias * v)
            else:
                builder.relu(node.argument)
        x = np.linspace(0.0, v, 3001)
        out = evaluate(builder.graph(fragment.graph.output), x[:, None])[:, 0]
        worst = np.abs(out - x * x / v).max()
        assert worst <= v / (8 * cells_of(split) ** 2) * (1 + 1e-12)
        assert worst >= v / (8 * cells_of(split) ** 2) * 0.999


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize(
    "interval", [(0.1, 1.0), (0.5, 2.0), (-2.0, -0.5), (1e-3, 1e3), (5.0, 5.000001), (-1e4, -1.0)], ids=str
)
def test_reciprocal_theorem(interval: tuple[float, float], split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = reciprocal(low, high, split)
    near, far = sorted((abs(low), abs(high)))
    assert fragment.error == pytest.approx((far - near) ** 2 / (8 * near**2 * far * cells_of(split) ** 2))
    assert (fragment.gates, fragment.depth) == (sum(split) - len(split), len(split))
    check_theorem(fragment, "reciprocal", slack=1.001)
    check_form(fragment)


def test_reciprocal_is_never_wider_than_its_local_bound() -> None:
    fragment = reciprocal(0.01, 1.0, (2,) * 7)
    x = np.linspace(0.01, 1.0, 40001)
    local = 99.0**2 * x / (8 * 128**2)
    assert (np.abs(fragment(x) - 1 / x) <= local + 1e-11).all()


def test_reciprocal_across_zero_is_not_offered() -> None:
    assert reciprocal_proposals(-1.0, 2.0, 1e-3) == []
    assert reciprocal_proposals(0.0, 2.0, 1e-3) == []
