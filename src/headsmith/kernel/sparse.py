"""Matrices by their entries that are not zero: what unrolled convolutions are, and most of what is large.

A Sparse is the array that it stands for, as far as anybody can tell: numpy's operations return what they would for that
array. What keeps zeros zero (products, absolute values, comparisons, some of the rows) keeps the places, and takes time
and memory for the entries alone; sums of two have the places of both. Everything else writes the array out, up to a
size. (One thing differs: `size` counts the entries that are stored.)

Entries are in order: row by row, and in a row by columns, no place twice. `values` are numbers, or intervals where the
matrix is one of intervals: then it has `changed`, rows, transposes, products and sums (`added`) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .errors import Refused, spend

MOST_WRITTEN, MOST_PAIRS = 1 << 26, 1 << 20  # entries of an array that is written out; products that are held at once
BLOCK, A_LAYER = 32, 1000  # columns that are summed at once; what a step of such a sum costs, in products


class Sparse(NDArrayOperatorsMixin):
    """A matrix of this shape with these entries, in order."""

    ndim = 2

    def __init__(self, shape: tuple[int, int], rows: Any, columns: Any, values: Any) -> None:
        self.shape, self.rows, self.columns, self.values = shape, rows, columns, values

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many entries are stored."""
        return len(self.rows)

    @property
    def dtype(self) -> Any:
        """The type of the numbers."""
        return self.values.dtype

    @cached_property
    def counts(self) -> Any:
        """How many entries each row has."""
        return np.bincount(self.rows, minlength=self.shape[0])

    @cached_property
    def starts(self) -> Any:
        """Where the entries of each row begin."""
        return np.cumsum(self.counts) - self.counts

    @property
    def most(self) -> int:
        """The most entries of a row."""
        return int(self.counts.max(initial=0))

    @cached_property
    def order(self) -> Any:
        """The rows, those with the most entries first."""
        return np.argsort(-self.counts, kind="stable")

    def layers(self) -> Iterator[tuple[int, Any]]:
        """The first entries of all rows, the second ones and so on: how many rows have one, and which it is, in the
        order of `order`."""
        starts, counts = self.starts[self.order], -self.counts[self.order]
        for place in range(self.most):
            rows = int(np.searchsorted(counts, -place))
            yield rows, starts[:rows] + place

    def changed(self, change: Callable[[Any], Any]) -> Sparse:
        """The same places, with other values."""
        return Sparse(self.shape, self.rows, self.columns, change(self.values))

    def kept(self, which: Any) -> Sparse:
        """Some of the entries."""
        return Sparse(self.shape, self.rows[which], self.columns[which], self.values[which])

    def lifted(self, first: int, rows: int) -> Sparse:
        """The same at rows first, first + 1, ... of a taller matrix."""
        return Sparse((rows, self.shape[1]), self.rows + first, self.columns, self.values)

    def packed(self) -> tuple[Any, Any]:
        """The entries of each row and their columns, side by side, with zeros (of the first column) after them."""
        places = np.arange(self.size) - np.repeat(self.starts, self.counts)
        values, columns = np.zeros((len(self), self.most)), np.zeros((len(self), self.most), dtype=np.int64)
        values[self.rows, places], columns[self.rows, places] = self.values, self.columns
        return values, columns

    def astype(self, dtype: Any, copy: bool = True) -> Sparse:
        """The same with numbers of another type."""
        return self if self.dtype == dtype else self.changed(lambda values: values.astype(dtype, copy=copy))

    def any(self, axis: Any = None, **options: Any) -> Any:
        """Whether any entry differs from zero."""
        return bool(self.values.any()) if axis is None else np.asarray(self).any(axis=axis, **options)

    @cached_property
    def T(self) -> Sparse:  # noqa: N802
        """The transposed matrix."""
        order = _order(self.columns)
        found = Sparse((self.shape[1], self.shape[0]), self.columns[order], self.rows[order], self.values[order])
        found.__dict__["T"] = self
        return found

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], slice) and index[0] == slice(None):
            return self.T[index[1]].T
        picked = np.arange(len(self))[index] if not isinstance(index, tuple) else None
        if picked is None or picked.ndim != 1:
            return np.asarray(self)[index]
        counts = self.counts[picked]
        entries = _runs(self.starts[picked], counts)
        rows = np.repeat(np.arange(len(picked)), counts)
        return Sparse((len(picked), self.shape[1]), rows, self.columns[entries], self.values[entries])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.shape[0] * self.shape[1] > MOST_WRITTEN:
            raise Refused(f"a matrix of shape {self.shape} is too large to be written out")
        spend(float(self.shape[0] * self.shape[1]))
        found = np.zeros(self.shape, dtype=dtype or self.dtype)
        found[self.rows, self.columns] = self.values
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = method == "__call__" and not options
        others = [each for each in inputs if each is not self]
        if plain and ufunc is np.matmul:
            return _product(*inputs)
        if plain and len(others) == 1 and isinstance(others[0], Sparse) and ufunc in (np.add, np.subtract):
            left, right = inputs
            return added(self.shape, [left, right if ufunc is np.add else -right])
        if plain and len(others) == 1 and ufunc in (np.multiply, np.divide) and inputs[0] is self:
            factors = np.broadcast_to(np.asarray(others[0]), self.shape)
            return self.changed(lambda values: ufunc(values, factors[self.rows, self.columns]))
        if plain and len(others) == 1 and ufunc is np.multiply:
            return self * others[0]
        if plain and all(np.ndim(each) == 0 for each in others):
            if not ufunc(*(0.0 if each is self else each for each in inputs)):
                return self.changed(lambda values: ufunc(*(values if each is self else each for each in inputs)))
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Sparse) else x for x in inputs), **options)


