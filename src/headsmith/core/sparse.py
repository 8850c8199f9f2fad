"""Sparse matrices that are arrays, as far as anybody can tell: numpy's operations return what they would for the array
that a matrix stands for.

What keeps zeros zero (products, absolute values, comparisons with zero, some of the rows or columns) keeps the places,
and takes time and memory for the entries alone; sums of two have the places of both. Everything else writes the array
out, up to a size. One thing differs: `size` counts the entries that are stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from headsmith.kernel.core.sparse import Sparse, added, multiplied, sparse_of

Block = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]
"""Rows, the columns that they read, and the matrix between the two."""

FEW, MANY = 4, 64
"""With fewer rows to a group, or fewer columns to multiply with, sums are taken entry by entry; with many columns,
groups are looked for."""


class SparseArray(NDArrayOperatorsMixin, Sparse):
    """A matrix by its entries, which numpy takes for an array."""

    @property
    def T(self) -> SparseArray:
        """The transposed matrix, which remembers this one; and is remembered as long as somebody holds it."""
        found: SparseArray | None = self.__dict__.get("_other", lambda: None)()
        if found is None:
            found = sparse_array(Sparse(self.shape, self.rows, self.columns, self.values).T)
            found.__dict__["_other"] = lambda: self
            self.__dict__["_other"] = weakref.ref(found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in vars(self).items() if name != "_other"}

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return self.values.dtype

    def astype(self, dtype: Any, copy: bool = True) -> SparseArray:
        """A copy with numbers of another type."""
        changed: SparseArray = self.changed(lambda values: values.astype(dtype, copy=copy))
        return self if self.dtype == dtype else changed

    def any(self, axis: Any = None, **options: Any) -> Any:
        """Whether any entry differs from zero."""
        return bool(self.values.any()) if axis is None else np.asarray(self).any(axis=axis, **options)

    def max(self, axis: Any = None, **options: Any) -> Any:
        """The largest entries of rows."""
        if axis != 1 or options or not self.shape[1]:
            return np.asarray(self).max(axis=axis, **options)
        found = np.where(self.counts < self.shape[1], 0.0, -np.inf)
        np.maximum.at(found, self.rows, self.values)
        return found

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            return Sparse.__getitem__(self, [index]).written()[0]
        if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], slice) and index[0] == slice(None):
            return self.T[index[1]].T
        return np.asarray(self)[index] if isinstance(index, tuple) else Sparse.__getitem__(self, index)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.written().astype(dtype or self.dtype, copy=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain, others = method == "__call__" and not options, [each for each in inputs if each is not self]
        if plain and ufunc is np.matmul:
            return _product(*inputs)
        if plain and len(others) == 1:
            (other,) = others
            if ufunc in (np.add, np.subtract) and isinstance(other, Sparse):
                return sparse_array(added([inputs[0], inputs[1] if ufunc is np.add else -inputs[1]]))
            if ufunc is np.multiply or (ufunc is np.divide and inputs[0] is self):
                factors = np.broadcast_to(np.asarray(other), self.shape)
                return self.changed(lambda values: ufunc(values, factors[self.rows, self.columns]))
        zero = [0.0 if each is self else each for each in inputs]
        if plain and all(np.ndim(each) == 0 for each in others) and not ufunc(*zero):
            return self.changed(lambda values: ufunc(*(values if each is self else each for each in inputs)))
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Sparse) else x for x in inputs), **options)


def sparse_array(matrix: Any) -> SparseArray:
    """The entries of a matrix that are not zero; a vector stands for a diagonal one."""
    found = sparse_of(matrix)
    return (
        found if isinstance(found, SparseArray) else SparseArray(found.shape, found.rows, found.columns, found.values)
    )


def _product(left: Any, right: Any) -> Any:
    if isinstance(left, Sparse) and isinstance(right, Sparse):
        return sparse_array(multiplied(left, right))
    if isinstance(left, Sparse):
        return Sparse.__matmul__(left, np.asarray(right))
    flat = np.asarray(left).reshape(-1, left.shape[-1])
    blocks = blocks_of(right.T) if len(flat) >= MANY else []
    found = sparse_product(right.T, blocks, flat) if blocks else Sparse.__matmul__(right.T, flat.T).T
    return found.reshape(*left.shape[:-1], right.shape[1])


# Products with many vectors -----------------------------------------------------------------------------------------


def blocks_of(weights: Sparse) -> list[Block]:
    """The groups of rows that read the same columns; rows without any are left out.

    All channels of a convolution at one pixel read the same window: a group has as many rows as there are channels, and
    is a small dense matrix times the columns that it reads.
    """
    groups: dict[bytes, list[int]] = {}
    ends = (weights.starts + weights.counts).tolist()
    for row, (start, end) in enumerate(zip(weights.starts.tolist(), ends, strict=True)):
        if end > start:
            groups.setdefault(weights.columns[start:end].tobytes(), []).append(row)
    found = []
    for rows in groups.values():
        first, width = weights.starts[rows[0]], weights.counts[rows[0]]
        places = weights.starts[rows][:, None] + np.arange(width)
        found.append((np.array(rows), weights.columns[first : first + width], weights.values[places]))
    return found


def sparse_product(weights: Sparse, blocks: Sequence[Block], values: Any) -> Any:
    """values (batch, from) times the transposed weights, in the format of the values."""
    if len(values) < FEW or len(blocks) * FEW > len(weights):
        narrow = Sparse.changed(weights, lambda each: each.astype(values.dtype))
        return np.ascontiguousarray(Sparse.__matmul__(narrow, values.T).T)
    columns, found = np.ascontiguousarray(values.T), np.zeros((len(weights), len(values)), dtype=values.dtype)
    for rows, read, matrix in blocks:
        found[rows] = matrix.astype(values.dtype, copy=False) @ columns[read]
    return np.ascontiguousarray(found.T)
