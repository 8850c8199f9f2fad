"""What a fair best effort is: every stage gains, and none is left out.

    random        Adam, full batch, every seed at several rates at once, 50 steps of warm-up, a cosine to zero, the best
                  weights on the way; of each seed the rate of least training loss; then Levenberg-Marquardt; then the
                  same on the 4-, 8-, 16- and 32-norm; the weights of least error on validation points
    compiled      Levenberg-Marquardt and norms from the built weights, at several dampings; and Adam from there, 1,000
                  steps at each of three rates without a warm-up, whose last weights count: does it keep what was built?
    perturbed     from near the built weights, as from random ones

Nothing is chosen by the test points. Everything is deterministic: one thread, stops by steps, a generator for each
seed, one stack of runs; a rerun with the same settings on the same machine has equal bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.progress import Report
from headsmith.lab.training.cases import Case
from headsmith.lab.training.journal import Arrays, Journal
from headsmith.lab.training.optimise import Damping, Polished, Schedule, Tell, adam, levenberg
from headsmith.lab.training.settings import Settings
from headsmith.lab.training.starts import perturbed_start, random_start
from headsmith.lab.training.students import Tensor, torch_module

NORMS = (4.0, 8.0, 16.0, 32.0)
KEPT_RATES, KEPT_STEPS = (1e-3, 1e-4, 1e-5), 1000
"""Adam from the built weights."""
PERTURBED_RATES = (1e-2, 1e-3)
DAMPINGS = tuple(Damping(first, floor) for floor in (1e-12, 1e-6, 1e-2) for first in (1e-3, 1e-1))
"""Levenberg-Marquardt from the built weights: they have columns of almost no gradient, and how far those may be scaled
up decides which way it goes."""
COSTS = {"random": 10.0, "compiled": 6.0, "perturbed": 8.0}
"""What the starts cost, roughly, relative to each other."""


@dataclass(frozen=True, eq=False)
class Row:
    """A run before it is measured: weights after each stage, in order, a curve (points, 3) of steps, root mean squares
    and largest errors, and the seconds of processor that it took."""

    method: str
    seed: int | None
    rate: float | None
    stages: dict[str, Array]
    curve: Array
    seconds: float


class Clock:
    """Says what is being done, how much of all is done, and how long the rest may take."""

    def __init__(self, starts: Sequence[str], report: Report | None) -> None:
        self.report, self.began = report, time.monotonic()
        self.total, self.done = sum(COSTS[start] for start in starts), 0.0

    @contextmanager
    def stage(self, start: str, part: float) -> Iterator[Tell]:
        """A stage that is a part of all that is done from one start; what it yields is told how much of it is done."""
        cost = part * COSTS[start]

        def tell(what: str, done: float) -> None:
            if self.report is not None:
                share = min(1.0, (self.done + cost * done) / self.total)
                left = (time.monotonic() - self.began) * (1.0 - share) / share if share > 0.02 else math.nan
                rest = "" if math.isnan(left) else f", about {left:.0f} s left"
                self.report(f"{start} start, {what}{rest}", share)

        tell("Adam" if part > 0.5 else "polish", 0.0)
        yield tell
        self.done += cost


@dataclass(frozen=True)
class Trainer:
    """All stages of one case."""

    case: Case
    settings: Settings
    diary: Journal
    clock: Clock

    def rows(self, start: str) -> list[Row]:
        """The runs from one kind of start."""
        student, seeds, built = self.case.student, self.settings.seeds, self.case.compiled
        if start == "random":
            return self._descended(start, random_start(student, seeds), self.settings.rates)
        assert built is not None
        if start == "compiled":
            return [self._polished_row(built), *self._adam_rows(built)]
        near = perturbed_start(student, built, self.settings.noise, self.settings.zeros, seeds)
        return self._descended(start, near, PERTURBED_RATES)

    def _descended(self, start: str, weights: Tensor, rates: Sequence[float]) -> list[Row]:
        """Adam at every rate for every seed, then the polish of each seed's best."""
        many, problem = len(weights), self.case.problem

        def first() -> Arrays:
            with self.clock.stage(start, 0.6) as tell:
                stack = weights.repeat_interleave(len(rates), 0)
                found = adam(problem.loss, stack, [*rates] * many, Schedule(self.settings.steps), tell)
            chosen = found.losses.reshape(many, -1).argmin(1).numpy()
            places = np.arange(many) * len(rates) + chosen
            return {"weights": found.best.numpy()[places], "chosen": chosen.astype(float), "curve": found.curve(places)}

        began = self.diary.once(f"{start} adam {list(rates)}", first)
        polished = self.diary.once(f"{start} polish", lambda: self._polished(start, began["weights"]))
        return [
            Row(
                f"Adam, {self._polish}",
                self.settings.seeds[place],
                rates[int(began["chosen"][place])],
                {
                    "Adam": began["weights"][place],
                    "LM": polished["squares"][place],
                    "norms": polished["weights"][place],
                },
                _joined(began["curve"][:, place], polished["curve"][:, place]),
                float(began["seconds"] + polished["seconds"]) / many,
            )
            for place in range(many)
        ]

    @property
    def _polish(self) -> str:
        return "LM, norms" if self.settings.polish else "LM"

    def _polished(self, start: str, weights: Array, dampings: Sequence[Damping] = ()) -> Arrays:
        """Levenberg-Marquardt on squares, then on higher norms, each from what was best before."""
        norms = NORMS if self.settings.polish else ()
        with self.clock.stage(start, 0.4) as tell:

            def told(done: float, share: float) -> Callable[[str, float], None]:
                return lambda text, part: tell(text, done + share * part)

            def stage(at: Tensor, power: float, iterations: int, tell_it: Tell) -> Polished:
                return levenberg(self.case.problem, at, iterations, power, dampings, tell_it)

            held = stage(torch_module().tensor(weights), 2.0, self.settings.iterations, told(0.0, 0.5))
            squares, curves = held.weights, [held.curves]
            for place, norm in enumerate(norms):
                held = stage(held.weights, norm, self.settings.iterations // 3, told(0.5 + 0.125 * place, 0.125))
                curves.append(held.curves[1:])
        return {"squares": squares.numpy(), "weights": held.weights.numpy(), "curve": np.concatenate(curves)}

    def _polished_row(self, built: Tensor) -> Row:
        """From the built weights, what the polish makes of them: the damping of least error on validation points."""
        stack = built.repeat(len(DAMPINGS), 1).numpy()
        found = self.diary.once("compiled polish", lambda: self._polished("compiled", stack, DAMPINGS))
        best = int(self.case.problem.validated(torch_module().tensor(found["weights"])).argmin())
        stages = {"built": built.numpy()[0], "LM": found["squares"][best], "norms": found["weights"][best]}
        curve = _joined(np.zeros((0, 3)), found["curve"][:, best])
        return Row(self._polish, None, None, stages, curve, float(found["seconds"]))

    def _adam_rows(self, built: Tensor) -> list[Row]:
        """From the built weights, what Adam leaves of them: its last weights."""
        many = len(KEPT_RATES)

        def lost() -> Arrays:
            with self.clock.stage("compiled", 0.6) as tell:
                schedule = Schedule(KEPT_STEPS, warm_up=0)
                found = adam(self.case.problem.loss, built.repeat(many, 1), KEPT_RATES, schedule, tell)
            return {"weights": found.last.numpy(), "curve": found.curve(np.arange(many))}

        left = self.diary.once("compiled adam", lost)
        rows: list[Any] = [{"Adam": weights} for weights in left["weights"]]
        seconds = float(left["seconds"]) / many
        return [
            Row(f"Adam {KEPT_STEPS}", None, rate, rows[place], left["curve"][:, place], seconds)
            for place, rate in enumerate(KEPT_RATES)
        ]


def _joined(before: Array, after: Array) -> Array:
    """One curve (points, 3): iterations of the polish go on counting where Adam stopped."""
    last = before[-1, 0] if len(before) else 0.0
    steps = last + np.arange(len(after), dtype=float)
    return np.concatenate([before, np.concatenate([steps[:, None], after], axis=1)])
