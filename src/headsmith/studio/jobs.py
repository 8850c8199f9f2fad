"""Work that takes a while: a queue, a few processes that compile, limits of time and memory, and cancelling.

A process serves one job at a time. It is ended where a job is cancelled or takes too long; if it dies by itself, the
job fails with a sentence, and the next one gets a new process. The page never notices more than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from headsmith.core.errors import HeadsmithError

MOST_WAITING = 100
"""Jobs in the queue; more are refused."""

MOST_REMEMBERED = 400
"""Jobs whose outcome is kept."""

ABANDONED = 60.0
"""Seconds after which a job that nobody asks about is cancelled."""

JOBS_A_PROCESS = 50
"""A process is replaced after so many jobs: what it may have gathered is freed."""


STARTING = "starting"


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds, and bytes of memory; how many run at once."""

    seconds: float = 120.0
    memory: int = 6 << 30
    lanes: int = 2


@dataclass(eq=False)
class Job:
    """One piece of work and how far it is: waiting, running, done, failed or cancelled."""

    request: dict[str, Any]
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = "waiting"
    text: str = "waiting for a free process"
    share: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    asked: float = field(default_factory=time.monotonic)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    tried: int = 0

    def shown(self) -> dict[str, Any]:
        """For the page."""
        self.asked = time.monotonic()
        found = {"job": self.name, "state": self.state, "text": self.text, "share": self.share}
        return found | ({"error": self.error} if self.error else {}) | ({"result": self.result} if self.result else {})

    def end(self, state: str, **found: Any) -> None:
        self.state = state
        for name, value in found.items():
            setattr(self, name, value)
        self.finished.set()


class Died(Exception):
    """A process ended before it had answered."""


class Process:
    """A process that compiles."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self.jobs = process, 0

    @staticmethod
    async def start(memory: int) -> Process:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "headsmith.studio.worker", str(memory), str(os.getpid()))
        made = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=environment
        )
        process = Process(made)
        await process._answer()
        return process

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def number(self) -> int:
        """The number that the system gave it."""
        return self._process.pid

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise Died
        return dict(json.loads(line))

    async def run(self, job: Job) -> None:
        """Run a job to its end. Died, if the process ends first."""
        assert self._process.stdin is not None
        self.jobs += 1
        try:
            self._process.stdin.write(json.dumps(job.request).encode() + b"\n")
            await self._process.stdin.drain()
        except OSError:
            raise Died from None
        while True:
            answer = await self._answer()
            if "progress" in answer:
                job.text, job.share = answer["progress"]
            elif "done" in answer:
                return job.end("done", result={**job.result, **answer["done"]}, text="done", share=1.0)
            elif "failed" in answer:
                return job.end("failed", error=answer["failed"])

    async def stop(self) -> None:
        # Not kill(), which looks after dead processes itself, before asyncio does: then nobody learns how they ended.
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                os.kill(self.number, signal.SIGKILL)
        await self._process.wait()


class Jobs:
    """The queue. `submit` a request, ask for it by its name, `cancel` it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._queue: asyncio.Queue[Job] = asyncio.Queue()
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, asyncio.Task[bool]] = {}
        self.processes: list[Process] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Processes run while this is open."""
        tasks = [asyncio.create_task(self._lane()) for _ in range(self.limits.lanes)]
        tasks.append(asyncio.create_task(self._sweep()))
        try:
            yield
        finally:
            for task in (*tasks, *self._running.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._running.values(), return_exceptions=True)
            for process in self.processes:
                await process.stop()

    def submit(self, request: dict[str, Any]) -> Job:
        """Put a request into the queue; HeadsmithError if it is full."""
        if self._queue.qsize() >= MOST_WAITING:
            raise HeadsmithError(f"{MOST_WAITING} jobs are waiting: try again in a moment")
        job = Job(request)
        self._jobs[job.name] = job
        while len(self._jobs) > MOST_REMEMBERED:
            oldest = next((name for name, each in self._jobs.items() if each.finished.is_set()), None)
            if oldest is None:
                break
            del self._jobs[oldest]
        self._queue.put_nowait(job)
        return job

    def find(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def cancel(self, job: Job) -> None:
        """Stop a job, whether it waits or runs."""
        if not job.finished.is_set():
            job.end("cancelled", text="cancelled")
        if job.name in self._running:
            self._running[job.name].cancel()

    async def _lane(self) -> None:
        """One process after the other, one job after the other; the first process is started before it is needed."""
        process: Process | None = await self._start()
        while True:
            job = await self._queue.get()
            if job.finished.is_set():
                continue
            if process is None or not process.alive or process.jobs >= JOBS_A_PROCESS:
                await self._drop(process)
                process = await self._start()
            if process is None:
                job.end("failed", error={"kind": "internal", "message": "no process could be started"})
                continue
            task = self._running[job.name] = asyncio.create_task(self._serve(process, job))
            try:
                keep = await task
            except asyncio.CancelledError:
                if job.state != "cancelled":
                    raise
                keep = False
            finally:
                del self._running[job.name]
            if not keep:
                await self._drop(process)
                process = await self._start()

    async def _serve(self, process: Process, job: Job) -> bool:
        """Run a job within the limit of time; whether the process can be used again."""
        job.state, job.text, job.tried = "running", STARTING, job.tried + 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                await process.run(job)
            return True
        except TimeoutError:
            message = f"this takes longer than {self.limits.seconds:g} s, the studio's limit: ask for a larger error"
            job.end("failed", error={"kind": "TimeoutError", "message": message})
        except Died:
            if job.text == STARTING and job.tried <= self.limits.lanes:
                # It was dead before it got the job.
                job.state = "waiting"
                self._queue.put_nowait(job)
                return False
            message = "the compiling process ended, perhaps for want of memory; a new one is ready: try again"
            job.end("failed", error={"kind": "Died", "message": message})
        return False

    async def _start(self) -> Process | None:
        for _ in range(3):
            with contextlib.suppress(Died, OSError):
                process = await Process.start(self.limits.memory)
                self.processes.append(process)
                return process
        return None

    async def _drop(self, process: Process | None) -> None:
        if process is not None:
            await process.stop()
            if process in self.processes:
                self.processes.remove(process)

    async def _sweep(self) -> None:
        """Cancel what nobody asks about any more."""
        while True:
            await asyncio.sleep(5.0)
            for job in list(self._jobs.values()):
                if not job.finished.is_set() and time.monotonic() - job.asked > ABANDONED:
                    self.cancel(job)
