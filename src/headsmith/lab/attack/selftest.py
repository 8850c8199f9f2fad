"""The attack on the whole promise, as a command: generate, compile, certify, attack; then tamper, and attack again.

For every class of model, in turn, until the time is up:

    make        a random target with a random domain, error, recipe and format, compiled and saved
    attack      look for an input that exceeds the bound that the kernel proves of the file
    change      the contents of the file, one thing at a time: any tensor, bit, field, order of heads and layers
    attack      whatever the kernel still certifies, with the bound that it certifies

One class has circuits instead (forging.py), laid out as files with what they mean for a target: these are rewritten,
node by node and claim by claim, and also attacked by runs in which every head is off by as much as it may be.

What must never happen is called a failure: a bound that is exceeded, an exception other than a refusal, a check that
takes far longer than that of the file before it was changed. Everything follows from the seed: a case is named by its
class and its number, and comes again with the same seed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.core.errors import HeadsmithError
from headsmith.kernel.core.check import Certificate, proved
from headsmith.kernel.core.errors import Refused
from headsmith.lab.attack.adversary import worst_share
from headsmith.lab.attack.drafts import FileDraft
from headsmith.lab.attack.file_attack import CannotRunError, Worst, saved, worst_ratio
from headsmith.lab.attack.forging import laid_out
from headsmith.lab.attack.mutations import Change, one_change
from headsmith.lab.attack.rewrites import rewritten
from headsmith.lab.attack.selftest_cases import CLASSES

CHANGES = 24
"""Changes of each model that was compiled."""
PATIENCE = 10.0
"""Seconds of processor time that a check may take beyond twenty times that of the file before it was changed."""


@dataclass(frozen=True, eq=False)
class Failure:
    """What must not happen: the case, what was changed, what happened, and the contents of the file."""

    case: str
    change: str
    happened: str
    size: int
    header: Any
    tensors: Any

    def __str__(self) -> str:
        return f"{self.case}, {self.change}: {self.happened} ({self.size:,} bytes)"


@dataclass(eq=False)
class Tally:
    """What was tried in one class."""

    compiled: int = 0
    unreachable: int = 0
    without_proof: int = 0
    tightest: float = 0.0
    changes: int = 0
    refused: int = 0
    attacked: int = 0
    tightest_change: float = 0.0
    cannot_run: int = 0
    slowest: float = 0.0
    failures: int = 0


@dataclass(eq=False)
class Result:
    """What a run tried, by class, and what failed."""

    seed: int
    tallies: dict[str, Tally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def smallest(self) -> Failure | None:
        """The failure with the smallest file."""
        return min(self.failures, key=lambda each: each.size, default=None)


def run_selftest(minutes: float, seed: int, report: Callable[[str], None]) -> Result:
    """Try every class in turn for so many minutes; `report` is told each failure, and what was tried in the end."""
    result = Result(seed, {name: Tally() for name in CLASSES})
    end, number = time.monotonic() + 60.0 * minutes, 0
    while time.monotonic() < end:
        for place, (name, make) in enumerate(CLASSES.items()):
            if time.monotonic() >= end and number > 0:
                break
            rng = np.random.default_rng([seed, place, number])
            case = _Case(f"{name} {number}", result.tallies[name], rng)
            case.run(make, end)
            for failure in case.failures:
                report(f"FAILED: {failure}")
            result.failures += case.failures
        number += 1
    for line in summary(result):
        report(line)
    return result


def summary(result: Result) -> list[str]:
    """What was tried, a line for each class, and the smallest failing case."""
    lines = []
    for name, tally in result.tallies.items():
        lines.append(
            f"{name:18s} {tally.compiled:4d} compiled ({tally.unreachable} unreachable, {tally.without_proof} without "
            f"a proof), at most {tally.tightest:.3f} of the bound found; {tally.changes:5d} changes: {tally.refused} "
            f"refused, {tally.attacked} attacked (at most {tally.tightest_change:.3f}), {tally.cannot_run} cannot run; "
            f"longest check {tally.slowest:.1f} s; {tally.failures} failures"
        )
    smallest = result.smallest
    lines.append("nothing failed" if smallest is None else f"smallest failing case, seed {result.seed}: {smallest}")
    return lines


@dataclass(eq=False)
class _Case:
    """One model, and what is done to it."""

    name: str
    tally: Tally
    rng: np.random.Generator
    failures: list[Failure] = field(default_factory=list)

    def run(self, make: Callable[[Any], Any], end: float) -> None:
        try:
            made = make(self.rng)
        except HeadsmithError:
            self.tally.unreachable += 1
            return
        self.tally.compiled += 1
        if isinstance(made, FileDraft):
            self._changed(lambda: laid_out(rewritten(made, self.rng)), 1.0, end, forged=True)
        elif (contents := self._saved(made)) is not None:
            usual = self._tried(Change("as it was compiled", *contents), None)
            if usual is not None:
                self._changed(lambda: one_change(*contents, self.rng), usual, end)

    def _changed(self, change: Callable[[], Change | None], usual: float, end: float, forged: bool = False) -> None:
        """Try changes until the time is up."""
        for _ in range(CHANGES):
            if time.monotonic() >= end and self.tally.changes > 0:
                return
            changed = change()
            if changed is None:
                self.tally.cannot_run += 1
            else:
                self._tried(changed, usual, forged)

    def _saved(self, model: Any) -> tuple[Any, Any] | None:
        """The contents of the file of a model."""
        header, tensors = saved(model)
        if "proof" not in header:
            self.tally.without_proof += 1
            return None
        return header, tensors

    def _tried(self, change: Change, usual: float | None, forged: bool = False) -> float | None:
        """Check and attack; the seconds that the check took. `usual` is what it took before anything was changed."""
        tally, start = self.tally, time.process_time()
        tally.changes += usual is not None
        found: Certificate | None = None
        try:
            found = proved(change.header, change.tensors)
        except Refused as problem:
            if usual is None:
                self._failed(change, f"a compiled model is refused: {problem}")
            tally.refused += usual is not None
        except Exception as problem:
            last = traceback.extract_tb(problem.__traceback__)[-1]
            self._failed(change, f"{type(problem).__name__} in {last.name}: {problem}")
        taken = time.process_time() - start
        tally.slowest = max(tally.slowest, taken)
        if usual is not None and taken > PATIENCE + 20.0 * usual:
            self._failed(change, f"the check took {taken:.1f} s, and {usual:.1f} s before")
        if found is not None:
            self._attacked(change, found, usual is not None, forged)
        return None if found is None else taken

    def _attacked(self, change: Change, found: Certificate, changed: bool, forged: bool) -> None:
        met = list[Worst]()
        if forged:
            met.append(worst_share(change.header, change.tensors, found.outputs, self.rng))
        try:
            met.append(worst_ratio(change.header, change.tensors, found.outputs, found.masks, self.rng))
        except CannotRunError:
            self.tally.cannot_run += 1
            if not met:
                return
        worst = max(met, key=lambda each: each.ratio)
        if changed:
            self.tally.attacked += 1
            self.tally.tightest_change = max(self.tally.tightest_change, worst.ratio)
        else:
            self.tally.tightest = max(self.tally.tightest, worst.ratio)
        if not worst.ratio <= 1.0:
            where, mask = np.asarray(worst.sequence).tolist(), "a causal mask" if worst.causal else "no mask"
            self._failed(
                change, f"{worst.ratio:.6g} times the bound {found.error:.6g}, {worst.run}, with {mask}, at {where}"
            )

    def _failed(self, change: Change, happened: str) -> None:
        self.tally.failures += 1
        size = len(repr(change.header)) + sum(values.nbytes for values in change.tensors.values())
        self.failures.append(Failure(self.name, change.label, happened, size, change.header, change.tensors))
