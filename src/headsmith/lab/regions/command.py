"""What `headsmith regions` does: read a slice, enumerate with a progress bar, count, draw."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box, as_box
from headsmith.lab.regions.bounds import Bound, bounds_of
from headsmith.lab.regions.enumeration import Progress, regions, slice_names
from headsmith.lab.regions.result import Regions


@dataclass(frozen=True)
class Summary:
    """The counts of one enumeration, as the command prints them; `exact_decisions` are signs that rationals decided.
    Where cells were counted only, the other counts are None."""

    names: tuple[str, ...]
    domain: tuple[tuple[float, float], ...]
    complete: bool
    stopped: str
    share: float
    cells: int
    linear: int | None
    pieces: int | None
    upper_bounds: tuple[Bound, ...]
    exact_decisions: int
    seconds: float
    regions_per_second: float
    file: str | None


def coordinate_names(slices: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """What the domain of the command is about: the inputs, the inputs that a slice names, or s, t, ..."""
    if not slices:
        return tuple(names)
    if len(slices) == 1:
        return tuple(name.strip() for name in slices[0].split(","))
    return slice_names(len(slices) - 1)


def read_slice(slices: Sequence[str], at: Sequence[str], names: Sequence[str]) -> list[Array] | None:
    """A slice from the command line.

    One text names inputs, "x0,x3": the others are held at 0, or at what `at`, NAME=VALUE texts, says. Several texts are
    the vectors origin, u, v, ..., each of comma-separated numbers.
    """
    if not slices:
        if at:
            raise DomainError("--at holds inputs that a slice does not name; give --slice NAME,NAME too")
        return None
    if len(slices) > 1:
        if at:
            raise DomainError("--at goes with a slice that names inputs; the origin of a slice by vectors says it all")
        return [_vector(text, len(names)) for text in slices]
    chosen, origin = coordinate_names(slices, names), np.zeros(len(names))
    unknown = [name for name in chosen if name not in names]
    if unknown or len(set(chosen)) < len(chosen):
        raise DomainError(
            f"cannot read the slice {slices[0]!r}: name different inputs, such as {', '.join(list(names)[:2])}, or "
            "give --slice several times, with the numbers of the origin, of u and of v"
        )
    for text in at:
        name, _, value = text.partition("=")
        if name not in names or name in chosen:
            raise DomainError(f"cannot hold {text!r}: write NAME=VALUE for an input that the slice does not name")
        origin[list(names).index(name)] = _vector(value, 1)[0]
    return [origin, *(np.eye(len(names))[list(names).index(name)] for name in chosen)]


def _vector(text: str, count: int) -> Array:
    try:
        found = np.array([float(number) for number in text.split(",")])
    except ValueError:
        raise DomainError(f"{text!r} is not a list of numbers separated by commas") from None
    if found.shape != (count,):
        raise DomainError(f"{text[:60]!r} has {len(found)} numbers; {count} are needed")
    return found


def count_regions(
    target: Any,
    names: Sequence[str],
    domain: Any,
    *,
    slices: Sequence[str] = (),
    at: Sequence[str] = (),
    limit: int | None = None,
    keep: bool = True,
    workers: int | None = None,
    output: str | None = None,
    show_progress: bool = False,
) -> tuple[Summary, Regions]:
    """Enumerate the regions of `target` on the domain (of `coordinate_names`), and count them: only the cells, if they
    are not kept. `output` is the file that they will be drawn into: refused at once where there is nothing to draw."""
    coordinates = coordinate_names(slices, names)
    box = as_box(domain, coordinates)
    if output is not None and box.size > 2:
        raise DomainError(f"regions in {box.size} dimensions are not drawn; give --slice x0,x1 to draw a plane")
    if output is not None and not keep:
        raise DomainError("regions that are only counted are not drawn: leave out --count, or -o")
    vectors = read_slice(slices, at, names)
    start = time.perf_counter()
    with progress_bar(show_progress) as progress:
        found = regions(target, box, slice=vectors, limit=limit, keep=keep, workers=workers, progress=progress)
    seconds = time.perf_counter() - start
    found = replace(found, box=Box(coordinates, box.low, box.high))
    summary = Summary(
        names=coordinates,
        domain=tuple(zip(box.low.tolist(), box.high.tolist(), strict=True)),
        complete=found.complete,
        stopped=found.stopped,
        share=min(found.share, 1.0),
        cells=found.cells,
        linear=found.count("linear") if keep else None,
        pieces=found.count("pieces") if keep else None,
        upper_bounds=bounds_of(found.oracle.levels, box.size),
        exact_decisions=found.oracle.asked,
        seconds=seconds,
        regions_per_second=found.cells / seconds,
        file=output,
    )
    return summary, found


@contextmanager
def progress_bar(shown: bool) -> Iterator[Progress | None]:
    """A bar on standard error while regions are found, where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("regions", total=1.0)

        def report(count: int, share: float) -> None:
            bar.update(task, completed=share, description=f"{count:,} regions")

        yield report


def summary_table(summary: Summary) -> Any:
    """The counts as a table for a terminal."""
    from rich.table import Table

    table = Table(title="linear regions", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    at_least = "" if summary.complete else "at least "
    table.add_row("cells of the activation pattern", f"{at_least}{summary.cells:,}")
    if summary.linear is not None:
        table.add_row("linear regions", f"{summary.linear:,}" if summary.complete else "not known")
    if summary.pieces is not None:
        table.add_row("different affine pieces", f"{at_least}{summary.pieces:,}")
    for bound in summary.upper_bounds:
        size = f"{bound.value:,}" if bound.value < 10**12 else f"{float(bound.value):.3e}"
        table.add_row(f"at most ({bound.source})", size)
    table.add_row("signs decided by rationals", f"{summary.exact_decisions:,}")
    table.add_row("seconds", f"{summary.seconds:.3g}   ({summary.regions_per_second:,.0f} regions/s)")
    if not summary.complete:
        table.add_row("PARTIAL", summary.stopped)
    return table
