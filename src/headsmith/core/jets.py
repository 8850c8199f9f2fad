"""Programs of one or two variables as Taylor series with proven tails, over Arb.

Along a line through the centre a program of two variables is a program of one, which flint expands at once:

    f(centre + t h) = sum_d p_d(h) t^d,     p_d(h) = sum_b c_(d-b, b) h_1^(d-b) h_2^b

so p_d at h = (1, node) for as many nodes as there are terms gives the coefficients of degree d, by one exact inverse.

The tail is Lagrange's: f(centre + h) - sum_(d < M) p_d(h) is the coefficient M of t -> f(s + t h) for some s of the
cell. One run with balls for s and for h bounds it for all of them. Balls forget that an operand occurs twice, so the
cell is cut into a few pieces, and named functions with poles off the real line use what is known of them on discs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from math import cos, factorial, inf, pi, prod
from typing import Any

from flint import arb, arb_mat, arb_series, ctx, fmpq, fmpq_mat

from headsmith.core.balls import Ball, lower_float, upper_float
from headsmith.core.bessel import composed
from headsmith.core.functions import EVERYWHERE, FUNCTIONS, Univariate
from headsmith.core.polynomials import frame
from headsmith.core.program import Arithmetic, Call, Over, Program, Times, described, run_program
from headsmith.core.series import DISCS, POWERS, Named, Pair, Series, Target, program_of, series_arithmetic

CUTS = {1: 4, 2: 2}
"""Pieces of a cell along each axis for the tail, in one and in two variables."""
UNKNOWN_RATE = 10.0


@dataclass(frozen=True)
class Composed:
    """Any program of one or two variables."""

    program: Program

    @property
    def label(self) -> str:
        return described(self.program)

    def support(self, order: int) -> Sequence[tuple[int, int]]:
        return frame(self.program.variables, order).exponents

    def expand(self, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> Series:
        coefficients = (_along if len(centre) == 1 else _by_lines)(self.program, centre, radius, order)
        size = max((upper_float(abs(ball)) for ball in coefficients), default=0.0)
        tails = [self._tail(centre, radius, order, axis) for axis in range(len(centre))]
        rates = [_rate(tail, size, order) for tail in tails]
        tail = tails[0] if len(centre) == 1 else self._tail(centre, radius, order, None)
        return coefficients, tail, tuple(rates)

    def _tail(self, centre: Sequence[Ball], radius: Sequence[Ball], order: int, axis: int | None) -> Ball:
        """A bound of |p_order| over the cell, for steps along all axes or along one of them."""
        cuts = CUTS[len(centre)]
        largest = arb(0)
        for piece in product(range(cuts), repeat=len(centre) if axis is None else 1):
            lines = []
            for number, (place, size) in enumerate(zip(centre, radius, strict=True)):
                if axis is not None and axis != number:
                    lines.append((place, arb(0)))
                    continue
                shift = arb(2 * piece[0 if axis is not None else number] + 1 - cuts) / cuts
                step = size if axis is not None else size * arb(0, 1)
                lines.append((place + size * shift + size * arb(0, 1) / cuts, step))
            found = abs(run_series(self.program, lines, order + 1)[order])
            if not found.is_finite():
                return arb("inf")
            largest = largest.max(found)
        return largest


def target_of(program: Program) -> Target:
    """What a program is compared as: a named function, a product or a quotient where it is just that."""
    match program:
        case Program(1, (Call(name, 0, parameter),)):
            return Named(name, parameter)
        case Program(1, (Times(0, 0),)):
            return Named("square")
        case Program(2, (Times(0, 1) | Times(1, 0),)):
            return Pair(False)
        case Program(2, (Over(0, 1),)):
            return Pair(True)
        case _:
            return Composed(program)


def _rate(tail: Ball, size: float, order: int) -> float:
    """How fast coefficients fall along one axis."""
    top = upper_float(tail)
    if not 0.0 < size < inf or not top < inf:
        return UNKNOWN_RATE
    return float(min((top / size) ** (1.0 / order), UNKNOWN_RATE))


# The coefficients ---------------------------------------------------------------------------------------------------


def _along(program: Program, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> list[Ball]:
    return run_series(program, [(centre[0], radius[0])], order)


def _by_lines(program: Program, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> list[Ball]:
    """The coefficients of a program of two variables, by degree and then by the power of the second."""
    (x, y), (x_radius, y_radius) = centre, radius
    nodes, inverse = _interpolation(order, ctx.prec)
    rows = [run_series(program, [(x, x_radius), (y, node * y_radius)], order) for node in nodes]
    found = inverse * arb_mat(order, order, [ball for row in rows for ball in row])
    return [found[b, d] for d in range(order) for b in range(d + 1)]


@lru_cache(maxsize=64)
def _interpolation(order: int, bits: int) -> tuple[list[Ball], Any]:
    """Nodes of [-1, 1], near those of Chebyshev, and what makes coefficients of values there; bits are flint's own."""
    nodes = [fmpq(round(64 * cos(pi * (2 * j + 1) / (2 * order))), 64) for j in range(order)]
    powers = fmpq_mat(order, order, [node**b for node in nodes for b in range(order)])
    return [arb(node) for node in nodes], arb_mat(powers.inv())


