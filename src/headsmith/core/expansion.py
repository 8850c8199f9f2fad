"""Softmax over affine scores as Taylor series on cells, from Arb, beside the functions that it stands for.

On the cell s = centre + radius x the head is N / D with D = sum_k w_k e^(b_k . x) and N = sum_k w_k v_k e^(b_k . x).
Their coefficients are moments: one product of matrices over balls for many cells. The difference with f is taken as
N - f D, in balls too: what cancels there has cancelled before anything is rounded to float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from flint import arb, arb_mat

from headsmith.core.arrays import Array
from headsmith.core.balls import Ball, upper_float
from headsmith.core.polynomials import Frame, frame, multiples
from headsmith.core.series import Target

Objects = np.ndarray[Any, np.dtype[np.object_]]

SHIFT = 0.5
"""A head is expanded less the mean slope of its scores, rounded to a multiple of this, so that cells share it."""


@dataclass(frozen=True, eq=False)
class Expansion:
    """Float64 coefficients on n cells of D = sum_k w_k e^(b_k . x), N = sum_k w_k v_k e^(b_k . x), and N - f D.

    w_k are the softmax weights at the centre, so D = 1 there, and b_k the scaled slopes less a common shift (which
    cancels in N / D). `weights` and `spread` bound w_k and |b_k| from above; `*_radius` bounds the sum of the errors
    of the coefficients beyond their rounding to float64; `target_size` bounds the coefficients of f by degree, and
    `target_tail` what was cut off from f. `activity` estimates how hard each variable is for each output:
    the one to halve.
    """

    weights: Array
    spread: Array
    denominator: Array
    denominator_radius: Array
    numerator: Array
    numerator_radius: Array
    difference: Array
    difference_radius: Array
    target_size: Array
    target_tail: Array
    activity: Array


@dataclass(frozen=True, eq=False)
class Scores:
    """score_k = slopes_k . s + offset_k, and the values (k, outputs) that softmax over them averages."""

    slopes: Array
    offset: Array
    values: Array


def expand(
    head: Scores, targets: Sequence[Target], centres: Sequence[Sequence[Ball]], radius: Sequence[Ball], order: int
) -> Expansion:
    """Expand the head and its targets on cells of one size."""
    monomials = frame(head.slopes.shape[1], order)
    weights, rounded = _weights(head, centres)
    scaled = head.slopes * np.array([float(size) for size in radius])
    shifts = SHIFT * np.round(rounded @ scaled / SHIFT)
    products = _moments(head, weights, shifts, radius, monomials)
    denominator, numerator = products[:, 0], products[:, 1:]
    expanded = [[target.expand(centre, radius, order) for target in targets] for centre in centres]
    difference = numerator.copy()
    sizes = np.zeros((len(centres), len(targets), order))
    for number, target in enumerate(targets):
        for place, factor in enumerate(target.support(order)):
            column = [expanded[cell][number][0][place] for cell in range(len(centres))]
            sizes[:, number, sum(factor)] += [upper_float(abs(ball)) for ball in column]
            to, source = multiples(monomials, factor)
            product = denominator[:, source] * np.array(column, dtype=object)[:, None]
            difference[:, number, to] -= product
    slopes = scaled[None] - shifts[:, None]
    margin = 1e-15 * (np.abs(scaled)[None] + np.abs(shifts)[:, None])
    rates = np.array([[found[2] for found in row] for row in expanded])
    return Expansion(
        rounded * (1.0 + 1e-12) + 1e-300,
        np.abs(slopes) + margin,
        *_floats(denominator),
        *_floats(numerator),
        *_floats(difference),
        sizes * (1.0 + 1e-12),
        np.array([[upper_float(found[1]) for found in row] for row in expanded]),
        np.maximum(np.sum(rounded[:, :, None] * np.abs(slopes), axis=1)[:, None], rates * order / np.e),
    )


def _weights(head: Scores, centres: Sequence[Sequence[Ball]]) -> tuple[list[list[Ball]], Array]:
    """Softmax at the centres, as balls and rounded to the nearest doubles (nan where scores are not known to 1e-13)."""
    places = np.array([[float(s) for s in centre] for centre in centres])
    # Any double near the largest score does: it is subtracted exactly, and keeps the exponentials below about 1.
    largest = np.max(places @ head.slopes.T + head.offset, axis=1).tolist()
    rows = [[*centre, arb(1), arb(-top)] for centre, top in zip(centres, largest, strict=True)]
    tokens = np.vstack([head.slopes.T, head.offset, np.ones(len(head.offset))])
    scores = (_matrix(rows) * _matrix(tokens.tolist())).entries()
    table, rounded, count = [], [], len(head.offset)
    for row in (scores[start : start + count] for start in range(0, len(scores), count)):
        powers = [score.exp() for score in row]
        total = sum(powers)
        table.append([power / total for power in powers])
        known = sum(row).rad() < 1e-13
        rounded.append([float(weight) if known else nan for weight in table[-1]])
    return table, np.array(rounded)


def _moments(
    head: Scores, weights: list[list[Ball]], shifts: Array, radius: Sequence[Ball], monomials: Frame
) -> Objects:
    """Coefficients (cells, 1 + outputs, monomials) of D and N: sum_k w_k [1, v_k] b_k^(a, b) / (a! b!)."""
    columns = [[arb(1)] * len(head.offset)] + [[arb(v) for v in column] for column in head.values.T.tolist()]
    result = np.empty((len(weights), len(columns), len(monomials)), dtype=object)
    same, group = np.unique(shifts, axis=0, return_inverse=True)
    for number, shift in enumerate(same.tolist()):
        cells = np.flatnonzero(group.ravel() == number)
        rows = [[w * v for w, v in zip(weights[cell], column, strict=True)] for cell in cells for column in columns]
        entries = (_matrix(rows) * _matrix(_powers(head, shift, radius, monomials))).entries()
        result[cells] = np.array(entries, dtype=object).reshape(len(cells), *result.shape[1:])
    return result


def _powers(head: Scores, shift: list[float], radius: Sequence[Ball], monomials: Frame) -> list[list[Ball]]:
    """For each token k the monomials b_k^(a, b) / (a! b!); on a grid many tokens share a slope, and its powers."""
    columns = []
    for slopes, by, size in zip(head.slopes.T.tolist(), shift, radius, strict=True):
        known = {slope: _divided_powers(arb(slope) * size - by, int(monomials.degree[-1])) for slope in set(slopes)}
        columns.append([known[slope] for slope in slopes])
    if len(columns) == 1:
        return columns[0]
    return [[x[a] * y[b] for a, b in monomials.exponents] for x, y in zip(*columns, strict=True)]


def _divided_powers(base: Ball, highest: int) -> list[Ball]:
    powers = [arb(1)]
    for i in range(1, highest + 1):
        powers.append(powers[-1] * base / i)
    return powers


def _matrix(rows: Sequence[Sequence[Any]]) -> Any:
    return arb_mat(len(rows), len(rows[0]), [entry for row in rows for entry in row])


def _floats(balls: Objects) -> tuple[Array, Array]:
    """The nearest doubles, and a bound of the sum of the radii along the last axis."""
    middles = np.array([float(ball) for ball in balls.flat]).reshape(balls.shape)
    # The radius of a sum of balls is at least the sum of their radii.
    sums = [sum(row) for row in balls.reshape(-1, balls.shape[-1]).tolist()]
    radii = np.array([upper_float(ball.rad()) for ball in sums])
    return middles, radii.reshape(balls.shape[:-1])
