"""Small HTML for notebooks: tables of text, side by side. Everything that comes in is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]

_CELL = "text-align:left;vertical-align:top"
_FIGURE = "text-align:right;vertical-align:top;white-space:nowrap"


def table(title: str, rows: Sequence[Row], header: Row = (), figures: Sequence[int] = (1,), note: str = "") -> str:
    """A table with a title above it. `figures` are the columns that hold numbers, `note` stands below."""
    lines = [f'<div style="margin:0 2em 0.5em 0"><b>{escape(title)}</b><table>']
    if header:
        lines.append("<tr>" + "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in header) + "</tr>")
    for row in rows:
        cells = (f'<td style="{_FIGURE if n in figures else _CELL}">{escape(cell)}</td>' for n, cell in enumerate(row))
        lines.append("<tr>" + "".join(cells) + "</tr>")
    lines.append("</table>" + (f"<small>{escape(note)}</small>" if note else "") + "</div>")
    return "".join(lines)


def card(title: str, *tables: str) -> str:
    """Tables side by side, below a title."""
    inside = "".join(tables)
    return (
        f'<div><p style="margin:0.3em 0"><b>{escape(title)}</b></p>'
        f'<div style="display:flex;flex-wrap:wrap">{inside}</div></div>'
    )
