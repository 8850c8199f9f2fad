"""Claims are computed, hold, and can fail."""

from typing import Any

import pytest

from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.lab.claims import recipe as recipe_claims
from headsmith.lab.claims import rows as claims
from headsmith.lab.claims.recipe import exponent, linear_cost
from headsmith.lab.claims.rows import Claim, Finding, check, select


def test_every_row_is_found_by_its_id() -> None:
    assert [row.id for row in select([])][:3] == ["R1", "R2", "R3"]
    assert [row.id for row in select(["R3", "R1"])] == ["R3", "R1"]
    with pytest.raises(HeadsmithError, match="there are R1, R2, R3"):
        select(["nonsense"])


def test_exponents() -> None:
    assert exponent([1, 2, 4], [3, 6, 12]) == pytest.approx(1.0)
    assert exponent([1, 2, 4], [1, 4, 16]) == pytest.approx(2.0)


def test_a_wrong_count_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bill says a thousand times as much as the matrices."""
    honest = recipe_claims._cost
    monkeypatch.setattr(recipe_claims, "DEPTHS", (1, 2))
    monkeypatch.setattr(recipe_claims, "WIDTHS", (4, 8))
    assert linear_cost().figure["layers_per_relu_layer"] == 1.0

    def wasteful(*network: Any) -> Any:
        row, counted = honest(*network)
        return {**row, "nonzeros": 1000 * row["nonzeros"]}, counted

    monkeypatch.setattr(recipe_claims, "_cost", wasteful)
    found = linear_cost()
    assert not found.holds
    assert "nonzeros is printed as" in found.verdict


def test_every_row_says_where_its_claim_comes_from() -> None:
    assert {row.tag for row in select([])} <= {"abstract", "review", "recalled", "ours"}


def test_a_check_that_cannot_finish_fails_with_its_reason() -> None:
    def impossible() -> Finding:
        raise TargetError("no such target")

    (row,) = check([Claim("Z1", "anything", impossible)])
    assert not row.holds
    assert "no such target" in row.verdict


def test_an_id_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_REGISTRY", dict(claims._REGISTRY))
    with pytest.raises(ValueError, match="two checks"):
        claims.claim("R1", "the same id again")(lambda: Finding("", {}, True, ""))
