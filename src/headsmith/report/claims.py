"""The claims of the literature, each as code that computes its figure and can fail.

A row is a function that compiles, runs and measures, and returns a `Finding`. To add one:

    @claim("R4", "multiplication: concrete layers, heads, parameters at a given error")
    def multiplication() -> Finding: ...

in this module, or in a module of this package that ROWS_IN names.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.report.papers import PAPERS, paper_of

ROWS_IN = (
    "headsmith.report.recipe_claims",
    "headsmith.report.formula_claims",
    "headsmith.report.attention_claims",
    "headsmith.report.context_claims",
    "headsmith.report.universal_claims",
    "headsmith.report.maxout_claims",
    "headsmith.report.region_claims",
    "headsmith.report.signal_claims",
    "headsmith.report.reasoning_claims",
)


@dataclass(frozen=True)
class Finding:
    """What was run, the figures (numbers, and optionally "rows" of numbers), whether the claim holds (None where it
    could not be checked), and how."""

    ran: str
    figure: Mapping[str, Any]
    holds: bool | None
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A statement with the code that checks it."""

    id: str
    claim: str
    check: Callable[[], Finding]
    tag: str = ""


@dataclass(frozen=True)
class Checked:
    """A claim with its finding, and the arXiv number of the paper that it is from."""

    id: str
    claim: str
    ran: str
    figure: Mapping[str, Any]
    holds: bool | None
    verdict: str
    seconds: float
    arxiv: str = ""
    tag: str = ""


_REGISTRY: dict[str, Claim] = {}


def claim(id: str, statement: str, tag: str = "") -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Register the decorated function as the check of a claim.

    `tag` says where the claim comes from: "abstract" (of a paper), "review" (of one), "recalled" (from memory of a
    paper that is not at hand), "ours".
    """

    def register(check: Callable[[], Finding]) -> Callable[[], Finding]:
        if id in _REGISTRY and _REGISTRY[id].check.__module__ != check.__module__:
            raise ValueError(f"two checks for claim {id}")
        _REGISTRY[id] = Claim(id, statement, check, tag)
        return check

    return register


def claims() -> tuple[Claim, ...]:
    """Every registered claim: paper by paper, in order."""
    for module in ROWS_IN:
        importlib.import_module(module)
    letters = "".join(paper.letter for paper in PAPERS)
    return tuple(sorted(_REGISTRY.values(), key=lambda row: (letters.find(row.id[0]), int(row.id[1:]))))


def select(only: Sequence[str]) -> tuple[Claim, ...]:
    """The claims with the given ids; all of them if none are given."""
    known = {row.id: row for row in claims()}
    unknown = [id for id in only if id not in known]
    if unknown:
        raise HeadsmithError(f"no claim {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(known[id] for id in only) if only else tuple(known.values())


def check(rows: Sequence[Claim]) -> Iterator[Checked]:
    """Check claims one by one. A check that cannot finish is a claim that fails, with the reason."""
    for row in rows:
        start = time.perf_counter()
        try:
            found = row.check()
        except HeadsmithError as problem:
            found = Finding("the check did not finish", {}, False, f"fails: {problem}")
        seconds, paper = time.perf_counter() - start, paper_of(row.id)
        arxiv = paper.arxiv if paper is not None else ""
        yield Checked(row.id, row.claim, found.ran, found.figure, found.holds, found.verdict, seconds, arxiv, row.tag)
