"""Functions from regions: the max-min form is the given function exactly, or the place where it cannot be is named."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.effort import tried
from helpers.oracles.exact import exact
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.compile import compile
from headsmith.core.errors import DomainError, TargetError
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph, Maximum, Minimum
from headsmith.language.lattice import from_regions
from headsmith.language.polytopes import (
    box_polytope,
    clipped,
    dot,
    eliminated,
    hull_polytope,
    intersection,
)
from headsmith.report.falsify import falsify

PYRAMID = [
    ((1, 0), 0, ([[-1, 1], [-1, -1]], [0, 0])),
    ((-1, 0), 0, ([[1, 1], [1, -1]], [0, 0])),
    ((0, 1), 0, ([[1, -1], [-1, -1]], [0, 0])),
    ((0, -1), 0, ([[1, 1], [-1, 1]], [0, 0])),
]


def plane(points, heights):
    """The affine function through points, exactly."""
    rows = eliminated([[*map(Fraction, p), Fraction(1), Fraction(h)] for p, h in zip(points, heights, strict=True)])
    return [row[-1] for row in rows[:-1]], rows[-1][-1]


def triangulated(n: int, heights, *, jack: bool):
    """A square of n * n cells cut into triangles, all along one diagonal or as a union jack."""
    regions = []
    for i, j in product(range(n), repeat=2):
        a, b, c, d = (i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)
        cut = [(a, b, d), (b, c, d)] if jack and (i + j) % 2 else [(a, b, c), (a, c, d)]
        regions += [(*plane(t, [heights[p] for p in t]), list(t)) for t in cut]
    return regions


def agrees(graph: Graph, regions) -> None:
    """Exactly the region's piece at its corners, at its centre and between."""
    for slopes, shift, corners in regions:
        centre = [sum(map(Fraction, column)) / len(corners) for column in zip(*corners, strict=True)]
        points = [*corners, *([(Fraction(a) + 3 * b) / 4 for a, b in zip(p, centre, strict=True)] for p in corners)]
        for point in points:
            doubles = [float(entry) for entry in point]
            if [Fraction(x) for x in doubles] == [Fraction(x) for x in point]:
                assert exact(graph, doubles) == [dot([Fraction(a) for a in slopes], list(map(Fraction, point))) + shift]


@settings(max_examples=tried(25, 3))
@given(st.integers(1, 3), st.booleans(), st.data())
def test_any_heights_on_a_triangulated_square(n, jack, data) -> None:
    corners = list(product(range(n + 1), repeat=2))
    # Differences are multiples of 8, so that all pieces and quarters of centres times 3 are doubles.
    heights = {p: 24 * data.draw(st.integers(-3, 3)) for p in corners}
    regions = triangulated(n, heights, jack=jack)
    agrees(from_regions(regions), regions)


@settings(max_examples=tried(20, 3))
@given(st.lists(st.integers(-4, 4), min_size=3, max_size=9))
def test_any_heights_on_a_line(heights) -> None:
    regions = [(*plane([(i,), (i + 1,)], heights[i : i + 2]), [(i,), (i + 1,)]) for i in range(len(heights) - 1)]
    agrees(from_regions(regions), regions)


def test_tetrahedra() -> None:
    """Kuhn's six simplices of a cube, with random heights at its corners."""
    heights = dict(zip(product((0, 1), repeat=3), np.random.default_rng(0).integers(-5, 5, 8).tolist(), strict=True))
    regions = []
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        corners = [(0, 0, 0)]
        for axis in order:
            corners.append(tuple(c + (i == axis) for i, c in enumerate(corners[-1])))
        regions.append((*plane(corners, [heights[p] for p in corners]), corners))
    agrees(from_regions(regions), regions)


def test_the_domain_names_the_inputs() -> None:
    assert from_regions(PYRAMID, {"u": (-1.0, 1.0), "v": (-1.0, 1.0)}).input.names == ("u", "v")


def test_half_spaces_are_cut_to_the_domain() -> None:
    graph = from_regions(PYRAMID, (-1.0, 1.0))
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (300, 2))
    assert (evaluate(graph, points)[:, 0] == np.abs(points).max(axis=1)).all()
    assert sum(node.size for node in graph.nodes if isinstance(node, Maximum | Minimum)) == 3
    model = compile(graph, (-1.0, 1.0), 1e-3)
    assert falsify(model).error <= model.certificate.error <= 1e-3


def test_a_piece_that_crosses_another_inside_a_region_needs_a_cut() -> None:
    """f = max(0, min(x, y)) written with the quadrant pieces as large as they can be."""
    regions = [
        ((0, 0), 0, [(-1, -1), (0, -1), (0, 1), (-1, 1)]),
        ((0, 0), 0, [(0, -1), (1, -1), (1, 0), (0, 0)]),
        ((1, 0), 0, [(0, 0), (1, 1), (0, 1)]),
        ((0, 1), 0, [(0, 0), (1, 0), (1, 1)]),
    ]
    agrees(from_regions(regions), regions)


