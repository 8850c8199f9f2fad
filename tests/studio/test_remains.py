"""However a studio ends, nothing of it stays: no folder with what was uploaded, and no process."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from helpers.pages.studio import Studio, memory, running

HEAVY = "exp(x*y*z) + sin(x*y)*sqrt(2 + z*x)"


def folders(process: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"headsmith-studio-{process}-*"))


def ended(studio: Studio, with_signal: int) -> list[int]:
    """End a studio that is at work; its workers."""
    job = studio.start(do="compile", asked={"formula": HEAVY, "domain": "-1:1", "error": "1e-9"})
    studio.under_way(job)
    workers = studio.workers()
    assert workers
    assert folders(studio.process.pid)
    os.kill(studio.process.pid, with_signal)
    studio.process.wait(timeout=20)
    return workers


def gone(workers: list[int], seconds: float = 20.0) -> bool:
    """Whether all of them end within so many seconds."""
    end = time.monotonic() + seconds
    while any(memory(each) for each in workers) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(memory(each) for each in workers)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_nothing_stays(name: str) -> None:
    with running(stays=False) as studio:
        workers = ended(studio, getattr(signal, name))
        assert gone(workers)
        assert bool(folders(studio.process.pid)) == (name == "SIGKILL")
    if name == "SIGKILL":
        with running():
            assert not folders(studio.process.pid)
