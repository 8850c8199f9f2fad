"""Small convex polytopes in exact rational arithmetic: vertices and half-spaces, clipping, volume.

For regions that people write down, in few dimensions: everything is found by trying all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product

Point = tuple[Fraction, ...]
Halfspace = tuple[Point, Fraction]
"""(a, b): all x with a . x <= b."""

ZERO = Fraction(0)


def dot(left: Sequence[Fraction], right: Sequence[Fraction]) -> Fraction:
    """The scalar product."""
    return sum((a * b for a, b in zip(left, right, strict=True) if a and b), ZERO)


def eliminated(rows: Sequence[Sequence[Fraction]]) -> list[list[Fraction]]:
    """The non-zero rows of the reduced echelon form, by Gauss and Jordan."""
    work, done = [list(row) for row in rows], 0
    for column in range(len(work[0]) if work else 0):
        pivot = next((row for row in range(done, len(work)) if work[row][column]), None)
        if pivot is None:
            continue
        work[done], work[pivot] = work[pivot], work[done]
        work[done] = [entry / work[done][column] for entry in work[done]]
        for row in range(len(work)):
            if row != done and work[row][column]:
                factor = work[row][column]
                work[row] = [a - factor * b for a, b in zip(work[row], work[done], strict=True)]
        done += 1
    return work[:done]


def flatness(points: Sequence[Point]) -> int:
    """The dimension of the smallest flat that holds the points."""
    return len(eliminated([[a - b for a, b in zip(point, points[0], strict=True)] for point in points[1:]]))


def determinant(matrix: Sequence[Sequence[Fraction]]) -> Fraction:
    """By elimination with exact pivots."""
    work, result = [list(row) for row in matrix], Fraction(1)
    for column in range(len(work)):
        pivot = next((row for row in range(column, len(work)) if work[row][column]), None)
        if pivot is None:
            return ZERO
        if pivot != column:
            work[column], work[pivot], result = work[pivot], work[column], -result
        result *= work[column][column]
        for row in range(column + 1, len(work)):
            factor = work[row][column] / work[column][column]
            work[row] = [a - factor * b for a, b in zip(work[row], work[column], strict=True)]
    return result


@dataclass(frozen=True, eq=False)
class Polytope:
    """A bounded polytope: its vertices, and half-spaces whose intersection it is."""

    halfspaces: tuple[Halfspace, ...]
    vertices: tuple[Point, ...]

    @cached_property
    def tight(self) -> tuple[frozenset[int], ...]:
        """For each vertex, the half-spaces on whose border it lies."""
        return tuple(
            frozenset(i for i, (normal, offset) in enumerate(self.halfspaces) if dot(normal, vertex) == offset)
            for vertex in self.vertices
        )

    @cached_property
    def bounds(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The smallest box around it."""
        return tuple((min(column), max(column)) for column in zip(*self.vertices, strict=True))

    @property
    def centre(self) -> Point:
        """The mean of the vertices: in the interior, if there is one."""
        return tuple(sum(column, ZERO) / len(self.vertices) for column in zip(*self.vertices, strict=True))

    @cached_property
    def volume(self) -> Fraction:
        """The exact volume; 0 if it is flat."""
        dimension = len(self.vertices[0])
        if flatness(self.vertices) < dimension:
            return ZERO
        total = ZERO
        for simplex in self._simplices(frozenset(range(len(self.vertices))), dimension):
            first, *others = (self.vertices[index] for index in simplex)
            total += abs(determinant([[a - b for a, b in zip(other, first, strict=True)] for other in others]))
        return total / math.factorial(dimension)

    def _simplices(self, face: frozenset[int], dimension: int) -> list[tuple[int, ...]]:
        """A triangulation of a face, given by its vertices: cones from its first vertex over the facets without it."""
        if dimension == 0:
            return [tuple(face)]
        apex, found = min(face), []
        facets = {frozenset(v for v in face if number in self.tight[v]) for number in range(len(self.halfspaces))}
        for facet in facets:
            corners = [self.vertices[v] for v in sorted(facet)]
            if apex not in facet and len(facet) >= dimension and flatness(corners) == dimension - 1:
                found += [(apex, *simplex) for simplex in self._simplices(facet, dimension - 1)]
        return found

    def holds(self, point: Point) -> bool:
        """Whether the point lies in it, border included."""
        return all(dot(normal, point) <= offset for normal, offset in self.halfspaces)


