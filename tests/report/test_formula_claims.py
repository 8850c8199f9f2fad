"""Claims R4 to R7 hold, and fail where a model costs more or errs more than it may."""

from typing import Any

import pytest

from headsmith.report import formula_claims
from headsmith.report.claims import check, select
from headsmith.report.formula_claims import Case, bill_row, cheapest, extremes, gain, keeps, multiplication


@pytest.mark.slow
@pytest.mark.parametrize("id", ["R4", "R5", "R6", "R7"])
def test_the_claims_hold(id: str) -> None:
    (row,) = check(select([id]))
    assert row.holds, row.verdict
    for entry in row.figure["rows"]:
        assert entry["found"] <= entry["certified"] <= entry["asked"]


def test_a_bill_has_its_figures() -> None:
    case = Case("multiplication", "x*y", {"x": (-1, 1), "y": (-2, 2)}, ())
    row = bill_row(case, 1e-2, 10, "relu")
    assert row["domain"] == "[-1, 1] x [-2, 2]"
    assert keeps([row])
    assert not keeps([{**row, "heads": 11}])
    assert not keeps([{**row, "certified": 2e-2}])
    assert not keeps([{**row, "found": 2.0 * row["certified"]}])


def wasteful(case: Case, error: float, most: int | None, recipe: str, max_layers: int | None = None) -> dict[str, Any]:
    """Figures as they should be, but for one head per digit more."""
    heads = (most or 10) + (error < 1e-3)
    figures = {"asked": error, "certified": error, "found": error, "heads": heads, "known_gates": most}
    names = {"target": str(case.target), "domain": "", "recipe": recipe, "reference_tokens": 1}
    return {**figures, **names, "layers": max_layers or 1}


def test_heads_that_grow_with_precision_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formula_claims, "bill_row", wasteful)
    assert not multiplication().holds
    assert not extremes().holds


def test_auto_must_be_the_cheapest() -> None:
    case = Case("multiplication", "x*y", {"x": (-1, 1), "y": (-1, 1)}, ())
    relu, native, auto = (bill_row(case, 1e-6, 20, recipe) for recipe in ("relu", "native", "auto"))
    assert (native["layers"], native["heads"]) == (1, 1)
    assert cheapest([relu, native, auto])
    assert not cheapest([relu, native, {**auto, "heads": 2}])
    assert gain([relu, native, auto]) > 100