def test_a_jump_is_named_with_its_place_and_values() -> None:
    with pytest.raises(TargetError, match=r"at \(1\) region 0 has the value 1.0 and region 1 has 2.0, .* differ by 1"):
        from_regions([((1,), 0, [(0,), (1,)]), ((2,), 0, [(1,), (2,)])])


def test_a_jump_in_the_middle_of_an_edge_is_seen() -> None:
    """The long edge of the first region meets two others; corners of the first alone would not show the jump."""
    regions = [
        ((0, 0), 0, [(0, 0), (2, 0), (2, 1), (0, 1)]),
        ((0, 1), -1, [(0, 1), (1, 1), (1, 2), (0, 2)]),
        ((1, 1), -2, [(1, 1), (2, 1), (2, 2), (1, 2)]),
    ]
    with pytest.raises(TargetError, match=r"at \(2, 1\) region 0 has the value 0.0 and region 2 has 1.0"):
        from_regions(regions)


def test_a_jump_within_the_tolerance_is_kept_small() -> None:
    regions = [((1.0,), 0.0, [(0,), (1,)]), ((2.0,), -1.0 + 1e-9, [(1,), (2,)])]
    with pytest.raises(TargetError, match="differ by 1e-09"):
        from_regions(regions)
    graph = from_regions(regions, tolerance=1e-8)
    points = np.linspace(0.0, 2.0, 401)[:, None]
    wanted = np.where(points < 1.0, points, 2.0 * points - 1.0)
    assert np.abs(evaluate(graph, points) - wanted).max() <= 1e-8


def test_gaps_are_named_with_a_point() -> None:
    with pytest.raises(TargetError, match=r"0.333 of the domain's volume uncovered, for example at \(1.5\)"):
        from_regions([((1,), 0, [(0,), (1,)]), ((1,), 0, [(2,), (3,)])])
    with pytest.raises(TargetError, match=r"0.25 of the domain's volume uncovered"):
        from_regions(PYRAMID[:3], (-1.0, 1.0))


def test_a_part_of_a_box_is_allowed_if_asked_for() -> None:
    regions = [((1, 1), 0, [(0, 0), (1, 0), (0, 1)])]
    with pytest.raises(TargetError, match=r"0.5 of the domain's volume"):
        from_regions(regions)
    agrees(from_regions(regions, partial=True), regions)


def test_overlaps_are_refused() -> None:
    with pytest.raises(TargetError, match=r"not continuous: at \(0.5\)|not continuous: at \(1\)"):
        from_regions([((1,), 0, [(0,), (1,)]), ((0,), 0, [(0.5,), (2,)])])
    with pytest.raises(TargetError, match=r"overlap, around \(0.75\)"):
        from_regions([((1,), 0, [(0,), (1,)]), ((1,), 0, [(0.5,), (2,)])])


@pytest.mark.parametrize(
    ("regions", "domain", "kind", "message"),
    [
        ([], None, TargetError, "no regions"),
        ([((1,), 0)], None, TargetError, "region 0 is not a triple"),
        ([((1,), 0, [(0,), (0,)])], None, TargetError, "region 0 is flat"),
        ([((1, 0), 0, [(0,), (1,)])], None, TargetError, "need 2 coordinates"),
        ([((np.nan,), 0, [(0,), (1,)])], None, TargetError, "a slope is nan"),
        ([((1,), 0, [(0,), (1,)]), ((1, 2), 0, [(0, 0)])], None, TargetError, "region 1 has 2 slopes, region 0 has 1"),
        (PYRAMID, None, DomainError, "region 0 is given by half-spaces"),
        ([((1, 0), 0, ([[1, 0]], [0, 0]))], (-1, 1), TargetError, r"G must be \(2, 2\)"),
    ],
)
def test_malformed_regions_are_refused(regions, domain, kind, message) -> None:
    with pytest.raises(kind, match=message):
        from_regions(regions, domain)


def test_volumes_are_exact() -> None:
    zero, one = Fraction(0), Fraction(1)
    cube = box_polytope([zero] * 3, [one] * 3)
    assert cube.volume == 1
    corner = clipped(cube, ((one, one, one), Fraction(1, 2)))
    assert corner is not None
    assert corner.volume == Fraction(1, 48)
    rest = clipped(cube, ((-one, -one, -one), -Fraction(1, 2)))
    assert rest is not None
    assert rest.volume == 1 - Fraction(1, 48)
    touching = intersection(corner, rest)
    assert touching is not None
    assert touching.volume == 0
    assert len(touching.vertices) == 3
    assert clipped(cube, ((one, zero, zero), -one)) is None


def test_hulls_keep_extreme_points_alone() -> None:
    points = [
        tuple(map(Fraction, p)) for p in [(0, 0), (2, 0), (1, 0), (0, 2), (1, 1), (Fraction(1, 2), Fraction(1, 2))]
    ]
    hull = hull_polytope(points)
    assert hull is not None
    assert set(hull.vertices) == {points[0], points[1], points[3]}
    assert len(hull.halfspaces) == 3
    assert hull.volume == 2
    assert hull_polytope(points[:3]) is None
