"""A model told as a page: what `explain` says, section by section, beside its certificate and its bill; and of small
models every head's matrices. Plain HTML that loads and runs nothing; everything that comes in is escaped."""

from __future__ import annotations

from html import escape
from typing import Any

from headsmith.inside.explain import HEADS

MATRICES = 48
"""Models of at most so many heads are told with the matrices of each."""

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
pre { font: .85rem/1.45 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; margin: 0; }
details pre { white-space: pre; overflow-x: auto; }
summary { cursor: pointer; margin: .3rem 0; } table { border-collapse: collapse; } td, th { padding: .1rem .6rem; }
"""


def told(model: Any, heads: int = HEADS) -> str:
    """The page of a model; of each bank of heads at most `heads` are told one by one."""
    opening, *paragraphs = model.explain(heads).split("\n\n")
    title, _, more = opening.partition("\n")
    sections = "".join(_section(paragraph) for paragraph in paragraphs)
    figures = "".join(_figures(getattr(model, name)) for name in ("certificate", "bill"))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n<pre>{escape(more)}</pre>\n"
        f'<div style="display:flex;flex-wrap:wrap;margin-top:1rem">{figures}</div>\n{sections}{_matrices(model)}'
        f"</body></html>\n"
    )


def _section(paragraph: str) -> str:
    """The first line is the heading, unless it is all there is."""
    heading, _, rest = paragraph.partition("\n")
    if not rest:
        return f"<pre>{escape(heading)}</pre>\n"
    return f"<h2>{escape(heading)}</h2>\n<pre>{escape(rest)}</pre>\n"


def _figures(part: Any) -> str:
    return str(part._repr_html_())


def _matrices(model: Any) -> str:
    """Every head with its matrices, folded up."""
    if not 0 < model.bill.heads <= MATRICES:
        return ""
    views = [head for layer in model.layers for head in layer.heads]
    texts = [repr(view).removeprefix("<").removesuffix(">").split("\n", 1) for view in views]
    folded = [
        f"<details><summary>{escape(name)}</summary><pre>{escape(''.join(rest))}</pre></details>\n"
        for name, *rest in texts
    ]
    return "<h2>Every head, with its matrices</h2>\n" + "".join(folded)
