"""Law: the cells, and their order, depend neither on how many are worked on at a time together nor on who does it."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from test_enumeration import relu_network

from headsmith.core.errors import HeadsmithError
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.result import PartialCountWarning

NETWORK = relu_network("general", [3, 10, 10, 10, 2], 1)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, and workers from the first moment on that report at once."""
    monkeypatch.setattr(sys.modules["headsmith.lab.regions.enumeration"], "BATCH", 200)
    for name, value in (("ALONE", 0.0), ("TURN", 0.02), ("LONG", 0.1)):
        monkeypatch.setattr(sys.modules["headsmith.lab.regions.walk"], name, value)


def test_batches_of_any_size_find_the_same_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = regions(NETWORK, (-1.0, 1.0))
    assert len(whole.parts) == 1
    for size in (20, 300):
        monkeypatch.setattr(sys.modules["headsmith.lab.regions.enumeration"], "BATCH", size)
        found = regions(NETWORK, (-1.0, 1.0))
        assert len(found.parts) > 3
        assert len(found) == len(whole)
        assert set(map(tuple, found.patterns.tolist())) == set(map(tuple, whole.patterns.tolist()))
        # Cells of different parts are neighbours, too.
        assert found.count("linear") == whole.count("linear")
        assert found.share == pytest.approx(1.0)


@pytest.mark.usefixtures("eager")
def test_workers_change_nothing() -> None:
    alone, together = (regions(NETWORK, (-1.0, 1.0), workers=workers) for workers in (1, 3))
    assert np.array_equal(alone.patterns, together.patterns)
    assert np.array_equal(alone.points, together.points)
    assert np.array_equal(alone.maps, together.maps)
    assert alone.count("linear") == together.count("linear")
    assert [part.point.shape for part in alone.parts] == [part.point.shape for part in together.parts]
    counted = regions(NETWORK, (-1.0, 1.0), workers=2, keep=False)
    assert len(counted) == len(alone)
    with pytest.raises(HeadsmithError, match="not kept"):
        _ = counted.patterns


@pytest.mark.usefixtures("eager")
def test_a_limit_holds_with_workers_too() -> None:
    for keep in (True, False):
        found = regions(NETWORK, (-1.0, 1.0), workers=2, keep=keep, limit=700)
        assert (found.cells, found.complete) == (700, False)
        with pytest.warns(PartialCountWarning, match="at least 700"):
            len(found)


@pytest.mark.usefixtures("eager")
def test_an_interrupt_ends_the_workers() -> None:
    def stop(count: int, share: float) -> None:
        if count > 300:
            raise KeyboardInterrupt

    found = regions(NETWORK, (-1.0, 1.0), workers=2, progress=stop)
    assert (found.complete, found.stopped) == (False, "interrupted")
    assert found.cells > 300


@pytest.mark.usefixtures("eager")
@pytest.mark.skipif(sys.platform != "linux", reason="workers that start afresh do not know what a test changed")
def test_a_worker_that_fails_or_ends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cells are lost in silence: the error of a worker arrives, and so does the news that one has ended."""

    def fails(*_: object) -> None:
        raise ArithmeticError("of a worker")

    monkeypatch.setattr(sys.modules["headsmith.lab.regions.walk"], "_finish", fails)
    with pytest.raises(ArithmeticError, match="of a worker"):
        regions(NETWORK, (-1.0, 1.0), workers=2)
    monkeypatch.setattr(sys.modules["headsmith.lab.regions.walk"], "_finish", lambda *_: os._exit(1))
    with pytest.raises(HeadsmithError, match="ended before its work was done"):
        regions(NETWORK, (-1.0, 1.0), workers=2)
