"""Counts that compare affine maps, exactly.

Two maps whose float64 values differ by more than their error bounds are different. Where they do not, the maps are
compared as rationals. Cells with the same map are one linear region where they share a facet: the cells form a
polyhedral complex (two of them meet in a common face, because every piece is continuous across it), so cells that meet
in d - 1 dimensions have the same facet, vertex by vertex, and that is compared as rationals too.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.lab.regions.complex import PLANES, Complex, corners, members, plane_name
from headsmith.lab.regions.forms import GUARD, UNIT

if TYPE_CHECKING:
    from headsmith.lab.regions.result import Regions


def piece_count(regions: Regions) -> int:
    """How many different affine maps there are."""
    return int(map_labels(regions).max(initial=-1)) + 1


def linear_count(regions: Regions) -> int:
    """How many connected sets of cells with the same affine map there are; cells are connected through facets."""
    return regions.cells - sum(1 for _ in _unions(regions, map_labels(regions)))


def map_labels(regions: Regions) -> Indices:
    """A number for each cell, the same for equal affine maps, counted from 0."""
    count = regions.cells
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
    parent = list(range(regions.cells))
    for first, second in _neighbours(regions, labels):
        one, other = _root(parent, first), _root(parent, second)
        if one != other:
            parent[one] = other
            yield one, other


def _neighbours(regions: Regions, labels: Indices) -> Iterator[tuple[int, int]]:
    """Cells of one label with a facet in common: the same one of a part, or one of another part in the same place."""
    shared = np.bincount(labels)[labels] > 1 if len(labels) else np.zeros(0, dtype=np.bool_)
    border: list[tuple[int, Array, float, Any]] = []
    for part, offset in zip(regions.parts, regions.offsets.tolist(), strict=False):
        cell, facet = members(part, part.dimension)
        order = np.argsort(facet, kind="stable")
        cell, facet = cell[order], facet[order]
        twice = np.flatnonzero(facet[1:] == facet[:-1])
        first, second = cell[twice] + offset, cell[twice + 1] + offset
        same = labels[first] == labels[second]
        yield from zip(first[same].tolist(), second[same].tolist(), strict=True)
        single = np.ones(len(facet), dtype=np.bool_)
        single[twice] = single[twice + 1] = False
        # What is left lies on the border of the part; the border of the box has planes with negative codes.
        inside = part.planes.code[part.face[-2][facet, PLANES]] >= 0
        chosen = np.flatnonzero(single & inside & shared[cell + offset] & (len(regions.parts) > 1))
        border += _border(part, cell[chosen] + offset, facet[chosen])
    middle = np.array([place for _, place, _, _ in border]).reshape(len(border), regions.box.size)
    radius = np.array([near for _, _, near, _ in border])[:, None].repeat(regions.box.size, axis=1)
    for cluster in _clusters(middle, radius) if border else []:
        for place, first in enumerate(cluster.tolist()):
            for second in cluster[place + 1 :].tolist():
                (one, *_, corner), (other, *_, opposite) = border[first], border[second]
                if (
                    labels[one] == labels[other]
                    and one != other
                    and _exact(regions, corner) == _exact(regions, opposite)
                ):
                    yield one, other


def _border(part: Complex, cell: Indices, facet: Indices) -> list[tuple[int, Array, float, Any]]:
    """Facets with their cells, the middles of their vertices to within a radius, and the names of their vertices."""
    owner, vertex = corners(part, part.dimension - 1, facet)
    found = []
    for one, each in zip(cell.tolist(), np.split(vertex, np.flatnonzero(np.diff(owner)) + 1), strict=False):
        points = part.point[each]
        radius = part.radius[each].max() + 8 * len(each) * UNIT * np.abs(points).max()
        found.append((one, points.mean(axis=0), float(radius), (part, each)))
    return found


def _exact(regions: Regions, corner: tuple[Complex, Indices]) -> set[tuple[tuple[int, int], ...]]:
    """The vertices of a facet as rationals."""
    part, vertices = corner
    found = set()
    for rows in part.face[0][vertices, PLANES:].tolist():
        *point, scale = map(int, regions.oracle.point(tuple(plane_name(part, row) for row in rows)))
        found.add(tuple(Fraction(entry, scale).as_integer_ratio() for entry in point))
    return found


def _root(parent: list[int], cell: int) -> int:
    while parent[cell] != cell:
        parent[cell] = cell = parent[parent[cell]]
    return cell
