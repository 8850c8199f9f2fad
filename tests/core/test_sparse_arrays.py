"""A sparse array is the array that it stands for: numpy's operations return the same for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headsmith.core.arrays import LARGE, frozen_weights
from headsmith.core.sparse import SparseArray, blocks_of, sparse_array, sparse_product

OPERATIONS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "itself": lambda a, b, full, rows: a,
    "transposed": lambda a, b, full, rows: a.T,
    "sparse product": lambda a, b, full, rows: a @ b,
    "times an array": lambda a, b, full, rows: a @ full.T,
    "times a vector": lambda a, b, full, rows: a @ full[0],
    "an array times it": lambda a, b, full, rows: full.T @ a,
    "two arrays times it": lambda a, b, full, rows: np.stack([full.T, -full.T]) @ a,
    "absolute": lambda a, b, full, rows: abs(a),
    "negative": lambda a, b, full, rows: -a,
    "sum": lambda a, b, full, rows: a + a * 2.0,
    "difference": lambda a, b, full, rows: a - b.T,
    "plus an array": lambda a, b, full, rows: full + a,
    "halved": lambda a, b, full, rows: a / 2.0,
    "scaled rows": lambda a, b, full, rows: full[:, :1] * a,
    "scaled columns": lambda a, b, full, rows: a * full[0],
    "entry by entry": lambda a, b, full, rows: a * full,
    "zero or not": lambda a, b, full, rows: a == 0.0,
    "positive": lambda a, b, full, rows: a > 0.0,
    "clipped": lambda a, b, full, rows: np.maximum(a, 0.0),
    "finite": lambda a, b, full, rows: np.isfinite(a),
    "rows": lambda a, b, full, rows: a[rows],
    "columns": lambda a, b, full, rows: a[:, rows],
    "a slice": lambda a, b, full, rows: a[1:],
    "a row": lambda a, b, full, rows: a[1],
    "a column": lambda a, b, full, rows: a[:, 1],
    "some entries": lambda a, b, full, rows: a[rows, 0],
    "largest": lambda a, b, full, rows: a.max(axis=1),
    "any": lambda a, b, full, rows: np.any(a),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_the_array(name: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        size = int(random.integers(2, 9))
        left, right, full = random.integers(-3, 4, (3, size, size)) * np.where(
            random.random((3, size, size)) < 0.4, 1.0, 0.0
        )
        rows = random.integers(0, size, 4)
        found = OPERATIONS[name](sparse_array(left), sparse_array(right), full, rows)
        np.testing.assert_array_equal(np.asarray(found), OPERATIONS[name](left, right, full, rows))


def test_what_keeps_zeros_keeps_the_places() -> None:
    """Weights of a convolution are never written out by products, sums, rows, columns and absolute values."""
    whole = sparse_array(np.diag(np.arange(1.0, 9.0)))
    others = (whole.T, whole @ whole, abs(whole), -whole, whole + whole, whole * np.ones(8), whole[2:], whole[:, :3])
    assert all(isinstance(each, SparseArray) and each.size <= 8 for each in others)


def test_large_matrices_that_are_mostly_zeros_are_sparse() -> None:
    side = round(LARGE**0.5)
    assert isinstance(frozen_weights(np.eye(side)), SparseArray)
    assert isinstance(frozen_weights(np.eye(side - 1)), np.ndarray)
    assert isinstance(frozen_weights(np.ones((side, side))), np.ndarray)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_with_the_same_columns_are_multiplied_together(dtype: str) -> None:
    random = np.random.default_rng(0)
    matrix = np.kron(random.random((12, 10)) < 0.3, np.ones((4, 1))) * random.integers(-3, 4, (48, 10))
    weights, values = sparse_array(matrix), random.integers(-3, 4, (7, 10)).astype(dtype)
    found = sparse_product(weights, blocks_of(weights), values)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values @ matrix.T)
