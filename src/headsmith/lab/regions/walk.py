"""Walk through all cells depth first, so that memory stays bounded, alone or with several processes.

What is cut into what depends on the cells alone, not on who does it or when. So the cells, and their order, are the
same for any number of workers. Cells in work stand in a line. A worker takes the first that nobody works on, and goes
on with them until they are finished. If another worker has nothing to do meanwhile, it gives away the last of what it
still has to do, which stands behind it in the line from then on.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import numpy as np

from headsmith.core.errors import HeadsmithError
from headsmith.lab.regions.complex import Complex, slim
from headsmith.lab.regions.exact import Oracle
from headsmith.lab.regions.split import Batch, Unfinished, advanced, begun, parts, step

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ALONE = 0.5
"""Seconds after which other processes are asked to help."""
TURN, LONG = 0.25, 2.0
"""Seconds of its own time after which a worker gives away cells, if another one has none, and after which it reports
what it has finished."""


@dataclass(frozen=True, eq=False)
class Walked:
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

    def start(self, batch: Batch) -> Walked | Unfinished:
        """Cells before the first level."""
        return self._next(batch, 0)

    def go(self, work: Unfinished) -> list[Walked | Unfinished]:
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

    def _next(self, batch: Batch, stage: int) -> Walked | Unfinished:
        if stage < len(self.oracle.levels.levels):
            return begun(batch, stage, self.oracle.levels.levels[stage])
        return Walked(len(batch.complex), batch.weight, batch.complex if self.keep else None)


def walked(walker: Walker, first: Walked | Unfinished, workers: int) -> Generator[Walked, None, None]:
    """All finished cells, in order."""
    stack, began = [first], time.perf_counter()
    while stack and (workers == 1 or time.perf_counter() - began < ALONE):
        item = stack.pop()
        if isinstance(item, Walked):
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


Packed = bytes
"""Cells in work on their way to a worker."""
Place = Any
"""A place in the line: finished cells (Found), cells that nobody works on (Packed), or the connection to the worker
that works on them."""


def _together(walker: Walker, line: list[Walked | Unfinished], workers: int) -> Generator[Walked, None, None]:
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    hungry = context.Event()
    idle: list[Connection] = []
    processes = []
    try:
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, walker, hungry), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            idle.append(here)
        places: list[Place] = [_packed(each) for each in line]
        while places:
            while places and isinstance(first := places[0], Walked):
                yield first
                del places[0]
            for i, place in enumerate(places):
                if idle and isinstance(place, Packed):
                    places[i] = worker = idle.pop()
                    worker.send_bytes(place)
            if idle:
                hungry.set()
            else:
                hungry.clear()
            busy = [place for place in places if not isinstance(place, Walked | Packed)]
            ready: list[Any] = wait(busy) if busy else []
            places = [each for place in places for each in (_received(place, walker) if place in ready else [place])]
            idle += [worker for worker in ready if worker not in places]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _received(worker: Connection, walker: Walker) -> list[Place]:
    """What a worker reports, in place of it: finished cells, itself unless it is done, and what it gives away."""
    try:
        report = worker.recv()
        if isinstance(report, Exception):
            raise report
        found, asked, done, gives = report
        walker.oracle.asked += asked
        return [*found, *([] if done else [worker]), *([worker.recv_bytes()] if gives else [])]
    except EOFError:
        raise HeadsmithError(
            "a process that helped to count regions ended before its work was done, perhaps for want of memory; "
            "count with workers=1, or on a smaller box"
        ) from None


def _packed(each: Walked | Unfinished) -> Any:
    """What leaves a process: without patterns that nobody needs; cells in work as bytes, to be passed on."""
    if each.complex is None:
        return each
    slender = replace(each, complex=slim(each.complex))
    return slender if isinstance(each, Walked) else pickle.dumps(slender, protocol=pickle.HIGHEST_PROTOCOL)


def _serve(line: Connection, walker: Walker, hungry: Any) -> None:
    """What a worker does, until it is ended. An interrupt is for the first process to deal with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            _finish(line, walker, hungry, pickle.loads(line.recv_bytes()))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        line.send(error)


def _finish(line: Connection, walker: Walker, hungry: Any, work: Unfinished) -> None:
    """Go on with cells until they are finished, and report."""
    began, before = time.process_time(), walker.oracle.asked
    stack: list[Walked | Unfinished] = [work]
    found: list[Walked] = []
    while stack:
        item = stack.pop()
        if isinstance(item, Walked):
            found.append(_packed(item))
        else:
            stack += reversed(walker.go(item))
        passed = time.process_time() - began
        # The last in line is at the bottom. To give away the only cells would help nobody.
        gives = passed > TURN and len(stack) > 1 and isinstance(stack[0], Unfinished) and hungry.is_set()
        if gives or passed > LONG or not stack:
            line.send((found, walker.oracle.asked - before, not stack, gives))
            if gives:
                line.send_bytes(_packed(stack.pop(0)))
            began, before, found = time.process_time(), walker.oracle.asked, []
