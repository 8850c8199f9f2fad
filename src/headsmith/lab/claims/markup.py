"""Claims with all their figures as Markdown, and as LaTeX (booktabs) for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headsmith.core.markup import PREAMBLE, latex_table, markdown_table, markdown_text
from headsmith.lab.claims.papers import paper_of, papers_of
from headsmith.lab.claims.rows import CheckedClaim
from headsmith.report.tables import figure_text, word


def markdown(rows: Sequence[CheckedClaim]) -> str:
    """A table of outcomes, then the figures of each claim."""
    parts = [markdown_table(["id", "claim", "from", "ran", "outcome"], [_outcome(row) for row in rows])]
    for row in rows:
        parts.append(f"## {row.id}: {markdown_text(row.claim)}\n\n{markdown_text(_sentence(row))}")
        names, cells = figure_cells(row)
        parts += [markdown_table(names, cells)] if cells else []
    papers = papers_of(row.id for row in rows)
    parts += ["## References\n\n" + "\n".join(f"- {each.letter}: {each.citation}" for each in papers)] if papers else []
    return "\n\n".join(parts)


def latex(rows: Sequence[CheckedClaim]) -> str:
    """One table for each claim: its figures, with what was run and the outcome as the caption. Needs booktabs."""
    entries = "\n".join(paper.bibtex for paper in papers_of(row.id for row in rows))
    cited = "\n".join(f"% {line}" for line in ["for the bibliography:", *entries.splitlines()]) if entries else ""
    return "\n\n".join([PREAMBLE, *([cited] if cited else []), *(_latex_table(row) for row in rows)])


def _latex_table(row: CheckedClaim) -> str:
    paper = paper_of(row.id)
    source = f" Claimed in arXiv:{paper.arxiv}." if paper is not None else ""
    return latex_table(*figure_cells(row), f"{row.id}: {row.claim}. {_sentence(row)}{source}", f"tab:{row.id}")


def _sentence(row: CheckedClaim) -> str:
    """What was run and what came out."""
    return f"Ran: {row.ran}. {row.verdict[:1].upper()}{row.verdict[1:]}."


def _outcome(row: CheckedClaim) -> list[str]:
    return [row.id, row.claim, row.tag, row.ran, row.verdict]


def figure_cells(row: CheckedClaim) -> tuple[list[str], list[list[str]]]:
    """The rows of a claim as text; a column that some rows lack is empty there."""
    rows: list[dict[str, Any]] = list(row.figure.get("rows", []))
    names = list(dict.fromkeys(name for each in rows for name in each))
    return [word(name) for name in names], [[figure_text(each.get(name, "")) for name in names] for each in rows]
