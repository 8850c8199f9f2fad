"""Why small models err at arithmetic: three causes, in three columns, and one more beside them.

    too few gates           built: the relu recipe (every product a ReLU circuit, every gate a head), with a proof:
                            what so many gates do if somebody makes them
    depth that training     networks: ReLU networks of as many gates, trained, in as many layers or side by side,
    does not use            whichever trains better. What is built gains a factor of 4 from every layer
    sharpness               attention: softmax attention of the same layers and heads, trained. Soft gates are curved,
                            so it may beat the relu recipe; accurate weights are sharp, and gradient descent leaves
                            sharp minima (measure.py)

Beside them the native head: what one head can do if somebody builds it. Without that column the table would mislead in
training's favour; without the relu column, in ours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core import figures
from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.core.markup import csv_text, latex_table, markdown_table, plain_table
from headsmith.core.pictures import checked_picture, figure_class, save_figure
from headsmith.core.progress import Shown, shown
from headsmith.lab.training.cases import Case, case_of
from headsmith.lab.training.measure import largest_errors
from headsmith.lab.training.optimise import Problem, Schedule, adam, levenberg, one_thread
from headsmith.lab.training.starts import random_start
from headsmith.lab.training.students import Gates, Student, size_of
from headsmith.language.library import sort
from headsmith.model import Compiled

TARGETS: dict[str, tuple[Any, Any]] = {
    "x*y": ("x*y", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}),
    "1/x": ("1/x", (0.1, 1.0)),
    "max": ("max(x,y)", (-1.0, 1.0)),
    "sort": (lambda x, y, z: sort([x, y, z]), (-1.0, 1.0)),
}
ASKED = tuple(10.0**-digits for digits in np.arange(0.5, 3.6, 0.25))
"""Errors that are asked of the relu recipe: what comes out are its sizes."""
MOST_HEADS, MOST_SIZES = 8, 4
COLUMNS = (
    "target",
    "layers",
    "heads",
    "built",
    "approximation",
    "network_best",
    "network_median",
    "attention_best",
    "attention_median",
    "attention_weight",
    "native",
)
"""`built` and `native` are certified, trained figures are estimates."""


@dataclass(frozen=True)
class Size:
    """One size: what the relu recipe proves with so many layers and heads, `approximation` the part of it that is the
    ReLU circuit's; what trained ReLU networks of as many gates reach, and trained attention of that shape, with its
    largest weight; and the native head, whose own shape is `native_shape`."""

    target: str
    layers: int
    heads: int
    built: float
    approximation: float
    network_best: float
    network_median: float
    attention_best: float
    attention_median: float
    attention_weight: float
    native: float
    native_shape: str


@dataclass(frozen=True)
class Arithmetic:
    """Every size of every target."""

    rows: tuple[Size, ...]
    seeds: int
    steps: int

    def table(self) -> str:
        """The table, and what its columns say."""
        natives = dict.fromkeys(f"{row.target}: {row.native_shape}" for row in self.rows)
        return "\n".join(
            [
                plain_table(COLUMNS, self._cells()),
                "",
                "built, approximation, native: certified, in float64; the others: largest errors that a search finds.",
                f"trained: {self.seeds} seeds, Adam ({self.steps} steps at two rates, the better one), 60 iterations "
                "of Levenberg-Marquardt (20 for more than 400 weights), best and median.",
                "built is a proof with so many gates; the network has at least as many, side by side or in the same "
                "layers, whichever trains better; attention has at least as many heads in the same layers.",
                f"native heads: {'; '.join(natives)}.",
            ]
        )

    def markdown(self) -> str:
        """Every size as a Markdown table."""
        return markdown_table(COLUMNS, self._cells())

    def latex(self) -> str:
        """Every size as a LaTeX table (booktabs)."""
        caption = "Built with a proof, and trained: largest errors against size."
        return latex_table([name.replace("_", " ") for name in COLUMNS], self._cells(), caption)

    def csv(self) -> str:
        """Every size, numbers in full."""
        return csv_text(COLUMNS, [[getattr(row, name) for name in COLUMNS] for row in self.rows])

    def data(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {"rows": self.rows, "seeds": self.seeds, "steps": self.steps}

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draw errors against heads, a panel for each target."""
        path = checked_picture(file)
        targets = list(dict.fromkeys(row.target for row in self.rows))
        figure = figure_class()(figsize=(1.0 + 3.8 * len(targets), 4.4), layout="constrained", dpi=120)
        figure.suptitle("largest error against size: built with a proof, and trained", fontsize=12)
        for axis, target in zip(figure.subplots(1, len(targets), squeeze=False)[0], targets, strict=True):
            _draw(axis, [row for row in self.rows if row.target == target])
        save_figure(figure, path)

    def _cells(self) -> list[Sequence[str]]:
        return [[_cell(name, getattr(row, name)) for name in COLUMNS] for row in self.rows]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return figures.bound(value, 3) if name in ("built", "native", "approximation") else f"{value:.2g}"
    return str(value)


