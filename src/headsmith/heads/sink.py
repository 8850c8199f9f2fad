"""Sink head: one ReLU gate by a choice between the token itself and a reference token that holds zero.

With b = query_scale * key_scale, data token i scores

    itself              b z_i                        value z_i
    the reference       0                            value 0
    data token j != i   b z_i - position_gain h_ij   value z_j       h_ij >= 1: bits in which the positions differ

so that, up to the other tokens, the head returns z sigmoid(b z).

Gate lemma.  0 <= relu(z) - z sigmoid(b z) = |z| / (1 + e^{b|z|}) <= min(W(1/e) / b, |z| / 2).
    With y = b|z| the middle is (1/b) y / (1 + e^y); its derivative vanishes where e^y (y - 1) = 1, that is y = 1 +
    W(1/e), and the value there is (y - 1)/b = W(1/e)/b.

Leak lemma.  The other data tokens together weigh at most L = (1 + e^{-position_gain})^bits - 1.
    Every pattern of differing bits belongs to at most one token, and every token has z_i's score: the sum over j != i
    of e^{-gain h_ij} is at most sum_{h >= 1} binomial(bits, h) e^{-gain h}. They move a convex combination of values in
    [-Z, Z] by at most 2 Z L, whatever b is. Where table heads brought a grid of p more reference tokens, these score
    -reference_gain, hold zero, and weigh at most p e^{-reference_gain} more.

The features of query and key, one row each (d_head of them), and the value:

    slope       query_scale * (read . x)              key_scale * data
    reference   reference_gain / KEY * reference      KEY * reference
    bit k       position_gain / 2 / KEY * position[k] KEY * position[k]
    offset      KEY * data                            -position_gain * bits / 2 / KEY * data
    grid        KEY * data                            -reference_gain / KEY * (sum of grid)
    value       read . x

KEY = 8 only shares the gains between query and key, so that neither has large weights; a power of two, it rounds
nothing. The sink attends to itself (and the grid's tokens to the sink: the query of `reference` then also holds the sum
of grid), reference_gain above the data tokens, so it stays (almost) zero under full attention too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.balls import gate_constant
from headsmith.core.rounding import EXP_ULPS, FLOAT64, Precision, upper
from headsmith.heads.bank import ScaledBank
from headsmith.heads.stream import position_bits

KEY = 8.0

FLUSHED = 2.0**-60
"""How much a query that underflows may move a score: key_scale times the smallest normal number is at most that."""


@dataclass(frozen=True, eq=False)
class SinkBank(ScaledBank):
    """All sink heads of one layer. Head h computes gate `component[h]` of the source graph's relu node `node[h]`."""

    kind: ClassVar[str] = "sink"

    reference_gain: float
    position_gain: float


def feature_count(tokens: int, grid: int = 0) -> int:
    """The width of queries and keys: slope, reference; for several tokens position bits and offset; for a grid one."""
    return (2 if tokens == 1 else 3 + position_bits(tokens)) + (grid > 0)


def gate_error(scale: Array, size: Array) -> Array:
    """Bound of relu(z) - z sigmoid(b z) for |z| <= size and b >= scale > 0.

    Guarantee: min(W(1/e) / b, |z| / 2), rounded up.
    """
    return np.asarray(upper(np.minimum(gate_constant() / scale, size / 2.0), 1))


def leak_weight(position_gain: float, tokens: int, disturbance: Array) -> Array:
    """Bound of the total weight of the other data tokens, when rounding moves scores by at most `disturbance`.

    Guarantee: ((1 + e^{-gain})^bits - 1) e^{2 disturbance} <= bits e^{bits e^{-gain}} e^{2 disturbance - gain}, rounded
    up.
    """
    bits = position_bits(tokens)
    if bits == 0:
        return np.zeros_like(disturbance)
    # (1 + t)^m - 1 <= m t e^{m t}.  numpy's exp is good to a few units in the last place; 1e-9 covers it many times.
    single = np.exp(-position_gain)
    with np.errstate(over="ignore"):
        return np.asarray(bits * np.exp(bits * single) * np.exp(2.0 * disturbance - position_gain) * (1.0 + 1e-9))


@dataclass(frozen=True, eq=False)
class ScoreRounding:
    """How rounding moves the score difference between the token itself and the sink: at most relative |b z| +
    absolute."""

    relative: float
    absolute: float

    def disturbance(self, score: Array) -> Array:
        """Bound of the change of any score, where |b z| <= score."""
        return np.asarray(upper(self.relative * score + self.absolute, 3))


def score_rounding(precision: Precision, tokens: int, position_gain: float, grid: int = 0) -> ScoreRounding:
    """The rounding of scores, of the subtraction of the largest one, and of exp, as a change of the score difference.

    A score is a sum of feature_count products, of magnitude |b z| and, from the position code, bits * gain in all.
    Subtracting the maximum rounds a difference once. exp, correct to k ulps, multiplies a weight by at most 1 + 2 k u:
    between two weights a score change of at most 2 * 2 k u * 1.01.
    """
    features = feature_count(tokens, grid)
    relative = precision.gamma(features + 3)
    code = position_bits(tokens) * position_gain
    absolute = relative * code + 4.04 * EXP_ULPS * precision.unit_roundoff + 4.0 * precision.smallest_normal + FLUSHED
    return ScoreRounding(float(upper(relative, 2)), float(upper(absolute, 4)))


def gate_rounding(rounding: ScoreRounding, scale: Array, size: Array, precision: Precision, tokens: int) -> Array:
    """Bound of what rounding inside the head adds, for |z| <= size, given the pre-activation as computed.

    Guarantee: with t = b z, computed weights are those of t (1 + d) + a, |d| <= relative, |a| <= absolute, both at most
    1/4. Since sigmoid'(s) <= e^{-|s|}, and |s| >= 3|t|/4 - 1/4 in between,
        |z| |sigmoid(t(1+d)+a) - sigmoid(t)| <= (1/b) (relative y^2 + absolute y) e^{1/4 - 3y/4},   y = b|z|,
    and y^2 e^{-3y/4} <= 0.9624, y e^{-3y/4} <= 0.4906, e^{1/4} <= 1.2841. The normalisation and the weighted sum of
    tokens + 1 values round at most 2 tokens + 6 times; weights that underflow lose at most a smallest normal number
    each. Infinite if the conditions fail.
    """
    if not (rounding.relative <= 0.25 and rounding.absolute <= 0.25):
        return np.full_like(size, np.inf)
    shift = (1.236 * rounding.relative + 0.63 * rounding.absolute) / scale
    # For scales so small that 1/b exceeds the range itself: sigmoid' <= 1/4.
    direct = size * (rounding.relative * scale * size + rounding.absolute)
    total = np.minimum(shift, direct) + precision.gamma(2 * tokens + 6) * size
    return np.asarray(upper(total + 4.0 * (tokens + 2) * precision.smallest_normal * (1.0 + size), 8))


def split_scale(scale: Array, precision: Precision) -> tuple[Array, Array]:
    """(query_scale, key_scale) with product at least `scale`, both near its square root; the key's is a power of
    two."""
    exponent = np.rint(np.log2(scale) / 2.0)
    key = np.exp2(exponent)
    query = np.asarray(scale / key)
    if precision is not FLOAT64:
        single = query.astype(np.float32)
        query = np.where(single < query, np.nextafter(single, np.float32(np.inf)), single).astype(np.float64)
    return frozen(query), frozen(key)
