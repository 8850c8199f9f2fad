"""Gate head: the product of one linear form with a function of another, in one head.

Head h reads x and y. Data token i scores

    itself              0                              value y_i
    grid token k        slope[k] x_i + offset[k]       value 0
    data token j != i   -position_gain h_ij            value y_j       h_ij >= 1: bits in which the positions differ
    the sink            -keep_gain                     value 0

so that, up to the other tokens, the head returns

    y g(x),        g(x) = 1 / (1 + sum_k e^{slope[k] x + offset[k]}),

and with g(x) nearly intercept + incline * x, the product is x y = (out - intercept y) / incline (`gate_product_fit`).

Deviation lemma.  |g''| <= g q, q = sum_k w_k slope[k]^2 over the softmax weights w of the grid: g is the softmax
    weight of slope 0, so with m = sum_k w_k slope[k] we have g' = -g m and g'' = g (2 m^2 - q), and m^2 <= q. Over a
    distance r weights change by factors within e^{+-2 s r}, s = max|slope|. So between two points r apart g differs
    from an affine function by at most the larger of the differences there, plus r^2 / 8 times g q at either point times
    e^{4 s r}.

Leak lemma.  The other data tokens weigh at most L = (1 + e^{-position_gain})^bits - 1, as in heads/sink.py, the sink
    e^{-keep_gain}; for |y| <= Y they move the output by at most 2 Y L and Y e^{-keep_gain}. What reference tokens hold
    instead of zero arrives at most as it is.

Rounding lemma.  Values lie between 0 and y: scores off by d move the output by at most Y d / 2 (heads/softmax.py).

Few sums lemma.  Let a sum have A terms of sizes that add up to S, and any number of silent ones that add up to t. Added
    in any order, rounded to nearest, it is off by at most gamma_A S + 3 t, however many silent terms there are.
    An order is a binary tree. At A - 1 of its nodes both sides hold some of the A terms: these round relatively.
    Anywhere else one side, b, is silent, and the rounding error is at most |b|: the other side is itself a
    floating-point number, so the nearest one is no further (of a fused product, at most |b| and its own rounding).
    Silent subtrees that meet others are disjoint: their values and these errors add up to at most 2 t, up to factors
    1 + gamma.
    Here the A terms are the token itself and the grid, of sizes that add up to at most Y once normalised.

The features of query and key, and the value:

    slope       read_x . x                                          slope . grid
    offset      KEY * data                                          offset / KEY . grid
                                                                        - position_gain * bits / 2 / KEY * data
    bit k       position_gain / 2 / KEY * position[k]               KEY * position[k]
    sink        keep_gain / KEY * (reference + sum grid - data)     KEY * reference
    value       read_y . x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import FLOAT64, Precision, lower, upper
from headsmith.heads.bank import HeadBank
from headsmith.heads.softmax import exp_disturbance, moved_mean, outside_weight, summation_rounding
from headsmith.heads.stream import position_bits


@dataclass(frozen=True, eq=False)
class GateBank(HeadBank):
    """All gate heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h; `slope` and `offset` are
    (heads, grid tokens)."""

    kind: ClassVar[str] = "gate"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset")

    slope: Array
    offset: Array
    position_gain: float
    keep_gain: float

    @property
    def heads(self) -> int:
        return len(self.offset)

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each head."""
        return 2 * self.heads

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns: one for each head."""
        return self.heads


def feature_count(tokens: int) -> int:
    """The width of queries and keys."""
    return 3 + position_bits(tokens)


def score_sizes(bank: GateBank, sizes: Array) -> Array:
    """For each head a bound of |slope| |x| + |offset|, the largest over the grid; `sizes` bounds |x|, (heads,)."""
    return np.asarray(upper((np.abs(bank.slope) * sizes[:, None] + np.abs(bank.offset)).max(axis=1), 2))


def largest_weight(bank: GateBank, sizes: Array) -> Array:
    """For each head a bound of g(x) for |x| <= sizes (heads,): every power at its smallest."""
    exponents = bank.offset - np.abs(bank.slope) * sizes[:, None]
    slack = FLOAT64.gamma(8) * (np.abs(bank.offset) + np.abs(bank.slope) * sizes[:, None])
    powers = np.exp(np.maximum(exponents - slack, -700.0)) * (exponents > -690.0)
    return np.asarray(np.minimum(upper(1.0 / (1.0 + lower(powers.sum(axis=1), powers.shape[1] + 8)), 4), 1.0))


def score_disturbance(bank: GateBank, sizes: Array, reads: Array, precision: Precision, tokens: int) -> Array:
    """For each head a bound of how far rounding moves the scores that a data token's query has on itself and on the
    grid, exp included. |x| <= sizes as computed; `reads` (heads,) bounds how far the read of x is off.

    On the grid, position and sink have zero products. On itself there is only the position code, whose terms are
    multiples of position_gain / 2 and add up to zero: exactly, in any order, where that is a whole number.
    """
    scores = score_sizes(bank, sizes)
    if not (float(bank.position_gain / 2.0).is_integer() and abs(bank.position_gain) <= 2.0**12):
        scores = scores + abs(bank.position_gain) * position_bits(tokens)
    steep = np.abs(bank.slope).max(axis=1)
    moved = steep * reads + precision.gamma(feature_count(tokens) + 6) * scores
    underflow = 4.0 * precision.smallest_normal * (1.0 + steep)
    return np.asarray(upper(moved + underflow + exp_disturbance(precision), 8))


def silent_disturbance(bank: GateBank, disturbance: Array, precision: Precision, tokens: int) -> Array:
    """The same for the scores on the sink and on other data tokens, which are as large as the gains."""
    gains = abs(bank.position_gain) * position_bits(tokens) + abs(bank.keep_gain)
    return np.asarray(upper(disturbance + precision.gamma(feature_count(tokens) + 6) * gains, 4))


def leak(bank: GateBank, size: Array, drift: Array, disturbance: Array, tokens: int) -> Array:
    """Bound of what other data tokens and the sink do to each output: |y| <= size, reference tokens hold y's within
    +-drift; `disturbance` is that of silent tokens.

    Guarantee: (2 ((1 + e^{-position_gain})^bits - 1) + e^{-keep_gain}) e^{2d} size + drift, rounded up.
    """
    crowd, sink = _silent_weights(bank, disturbance, tokens)
    return np.asarray(upper((2.0 * crowd * (1.0 + 1e-9) + sink) * size + drift, 8))


def _silent_weights(bank: GateBank, disturbance: Array, tokens: int) -> tuple[Array, Array]:
    """Bounds of what the other data tokens weigh, and the sink."""
    bits = position_bits(tokens)
    crowd = bits * np.exp(bits * np.exp(-bank.position_gain)) * outside_weight(1, bank.position_gain, disturbance)
    return crowd, outside_weight(1, bank.keep_gain, disturbance)


def few_sums(bank: GateBank, size: Array, silent: Array, precision: Precision, tokens: int, grid: int) -> Array:
    """Bound of what rounding adds in the sum of the powers and that of the products, |y| <= size; the scores of silent
    tokens are off by at most `silent`; there are so many data tokens and grid tokens.

    Guarantee: (gamma_{2 A + 6} + 8 t) size (+ underflow), A = grid + 1 and t what the other tokens weigh, rounded up.
    """
    crowd, sink = _silent_weights(bank, silent, tokens)
    underflow = 4.0 * (tokens + grid + 3) * precision.smallest_normal * (1.0 + size)
    return np.asarray(upper((precision.gamma(2 * grid + 8) + 8.0 * (crowd + sink)) * size + underflow, 8))


def output_rounding(
    size: Array, reads: Array, disturbance: Array, precision: Precision, tokens: int, sums: Array | None = None
) -> Array:
    """Bound of what rounding adds to each output: |y| <= size, its read off by at most `reads`; `tokens` counts data
    and reference tokens. `sums` bounds what sums add, where that is known.

    Guarantee: size min(disturbance / 2, 1) + reads + gamma_{2 tokens + 6} size (+ underflow), rounded up.
    """
    moved, added = moved_mean(size, disturbance), summation_rounding(size, tokens, precision)
    if sums is not None:
        added = np.minimum(added, sums)
    return np.asarray(upper(moved + reads + added, 3))


def gate_deviation(
    slope: Array, offset: Array, low: float, high: float, intercept: float, incline: float, cells: int = 1 << 18
) -> float:
    """Bound of |g(x) - intercept - incline x| for low <= x <= high, where slope and offset are one head's.

    Guarantee: the deviation lemma on `cells` cells, with the rounding of g itself; rounded up.
    """
    points = np.linspace(low, high, cells + 1)
    scores = points[:, None] * slope + offset
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(scores)
        found = 1.0 / (1.0 + powers.sum(axis=1))
        curvature = float(np.max(found**2 * (powers @ slope**2)))
    affine = intercept + incline * points
    # Scores, exp (numpy's: good to a few ulps), sum and quotient; the affine function; their difference.
    largest = float(np.max(np.abs(points[:, None] * slope) + np.abs(offset)))
    reach = abs(intercept) + abs(incline) * max(abs(low), abs(high))
    rounding = FLOAT64.gamma(8) * largest + FLOAT64.gamma(len(offset) + 16) + FLOAT64.gamma(6) * (reach + 1.0)
    if not rounding <= 0.25:
        return float("inf")
    gap = float(np.max(np.diff(points))) * (1.0 + 1e-12)
    with np.errstate(over="ignore"):
        bend = gap**2 / 8.0 * curvature * float(np.exp(4.0 * np.max(np.abs(slope)) * gap)) * (1.0 + 1e-9)
    if not np.isfinite(bend):
        return float("inf")
    return float(upper(float(np.max(np.abs(found - affine))) + bend + rounding, 8))
