"""The vertices of polygons in the order in which their edges run."""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import Indices
from headsmith.lab.regions.complex import FIRST, SECOND, Complex, members


def loop(complex: Complex, face: int) -> list[int]:
    """The vertices of a face of dimension 2, going round."""
    _, edges = members(complex, 2, np.array([face]))
    beside: dict[int, list[int]] = {}
    for u, v in complex.face[1][edges, FIRST : SECOND + 1].tolist():
        beside.setdefault(u, []).append(v)
        beside.setdefault(v, []).append(u)
    here = next(iter(beside))
    found, following = [here], beside[here][0]
    while following != found[0]:
        found.append(following)
        here, following = following, next(each for each in beside[following] if each != found[-2])
    return found


def polygons(complex: Complex) -> tuple[Indices, Indices]:
    """The vertices of all cells of a complex in the plane, anticlockwise: (cell, vertex)."""
    owner, edges = members(complex, 2)
    sizes = np.bincount(owner, minlength=len(complex))
    ends = complex.face[1][edges, FIRST : SECOND + 1]
    # Two half-edges for each edge of each cell: 2i leaves its first end, 2i + 1 its second. A half-edge is followed by
    # the one of the other edge of the same cell that leaves the vertex where it arrives.
    leaves = ends.ravel()
    order = np.lexsort([leaves, owner.repeat(2)])
    partner = np.empty(len(order), dtype=np.int64)
    partner[order[0::2]], partner[order[1::2]] = order[1::2], order[0::2]
    following = partner.reshape(-1, 2)[:, ::-1].ravel()
    start = sizes.cumsum() - sizes
    here, place = 2 * start, start.copy()
    found = np.empty(len(owner), dtype=np.int64)
    for count in range(int(sizes.max(initial=0))):
        going = sizes > count
        found[place[going] + count] = leaves[here[going]]
        here = following[here]
    point = complex.point[found] - complex.point[found[start]][owner]
    after = np.arange(1, len(found) + 1)
    after[start + sizes - 1] = start
    doubled = point[:, 0] * point[after, 1] - point[:, 1] * point[after, 0]
    backwards = (np.bincount(owner, doubled, minlength=len(complex)) < 0)[owner]
    mirror = (2 * start + sizes - 1)[owner] - np.arange(len(found))
    return owner, np.where(backwards, found[mirror], found)