def box_polytope(low: Sequence[Fraction], high: Sequence[Fraction]) -> Polytope:
    """A box."""
    dimension = len(low)
    units = [tuple(Fraction(int(i == j)) for j in range(dimension)) for i in range(dimension)]
    halfspaces = [(unit, high[i]) for i, unit in enumerate(units)]
    halfspaces += [(tuple(-e for e in unit), -low[i]) for i, unit in enumerate(units)]
    corners = dict.fromkeys(product(*zip(low, high, strict=True)))
    return Polytope(tuple(halfspaces), tuple(corners))


def hull_polytope(points: Sequence[Point]) -> Polytope | None:
    """The convex hull of points; None if it is flat. Every hyperplane through some of them is tried as a facet."""
    points = list(dict.fromkeys(points))
    dimension = len(points[0])
    if flatness(points) < dimension:
        return None
    facets: dict[Halfspace, None] = {}
    for chosen in combinations(points, dimension):
        normal = _normal(chosen)
        if normal is None:
            continue
        offset = dot(normal, chosen[0])
        heights = [dot(normal, point) - offset for point in points]
        if all(height <= 0 for height in heights):
            facets[normal, offset] = None
        elif all(height >= 0 for height in heights):
            facets[tuple(-entry for entry in normal), -offset] = None
    whole = Polytope(tuple(facets), tuple(points))
    extreme = [
        point
        for index, point in enumerate(points)
        if not any(whole.tight[index] <= tight for other, tight in enumerate(whole.tight) if other != index)
    ]
    return Polytope(tuple(facets), tuple(extreme))


def _normal(points: Sequence[Point]) -> Point | None:
    """A normal of the hyperplane through d points, scaled to first non-zero entry 1; None if they do not span one."""
    dimension = len(points[0])
    rows = eliminated([[a - b for a, b in zip(point, points[0], strict=True)] for point in points[1:]])
    if len(rows) < dimension - 1:
        return None
    pivots = [next(column for column, entry in enumerate(row) if entry) for row in rows]
    free = next(column for column in range(dimension) if column not in pivots)
    normal = [ZERO] * dimension
    normal[free] = Fraction(1)
    for row, pivot in zip(rows, pivots, strict=True):
        normal[pivot] = -row[free]
    lead = next(entry for entry in normal if entry)
    return tuple(entry / lead for entry in normal)


def clipped(polytope: Polytope, halfspace: Halfspace) -> Polytope | None:
    """The part of a polytope in a half-space; None if there is none. Edges that cross the border give new vertices."""
    normal, offset = halfspace
    room = [offset - dot(normal, vertex) for vertex in polytope.vertices]
    if min(room) >= 0:
        return polytope
    inside = [index for index, space in enumerate(room) if space >= 0]
    kept = [polytope.vertices[index] for index in inside]
    for i in inside:
        for j in (index for index, space in enumerate(room) if space < 0 < room[i]):
            common = polytope.tight[i] & polytope.tight[j]
            if not any(common <= tight for k, tight in enumerate(polytope.tight) if k not in (i, j)):
                share = room[i] / (room[i] - room[j])
                ends = zip(polytope.vertices[i], polytope.vertices[j], strict=True)
                kept.append(tuple(a + share * (b - a) for a, b in ends))
    return Polytope((*polytope.halfspaces, halfspace), tuple(dict.fromkeys(kept))) if kept else None


def intersection(left: Polytope, right: Polytope) -> Polytope | None:
    """What two polytopes have in common; None if nothing."""
    if any(a[1] < b[0] or b[1] < a[0] for a, b in zip(left.bounds, right.bounds, strict=True)):
        return None
    result: Polytope | None = left
    for halfspace in right.halfspaces:
        result = clipped(result, halfspace) if result is not None else None
    return result
