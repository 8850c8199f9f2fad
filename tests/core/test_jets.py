"""Taylor polynomials of programs and their tails enclose the programs, whatever their steps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from flint import arb
from programs import EXACT, ONE_VARIABLE, RISKY, TWO_VARIABLES, exact_value, horner, random_program

from headsmith.core.functions import Domain, user_function
from headsmith.core.jets import Composed, target_of
from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.core.series import Named, Pair, series_arithmetic

user_function("jet tests: root", lambda x: (x + 5).sqrt(), domain=Domain(low=0.0, low_closed=True))
user_function("jet tests: seven", lambda x: 7)


def number(ball: arb) -> mpmath.mpf:
    """The middle of a ball, exactly."""
    mantissa, exponent = ball.mid().man_exp()
    return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))


def expansion(program: Program, centre: list[float], radius: list[float], order: int):
    target = Composed(program)
    with series_arithmetic(200, order):
        coefficients, tail, rates = target.expand([arb(c) for c in centre], [arb(r) for r in radius], order)
    assert len(rates) == len(centre)
    return dict(zip(target.support(order), coefficients, strict=True)), tail


def missed(program: Program, centre: list[float], radius: list[float], order: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    """What the polynomial misses at the worst of some points, ends included, and the bound of it, which covers it."""
    coefficients, tail = expansion(program, centre, radius, order)
    if not (tail.is_finite() and all(c.is_finite() for c in coefficients.values())):
        return mpmath.mpf(0), mpmath.inf
    worst = mpmath.mpf(0)
    shares = [mpmath.mpf(s) for s in (-1, -0.875, -0.25, 0.5, 1)]
    with mpmath.workdps(60):
        for place in product(shares, repeat=len(centre)):
            point = [mpmath.mpf(c) + mpmath.mpf(r) * s for c, r, s in zip(centre, radius, place, strict=True)]
            powers = (*place, mpmath.mpf(0))[:2]
            polynomial = sum(number(c) * powers[0] ** a * powers[1] ** b for (a, b), c in coefficients.items())
            worst = max(worst, abs(exact_value(program, point) - polynomial))
        bound = number(tail.upper()) + sum(number(c.rad().upper()) for c in coefficients.values())
        assert worst <= bound + mpmath.mpf("1e-40"), program
        return worst, bound


@pytest.mark.parametrize("variables", [1, 2])
@pytest.mark.parametrize("order", [3, 7, 12])
def test_tails_cover_what_polynomials_of_random_programs_miss(variables, order) -> None:
    random = np.random.default_rng(order)
    finite = 0
    for seed in range(120):
        program = random_program(1000 * variables + seed, variables)
        centre = random.uniform(-2.0, 2.0, variables).tolist()
        radius = (2.0 ** -random.integers(0, 6, variables)).tolist()
        finite += missed(program, centre, radius, order)[1] < mpmath.inf
    assert finite >= 60


@pytest.mark.parametrize("name", sorted(EXACT))
@pytest.mark.parametrize("order", [2, 4, 9, 20])
def test_functions_of_wide_balls_are_enclosed(name, order) -> None:
    program = Program(1, (Linear(((Fraction(3, 2), 0),), Fraction(1, 3)), Call(name, 1), Times(2, 2)))
    cells = [(0.7, 0.5), (2.0, 1.5), (9.0, 0.5)]
    for centre, radius in cells if name in RISKY else [*cells, (0.0, 1.0), (-0.5, 0.75), (-4.0, 1.0)]:
        missed(program, [centre], [radius], order)


@pytest.mark.parametrize("name", ["tan", "arctan", "arcsin", "arccos", "sinh", "cosh", "j0", "j1"])
@pytest.mark.parametrize("order", [3, 9, 16])
def test_functions_near_zero_have_finite_tails_on_wide_balls(name, order) -> None:
    program = Program(1, (Linear(((Fraction(3, 2), 0),), Fraction(1, 3)), Call(name, 1), Times(2, 2)))
    for centre, radius in [(-0.25, 0.125), (0.0, 0.25), (0.25, 0.0625)]:
        assert missed(program, [centre], [radius], order)[1] < 1.0


@pytest.mark.parametrize("exponent", [-3.0, -1.5, 0.5, 1.7, 3.0, 4.0])
def test_powers_of_wide_balls_are_enclosed(exponent) -> None:
    program = Program(1, (Linear(((Fraction(1), 0),), Fraction(1, 2)), Call("power", 1, exponent)))
    for centre, radius in [(0.5, 0.75), (2.0, 1.0), (3.0, 3.25)] + [(-4.0, 2.0)] * float(exponent).is_integer():
        assert missed(program, [centre], [radius], 9)[1] < mpmath.inf


def test_tails_are_not_much_more_than_what_is_missed() -> None:
    for program, (low, high) in ONE_VARIABLE.values():
        found, bound = missed(program, [(low + high) / 2], [(high - low) / 64], 12)
        assert bound <= 1e6 * found + mpmath.mpf("1e-24")
    for program, (left, right), (low, high) in TWO_VARIABLES.values():
        centre, radius = [(left + right) / 2, (low + high) / 2], [(right - left) / 64, (high - low) / 64]
        found, bound = missed(program, centre, radius, 10)
        assert bound <= 1e6 * found + mpmath.mpf("1e-20")


def test_polynomials_have_no_tail() -> None:
    assert missed(horner([Fraction(1, 3)] * 8), [0.3], [2.0], 9)[1] < mpmath.mpf("1e-50")
    cubic = Program(2, (Times(0, 1), Linear(((Fraction(1), 0), (Fraction(1), 1))), Times(2, 3)))
    assert missed(cubic, [0.3, -1.0], [2.0, 0.5], 6)[1] < mpmath.mpf("1e-50")


def test_what_is_not_defined_on_the_cell_has_no_tail() -> None:
    pole = Program(1, (Linear(((Fraction(1), 0),), Fraction(-1, 3)), Linear((), Fraction(1)), Over(2, 1)))
    assert missed(pole, [0.5], [0.25], 8)[1] == mpmath.inf
    root = Program(1, (Call("jet tests: root", 0),))
    assert expansion(root, [1.0], [0.5], 8)[1].is_finite()
    assert not expansion(root, [1.0], [1.5], 8)[1].is_finite()  # the program goes on, but the function ends at 0
    for name in ("tan", "arcsin"):
        assert missed(Program(1, (Call(name, 0), Times(1, 1))), [1.5], [0.75], 8)[1] == mpmath.inf
    nothing = Program(1, (Linear((), Fraction(0)), Over(0, 1)))
    assert missed(nothing, [1.0], [0.5], 8)[1] == mpmath.inf


def test_constants_are_series_too() -> None:
    program = Program(1, (Call("jet tests: seven", 0), Linear((), Fraction(1, 4)), Call("softplus", 2), Times(1, 3)))
    coefficients, tail = expansion(program, [0.0], [1.0], 5)
    assert tail == 0
    assert abs(float(coefficients[0, 0]) - 7 * np.log1p(np.exp(0.25))) < 1e-15


def test_plain_programs_are_compared_as_what_they_are() -> None:
    assert target_of(Program(1, (Call("power", 0, 3.0),))) == Named("power", 3.0)
    assert target_of(Program(1, (Times(0, 0),))) == Named("square")
    assert target_of(Program(2, (Times(1, 0),))) == Pair(False)
    assert target_of(Program(2, (Over(0, 1),))) == Pair(True)
    assert isinstance(target_of(Program(2, (Over(1, 0),))), Composed)
    assert isinstance(target_of(Program(2, (Call("sin", 0),))), Composed)
