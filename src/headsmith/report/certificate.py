"""A certificate as a table in the terminal. `headsmith verify` loads this, and nothing that searches or runs."""

from __future__ import annotations

from rich.table import Table

from headsmith.core.certificate import Certificate, certificate_rows, statement


def certificate_table(certificate: Certificate) -> Table:
    """The proven error, its parts, and the statement in one sentence."""
    table = plain_table("Certificate", caption=statement(certificate))
    for row in certificate_rows(certificate):
        table.add_row(*row, style="bold" if row[0] == "error" else None)
    return table


def plain_table(title: str, caption: str | None = None) -> Table:
    """Rows of a name, a figure and what it means."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", show_header=False)
    table.add_column("name", no_wrap=True)
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    return table
