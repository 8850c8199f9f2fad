"""Convex cells in one, two or three dimensions, many at a time: arrays of vertices and edges, no object for each cell.

A cell is its vertices and its directed edges. In the plane an edge carries its line, and runs with the cell on its
left; vertices stand in that order, and edge i leaves vertex i. In space an edge carries the faces on its left and on
its right, each seen from outside; a face carries its plane.

Every number that is a double has a bound beside it: a vertex lies within `radius` of `point` (in each coordinate), a
plane's slopes and constant within `slack` of `plane`. What is exact is the combinatorics, and the `code`s: a plane's
code says which two pieces of which level are equal on it (or which end of the box it is); together with the cell's
activation pattern it determines the plane, and the codes of d planes a vertex, as rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headsmith.core.arrays import Array, Indices

Signs = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Pattern = npt.NDArray[np.uint16]

LEVEL_STRIDE = 1 << 40
"""The code of a plane is level * LEVEL_STRIDE + form; those of the box are negative."""


def places(mask: Mask) -> Indices:
    """Where a mask is true."""
    found: Indices = mask.nonzero()[0]
    return found


@dataclass(frozen=True, eq=False)
class Planes:
    """Hyperplanes a . x + c = 0 whose largest slope is 1: rows (a, c), bounds of the errors of every slope and of the
    constant, codes."""

    plane: Array
    slack: Array
    code: Indices

    def plus(self, plane: Array, slack: Array, code: Indices) -> Planes:
        return Planes(
            np.concatenate([self.plane, plane]),
            np.concatenate([self.slack, slack]),
            np.concatenate([self.code, code]),
        )

    def taken(self, rows: Indices) -> Planes:
        return Planes(self.plane[rows], self.slack[rows], self.code[rows])


@dataclass(frozen=True, eq=False)
class Cells:
    """A batch of cells of one dimension d.

    Of each cell: `home`, the row of the maps that hold on it, and `weight`, its share of the work.
    Of each vertex, cell by cell: `cell`, `point` (d), `radius`, `code` (d).
    Of each edge: `tail` and `head` (vertices), and `side` (d - 1): the row of its line among the planes (d = 2), or its
    left and right faces (d = 3). Of each face: `face`, the row of its plane.
    """

    home: Indices
    weight: Array
    cell: Indices
    point: Array
    radius: Array
    code: Indices
    tail: Indices
    head: Indices
    side: Indices
    face: Indices
    planes: Planes

    def __len__(self) -> int:
        return len(self.home)

    @property
    def dimension(self) -> int:
        return int(self.point.shape[1])

    @property
    def start(self) -> Indices:
        """The first vertex of each cell."""
        return np.searchsorted(self.cell, np.arange(len(self.home)))

    def side_planes(self, edges: Indices) -> Indices:
        """The rows of the planes that meet in each edge, (edges, d - 1)."""
        side = self.side[edges]
        return self.face[side] if self.dimension == 3 else side


@dataclass(frozen=True, eq=False)
class Fresh:
    """The vertices that a cut adds, in the order of the edges that they lie on, to be numbered after the old ones."""

    edge: Indices
    point: Array
    radius: Array
    code: Indices


@dataclass(frozen=True, eq=False)
class Cut:
    """What cuts what: the cells that are cut (a mask), the rows of their planes, and the signs of the vertices.

    `plane` has one row for each cell that is cut. Signs of vertices of other cells are zero.
    """

    chosen: Mask
    plane: Indices
    signs: Signs
    fresh: Fresh


def box_cells(low: Array, high: Array) -> Cells:
    """The box as one cell; its planes are x_i = low_i and x_i = high_i, with codes -1 - 2i and -2 - 2i."""
    d = len(low)
    corners = np.array(np.meshgrid(*[[0, 1]] * d, indexing="ij")).reshape(d, -1).T
    if d == 2:
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    ends = np.stack([low, high])
    plane = np.zeros((2 * d, d + 1))
    plane[np.arange(2 * d), np.arange(2 * d) // 2] = 1.0
    plane[:, d] = -ends.T.ravel()
    tail, head, side = _box_edges(corners)
    return Cells(
        home=np.zeros(1, dtype=np.int64),
        weight=np.ones(1),
        cell=np.zeros(len(corners), dtype=np.int64),
        point=ends[corners, np.arange(d)],
        radius=np.zeros(len(corners)),
        code=-1 - 2 * np.arange(d) - corners,
        tail=tail,
        head=head,
        side=side,
        face=np.arange(2 * d if d == 3 else 0),
        planes=Planes(plane, np.zeros((2 * d, 2)), -1 - np.arange(2 * d)),
    )


def empty_cells(dimension: int, planes: Planes) -> Cells:
    """No cells."""
    none = np.zeros(0, dtype=np.int64)
    sides, points = np.zeros((0, dimension - 1), dtype=np.int64), np.zeros((0, dimension))
    codes = np.zeros((0, dimension), dtype=np.int64)
    return Cells(none, np.zeros(0), none, points, np.zeros(0), codes, none, none, sides, none, planes)


def _box_edges(corners: Indices) -> tuple[Indices, Indices, Indices]:
    """Edges of the unit cube in 1, 2, 3 dimensions; plane 2i + c is x_i = c."""
    d = corners.shape[1]
    if d == 1:
        return np.array([0]), np.array([1]), np.zeros((1, 0), dtype=np.int64)
    if d == 2:
        return np.arange(4), np.array([1, 2, 3, 0]), np.array([[2], [1], [3], [0]])
    tail, head, side = [], [], []
    number = np.array([4, 2, 1])  # corner c is row 4 c_0 + 2 c_1 + c_2
    for axis in range(3):
        # Along `axis`, at the ends p and q of the two others in cyclic order. A reflection, p to 1 - p or q to 1 - q,
        # swaps left and right.
        first, second = (axis + 1) % 3, (axis + 2) % 3
        for p in (0, 1):
            for q in (0, 1):
                at = p * number[first] + q * number[second]
                tail.append(at)
                head.append(at + number[axis])
                faces = (2 * first + p, 2 * second + q)
                side.append(faces if p == q else faces[::-1])
    return np.array(tail), np.array(head), np.array(side)


def take(cells: Cells, chosen: Mask) -> Cells:
    """Some of the cells."""
    number = chosen.cumsum() - 1
    vertices = places(chosen[cells.cell])
    place = np.empty(len(cells.cell), dtype=np.int64)
    place[vertices] = np.arange(len(vertices))
    edges = vertices if cells.dimension == 2 else places(chosen[cells.cell[cells.tail]])
    side, face = cells.side[edges], cells.face
    if cells.dimension == 3:
        used, side = _used(side, len(face))
        face = face[used]
    return replace(
        cells,
        home=cells.home[chosen],
        weight=cells.weight[chosen],
        cell=number[cells.cell[vertices]],
        point=cells.point[vertices],
        radius=cells.radius[vertices],
        code=cells.code[vertices],
        tail=place[cells.tail[edges]],
        head=place[cells.head[edges]],
        side=side,
        face=face,
    )


def _used(numbers: Indices, count: int) -> tuple[Indices, Indices]:
    """The numbers below `count` that occur, and `numbers` as places among them."""
    occurs = np.zeros(count, dtype=np.bool_)
    occurs[numbers] = True
    return places(occurs), (np.cumsum(occurs) - 1)[numbers]


def compact(cells: Cells) -> Cells:
    """The same cells without planes that none of them uses."""
    if cells.dimension == 1:
        return replace(cells, planes=cells.planes.taken(np.zeros(0, dtype=np.int64)))
    rows = cells.face if cells.dimension == 3 else cells.side
    used, rows = _used(rows, len(cells.planes.code))
    planes = cells.planes.taken(used)
    return (
        replace(cells, planes=planes, face=rows) if cells.dimension == 3 else replace(cells, planes=planes, side=rows)
    )


def join(parts: Sequence[Cells]) -> Cells:
    """Batches one after the other; those of one table of planes go on sharing it."""
    if len(parts) == 1:
        return parts[0]
    shared = all(part.planes is parts[0].planes for part in parts)
    cells, vertices, faces, planes = (
        np.cumsum([0, *sizes[:-1]])
        for sizes in (
            [len(part) for part in parts],
            [len(part.cell) for part in parts],
            [len(part.face) for part in parts],
            [0 if shared else len(part.planes.code) for part in parts],
        )
    )
    sides = faces if parts[0].dimension == 3 else planes
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _PLAIN}
    return Cells(
        cell=_shifted([part.cell for part in parts], cells),
        tail=_shifted([part.tail for part in parts], vertices),
        head=_shifted([part.head for part in parts], vertices),
        side=_shifted([part.side for part in parts], sides),
        face=_shifted([part.face for part in parts], planes),
        planes=parts[0].planes if shared else _joined_planes([part.planes for part in parts]),
        **joined,
    )


def _joined_planes(tables: Sequence[Planes]) -> Planes:
    return Planes(
        np.concatenate([table.plane for table in tables]),
        np.concatenate([table.slack for table in tables]),
        np.concatenate([table.code for table in tables]),
    )


_PLAIN = ("home", "weight", "point", "radius", "code")


def _shifted(arrays: Sequence[Indices], offsets: Indices) -> Indices:
    return np.concatenate([array + offset for array, offset in zip(arrays, offsets, strict=True)])
