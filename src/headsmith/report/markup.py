"""Claims with all their figures as Markdown, and as LaTeX (booktabs) for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headsmith.report.claims import Checked
from headsmith.report.tables import figure_text, word


def markdown(rows: Sequence[Checked]) -> str:
    """A table of outcomes, then the figures of each claim."""
    parts = [_markdown_table(["id", "claim", "ran", "outcome"], [_outcome(row) for row in rows])]
    for row in rows:
        parts.append(f"## {row.id}: {row.claim}\n\n{_sentence(row)}")
        names, cells = _cells(row)
        parts += [_markdown_table(names, cells)] if cells else []
    return "\n\n".join(parts)


def _markdown_table(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [names, [_rule(column) for column in zip(*cells, strict=True)], *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _rule(column: Sequence[str]) -> str:
    return "---:" if all(map(_is_number, column)) else "---"


def latex(rows: Sequence[Checked]) -> str:
    """One table for each claim: its figures, with what was run and the outcome as the caption. Needs booktabs."""
    return "\n\n".join(["% \\usepackage{booktabs}", *(_latex_table(row) for row in rows)])


def _latex_table(row: Checked) -> str:
    names, cells = _cells(row)
    columns = "".join("r" if all(map(_is_number, column)) else "l" for column in zip(*cells, strict=True))
    lines = [
        r"\begin{table}",
        rf"\caption{{{_escaped(f'{row.id}: {row.claim}. {_sentence(row)}')}}}",
        rf"\label{{tab:{row.id}}}",
    ]
    if cells:
        lines += [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_escaped, names)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex_cell, line)) + r" \\" for line in cells),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    return "\n".join([*lines, r"\end{table}"])


def _sentence(row: Checked) -> str:
    """What was run and what came out."""
    return f"Ran: {row.ran}. {row.verdict[:1].upper()}{row.verdict[1:]}."


def _outcome(row: Checked) -> list[str]:
    return [row.id, row.claim, row.ran, row.verdict]


def _cells(row: Checked) -> tuple[list[str], list[list[str]]]:
    """The rows of a claim as text; a column that some rows lack is empty there."""
    rows: list[dict[str, Any]] = list(row.figure.get("rows", []))
    names = list(dict.fromkeys(name for each in rows for name in each))
    return [word(name) for name in names], [[figure_text(each.get(name, "")) for name in names] for each in rows]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+<]? ?[\d,.]+(e[-+]?\d+)?|-?inf|", text) is not None


def _latex_cell(text: str) -> str:
    """Powers of ten as such, formulas upright."""
    scientific = re.fullmatch(r"(-?[\d.]+)e([-+]?\d+)", text)
    if scientific:
        mantissa, exponent = scientific[1], int(scientific[2])
        return f"$10^{{{exponent}}}$" if mantissa == "1" else rf"${mantissa} \cdot 10^{{{exponent}}}$"
    return _escaped(text)


_SPECIAL = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def _escaped(text: str) -> str:
    plain = "".join(_SPECIAL.get(character, character) for character in text)
    return re.sub(r"\\textasciicircum\{\}(\d+)", r"$^{\1}$", plain)
