"""Make one of the cells that a new largest piece takes over.

On a cell of the complex that a unit began with, the largest of its pieces is convex, so where the next piece is larger
is a convex set: one cell, though it was cut from several. The same holds on every face of that complex, its carriers.
So of the faces on which the next piece is larger, those of the dimension of their carrier become one, and those of
lower dimension, which lie inside of it, vanish.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Indices
from headsmith.lab.regions.complex import CARRIER, FIRST, SECOND, Complex, Mask, members

DIMENSION = 1 << 40
"""A carrier is its dimension times this, plus its number."""


def carried(complex: Complex) -> Complex:
    """The complex with each face as its own carrier."""
    face = tuple(each.copy() for each in complex.face)
    for k, each in enumerate(face):
        each[:, CARRIER] = k * DIMENSION + np.arange(len(each))
    return replace(complex, face=face)


def merged(complex: Complex, positive: list[Mask]) -> tuple[Complex, Indices]:
    """The positive faces of each carrier merged into one, and which cell each cell was (one of several, if merged)."""
    face, lists, kept = [], list(complex.list), np.zeros(0, dtype=np.int64)
    number = np.zeros(0, dtype=np.int64)
    for k, each in enumerate(complex.face):
        carrier = each[:, CARRIER]
        own = positive[k] & (carrier // DIMENSION == k)
        # The first face of every carrier stands for all of them.
        chosen = np.flatnonzero(own)
        _, first, group = np.unique(carrier[chosen], return_index=True, return_inverse=True)
        stands = np.where(positive[k], -1, np.arange(len(each)))
        stands[chosen] = chosen[first[group.reshape(-1)]]
        kept = np.flatnonzero(stands == np.arange(len(each)))
        place = np.full(len(each), -1)
        place[kept] = np.arange(len(kept))
        rows = each[kept]
        if k:
            owner, member = members(complex, k)
            owner, member = stands[owner], number[member]
            here = (owner >= 0) & (member >= 0)
            pairs = np.unique(np.stack([place[owner[here]], member[here]], axis=1), axis=0)
            if k == 1:
                rows[:, FIRST : SECOND + 1] = pairs[:, 1].reshape(-1, 2)
            else:
                rows[:, SECOND] = np.bincount(pairs[:, 0], minlength=len(kept))
                rows[:, FIRST] = rows[:, SECOND].cumsum() - rows[:, SECOND]
                lists[k] = pairs[:, 1].copy()
        face.append(rows)
        number = np.where(stands >= 0, place[stands], -1)
        if k == 0:
            corners = kept
    merged = replace(
        complex, point=complex.point[corners], radius=complex.radius[corners], face=tuple(face), list=tuple(lists)
    )
    return merged, kept
