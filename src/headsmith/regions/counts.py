"""Counts that compare affine maps, exactly.

Two maps whose float64 values differ by more than their error bounds are different. Where they do not, the maps are
compared as rationals. Cells with the same map are one linear region where they share a facet: the cells form a
polyhedral complex (two of them meet in a common face, because every piece is continuous across it), so cells that meet
in d - 1 dimensions have the same facet, vertex by vertex, and that is compared as rationals too.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.forms import GUARD, UNIT

if TYPE_CHECKING:
    from headsmith.regions.result import Regions


def piece_count(regions: Regions) -> int:
    """How many different affine maps there are."""
    return int(map_labels(regions).max(initial=-1)) + 1


def linear_count(regions: Regions) -> int:
    """How many connected sets of cells with the same affine map there are; cells are connected through facets."""
    return len(regions) - sum(1 for _ in _unions(regions, map_labels(regions)))


def linear_labels(regions: Regions) -> Indices:
    """A number for each cell, the same for cells of one linear region."""
    parent = list(range(len(regions)))
    for one, other in _unions(regions, map_labels(regions)):
        parent[one] = other
    for cell in range(len(parent)):
        parent[cell] = _root(parent, cell)
    return np.unique(parent, return_inverse=True)[1].astype(np.int64)


def map_labels(regions: Regions) -> Indices:
    """A number for each cell, the same for equal affine maps, counted from 0."""
    count = len(regions)
    if not count:
        return np.zeros(0, dtype=np.int64)
    slopes = regions.map_errors[..., :1].repeat(regions.maps.shape[2] - 1, axis=2)
    errors = np.concatenate([slopes, regions.map_errors[..., 1:]], axis=2).reshape(count, -1)
    labels, next_label = np.empty(count, dtype=np.int64), 0
    for cluster in _clusters(regions.maps.reshape(count, -1), errors):
        if len(cluster) == 1:
            labels[cluster], next_label = next_label, next_label + 1
            continue
        known: dict[tuple[tuple[int, ...], ...], int] = {}
        for cell in cluster.tolist():
            rows = regions.oracle.rows(len(regions.oracle.levels.levels), regions.patterns[cell].tobytes())
            key = tuple(tuple(map(int, row)) for row in rows)
            labels[cell] = known.setdefault(key, next_label + len(known))
        next_label += len(known)
    return labels


def _clusters(values: Array, errors: Array) -> list[Indices]:
    """Rows in groups such that rows of different groups are certainly different.

    Equal exact rows have projections on a fixed vector within the sum of their errors: sort and look for gaps.
    """
    direction = np.random.default_rng(0).uniform(0.5, 1.0, values.shape[1])
    key = values @ direction
    rounding = (values.shape[1] + 2) * UNIT
    reach = GUARD * (errors @ direction + rounding * (np.abs(values) @ direction))
    unknown = ~(np.isfinite(key) & np.isfinite(reach))
    key, reach = np.where(unknown, 0.0, key), np.where(unknown, np.inf, reach)
    order = np.argsort(key - reach, kind="stable")
    furthest = np.maximum.accumulate((key + reach)[order])
    gaps = np.flatnonzero((key - reach)[order][1:] > furthest[:-1]) + 1
    return np.split(order, gaps)


def _unions(regions: Regions, labels: Indices) -> Iterator[tuple[int, int]]:
    """Pairs of roots whose trees become one, as cells of one label that share a facet are joined."""
    shared = np.bincount(labels)[labels] > 1 if len(labels) else np.zeros(0, dtype=np.bool_)
    cell, corner = _facets(regions)
    chosen = np.flatnonzero(shared[cell]) if len(cell) else np.zeros(0, dtype=np.int64)
    if not len(chosen):
        return
    cell, corner = cell[chosen], [corner[i] for i in chosen.tolist()]
    points, radii = regions.cells.point, regions.cells.radius
    middle = np.array([points[each].mean(axis=0) for each in corner])
    radius = np.array([radii[each].max() + 8 * len(each) * UNIT * np.abs(points[each]).max() for each in corner])
    parent = list(range(len(regions)))
    for cluster in _clusters(middle, radius[:, None].repeat(middle.shape[1], axis=1)):
        for place, first in enumerate(cluster.tolist()):
            for second in cluster[place + 1 :].tolist():
                one, other = _root(parent, int(cell[first])), _root(parent, int(cell[second]))
                if one == other or labels[one] != labels[other] or cell[first] == cell[second]:
                    continue
                if _same(regions, corner[first], corner[second]):
                    parent[one] = other
                    yield one, other


def _root(parent: list[int], cell: int) -> int:
    while parent[cell] != cell:
        parent[cell] = cell = parent[parent[cell]]
    return cell


def _facets(regions: Regions) -> tuple[Indices, list[Indices]]:
    """The cell of each facet, and the vertices of each facet."""
    cells = regions.cells
    if cells.dimension == 1:
        return cells.cell, list(np.arange(len(cells.cell))[:, None])
    if cells.dimension == 2:
        return cells.cell[cells.tail], list(np.stack([cells.tail, cells.head], axis=1))
    # Going round a face every vertex is the tail of one edge of it.
    face = np.concatenate([cells.side[:, 0], cells.side[:, 1]])
    vertex = np.concatenate([cells.tail, cells.head])
    order = np.argsort(face, kind="stable")
    vertices = np.split(vertex[order], np.flatnonzero(np.diff(face[order])) + 1)
    return np.array([cells.cell[each[0]] for each in vertices], dtype=np.int64), vertices


def _same(regions: Regions, first: Indices, second: Indices) -> bool:
    """Whether two facets have the same vertices, as rationals."""
    return len(first) == len(second) and _corners(regions, first) == _corners(regions, second)


def _corners(regions: Regions, vertices: Indices) -> set[tuple[tuple[int, int], ...]]:
    found = set()
    for vertex in vertices.tolist():
        key = regions.patterns[regions.cells.cell[vertex]].tobytes()
        *point, scale = map(int, regions.oracle.point(key, tuple(regions.cells.code[vertex].tolist())))
        found.add(tuple(Fraction(entry, scale).as_integer_ratio() for entry in point))
    return found
