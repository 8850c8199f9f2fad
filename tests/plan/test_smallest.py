"""Refusals name an error that compiles when it is asked for, while half of it does not; and few errors are tried."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.effort import cases

import headsmith as hs
from headsmith.plan.smallest import rounded_up

SQUARE = {"x": (-1, 1), "y": (-1, 1)}
LOOKING = "looking for the smallest error that can be met"
SEARCHES = 12
"""No more searches than these for the smallest error, so that a refusal comes soon."""

REFUSED: dict[str, tuple[Any, Any, float, dict[str, Any]]] = {
    "sine in float32": ("sin(x)", {"x": (-3, 3)}, 1e-5, {"dtype": "float32"}),
    "product in float32": ("x*y", SQUARE, 1e-6, {"dtype": "float32"}),
    "product": ("x*y", SQUARE, 1e-14, {}),
    "product, native": ("x*y", SQUARE, 1e-14, {"recipe": "native"}),
    "product of circuits in float32": ("x*y", SQUARE, 1e-6, {"dtype": "float32", "recipe": "relu"}),
    "exponential": ("exp(x)", {"x": (-1, 1)}, 1e-15, {}),
    "reciprocal in float32": ("1/x", {"x": (0.1, 1)}, 1e-7, {"dtype": "float32"}),
    "two layers": ("sin(x*y) + z", {**SQUARE, "z": (0, 1)}, 1e-15, {}),
    "maximum": ("max(x, y, -x - y)", SQUARE, 1e-18, {}),
    "maximum, one token a piece": ("max(x, y, -x - y)", SQUARE, 1e-9, {"recipe": "maxout", "dtype": "float32"}),
}


def network(*widths: int) -> hs.Network:
    random = np.random.default_rng(3)
    pairs = pairwise(widths)
    return hs.Network([(random.normal(size=(b, a)) / a**0.5, random.normal(size=b) / 4.0) for a, b in pairs])


REFUSED["network"] = (network(3, 16, 2), (-1, 1), 1e-16, {})
REFUSED["deep network in float32"] = (network(2, 6, 6, 6, 6, 1), (-1, 1), 1e-6, {"dtype": "float32"})
SOON = {"product", "maximum"}
"""Of a formula with tables and of one with gates; the campaign has the others."""


@pytest.mark.parametrize("name", cases(REFUSED, REFUSED.keys() - SOON))
def test_the_smallest_error_compiles_and_half_of_it_does_not(name: str) -> None:
    target, domain, error, options = REFUSED[name]
    told: list[str] = []
    with pytest.raises(hs.UnreachableError) as refused:
        hs.compile(target, domain, error, progress=lambda text, _: told.append(text), **options)
    assert 1 <= told.count(LOOKING) <= SEARCHES
    smallest = refused.value.smallest
    assert error < smallest < 1.0
    assert refused.value.part == "rounding"
    assert f"{smallest:.3g}" in str(refused.value)
    model = hs.compile(target, domain, smallest, **options)
    assert model.certificate.error <= smallest
    with pytest.raises(hs.UnreachableError):
        hs.compile(target, domain, 0.49 * smallest, **options)


BELOW: list[tuple[str, Any, float, Any]] = [
    ("exp(x)", {"x": (-1, 1)}, 4e-13, "float64"),
    ("x*y", SQUARE, 1e-4, "float32"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("formula", "domain", "error", "dtype"), BELOW)
def test_errors_below_what_the_usual_search_meets_are_met_with_more_tokens(
    formula: str, domain: Any, error: float, dtype: Any
) -> None:
    assert hs.compile(formula, domain, error, dtype=dtype).certificate.error <= error


def test_sequences_are_refused_in_the_same_way() -> None:
    def centred(x: Any) -> Any:
        return x - hs.tokens.mean(x)

    options: dict[str, Any] = {"tokens": 8, "domain": (-1, 1), "dtype": "float32"}
    with pytest.raises(hs.UnreachableError) as refused:
        hs.compile_sequence(centred, error=1e-12, **options)
    assert hs.compile_sequence(centred, error=refused.value.smallest, **options).certificate.error < 1e-5


@pytest.mark.campaign
def test_what_takes_too_long_to_prove_is_said_to_and_what_is_said_to_be_provable_soon_is() -> None:
    with pytest.raises(hs.UnreachableError, match="takes minutes") as refused:
        hs.compile("x*y", SQUARE, 1e-13, recipe="relu")
    assert refused.value.part == "approximation"
    assert 1e-13 < refused.value.smallest < 1e-8
    assert hs.compile("x*y", SQUARE, refused.value.smallest, recipe="relu").bill.layers > 4


@pytest.mark.parametrize("error", [1.0, 1.234e-5, 9.9999e-12, 4.0711e-5, 3e-300])
def test_rounded_up(error: float) -> None:
    up = rounded_up(error)
    assert error <= up <= 1.011 * error
    assert float(f"{up:.3g}") == up
