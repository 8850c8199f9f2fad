"""From regions with affine pieces to max-min form, with a proof in exact arithmetic that it is the same function.

Let region r have the piece l_p(r), and let S_r be the pieces that are nowhere on r below it. Then
    f = max over r of min over j in S_r of l_j
(Tarela and Martinez) equals l_p(r) on every region r, if for every other region k some piece of S_k is nowhere on r
above l_p(r): the minimum over S_r is l_p(r) there, and no other minimum is larger. Affine functions are compared at
vertices. That condition is checked; for a continuous function on a convex domain it holds once no piece crosses
another inside a region (along the segment from k to r some piece is above f at the start and below f at the end), so
where it fails a region is cut along a crossing.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from headsmith.core.errors import DomainError, TargetError
from headsmith.core.intervals import as_box
from headsmith.language.cpwl import max_min
from headsmith.language.graph import Graph
from headsmith.language.polytopes import (
    ZERO,
    Point,
    Polytope,
    box_polytope,
    clipped,
    dot,
    hull_polytope,
    intersection,
)

MOST_REGIONS = 4096

Piece = tuple[Point, Fraction]


@dataclass(frozen=True, eq=False)
class AffineRegion:
    """A polytope, the number of its affine piece, and that of the user's region it comes from."""

    polytope: Polytope
    piece: int
    number: int


def from_regions(
    regions: Sequence[tuple[Any, Any, Any]],
    domain: Any = None,
    *,
    tolerance: float = 0.0,
    partial: bool = False,
    names: Iterable[str] | None = None,
) -> Graph:
    """The continuous function that is a . x + c on each region, from a list of (a, c, region), as a graph.

    A region is a list of points whose convex hull it is, or a pair (G, h) for all x with G x <= h; the latter need a
    `domain`, to which all regions are cut. Numbers are floats, integers or fractions, all taken exactly; the pieces
    are rounded to doubles once, at the end. Neighbours must agree where they meet, up to `tolerance`, and together the
    regions must fill the domain, or the smallest box around them; `partial` leaves that open.
    Guarantee: on each region the graph, before that rounding, is within `tolerance` of the region's piece: exactly
    it by default. Raises TargetError, with the place and the two values, where two regions disagree.
    """
    pieces, found = _read(regions, domain)
    allowed = _exact(tolerance, "tolerance")
    meetings = [
        (left, right, common)
        for left, right in combinations(found, 2)
        if (common := intersection(left.polytope, right.polytope)) is not None
    ]
    _refuse_jumps(pieces, meetings, allowed)
    if not partial:
        _refuse_gaps(found, meetings, _whole(found, domain, len(pieces[0][0])))
    groups = _Lattice(pieces, allowed).groups(found)
    doubles = [([float(entry) for entry in slopes], float(shift)) for slopes, shift in pieces]
    chosen = list(domain) if names is None and isinstance(domain, Mapping) else names
    return max_min([[doubles[j] for j in sorted(group)] for group in groups], chosen)


def _exact(number: Any, what: str) -> Fraction:
    try:
        if isinstance(number, numbers.Rational):
            return Fraction(int(number.numerator), int(number.denominator))
        return Fraction(float(number))
    except (TypeError, ValueError, OverflowError):
        raise TargetError(f"{what} is {number!r}; it must be a finite number") from None


def _vector(values: Any, what: str) -> Point:
    items = list(values) if np.ndim(values) else [values]
    return tuple(_exact(item, what) for item in items)


