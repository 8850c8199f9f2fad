"""Error against size: what training reaches, what is built, what is known to be impossible.

Reference tokens of a target of one input are swept in the class that bounds are about (laws.py); of others, and for
heads and layers, in the full shape (hs.train with `shape`). What is built is the least certificate over many requests
among the models that are not larger.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from headsmith.compile import compile
from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.core.intervals import as_box
from headsmith.core.markup import csv_text, latex_table, markdown_table, plain_table
from headsmith.core.pictures import checked_picture, figure_class, save_figure
from headsmith.core.progress import Shown, shown
from headsmith.files import model_of
from headsmith.lab.enough.bounds import lower_bound
from headsmith.lab.training.laws import Effort, train_tables
from headsmith.lab.training.settings import settings_of
from headsmith.lab.training.train import train
from headsmith.language.describe import outputs_text
from headsmith.model import Compiled
from headsmith.plan.reading import as_graph

Axis = Literal["tokens", "heads", "layers"]
REQUESTS = tuple(10.0**-digits for digits in np.arange(1.0, 9.6, 0.4))
"""The errors that are asked of the compiler."""


@dataclass(frozen=True)
class Step:
    """One size: the least and the median of largest errors that were trained (estimates), after Adam alone and in the
    end, with the largest weight of the best; the least certificate that was built with at most this size; and a lower
    bound for heads of this size, with what kind of a bound it is. None where there is none."""

    size: int
    adam: float
    best: float
    median: float
    max_weight: float
    built: float | None
    lower_bound: float | None
    bound_kind: str


@dataclass(frozen=True, eq=False)
class Sweep:
    """Errors against one size."""

    target: str
    axis: Axis
    student: str
    rows: tuple[Step, ...]

    def table(self) -> str:
        """The table, and what was trained."""
        told = f"{self.target}, by {self.axis}; trained: {self.student}"
        legend = "built is certified; adam, best and median are largest errors that a search finds"
        return "\n".join([told, legend, "", plain_table([each.name for each in fields(Step)], self._cells())])

    def markdown(self) -> str:
        """Every size as a Markdown table."""
        return markdown_table([each.name for each in fields(Step)], self._cells())

    def latex(self) -> str:
        """Every size as a LaTeX table (booktabs)."""
        names = [each.name.replace("_", " ") for each in fields(Step)]
        return latex_table(names, self._cells(), f"{self.target} by {self.axis}: trained, and built.")

    def csv(self) -> str:
        """Every size, numbers in full."""
        names = [each.name for each in fields(Step)]
        return csv_text(names, [[getattr(row, name) for name in names] for row in self.rows])

    def data(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {"target": self.target, "axis": self.axis, "student": self.student, "rows": self.rows}

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draw errors against size: trained best and median with what lies between, built, and lower bounds."""
        path = checked_picture(file)
        figure = figure_class()(figsize=(6.4, 4.6), layout="constrained", dpi=120)
        axis, sizes = figure.subplots(), [row.size for row in self.rows]
        best, median = ([getattr(row, name) for row in self.rows] for name in ("best", "median"))
        axis.fill_between(sizes, best, median, color="#6baed6", alpha=0.3)
        axis.plot(sizes, best, marker="o", color="#08519c", label="trained, best")
        axis.plot(sizes, median, marker="o", color="#6baed6", label="trained, median")
        axis.plot(sizes, [row.adam for row in self.rows], ":", color="#9e9ac8", label="Adam alone, best")
        for name, colour, label in (
            ("built", "#222222", "built (certified)"),
            ("lower_bound", "#d94801", "lower bound"),
        ):
            known = [(row.size, value) for row in self.rows if (value := getattr(row, name)) is not None]
            if known:
                axis.plot(*zip(*known, strict=True), marker="s", color=colour, label=label)
        axis.set_yscale("log")
        axis.set_xticks(sizes)
        axis.set_xlabel("reference tokens" if self.axis == "tokens" else self.axis)
        axis.set_ylabel("largest error")
        axis.set_title(f"{self.target}: {self.student}", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
        save_figure(figure, path)

    def _cells(self) -> list[Sequence[str]]:
        return [[_cell(getattr(row, each.name)) for each in fields(Step)] for row in self.rows]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def sweep(
    target: Any, domain: Any, axis: Axis, sizes: Sequence[int], *, effort: Effort | None = None, progress: Shown = None
) -> Sweep:
    """Train a target at several sizes, beside what is built."""
    if axis not in ("tokens", "heads", "layers") or not sizes or min(sizes) < 1:
        raise TargetError(f"cannot sweep {axis} over {list(sizes)}: sweep tokens, heads or layers over positive sizes")
    effort, models = effort or Effort(), _built(target, domain)
    if not models:
        raise TargetError("nothing that was asked for can be compiled: shrink the domain")
    one_input = models[0].box.size == 1 and axis in ("tokens", "heads")
    rows = []
    with shown(progress) as report:
        for place, size in enumerate(sizes):
            if report is not None:
                report(f"{axis} = {size}", place / len(sizes))
            trained = _table(target, domain, axis, size, effort) if one_input else _shape(models, axis, size, effort)
            rows.append(_step(models, axis, size, trained, _bound(target, domain, axis, size) if one_input else None))
    student = {
        "tokens": "a table head of so many tokens, beside an affine map",
        "heads": "table heads of two tokens, beside an affine map",
    }.get(axis if one_input else "", "the full shape of a transformer, everything trainable")
    text = outputs_text(models[0].wanted, 100)
    return Sweep(text, axis, student, tuple(rows))


def sweep_of(
    target: Any, domain: Any, like: Any, axis: Axis, sizes: Sequence[int], progress: Shown, **options: Any
) -> Sweep:
    """`sweep` with the options of `hs.train`; the target and its domain may be those of a compiled model."""
    if like is not None:
        model = model_of(like)
        target = model.wanted
        domain = dict(
            zip(model.box.names, zip(model.box.low.tolist(), model.box.high.tolist(), strict=True), strict=True)
        )
    settings = settings_of(**options)
    effort = Effort(settings.seeds, settings.steps, settings.rates, settings.iterations)
    return sweep(target, domain, axis, sizes, effort=effort, progress=progress)


def _built(target: Any, domain: Any) -> list[Compiled]:
    """Models of one request after another."""
    found = []
    for error in REQUESTS:
        try:
            found.append(compile(target, domain, error=error))
        except HeadsmithError:
            continue
    return found


def _table(target: Any, domain: Any, axis: Axis, size: int, effort: Effort) -> tuple[float, float, float, float]:
    graph = as_graph(target, domain)
    box = as_box(domain, graph.input.names)
    ends = (float(box.low[0]), float(box.high[0]))
    tables = train_tables(target, ends, size if axis == "tokens" else 2, 1 if axis == "tokens" else size, effort)
    weight = float(np.abs(tables.weights[int(np.argmin(tables.errors.largest))]).max())
    return float(tables.adam.largest.min()), tables.best, tables.median, weight


def _shape(models: Sequence[Compiled], axis: Axis, size: int, effort: Effort) -> tuple[float, float, float, float]:
    options: dict[str, Any] = {
        "seeds": effort.seeds,
        "steps": effort.steps,
        "rates": effort.rates,
        "iterations": effort.iterations,
    }
    found = train(like=models[-1], shape={axis: size}, starts="random", certify=False, progress=False, **options)
    best = found.best_run
    return min(run.stages["Adam"] for run in found.runs), best.found, found.median, best.max_weight


def _step(
    models: Sequence[Compiled], axis: Axis, size: int, trained: tuple[float, float, float, float], bound: Any
) -> Step:
    name = "reference_tokens" if axis == "tokens" else axis
    others = [each for each in ("layers", "heads") if axis == "tokens"]
    fitting = [
        model.certificate.error
        for model in models
        if getattr(model.bill, name) <= size and all(getattr(model.bill, each) <= 1 for each in others)
    ]
    built = min(fitting) if fitting else None
    lower, kind = (None, "") if bound is None else bound
    return Step(size, *trained, built, lower, kind)


def _bound(target: Any, domain: Any, axis: Axis, size: int) -> tuple[float, str] | None:
    """What no head of this size can do, and what kind of a bound that is, where `hs.lower_bound` knows one."""
    if axis != "tokens":
        return None
    try:
        found = lower_bound(target, domain, reference_tokens=size)
    except HeadsmithError:
        return None
    return float(found.value), str(found.kind)
