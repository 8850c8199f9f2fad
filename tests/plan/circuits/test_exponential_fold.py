"""exp, sin and cos by halving: closed forms of the error, gates and depth, clipping and periodic folding."""

from __future__ import annotations

import math

import pytest
from helpers.theorems.fragments import cheapest, check_form, check_theorem

from headsmith.plan.circuits.circular import circular, circular_proposals
from headsmith.plan.circuits.exponential import exponential, exponential_proposals
from headsmith.plan.circuits.radix import cells_of

PI = math.pi
CUBIC = 72 * math.sqrt(3)


@pytest.mark.parametrize(("levels", "split"), [(0, ()), (3, ()), (6, ()), (3, (2, 2)), (5, (3, 3)), (2, (7,))], ids=str)
@pytest.mark.parametrize("interval", [(-8.0, 0.0), (-1.0, 0.0), (2.0, 5.0), (3.0, 3.000001)], ids=str)
def test_exponential_theorem(interval: tuple[float, float], levels: int, split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = exponential(low, high, levels, high - low, split)
    width = (high - low) / 2**levels
    bound = width**2 / 16 if not split else width**3 / CUBIC + width**2 / (16 * cells_of(split) ** 2)
    assert fragment.error <= math.exp(high) * (bound + 1e-15)
    gates = 2 * levels + sum(split) - len(split)
    assert (fragment.gates, fragment.depth) == (gates, 2 * levels + len(split))
    check_theorem(fragment, "exp")
    check_form(fragment)
    if 1e-3 < width < 0.3:
        assert fragment.error >= 0.6 * math.exp(high) * bound


def test_exponential_clips_where_nothing_is_left() -> None:
    fragment = exponential(-1e4, 0.0, 6, 9.0, (2, 2))
    assert (fragment.gates, fragment.depth) == (15, 15)
    check_theorem(fragment, "exp")


@pytest.mark.parametrize(("low", "high", "gates"), [(-8.0, 0.0, 20), (-1.0, 0.0, 14), (-1e4, 0.0, 22), (0.0, 1.0, 15)])
def test_exponential_costs_at_1e_6(low: float, high: float, gates: int) -> None:
    """22 gates for exp[-8, 0] in the catalogue: the bubble saves two."""
    found = cheapest(exponential_proposals(low, high, 0.99e-6))[0]
    assert found.gates <= gates
    assert found.make().error <= 0.99e-6


def test_exponential_refuses_what_doubles_cannot_hold() -> None:
    assert exponential_proposals(0.0, 1000.0, 1e-3) == []


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("levels", "split"), [(3, ()), (5, ()), (3, (2, 2)), (5, (2, 3))], ids=str)
@pytest.mark.parametrize("interval", [(0.0, PI / 2), (-1.0, 5.0), (100.0, 103.0)], ids=str)
def test_circular_theorem(interval: tuple[float, float], name: str, levels: int, split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = circular(name, low, high, None, (), levels, split)
    width = (high - low) / 2**levels
    bound = math.tan(width / 4) ** 2
    if split:
        bound = math.hypot(width**3 / CUBIC, width**2 / (16 * cells_of(split) ** 2)) * (1 + width**2)
    assert fragment.error <= bound * (1 + 1e-9)
    assert (fragment.gates, fragment.depth) == (2 * levels + sum(split) - len(split), 2 * levels + len(split))
    check_theorem(fragment, name, slack=1.2)
    check_form(fragment)


@pytest.mark.parametrize("periods", [(2, 2, 2), (8,), (3, 3)], ids=str)
def test_circular_periodic(periods: tuple[int, ...]) -> None:
    fragment = circular("cos", -8 * PI, 8 * PI, 0.0, periods, 4, (2,))
    assert fragment.depth == 1 + len(periods) + 8 + 1
    check_theorem(fragment, "cos")
    check_form(fragment)


@pytest.mark.parametrize(
    ("name", "low", "high", "gates"),
    [("sin", 0.0, PI / 2, 15), ("cos", -PI, PI, 18), ("cos", -8 * PI, 8 * PI, 21), ("sin", -5000.0, 5000.0, 30)],
)
def test_circular_costs_at_1e_6(name: str, low: float, high: float, gates: int) -> None:
    """18 and 21 gates for sin[0, pi/2] and cos[-pi, pi] in the catalogue: the bubble saves three."""
    found = cheapest(circular_proposals(name, low, high, 0.99e-6))[0]
    assert found.gates <= gates
    fragment = found.make()
    assert fragment.error <= 0.99e-6
    check_theorem(fragment, name)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.5), (2.0, 8.9), (10.0, 14.0), (-1.0, 400.0), (7.0, 7.000001)])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_everywhere(name: str, low: float, high: float) -> None:
    for proposal in cheapest(circular_proposals(name, low, high, 1e-3)):
        fragment = proposal.make()
        assert (fragment.gates, fragment.depth) == (proposal.gates, proposal.depth)
        assert fragment.error <= 1e-3
        check_theorem(fragment, name, slack=2.5)