def _read(regions: Sequence[tuple[Any, Any, Any]], domain: Any) -> tuple[list[Piece], list[AffineRegion]]:
    """The distinct pieces, and the regions cut to the domain; those without an interior there are left out."""
    pieces: dict[Piece, int] = {}
    found = []
    for number, entry in enumerate(regions):
        if not (isinstance(entry, list | tuple) and len(entry) == 3):
            raise TargetError(f"region {number} is not a triple (a, c, region)")
        slopes = _vector(entry[0], f"region {number}: a slope")
        if pieces and len(slopes) != len(next(iter(pieces))[0]):
            first = len(next(iter(pieces))[0])
            raise TargetError(f"region {number} has {len(slopes)} slopes, region 0 has {first}: one for each input")
        piece = pieces.setdefault((slopes, _exact(entry[1], f"region {number}: c")), len(pieces))
        polytope = _polytope(entry[2], number, domain, len(slopes))
        if polytope is not None and polytope.volume > 0:
            found.append(AffineRegion(polytope, piece, number))
        elif domain is None:
            raise TargetError(f"region {number} is flat: it has no interior in {len(slopes)} dimensions")
    if not found:
        raise TargetError("there are no regions with an interior in the domain; give at least one (a, c, region)")
    return list(pieces), found


def _polytope(description: Any, number: int, domain: Any, dimension: int) -> Polytope | None:
    box = None if domain is None else _box(domain, dimension)
    if isinstance(description, tuple) and len(description) == 2 and np.ndim(description[0]) == 2:
        if box is None:
            raise DomainError(f"region {number} is given by half-spaces: give a domain, to which all regions are cut")
        normals = [_vector(row, f"region {number}: G") for row in description[0]]
        offsets = _vector(description[1], f"region {number}: h")
        if len(normals) != len(offsets) or any(len(normal) != dimension for normal in normals):
            raise TargetError(f"region {number}: G must be ({len(offsets)}, {dimension}), a row for each entry of h")
        halfspaces = tuple(zip(normals, offsets, strict=True))
    else:
        points = [_vector(point, f"region {number}: a point") for point in description]
        if not points or any(len(point) != dimension for point in points):
            raise TargetError(f"region {number}: its points need {dimension} coordinates each")
        hull = hull_polytope(points)
        if hull is None or box is None:
            return hull
        halfspaces = hull.halfspaces
    result: Polytope | None = box
    for halfspace in halfspaces:
        result = clipped(result, halfspace) if result is not None else None
    return result


def _box(domain: Any, dimension: int) -> Polytope:
    box = as_box(domain, list(domain) if isinstance(domain, Mapping) else [f"x{i}" for i in range(dimension)])
    if box.size != dimension:
        raise DomainError(f"the domain has {box.size} intervals and the pieces {dimension} inputs")
    return box_polytope([Fraction(end) for end in box.low.tolist()], [Fraction(end) for end in box.high.tolist()])


def _whole(found: Sequence[AffineRegion], domain: Any, dimension: int) -> Polytope:
    """The domain, or the smallest box around all regions."""
    if domain is not None:
        return _box(domain, dimension)
    bounds = list(zip(*(region.polytope.bounds for region in found), strict=True))
    return box_polytope([min(b[0] for b in axis) for axis in bounds], [max(b[1] for b in axis) for axis in bounds])


def _value(piece: Piece, point: Point) -> Fraction:
    return dot(piece[0], point) + piece[1]


Meeting = tuple[AffineRegion, AffineRegion, Polytope]
"""Two regions and what they have in common."""


def _refuse_jumps(pieces: Sequence[Piece], meetings: Sequence[Meeting], tolerance: Fraction) -> None:
    """Two pieces must agree on all that their regions have in common: at the vertices of that."""
    for left, right, common in meetings:
        for point in common.vertices:
            values = [_value(pieces[region.piece], point) for region in (left, right)]
            if abs(values[0] - values[1]) > tolerance:
                raise TargetError(
                    f"the function is not continuous: at {_shown(point)} region {left.number} has the value "
                    f"{float(values[0])!r} and region {right.number} has {float(values[1])!r}, which differ by "
                    f"{float(abs(values[0] - values[1])):.3g} (tolerance {float(tolerance):.3g})"
                )


