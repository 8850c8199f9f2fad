"""The claims about regions compute their figures and hold."""

from __future__ import annotations

import pytest
from helpers.effort import CAMPAIGN

from headsmith.lab.claims import regions as region_claims
from headsmith.lab.claims.regions import exponential_regions, finite_scale


@pytest.mark.again
def test_regions_grow_exponentially(monkeypatch: pytest.MonkeyPatch) -> None:
    if not CAMPAIGN:
        monkeypatch.setattr(region_claims, "GATED", ((2, 1), (2, 4), (3, 2), (5, 2)))
        monkeypatch.setattr(region_claims, "PIECED", ((2, 1), (2, 2), (3, 2)))
    found = exponential_regions()
    assert found.holds
    assert all(row["regions"] == row["pieces"] ** row["depth"] for row in found.figure["rows"])


def test_softmax_keeps_the_function() -> None:
    found = finite_scale()
    assert found.holds
    assert all(row["found"] <= row["bound"] for row in found.figure["rows"] if "pieces" not in row)
