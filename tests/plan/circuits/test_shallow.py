"""Depth one: the tube construction stays in its tube, with nearly the fewest pieces, on every kind of domain."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.theorems.fragments import check_form, check_theorem

from headsmith.plan.circuits.shallow import LARGEST, expected_pieces, shallow, shallow_option
from headsmith.plan.circuits.target import Target, density

PI = math.pi
CASES = [
    ("sqrt", None, 0.0, 1.0),
    ("log", None, 0.1, 1.0),
    ("exp", None, -8.0, 0.0),
    ("cos", None, -PI, PI),
    ("sigmoid", None, -8.0, 8.0),
    ("gelu", None, -4.0, 4.0),
    ("gaussian", None, -4.0, 4.0),
    ("power", 4.0, 0.0, 1.0),
    ("power", 3.0, -1.0, 1.0),
    ("reciprocal", None, -1.0, -0.1),
    ("tanh", None, -1e4, 1e4),
    ("sin", None, 1000.0, 1001.0),
]


@pytest.mark.parametrize("error", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_shallow_theorem(case: tuple[str, float | None, float, float], error: float) -> None:
    name, parameter, low, high = case
    target = Target(name, parameter)
    fragment = shallow_option(target, low, high, error)
    assert fragment is not None
    assert fragment.error <= error
    assert fragment.depth == (fragment.gates > 0)
    pieces = expected_pieces(density(target, low, high, 2), error)
    assert fragment.gates + 1 <= pieces + 2 + pieces // 100
    check_theorem(fragment, name, parameter)
    check_form(fragment)


def test_counts_of_the_catalogue() -> None:
    """Gates at 1e-4: the asymptotic count and one or two more."""
    for (name, parameter, low, high), gates in zip(CASES[:5], [49, 57, 49, 120, 58], strict=True):
        fragment = shallow_option(Target(name, parameter), low, high, 1e-4)
        assert fragment is not None
        assert fragment.gates <= gates + 1


@pytest.mark.parametrize(("name", "low", "high"), [("exp", 0.0, 1e-6), ("sin", -1e-9, 1e-9), ("log", 1e4, 1e4 + 1e-3)])
def test_nearly_affine_needs_no_gate(name: str, low: float, high: float) -> None:
    fragment = shallow_option(Target(name), low, high, 1e-6)
    assert fragment is not None
    assert (fragment.gates, fragment.depth) == (0, 0)
    check_theorem(fragment, name)


def test_a_point_is_a_constant() -> None:
    fragment = shallow_option(Target("sin"), 5.0, 5.0, 1e-6)
    assert fragment is not None
    assert fragment.gates == 0
    assert fragment(5.0) == math.sin(5.0)


def test_one_kink() -> None:
    fragment = shallow([0.0, 1.0, 3.0], [0.0, 1.0, 0.0], 0.0)
    assert fragment.gates == 1
    assert np.allclose(fragment([0.0, 0.5, 1.0, 2.0, 3.0]), [0.0, 0.5, 1.0, 0.5, 0.0])


def test_too_many_pieces_are_refused() -> None:
    assert shallow_option(Target("exp"), 0.0, 20.0, 1e-8) is None
    assert expected_pieces(density(Target("exp"), 0.0, 300.0, 2), 1e-8) > LARGEST


def test_next_to_a_singular_edge_rounding_stays_small() -> None:
    """x^(1/3) is vertical at 0: gates look away from the flat end, so large weights see small arguments."""
    fragment = shallow_option(Target("power", 1 / 3), 0.0, 7.0, 1e-5)
    assert fragment is not None
    x = np.linspace(0.0, 7.0, 5001)
    assert np.abs(fragment(x) - np.cbrt(x)).max() <= 1.0001e-5
