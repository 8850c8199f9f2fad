"""What all softmax heads share: how far scores that are off, tokens that should be silent, and sums move the output.

A head returns  sum_j w_j v_j,  w = softmax(scores). Let every score be off by at most d (exp's own error counts as a
part of d, and a shift of all scores does not count).

Moved mean.  Values in an interval of length R:  the output moves by at most R tanh(d/2) <= R min(d/2, 1).
    The worst change raises the scores of all values above some threshold by d and lowers the others by d. If the upper
    ones weighed p, they weigh p' = p e^{2d} / (p e^{2d} + 1 - p) then; p' - p is largest at p = 1 / (1 + e^d), where it
    is tanh(d/2), and the means above and below the threshold are at most R apart. Two tokens attain it.

Outside weight.  `count` tokens that score at least `margin` below another one weigh at most  count e^{2d - margin}.

Sums.  The largest power is 1 up to exp's error, so dividing T powers by their sum and adding T products moves the
    output by at most gamma_{2T} max|v|; powers, quotients and products that underflow lose a smallest normal number
    each.

Spill.  Where there are reference tokens, their own queries score `keep_gain` on the sink and zero elsewhere: they keep
    what they have, up to the weight of the data tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import EXP_ULPS, Precision, upper


def exp_disturbance(precision: Precision) -> float:
    """exp's own error as a change of its argument: correct to k ulps, it is off by a factor within 1 +- 2 k u."""
    return float(upper(2.02 * EXP_ULPS * precision.unit_roundoff + 4.0 * precision.smallest_normal, 3))


def moved_mean(spread: Any, disturbance: Any) -> Array:
    """Bound of how far a softmax mean of values `spread` apart moves when scores move by at most `disturbance`.

    Guarantee: spread tanh(disturbance / 2), rounded up to spread min(disturbance / 2, 1).
    """
    return np.asarray(upper(spread * np.minimum(disturbance / 2.0, 1.0), 2))


def outside_weight(count: Any, margin: Any, disturbance: Any) -> Array:
    """Bound of the weight of `count` tokens that score at least `margin` below another token, scores off by
    `disturbance`.

    Guarantee: count e^{2 disturbance - margin}, rounded up.
    """
    # The exponent is a difference: widen it by its rounding. Below -700 exp underflows.
    exponent = 2.0 * disturbance - margin
    exponent = exponent + 1e-15 * (2.0 * disturbance + np.abs(margin))
    with np.errstate(over="ignore"):
        return np.asarray(count * np.exp(np.maximum(exponent, -700.0)) * (1.0 + 1e-9))


def summation_rounding(size: Any, tokens: int, precision: Precision) -> Array:
    """Bound of what normalisation and weighted sum of `tokens` values within +-size add, in any order of summation.

    Guarantee: gamma_{2 tokens + 6} size, and 4 (tokens + 2) smallest normal numbers times 1 + size; rounded up.
    """
    underflow = 4.0 * (tokens + 2) * precision.smallest_normal
    return np.asarray(upper(precision.gamma(2 * tokens + 6) * size + underflow * (1.0 + size), 5))


def spilled(
    size: Any, drift: Any, keep_gain: float, tokens: int, references: int, precision: Precision, pulled: float = 0.0
) -> Array:
    """Bound of what a head writes on a reference token: data tokens hold values within +-size, reference tokens within
    +-drift, and the reference token's own query scores `keep_gain` on the sink and zero on all others, each up to
    `pulled`.

    Guarantee: drift + min(tokens e^{2d - keep_gain}, 1) size + the rounding of the sum, d with `pulled`, rounded up.
    """
    disturbance = upper(pulled + precision.gamma(6) * abs(keep_gain) + exp_disturbance(precision), 4)
    weight = np.minimum(outside_weight(tokens, keep_gain, disturbance), 1.0)
    kept = upper(weight * size + drift, 3)
    return np.asarray(upper(kept + summation_rounding(kept, tokens + references, precision), 2))
