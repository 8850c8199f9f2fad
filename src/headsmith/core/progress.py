"""What is being done, for whoever waits: a bar in the terminal, or a call for each step."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, float], None]
"""Called with what is being done and how much of it is done, from 0 to 1."""

Shown = Report | bool | None
"""True shows a bar on standard error, False nothing; None a bar where standard error is a terminal; a function is
called as `Report` says."""

PATIENCE = 0.3
"""Seconds: what is done sooner shows no bar."""


@contextmanager
def shown(progress: Shown) -> Iterator[Report | None]:
    """Whom to tell what is being done: the caller's function, a bar on standard error, or nobody."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not sys.stderr.isatty()):
        yield None
    else:
        with bar() as report:
            yield report


@contextmanager
def bar() -> Iterator[Report]:
    """A bar on standard error that leaves no trace: what is being done, how much of it, and since when."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("starting", total=1.0)
    timer = threading.Timer(PATIENCE, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda text, done: progress.update(task, description=text, completed=done)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()
