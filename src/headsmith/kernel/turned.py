"""Rule Turned: a network and its function are compared in other coordinates.

A proof may carry matrices M and K with M K = I, exactly. Then every x of the box is M u for u = K x, and u lies in the
intervals K box. So a bound of |N(M u) - F(M u)| for all u there is one of |N(x) - F(x)| on the box. Gates that read
x + y and x - y cross cells of x and y; in these coordinates they lie along them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import Array, Interval, interval
from .errors import Refused
from .reading import field, items, real


def turned(box: Interval, stored: Any) -> tuple[Array, Interval]:
    """M, and where u lies."""
    size, matrices = len(box.low), []
    for name in ("M", "K"):
        rows = [[real(each) for each in items(row)] for row in items(field(stored, name))]
        if len(rows) != size or any(len(row) != size for row in rows):
            raise Refused(f"coordinates are turned by matrices of {size} rows and columns")
        matrices.append(np.array(rows))
    M, K = matrices
    found = M @ interval(K)
    if not (np.array_equal(found.low, np.eye(size)) and np.array_equal(found.high, np.eye(size))):
        raise Refused("coordinates are turned by matrices that are not exactly inverse to each other")
    return M, (K @ box[:, None])[:, 0]
