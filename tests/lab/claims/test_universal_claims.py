"""Claims U3 and U4 at the authors' shape: what runs is textbook attention, and the picture shows what was measured.
That every figure of the rows is checked is the matter of test_claim_mutations.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headsmith.lab.claims.universal_plot import draw_universal
from headsmith.lab.claims.universal_shape import (
    beside_kinks,
    interpolating,
    lemma,
    shape_of,
    textbook,
    without_attention,
)


@pytest.mark.parametrize(("tokens", "heads"), [(5, 1), (10, 3), (20, 2)])
def test_interpolation_over_the_tokens_is_what_its_formula_says(tokens: int, heads: int) -> None:
    shape = shape_of(tokens)
    points = beside_kinks(shape, 1)[:6]
    found = textbook(interpolating(shape, heads), points)
    formula = np.array([without_attention(shape, heads, X) for X in points])
    assert np.abs(found - formula).max() <= 1e-11
    assert np.abs(found - shape(points)).max() <= lemma(shape, heads)


def test_the_shape_is_a_network_of_all_numbers() -> None:
    shape = shape_of()
    X = np.random.default_rng(0).uniform(-1, 1, (7, 20, 5))
    assert np.abs(shape.network(X.reshape(7, -1)) - shape(X).reshape(7, -1)).max() <= 1e-14


def test_the_picture(tmp_path: Path) -> None:
    ramps = [
        {"tokens": n, "heads_each": h, "lemma": 1.0 / n / h, "measured": 0.5 / n / h}
        for n, h in [(5, 1), (10, 1), (20, 1), (40, 1), (20, 1), (20, 2), (20, 4), (20, 8)]
    ]
    shape = [{"asked": e, "certified": e, "found": e / 9, "layers": 2, "heads": 220} for e in (1e-2, 1e-3)]
    draw_universal(
        {"exponent_in_tokens": -1.0, "exponent_in_heads": -1.0, "rows": [*ramps, *shape]}, tmp_path / "a.png"
    )
    assert (tmp_path / "a.png").stat().st_size > 10_000
