"""Certificates, bills and findings as tables that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from headsmith.core.certificate import Certificate
from headsmith.core.figures import bound, number
from headsmith.core.figures import found as rounded_down
from headsmith.inside.plan_text import COLUMNS, NOTE, cells
from headsmith.plan.rows import Row
from headsmith.report.certificate import plain_table
from headsmith.report.falsify import Found
from headsmith.transformer.bill import Bill, bill_rows
from headsmith.transformer.dimensions import COLUMNS as COLUMNS_OF_SHAPES
from headsmith.transformer.dimensions import Dimensions, caption
from headsmith.transformer.dimensions import cells as shape_cells


def bill_table(bill: Bill) -> Table:
    """What the model costs."""
    table = plain_table("Bill")
    for row in bill_rows(bill):
        table.add_row(*row)
    return table


def dimensions_table(dimensions: Dimensions) -> Table:
    """The shapes of all matrices, layer by layer."""
    table = Table(
        title="Dimensions", caption=caption(dimensions), title_justify="left", caption_justify="left", box=SIMPLE_HEAD
    )
    for name in COLUMNS_OF_SHAPES:
        table.add_column(name)
    for row in shape_cells(dimensions):
        table.add_row(*row)
    return table


def found_table(found: Found, certificate: Certificate) -> Table:
    """The falsifier's figure beside the bound."""
    table = plain_table("Falsifier")
    tried = f"an estimate, from {number(found.evaluations)} inputs"
    table.add_row("worst error found", rounded_down(found.error), tried)
    table.add_row("certified error", bound(certificate.error), "a bound")
    table.add_row("tightness", number(found.tightness, 3), "found / certified")
    return table


def plan_table(rows: Sequence[Row]) -> Table:
    """The rows of a plan, error by error, the cheapest first; narrow enough for a terminal of 80 columns."""
    table = Table(title="Plan", caption=NOTE, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    for name in COLUMNS:
        left = name == "recipe"
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, min_width=14 if left else None)
    for index, cells_of_row in enumerate(cells(rows, repeat=False)):
        if index and rows[index].error != rows[index - 1].error:
            table.add_section()
        table.add_row(*cells_of_row)
    return table


def word(name: str) -> str:
    """A figure's name for reading."""
    return name.replace("_", " ")


def figure_text(value: Any) -> str:
    """A figure for reading, whatever it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else "" if value is None else str(value)
