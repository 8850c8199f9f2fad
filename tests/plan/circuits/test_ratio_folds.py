"""sqrt, log and powers by folding a ratio: closed forms, domains that touch 0, ratios over many decades."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.theorems.fragments import cheapest, check_form, check_theorem

from headsmith.plan.circuits.logarithm import logarithm, logarithm_proposals
from headsmith.plan.circuits.power import power, power_proposals
from headsmith.plan.circuits.radix import cells_of
from headsmith.plan.circuits.root import root, root_proposals


@pytest.mark.parametrize("split", [(), (2, 2, 2), (3, 4), (2,) * 7, (9,)], ids=str)
@pytest.mark.parametrize("interval", [(0.01, 1.0), (1.0, 4.0), (1e-9, 1e3), (1e4, 1e4 + 1)], ids=str)
def test_root_theorem(interval: tuple[float, float], split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = root(low, high, low, split)
    q = math.log(high / low) / cells_of(split)
    delta = 1 - 1 / math.cosh(q / 4)
    assert fragment.error == pytest.approx(math.sqrt(high) * delta / (2 - delta), rel=1e-6)
    assert fragment.error <= math.sqrt(high) * q * q / 64 / (1 - delta / 2)
    assert (fragment.gates, fragment.depth) == (sum(split) - len(split), len(split))
    check_theorem(fragment, "sqrt", slack=1.01)
    check_form(fragment)


@pytest.mark.parametrize(
    ("high", "error", "gates"),
    [(1.0, 1e-2, 4), (1.0, 1e-4, 8), (1.0, 1e-6, 12), (1e4, 1e-4, 12), (1e-6, 1e-6, 6), (1.0, 1e-8, 16)],
)
def test_root_down_to_zero(high: float, error: float, gates: int) -> None:
    """The catalogue's optimised cut-offs: 8.9e-7 with 12 gates; the shifted form has 6.2e-7."""
    found = cheapest(root_proposals(0.0, high, error))
    assert found[0].gates <= gates
    for proposal in found[:6]:
        fragment = proposal.make()
        assert fragment.error <= error
        check_theorem(fragment, "sqrt", slack=1.01)


def test_root_error_with_twelve_gates() -> None:
    assert cheapest(root_proposals(0.0, 1.0, 1e-6))[0].make().error <= 6.3e-7


@pytest.mark.parametrize(("levels", "split"), [(0, ()), (4, ()), (4, (2, 2)), (3, (5,)), (2, (2, 3))], ids=str)
@pytest.mark.parametrize("interval", [(0.1, 1.0), (1.0, 2.0), (1e-3, 1e3), (1e-6, 1e6), (5.0, 5.1)], ids=str)
def test_logarithm_theorem(interval: tuple[float, float], levels: int, split: tuple[int, ...]) -> None:
    low, high = interval
    fragment = logarithm(low, high, levels, split)
    q = math.log(high / low) / 2**levels
    if q <= 1:
        bound = q * q / 16 if not split else (q**3 / 249 + q * q / (16 * cells_of(split) ** 2)) * (1 + q)
        assert fragment.error <= bound
    assert (fragment.gates, fragment.depth) == (2 * levels + sum(split) - len(split), 2 * levels + len(split))
    if q < 6:
        check_theorem(fragment, "log", slack=1.02)
    # The recentring reads the pair of each level, so these sums are not in place.
    check_form(fragment, loose=2 * levels + 2)


def test_logarithm_costs_at_1e_6() -> None:
    """20 gates for log[.1, 1] in the catalogue: the bubble saves four."""
    found = cheapest(logarithm_proposals(0.1, 1.0, 0.99e-6))[0]
    assert found.gates <= 16
    assert found.make().error <= 0.99e-6


@pytest.mark.parametrize("exponent", [-2.0, -0.5, 0.25, 1 / 3, 1.5, 3.0, 7.0])
@pytest.mark.parametrize(("levels", "split"), [(4, ()), (5, (2, 2)), (4, (5,))], ids=str)
def test_power_theorem(exponent: float, levels: int, split: tuple[int, ...]) -> None:
    low, high = 0.3, 2.0
    fragment = power(exponent, low, high, low, levels, split)
    q = math.log(high / low) / 2**levels
    top = max(low**exponent, high**exponent)
    bend = abs(exponent * (exponent - 1)) * q * q
    square = bend / (16 * cells_of(split) ** 2)
    cubic = bend * abs(exponent - 0.5) * q / 124.7 if split else 0.0
    spread = 1 + 3 * q * (1 + abs(exponent))
    assert fragment.error <= top * (square + cubic) * spread
    assert (fragment.gates, fragment.depth) == (2 * levels + sum(split) - len(split), 2 * levels + len(split))
    check_theorem(fragment, "power", exponent, slack=1.35)
    check_form(fragment, loose=2)


@pytest.mark.parametrize(("exponent", "gates"), [(3.0, 22), (4.0, 22), (1.5, 21), (1 / 3, 23), (7.0, 23)])
def test_power_down_to_zero_at_1e_6(exponent: float, gates: int) -> None:
    made = [proposal.make() for proposal in cheapest(power_proposals(exponent, 0.0, 1.0, 1e-6))]
    found = [fragment for fragment in made if fragment.error <= 1e-6]
    assert found[0].gates <= gates
    check_theorem(found[0], "power", exponent, slack=1.35)


def test_a_wide_ratio_does_not_drown_in_rounding() -> None:
    """Gates that are active at small ratios: sqrt on [0, 1e4] to 1e-7, a ratio of 1e17, in plain double precision."""
    fragment = cheapest(root_proposals(0.0, 1e4, 1e-7))[0].make()
    x = np.concatenate([np.linspace(0.0, 1e4, 3001), np.geomspace(1e-18, 1e4, 3001)])
    assert np.abs(fragment(x) - np.sqrt(x)).max() <= 1.05e-7


@pytest.mark.parametrize("exponent", [0.2, 0.25, 1 / 3])
def test_small_exponents_down_to_zero(exponent: float) -> None:
    """The fold starts at 1e-16 to 1e-25: over so many decades the gates are active at small ratios."""
    fragment = cheapest(power_proposals(exponent, 0.0, 1.0, 1e-5))[0].make()
    x = np.concatenate([np.linspace(0.0, 1.0, 3001), np.geomspace(1e-30, 1.0, 3001)])
    assert np.abs(fragment(x) - x**exponent).max() <= 1.001 * fragment.error <= 1.001e-5
