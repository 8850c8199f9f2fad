"""Enumerate the linear regions of a network on a box: level by level, depth first, so that memory stays bounded.

levels_of     the network as levels of maxima of affine pieces         levels.py
Complex       vertices, edges, ..., cells, each once                   complex.py
split         the cells of a complex cut by one level                  split.py, cut.py, merge.py
walk          depth first, with several processes                      walk.py
Forms         affine forms in float64 with running error bounds        forms.py
Oracle        rationals, where the bounds do not decide a sign         exact.py
Regions       the outcome                                              result.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box, as_box
from headsmith.lab.regions.complex import Complex, box_complex, first_cells
from headsmith.lab.regions.exact import Oracle
from headsmith.lab.regions.forms import coordinates, underflow_floor
from headsmith.lab.regions.levels import Levels, levels_of
from headsmith.lab.regions.result import Regions
from headsmith.lab.regions.split import Batch
from headsmith.lab.regions.walk import Walker, usual_workers, walked

BATCH = 16384
"""Cells that are worked on at a time, at most."""
ENTRIES = 2**20
"""Cells times pieces of a level that are worked on at a time."""
KEPT = 2_000_000
"""Cells that are kept, at most, if no limit is given."""
MOST = 10
"""Dimensions: a box has 3^d faces."""

Progress = Callable[[int, float], None]
"""Called with the number of cells found and roughly the share of the work done, between 0 and 1."""


def regions(
    network: Any,
    domain: Any = None,
    *,
    slice: Sequence[Any] | None = None,
    limit: int | None = None,
    keep: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Regions:
    """The cells of the network's activation pattern that have an interior in the domain, with their affine maps.

    `network` is a ReLU or maxout network, a compiled model or source graph of affine maps, relu, max and min, or a
    formula of these. `domain` is a box; with `slice=(origin, u)`, `(origin, u, v)`, ... the inputs are origin + s u +
    t v + ..., and the box is one of (s, t, ...). A compiled model has a domain of its own.
    After `limit` cells (two million, if they are kept), or when interrupted by Ctrl-C, what was found is returned, with
    `complete` False. With `keep=False` cells are counted and forgotten: in bounded memory, without a limit.
    `workers` processes share the work if it takes longer than half a second: by default one for each core. The outcome
    does not depend on them.

    Guarantee: every sign that the cells were cut by is exact, so a complete count is exact, whatever the weights and
    the size of the box. A unit that is zero (or has equal pieces) on a whole cell takes its lowest piece: relu'(0) = 0.
    """
    domain = getattr(network, "box", None) if domain is None and slice is None else domain
    names = list(domain) if isinstance(domain, Mapping) and slice is None else None
    levels = levels_of(network, names)
    box, placement = placed(levels, domain, slice)
    oracle = Oracle(levels, placement, box.low, box.high)
    if limit is None:
        limit = KEPT if keep else sys.maxsize
    if limit < 1:
        raise DomainError(f"the limit is {limit} cells; it must be at least 1")
    if workers is not None and workers < 1:
        raise DomainError(f"{workers} workers: there must be at least 1")
    floor = underflow_floor(levels, [placement, box.low, box.high])
    walker = Walker(oracle, floor, _batch_size(levels), keep)
    found: list[Complex] = []
    count, share, stopped = 0, 0.0, ""
    cells = walked(walker, walker.start(_start(box, placement)), usual_workers() if workers is None else workers)
    try:
        for each in cells:
            kept = min(each.count, limit - count)
            if kept < each.count:
                stopped = f"the limit of {limit} cells was reached"
            if kept and each.complex is not None:
                found.append(each.complex if kept == each.count else first_cells(each.complex, kept))
            count, share = count + kept, share + each.weight * kept / each.count
            if progress is not None and kept:
                progress(count, min(share, 1.0))
            if stopped:
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        cells.close()
    return Regions(oracle, box, slice is not None, tuple(found), count, stopped, share)


def _start(box: Box, placement: Array) -> Batch:
    complex = replace(box_complex(box.low, box.high), patterns=(np.zeros((1, 0), dtype=np.uint16),))
    return Batch(complex, 1.0, lambda: coordinates(placement, 1))


def _batch_size(levels: Levels) -> int:
    """Fewer cells at a time where the levels are wide: a cell takes about 100 bytes for each form of each level."""
    widest = max((len(level.row) for level in levels.levels), default=1)
    return max(1, min(BATCH, max(256, ENTRIES // widest)))


def placed(levels: Levels, domain: Any, slice: Sequence[Any] | None) -> tuple[Box, Array]:
    """The box of coordinates, and the matrix (inputs, d + 1) that maps the coordinates, and 1, to the inputs."""
    inputs = len(levels.names)
    if slice is None:
        box, placement = as_box(domain, levels.names), np.eye(inputs, inputs + 1)
    else:
        placement = _slice(slice, inputs)
        box = as_box(domain, slice_names(placement.shape[1] - 1))
    if not 1 <= box.size <= MOST:
        raise DomainError(
            f"regions are enumerated in at most {MOST} dimensions and the network has {box.size} inputs; "
            "give slice=(origin, u, v) to look at a plane"
        )
    for name, low, high in zip(box.names, box.low, box.high, strict=True):
        if not low < high:
            raise DomainError(f"the domain of {name} is the single number {float(low)!r}; it needs an interior")
    return box, placement


def slice_names(count: int) -> tuple[str, ...]:
    """The coordinates of a slice."""
    return ("s", "t", "r")[:count] if count <= 3 else tuple(f"s{i}" for i in range(count))


def _slice(slice: Sequence[Any], inputs: int) -> Array:
    """(origin, u, v, ...) as columns u, v, ..., origin."""
    try:
        origin, *directions = (np.broadcast_to(np.asarray(each, dtype=np.float64), (inputs,)) for each in slice)
    except (TypeError, ValueError):
        raise DomainError(f"the slice must be (origin, u), or (origin, u, v), each of {inputs} numbers") from None
    if not 1 <= len(directions) <= MOST:
        raise DomainError(f"the slice has {len(directions)} directions; one to {MOST} can be looked at")
    if not all(np.isfinite(each).all() for each in (origin, *directions)):
        raise DomainError("the slice has numbers that are not finite")
    return np.stack([*directions, origin], axis=1)