# Programs on series -------------------------------------------------------------------------------------------------


def run_series(program: Program, lines: Sequence[tuple[Ball, Ball]], order: int) -> list[Ball]:
    """The first `order` coefficients of a program of place + t step, for each variable; nan where there are none.

    Guarantee: the coefficients for all places and steps in the balls are enclosed.
    """
    try:
        with series_arithmetic(ctx.prec, order):
            arguments = [arb_series([place, step], order) for place, step in lines]
            result = run_program(program, arguments, _series_numbers(order))
    except (ArithmeticError, ValueError):
        return [arb("nan")] * order
    return _entries(result, order)


def _entries(result: Any, order: int) -> list[Ball]:
    if not isinstance(result, arb_series):
        return [arb(result)] + [arb(0)] * (order - 1)
    # Past its precision a series is unknown, although flint reads zeros there.
    return [result[i] if i < result.prec else arb("nan") for i in range(order)]


@cache
def _series_numbers(order: int) -> Arithmetic:
    return Arithmetic(
        constant=lambda value: arb_series([exact(value)], order),
        scaled=lambda coefficient, value: value if coefficient == 1 else exact(coefficient) * value,
        added=lambda left, right: left + right,
        multiplied=lambda left, right: _squared(left, order) if left is right else left * right,
        divided=lambda left, right: _defined(_divided(left, right, order)),
        called=lambda name, parameter, value: _defined(_called(name, parameter, value, order)),
    )


def _defined(value: Any) -> Any:
    """What is not defined stays so: flint makes 0 of 0 times it."""
    if not all(ball.is_finite() for ball in value.coeffs()):
        raise ArithmeticError("a step is not defined on all of the ball")
    return value


def exact(value: Fraction) -> Ball:
    """A rational as a ball."""
    return arb(fmpq(value.numerator, value.denominator))


def _squared(value: Any, order: int) -> Any:
    """The square, not negative where a ball round 0 is squared."""
    result = value * value
    if not value[0].contains(0) or value[0].is_zero():
        return result
    half = abs(value[0]).upper() ** 2 / 2
    return arb_series([half + half * arb(0, 1), *_entries(result, order)[1:]], order)


def _divided(left: Any, right: Any, order: int) -> Any:
    return left * composed(_powers(-1.0, right[0], order), right, order) if _wide(right) else left / right


