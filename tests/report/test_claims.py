"""Claims are computed, hold, and can fail."""

import pytest

from headsmith.core.errors import HeadsmithError, TargetError
from headsmith.report import claims, recipe_claims
from headsmith.report.claims import Claim, Finding, check, select
from headsmith.report.recipe_claims import chosen_accuracy, exponent, linear_cost


def test_every_row_is_found_by_its_id() -> None:
    assert [row.id for row in select([])][:3] == ["R1", "R2", "R3"]
    assert [row.id for row in select(["R3", "R1"])] == ["R3", "R1"]
    with pytest.raises(HeadsmithError, match="there are R1, R2, R3"):
        select(["nonsense"])


def test_the_recipe_costs_linearly() -> None:
    found = linear_cost()
    assert found.holds
    assert found.figure["layers_per_relu_layer"] == 1.0
    assert found.figure["heads_per_gate"] <= 1.125
    assert found.figure["d_model_exponent_in_depth"] <= 0.0
    assert all(row["layers"] == row["relu_layers"] for row in found.figure["rows"])


def test_the_error_is_chosen() -> None:
    found = chosen_accuracy()
    assert found.holds
    for row in found.figure["rows"]:
        assert row["found"] <= row["certified"] <= row["asked"]


@pytest.mark.slow
def test_the_error_does_not_grow_with_length() -> None:
    (row,) = check(select(["R3"]))
    assert row.holds
    assert [entry["tokens"] for entry in row.figure["rows"]] == [1, 16, 256, 4096]
    assert row.seconds > 0.0


def test_exponents() -> None:
    assert exponent([1, 2, 4], [3, 6, 12]) == pytest.approx(1.0)
    assert exponent([1, 2, 4], [1, 4, 16]) == pytest.approx(2.0)


def test_a_quadratic_compiler_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = recipe_claims._cost

    def wasteful(widths: list[int]) -> dict[str, int]:
        return {**honest(widths), "nonzeros": honest(widths)["network_parameters"] ** 2}

    monkeypatch.setattr(recipe_claims, "_cost", wasteful)
    assert not linear_cost().holds


def test_an_error_above_what_was_asked_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_claims, "_accuracy", lambda *_: {**row, "certified": 2.0 * row["asked"]})
    row = {"asked": 1e-3, "approximation": 0.0, "softmax": 1e-3, "found": 1e-4, "found_against_square": 1e-3}
    assert not chosen_accuracy().holds


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
