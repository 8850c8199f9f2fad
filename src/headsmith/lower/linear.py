"""Products and sums of weights that are dense matrices or diagonal vectors, as the lowering folds affine maps."""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import Array, Indices


def product(left: Array, right: Array) -> Array:
    """left @ right; diagonal where both are."""
    if left.ndim == 1:
        return left * right if right.ndim == 1 else left[:, None] * right
    return left * right if right.ndim == 1 else left @ right


def total(left: Array, right: Array) -> Array:
    """left + right; diagonal where both are."""
    if left.ndim == right.ndim:
        return left + right
    return np.diag(left) + right if left.ndim == 1 else left + np.diag(right)


def applied(weights: Array, vector: Array) -> Array:
    """weights @ vector."""
    return weights * vector if weights.ndim == 1 else np.asarray(weights @ vector)


def select_rows(weights: Array, rows: Indices) -> Array:
    """Some rows of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(rows) == len(weights) else weights[rows]
    return weights if len(rows) == len(weights) else np.diag(weights)[rows]


def select_columns(weights: Array, columns: Indices) -> Array:
    """Some columns of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(columns) == weights.shape[1] else weights[:, columns]
    return weights if len(columns) == len(weights) else np.diag(weights)[:, columns]