def _called(name: str, parameter: float | None, value: Any, order: int) -> Any:
    function = FUNCTIONS[name]
    if function.domain(parameter) != EVERYWHERE:
        low, high = lower_float(value[0]), upper_float(value[0])
        if not function.domain(parameter).covers(low, high):
            return arb_series([arb("nan")] * order, order)
    if name == "square" or (name, parameter) == ("power", 2.0):
        return _squared(value, order)
    if name == "hypotenuse":
        return _called("sqrt", None, 1 + _squared(value, order), order)
    if _wide(value) and order <= SHAPED_ORDERS and name in SHAPED:
        return composed(_by_shapes(function, parameter, value[0], order), value, order)
    exponent = POWERS.get(name, parameter)
    natural = exponent is not None and exponent >= 0.0 and float(exponent).is_integer()
    if _wide(value) and (name in POWERS or name == "power") and not natural:
        return composed(_powers(exponent, value[0], order), value, order)
    if _wide(value) and name in WITH_POLES:
        return composed(_by_discs(name, value[0], order), value, order)
    result = program_of(name, parameter)(value)
    return result if isinstance(result, arb_series) else arb_series([result], order)


# Functions of wide balls --------------------------------------------------------------------------------------------
#
# f(u_0 + u) = sum_i f_i u^i with f_i over the ball u_0. What flint does with series is meant for narrow balls: its
# Newton iterations and its recursions use the same wide ball many times.

WITH_POLES = ("sigmoid", "tanh", "softplus", "tan", "arctan", "arcsin", "arccos")
SHAPED = (*WITH_POLES, "gelu", "sinh", "cosh")
SHAPED_ORDERS = 4
"""So many derivatives of the named functions, the first one f itself, have known ranges (core.shapes)."""


def _wide(value: Any) -> bool:
    return bool(value[0].rad() > 1e-6)


def _by_shapes(function: Univariate, parameter: float | None, place: Ball, order: int) -> list[Ball]:
    """f_i from the exact ranges of f, f', f'' and f'''."""
    low, high = lower_float(place), upper_float(place)
    if not function.domain(parameter).covers(low, high):
        return [arb("nan")] * order
    ranges = [function.enclose(low, high, i, parameter) for i in range(order)]
    return [arb(float(a)).union(arb(float(b))) / factorial(i) for i, (a, b) in enumerate(ranges)]


def _powers(exponent: float | None, place: Ball, order: int) -> list[Ball]:
    """f_i = binom(a, i) u^(a-i) for x^a, and (-1)^(i-1) u^-i / i for the logarithm (None). Powers are monotone."""
    whole = exponent is not None and float(exponent).is_integer()
    if not (place > 0 or (whole and place < 0)):
        return [arb("nan")] * order
    ends = place.lower(), place.upper()
    inverse = (1 / ends[0]).union(1 / ends[1])
    if exponent is None:
        first, second, factor = [end.log() for end in ends], [1 / end for end in ends], arb(1)
    else:
        power = int(exponent) if whole else arb(exponent)
        first, second, factor = [end**power for end in ends], [end ** (power - 1) for end in ends], arb(exponent)
    found, base = [first[0].union(first[1])], second[0].union(second[1])
    for i in range(1, order):
        found.append(factor * base)
        base = base * inverse
        # binom(a, i+1) / binom(a, i) = (a - i) / (i + 1), and a = 0 for the logarithm
        factor = factor * (arb(exponent or 0.0) - i) / (i + 1)
    return found


def _by_discs(name: str, place: Ball, order: int) -> list[Ball]:
    """f_i by Cauchy where that is less than what the program says.

    |f^(k)| <= B on discs of radius R gives |f_i| <= B R^(k-i) / (i ... (i-k+1)), as for the tails of core.series. The
    derivatives before that one, and f, are monotone: their range is that of the ends.
    """
    program = program_of(name)
    found = _entries(program(arb_series([place, 1], order)), order)
    disc, derivative, radii = DISCS[name]
    first = max(derivative, 1)
    ends = [_entries(program(arb_series([end, 1], order)), order)[:first] for end in (place.lower(), place.upper())]
    found[:first] = [low.union(high) for low, high in zip(*ends, strict=True)]
    for radius in radii(order, place):
        if not radius > 0:
            continue
        bound = abs(disc(place, radius))
        for i in range(first, order):
            size = (bound * radius ** (derivative - i) / prod(range(i - derivative + 1, i + 1))).upper()
            if size.is_finite() and not abs(found[i]).upper() < size:
                found[i] = size * arb(0, 1)
    return found
