"""What the planner sees: for every function, domain and error a Pareto front whose estimates hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.effort import tried
from helpers.theorems.fragments import check_form, check_theorem, deviations, places
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.plan.circuits import options
from headsmith.plan.circuits.fragment import Fragment
from headsmith.plan.circuits.proposal import Proposal

PI = math.pi
module = import_module("headsmith.plan.circuits.options")
# name, parameter, domain, most gates at 1e-6 with 1 % to spare: the catalogue's count or fewer.
CATALOGUE = [
    ("square", None, -2.0, 2.0, 11),
    ("reciprocal", None, 0.1, 1.0, 12),
    ("exp", None, -8.0, 0.0, 20),
    ("sin", None, 0.0, PI / 2, 15),
    ("cos", None, -PI, PI, 18),
    ("log", None, 0.1, 1.0, 16),
    ("sqrt", None, 0.0, 1.0, 12),
    ("sigmoid", None, -8.0, 8.0, 30),
    ("tanh", None, -4.0, 4.0, 31),
    ("softplus", None, -8.0, 8.0, 34),
    ("gelu", None, -4.0, 4.0, 62),
    ("gaussian", None, -4.0, 4.0, 32),
    ("erf", None, -3.0, 3.0, 58),
    ("power", 3.0, -1.0, 2.0, 27),
    ("power", -0.5, 0.1, 1.0, 18),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CATALOGUE, ids=str)
def test_catalogue(case: tuple[str, float | None, float, float, int]) -> None:
    name, parameter, low, high, gates = case
    found = options(name, parameter, low, high, 0.99e-6)
    assert found[0].gates <= gates
    for fragment in found:
        assert fragment.error <= 0.99e-6
        if fragment.gates < 300:
            x = places(fragment, 2001)
            assert np.abs(deviations(fragment, name, parameter, x)).max() <= 1.02 * fragment.error
    check_theorem(found[0], name, parameter, slack=1.3)
    costs = [(fragment.gates, fragment.depth) for fragment in found]
    assert all(less[0] < more[0] and less[1] > more[1] for less, more in pairwise(costs))


def test_a_product_takes_twenty_gates() -> None:
    """xy = ((x+y)^2 - (x-y)^2) / 4 on [-1, 1]^2: two squares on [-2, 2] to 2e-6 each."""
    assert options("square", None, -2.0, 2.0, 0.99 * 2e-6)[0].gates == 10


def test_max_depth_trades_gates_for_depth() -> None:
    previous = 0
    for depth in (20, 9, 6, 4, 2, 1):
        found = options("tanh", None, -4.0, 4.0, 1e-4, max_depth=depth)
        assert found
        assert all(fragment.depth <= depth for fragment in found)
        assert found[0].gates >= previous
        previous = found[0].gates


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "sqrt", "reciprocal"])
def test_a_point_and_a_sliver(name: str) -> None:
    (constant,) = options(name, None, 2.0, 2.0, 1e-9)
    assert (constant.gates, constant.error) == (0, 0.0)
    sliver = options(name, None, 2.0, 2.000001, 1e-9)
    assert sliver[0].gates == 0
    check_theorem(sliver[0], name)


def test_linear_powers_need_no_gate() -> None:
    for parameter in (0.0, 1.0):
        assert options("power", parameter, -3.0, 5.0, 1e-9)[0].gates == 0


def test_nothing_is_offered_where_nothing_can_be() -> None:
    assert options("exp", None, 0.0, 1000.0, 1e-3) == []
    assert options("cos", None, 0.0, 1.0, 1e-6, max_depth=0) == []


def test_few_proposals_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building takes nearly all of the time: of all that is proposed, little more is built than is offered."""
    proposed, built = 0, 0

    def counted(propose: Callable[..., list[Proposal]], *arguments: Any) -> list[Proposal]:
        nonlocal proposed
        proposals = [replace(each, make=partial(made, each)) for each in propose(*arguments)]
        proposed += len(proposals)
        return proposals

    def made(proposal: Proposal) -> Fragment:
        nonlocal built
        built += 1
        return proposal.make()

    for name in ("_deep", "_generic"):
        monkeypatch.setattr(module, name, partial(counted, getattr(module, name)))
    offered = sum(len(options(name, parameter, low, high, 1.1e-8)) for name, parameter, low, high, _ in CATALOGUE[:6])
    assert offered <= built <= 2 * offered < proposed


FUNCTIONS_AND_DOMAINS = st.one_of(
    st.tuples(
        st.sampled_from(["exp", "sin", "cos", "tanh", "sigmoid", "softplus", "gelu", "erf", "gaussian", "square"]),
        st.floats(-20.0, 5.0),
        st.floats(-5.0, 1.3).map(lambda e: 10.0**e),
    ),
    st.tuples(
        st.sampled_from(["log", "sqrt", "reciprocal"]),
        st.floats(-3.0, 2.0).map(lambda e: 10.0**e),
        st.floats(-5.0, 3.0).map(lambda e: 10.0**e),
    ),
)


@settings(max_examples=tried(25, 3))
@given(FUNCTIONS_AND_DOMAINS, st.floats(-6.0, -1.0))
def test_any_domain(case: tuple[str, float, float], exponent: float) -> None:
    name, low, width = case
    size = max(1.0, math.exp(low + width)) if name == "exp" else 1.0 / low if name == "reciprocal" else 1.0
    error = 10.0**exponent * max(size, 1.0)
    found = options(name, None, low, low + width, error)
    assert found
    for fragment in (found[0], found[-1]):
        assert fragment.error <= error
        check_form(fragment, loose=100 if fragment.family in ("log", "softplus") else 2)
        if fragment.gates < 300:
            x = places(fragment, 1001)
            assert np.abs(deviations(fragment, name, None, x)).max() <= 1.02 * fragment.error + 1e-12 * size