def _refuse_gaps(found: Sequence[AffineRegion], meetings: Sequence[Meeting], whole: Polytope) -> None:
    """Without overlaps, volumes must add up to that of the domain."""
    overlaps = [common for _, _, common in meetings if common.volume > 0]
    covered = sum((region.polytope.volume for region in found), ZERO)
    missing = whole.volume - covered
    if overlaps:
        raise TargetError(
            f"two regions with the same piece overlap, around {_shown(overlaps[0].centre)}: whether the domain is "
            f"filled is only checked for regions that do not; cut one of them, or pass partial=True"
        )
    if missing > 0:
        where = next((p for p in _lattice_points(whole) if not any(r.polytope.holds(p) for r in found)), None)
        place = f", for example at {_shown(where)}" if where is not None else ""
        raise TargetError(
            f"the regions leave {float(missing / whole.volume):.3g} of the domain's volume uncovered{place}: add "
            f"regions, or pass partial=True if values there do not matter"
        )


def _lattice_points(whole: Polytope) -> Iterable[Point]:
    """Points spread over a box, coarse ones first."""
    for parts in (2, 3, 5, 7, 11, 17):
        axes = [
            [low + (high - low) * Fraction(2 * i + 1, 2 * parts) for i in range(parts)] for low, high in whole.bounds
        ]
        yield from product(*axes)


def _shown(point: Point) -> str:
    return "(" + ", ".join(f"{float(entry):.6g}" for entry in point) + ")"


@dataclass(frozen=True, eq=False)
class _Lattice:
    pieces: Sequence[Piece]
    tolerance: Fraction

    def groups(self, found: Sequence[AffineRegion]) -> list[frozenset[int]]:
        """The sets S_r, after as few cuts as it takes for the condition to hold between any two regions."""
        todo = list(found)
        above: dict[AffineRegion, frozenset[int]] = {}
        below: dict[AffineRegion, frozenset[int]] = {}
        while True:
            for region in todo:
                if region not in above:
                    above[region], below[region] = self._sides(region)
            clash = next(((r, k) for r in todo for k in todo if not below[r] & above[k]), None)
            if clash is None:
                return [above[region] for region in todo]
            r, k = clash
            old, parts = k, self._cut(k, above[k] | below[k])
            if not parts:
                old, parts = r, self._cut(r, above[r] | below[r])
            if not parts or len(todo) >= MOST_REGIONS:
                reason = f"after {len(todo)} cuts" if parts else "the regions do not fill a convex set, or pieces jump"
                raise TargetError(
                    f"no max-min form was found: no piece is above region {k.number}'s and below region {r.number}'s "
                    f"({reason})"
                )
            todo = [region for region in todo if region is not old] + parts

    def _sides(self, region: AffineRegion) -> tuple[frozenset[int], frozenset[int]]:
        """The pieces that are nowhere on the region below its own, and those that are nowhere above it."""
        own = [_value(self.pieces[region.piece], vertex) for vertex in region.polytope.vertices]
        above, below = set(), set()
        for number, piece in enumerate(self.pieces):
            gaps = [_value(piece, v) - w for v, w in zip(region.polytope.vertices, own, strict=True)]
            if min(gaps) >= -self.tolerance:
                above.add(number)
            if max(gaps) <= self.tolerance:
                below.add(number)
        return frozenset(above), frozenset(below)

    def _cut(self, region: AffineRegion, one_sided: frozenset[int]) -> list[AffineRegion]:
        """Two parts of a region, along the first piece that crosses its own; none if no piece does."""
        number = next((each for each in range(len(self.pieces)) if each not in one_sided), None)
        if number is None:
            return []
        (a, c), (b, d) = self.pieces[number], self.pieces[region.piece]
        normal = tuple(x - y for x, y in zip(a, b, strict=True))
        sides = [(normal, d - c), (tuple(-x for x in normal), c - d)]
        parts = [clipped(region.polytope, side) for side in sides]
        return [AffineRegion(part, region.piece, region.number) for part in parts if part is not None]
