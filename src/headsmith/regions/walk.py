"""Walk through all cells depth first, so that memory stays bounded, alone or with several processes.

What is cut into what depends on the cells alone, not on who does it or when. So the cells, and their order, are the
same for any number of workers. A worker takes cells in work, goes on with them for a while, and returns what is
finished and what is left, which takes its place in the line.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.regions.complex import Complex, slim
from headsmith.regions.exact import Oracle
from headsmith.regions.split import Batch, Work, advanced, begun, parts, step

ALONE = 0.5
"""Seconds after which other processes are asked to help."""
TURN, LONG = 0.5, 10.0
"""Seconds of its own time that a worker goes on before it reports: where others wait for work, and where none does."""


@dataclass(frozen=True, eq=False)
class Found:
    """Finished cells: how many, their share of all the work, and (if they are kept) their complex."""

    count: int
    weight: float
    complex: Complex | None


@dataclass(eq=False)
class Walker:
    """What every process knows: the network, what underflow may hide, and how many cells to work on at a time."""

    oracle: Oracle
    floor: float
    size: int
    keep: bool

    def start(self, batch: Batch) -> Found | Work:
        """Cells before the first level."""
        return self._next(batch, 0)

    def go(self, work: Work) -> list[Found | Work]:
        """One step on, in order: the cells in parts, or cut, or at the next level, or finished."""
        levels = self.oracle.levels.levels
        last = not work.todo and work.stage + 1 == len(levels)
        # Infinities and nan decide no sign: the oracle does.
        with np.errstate(all="ignore"):
            if len(work) > self.size and not last:
                return list(parts(work))
            if work.todo:
                return [step(work, self.oracle, self.floor, 2 * self.size)]
            return [self._next(advanced(work, levels[work.stage], last), work.stage + 1)]

    def _next(self, batch: Batch, stage: int) -> Found | Work:
        if stage < len(self.oracle.levels.levels):
            return begun(batch, stage, self.oracle.levels.levels[stage])
        return Found(len(batch.complex), batch.weight, batch.complex if self.keep else None)


def walked(walker: Walker, first: Found | Work, workers: int) -> Generator[Found, None, None]:
    """All finished cells, in order."""
    stack, began = [first], time.perf_counter()
    while stack and (workers == 1 or time.perf_counter() - began < ALONE):
        item = stack.pop()
        if isinstance(item, Found):
            yield item
        else:
            stack += reversed(walker.go(item))
    if stack:
        yield from _together(walker, stack[::-1], workers)


def usual_workers() -> int:
    """As many as there are cores; one within a process that may not start others."""
    return 1 if multiprocessing.current_process().daemon else len(_cores())


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


Turn = tuple[list[Found | Work], int]


def _together(walker: Walker, line: list[Found | Work], workers: int) -> Generator[Found, None, None]:
    places: list[Found | Work | Future[Turn]] = list(line)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    hungry = context.Event()
    pool = ProcessPoolExecutor(workers, context, _welcome, (walker, hungry))
    try:
        while places:
            while places and isinstance(first := places[0], Found):
                yield first
                del places[0]
            running = [place for place in places if isinstance(place, Future)]
            for i, place in enumerate(places):
                if len(running) > workers:
                    break
                if isinstance(place, Work):
                    places[i] = future = pool.submit(_turn, replace(place, complex=slim(place.complex)))
                    running.append(future)
            if len(running) < workers:
                hungry.set()
            else:
                hungry.clear()
            if running:
                wait(running, return_when=FIRST_COMPLETED)
                places = [each for place in places for each in _received(walker, place)]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _received(walker: Walker, place: Found | Work | Future[Turn]) -> list[Found | Work | Future[Turn]]:
    if not isinstance(place, Future) or not place.done():
        return [place]
    found, asked = place.result()
    walker.oracle.asked += asked
    return list(found)


_known: list[tuple[Walker, Any]] = []


def _welcome(walker: Walker, hungry: Any) -> None:
    """A worker begins. An interrupt is for the first process to deal with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _known[:] = [(walker, hungry)]


def _turn(work: Work) -> Turn:
    """What became of cells after a while, in order, and how many signs the oracle was asked for."""
    ((walker, hungry),) = _known
    began, before = time.process_time(), walker.oracle.asked
    stack: list[Found | Work] = [work]
    found: list[Found | Work] = []
    while stack and time.process_time() - began < (TURN if hungry.is_set() else LONG):
        item = stack.pop()
        if isinstance(item, Found):
            found.append(item)
        else:
            stack += reversed(walker.go(item))
    found += reversed(stack)
    kept = [each if each.complex is None else replace(each, complex=slim(each.complex)) for each in found]
    return kept, walker.oracle.asked - before
