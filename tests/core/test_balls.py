"""Ball arithmetic rounds outwards, and keeps Arb's precision to itself."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.balls import gate_constant, lower_float, upper_float


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40))
def test_floats_enclose_the_ball(numerator, denominator) -> None:
    exact = Fraction(numerator, denominator)
    ctx.prec = 200
    try:
        value = arb(numerator) / denominator
        assert Fraction(lower_float(value)) <= exact <= Fraction(upper_float(value))
    finally:
        ctx.prec = 53


def test_a_ball_that_is_not_a_number_certifies_nothing() -> None:
    assert upper_float(arb("nan")) == np.inf
    assert lower_float(arb("nan")) == -np.inf


def test_the_gate_constant_is_lambert_w_of_one_over_e_rounded_up() -> None:
    with mpmath.workdps(60):
        exact = mpmath.lambertw(mpmath.exp(-1)).real
        assert mpmath.mpf(gate_constant()) >= exact
        assert mpmath.mpf(gate_constant()) - exact < mpmath.mpf("2e-16")
        # It solves w e^w = 1/e, and it is the largest value of y / (1 + e^y).
        assert abs(exact * mpmath.exp(exact + 1) - 1) < mpmath.mpf("1e-50")


def test_the_precision_of_arb_is_left_alone() -> None:
    before = ctx.prec
    gate_constant.__wrapped__()
    assert ctx.prec == before
