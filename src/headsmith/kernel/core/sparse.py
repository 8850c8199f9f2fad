"""Matrices by their entries that are not zero: what unrolled convolutions are, and most of what is large.

Entries are in order: row by row, and in a row by columns, no place twice. `values` are numbers, or intervals where the
matrix is one of intervals. A sum has one product for each entry of its row, in any order, and no other.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .errors import Refused, refuse, spend

MOST_WRITTEN, MOST_PAIRS = 1 << 26, 1 << 18  # entries of an array that is written out; products that are held at once
MANY = 32  # with so many columns, zeros cost less than places, if there are at most so many for each entry
Join = Callable[[list[Any]], Any]


class Sparse:
    """A matrix of this shape with these entries, in order."""

    ndim = 2
    __array_ufunc__: Any = None  # so that array @ Sparse comes here

    def __init__(self, shape: tuple[int, int], rows: Any, columns: Any, values: Any) -> None:
        self.shape, self.values = shape, values
        self.rows, self.columns = (each.astype(np.int32, copy=False) for each in (rows, columns))  # below 2^31

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many entries are stored."""
        return len(self.rows)

    @cached_property
    def starts(self) -> Any:
        """Where the entries of each row begin."""
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def counts(self) -> Any:
        """How many entries each row has."""
        return np.bincount(self.rows, minlength=self.shape[0])

    @property
    def most(self) -> int:
        """The most entries of a row."""
        return int(self.counts.max(initial=0))

    @property
    def T(self) -> Any:
        """The transposed matrix."""
        spend(100.0 * self.size)
        parts, order = (self.columns, self.rows, self.values), _order(self.columns)
        return type(self)(self.shape[::-1], *(each[order] for each in parts))

    def changed(self, change: Callable[[Any], Any]) -> Any:
        """The same places, with other values."""
        return type(self)(self.shape, self.rows, self.columns, change(self.values))

    def kept(self, which: Any) -> Any:
        """Those of the entries for which `which` is true."""
        return self if which.all() else type(self)(self.shape, *(each[which] for each in parts_of(self)[1:]))

    def __getitem__(self, index: Any) -> Any:
        """Some of the rows, in any order."""
        picked = np.arange(len(self))[index]
        counts = self.counts[picked]
        entries, rows = _runs(self.starts[picked], counts), np.repeat(np.arange(len(picked)), counts)
        return type(self)((len(picked), self.shape[1]), rows, self.columns[entries], self.values[entries])

    def __matmul__(self, x: Any) -> Any:
        """The product with an array of one or two dimensions, or with what knows how to be multiplied."""
        if not isinstance(x, np.ndarray):
            return NotImplemented
        flat, rows = x.reshape(len(x), -1), np.flatnonzero(self.counts)
        if flat.shape[1] >= MANY and self.shape[0] * self.shape[1] <= min(MANY * self.size, MOST_WRITTEN >> 4):
            return self.written() @ x  # zeros add nothing, and round nothing
        spend(4000.0 * flat.shape[1])
        found = np.zeros((len(self), flat.shape[1]), dtype=np.result_type(self.values, x))
        for place in range(flat.shape[1] if len(rows) else 0):
            found[rows, place] = np.add.reduceat(self.values * flat[self.columns, place], self.starts[rows])
        return found.reshape(len(self), *x.shape[1:])

    def __rmatmul__(self, x: Any) -> Any:
        return (self.T @ x.reshape(-1, x.shape[-1]).T).T.reshape(*x.shape[:-1], self.shape[1])

    def layers(self) -> Iterator[tuple[Any, Any]]:
        """The first entries of all rows, then the second ones and so on: the rows that have one, and which it is."""
        for place in range(self.most):
            rows = np.flatnonzero(self.counts > place)
            yield rows, self.starts[rows] + place

    def packed(self) -> tuple[Any, Any]:
        """The entries of each row and their columns, side by side, with zeros (of the first column) after them."""
        values, columns = np.zeros((len(self), self.most)), np.zeros((len(self), self.most), dtype=np.int64)
        for place, (rows, entries) in enumerate(self.layers()):
            values[rows, place], columns[rows, place] = self.values[entries], self.columns[entries]
        return values, columns

    def written(self) -> Any:
        """The matrix as an array."""
        if self.shape[0] * self.shape[1] > MOST_WRITTEN:
            raise Refused(f"a matrix of shape {self.shape} is too large to write out")
        spend(16.0 * self.shape[0] * self.shape[1])
        found = np.zeros(self.shape)
        found[self.rows, self.columns] = self.values
        return found


def sparse_of(matrix: Any) -> Sparse:
    """The entries of a matrix that are not zero; a vector stands for a diagonal one."""
    if isinstance(matrix, Sparse):
        return matrix
    rows, *rest = np.nonzero(matrix)
    return Sparse((len(matrix), matrix.shape[-1]), rows, rest[0] if rest else rows, matrix[(rows, *rest)])


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


def of_rows(weights: Any, factors: Any) -> Any:
    """For each entry that is stored, the factor of its row."""
    return factors[weights.rows] if isinstance(weights, Sparse) else factors.reshape(-1, *[1] * (weights.ndim - 1))


def multiplied(left: Sparse, right: Sparse, join: Join = np.concatenate) -> Sparse:
    """left @ right, of numbers or intervals, some entries of the left one at a time."""
    left = left.kept(right.counts[left.columns] > 0)
    pairs, shape, found = right.counts[left.columns], (len(left), right.shape[1]), list[Sparse]()
    spend(100.0 * float(pairs.sum()))
    refuse(pairs.sum() > MOST_WRITTEN, f"the product of sparse matrices {left.shape} and {right.shape} is too large")
    cuts = np.searchsorted(np.cumsum(pairs), np.arange(MOST_PAIRS, pairs.sum(), MOST_PAIRS))
    for first, last in zip([0, *cuts], [*cuts, left.size], strict=True):
        counts = pairs[first:last]
        mine, theirs = np.repeat(np.arange(first, last), counts), _runs(right.starts[left.columns[first:last]], counts)
        found.append(summed(shape, left.rows[mine], right.columns[theirs], right.values[theirs] * left.values[mine]))
    return added(found, join)


def added(parts: Sequence[Sparse], join: Join = np.concatenate) -> Sparse:
    """The sum of matrices of one shape, of numbers or intervals."""
    rows, columns = (np.concatenate([getattr(each, name) for each in parts]) for name in ("rows", "columns"))
    return summed(parts[0].shape, rows, columns, join([each.values for each in parts]))


def summed(shape: tuple[int, int], rows: Any, columns: Any, values: Any) -> Sparse:
    """Entries in any order; those of the same place are added up."""
    if np.all((rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1]))):
        return Sparse(shape, rows, columns, values)
    order = _order(columns)
    order = order[_order(rows[order])]
    rows, columns = rows[order], columns[order]
    new = (np.diff(rows, prepend=-1) != 0) | (np.diff(columns, prepend=-1) != 0)
    sums = Sparse((int(new.sum()), len(order)), np.cumsum(new) - 1, order, np.ones(len(order)))
    return Sparse(shape, rows[new], columns[new], sums @ values)


def _order(keys: Any) -> Any:
    """The order in which keys (below 2^31, and as many at most) rise; of equal ones the first comes first."""
    return np.sort(keys.astype(np.int64) * len(keys) + np.arange(len(keys))) % max(len(keys), 1)


def _runs(starts: Any, counts: Any) -> Any:
    """start, start + 1, ..., as many as count says, one run after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
