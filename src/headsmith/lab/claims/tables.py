"""Claims as tables that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from headsmith.lab.claims.papers import papers_of
from headsmith.lab.claims.rows import CheckedClaim
from headsmith.report.tables import figure_text, word


def claims_table(rows: Sequence[CheckedClaim]) -> Table:
    """One row for each claim: what was claimed, what was run, what came out."""
    caption = "\n".join(f"{paper.letter}: {paper.citation}" for paper in papers_of(row.id for row in rows))
    table = Table(title="Claims", caption=caption, title_justify="left", caption_justify="left", show_lines=True)
    for name in ("id", "claim", "ran", "outcome"):
        table.add_column(name, no_wrap=name == "id", ratio=None if name == "id" else 1)
    for row in rows:
        style = "green" if row.holds else "yellow" if row.holds is None else "red"
        claim = f"{row.claim} [dim]({row.tag})[/dim]" if row.tag else row.claim
        table.add_row(row.id, claim, row.ran, f"[{style}]{row.verdict}[/{style}]")
    return table


def figures_table(row: CheckedClaim) -> Table:
    """The figures of one claim, in full."""
    rows: list[dict[str, Any]] = row.figure.get("rows", [])
    plain = {name: value for name, value in row.figure.items() if name != "rows"}
    caption = ", ".join(f"{word(name)} {figure_text(value)}" for name, value in plain.items())
    table = Table(title=f"{row.id}  {row.claim}", caption=caption, title_justify="left", caption_justify="left")
    names = list(dict.fromkeys(name for entry in rows for name in entry))
    for name in names:
        words = any(isinstance(entry.get(name), str) for entry in rows)
        table.add_column(word(name), justify="left" if words else "right")
    for entry in rows:
        table.add_row(*(figure_text(entry.get(name, "")) for name in names))
    return table
