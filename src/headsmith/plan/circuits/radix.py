"""Depth against gates: a symmetric fold may split each level into any number of cells.

A level with radix b costs b - 1 parallel gates and multiplies the number of cells by b. So N cells at depth D cost
sum (b_t - 1) gates with prod b_t >= N. All radices 2 is the deepest choice; D = 1 is the shallow net with N - 1 gates.
"""

from __future__ import annotations

import math

import numpy as np

from headsmith.core.arrays import Array

MOST_CELLS = 1e15
"""Beyond this no split is proven, in any format."""


def radices(cells: float, max_depth: int | None = None) -> list[tuple[int, ...]]:
    """Splits into at least `cells` cells, Pareto-optimal in (gates, depth), fewest gates first.

    For a given depth and sum the product is largest when the radices differ by at most one, so those are the only
    candidates.
    """
    if cells <= 1.0:
        return [()]
    found: list[tuple[int, ...]] = []
    if cells > MOST_CELLS:
        return []
    deepest = math.ceil(math.log2(cells) - 1e-12)
    for levels in range(1, deepest + 1):
        split = _balanced(cells, levels)
        if not found or sum(split) - levels < sum(found[-1]) - len(found[-1]):
            found.append(split)
    return [split for split in reversed(found) if max_depth is None or len(split) <= max_depth]


def _balanced(cells: float, levels: int) -> tuple[int, ...]:
    small = max(int(cells ** (1.0 / levels)), 1)
    while small > 1 and small**levels >= cells:
        small -= 1
    for large in range(levels + 1):
        if small ** (levels - large) * (small + 1) ** large >= cells:
            break
    return (small,) * (levels - large) + (small + 1,) * large


def cells_of(split: tuple[int, ...]) -> int:
    """The number of cells of a split."""
    return math.prod(split)


def fold_signs(radix: int) -> Array:
    """2 (-1)^i for i = 1..radix-1: z + sum_i 2 (-1)^i max(z - i h, 0) runs up and down between 0 and h."""
    return 2.0 * np.where(np.arange(1, radix) % 2 == 0, 1.0, -1.0)
