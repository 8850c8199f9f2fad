"""Claims U1 and U2 hold with their constants, and fail with worse ones."""

from __future__ import annotations

from typing import Any

import pytest

from headsmith.lab.claims import interpolation as attention_claims
from headsmith.lab.claims.interpolation import many_heads, one_head


def test_one_head_is_a_truncated_linear_function() -> None:
    found = one_head()
    assert found.holds
    assert 0.0621 <= found.figure["measured_constant"] <= found.figure["lemma_constant"] <= 0.0623
    assert found.figure["measured_constant"] <= found.figure["kernel_constant"] <= 0.072
    assert found.figure["hardmax_constant"] >= 7.0 * found.figure["measured_constant"]
    for row in found.figure["rows"]:
        assert row.get("certified", 0.0) <= row.get("asked", 0.0)


def test_tokens_and_heads_share_the_interval() -> None:
    found = many_heads()
    assert found.holds
    assert found.figure["exponent_in_tokens"] == pytest.approx(-1.0, abs=0.02)
    assert found.figure["exponent_in_heads"] == pytest.approx(-1.0, abs=0.02)
    assert found.figure["lemma_constant"] <= 0.0626


ASKED = {"target": "relu(x)", "asked": 1e-2, "certified": 9e-3, "found": 8e-3, "tokens": 11, "published": 0.1}


WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("no proof", {"kernel": 1.0}, {}),
    ("above the proof", {"measured": 1.0}, {}),
    ("no better than hardmax", {"hardmax": 0.0}, {}),
    ("above what was asked", {}, {"certified": 2e-2}),
    ("refuted", {}, {"found": 1.0}),
    ("nothing", {}, {}),
]


@pytest.mark.parametrize(("row", "compiled"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_one_head_would_fail(row: dict[str, Any], compiled: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def ramp(tokens: int) -> dict[str, Any]:
        step = 2.0 / (tokens - 1)
        figures = {"measured": 0.062, "lemma": 0.0623, "kernel": 0.0623, "hardmax": 0.5, "published": 1.0}
        return {"tokens": tokens, **{name: value * step for name, value in figures.items()}, **row}

    monkeypatch.setattr(attention_claims, "_ramp", lambda tokens: (ramp(tokens), {}))
    monkeypatch.setattr(attention_claims, "_by_recipe", lambda *_: ({**ASKED, **compiled}, {}))
    assert one_head().holds is (not row and not compiled)


@pytest.mark.parametrize("power", [0.5, 2.0], ids=["slower", "faster"])
def test_another_rate_would_fail(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(tokens: int, heads: int) -> dict[str, Any]:
        size = 0.1 / ((tokens - 1) * heads**power)
        return {"tokens": tokens, "heads": heads, "measured": size, "lemma": size}

    monkeypatch.setattr(attention_claims, "_shared", lambda *shape: (shared(*shape), {}))
    assert not many_heads().holds
