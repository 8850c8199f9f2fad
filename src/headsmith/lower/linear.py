"""Products and sums of weights, as the lowering folds affine maps: dense or sparse matrices, or diagonal vectors."""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import LARGE, Array, Indices, Weights
from headsmith.core.sparse import sparse_array


def product(left: Weights, right: Weights) -> Weights:
    """left @ right; diagonal where both are."""
    if left.ndim == 1:
        return left * right if right.ndim == 1 else left[:, None] * right
    return left * right if right.ndim == 1 else left @ right


def total(left: Weights, right: Weights) -> Weights:
    """left + right; diagonal where both are."""
    if left.ndim == right.ndim:
        return left + right
    return diagonal(left) + right if left.ndim == 1 else left + diagonal(right)


def diagonal(weights: Array) -> Weights:
    """The diagonal matrix; by its entries, unless it is small."""
    return np.diag(weights) if len(weights) ** 2 < LARGE else sparse_array(weights)


def applied(weights: Weights, vector: Array) -> Array:
    """weights @ vector."""
    return weights * vector if weights.ndim == 1 else np.asarray(weights @ vector)


def select_rows(weights: Weights, rows: Indices) -> Weights:
    """Some rows of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(rows) == len(weights) else weights[rows]
    return weights if len(rows) == len(weights) else diagonal(weights)[rows]


def select_columns(weights: Weights, columns: Indices) -> Weights:
    """Some columns of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(columns) == weights.shape[1] else weights[:, columns]
    return weights if len(columns) == len(weights) else diagonal(weights)[:, columns]
