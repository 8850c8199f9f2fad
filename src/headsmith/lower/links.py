"""Affine maps as the lowering folds them, and how heads and the read-out read and write registers by them.

Weights are dense or sparse matrices, or diagonal vectors. A combination of nodes (registers.py) becomes links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headsmith.core.arrays import LARGE, Array, Indices, Weights
from headsmith.core.sparse import sparse_array
from headsmith.heads.stream import Link

if TYPE_CHECKING:
    from headsmith.lower.registers import Allocation, Combination


def writes(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[Link]:
    """What the given source nodes (with the number of their first head or input) add to each register."""
    return [link for _, link in sourced(allocation, names, sources)]


def sourced(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[tuple[int, Link]]:
    """The same, with the source of each link."""
    found = []
    for register, combinations in allocation.writes.items():
        for combination in combinations:
            for source, weights in combination.parts.items():
                if source in sources and weights.any():
                    found.append((source, Link(names[register], weights, sources[source])))
    return found


def links(allocation: Allocation, names: dict[int, str], combination: Combination, first: int) -> list[Link]:
    """A combination of placed nodes as reads of their registers."""
    found = []
    for number, weights in combination.parts.items():
        home = allocation.homes[number]
        scaled = weights if np.all(home.scale == 1.0) else product(weights, home.scale)
        found.append(Link(names[home.register], scaled, first))
    return found


def constant(allocation: Allocation, combination: Combination) -> Array:
    total = np.array(combination.constant)
    for number, weights in combination.parts.items():
        offset = allocation.homes[number].offset
        if offset.any():
            total = total + applied(weights, offset)
    return total


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
