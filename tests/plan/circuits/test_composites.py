"""sigmoid, tanh, softplus, gaussian, and the mirrored families."""

from __future__ import annotations

import pytest
from helpers.theorems.fragments import cheapest, check_form, check_theorem

from headsmith.plan.circuits.composite import Decay, gaussian, logistic, softplus
from headsmith.plan.circuits.composite_search import composite_proposals
from headsmith.plan.circuits.mirror import even, flipped, odd
from headsmith.plan.circuits.power import power
from headsmith.plan.circuits.shallow import shallow_option
from headsmith.plan.circuits.target import Target

DOMAINS = [(-8.0, 8.0), (-1.0, 5.0), (2.0, 9.0), (-6.0, -0.5), (-1e4, 1e4), (-0.3, 0.2)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "gaussian"])
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_composites_hold(name: str, domain: tuple[float, float]) -> None:
    low, high = domain
    for error in (1e-3, 1e-6):
        for proposal in cheapest(composite_proposals(name, low, high, error))[:4]:
            fragment = proposal.make()
            assert (fragment.gates, fragment.depth) == (proposal.gates, proposal.depth)
            # The stages err most at different places; with very few cells these may be far apart.
            check_theorem(fragment, name, slack=2.0 if error < 1e-4 else 12.0, over=1.01)


@pytest.mark.parametrize(
    ("name", "size", "gates"), [("sigmoid", 8.0, 30), ("tanh", 4.0, 31), ("softplus", 8.0, 34), ("gaussian", 4.0, 32)]
)
def test_composite_costs_at_1e_6(name: str, size: float, gates: int) -> None:
    """35, 35, 40 and 36 gates in the catalogue."""
    found = cheapest(composite_proposals(name, -size, size, 0.99e-6))[0]
    fragment = found.make()
    assert fragment.gates <= gates
    assert fragment.error <= 0.99e-6
    check_form(fragment, loose=12 if name == "softplus" else 0)


def test_counts_of_stages() -> None:
    decay = Decay(0.0, 8.0, 5, 8.0, (2, 2))
    assert (decay.gates, decay.depth) == (12, 12)
    fragment = logistic("sigmoid", -8.0, 8.0, decay, (2, 2, 2, 2))
    assert (fragment.gates, fragment.depth) == (2 + 12 + 4, 2 + 12 + 4)
    fragment = softplus(-8.0, 8.0, decay, 2, (2, 2))
    assert (fragment.gates, fragment.depth) == (1 + 12 + 6, 1 + 12 + 6)
    fragment = gaussian(-4.0, 4.0, decay, 9.0, (2,) * 6)
    assert (fragment.gates, fragment.depth) == (12 + 6, 12 + 6)


@pytest.mark.parametrize("name", ["gelu", "softplus", "gaussian"])
def test_even_costs_one_gate(name: str) -> None:
    slope = 0.0 if name == "gaussian" else 0.5
    inner = shallow_option(Target(name, None, slope), 0.0, 4.0, 1e-3)
    assert inner is not None
    fragment = even(inner, slope, -4.0, 3.0)
    assert (fragment.gates, fragment.depth) == (inner.gates + 1, inner.depth + 1)
    check_theorem(fragment, name)


@pytest.mark.parametrize(("name", "offset", "steep"), [("tanh", 0.0, 1.01), ("erf", 0.0, 1.14), ("sigmoid", 0.5, 0.26)])
def test_odd_costs_two_gates(name: str, offset: float, steep: float) -> None:
    inner = shallow_option(Target(name, None, 0.0, offset), 0.0, 4.0, 1e-3)
    assert inner is not None
    fragment = odd(inner, offset, steep, -4.0, 4.0)
    assert (fragment.gates, fragment.depth) == (inner.gates + 2, inner.depth + 2)
    check_theorem(fragment, name)
    check_form(fragment)


def test_the_other_side_costs_nothing() -> None:
    inner = power(3.0, 0.5, 2.0, 0.5, 4, (2, 2))
    fragment = flipped(inner, -1.0)
    assert (fragment.low, fragment.high, fragment.gates) == (-2.0, -0.5, inner.gates)
    check_theorem(fragment, "power", 3.0, slack=1.35)
