"""Sums of coefficients that several gates share: the gates of one argument switch in order, so that their slopes do not
take every value at once. Groups of gates are given as rows, of which one holds at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval, add, linear_image
from headsmith.core.rounding import FLOAT64, magnitude_product, upper

VERTEX_LIMIT = 4096
"""How many combinations of extreme slopes are looked at jointly."""


@dataclass(frozen=True, eq=False)
class Collected:
    """Coefficients base + (one row of each group), over some later or earlier nodes."""

    base: Array
    groups: list[Array]

    def joint(self) -> tuple[Array, list[Array]]:
        """All combinations of rows, as long as they are few; the groups that did not fit come back as they are."""
        rows, rest = self.base[None, :], sorted(self.groups, key=len)
        while rest and len(rows) * len(rest[0]) <= VERTEX_LIMIT:
            rows = (rows[:, None, :] + rest.pop(0)[None, :, :]).reshape(-1, len(self.base))
        return rows, rest

    def rounding(self) -> Array:
        """Bound of the rounding in any collected coefficient: each is a sum of products of two weights."""
        size, count = np.abs(self.base), 8
        for group in self.groups:
            # A group's rows are prefixes: their differences are its members.
            size = size + np.abs(group[0]) + np.abs(np.diff(group, axis=0)).sum(axis=0)
            count += 2 * len(group)
        return np.asarray(upper(FLOAT64.gamma(count) * size, count))


def hull(collected: Collected, later: Interval) -> Interval:
    """The hull over all vertices of coefficients @ later; groups beyond the limit are taken apart."""
    rows, rest = collected.joint()
    total = _extremes(rows, later)
    for group in rest:
        total = add(total, _extremes(group, later))
    return total.inflated(magnitude_product(collected.rounding()[None, :], later.magnitude)[0])


def _extremes(rows: Array, later: Interval) -> Interval:
    image = linear_image(rows, later)
    return Interval(image.low.min(axis=0), image.high.max(axis=0))


def largest_sum(collected: Collected, sizes: Array) -> float:
    """The largest |coefficients| @ sizes over all vertices, rounded up."""
    rows, rest = collected.joint()
    total = float(magnitude_product(rows, sizes).max())
    for group in rest:
        total += float(magnitude_product(group, sizes).max())
    total += float(magnitude_product(collected.rounding()[None, :], sizes)[0])
    return float(upper(total, len(rest) + 4))
