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
    """`values` as a read-only array of indices."""
    array = np.asarray(values, dtype=np.int64).view()
    array.flags.writeable = False
    return array
