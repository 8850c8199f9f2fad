"""Enclosures of a table head, and of its difference with the functions that it stands for, on one batch of cells.

On a cell s = centre + radius x, |x| <= 1, everything is a Taylor polynomial of order M and a bound of the rest. With w
the softmax weights at the centre and b_k = radius (slopes_k - a), for any common shift a,

    g = N / D,     D = sum_k w_k e^(b_k x),     N = sum_k w_k v_k e^(b_k x)
    D >= 1 - |sum_k w_k b_k|                      by Jensen: nothing small is ever divided by
    N - Q D = rest(N) - rest(Q D) + rounding      with the polynomial Q = N / D mod x^M, and |g - Q| = |N - Q D| / D

    rest(N) <= sum_k w_k |v_k| e_M(|b_k|)         with e_n(b) = sum_{i >= n} b^i / i!
    rest(Q D) <= sum_l |Q_l| sum_k w_k e_{M-l}(|b_k|)

The same holds for g - f = (N - f D) / D. Its numerator comes from ball arithmetic, so float64 is enough for the
division and for the range of the quotient: every rounding is relative to what is left after the cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import Ball
from headsmith.core.errors import CertificateError
from headsmith.core.expansion import Expansion, Scores, expand
from headsmith.core.polynomials import ROUNDING, Frame, by_degree, derivative, divided, frame, pieces
from headsmith.core.series import Target

ORDERS = {1: 20, 2: 12}
PARTS = {1: 8, 2: 4}
"""Terms of the series, and pieces along each axis for ranges, in one and in two variables."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """On each cell, for each output j: g_j - f_j, then the partial derivatives of g_j; shape (cells, j, quantity).

    low and high enclose; some value in the cell is at most inner_low, some value is at least inner_high.
    `axis` is the variable to halve for each output, and `known` says where its function has a series at all.
    """

    low: Array
    high: Array
    inner_low: Array
    inner_high: Array
    axis: Any
    known: Any


def bound_cells(
    head: Scores, targets: Sequence[Target], centres: Sequence[Sequence[Ball]], radius: Sequence[Ball]
) -> Bounds:
    """Enclosures on cells of one size.

    Guarantee: low <= quantity(s) <= high for all s of the cell; nan or infinite where nothing is known.
    """
    variables = len(radius)
    order = ORDERS[variables]
    monomials, cut = frame(variables, order), pieces(variables, order, PARTS[variables])
    scale = np.array([float(size) for size in radius])
    with np.errstate(all="ignore"):
        series = expand(head, targets, centres, radius, order)
        _require_series(series, targets, centres)
        difference = divided(series.difference, series.denominator[:, None], monomials)
        table = divided(series.numerator, series.denominator[:, None], monomials)
        slopes = [derivative(table, monomials, i) / scale[i] for i in range(variables)]
        quantities = np.stack([difference, *slopes], axis=2)
        errors = _errors(head, series, difference, table, monomials) / [1.0, *scale]
        # Everything in the errors is a sum of non-negative products of float64, far fewer than 1e6 roundings deep.
        errors = (errors + ROUNDING * np.sum(np.abs(quantities), axis=-1)) * (1.0 + 1e-9) + 1e-290
        ranges = quantities @ cut.matrix
        corners = ranges[..., cut.nodes]
        low, high, attained_low, attained_high = (
            pick(array, axis=-1) for array in (ranges, corners) for pick in (np.min, np.max)
        )
        loose = np.maximum(attained_low - low, high - attained_high)
        axis = _axis(series, difference, errors[..., 0] >= loose[..., 0], monomials)
        inner_low, inner_high = attained_low + errors, attained_high - errors
        # What is not a number shows nothing.
        inner_low, inner_high = (np.where(np.isnan(x), y, x) for x, y in ((inner_low, inf), (inner_high, -inf)))
        known = np.isfinite(series.target_tail)
        return Bounds(low - errors, high + errors, inner_low, inner_high, axis, known)


def _require_series(series: Expansion, targets: Sequence[Target], centres: Sequence[Sequence[Ball]]) -> None:
    if np.isnan(series.weights).any():
        raise CertificateError("the scores of the table are so large that their weights cannot be computed")
    known = np.isfinite(series.target_size).all(axis=2)
    for cell, output in np.argwhere(~known).tolist():
        place = ", ".join(f"{float(s):.17g}" for s in centres[cell])
        order = series.target_size.shape[2]
        raise CertificateError(f"{targets[output].label} has no finite Taylor series of {order} terms at {place}")


def _axis(series: Expansion, difference: Array, by_error: Any, monomials: Frame) -> Any:
    """The variable to halve: the one that makes the rest large, or the one in which the polynomial bends."""
    powers = np.array(monomials.exponents, dtype=np.float64)[:, : series.activity.shape[2]]
    bend = np.abs(difference) @ (powers * (powers - 1.0))
    unsure = by_error | ~np.isfinite(bend).all(axis=2)
    return np.argmax(np.where(unsure[..., None], series.activity, bend), axis=2)


def _errors(head: Scores, series: Expansion, difference: Array, table: Array, monomials: Frame) -> Array:
    """Bounds of |E - its polynomial| and of |dg/dx - its polynomial| for each scaled x: (cells, output, quantity).

    With R = N - Q D:  g - Q = R / D, and  g' - Q' = (R' - (g - Q) D') / D for any partial derivative. D'/D is a mean of
    the b_k. What R' has of degree M - 1 and more is at most, with sum_{n >= m} n b^n / n! = b e_{m-1}(b),

        sum_k w_k |v_k| b_k' e_{M-1}(b_k) + sum_t |Q_t| sum_k w_k (a_t e_{M-l}(b_k) + b_k' e_{M-l-1}(b_k))

    for the monomials t of degree l, where a_t and b_k' are its power of x and the part of b_k along x. Below the degree
    M, R has only rounding and radii: at most ROUNDING |Q_t| |D_u| and |Q_t| radius for t u, and the numerator's.
    """
    order = int(monomials.degree[-1]) + 1
    every = np.sum(series.spread, axis=2)
    weighted = series.weights[..., None] * _exponential_tails(every, order)
    rest = np.sum(weighted, axis=1)[:, order:0:-1]  # column l: sum_k w_k e_{M-l}(b_k)
    sizes, denominator = np.abs(head.values), by_degree(series.denominator, monomials)
    last = weighted[..., order] @ sizes
    blur = (ROUNDING * np.sum(denominator, axis=1) + series.denominator_radius)[:, None]
    # Jensen: D >= exp(-|sum_k w_k b_k|_1), and those sums are the coefficients of degree 1.
    least = 1.0 - 1e-9 - denominator[:, 1] * (1.0 + 1e-12) - series.denominator_radius
    least = np.where(least > 0.1, least, np.nan)[:, None]

    def value(quotient: Array, radius: Array) -> Array:
        return np.asarray(np.einsum("njl,nl->nj", quotient, rest) + radius + np.sum(quotient, axis=2) * blur)

    of_table = by_degree(table, monomials)
    of_target = np.einsum("njl,nl->nj", series.target_size, rest)
    error = last + of_target + value(by_degree(difference, monomials), series.difference_radius)
    table_error = (last + value(of_table, series.numerator_radius)) / least
    found = [error / least + series.target_tail]
    for variable in range(series.spread.shape[2]):
        along = series.spread[..., variable]
        pulled = np.sum(weighted * along[..., None], axis=1)[:, order - 1 :: -1]  # column l: w_k b_k' e_{M-l-1}(b_k)
        pulled_blur = ROUNDING * np.sum(by_degree(series.denominator, monomials, variable), axis=1)
        slope = (weighted[..., order - 1] * along) @ sizes + np.einsum("njl,nl->nj", of_table, pulled)
        slope = slope + value(by_degree(table, monomials, variable), order * series.numerator_radius)
        slope = slope + np.sum(of_table, axis=2) * (pulled_blur + order * series.denominator_radius)[:, None]
        mean = np.minimum(np.max(along, axis=1), pulled[:, -1] / least[:, 0])[:, None]
        found.append(slope / least + table_error * mean)
    return np.stack(found, axis=2)


def _exponential_tails(b: Array, order: int) -> Array:
    """Bounds of e_n(b) = sum_{i >= n} b^i / i! for n = 0 .. order, along a new last axis.

    e_M(b) <= b^M / M! / (1 - b / (M+1)), a geometric series; for large b, e_M(b) <= e^b <= 2^(1.4427 b).
    """
    terms = [np.ones_like(b)]
    for i in range(1, order + 1):
        terms.append(terms[-1] * b / i)
    whole = np.ldexp(1.0, np.minimum(np.ceil(1.4427 * b), 2000.0).astype(np.int64))
    tails = [np.where(b < 0.5 * (order + 1), terms[order] / (1.0 - b / (order + 1)), np.where(b > 0.0, whole, np.nan))]
    for term in reversed(terms[:-1]):
        tails.append(tails[-1] + term)
    return np.stack(tails[::-1], axis=-1)
