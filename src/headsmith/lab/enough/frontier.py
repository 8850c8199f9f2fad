"""What each limit buys: the best model for every combination of limits, as a table and a picture, and lower bounds.

    rows = hs.frontier("1/x", {"x": (0.1, 1)}, reference_tokens=[2, 3, 4], max_weight=[30, 100])
    print(rows.markdown())

A row is marked where no other has a smaller error and costs no more: by error, layers, heads, reference tokens, largest
weight and d_model. Lower bounds stand beside the rows where one is known for as many tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from headsmith.core.errors import TargetError, UnreachableError
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table
from headsmith.core.pictures import figure_class, save_figure
from headsmith.lab.enough.best import best
from headsmith.lab.enough.bounds import below, lower_bound
from headsmith.model import Compiled
from headsmith.plan.reading import Target
from headsmith.transformer.bill import Bill

MEASURES = ("layers", "heads", "reference_tokens", "max_weight", "d_model")
COLUMNS = ("limits", "error", *MEASURES, "lower bound", "pareto")


@dataclass(frozen=True, eq=False)
class Row:
    """The best model that was found within limits; `bound` is an error below which no table head of as many tokens can
    be, where one is known and the model is one head."""

    limits: tuple[tuple[str, float], ...]
    model: Compiled
    bound: float | None = None
    pareto: bool = False

    @property
    def error(self) -> float:
        """The certified error."""
        return self.model.certificate.error

    @property
    def bill(self) -> Bill:
        """What the model costs."""
        return self.model.bill

    @property
    def cells(self) -> tuple[str, ...]:
        """The row for reading."""
        limits = ", ".join(f"{name} {value:g}" for name, value in self.limits)
        sizes = [f"{getattr(self.bill, name):.4g}" for name in MEASURES]
        known = below(self.bound) if self.bound else ""
        return (limits, f"{self.error:.4g}", *sizes, known, "yes" if self.pareto else "")


class Frontier(list[Row]):
    """Rows that write themselves as tables."""

    def __repr__(self) -> str:
        return self.markdown()

    @property
    def pareto(self) -> list[Row]:
        """The rows that no other one beats."""
        return [row for row in self if row.pareto]

    def markdown(self) -> str:
        """The rows as a Markdown table."""
        return markdown_table(COLUMNS, [row.cells for row in self])

    def latex(self, caption: str = "The most accurate models found within limits, certified.") -> str:
        """The rows as a LaTeX table (booktabs)."""
        return f"{PREAMBLE}\n{latex_table(COLUMNS, [row.cells for row in self], caption)}"

    def csv(self) -> str:
        """The rows as csv, numbers in full."""
        lines = [[row.error, *(getattr(row.bill, name) for name in MEASURES), row.bound, row.pareto] for row in self]
        names = [name for name, _ in self[0].limits] if self else []
        limits = [[value for _, value in row.limits] for row in self]
        head = [*(f"limit {name}" for name in names), *COLUMNS[1:]]
        return csv_text(head, [[*one, *other] for one, other in zip(limits, lines, strict=True)])

    def draw(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Draw errors against the first limit, a line for each value of the others; lower bounds are dashed."""
        figure = figure_class()(figsize=(7.5, 5.0), layout="constrained", dpi=120)
        axes = figure.subplots()
        for others in dict.fromkeys(row.limits[1:] for row in self):
            mine = [row for row in self if row.limits[1:] == others]
            label = ", ".join(f"{name} {value:g}" for name, value in others) or "certified error"
            axes.plot([row.limits[0][1] for row in mine], [row.error for row in mine], "o-", label=label)
        bounds = {row.limits[0][1]: row.bound for row in self if row.bound}
        if bounds:
            axes.plot([*bounds], [*bounds.values()], "k--_", label="no table head is below")
        axes.set(xlabel=self[0].limits[0][0].replace("_", " "), ylabel="error", yscale="log", title=title)
        axes.grid(alpha=0.3)
        axes.legend()
        save_figure(figure, Path(path))


def frontier(target: Target, domain: Any = None, *, recipe: str = "auto", **limits: Any) -> Frontier:
    """The best model for every combination of limits, each a number or a list of numbers, as `hs.best` takes them."""
    axes = {name: [*value] if isinstance(value, Sequence) else [value] for name, value in limits.items()}
    if not any(len(values) > 1 for values in axes.values()):
        raise TargetError("a frontier needs a list of limits: reference_tokens=[2, 3, 4], layers=[1, 2], ...")
    rows: list[Row] = []
    for values in product(*axes.values()):
        within = dict(zip(axes, values, strict=True))
        try:
            model = best(target, domain, recipe=recipe, progress=False, **within)
        except UnreachableError:
            continue
        rows.append(Row(tuple(within.items()), model, _bound(target, domain, model)))
    return Frontier(replace(row, pareto=not _beaten(row, rows)) for row in rows)


def _bound(target: Target, domain: Any, model: Compiled) -> float | None:
    """A lower bound for table heads of as many tokens, with any line beside them."""
    if model.bill.heads != 1 or not model.bill.max_value:
        return None
    try:
        return lower_bound(target, domain, reference_tokens=model.bill.reference_tokens).value or None
    except TargetError:
        return None


def _costs(row: Row) -> tuple[float, ...]:
    return (row.error, *(float(getattr(row.bill, name)) for name in MEASURES))


def _beaten(row: Row, rows: Sequence[Row]) -> bool:
    mine = _costs(row)
    others = (_costs(other) for other in rows if other is not row)
    return any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in others)