def sparse_of(matrix: Any) -> Sparse:
    """The entries of a matrix that are not zero; a vector stands for a diagonal one."""
    if isinstance(matrix, Sparse):
        return matrix
    if matrix.ndim == 1:
        places = np.flatnonzero(matrix)
        return Sparse((len(matrix), len(matrix)), places, places, matrix[places])
    rows, columns = np.nonzero(matrix)
    return Sparse(matrix.shape, rows, columns, matrix[rows, columns])


def entrywise(weights: Any, change: Callable[[Any], Any]) -> Any:
    """All entries changed, by what leaves zero as it is."""
    return weights.changed(change) if isinstance(weights, Sparse) else change(weights)


def entries_of(weights: Any) -> Any:
    """The numbers that are stored of weights, all that are not zero among them."""
    return weights.values if isinstance(weights, Sparse) else weights


def parts_of(weights: Any) -> tuple[Any, ...]:
    """The arrays of which weights consist: equal ones make equal weights."""
    if isinstance(weights, Sparse):
        return np.array(weights.shape), weights.rows, weights.columns, weights.values
    return (weights,)


def _runs(starts: Any, counts: Any) -> Any:
    """start, start + 1, ..., as many as count says, one run after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


def _order(keys: Any) -> Any:
    """The order in which keys (all below 2^31, as many at most) rise; of equal ones the first comes first."""
    return np.sort(keys * len(keys) + np.arange(len(keys))) % max(len(keys), 1)


def _product(left: Any, right: Any) -> Any:
    """left @ right, of which one is sparse, or both are."""
    if isinstance(left, Sparse) and isinstance(right, Sparse):
        return multiplied(left, right)
    if isinstance(left, Sparse):
        return _sums(left, np.asarray(right))
    flat = np.asarray(left).reshape(-1, left.shape[-1])
    return _sums(right.T, flat.T).T.reshape(*left.shape[:-1], right.shape[1])


def _sums(matrix: Sparse, x: Any) -> Any:
    """matrix @ x, for an array of one or two dimensions. Every sum has the products of its row's entries, each once."""
    if x.shape[0] != matrix.shape[1]:
        raise ValueError(f"a matrix {matrix.shape} does not multiply an array {x.shape}")
    kind = np.result_type(matrix.values, x)
    flat, found = x.reshape(len(x), -1), np.zeros((len(matrix), x.size // max(len(x), 1)), dtype=kind)
    if kind == np.float64 and (flat.shape[1] < 4 or matrix.most * A_LAYER > matrix.size * flat.shape[1]):
        for place in range(flat.shape[1]):
            terms = matrix.values * flat[matrix.columns, place]
            found[:, place] = np.bincount(matrix.rows, weights=terms, minlength=len(matrix))
        return found.reshape(len(matrix), *x.shape[1:])
    steps = [(rows, matrix.columns[at], matrix.values[at][:, None]) for rows, at in matrix.layers()]
    for first in range(0, flat.shape[1], BLOCK):
        part = np.ascontiguousarray(flat[:, first : first + BLOCK])
        total = np.zeros((len(matrix), part.shape[1]), dtype=kind)
        for rows, columns, values in steps:
            total[:rows] += values * part[columns]
        found[matrix.order, first : first + BLOCK] = total
    return found.reshape(len(matrix), *x.shape[1:])


def multiplied(left: Sparse, right: Sparse, join: Callable[[list[Any]], Any] = np.concatenate) -> Sparse:
    """left @ right, of numbers or intervals, some rows at a time."""
    pairs = right.counts[left.columns]
    spend(100.0 * float(pairs.sum()))
    rows, ends = len(left), np.cumsum(np.bincount(left.rows, weights=pairs, minlength=len(left)))
    cuts = np.searchsorted(ends, np.arange(1.0, ends[-1] / MOST_PAIRS) * MOST_PAIRS) if rows else []
    found = []
    for first, last in zip([0, *cuts], [*cuts, rows], strict=True):
        part = left[first:last]
        counts = right.counts[part.columns]
        mine, theirs = np.repeat(np.arange(part.size), counts), _runs(right.starts[part.columns], counts)
        values = right.values[theirs] * part.values[mine]
        found.append(_summed((rows, right.shape[1]), part.rows[mine] + first, right.columns[theirs], values))
    entries = ([getattr(each, name) for each in found] for name in ("rows", "columns", "values"))
    own, theirs, values = entries
    return Sparse((rows, right.shape[1]), np.concatenate(own), np.concatenate(theirs), join(values))


def added(
    shape: tuple[int, int], parts: Sequence[Sparse], join: Callable[[list[Any]], Any] = np.concatenate
) -> Sparse:
    """The sum of matrices of this shape, of numbers or intervals."""
    rows, columns = (np.concatenate([getattr(each, name) for each in parts]) for name in ("rows", "columns"))
    return _summed(shape, rows, columns, join([each.values for each in parts]))


def renumbered(matrix: Sparse, places: Any, width: int) -> Sparse:
    """The same entries in other columns of a matrix of this width: column k goes to places[k], or away where that is
    -1."""
    rest = matrix.kept(places[matrix.columns] >= 0)
    return _summed((len(matrix), width), rest.rows, places[rest.columns], rest.values)


def _summed(shape: tuple[int, int], rows: Any, columns: Any, values: Any) -> Sparse:
    """Entries in any order; those of the same place are added up."""
    order = _order(columns)
    order = order[_order(rows[order])]
    rows, columns = rows[order], columns[order]
    new = (np.diff(rows, prepend=-1) != 0) | (np.diff(columns, prepend=-1) != 0)
    if new.all():
        return Sparse(shape, rows, columns, values[order])
    sums = Sparse((int(new.sum()), len(order)), np.cumsum(new) - 1, order, np.ones(len(order)))
    return Sparse(shape, rows[new], columns[new], sums @ values)
