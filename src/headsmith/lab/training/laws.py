"""Laws along training: what is known of all heads of a shape, at every checkpoint of those that are trained.

The class is that of students.Table: p constant reference tokens, one number s, an affine map beside the head.

    x^2 on [-1, 1], two tokens      E >= sqrt(3) / (8 V), V the range of the values that the tokens hold. Asymptotic (V
                                    large), not a theorem: a checkpoint below it would refute it
    sin on [-pi, pi], two tokens    E >= 9.257e-3, whatever the weights (a linear program in floating point: evidence);
                                    the best that is known has 9.668e-3
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import as_box
from headsmith.lab.training.measure import Errors, largest_errors
from headsmith.lab.training.optimise import Problem, Schedule, adam, levenberg, one_thread
from headsmith.lab.training.points import Field, Points
from headsmith.lab.training.stages import NORMS
from headsmith.lab.training.starts import random_start
from headsmith.lab.training.students import Table, Tensor, split
from headsmith.plan.reading import as_graph

SQUARE_LAW = math.sqrt(3.0) / 8.0
"""Of x^2 on [-1, 1] with two tokens: E V is at least this."""
SINE_BOUND, SINE_KNOWN = 9.257e-3, 9.668e-3
"""Of sin on [-pi, pi] with two tokens: a lower bound, and the best that is known."""
LEAST_RANGE = 2.0
"""Below this range of values the law of x^2, which is asymptotic, says nothing."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Trained table heads, one for each seed: the largest errors after Adam and at the end, and along the way
    checkpoints (checkpoints, seeds, 2) of largest error and range of values."""

    student: Table
    field: Field
    weights: Array
    adam: Errors
    errors: Errors
    path: Array

    @property
    def best(self) -> float:
        """The least of the largest errors: an estimate."""
        return float(self.errors.largest.min())

    @property
    def median(self) -> float:
        """The median of the largest errors: an estimate."""
        return float(np.median(self.errors.largest))

    def table(self) -> str:
        """What came out, beside the law of x^2 (for which the tables must have been trained with two tokens)."""
        found, ends = ratios(self.path), ", ".join(f"{error:.4g}" for error in self.errors.largest)
        return (
            f"x^2 on [-1, 1], one table head of {self.student.references} tokens, {len(self.weights)} seeds\n"
            f"largest errors at the end: {ends} (estimates)\n"
            f"E V / (sqrt(3)/8) at {len(found):,} checkpoints with V >= {LEAST_RANGE:g}: at least {found.min():.4f}\n"
            "The law is asymptotic, not a theorem: a checkpoint below 1 would refute it."
        )

    def data(self) -> dict[str, Any]:
        """The checkpoints for JSON: largest errors and ranges of values."""
        least = float(ratios(self.path).min())
        return {"law": SQUARE_LAW, "least_ratio": least, "best": self.best, "median": self.median, "path": self.path}

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draw error against the range of values, with the law as a line."""
        from headsmith.lab.training.draw import draw_law

        draw_law(self, SQUARE_LAW, file)


@dataclass(frozen=True)
class Effort:
    """How tables are trained."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    steps: int = 2000
    rates: tuple[float, ...] = (0.1, 0.03, 0.01)
    iterations: int = 60


def train_tables(
    target: Any, domain: tuple[float, float], references: int, heads: int = 1, effort: Effort | None = None
) -> Tables:
    """Train table heads for a target of one input by the stages of stages.py."""
    effort = effort or Effort()
    graph = as_graph(target, None)
    box = as_box(domain, graph.input.names)
    low, high = np.asarray(box.low), np.asarray(box.high)
    field = Field(graph, low, high)
    student = Table(heads, references, float(low[0] + high[0]) / 2.0, float(high[0] - low[0]) / 2.0)
    problem, test = Problem(student, field.train(256), field.validation()), field.test()
    path: list[Array] = []
    coarse = Points(test.x[::10], test.y[::10])

    def watch(_step: int, weights: Tensor) -> None:
        path.append(_checkpoint(problem, coarse, weights))

    with one_thread():
        start, many, rates = random_start(student, effort.seeds), len(effort.seeds), effort.rates
        stack = start.repeat_interleave(len(rates), 0)
        found = adam(problem.loss, stack, [*rates] * many, Schedule(effort.steps), watch=watch)
        chosen = found.losses.reshape(many, -1).argmin(1).numpy()
        places = np.arange(many) * len(rates) + chosen
        path[:] = [each[places] for each in path]
        began = found.best[places]
        held = levenberg(problem, began, effort.iterations, watch=watch)
        for norm in NORMS:
            held = levenberg(problem, held.weights, effort.iterations // 3, norm, watch=watch)
        ends = [largest_errors(problem, field, weights, test) for weights in (began, held.weights)]
    return Tables(student, field, held.weights.numpy(), ends[0], ends[1], np.array(path))


def _checkpoint(problem: Problem, test: Points, weights: Tensor) -> Array:
    """The largest error of each run on the test points, and the range of the values that its tokens hold."""
    values = split(problem.student.shapes, weights)["values"].flatten(1)
    errors = problem.residuals(weights, test).abs().amax(1)
    return np.stack([errors.numpy(), (values.amax(1) - values.amin(1)).numpy()], axis=1)


def ratios(path: Array, law: float = SQUARE_LAW) -> Array:
    """E V / law at the checkpoints whose range of values is large enough."""
    errors, values = path[..., 0].reshape(-1), path[..., 1].reshape(-1)
    counted = (values >= LEAST_RANGE) & np.isfinite(errors)
    return np.asarray(errors[counted] * values[counted] / law)


def slope(tokens: Sequence[int], errors: Sequence[float]) -> float:
    """How many digits a token brings: the slope of log10(error) against tokens, by least squares."""
    return float(np.polyfit(np.asarray(tokens, dtype=float), np.log10(errors), 1)[0])
