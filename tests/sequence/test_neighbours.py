"""Kernel means and nearest neighbours in context.

Theorem: attention with the scores 2 s q . x - s |x|^2 is the mean of the labels with weights exp(-s |q - x|^2). Where
one example is nearer than the m - 1 others by g in squared distance, that mean is within R (m - 1) e^{-s g} of its
label, for labels in an interval of length R.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headsmith.core.errors import TargetError
from headsmith.sequence import in_context
from headsmith.sequence.neighbours import Neighbours, neighbour_error, scale_for


def squared_distances(X: Any, queries: Any) -> Any:
    return np.square(queries[:, None] - X[None]).sum(axis=2)


def test_two_layers_whatever_the_number_of_examples() -> None:
    few, many = (in_context.kernel_regression(0.4, 3, examples, error=1e-6) for examples in (2, 512))
    assert few.bill.layers == many.bill.layers == 2
    assert few.bill.heads == many.bill.heads == 4
    random = np.random.default_rng(0)
    X, y, queries = random.uniform(-1, 1, (512, 3)), random.uniform(-1, 1, 512), random.uniform(-1, 1, (40, 3))
    for count in (1, 100, 512):
        off = np.abs(many.predict(X[:count], y[:count], queries) - many.exact(X[:count], y[:count], queries))
        assert off.max() <= many.certificate.error <= 1e-6


def test_the_kernel_mean_is_that_of_scikit_learn() -> None:
    from sklearn import neighbors

    random = np.random.default_rng(1)
    X, y, queries = random.uniform(-1, 1, (30, 2)), random.uniform(-1, 1, 30), random.uniform(-1, 1, (20, 2))
    learner = in_context.kernel_regression(0.3, 2, 30, error=1e-6)
    theirs = neighbors.KNeighborsRegressor(30, weights=lambda d: np.exp(-(d**2) / (2 * 0.3**2))).fit(X, y)
    assert np.abs(learner.predict(X, y, queries) - theirs.predict(queries)).max() <= 1.01e-6


def test_the_nearest_neighbour_where_it_is_nearer_by_the_gap() -> None:
    random = np.random.default_rng(2)
    gap, error = 0.02, 1e-4
    learner = in_context.nearest_neighbour(2, 20, gap=gap, error=error)
    seen = 0
    for count in (1, 2, 20):
        X, y = random.uniform(-1, 1, (count, 2)), random.uniform(-1, 1, count)
        queries = random.uniform(-1, 1, (60, 2))
        away = squared_distances(X, queries)
        first = np.sort(away, axis=1)
        clear = np.ones(60, bool) if count == 1 else first[:, 1] - first[:, 0] >= gap
        off = np.abs(learner.predict(X, y, queries) - y[away.argmin(axis=1)])
        assert off[clear].max() <= error
        seen += int(clear.sum())
    assert seen > 90


def test_the_neighbours_error_is_attained() -> None:
    """All other examples exactly g further away, with the label at the other end."""
    for count, scale, gap in ((2, 3.0, 0.5), (9, 10.0, 1.0), (64, 40.0, 0.25)):
        X = np.full((count, 1), np.sqrt(gap))
        X[0] = 0.0
        y = np.ones(count)
        y[0] = -1.0
        off = float(Neighbours(1, scale).predicted(X, y, np.zeros((1, 1)))[0]) + 1.0
        bound = neighbour_error(scale, gap, count, 2.0)
        assert off <= bound <= off * (1.0 + (count - 1) * np.exp(-scale * gap)) * (1.0 + 1e-6)
        assert neighbour_error(scale_for(gap, count, 2.0, 1e-3), gap, count, 2.0) <= 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: in_context.kernel_regression(0.0, 2, 4), "bandwidth is 0.0; it must be a positive finite number"),
        (lambda: in_context.kernel_regression(1e-9, 2, 4), "a bandwidth of 1e-09 makes scores"),
        (lambda: in_context.kernel_regression(1.0, 0, 4), "features is 0; it must be a positive integer"),
        (lambda: in_context.kernel_regression(1.0, 2, 2.5), "examples is 2.5; it must be a positive integer"),
        (lambda: in_context.nearest_neighbour(2, 4, gap=-1.0), "gap is -1.0; it must be a positive finite number"),
    ],
)
def test_what_cannot_be_compiled_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        make()