LINES = {
    "built": ("#222222", "built, relu recipe (certified)"),
    "network_median": ("#d94801", "ReLU networks, trained (median)"),
    "attention_median": ("#6baed6", "attention, trained (median)"),
    "attention_best": ("#08519c", "attention, trained (best)"),
    "native": ("#238b45", "native head, built (certified)"),
}


def _draw(axis: Any, rows: Sequence[Size]) -> None:
    heads = [row.heads for row in rows]
    for name, (colour, label) in LINES.items():
        style = "--" if name == "native" else "-"
        axis.plot(
            heads, [getattr(row, name) for row in rows], style, marker="o", color=colour, label=label, markersize=4
        )
    axis.set_yscale("log")
    axis.set_title(rows[0].target, fontsize=10)
    axis.set_xlabel("heads, or gates")
    axis.set_xticks(heads, [f"{row.heads} in {row.layers}" for row in rows], fontsize=7)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6, loc="best", framealpha=0.9)


def arithmetic(
    targets: Sequence[str] = tuple(TARGETS), *, seeds: int = 3, steps: int = 1000, progress: Shown = None
) -> Arithmetic:
    """Built beside trained, against layers and heads, for some of "x*y", "1/x", "max", "sort" (of three numbers)."""
    unknown = [name for name in targets if name not in TARGETS]
    if unknown or not targets:
        raise TargetError(f"no target {', '.join(unknown)}; choose among {', '.join(TARGETS)}")
    rows: list[Size] = []
    with one_thread(), shown(progress) as report:
        for place, name in enumerate(targets):
            sizes = _sizes(name)
            native = _native(name)
            for number, model in enumerate(sizes):
                if report is not None:
                    shape = f"{model.bill.heads} heads in {figures.count(model.bill.layers, 'layer')}"
                    report(f"{name}: {shape}", (place + number / len(sizes)) / len(targets))
                rows.append(_row(name, model, native, seeds, steps))
    return Arithmetic(tuple(rows), seeds, steps)


def _sizes(name: str) -> list[Compiled]:
    """What the relu recipe makes of a target: for each number of heads the least certified error, the smallest
    sizes."""
    found: dict[int, Compiled] = {}
    for error in ASKED:
        try:
            model = compile(*TARGETS[name], error=error, recipe="relu")
        except HeadsmithError:
            continue
        heads = model.bill.heads
        known = found.get(heads)
        if heads <= MOST_HEADS and (known is None or model.certificate.error < known.certificate.error):
            found[heads] = model
    falling: list[Compiled] = []
    for heads in sorted(found):
        if not falling or found[heads].certificate.error < falling[-1].certificate.error:
            falling.append(found[heads])
    places = np.unique(np.linspace(0, len(falling) - 1, min(MOST_SIZES, len(falling))).round().astype(int))
    return [falling[place] for place in places]


def _native(name: str) -> Compiled:
    """What is built with native heads at a small error."""
    return compile(*TARGETS[name], error=1e-3 if name in ("max", "sort") else 1e-4 if name == "1/x" else 1e-6)


def _row(name: str, model: Compiled, native: Compiled, seeds: int, steps: int) -> Size:
    layers, heads = model.bill.layers, model.bill.heads
    each = -(-heads // layers)
    shape = {"layers": layers, "heads": each, "tokens": 1, "d_head": 2, "d_model": model.box.size + 6}
    case = case_of(None, None, native, 0.0, shape)
    ends = (case.student.inputs, case.student.answers)
    # As many gates side by side, or in as many layers: deep ones of two gates a layer often die. The better one counts.
    shapes = dict.fromkeys([(heads, 1), (each, layers)])
    networks = min((_trained(case, Gates(*ends, *shape), seeds, steps)[0] for shape in shapes), key=np.median)
    attentions, weight = _trained(case, case.student, seeds, steps)
    bill = native.bill
    certificate = model.certificate
    return Size(
        target=name,
        layers=layers,
        heads=heads,
        built=certificate.error,
        approximation=certificate.parts["approximation"],
        network_best=float(networks.min()),
        network_median=float(np.median(networks)),
        attention_best=float(attentions.min()),
        attention_median=float(np.median(attentions)),
        attention_weight=weight,
        native=native.certificate.error,
        native_shape=f"{figures.count(bill.heads, 'head')} in {figures.count(bill.layers, 'layer')}, "
        f"{figures.count(bill.reference_tokens, 'reference token')}",
    )


def _trained(case: Case, student: Student, seeds: int, steps: int) -> tuple[Any, float]:
    """Largest errors of a student, one for each seed, and the largest weight of the best."""
    problem, rates = Problem(student, case.problem.train, case.problem.validation), (0.03, 0.01)
    stack = random_start(student, range(seeds)).repeat_interleave(len(rates), 0)
    found = adam(problem.loss, stack, [*rates] * seeds, Schedule(steps))
    chosen = np.arange(seeds) * len(rates) + found.losses.reshape(seeds, -1).argmin(1).numpy()
    held = levenberg(problem, found.best[chosen], 60 if size_of(student) <= 400 else 20)
    errors = largest_errors(problem, case.field, held.weights, case.test).largest
    return errors, float(held.weights[int(np.argmin(errors))].abs().max())
