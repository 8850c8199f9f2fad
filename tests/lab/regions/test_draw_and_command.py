"""Pictures are written whole; the command reads slices, counts and says what is partial."""

from __future__ import annotations

import json
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from headsmith.core.errors import DomainError, HeadsmithError
from headsmith.core.intervals import as_box
from headsmith.lab.regions.command import coordinate_names, count_regions, read_slice, summary_table
from headsmith.lab.regions.draw import draw_regions, draw_softening, figure_of
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import levels_of
from headsmith.language.network import Network


def network(inputs: int) -> Network:
    random = np.random.default_rng(inputs)
    return Network([(random.normal(size=(8, inputs)), random.normal(size=8)), (random.normal(size=(2, 8)), [0.0, 0.0])])


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_partition_is_drawn_with_its_counts(inputs: int, tmp_path: Path) -> None:
    found = regions(network(inputs), (-2.0, 2.0))
    draw_regions(found, tmp_path / "regions.png", title="eight neurons")
    assert (tmp_path / "regions.png").stat().st_size > 10_000
    assert [file.name for file in tmp_path.iterdir()] == ["regions.png"]
    title = figure_of(found, "eight neurons")._suptitle.get_text()
    assert f"{len(found)} cells" in title
    assert "eight neurons" in title


def test_partial_pictures_say_so(tmp_path: Path) -> None:
    assert "partial" in figure_of(regions(network(2), (-2.0, 2.0), limit=5))._suptitle.get_text()


def test_softening_is_drawn(tmp_path: Path) -> None:
    draw_softening(levels_of("max(x, y, -x - y)"), as_box((-1.0, 1.0), ("x", "y")), tmp_path / "soft.png", (2.0, 16.0))
    assert (tmp_path / "soft.png").stat().st_size > 20_000


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadsmithError, match="3 dimensions"):
        draw_regions(regions(network(3), (-1.0, 1.0)), tmp_path / "regions.png")
    with pytest.raises(HeadsmithError, match="png"):
        draw_regions(regions(network(2), (-1.0, 1.0)), tmp_path / "regions.gif")
    assert list(tmp_path.iterdir()) == []


def test_slices_by_name_and_by_vectors_agree(tmp_path: Path) -> None:
    target = network(4)
    named, _ = count_regions(target, target.names, (-2.0, 2.0), slices=["x0,x2"], at=["x3=0.5"])
    vectors = ["0,0,0,0.5", "1,0,0,0", "0,0,1,0"]
    given, _ = count_regions(target, target.names, (-2.0, 2.0), slices=vectors, output=str(tmp_path / "slice.png"))
    assert named.names == ("x0", "x2") == coordinate_names(["x0,x2"], target.names)
    assert given.names == ("s", "t")
    assert named.cells == given.cells > 8
    assert named.complete
    assert json.loads(json.dumps(asdict(given)))["file"] == str(tmp_path / "slice.png")
    assert all(given.cells <= bound.value for bound in given.upper_bounds)


def test_counts_without_regions_are_the_same() -> None:
    """--count forgets the cells: the same number, no other counts, and nothing to draw."""
    target = network(3)
    whole, _ = count_regions(target, target.names, (-2.0, 2.0))
    counted, found = count_regions(target, target.names, (-2.0, 2.0), keep=False)
    assert (counted.cells, counted.linear, counted.pieces) == (whole.cells, None, None)
    assert len(found) == whole.cells
    with pytest.raises(HeadsmithError, match="not kept"):
        found[0]
    with pytest.raises(HeadsmithError, match="--count"):
        count_regions(network(2), ("x0", "x1"), (-2.0, 2.0), keep=False, output="regions.png")


def test_the_table_shows_what_is_partial() -> None:
    target = network(2)
    console = Console(width=120, record=True, file=StringIO())
    console.print(summary_table(count_regions(target, target.names, (-2.0, 2.0), limit=7)[0]))
    text = console.export_text()
    assert "at least 7" in text
    assert "PARTIAL" in text


@pytest.mark.parametrize(
    ("slices", "at"),
    [
        (["x0,x9"], []),
        (["x0,x0"], []),
        (["0,0,0,0", "1,0,0"], []),
        (["0,0,0,0", "a,0,0,0"], []),
        (["x0,x1"], ["x1=2"]),
        (["x0,x1"], ["x2"]),
        ([], ["x2=1"]),
        (["0,0,0,0", "1,0,0,0"], ["x2=1"]),
    ],
)
def test_slices_that_cannot_be_read_are_refused(slices: list[str], at: list[str]) -> None:
    with pytest.raises(DomainError):
        read_slice(slices, at, ("x0", "x1", "x2", "x3"))
