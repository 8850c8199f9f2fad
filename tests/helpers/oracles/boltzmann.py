"""How far a Boltzmann head can be from the largest value, by the lemma of its file."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import boltzmann_constant
from headsmith.core.rounding import upper


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
