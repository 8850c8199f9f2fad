"""Taylor polynomials and their tails enclose the functions; Bernstein coefficients enclose polynomials."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from mathematics import EXACT

from headsmith.core.functions import FUNCTIONS, user_function
from headsmith.core.polynomials import derivative, divided, frame, pieces
from headsmith.core.series import DISCS, POWERS, PROGRAMS, Named, Pair, series_arithmetic

CELLS = [(0.7, 0.25), (0.7, 0.6), (2.0, 1.5), (9.0, 0.5), (30.0, 2.0)]
SIGNED = [*CELLS, (0.0, 1.0), (-0.3, 0.9), (-4.0, 1.0), (-25.0, 3.0)]
NEAR_ZERO = [(0.0, 0.6), (-0.3, 0.4), (0.7, 0.2), (0.8, 0.15)]
WHERE = {
    **dict.fromkeys(("log", "sqrt", "reciprocal"), CELLS),
    **dict.fromkeys(("arcsin", "arccos"), NEAR_ZERO),
    "tan": [*NEAR_ZERO, (9.0, 0.8), (-4.0, 0.5)],
    "arctan": [*NEAR_ZERO, (0.7, 0.6), (2.0, 1.5), (9.0, 0.5), (30.0, 2.0), (-25.0, 3.0)],
}

user_function("series tests: airy", lambda x: x.airy_ai())
user_function("series tests: derivative", lambda x: x.sin().derivative())


def number(ball: arb) -> mpmath.mpf:
    """The middle of a ball, exactly."""
    mantissa, exponent = ball.mid().man_exp()
    return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))


def largest_rest(target, exact, centre: float, radius: float, order: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    """What the polynomial misses at the worst of some points, and the bound of it."""
    with series_arithmetic(300, order):
        coefficients, tail, _ = target.expand([arb(centre)], [arb(radius)], order)
    with mpmath.workdps(90):
        middles, found = [number(c) for c in coefficients], mpmath.mpf(0)
        for x in (-1, -0.99, -0.5, 0.3, 0.97, 1):
            value = exact(mpmath.mpf(centre) + mpmath.mpf(radius) * mpmath.mpf(x))
            found = max(found, abs(value - sum(c * mpmath.mpf(x) ** i for i, c in enumerate(middles))))
        return found, mpmath.inf if not tail.is_finite() else number(tail.upper())


def test_every_named_function_has_a_program_and_a_tail() -> None:
    built_in = {name for name, function in FUNCTIONS.items() if function.program is None}
    assert built_in == {*PROGRAMS, "power"}
    assert set(PROGRAMS) == set(DISCS) | set(POWERS) == set(EXACT)


@pytest.mark.parametrize("order", [12, 20])
@pytest.mark.parametrize("name", sorted(EXACT))
def test_tails_cover_what_polynomials_miss_and_little_more(name, order) -> None:
    for centre, radius in WHERE.get(name, SIGNED):
        missed, bound = largest_rest(Named(name), EXACT[name], centre, radius, order)
        assert missed <= bound + mpmath.mpf("1e-80")
        # Cauchy's bound forgets cancellation between coefficients; that costs a factor, which a smaller cell regains.
        assert radius > 1.0 or bound <= 1e5 * missed + mpmath.mpf("1e-30"), (centre, radius)


@pytest.mark.parametrize("exponent", [-3.5, -2.0, -1.0, 0.0, 0.5, 1.0, 2.5, 7.0, 12.5, 30.0])
def test_tails_of_powers(exponent) -> None:
    for centre, radius in CELLS:
        exact = lambda x: mpmath.power(x, mpmath.mpf(exponent))  # noqa: E731
        missed, bound = largest_rest(Named("power", exponent), exact, centre, radius, 12)
        assert missed <= bound + mpmath.mpf("1e-60")
    if exponent.is_integer() and exponent >= 0:
        missed, bound = largest_rest(Named("power", exponent), exact, -0.2, 0.7, 12)
        assert missed <= bound + mpmath.mpf("1e-60")


def test_a_cell_that_reaches_a_singularity_has_no_tail() -> None:
    for name, centre in (("log", 1.0), ("sqrt", 1.0), ("reciprocal", 1.0), ("arcsin", 0.0), ("tan", 1.0)):
        assert largest_rest(Named(name), lambda x: mpmath.mpf(1), centre, 1.0, 12)[1] == mpmath.inf


def test_programs_are_bounded_over_the_whole_cell() -> None:
    for centre, radius in [(0.0, 1.0), (-2.0, 0.5), (3.0, 1.0)]:
        missed, bound = largest_rest(Named("series tests: airy"), mpmath.airyai, centre, radius, 16)
        assert missed <= bound <= 1e5 * missed


def test_coefficients_past_the_precision_of_a_series_are_unknown_not_zero() -> None:
    with series_arithmetic(128, 8):
        coefficients, tail, _ = Named("series tests: derivative").expand([arb(0.5)], [arb(0.1)], 8)
    assert coefficients[6].is_finite()
    assert not coefficients[7].is_finite()
    assert not tail.is_finite()


@pytest.mark.parametrize("quotient", [False, True])
def test_products_and_quotients(quotient) -> None:
    (x, y), (x_radius, y_radius), order = (0.3, -1.5), (0.8, 0.7), 10
    target = Pair(quotient)
    with series_arithmetic(300, order):
        centre, radius = [arb(x), arb(y)], [arb(x_radius), arb(y_radius)]
        coefficients, tail, _ = target.expand(centre, radius, order)
    with mpmath.workdps(60):
        for a in (-1.0, 0.2, 1.0):
            for b in (-1.0, -0.4, 1.0):
                powers = [mpmath.mpf(a) ** i * mpmath.mpf(b) ** j for i, j in target.support(order)]
                polynomial = sum(number(c) * p for c, p in zip(coefficients, powers, strict=True))
                left, right = x + x_radius * mpmath.mpf(a), y + y_radius * mpmath.mpf(b)
                exact = left / right if quotient else left * right
                assert abs(exact - polynomial) <= number(tail.upper()) + mpmath.mpf("1e-50")


def test_flint_gets_its_precision_and_length_back() -> None:
    before = ctx.prec, ctx.cap
    with pytest.raises(ZeroDivisionError), series_arithmetic(200, 30):
        raise ZeroDivisionError
    assert (ctx.prec, ctx.cap) == before


# Polynomials --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-10, 10), min_size=7, max_size=7), st.floats(-1, 1))
def test_bernstein_coefficients_enclose_a_polynomial(coefficients, x) -> None:
    cut, row = pieces(1, 7, 4), np.array(coefficients)
    ranges = row @ cut.matrix
    margin = 1e-13 * np.sum(np.abs(row))
    assert ranges.min() - margin <= np.polyval(row[::-1], x) <= ranges.max() + margin
    ends = np.linspace(-1, 1, 5)
    corners = np.polyval(row[::-1], np.stack([ends[:-1], ends[1:]], axis=1)).ravel()
    np.testing.assert_allclose(ranges[cut.nodes], corners, rtol=0, atol=margin + 1e-300)


def test_bernstein_coefficients_in_two_variables(rng) -> None:
    monomials, cut = frame(2, 6), pieces(2, 6, 2)
    row = rng.normal(size=len(monomials))
    points = rng.uniform(-1, 1, size=(500, 2))
    values = sum(c * points[:, 0] ** a * points[:, 1] ** b for c, (a, b) in zip(row, monomials.exponents, strict=True))
    ranges = row @ cut.matrix
    assert ranges.min() <= values.min()
    assert values.max() <= ranges.max()
    x, y = (axis.ravel() for axis in np.meshgrid([-1, 0, 0, 1], [-1, 0, 0, 1], indexing="ij"))
    corners = sum(c * x**a * y**b for c, (a, b) in zip(row, monomials.exponents, strict=True))
    np.testing.assert_allclose(np.sort(ranges[cut.nodes]), np.sort(corners), atol=1e-12)


def test_division_undoes_multiplication_and_derivatives_are_derivatives(rng) -> None:
    for variables in (1, 2):
        monomials = frame(variables, 6)
        quotient, divisor = rng.normal(size=(3, len(monomials))), rng.normal(size=(3, len(monomials)))
        divisor[:, 0] = 4.0
        product = np.stack([np.sum(quotient[:, i] * divisor[:, j], axis=1) for i, j in monomials.products], axis=1)
        np.testing.assert_allclose(divided(product, divisor, monomials), quotient, atol=1e-12)
    slope = derivative(np.eye(len(monomials)), monomials, 1)
    for number_, (a, b) in enumerate(monomials.exponents):
        expected = np.zeros(len(monomials))
        if b:
            expected[monomials.exponents.index((a, b - 1))] = b
        np.testing.assert_array_equal(slope[number_], expected)
