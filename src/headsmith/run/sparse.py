"""Products with sparse weights as products of small matrices: rows that read the same columns are taken together.

All channels of a convolution at one pixel read the same window. So the rows of an unrolled convolution fall into groups
of as many rows as there are channels, and each group is a small dense matrix times the columns that it reads: nothing
is multiplied by zero, and the machine's product of matrices does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.kernel.sparse import Sparse

Block = tuple[Indices, Indices, Array]
"""Rows, the columns that they read, and the matrix between the two."""

FEW = 4
"""With fewer rows to a group, or fewer columns to multiply with, sums are taken entry by entry."""


def blocks_of(weights: Sparse) -> list[Block]:
    """The groups of rows that read the same columns; rows without any are left out."""
    groups: dict[bytes, list[int]] = {}
    ends = (weights.starts + weights.counts).tolist()
    for row, (start, end) in enumerate(zip(weights.starts.tolist(), ends, strict=True)):
        if end > start:
            groups.setdefault(weights.columns[start:end].tobytes(), []).append(row)
    found = []
    for rows in groups.values():
        first = weights.starts[rows[0]]
        width = weights.counts[rows[0]]
        places = weights.starts[rows][:, None] + np.arange(width)
        found.append((np.array(rows), weights.columns[first : first + width], weights.values[places]))
    return found


def sparse_product(weights: Sparse, blocks: Sequence[Block], values: Any) -> Any:
    """values (batch, from) times the transposed weights, in the format of the values."""
    if len(values) < FEW or len(blocks) * FEW > len(weights):
        return values @ weights.astype(values.dtype).T
    columns, found = np.ascontiguousarray(values.T), np.zeros((len(weights), len(values)), dtype=values.dtype)
    for rows, read, matrix in blocks:
        found[rows] = matrix.astype(values.dtype, copy=False) @ columns[read]
    return np.ascontiguousarray(found.T)
