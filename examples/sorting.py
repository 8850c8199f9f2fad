"""Sorting five numbers: a sorting network, in which a comparison of two numbers is one head."""

import numpy as np
from show import show

import headsmith as hs


def ascending(a, b, c, d, e):  # type: ignore[no-untyped-def]
    return hs.sort([a, b, c, d, e])


model = hs.compile(ascending, dict.fromkeys("abcde", (0, 10)), error=1e-6)
print("3 1 4 1 5 sorted:", np.round(model([3, 1, 4, 1, 5]), 6))
show(model)
