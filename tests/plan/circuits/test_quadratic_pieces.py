"""CPWL plus squares of CPWL: for every smooth function, also one that a user brings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.theorems.fragments import cheapest, check_form, check_theorem

from headsmith.core.functions import FUNCTIONS, user_function
from headsmith.plan.circuits.options import options
from headsmith.plan.circuits.quadratic import Parabolas, quadratic, quadratic_proposals
from headsmith.plan.circuits.target import Target

CASES = [
    ("gelu", None, -4.0, 4.0),
    ("tanh", None, -4.0, 4.0),
    ("sin", None, 0.0, math.pi / 2),
    ("exp", None, -8.0, 0.0),
    ("reciprocal", None, 0.1, 1.0),
    ("erf", None, -3.0, 3.0),
    ("power", 3.0, -1.0, 1.0),
    ("tanh", None, -1e4, 1e4),
]


@pytest.mark.parametrize("error", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_quadratic_theorem(case: tuple[str, float | None, float, float], error: float) -> None:
    name, parameter, low, high = case
    found = cheapest(quadratic_proposals(Target(name, parameter), low, high, error))
    for proposal in (found[0], found[-1]):
        fragment = proposal.make()
        assert (fragment.gates, fragment.depth) == (proposal.gates, proposal.depth)
        assert fragment.error <= error
        # The squares' errors are added as if both were worst at once; at coarse accuracies they seldom are.
        check_theorem(fragment, name, parameter, slack=1.3 if error < 1e-3 else 2.0, over=1.01)
        check_form(fragment)


def test_a_parabola_is_one_piece() -> None:
    knots = np.array([-1.0, 2.0])
    fragment = quadratic(Parabolas(knots, knots**2, np.array([0.25]), 0.0), (2, 2, 2))
    assert (fragment.gates, fragment.depth) == (3, 3)
    check_theorem(fragment, "square", slack=1.001)


@pytest.mark.parametrize(
    ("name", "low", "high", "gates"),
    [("gelu", -4.0, 4.0, 109), ("exp", -8.0, 0.0, 67), ("cos", -math.pi, math.pi, 129), ("tanh", -4.0, 4.0, 123)],
)
def test_quadratic_costs_at_1e_6(name: str, low: float, high: float, gates: int) -> None:
    assert cheapest(quadratic_proposals(Target(name), low, high, 0.99e-6))[0].gates <= gates


def test_a_function_that_a_user_brings() -> None:
    if "bent_for_circuits" not in FUNCTIONS:
        user_function("bent_for_circuits", lambda x: (x * x + 1).log() * x.sin())
    found = options("bent_for_circuits", None, -2.0, 3.0, 1e-3)
    assert {fragment.family for fragment in found} == {"quadratic", "shallow"}
    x = np.linspace(-2.0, 3.0, 2001)
    for fragment in found:
        assert np.abs(fragment(x) - np.log(x * x + 1) * np.sin(x)).max() <= 1.05 * fragment.error <= 1.05e-3
