"""Docstrings as pages show them: text that flows, and displays that keep their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAMED = re.compile(r"([A-Z][a-z]+(?: [a-z]+)*)\.  (.*)", re.DOTALL)
"""A statement with a name, as "Gate lemma.  0 <= ..."."""

COLUMNS = re.compile(r"\S {3,}\S")
"""What stands in columns."""


@dataclass(frozen=True)
class Passage:
    """A paragraph, with its name if it is a statement that has one; or a display, whose lines stay as they are."""

    text: str
    name: str = ""
    display: bool = False


def blocks_of(docstring: str) -> list[Passage]:
    """The blocks of a docstring. Lines that are indented from the first on are a display, unless they are a paragraph
    of several lines that goes on with the statement before; examples of Python are displays, too."""
    found = []
    for part in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = part.split("\n")
        indented = lines[0].startswith("    ") and (len(lines) == 1 or COLUMNS.search(part))
        if indented or lines[0].lstrip().startswith(">>> "):
            found.append(Passage("\n".join(line.removeprefix("    ") for line in lines), display=True))
            continue
        named = NAMED.match(part)
        name, text = named.groups() if named else ("", part)
        found.append(Passage(" ".join(text.split()), name))
    return found
