"""Products with sparse matrices in ONNX, which ONNX Runtime lacks: their entries are gathered into small dense ones.

Rows that read the same columns, such as the channels of a convolution at one pixel, are one small dense matrix. Groups
of the same shape are multiplied together: what they read is gathered, one product of stacks of matrices follows, and
the rows are put in order again. A file holds each entry once, and a place for each group and column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.sparse import Block, blocks_of
from headsmith.export.onnx_builder import OnnxBuilder
from headsmith.kernel.core.sparse import Sparse

MOST_SHAPES = 32
"""With more different shapes, groups are filled up with zeros to powers of two."""


def sparse_times(graph: OnnxBuilder, name: str, weights: Sparse, values: str) -> str:
    """Sparse weights (to, from) times values (batch, token, from): (batch, token, to)."""
    read = graph.op("Reshape", values, graph.whole(-1, weights.shape[1]))
    columns, results, order = graph.op("Transpose", read, perm=[1, 0]), [], []
    for number, groups in enumerate(_stacks(weights)):
        rows, places, matrices = (np.stack([each[part] for each in groups]) for part in range(3))
        gathered = graph.op("Gather", columns, graph.places(f"{name}.places.{number}", places), axis=0)
        found = graph.op("MatMul", graph.number(f"{name}.{number}", matrices), gathered)
        results.append(graph.op("Reshape", found, graph.whole(rows.size, -1)))
        order.append(rows.ravel())
    together = results[0] if len(results) == 1 else graph.op("Concat", *results, axis=0)
    # Rows that only fill up a group have the number -1, and come first.
    after = np.argsort(np.concatenate(order), kind="stable")[-len(weights) :]
    ordered = graph.op("Gather", together, graph.places(f"{name}.order", after), axis=0)
    shape = graph.op("Concat", graph.op("Shape", values, end=2), graph.whole(len(weights)), axis=0)
    return graph.op("Reshape", graph.op("Transpose", ordered, perm=[1, 0]), shape)


def _stacks(weights: Sparse) -> list[list[Block]]:
    """Groups of rows that read the same columns, those of one shape together."""
    empty, none = np.flatnonzero(weights.counts == 0)[:, None], np.zeros(1, dtype=np.int64)
    groups = [*blocks_of(weights), *((row, none, np.zeros((1, 1))) for row in empty)]
    for filled in (False, True):
        stacks: dict[tuple[int, ...], list[Block]] = {}
        for group in groups:
            each = _filled(*group) if filled else group
            stacks.setdefault(each[2].shape, []).append(each)
        if len(stacks) <= MOST_SHAPES:
            break
    return list(stacks.values())


def _filled(rows: Any, columns: Any, matrix: Any) -> Block:
    """Indices and values filled up to equal lengths: what is added is zero times the first column."""
    more = [(0, (1 << (length - 1).bit_length()) - length) for length in matrix.shape]
    return np.pad(rows, more[0], constant_values=-1), np.pad(columns, more[1]), np.pad(matrix, more)
