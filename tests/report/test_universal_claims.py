"""Claims U3 and U4 hold with their constants, and fail with worse ones."""

from __future__ import annotations

from typing import Any

import pytest

from headsmith.report import universal_claims
from headsmith.report.universal_claims import TARGETS, Target, one_layer, two_layers


def test_one_layer_and_a_softmax() -> None:
    found = one_layer()
    assert found.holds
    assert found.figure["exponent"] == pytest.approx(-1.0, abs=0.01)


def test_two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universal_claims, "CELLS", (4, 8))
    found = two_layers()
    assert found.holds
    assert 0.5 < found.figure["constant"] <= 0.505


WRONG: dict[str, tuple[dict[str, Any], float]] = {
    "nothing": ({}, 1e-9),
    "above the proof": ({"found": 1.0}, 1e-9),
    "another depth": ({"layers": 3}, 1e-9),
    "another rate": ({"power": 0.5}, 1e-9),
    "a worse constant": ({"constant": 0.6}, 1e-9),
    "far from attained": ({"found": 1e-3}, 1e-9),
    "no gain": ({}, 0.1),
}


@pytest.mark.parametrize("name", WRONG)
def test_two_layers_would_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, estimate = WRONG[name]

    def row(target: Target, cells: int, architecture: str) -> dict[str, Any]:
        proven = 1.0 / cells ** change.get("power", 1.0)
        figures = {"target": target.name, "p": cells, "proven": proven, "found": 0.99 * proven, "constant": 0.504}
        return {**figures, "layers": 2, **change}

    def fit(target: Target, nodes: int) -> dict[str, Any]:
        return {"target": target.name, "p": nodes, "found": 0.1, "estimate": estimate}

    monkeypatch.setattr(universal_claims, "_row", row)
    monkeypatch.setattr(universal_claims, "_fit", fit)
    assert two_layers().holds is (name == "nothing")


@pytest.mark.parametrize(
    "change", [{}, {"found": 9.0}, {"apart": 1e-3}, {"layers": 2}, {"reference_tokens": 8}], ids=str
)
def test_one_layer_would_fail(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def row(target: Target, cells: int, architecture: str) -> dict[str, Any]:
        figures = {"p": cells, "proven": 1.0 / cells, "found": 0.5 / cells, "apart": 1e-15, "parameters_ratio": 1.5}
        return {**figures, "layers": 1, "reference_tokens": 0, **change}

    assert TARGETS
    monkeypatch.setattr(universal_claims, "_row", row)
    assert one_layer().holds is (not change)
