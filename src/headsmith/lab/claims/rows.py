"""The claims of the literature, each as code that computes its figure and can fail.

A row is a function that compiles, runs and measures, and returns a `Finding`. To add one:

    @claim("R4", "multiplication: concrete layers, heads, parameters at a given error", tag="abstract")
    def multiplication() -> Finding: ...

in this module, or in a module of this package that ROWS_IN names. Whatever a row prints it also checks: `judged` makes
a finding from rows of figures, from laws that they must obey, and from second counts (lab/claims/audit.py). A figure
that is changed makes the finding fail, and tests/lab/claims/test_claim_mutations.py changes them all, one by one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.lab.claims.audit import differences
from headsmith.lab.claims.papers import PAPERS, paper_of

ROWS_IN = (
    "headsmith.lab.claims.recipe",
    "headsmith.lab.claims.formulas",
    "headsmith.lab.claims.feedforward",
    "headsmith.lab.claims.other_attentions",
    "headsmith.lab.claims.among_tokens",
    "headsmith.lab.claims.rates",
    "headsmith.lab.claims.interpolation",
    "headsmith.lab.claims.in_context",
    "headsmith.lab.claims.universal",
    "headsmith.lab.claims.maxout",
    "headsmith.lab.claims.regions",
    "headsmith.lab.claims.signal",
    "headsmith.lab.claims.reasoning",
    "headsmith.lab.claims.training",
)


@dataclass(frozen=True)
class Finding:
    """What was run, the figures (numbers, and optionally "rows" of numbers), whether the claim holds (None where it
    could not be checked), and how."""

    ran: str
    figure: Mapping[str, Any]
    holds: bool | None
    verdict: str
    judge: Callable[[Mapping[str, Any]], list[str]] | None = None
    """What is wrong with figures such as these, in sentences; nothing, if the claim holds."""


Rows = list[dict[str, Any]]


def judged(
    ran: str,
    rows: Rows,
    summary: Callable[[Rows], dict[str, Any]],
    faults: Callable[[Rows], list[str]],
    text: Callable[[dict[str, Any]], str],
    audits: Sequence[Mapping[str, Any]] = (),
) -> Finding:
    """A finding that fails if any of its figures is wrong.

    `summary` makes the other figures from the rows, `faults` says what is wrong with rows, `audits` has second counts
    of figures of the first rows, `text` tells the figures in words.
    """

    def judge(figure: Mapping[str, Any]) -> list[str]:
        mine: Rows = figure["rows"]
        wrong = [each for row, counted in zip(mine, audits, strict=False) for each in differences(row, counted)]
        wrong += [] if wrong else faults(mine)
        return wrong or differences({name: figure[name] for name in figure if name != "rows"}, summary(mine))

    figure = {**summary(rows), "rows": rows}
    wrong = judge(figure)
    told = text(figure)
    verdict = f"fails: {'; '.join(wrong[:3])}; {told}" if wrong else f"holds with these constants: {told}"
    return Finding(ran, figure, not wrong, verdict, judge)


def need(true: bool, otherwise: str) -> list[str]:
    """A fault, unless something is true."""
    return [] if true else [otherwise]


@dataclass(frozen=True)
class Claim:
    """A statement with the code that checks it."""

    id: str
    claim: str
    check: Callable[[], Finding]
    tag: str = ""


@dataclass(frozen=True)
class CheckedClaim:
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
    placed = {letter: place for place, letter in enumerate(letters)}
    # Rows that are not from a paper come last.
    return tuple(sorted(_REGISTRY.values(), key=lambda row: (placed.get(row.id[0], 99), row.id[0], int(row.id[1:]))))


def select(only: Sequence[str]) -> tuple[Claim, ...]:
    """The claims with the given ids; all of them if none are given."""
    known = {row.id: row for row in claims()}
    unknown = [id for id in only if id not in known]
    if unknown:
        raise HeadsmithError(f"no claim {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(known[id] for id in only) if only else tuple(known.values())


def check(rows: Sequence[Claim]) -> Iterator[CheckedClaim]:
    """Check claims one by one. A check that cannot finish is a claim that fails, with the reason."""
    for row in rows:
        start = time.perf_counter()
        try:
            found = row.check()
        except HeadsmithError as problem:
            found = Finding("the check did not finish", {}, False, f"fails: {problem}")
        seconds, paper = time.perf_counter() - start, paper_of(row.id)
        arxiv = paper.arxiv if paper is not None else ""
        yield CheckedClaim(
            row.id, row.claim, found.ran, found.figure, found.holds, found.verdict, seconds, arxiv, row.tag
        )
