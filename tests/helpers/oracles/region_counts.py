"""What is known of numbers of linear regions, and normal forms that only tests write down."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod
from typing import Any

import numpy as np

from headsmith.core.arrays import Indices
from headsmith.lab.regions.bounds import zaslavsky
from headsmith.lab.regions.counts import _root, _unions, map_labels
from headsmith.lab.regions.levels import Level
from headsmith.lab.regions.result import Regions


def through_origin(hyperplanes: int, dimension: int) -> int:
    """The same for hyperplanes through one point: 2 sum over j < d of C(n - 1, j) (Schläfli 1901)."""
    return 2 * sum(comb(hyperplanes - 1, j) for j in range(dimension)) if hyperplanes else 1


def relu_attainable(widths: Sequence[int], inputs: int) -> int:
    """Montúfar, Pascanu, Cho, Bengio 2014: some network has at least prod floor(n_l / n_0)^n_0 times Zaslavsky's number
    of the last layer; every layer but the last must be at least as wide as the input."""
    *before, last = widths
    if any(width < inputs for width in before):
        return zaslavsky(last, inputs) if not before else 1
    return int(prod((width // inputs) ** inputs for width in before)) * zaslavsky(last, inputs)


def maxout_attainable(rank: int, depth: int, inputs: int) -> int:
    """Montúfar, Pascanu, Cho, Bengio 2014: of `depth` layers as wide as the input, at least k^(L-1) k^n_0."""
    return int(rank ** (depth - 1 + inputs))


def zigzag_regions(pieces: int, depth: int, inputs: int = 1) -> int:
    """Ours: a zigzag of P pieces composed L times in each of d coordinates has (P^L)^d regions, exactly."""
    return int(pieces ** (depth * inputs))


def linear_labels(regions: Regions) -> Indices:
    """A number for each cell, the same for cells of one linear region."""
    parent = list(range(regions.cells))
    for one, other in _unions(regions, map_labels(regions)):
        parent[one] = other
    for cell in range(len(parent)):
        parent[cell] = _root(parent, cell)
    return np.unique(parent, return_inverse=True)[1].astype(np.int64)


def maxout_level(weights: Any, bias: Any, carry: Any = ()) -> Level:
    """max over the rank of weights (rank, units, n) and bias (rank, units)."""
    weights, bias = np.asarray(weights, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    rank, units = bias.shape
    rows = weights.transpose(1, 0, 2).reshape(rank * units, -1)
    unit = np.repeat(np.arange(units), rank)
    return Level(rows, bias.T.ravel(), np.arange(rank * units), unit, np.asarray(carry, dtype=np.int64))
