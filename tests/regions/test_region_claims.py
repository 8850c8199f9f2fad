"""The claims about regions compute their figures and hold."""

from __future__ import annotations

from headsmith.report.region_claims import exponential_regions, finite_scale


def test_regions_grow_exponentially() -> None:
    found = exponential_regions()
    assert found.holds
    assert all(row["regions"] == row["pieces"] ** row["depth"] for row in found.figure["rows"])


def test_softmax_keeps_the_function() -> None:
    found = finite_scale()
    assert found.holds
    assert all(row["found"] <= row["bound"] for row in found.figure["rows"] if "pieces" not in row)
