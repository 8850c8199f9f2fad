"""Three counts, three definitions: cells, linear regions, pieces; and the classic cases where tools go wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.oracles.region_counts import linear_labels

from headsmith.core.errors import DomainError, TargetError
from headsmith.lab.regions.counts import map_labels
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.result import PartialCountWarning
from headsmith.language.network import Network

BOXES = [1.0, 1e5, 1e9]


def tent(folds: int) -> Network:
    """The tent map 2 min(x, 1 - x) = 2 relu(x) - 4 relu(x - 1/2), composed with itself."""
    fold = ([[2.0, -4.0], [2.0, -4.0]], [0.0, -0.5])
    return Network([([[1.0], [1.0]], [0.0, -0.5]), *[fold] * (folds - 1), ([[2.0, -4.0]], [0.0])])


def union_jack(half: float, lines: int) -> Network:
    """Lines x = i, y = i, x + y = 2i, x - y = 2i: every vertex of the grid with even sum has eight lines' ends."""
    steps = np.arange(-lines + 1, lines) * (half / lines)
    rows = [((1, 0), steps), ((0, 1), steps), ((1, 1), 2 * steps), ((1, -1), 2 * steps)]
    W = np.array([normal for normal, offsets in rows for _ in offsets], dtype=float)
    b = -np.concatenate([offsets for _, offsets in rows])
    return Network([(W, b), (np.ones((1, len(b))), [0.0])])


@pytest.mark.parametrize("half", BOXES)
def test_the_largest_of_four_has_four_pieces(half: float) -> None:
    found = regions("max(x, y, -x, -y)", {"x": (-half, half), "y": (-half, half)})
    assert [found.count(kind) for kind in ("cells", "linear", "pieces")] == [4, 4, 4]


@pytest.mark.parametrize("folds", [4, 6, 8])
def test_tent_maps_double_with_every_fold(folds: int) -> None:
    found = regions(tent(folds), (0.0, 1.0))
    assert len(found) == found.count("linear") == found.count("pieces") == 2**folds
    # Beyond [0, 1] the map is zero at both ends: two more regions, one and the same piece.
    for half in (1e5, 1e9):
        wide = regions(tent(folds), (-half, half))
        assert [wide.count(kind) for kind in ("cells", "linear", "pieces")] == [
            2**folds + 2,
            2**folds + 2,
            2**folds + 1,
        ]


@pytest.mark.parametrize("half", BOXES)
def test_union_jack_grids(half: float) -> None:
    """A grid of 2n x 2n squares, each with one diagonal, in turn: 8 n^2 triangles."""
    for lines in (2, 4, 8):
        found = regions(union_jack(half, lines), (-half, half))
        assert len(found) == 8 * lines**2
        assert {len(region.vertices) for region in found} == {3}
    # With n = 6 the steps are no doubles: lines that should meet in a point miss it, and there are slivers.
    assert len(regions(union_jack(half, 6), (-half, half))) > 8 * 6**2


def test_linear_regions_join_cells_across_borders_that_bend_nothing() -> None:
    """relu(x) - relu(x) and relu(x) - relu(-x) = x have cells, and one linear region."""
    nothing = Network([([[1.0], [1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0])])
    identity = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0])])
    for network in (nothing, identity):
        found = regions(network, (-1.0, 1.0))
        assert (len(found), found.count("linear"), found.count("pieces")) == (2, 1, 1)


@pytest.mark.parametrize("dimension", [2, 3])
def test_equal_maps_that_do_not_touch_stay_apart(dimension: int) -> None:
    """The hat relu(1 - |x|) is zero on two sides; relu(1 - |x| - |y|) is zero all round."""
    names = ["x", "y", "z"][:dimension]
    box = dict.fromkeys(names, (-3.0, 3.0))
    others = " + 0*".join(["", *names[1:]])
    hat = regions(f"relu(1 - abs(x)){others}", box)
    # 0, up, down, 0: four linear regions, three pieces.
    assert (hat.count("linear"), hat.count("pieces")) == (4, 3)
    # An island: outside of the diamond |x| + |y| <= 1 everything is connected.
    island = regions(f"relu(1 - abs(x) - abs(y)){others}", box)
    assert (len(island), island.count("linear"), island.count("pieces")) == (8, 5, 5)
    labels = linear_labels(island)
    assert sorted(np.bincount(labels).tolist()) == [1, 1, 1, 1, 4]


