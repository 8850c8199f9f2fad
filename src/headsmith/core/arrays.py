"""Read-only float64 arrays: the only kind that lives inside an intermediate representation."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.core.sparse import SparseArray, sparse_array
from headsmith.kernel.core.sparse import Sparse, parts_of

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Weights = Any
"""A matrix (to, from), as an array or by its entries (core/sparse.py); or a vector, for a diagonal one."""

LARGE, THIN = 1 << 14, 8
"""A matrix of so many entries, of which at most one in so many is not zero, is held by its entries."""


def reals(values: Any) -> Array:
    """`values` as a float64 array; TypeError or ValueError where they are no numbers, or where something would be lost:
    imaginary parts, masks, texts."""
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
    except ValueError:
        raise ValueError("rows of different lengths") from None
    if np.ma.isMaskedArray(values):
        raise TypeError("a masked array: its mask would be lost")
    if array.dtype.kind not in "fiubO" or (array.dtype.kind == "O" and any(map(_is_no_real, array.flat))):
        kinds = {"c": "complex numbers", "U": "text", "S": "text", "O": "something that is no number"}
        raise TypeError(f"{kinds.get(array.dtype.kind, f'an array of {array.dtype}')}, where real numbers are needed")
    return np.asarray(array, dtype=np.float64)


def _is_no_real(item: Any) -> bool:
    return item is None or isinstance(item, complex | np.complexfloating | str | bytes | dict)


def frozen(values: Any) -> Array:
    """`values` as a float64 array that nobody can write, whoever else holds them: a copy, unless it is one already."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and _nobody_writes(values):
        return values
    array = reals(values)
    # Bytes are immutable for good: no flag makes an array on them writeable.
    return np.ndarray(array.shape, np.float64, array.tobytes())


def frozen_weights(weights: Any) -> Weights:
    """Weights that nobody can write; a large matrix that is mostly zeros by its entries."""
    if not isinstance(weights, Sparse):
        array = frozen(weights)
        few = array[:: max(len(array) // 16, 1)] if array.ndim == 2 else array
        if array.ndim != 2 or array.size < LARGE or any(np.count_nonzero(x) * THIN > x.size for x in (few, array)):
            return array
        weights = sparse_array(array)
    if isinstance(weights, SparseArray) and _nobody_writes(weights.values):
        return weights
    rows, columns = (np.ndarray(each.shape, np.int32, each.tobytes()) for each in parts_of(weights)[1:3])
    return SparseArray(weights.shape, rows, columns, frozen(weights.values))


def freeze(
    value: Any,
    *,
    arrays: Iterable[str] = (),
    tables: Iterable[str] = (),
    indices: Iterable[str] = (),
    weighted: Iterable[Any] = (),
) -> None:
    """Make what a new value holds read-only, once for all of it: the fields that are arrays, tables of arrays by name,
    and arrays of indices; and the weights of its parts."""
    for name in arrays:
        object.__setattr__(value, name, frozen(getattr(value, name)))
    for name in tables:
        object.__setattr__(value, name, {key: frozen(array) for key, array in getattr(value, name).items()})
    for name in indices:
        object.__setattr__(value, name, frozen_indices(getattr(value, name)))
    for part in weighted:
        object.__setattr__(part, "weights", frozen_weights(part.weights))


def same_weights(left: Weights, right: Weights) -> bool:
    """Whether two weights are the same, and held alike."""
    parts, others = parts_of(left), parts_of(right)
    return left is right or (len(parts) == len(others) and all(map(np.array_equal, parts, others)))


def _nobody_writes(array: Any) -> bool:
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, bytes)


def locked(values: Any) -> Array:
    """A read-only view of an array that was just computed and that nobody else holds: what `frozen` is, without the
    copy."""
    array = np.asarray(values, dtype=np.float64)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def frozen_indices(values: Any) -> Indices:
    """`values` as a read-only array of indices; numbers that are not integers are refused, never rounded."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"indices must be integers, not {array.dtype}")
    array = array.astype(np.int64).view()
    array.flags.writeable = False
    return array
