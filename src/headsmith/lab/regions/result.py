"""The outcome of an enumeration: a sequence of regions, and its counts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen
from headsmith.core.errors import HeadsmithError
from headsmith.core.figures import count
from headsmith.core.intervals import Box
from headsmith.core.markup import table
from headsmith.lab.regions.complex import Complex, Pattern, corners, members
from headsmith.lab.regions.exact import Oracle
from headsmith.lab.regions.forms import readout
from headsmith.lab.regions.loops import loop, polygons

BLOCK = 4096
"""Regions whose affine maps are found at a time."""

Count = Literal["cells", "linear", "pieces"]


class PartialCountWarning(UserWarning):
    """A count that was cut short: there are at least as many regions."""


@dataclass(frozen=True, eq=False)
class Region:
    """One cell: on it the network is matrix @ x + constant, x the inputs (or the coordinates of the slice).

    `vertices` (n, d) are in ascending order in one dimension and anticlockwise in two. `faces` are, in space, the
    loops of vertices of the faces. `pattern` has for each level the piece that each unit takes (ReLU: 1 is active).
    `point` lies inside.
    """

    matrix: Array
    constant: Array
    vertices: Array
    faces: tuple[tuple[int, ...], ...]
    pattern: tuple[Pattern, ...]
    point: Array

    def __repr__(self) -> str:
        inside = ", ".join(f"{value:.4g}" for value in self.point)
        outputs = count(len(self.constant), "output")
        return f"<Region around ({inside}): {len(self.vertices)} vertices, an affine map to {outputs}>"

    def __call__(self, x: Array) -> Array:
        """The region's affine map at x (..., d)."""
        return np.asarray(np.asarray(x, dtype=np.float64) @ self.matrix.T + self.constant)


