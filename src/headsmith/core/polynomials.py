"""Polynomials in one or two variables on [-1, 1], as rows of float64 coefficients: division, and tight ranges.

A range comes from the Bernstein form: on an interval the coefficients b_0 .. b_n of that basis enclose the polynomial,
and b_0, b_n are its values at the two ends. The box is cut into a few pieces, and one matrix makes all coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from headsmith.core.arrays import Array, Indices

ROUNDING = 1e-13
"""The relative error of `divided` and of Bernstein coefficients, against sums of absolute coefficients."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The monomials x^a y^b of degree a + b < order, by degree; `products[t]` pairs those whose product is t."""

    exponents: tuple[tuple[int, int], ...]
    degree: Indices
    products: tuple[tuple[Indices, Indices], ...]

    def __len__(self) -> int:
        return len(self.exponents)


@cache
def frame(variables: int, order: int) -> Frame:
    """The monomials of degree below `order` in one or two variables."""
    exponents = tuple((d - b, b) for d in range(order) for b in range(d + 1 if variables == 2 else 1))
    place = {exponent: number for number, exponent in enumerate(exponents)}
    products = []
    for a, b in exponents:
        divisors = [(i, j) for i in range(a + 1) for j in range(b + 1)]
        left, right = [place[i, j] for i, j in divisors], [place[a - i, b - j] for i, j in divisors]
        products.append((np.array(left), np.array(right)))
    return Frame(exponents, np.array([a + b for a, b in exponents]), tuple(products))


@cache
def multiples(monomials: Frame, factor: tuple[int, int]) -> tuple[Indices, Indices]:
    """Places (t, s): the monomial t is `factor` times the monomial s."""
    place = {exponent: number for number, exponent in enumerate(monomials.exponents)}
    moved = [(place.get((a + factor[0], b + factor[1])), s) for s, (a, b) in enumerate(monomials.exponents)]
    pairs = np.array([(t, s) for t, s in moved if t is not None], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def by_degree(coefficients: Array, monomials: Frame, variable: int | None = None) -> Array:
    """Sums of absolute coefficients of the same degree, each times its power of `variable`: (..., order)."""
    order = int(monomials.degree[-1]) + 1
    weights = (monomials.degree[:, None] == np.arange(order)).astype(np.float64)
    if variable is not None:
        weights = weights * np.array(monomials.exponents)[:, variable, None]
    return np.asarray(np.abs(coefficients) @ weights)


def divided(numerator: Array, denominator: Array, monomials: Frame) -> Array:
    """The truncated quotient Q of series, (..., monomials): numerator = Q denominator below the order, up to rounding.

    Guarantee: the coefficient t of numerator - Q denominator, below the order, is at most ROUNDING times the sum of
    |Q_l| |denominator_m| over l + m = t, even if both came with relative errors of 2^-52. For this is substitution in
    a triangular system T Q = numerator, and the computed Q solves (T + dT) Q = numerator exactly with
    |dT| <= gamma_n |T| (Higham, theorem 8.5), n <= 200, whatever the order of summation.
    """
    quotient = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape))
    constant = denominator[..., 0]
    for place, (left, right) in enumerate(monomials.products):
        # The last pair is (place, 0), and its quotient is still zero.
        known = np.sum(quotient[..., left] * denominator[..., right], axis=-1)
        quotient[..., place] = (numerator[..., place] - known) / constant
    return quotient


def derivative(coefficients: Array, monomials: Frame, variable: int) -> Array:
    """The coefficients of a partial derivative."""
    result = np.zeros_like(coefficients)
    to, source = multiples(monomials, (1, 0) if variable == 0 else (0, 1))
    factors = np.array([monomials.exponents[t][variable] for t in to], dtype=np.float64)
    result[..., source] = coefficients[..., to] * factors
    return result


@dataclass(frozen=True, eq=False)
class Pieces:
    """`coefficients @ matrix` are the Bernstein coefficients on all pieces; `nodes` are the values at their corners.

    Guarantee: computed Bernstein coefficients are off by at most ROUNDING |coefficients|_1, for |matrix| <= 1.
    """

    matrix: Array
    nodes: Indices


@cache
def pieces(variables: int, order: int, parts: int) -> Pieces:
    """[-1, 1]^variables cut into `parts` equal pieces along each axis."""
    line = np.hstack([_bernstein(order, 2 * k - parts, 2 * k + 2 - parts, parts) for k in range(parts)])
    ends = np.array([k * order + j for k in range(parts) for j in (0, order - 1)])
    if variables == 1:
        return Pieces(line, ends)
    a, b = np.array(frame(2, order).exponents).T
    matrix = (line[a][:, :, None] * line[b][:, None, :]).reshape(len(a), -1)
    return Pieces(matrix, (ends[:, None] * line.shape[1] + ends[None, :]).ravel())


def _bernstein(order: int, start: int, end: int, parts: int) -> Array:
    """Row i: the Bernstein coefficients, for the degree n = order - 1, of x^i on [start, end] / parts.

    The k-th is the polar form of x^i at n-k times `start` and k times `end`: the mean of all products of i of those n
    numbers, sum_j binom(k, j) binom(n-k, i-j) end^j start^(i-j) / binom(n, i), so at most 1. Integers, rounded once.
    """
    n = order - 1

    def entry(i: int, k: int) -> float:
        total = sum(comb(k, j) * comb(n - k, i - j) * end**j * start ** (i - j) for j in range(min(i, k) + 1))
        return float(total / (comb(n, i) * parts**i))

    return np.array([[entry(i, k) for k in range(order)] for i in range(order)])
