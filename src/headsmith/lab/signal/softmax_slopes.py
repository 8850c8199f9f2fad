"""How steep a softmax mean of constants can be on a box: a bound, cell by cell.

    g(s) = sum_k w_k v_k,      w = softmax_k(slope[k] . s + offset[k]),      s in a box.

With a(k) = slope[k] - m, m = sum_k w_k slope[k] at the centre c of a cell, the first derivatives at c are
sum_k w_k a_i(k) (v_k - g). Away from c by at most h_i in each direction, weights are at most

    u_k = w_k e^{sum_i |a_i(k)| h_i},       since the new normalisation, sum_k w_k e^{a(k) . t}, is at least 1 (Jensen).

The second derivatives are third cumulants. With D_k = |v_k - g| + sum_j u_j |v_j - g| (g at c) and M_i = sum_k u_k
|a_i(k)|,

    |d_i d_j g|  <=  sum_k u_k |a_i(k)| |a_j(k)| D_k  +  M_i sum_k u_k |a_j(k)| D_k  +  M_j sum_k u_k |a_i(k)| D_k.

So d_i g differs on the cell from its value at c by at most sum_j h_j times that. Cells are halved until that is
little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.core.rounding import FLOAT64

SLACK = 0.1
"""A cell is fine enough where it adds less than this share of the steepest slope found."""

CELLS = 100_000
"""No more cells than this for one head: those that are left coarse are charged for what they may hide."""


@dataclass(frozen=True, eq=False)
class Steepness:
    """Where d_i g lies on a box, for each column and argument (columns, arguments), and g itself (columns)."""

    slopes: Interval
    values: Interval


def steepness(slope: Array, offset: Array, values: Array, low: Array, high: Array) -> Steepness:
    """Bound the slopes and the range of softmax means.

    `slope` is (tokens, arguments), `offset` (tokens), `values` (tokens, columns), the box `low`, `high` (arguments).
    Guarantee: the inequalities of `Steepness`, in exact arithmetic.
    """
    centre = (low + high)[None] / 2.0
    half = (high - low)[None] / 2.0 * (1.0 + 1e-12) + np.abs(centre) * 2.0**-50
    widest = _spread(slope) * _spread(values)[:, None] / 4.0 * (1.0 + 1e-9)
    shape, columns = (values.shape[1], slope.shape[1]), values.shape[1]
    falling, rising = np.full(shape, np.inf), np.full(shape, -np.inf)
    least, most = np.full(columns, np.inf), np.full(columns, -np.inf)
    steepest = np.zeros(shape)
    done = 0
    while len(centre):
        at_centre, added, middle, reach = _cells(slope, offset, values, centre, half)
        # Whatever the cell is like, a covariance is at most a quarter of both spreads.
        added = np.minimum(added, widest)
        steepest = np.maximum(steepest, np.abs(at_centre).max(axis=0))
        coarse = (added > SLACK * steepest + 1e-6 * widest).any(axis=(1, 2)) & (done + 2 * len(centre) <= CELLS)
        # What is narrower than rounding cannot be halved.
        coarse &= _taken(half > 1e-12 * (np.abs(centre) + half), _across(half, slope))
        kept = ~coarse
        done += int(kept.sum())
        if kept.any():
            falling = np.minimum(falling, (at_centre - added)[kept].min(axis=0))
            rising = np.maximum(rising, (at_centre + added)[kept].max(axis=0))
            least = np.minimum(least, (middle - reach)[kept].min(axis=0))
            most = np.maximum(most, (middle + reach)[kept].max(axis=0))
        centre, half = _halved(centre[coarse], half[coarse], slope)
    least, most = np.maximum(least, values.min(axis=0)), np.minimum(most, values.max(axis=0))
    margin = 1e-9 * np.maximum(np.abs(falling), np.abs(rising))
    slopes = Interval(np.maximum(falling, -widest), np.minimum(rising, widest)).inflated(margin)
    return Steepness(slopes, Interval(least, most))


def _cells(slope: Array, offset: Array, values: Array, centre: Array, half: Array) -> tuple[Array, Array, Array, Array]:
    """For each cell: slopes at its centre and what the cell adds to them, (cells, columns, arguments); the value at the
    centre and how far it may be off on the cell, (cells, columns). All rounded up."""
    scores = centre @ slope.T + offset
    # How far rounding moves a score; it changes weights by the factor e^{2 moved} at most, exp and sums included.
    sizes = (np.abs(centre) + half) @ np.abs(slope).T + np.abs(offset)
    moved = 4.0 * FLOAT64.gamma(slope.shape[1] + 4) * sizes.max(axis=1)
    moved = moved + (64.0 + 2.0 * len(slope)) * FLOAT64.unit_roundoff
    blur = np.expm1(np.minimum(2.0 * moved, 700.0))[:, None]
    w = np.exp(scores - scores.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    a = slope[None] - (w @ slope)[:, None]
    g = w @ values
    away = values[None] - g[:, None]
    at_centre = np.einsum("ck,cka,ckv->cva", w, a, away, optimize=True)
    with np.errstate(over="ignore", invalid="ignore"):
        # Means are off by `blur` times a spread, differences by rounding: sizes are widened by more than both.
        size = np.abs(a) + (2e-7 * np.abs(slope).max(axis=0) + blur * _spread(slope))[:, None]
        off = np.abs(away) + (2e-7 * np.abs(values).max(axis=0) + blur * _spread(values))[:, None]
        u = w * np.exp(np.einsum("cka,ca->ck", size, half)) * (1.0 + blur)
        spread = np.einsum("ck,ckv->cv", u, off)
        D = off + spread[:, None]
        M = np.einsum("ck,cka->ca", u, size)
        first = np.einsum("ck,cka,ckv->cva", u, size, D, optimize=True)
        second = np.einsum("ck,cka,ck,ckv->cva", u, size, np.einsum("ckb,cb->ck", size, half), D, optimize=True)
        second += M[:, None, :] * np.einsum("cvb,cb->cv", first, half)[:, :, None]
        second += np.einsum("cb,cb->c", M, half)[:, None, None] * first
        # Rounding at the centre: weights are off by `blur`, sums by a little; both are relative to `first`.
        added = second + (3.0 * blur[:, :, None] + 1e-9) * first
        reach = np.minimum(np.einsum("cva,ca->cv", first + added, half), spread)
        reach = reach + (2.0 * blur + 1e-9) * spread
    added, reach = np.where(np.isfinite(added), added, np.inf), np.where(np.isfinite(reach), reach, np.inf)
    return at_centre, added, g, reach


def _spread(numbers: Array) -> Array:
    """Largest less smallest, for each column."""
    return np.asarray(numbers.max(axis=0) - numbers.min(axis=0))


def _across(half: Array, slope: Array) -> Any:
    """For each cell the direction in which scores change most."""
    return np.argmax(half * _spread(slope), axis=1)


def _taken(table: Any, columns: Any) -> Any:
    """One entry of each row."""
    return np.take_along_axis(table, columns[:, None], axis=1)[:, 0]


def _halved(centre: Array, half: Array, slope: Array) -> tuple[Array, Array]:
    """Every cell cut in two."""
    if not len(centre):
        return centre, half
    axis = _across(half, slope)
    step = np.zeros_like(half)
    rows = np.arange(len(half))
    step[rows, axis] = half[rows, axis] / 2.0
    # A hair wider, so that rounded cells leave no gap.
    smaller = half.copy()
    smaller[rows, axis] *= 0.5
    smaller = smaller * (1.0 + 1e-12) + np.abs(centre) * 2.0**-50
    return np.concatenate([centre - step, centre + step]), np.concatenate([smaller, smaller])
