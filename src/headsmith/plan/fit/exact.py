"""Programs that softmax is exactly: quotients of sums of exponentials.

    f(s) = sum_k n_k e^(a_k s) / sum_k d_k e^(a_k s) = sum_k softmax_k(a_k s + ln d_k) n_k / d_k,     all d_k > 0

sigmoid and tanh of affine arguments are such quotients, and so are exponentials; sums, products and quotients of such
quotients are again. Several programs share the product of their denominators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.program import Arithmetic, Program, run_program

LARGEST_CONSTANT = 300.0  # of an exponent
MOST_TERMS = 64

Terms = dict[Fraction, float]  # coefficients by rate
ONE: Terms = {Fraction(0): 1.0}


@dataclass(frozen=True)
class Rate:
    """rate s + constant."""

    rate: Fraction
    constant: Fraction


@dataclass(frozen=True)
class Ratio:
    """A quotient of sums of exponentials."""

    numerator: Terms
    denominator: Terms


Known = Rate | Ratio | None


def exact_table(programs: Sequence[Program]) -> tuple[Array, Array, Array] | None:
    """alpha, offset, values of a head that is all the programs (of one variable), up to rounding; or None."""
    ratios = [_normal(_ratio(run_program(program, [Rate(Fraction(1), Fraction(0))], NUMBERS))) for program in programs]
    found = [ratio for ratio in ratios if ratio is not None]
    if len(found) < len(ratios):
        return None
    distinct: list[Terms] = []
    for ratio in found:
        if ratio.denominator not in distinct:
            distinct.append(ratio.denominator)
    if math.prod(map(len, distinct)) > MOST_TERMS:
        return None
    common = _product(*distinct)
    columns = [_product(r.numerator, *(other for other in distinct if other != r.denominator)) for r in found]
    if not all(0.0 < size < math.inf for size in common.values()):
        return None
    if not all(rate in common for column in columns for rate in column):
        return None
    rates = sorted(common, reverse=True)
    sizes = np.array([common[rate] for rate in rates])
    values = np.array([[column.get(rate, 0.0) for column in columns] for rate in rates]) / sizes[:, None]
    return np.array([float(rate) for rate in rates]), np.log(sizes), values


def _product(*factors: Terms) -> Terms:
    result = ONE
    for factor in factors:
        terms: Terms = {}
        for rate, size in result.items():
            for other, share in factor.items():
                terms[rate + other] = terms.get(rate + other, 0.0) + size * share
        result = {rate: size for rate, size in terms.items() if size != 0.0}
    return result


def _normal(ratio: Ratio | None) -> Ratio | None:
    """A quotient divided through, so that its denominator begins with 1 (rate 0, factor 1)."""
    if ratio is None or not ratio.denominator:
        return None
    first = min(ratio.denominator)
    unit = ratio.denominator[first]
    moved = [
        {rate - first: size / unit for rate, size in terms.items()} for terms in (ratio.numerator, ratio.denominator)
    ]
    return Ratio(*moved)


def _ratio(value: Known) -> Ratio | None:
    if isinstance(value, Rate):
        return Ratio({Fraction(0): float(value.constant)} if value.constant else {}, ONE) if value.rate == 0 else None
    return value


def _exponential(value: Known, factor: int = 1) -> Terms | None:
    if not isinstance(value, Rate) or abs(factor * value.constant) > LARGEST_CONSTANT:
        return None
    return {factor * value.rate: math.exp(factor * value.constant)}


def _scaled(coefficient: Fraction, value: Known) -> Known:
    if isinstance(value, Rate):
        return Rate(coefficient * value.rate, coefficient * value.constant)
    if value is None:
        return None
    return Ratio(_product({Fraction(0): float(coefficient)}, value.numerator), value.denominator)


def _added(left: Known, right: Known) -> Known:
    if isinstance(left, Rate) and isinstance(right, Rate):
        return Rate(left.rate + right.rate, left.constant + right.constant)
    one, other = _normal(_ratio(left)), _normal(_ratio(right))
    if one is None or other is None:
        return None
    if one.denominator == other.denominator:
        return Ratio(_sum(one.numerator, other.numerator), one.denominator)
    crossed = _product(one.numerator, other.denominator), _product(other.numerator, one.denominator)
    return _small(Ratio(_sum(*crossed), _product(one.denominator, other.denominator)))


def _sum(left: Terms, right: Terms) -> Terms:
    total = {rate: left.get(rate, 0.0) + right.get(rate, 0.0) for rate in (*left, *right)}
    return {rate: size for rate, size in total.items() if size != 0.0}


def _multiplied(left: Known, right: Known) -> Known:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Rate) and one.rate == 0:
            return _scaled(one.constant, other)
    one_ratio, other_ratio = _ratio(left), _ratio(right)
    if one_ratio is None or other_ratio is None:
        return None
    numerator = _product(one_ratio.numerator, other_ratio.numerator)
    return _small(Ratio(numerator, _product(one_ratio.denominator, other_ratio.denominator)))


def _divided(left: Known, right: Known) -> Known:
    below = _ratio(right)
    return None if below is None else _multiplied(left, Ratio(below.denominator, below.numerator))


def _small(ratio: Ratio) -> Ratio | None:
    return ratio if len(ratio.numerator) + len(ratio.denominator) <= 2 * MOST_TERMS else None


def _called(name: str, parameter: float | None, value: Known) -> Known:
    match name:
        case "exp":
            terms = _exponential(value)
            return None if terms is None else Ratio(terms, ONE)
        case "sigmoid":
            terms = _exponential(value)
            return None if terms is None else Ratio(terms, _sum(terms, ONE))
        case "tanh":
            terms = _exponential(value, 2)
            return None if terms is None else Ratio(_sum(terms, {Fraction(0): -1.0}), _sum(terms, ONE))
        case "reciprocal":
            return _divided(Rate(Fraction(0), Fraction(1)), value)
        case "square":
            return _multiplied(value, value)
    return None


NUMBERS = Arithmetic(
    constant=lambda value: Rate(Fraction(0), value),
    scaled=_scaled,
    added=_added,
    multiplied=_multiplied,
    divided=_divided,
    called=_called,
)