def test_corners_do_not_connect() -> None:
    """Two quadrants that meet in a point only are not one region, though the map on them is the same."""
    found = regions("max(abs(x + y) - abs(x - y), 0)", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)})
    # |x + y| > |x - y| where x y > 0; zero elsewhere: on the second and on the fourth quadrant.
    zero = [i for i, region in enumerate(found) if not region.matrix.any()]
    assert len({int(linear_labels(found)[i]) for i in zero}) == 2
    assert len({int(map_labels(found)[i]) for i in zero}) == 1


def test_maps_that_differ_by_one_ulp_are_different_pieces() -> None:
    """relu(x) - (1 + ulp) relu(-x): slopes 1 and 1 + ulp are two pieces; without the ulp it would be x, one piece."""
    step = float(np.nextafter(1.0, 2.0))
    near = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, -step]], [0.0])])
    found = regions(near, (-1.0, 1.0))
    assert (found.count("linear"), found.count("pieces")) == (2, 2)


def test_partial_results_say_so() -> None:
    random = np.random.default_rng(0)
    layers = [(random.normal(size=(24, 2)), random.normal(size=24)), (random.normal(size=(1, 24)), [0.0])]
    whole = regions(Network(layers), (-3.0, 3.0))
    assert whole.complete
    assert "PARTIAL" not in repr(whole)
    some = regions(Network(layers), (-3.0, 3.0), limit=50)
    with pytest.warns(PartialCountWarning, match="at least 50 cells; the limit"):
        assert (len(some), some.complete) == (50, False)
    with pytest.warns(PartialCountWarning):
        assert some.count("cells") == 50
    assert "PARTIAL: at least 50 cells" in repr(some)
    assert "limit" in some.stopped
    assert 0.0 < some.share < 1.0
    assert set(map(tuple, some.patterns.tolist())) < set(map(tuple, whole.patterns.tolist()))
    assert sum(1 for _ in some) == some.cells == 50
    assert regions(Network(layers), (-3.0, 3.0), limit=len(whole)).complete


def test_an_interrupt_leaves_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["headsmith.lab.regions.enumeration"], "BATCH", 16)
    random = np.random.default_rng(0)
    layers = [(random.normal(size=(12, 2)), random.normal(size=12)) for _ in range(1)]
    layers += [(random.normal(size=(12, 12)), random.normal(size=12)), (random.normal(size=(1, 12)), [0.0])]
    seen: list[tuple[int, float]] = []

    def stop(count: int, share: float) -> None:
        seen.append((count, share))
        if len(seen) == 3:
            raise KeyboardInterrupt

    found = regions(Network(layers), (-3.0, 3.0), progress=stop)
    assert (found.complete, found.stopped) == (False, "interrupted")
    assert found.cells == seen[-1][0] > 0
    assert found[0].vertices.shape[1] == 2
    # Batches of any size find the same cells, and progress runs from 0 to 1.
    seen.clear()
    whole = regions(Network(layers), (-3.0, 3.0), progress=lambda *step: seen.append(step))
    counts, shares = zip(*seen, strict=True)
    assert list(counts) == sorted(counts)
    assert list(shares) == sorted(shares)
    assert (counts[-1], shares[-1]) == (len(whole), pytest.approx(1.0))
    monkeypatch.setattr(sys.modules["headsmith.lab.regions.enumeration"], "BATCH", 4096)
    again = regions(Network(layers), (-3.0, 3.0))
    assert set(map(tuple, whole.patterns.tolist())) == set(map(tuple, again.patterns.tolist()))


def test_what_cannot_be_enumerated_is_refused() -> None:
    with pytest.raises(TargetError, match="Product"):
        regions("x*y", {"x": (0, 1), "y": (0, 1)})
    with pytest.raises(DomainError, match="slice"):
        regions(Network([(np.ones((2, 11)), [0.0, 0.0])]), (-1.0, 1.0))
    with pytest.raises(DomainError, match="workers"):
        regions("relu(x)", {"x": (0.0, 1.0)}, workers=0)
    with pytest.raises(DomainError, match="single number"):
        regions("relu(x)", {"x": (1.0, 1.0)})
    with pytest.raises(DomainError, match="limit"):
        regions("relu(x)", {"x": (0.0, 1.0)}, limit=0)
    with pytest.raises(TargetError, match="cannot enumerate"):
        regions(3.0, (0.0, 1.0))
    with pytest.raises(ValueError, match="linear"):
        regions("relu(x)", {"x": (-1.0, 1.0)}).count("regions")  # type: ignore[arg-type]


def test_a_network_without_hidden_layers_is_one_region() -> None:
    found = regions(Network([([[2.0, 1.0]], [0.5])]), (-1.0, 1.0))
    assert (len(found), found.count("linear")) == (1, 1)
    assert np.array_equal(found[0].matrix, [[2.0, 1.0]])
    assert found[0].pattern == ()
