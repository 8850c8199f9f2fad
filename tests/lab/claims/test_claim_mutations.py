"""Whatever a row of claims prints, it checks: every figure, changed, makes the row fail.

The rows are measured once. Then each number that they hold is multiplied by 1,000 (a zero becomes 1,000), and each
figure above the rows is moved by 0.1 %; errors that were found are moved by twice what is certified. The judgement of
the row must name a fault every time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from helpers.effort import CAMPAIGN

from headsmith.lab.claims import feedforward as feedforward_claims
from headsmith.lab.claims import formulas as formula_claims
from headsmith.lab.claims import regions as region_claims
from headsmith.lab.claims import universal as universal_claims
from headsmith.lab.claims.rows import Finding, select

SHORT_ROWS = ("R3", "R4", "R6", "R7", "U2", "M2", "M3", "M4", "A1")
LONG_ROWS = (
    "R1",
    "R2",
    "R5",
    "R8",
    "R9",
    "R10",
    "R11",
    "U1",
    "U3",
    "U4",
    "U5",
    "U6",
    "M1",
    "A2",
    "A3",
    "I1",
    "I2",
    "T1",
    "T2",
    "T3",
)
SHORT = [pytest.param(each, marks=pytest.mark.again if each in ("R4", "R6", "R7", "M3") else ()) for each in SHORT_ROWS]
LONG = [pytest.param(each, marks=pytest.mark.campaign) for each in LONG_ROWS]
"""Ten seconds to a minute each, most of it for more cases of what the others check;
test_attention_claims.py measures U1."""
FEW = {
    "ERRORS": (1e-2, 1e-3),
    "ARITIES": (2, 3, 4),
    "PRODUCT": replace(formula_claims.PRODUCT, errors=(1e-2,)),
    "OTHERS": (replace(formula_claims.SINE, errors=(1e-2,)), replace(formula_claims.EXPONENTIAL, errors=(1e-2,))),
}
"""What R4, R6 and R7 are about in `make test`; they take a minute otherwise."""


FEW_ZIGZAGS = {"GATED": ((2, 1), (2, 3), (3, 2), (5, 1)), "PIECED": ((2, 1), (2, 2), (3, 1), (3, 2))}
"""Those of M3: pieces, and how often they are composed."""


@pytest.fixture(scope="module", params=[*SHORT, *LONG])
def finding(request: pytest.FixtureRequest) -> Iterator[Finding]:
    (row,) = select([request.param])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feedforward_claims, "ERRORS", (1e-2,))  # of three: R8 takes half a minute
        for name, few in () if CAMPAIGN else FEW.items():
            patch.setattr(formula_claims, name, few)
        for name, few in () if CAMPAIGN else FEW_ZIGZAGS.items():
            patch.setattr(region_claims, name, few)
        fewer = {"ASKED": (1e-2,), "COARSE": (3e-1,), "CELLS": (4, 8), "LENGTHS": (5, 10), "HEADS": (1, 2)}
        for name, few in (*fewer.items(), ("TARGETS", universal_claims.TARGETS[:3])):
            patch.setattr(universal_claims, name, few)  # the sizes of U3 and U4, which take a quarter of a minute
        yield row.check()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from leaves(each, (*path, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def at(figure: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        figure = figure[step]
    return figure


def changed(figure: Mapping[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other = copy.deepcopy(dict(figure))
    at(other, path[:-1])[path[-1]] = value
    return other


def test_the_row_holds(finding: Finding) -> None:
    assert finding.holds, finding.verdict
    assert finding.judge is not None
    assert finding.judge(finding.figure) == []


def test_every_figure_is_checked(finding: Finding) -> None:
    assert finding.judge is not None
    missed = []
    for path in leaves(finding.figure):
        value = at(finding.figure, path)
        if not finding.judge(changed(finding.figure, path, 1000 * value if value else type(value)(1000))):
            missed.append(path)
    assert missed == []


def test_constants_are_checked_to_a_thousandth(finding: Finding) -> None:
    assert finding.judge is not None
    summary = [path for path in leaves(finding.figure) if path[0] != "rows"]
    missed = [
        path for path in summary if not finding.judge(changed(finding.figure, path, 1.001 * at(finding.figure, path)))
    ]
    assert missed == []


def test_outputs_that_are_moved_are_noticed(finding: Finding) -> None:
    assert finding.judge is not None
    for place, row in enumerate(finding.figure["rows"]):
        bound = row.get("certified", row.get("proven"))
        if "found" in row and bound is not None:
            moved = row["found"] + max(2.0 * bound, 1e-9)
            assert finding.judge(changed(finding.figure, ("rows", place, "found"), moved))
