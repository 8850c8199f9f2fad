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
from headsmith.core.rounding import FLOAT64, Precision, held
from headsmith.heads.attentions import WITHOUT_SINK
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


def feature_count(tokens: int, grid: int = 0, attention: str = "softmax") -> int:
    """The width of queries and keys: slope, reference; for several tokens position bits and offset; for a grid one.
    Without a sink there is no reference (heads/attentions.py)."""
    return 1 + (attention not in WITHOUT_SINK) + (1 + position_bits(tokens) if tokens > 1 else 0) + (grid > 0)


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


def split_scale(scale: Array, precision: Precision) -> tuple[Array, Array]:
    """(query_scale, key_scale) with product at least `scale`, both near its square root; the key's is a power of
    two."""
    exponent = np.rint(np.log2(scale) / 2.0)
    key = np.exp2(exponent)
    return rounded_up(np.asarray(scale / key), precision), frozen(key)


def rounded_up(scale: Array, precision: Precision) -> Array:
    """The next number of the format."""
    if precision is not FLOAT64:
        nearest = held(scale, precision.name).astype(np.float64)
        # One step of the format, from numbers that are too small.
        step = np.ldexp(2.0 * precision.unit_roundoff, np.frexp(nearest)[1] - 1)
        scale = np.where(nearest < scale, nearest + step, nearest)
    return frozen(scale)