@dataclass(frozen=True, eq=False)
class Regions(Sequence[Region]):
    """The regions of a network on a box, or as many as were found: see `complete` and `stopped`.

    len() and count("cells"): cells of the activation pattern. count("linear"): cells that share a facet and have the
    same affine map are one. count("pieces"): different affine maps. Of a partial result the counts are those of the
    cells that were found, lower bounds for cells and pieces, and len() and count("cells") warn. `share` is a rough
    estimate of how much of the work was done; it runs ahead, because large cells are found first.
    """

    oracle: Oracle
    box: Box
    sliced: bool
    parts: tuple[Complex, ...]
    cells: int
    stopped: str
    share: float

    @property
    def complete(self) -> bool:
        return not self.stopped

    def __len__(self) -> int:
        if not self.complete:
            warnings.warn(f"{self._counted()}; {self.stopped}", PartialCountWarning, stacklevel=2)
        return self.cells

    def _counted(self) -> str:
        return f"{self.cells} cells" if self.complete else f"at least {self.cells} cells"

    def __repr__(self) -> str:
        ends = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in zip(self.box.low, self.box.high, strict=True))
        where = f"a slice, {ends}" if self.sliced else ends
        if self.complete:
            return f"Regions({self._counted()} on {where})"
        return f"Regions(PARTIAL: {self._counted()} on {where}; {self.stopped})"

    def _repr_html_(self) -> str:
        at_least = "" if self.complete else "at least "
        rows = [["cells of the activation pattern", f"{at_least}{self.cells:,}"]]
        rows += [["different affine pieces", f"{at_least}{self.count('pieces'):,}"]]
        rows += [["linear regions", f"{self.count('linear'):,}"]] if self.complete else []
        return table("Linear regions", rows, note=repr(self))

    def count(self, kind: Count = "cells") -> int:
        """How many there are, by one of three definitions: "cells", "linear" or "pieces"."""
        from headsmith.lab.regions.counts import linear_count, piece_count

        match kind:
            case "cells":
                return len(self)
            case "linear":
                return linear_count(self)
            case "pieces":
                return piece_count(self)
        raise ValueError(f'count {kind!r}: there are "cells", "linear" and "pieces"')

    @overload
    def __getitem__(self, index: int) -> Region: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Region]: ...
    def __getitem__(self, index: int | slice) -> Region | Sequence[Region]:
        if isinstance(index, slice):
            return [self._region(i) for i in range(self.cells)[index]]
        return self._region(range(self.cells)[index])

    def __iter__(self) -> Iterator[Region]:
        return (self._region(i) for i in range(self.cells))

    @cached_property
    def offsets(self) -> Indices:
        """The number of the first region of each part, and of all regions at the end."""
        if self.cells and not self.parts:
            raise HeadsmithError("the regions were counted and not kept: leave out keep=False to look at them")
        return np.cumsum([0, *(len(part) for part in self.parts)])

    @cached_property
    def patterns(self) -> Pattern:
        """The activation pattern of each region, all levels in a row."""
        assert self.offsets[-1] == self.cells
        none = np.zeros((0, self.oracle.levels.units), dtype=np.uint16)
        return np.concatenate([none, *(part.patterns[-1] for part in self.parts)])

    @cached_property
    def _maps(self) -> tuple[Array, Array]:
        values, errors = [], []
        with np.errstate(all="ignore"):
            for first in range(0, max(1, self.cells), BLOCK):
                read = readout(self.oracle.levels, self.oracle.placement, self.patterns[first : first + BLOCK])
                values.append(read.value.transpose(1, 2, 0))
                errors.append(read.error.transpose(1, 2, 0))
        return np.concatenate(values), np.concatenate(errors)

    @property
    def maps(self) -> Array:
        """The affine map of each region: (regions, outputs, slopes and the constant)."""
        return self._maps[0]

    @property
    def map_errors(self) -> Array:
        """Bounds of the errors of every slope, and of the constants, of the maps: (regions, outputs, 2)."""
        return self._maps[1]

    @cached_property
    def _corners(self) -> tuple[Indices, Array]:
        """The first vertex of each region, and their number at the end; the vertices, one region after the other."""
        starts, points = [np.zeros(1, dtype=np.int64)], [np.zeros((0, self.box.size))]
        for part in self.parts:
            owner, vertex = polygons(part) if self.box.size == 2 else corners(part, self.box.size, np.arange(len(part)))
            starts.append(starts[-1][-1] + np.bincount(owner, minlength=len(part)).cumsum())
            points.append(part.point[vertex])
        found = np.concatenate(points)
        if self.box.size == 1:
            found = np.sort(found.reshape(-1, 2), axis=1).reshape(-1, 1)
        return np.concatenate(starts), frozen(found)

    @property
    def starts(self) -> Indices:
        """The first vertex of each region in `points`, and their number at the end."""
        return self._corners[0]

    @property
    def points(self) -> Array:
        """The vertices of all regions, one region after the other, each in order."""
        return self._corners[1]

    @cached_property
    def centres(self) -> Array:
        """A point inside each region: the mean of its vertices."""
        if not len(self.patterns):
            return frozen(np.zeros((0, self.box.size)))
        sums = np.add.reduceat(self.points, self.starts[:-1], axis=0)
        return frozen(sums / np.diff(self.starts)[:, None])

    def _region(self, i: int) -> Region:
        ends = np.cumsum([level.units for level in self.oracle.levels.levels])[:-1]
        return Region(
            matrix=frozen(self.maps[i, :, :-1]),
            constant=frozen(self.maps[i, :, -1]),
            vertices=self.points[self.starts[i] : self.starts[i + 1]],
            faces=self._faces(i) if self.box.size == 3 else (),
            pattern=tuple(np.split(self.patterns[i], ends)) if self.oracle.levels.levels else (),
            point=self.centres[i],
        )

    def _faces(self, i: int) -> tuple[tuple[int, ...], ...]:
        """The loops of the faces of a region in space, as places among its vertices."""
        which = int(np.searchsorted(self.offsets, i, side="right")) - 1
        part, row = self.parts[which], np.array([i - self.offsets[which]])
        _, vertices = corners(part, 3, row)
        _, faces = members(part, 3, row)
        return tuple(tuple(np.searchsorted(vertices, loop(part, face)).tolist()) for face in faces.tolist())
