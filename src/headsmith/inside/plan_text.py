"""The rows of a plan as text: for the prompt, for notebooks, and as Markdown, LaTeX and csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Protocol

from headsmith.core.figures import bound, number
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table, table
from headsmith.inside.notebook import bill_text
from headsmith.transformer.bill import Bill

COLUMNS = ("error", "certified", "recipe", "layers", "heads", "tokens", "weights", "ratio", "")
NOTE = (
    "ratio: layers x heads of the relu recipe over the row's\n"
    "*: no row of the same error is as good in all four columns and better in one"
)
CAPTION = (
    "Certified transformers for each error: layers, heads, reference tokens and the largest weight. The ratio is "
    "layers x heads of the relu recipe over those of the row; * marks rows that no other beats."
)


class PlanRow(Protocol):
    """What is shown of a row."""

    @property
    def recipe(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def error(self) -> float: ...
    @property
    def certified(self) -> float: ...
    @property
    def bill(self) -> Bill: ...
    @property
    def pareto(self) -> bool: ...
    @property
    def ratio(self) -> float | None: ...


def row_text(row: PlanRow) -> str:
    """A row in one line."""
    mark = ", nothing beats it" if row.pareto else ""
    return (
        f"<Row {row.recipe}: {row.variant}; error <= {bound(row.certified)} (asked {number(row.error)}), "
        f"{bill_text(row.bill)}{mark}>"
    )


def cells(rows: Sequence[PlanRow], repeat: bool = True) -> list[list[str]]:
    """The rows for reading, column by column. Without `repeat`, an error is shown in its first row alone."""
    found: list[list[str]] = []
    before: float | None = None
    for row in rows:
        found.append(
            [
                number(row.error) if repeat or row.error != before else "",
                bound(row.certified, 3),
                f"{row.recipe}: {row.variant}",
                number(row.bill.layers),
                number(row.bill.heads) + (f" and {number(row.bill.neurons)} neurons" if row.bill.neurons else ""),
                number(row.bill.reference_tokens),
                number(row.bill.max_weight, 3),
                "" if row.ratio is None else f"{row.ratio:,.{0 if row.ratio >= 100 else 1}f}",
                "*" if row.pareto else "",
            ]
        )
        before = row.error
    return found


def plain(rows: Sequence[PlanRow]) -> str:
    """The rows as columns of text."""
    lines = [list(COLUMNS), *cells(rows, repeat=False)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    texts = [
        "  ".join(
            cell.ljust(width) if column == 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([f"Plan of {len(rows)} rows", *texts])


def html(rows: Sequence[PlanRow]) -> str:
    """The rows for a notebook."""
    return table("Plan", cells(rows, repeat=False), COLUMNS, (0, 1, 3, 4, 5, 6, 7), NOTE)


def markdown(rows: Sequence[PlanRow]) -> str:
    """The rows as a Markdown table."""
    return markdown_table(COLUMNS, cells(rows))


def latex(rows: Sequence[PlanRow], caption: str = CAPTION) -> str:
    """The rows as a LaTeX table (booktabs)."""
    return f"{PREAMBLE}\n{latex_table(COLUMNS, cells(rows), caption)}"


def csv(rows: Sequence[PlanRow]) -> str:
    """The rows as csv, numbers in full; heads_per_layer is separated by spaces."""
    figures = [field.name for field in fields(Bill)]
    lines = []
    for row in rows:
        values = {name: getattr(row.bill, name) for name in figures}
        values["heads_per_layer"] = " ".join(map(str, row.bill.heads_per_layer))
        ratio = "" if row.ratio is None else row.ratio
        lines.append([row.error, row.certified, row.recipe, row.variant, row.pareto, ratio, *values.values()])
    return csv_text(["error", "certified", "recipe", "variant", "pareto", "ratio", *figures], lines)
