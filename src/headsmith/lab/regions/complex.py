"""A polyhedral complex in any dimension d: every vertex, edge, ..., cell once, however many cells share it.

A face of dimension k is its list of faces of dimension k - 1, in no order. Nothing is oriented, so nothing depends on
the dimension. Each face also knows d - k hyperplanes whose intersection it spans (rows of a table), and a home: a cell
that it belonged to when the level began, whose affine forms hold on it.

Every number that is a double has a bound beside it: a vertex lies within `radius` of `point` (in each coordinate), a
plane's slopes and constant within `slack` of `plane`. What is exact is the combinatorics, and the names of the planes:
a level, two of its rows that are equal on the plane, and the activation pattern on the levels before, for which that
is so (or an end of the box). The names of its d planes give a vertex as rationals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from headsmith.core.arrays import Array, Indices

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Pattern = npt.NDArray[np.uint16]

HOME, FIRST, SECOND, CARRIER, PLANES = range(5)
"""The columns of a face: its home; its two ends (an edge), or where its list begins and how long it is; the face of
another complex that it lies in (see merge.py); and from there on the rows of its planes."""

STAGE, ROW = 40, 20
"""The code of a plane is its level << STAGE, plus (row + 1) of the larger piece << ROW, plus (row + 1) of the other."""


def plane_code(stage: int, high: Indices, low: Indices) -> Indices:
    """The codes of the planes on which two rows of a level are equal; row -1 is zero."""
    return np.asarray((stage << STAGE) + ((high + 1) << ROW) + low + 1)


@dataclass(frozen=True, eq=False)
class Planes:
    """Hyperplanes a . x + c = 0 whose largest slope is 1: rows (a, c), bounds of the errors of every slope and of the
    constant, codes (those of the box are negative), and the row of the pattern for which each holds."""

    plane: Array
    slack: Array
    code: Indices
    key: Indices

    def taken(self, rows: Indices) -> Planes:
        return Planes(self.plane[rows], self.slack[rows], self.code[rows], self.key[rows])

    def plus(self, other: Planes) -> Planes:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Planes(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, eq=False)
class Complex:
    """Vertices `point` (n, d) with their `radius`; `face[k]` the rows (see HOME) of the faces of dimension k, and
    `list[k]` what the lists of those from dimension 2 on are cut from. `patterns[stage]`: what keys of planes name."""

    point: Array
    radius: Array
    face: tuple[Indices, ...]
    list: tuple[Indices, ...]
    planes: Planes
    patterns: tuple[Pattern, ...]

    @property
    def dimension(self) -> int:
        return len(self.face) - 1

    def __len__(self) -> int:
        return len(self.face[-1])


def plane_name(complex: Complex, row: int) -> tuple[int, bytes]:
    """The name of a plane of the table."""
    code = int(complex.planes.code[row])
    return code, b"" if code < 0 else complex.patterns[code >> STAGE][complex.planes.key[row]].tobytes()


def ragged(start: Indices, length: Indices) -> tuple[Indices, Indices]:
    """For lists that begin at `start`: of every entry the list that it is in, and its place."""
    owner = np.arange(len(start)).repeat(length)
    place = np.arange(len(owner))
    place += (start - length.cumsum() + length)[owner]
    return owner, place


def members(complex: Complex, k: int, rows: Indices | None = None) -> tuple[Indices, Indices]:
    """The faces of dimension k - 1 that bound some faces of dimension k, one after the other: (owner, member)."""
    face = complex.face[k] if rows is None else complex.face[k][rows]
    if k == 1:
        return np.arange(len(face)).repeat(2), face[:, FIRST : SECOND + 1].ravel()
    owner, place = ragged(face[:, FIRST], face[:, SECOND])
    return owner, complex.list[k][place]


def box_complex(low: Array, high: Array) -> Complex:
    """The box; its planes are x_i = low_i and x_i = high_i, rows 2i and 2i + 1, with codes -1 - 2i and -2 - 2i."""
    d = len(low)
    kinds = np.array(list(product(range(3), repeat=d)))  # in each coordinate at the low end, at the high end, between
    dimension, power = (kinds == 2).sum(axis=1), 3 ** np.arange(d)[::-1]
    number = np.empty(3**d, dtype=np.int64)
    face, lists = [], []
    for k in range(d + 1):
        own = kinds[dimension == k]
        number[own @ power] = np.arange(len(own))
        fixed = np.nonzero(own < 2)[1].reshape(len(own), d - k)
        free = np.nonzero(own == 2)[1].reshape(len(own), k)
        rows = 2 * fixed + np.take_along_axis(own, fixed, axis=1)
        bounds = (own @ power)[:, None, None] - (2 - np.arange(2)) * power[free][..., None]
        bounds = number[bounds.reshape(len(own), 2 * k)]
        head = np.zeros((len(own), PLANES), dtype=np.int64)
        if k == 1:
            head[:, FIRST : SECOND + 1] = bounds
        elif k:
            head[:, FIRST], head[:, SECOND] = 2 * k * np.arange(len(own)), 2 * k
        face.append(np.concatenate([head, rows], axis=1))
        lists.append(bounds.ravel())
    plane = np.zeros((2 * d, d + 1))
    plane[np.arange(2 * d), np.arange(2 * d) // 2] = 1.0
    ends = np.stack([low, high])
    plane[:, d] = -ends.T.ravel()
    return Complex(
        point=ends[kinds[dimension == 0], np.arange(d)],
        radius=np.zeros(2**d),
        face=tuple(face),
        list=tuple(lists),
        planes=Planes(plane, np.zeros((2 * d, 2)), -1 - np.arange(2 * d), np.zeros(2 * d, dtype=np.int64)),
        patterns=(),
    )


def homes_of(complex: Complex, home: Indices) -> list[Indices]:
    """Homes for the faces of each dimension, where the cells are at these homes: each face at one of a cell of its."""
    found = [home]
    for k in range(complex.dimension, 0, -1):
        owner, member = members(complex, k)
        homes = np.empty(len(complex.face[k - 1]), dtype=np.int64)
        homes[member] = found[0].take(owner)
        found.insert(0, homes)
    return found


def taken(complex: Complex, chosen: Indices) -> Complex:
    """Some of the cells with all their faces, renumbered; lists and planes that nobody uses are dropped."""
    face, lists = list(complex.face), list(complex.list)
    face[-1] = face[-1][chosen]
    rows = chosen
    for k in range(complex.dimension, 0, -1):
        _, member = members(complex, k, rows)
        used = np.zeros(len(complex.face[k - 1]), dtype=np.bool_)
        used[member] = True
        number = used.cumsum() - 1
        member = number[member]
        if k == 1:
            face[1][:, FIRST : SECOND + 1] = member.reshape(-1, 2)
        else:
            face[k][:, FIRST] = face[k][:, SECOND].cumsum() - face[k][:, SECOND]
            lists[k] = member
        rows = used.nonzero()[0]
        face[k - 1] = face[k - 1][rows]
    used = np.zeros(len(complex.planes.code), dtype=np.bool_)
    for each in face:
        used[each[:, PLANES:]] = True
    number = used.cumsum() - 1
    for each in face:
        each[:, PLANES:] = number[each[:, PLANES:]]
    return replace(
        complex,
        point=complex.point[rows],
        radius=complex.radius[rows],
        face=tuple(face),
        list=tuple(lists),
        planes=complex.planes.taken(used.nonzero()[0]),
    )


def first_vertices(complex: Complex) -> Indices:
    """One vertex of each cell."""
    rows = np.arange(len(complex))
    for k in range(complex.dimension, 1, -1):
        rows = complex.list[k][complex.face[k][rows, FIRST]]
    return np.asarray(complex.face[1][rows, FIRST])


def first_cells(complex: Complex, count: int) -> Complex:
    """The first cells of a finished complex, with their activation patterns."""
    found = taken(complex, np.arange(count))
    return replace(found, patterns=(*complex.patterns[:-1], complex.patterns[-1][:count]))


def corners(complex: Complex, k: int, rows: Indices) -> tuple[Indices, Indices]:
    """The vertices of some faces of dimension k, one face after the other: (which of the rows, vertex)."""
    owner, found = np.arange(len(rows)), rows
    while k:
        inner, member = members(complex, k, found)
        k -= 1
        count = len(complex.face[k])
        key = np.unique(owner[inner] * count + member)
        owner, found = np.divmod(key, count)
    return owner, found


def slim(complex: Complex) -> Complex:
    """A copy of the complex without activation patterns of earlier levels that no plane needs."""
    key, patterns = complex.planes.key.copy(), list(complex.patterns)
    stage = complex.planes.code >> STAGE
    for s in range(len(patterns) - 1):
        here = np.flatnonzero(stage == s)
        used, place = np.unique(key[here], return_inverse=True)
        patterns[s], key[here] = patterns[s][used], place.reshape(-1)
    return replace(complex, planes=replace(complex.planes, key=key), patterns=tuple(patterns))
