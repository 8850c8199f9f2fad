"""The outcome of an enumeration: a sequence of regions, and its counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, overload

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen
from headsmith.core.figures import count
from headsmith.core.html import table
from headsmith.core.intervals import Box
from headsmith.regions.cells import Cells, Pattern, Planes, empty_cells, join
from headsmith.regions.exact import Oracle
from headsmith.regions.forms import apply
from headsmith.regions.split import Batch

Count = Literal["cells", "linear", "pieces"]


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
    cells that were found: lower bounds for cells and pieces. `share` is a rough estimate of how much of the work was
    done; it runs ahead, because large cells are found first.
    """

    oracle: Oracle
    box: Box
    sliced: bool
    cells: Cells
    patterns: Pattern
    maps: Array
    map_errors: Array
    stopped: str
    share: float

    @property
    def complete(self) -> bool:
        return not self.stopped

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        ends = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in zip(self.box.low, self.box.high, strict=True))
        where = f"a slice, {ends}" if self.sliced else ends
        if self.complete:
            return f"Regions({len(self)} cells on {where})"
        return f"Regions(PARTIAL: {len(self)} cells on {where}; {self.stopped})"

    def _repr_html_(self) -> str:
        at_least = "" if self.complete else "at least "
        rows = [["cells of the activation pattern", f"{at_least}{len(self):,}"]]
        rows += [["different affine pieces", f"{at_least}{self.count('pieces'):,}"]]
        rows += [["linear regions", f"{self.count('linear'):,}"]] if self.complete else []
        return table("Linear regions", rows, note=repr(self))

    def count(self, kind: Count = "cells") -> int:
        """How many there are, by one of three definitions: "cells", "linear" or "pieces"."""
        from headsmith.regions.counts import linear_count, piece_count

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
            return [self._region(i) for i in range(len(self))[index]]
        return self._region(range(len(self))[index])

    def __iter__(self) -> Iterator[Region]:
        return (self._region(i) for i in range(len(self)))

    @cached_property
    def starts(self) -> Indices:
        """The first vertex of each region in `points`, and their number at the end."""
        return np.append(self.cells.start, len(self.cells.cell))

    @cached_property
    def points(self) -> Array:
        """The vertices of all regions, one region after the other, each in order."""
        if self.cells.dimension > 1:
            return frozen(self.cells.point)
        return frozen(np.sort(self.cells.point.reshape(-1, 2), axis=1).reshape(-1, 1))

    @cached_property
    def centres(self) -> Array:
        """A point inside each region: the mean of its vertices."""
        sums = np.add.reduceat(self.cells.point, self.cells.start, axis=0)
        return frozen(sums / np.diff(self.starts)[:, None])

    @cached_property
    def _edges(self) -> tuple[Indices, Indices]:
        """Edges sorted by region, and where each region's begin."""
        cell = self.cells.cell[self.cells.tail]
        order = np.argsort(cell, kind="stable")
        return order, np.searchsorted(cell[order], np.arange(len(self) + 1))

    def _region(self, i: int) -> Region:
        vertices = self.points[self.starts[i] : self.starts[i + 1]]
        ends = np.cumsum([level.units for level in self.oracle.levels.levels])[:-1]
        return Region(
            matrix=frozen(self.maps[i, :, :-1]),
            constant=frozen(self.maps[i, :, -1]),
            vertices=vertices,
            faces=self._faces(i) if self.cells.dimension == 3 else (),
            pattern=tuple(np.split(self.patterns[i], ends)) if self.oracle.levels.levels else (),
            point=self.centres[i],
        )

    def _faces(self, i: int) -> tuple[tuple[int, ...], ...]:
        """The loops of the faces of a region in space, as places among its vertices."""
        order, begin = self._edges
        edges, base = order[begin[i] : begin[i + 1]], int(self.starts[i])
        loops: dict[int, dict[int, int]] = {}
        for tail, head, (left, right) in zip(
            (self.cells.tail[edges] - base).tolist(),
            (self.cells.head[edges] - base).tolist(),
            self.cells.side[edges].tolist(),
            strict=True,
        ):
            loops.setdefault(left, {})[tail] = head
            loops.setdefault(right, {})[head] = tail
        found = []
        for loop in loops.values():
            here = next(iter(loop))
            found.append(tuple(here := loop[here] for _ in range(len(loop))))
        return tuple(found)


def collected(oracle: Oracle, box: Box, sliced: bool, found: Sequence[Batch], stopped: str, share: float) -> Regions:
    """The finished batches as one value, with the affine maps of the read-out."""
    levels, d = oracle.levels, box.size
    with np.errstate(all="ignore"):
        read = [apply(levels.weights, levels.bias, batch.state) for batch in found]
    nothing = Planes(np.zeros((0, d + 1)), np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    # The planes have done their work; vertices and edges stay.
    cells = [replace(batch.cells, planes=nothing) for batch in found]
    outputs = len(levels.bias)
    return Regions(
        oracle,
        box,
        sliced,
        join(cells) if cells else empty_cells(d, nothing),
        np.concatenate([np.zeros((0, levels.units), dtype=np.uint16), *(batch.pattern for batch in found)]),
        np.concatenate([np.zeros((0, outputs, d + 1)), *(forms.value.transpose(1, 2, 0) for forms in read)]),
        np.concatenate([np.zeros((0, outputs, 2)), *(forms.error.transpose(1, 2, 0) for forms in read)]),
        stopped,
        share,
    )
