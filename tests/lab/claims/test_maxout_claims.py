"""Claim M1 holds with the stated constants, and would fail without them (M2: test_claim_mutations.py)."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.effort import CAMPAIGN

from headsmith.lab.claims import maxout as maxout_claims
from headsmith.lab.claims.maxout import comparable_size


def ideal(widths: list[int], rank: int) -> dict[str, Any]:
    """The row of a compiler that wastes nothing."""
    depth, units, parameters = len(widths) - 2, sum(widths[1:-1]), rank * sum(widths) ** 2
    return {
        "rank": rank,
        "depth": depth,
        "network_parameters": parameters,
        "nonzeros": parameters,
        "nonzeros_ratio": 1.0,
        "dense_ratio": 5.0,
        "comparisons": (rank - 1) * units,
        "heads": (rank - 1) * units,
        "tree_depth": (rank - 1).bit_length() * depth,
        "layers": (rank - 1).bit_length() * depth,
        "pieces_nonzeros": parameters,
        "pieces_nonzeros_ratio": 1.0,
        "pieces_dense_ratio": 5.0,
        "pieces_layers": 2 * depth - 1,
    }


FEW = {
    "rank": [([8, 8, 2], 2), ([8, 8, 2], 3)],
    "width": [([8, 8, 8, 2], 2), ([12, 12, 12, 2], 2)],
    "depth": [([8, 8, 2], 4)],
}
"""The networks of `make test`; those of the row take a quarter of a minute."""


@pytest.mark.again
def test_maxout_networks_keep_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxout_claims, "GROWN", maxout_claims.GROWN if CAMPAIGN else FEW)
    found = comparable_size()
    assert found.holds
    assert found.figure["heads_per_comparison"] == 1.0
    assert found.figure["layers_per_tree_level"] == 1.0
    assert found.figure["token_by_token_largest_at_depth_two"] <= 3.0
    assert found.figure["largest_nonzeros_per_parameter"] <= (1.5 if CAMPAIGN else 1.7)


@pytest.mark.parametrize(
    ("waste", "holds"),
    [
        ({}, True),
        ({"heads": 10**6}, False),
        ({"layers": 10**6}, False),
        ({"nonzeros_ratio": 4.0}, False),
        ({"pieces_nonzeros_ratio": 3.0}, False),
        ({"pieces_layers": 2}, False),
    ],
)
def test_waste_would_fail(waste: dict[str, Any], holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxout_claims, "_size", lambda *given: ({**ideal(*given), **waste}, {}))
    assert comparable_size().holds is holds
