"""Enumerate the linear regions of a network on a box: level by level, depth first, so that memory stays bounded.

levels_of     the network as levels of maxima of affine pieces         levels.py
split         the cells of a batch cut by one level                    split.py, cut.py, pairs.py
Forms         affine forms in float64 with running error bounds        forms.py
Oracle        rationals, where the bounds do not decide a sign         exact.py
Regions       the outcome                                              result.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box, as_box
from headsmith.regions.complex import Complex, box_complex, first_cells
from headsmith.regions.exact import Oracle
from headsmith.regions.forms import coordinates, underflow_floor
from headsmith.regions.levels import Levels, levels_of
from headsmith.regions.result import Regions
from headsmith.regions.split import Batch, advanced, begun, parts, step

BATCH = 16384
"""Cells that are worked on at a time, at most."""
ENTRIES = 2**20
"""Cells times pieces of a level that are worked on at a time."""

Progress = Callable[[int, float], None]
"""Called with the number of cells found and roughly the share of the work done, between 0 and 1."""


def regions(
    network: Any,
    domain: Any = None,
    *,
    slice: Sequence[Any] | None = None,
    limit: int = 2_000_000,
    progress: Progress | None = None,
) -> Regions:
    """The cells of the network's activation pattern that have an interior in the domain, with their affine maps.

    `network` is a ReLU or maxout network, a compiled model or source graph of affine maps, relu, max and min, or a
    formula of these. `domain` is a box in one, two or three dimensions; with `slice=(origin, u)`, `(origin, u, v)` or
    `(origin, u, v, w)` the inputs are origin + s u + t v + ..., and the box is one of (s, t, ...). A compiled model has
    a domain of its own.
    After `limit` cells, or when interrupted by Ctrl-C, what was found is returned, with `complete` False.

    Guarantee: every sign that the cells were cut by is exact, so a complete count is exact, whatever the weights and
    the size of the box. A unit that is zero (or has equal pieces) on a whole cell takes its lowest piece: relu'(0) = 0.
    """
    domain = getattr(network, "box", None) if domain is None and slice is None else domain
    names = list(domain) if isinstance(domain, Mapping) and slice is None else None
    levels = levels_of(network, names)
    box, placement = placed(levels, domain, slice)
    oracle = Oracle(levels, placement, box.low, box.high)
    floor = underflow_floor(levels, [placement, box.low, box.high])
    if limit < 1:
        raise DomainError(f"the limit is {limit} cells; it must be at least 1")
    found: list[Complex] = []
    count, share, stopped = 0, 0.0, ""
    try:
        # Infinities and nan decide no sign: the oracle does.
        with np.errstate(all="ignore"):
            for batch in _finished(_start(box, placement), 0, oracle, floor, _batch_size(levels)):
                complex, weight = batch.complex, batch.weight
                if count + len(complex) > limit:
                    stopped = f"the limit of {limit} cells was reached"
                    if count == limit:
                        break
                    weight *= (limit - count) / len(complex)
                    complex = first_cells(complex, limit - count)
                found.append(complex)
                count, share = count + len(complex), share + weight
                if progress is not None:
                    progress(count, min(share, 1.0))
                if stopped:
                    break
    except KeyboardInterrupt:
        stopped = "interrupted"
    return Regions(oracle, box, slice is not None, tuple(found), stopped, share)


def _start(box: Box, placement: Array) -> Batch:
    complex = replace(box_complex(box.low, box.high), patterns=(np.zeros((1, 0), dtype=np.uint16),))
    return Batch(complex, 1.0, lambda: coordinates(placement, 1))


def _batch_size(levels: Levels) -> int:
    """Fewer cells at a time where the levels are wide: a cell takes about 100 bytes for each form of each level."""
    widest = max((len(level.row) for level in levels.levels), default=1)
    return max(1, min(BATCH, max(256, ENTRIES // widest)))


def _finished(batch: Batch, stage: int, oracle: Oracle, floor: float, size: int) -> Iterator[Batch]:
    """The batch cut by this level and all later ones."""
    if stage == len(oracle.levels.levels):
        yield batch
        return
    level = oracle.levels.levels[stage]
    stack = [begun(batch, stage, level)]
    while stack:
        work = stack.pop()
        last = not work.todo and stage + 1 == len(oracle.levels.levels)
        if len(work) > size and not last:
            stack += reversed(parts(work))
        elif work.todo:
            stack.append(step(work, oracle, floor, 2 * size))
        else:
            yield from _finished(advanced(work, level, last), stage + 1, oracle, floor, size)


def placed(levels: Levels, domain: Any, slice: Sequence[Any] | None) -> tuple[Box, Array]:
    """The box of coordinates, and the matrix (inputs, d + 1) that maps the coordinates, and 1, to the inputs."""
    inputs = len(levels.names)
    if slice is None:
        box, placement = as_box(domain, levels.names), np.eye(inputs, inputs + 1)
    else:
        placement = _slice(slice, inputs)
        box = as_box(domain, ("s", "t", "r")[: placement.shape[1] - 1])
    if not 1 <= box.size <= 3:
        raise DomainError(
            f"regions are enumerated in one, two or three dimensions and the network has {box.size} inputs; "
            "give slice=(origin, u, v) to look at a plane"
        )
    for name, low, high in zip(box.names, box.low, box.high, strict=True):
        if not low < high:
            raise DomainError(f"the domain of {name} is the single number {float(low)!r}; it needs an interior")
    return box, placement


def _slice(slice: Sequence[Any], inputs: int) -> Array:
    """(origin, u, v, ...) as columns u, v, ..., origin."""
    try:
        origin, *directions = (np.broadcast_to(np.asarray(each, dtype=np.float64), (inputs,)) for each in slice)
    except (TypeError, ValueError):
        raise DomainError(f"the slice must be (origin, u), or (origin, u, v), each of {inputs} numbers") from None
    if not 1 <= len(directions) <= 3:
        raise DomainError(f"the slice has {len(directions)} directions; one, two or three can be looked at")
    if not all(np.isfinite(each).all() for each in (origin, *directions)):
        raise DomainError("the slice has numbers that are not finite")
    return np.stack([*directions, origin], axis=1)
