"""Read-only float64 arrays: the only kind that lives inside an intermediate representation."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def frozen(values: Any) -> Array:
    """`values` as a read-only float64 array; no copy where none is needed."""
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
