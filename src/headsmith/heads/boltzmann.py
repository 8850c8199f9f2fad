"""Boltzmann head: the largest (or smallest) value of a linear form over the data tokens.

Key and value are the same number z_j. With b = query_scale * key_scale, every data token scores

    data token j        b z_j + gain          value z_j
    reference token     0                     value 0

so that the head returns the softmax mean of the z_j, nearly their maximum for b > 0 and nearly their minimum for b < 0.

Boltzmann lemma.  b > 0, n data tokens in sight:  0 <= max z - out <= W((n - 1)/e) / b,  W Lambert's function; attained.
    Let u_j = b (max z - z_j) >= 0 for the n - 1 tokens besides the largest. Then b (max z - out) is sum u_j e^{-u_j} /
    (1 + sum e^{-u_j}), which is at most M if sum (u_j - M) e^{-u_j} <= M. Each term is at most e^{-M-1}, at u_j = M +
    1, so (n - 1) e^{-M-1} = M is enough: M e^M = (n - 1)/e.  All u_j = M + 1 attain it.

    Scores that are off by at most d: the largest may be d too low, the others d too high, as if there were N = (n - 1)
    e^{2d} of them: at most W(N/e) / b. Since W'(x) x = W / (1 + W), this adds at most 2 d / b.

    With a gap g to the second largest and b g >= 1 + W(N/e), the terms (u - M) e^{-u} fall from u = b g on, and the
    error is at most N g / (e^{b g} + N): all others exactly g below attain it.

Leak lemma.  r reference tokens weigh at most r e^{-gain - t}, where t is the largest b z_j (t >= -|b| Z in any case,
    for |z| <= Z). They move the output by at most that times Z + drift.

The features of query and key, and the value:

    slope       query_scale * data                          key_scale * (read . x)
    gain        gain / KEY * data                           KEY * data
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
    value       read . x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import boltzmann_constant
from headsmith.core.rounding import upper
from headsmith.heads.bank import ScaledBank


@dataclass(frozen=True, eq=False)
class BoltzmannBank(ScaledBank):
    """All Boltzmann heads of one layer. Head h reads row h of `read`, and returns the maximum over tokens where
    query_scale[h] * key_scale[h] > 0, the minimum where it is negative."""

    kind: ClassVar[str] = "boltzmann"

    gain: float
    keep_gain: float


def feature_count(sink: int) -> int:
    """The width of queries and keys."""
    return 2 + sink


def boltzmann_error(scale: Any, tokens: int, disturbance: Any = 0.0) -> Array:
    """Bound of max z - out >= 0 (of out - min z for negative scales): |b| >= |scale|, at most `tokens` data tokens in
    sight, scores off by at most `disturbance`.

    Guarantee: W((tokens - 1) e^{2 disturbance - 1}) / |scale|, rounded up; without disturbance this is attained.
    """
    constant, twice = boltzmann_constant(tokens), 2.0 * np.asarray(disturbance)
    if constant == 0.0:
        return np.zeros(np.broadcast_shapes(np.shape(scale), np.shape(twice)))
    # As a function of log x, W has the slope W / (1 + W) < 1, which grows: its value at the end bounds the whole step.
    slope = np.minimum(1.0 - 1.0 / (1.0 + upper(constant + twice, 2)) + 1e-15, 1.0)
    return np.asarray(upper((constant + twice * slope) / np.abs(scale), 6))
