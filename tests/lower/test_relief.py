"""Scales of gates follow the kernel's gains in the 2-norm, and layers that matter less get smaller ones."""

from __future__ import annotations

import numpy as np
import pytest
from kernel.test_norms import circuit_of, gates_of

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.norms import norms_of
from headsmith.lower.scales import NONE, Relief, _factors
from headsmith.plan.evidence.norms import _descended, _layers, _objective, find_norms


def test_factors_keep_the_sum_and_make_the_largest_score_smallest() -> None:
    """sum of c / f stays what it was, no f is beyond the limit, and layers below the limit have equal scores."""
    shares, sizes = np.array([8.8, 4.4, 0.8]), np.array([1.0, 36.0, 1300.0])
    found = _factors(shares, sizes, 2.0)
    assert np.sum(shares / found) == pytest.approx(np.sum(shares))
    assert found.max() <= 2.0
    assert np.max(found * sizes) < 0.15 * sizes.max()
    below = found < 2.0 - 1e-9
    assert np.ptp((found * sizes)[below]) < 1e-6
    assert _factors(shares, np.ones(3), 2.0) == pytest.approx(np.ones(3))


def test_without_norms_nothing_changes() -> None:
    """No relief is a factor of one in every layer."""
    assert [NONE.of(layer) for layer in range(3)] == [1.0, 1.0, 1.0]
    assert Relief(0.5, (2.0, 0.1)).of(1) == pytest.approx(0.05)


def test_the_gradient_of_the_objective_is_its_slope() -> None:
    """Differences of the objective agree with the gradient, diagonal by diagonal."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=(4, 4)) / 2.0 for _ in range(3)]
    place = [np.log(random.uniform(0.5, 1.0, size=4)) - 2.0 * layer for layer in range(3)]
    value, slopes = _objective(weights, place)
    assert np.isfinite(value)
    for layer in range(3):
        for gate in range(4):
            moved = [each.copy() for each in place]
            moved[layer][gate] += 1e-6
            assert (_objective(weights, moved)[0] - value) / 1e-6 == pytest.approx(slopes[layer][gate], abs=1e-5)


def test_improved_diagonals_are_better_and_hold() -> None:
    """Descent makes the gain of twelve layers at least three times smaller, and the kernel agrees."""
    random = np.random.default_rng(1)
    weights = [random.normal(size=(12, 12)) * np.sqrt(2.0 / 12) for _ in range(13)]
    graph, edges = circuit_of(weights, [Interval(np.zeros(12), np.ones(12))] * 13)
    better = find_norms(graph, edges, gates_of(graph))
    layers = _layers(graph, edges, gates_of(graph))
    assert layers is not None
    closed = [np.zeros(12)]
    matrix = np.eye(12)
    for rows in layers[:-1]:
        arriving = rows @ matrix @ rows.T
        pull = 2.0 / (np.linalg.eigvalsh(arriving)[-1] * (1.0 + 1e-6))
        closed.append(np.full(12, np.log(pull)))
        matrix = np.linalg.inv(pull * np.eye(12) - pull * arriving * pull / 4.0)
    found = _objective(layers, [np.log(each.diagonal) for each in better.values()])[0]
    assert found < _objective(layers, closed)[0] - np.log(3.0)
    assert _objective(layers, _descended(layers, closed, 20))[0] <= _objective(layers, closed)[0]
    known = norms_of(graph, edges, better.keys(), lambda number, _: better[number])
    gain = np.linalg.norm(known.heights[graph.output].value) * sum(
        np.sqrt(each.sum()) for each in known.weights.values()
    )
    assert np.log(gain) == pytest.approx(found, abs=1e-4)
