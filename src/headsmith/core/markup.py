"""Tables of text as Markdown, as LaTeX (booktabs) for a paper, as csv, and as small HTML for notebooks, side by side.
Everything that comes into HTML is escaped."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any

Cells = Sequence[Sequence[str]]

PREAMBLE = "% \\usepackage{booktabs}"
"""What a LaTeX document needs for these tables."""


def markdown_table(names: Sequence[str], cells: Cells) -> str:
    """A Markdown table; columns of numbers are set to the right."""
    rules = ["---:" if _numeric(column) else "---" for column in _columns(names, cells)]
    lines = [names, rules, *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def plain_table(names: Sequence[str], cells: Cells) -> str:
    """A table as plain text: columns of the same width, two blanks between them."""
    lines = [names, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def latex_table(names: Sequence[str], cells: Cells, caption: str, label: str = "") -> str:
    """A LaTeX table with a caption; columns of numbers are set to the right. Without cells, the caption alone."""
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}"]
    lines += [rf"\label{{{label}}}"] if label else []
    if cells:
        lines += [
            rf"\begin{{tabular}}{{{''.join('r' if _numeric(column) else 'l' for column in _columns(names, cells))}}}",
            r"\toprule",
            " & ".join(map(latex_text, names)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex_cell, line)) + r" \\" for line in cells),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    return "\n".join([*lines, r"\end{table}"])


def csv_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as csv below a header, numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return file.getvalue()


def markdown_text(text: str) -> str:
    """Text as Markdown: nothing in it is markup, but words between backticks stay code."""
    parts = re.split(r"(`[^`]+`)", text)
    special = re.compile(r"([\\*_{}\[\]<>|^~$#])")
    return "".join(part if part.startswith("`") else special.sub(r"\\\1", part) for part in parts)


def latex_text(text: str) -> str:
    """Text as LaTeX: what is special there is escaped, powers are raised."""
    plain = "".join(_SPECIAL.get(character, character) for character in text)
    return re.sub(r"\\textasciicircum\{\}(\d+)", r"$^{\1}$", plain)


def _columns(names: Sequence[str], cells: Cells) -> list[Sequence[str]]:
    return [[line[index] for line in cells] for index in range(len(names))]


def _numeric(column: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[-+<]? ?[\d,.]+(e[-+]?\d+)?|-?inf|", text) for text in column)


def _latex_cell(text: str) -> str:
    """Powers of ten as such, formulas upright."""
    scientific = re.fullmatch(r"(-?[\d.]+)e([-+]?\d+)", text)
    if scientific:
        mantissa, exponent = scientific[1], int(scientific[2])
        return f"$10^{{{exponent}}}$" if mantissa == "1" else rf"${mantissa} \cdot 10^{{{exponent}}}$"
    return latex_text(text)


_SPECIAL = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


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
