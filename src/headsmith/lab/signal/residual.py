"""The smallest network with the same behaviour: h += W f(h), nothing but a residual and an element-wise norm.

With W of variance sigma^2 / width,  q += sigma^2 q~  and  J *= 1 + sigma^2 q^.  Once alpha^2 q is well above 1 the norm
saturates: q grows like sigma^2 L, q^ falls like 1/sqrt(q), and log J grows like sqrt(L): a stretched exponential, whose
(log J)^2 against depth is a straight line. LayerNorm has q^ = 1/q, hence log J ~ log L: a power law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.lab.signal.moments import moments
from headsmith.lab.signal.theory import Settings


@dataclass(frozen=True, eq=False)
class Residual:
    """q[k] and log_J[k] after k layers (log_J[0] is 0); `saturated` is the first layer with alpha^2 q >= 1, if any."""

    norm: str
    alpha: float
    q: Array
    log_J: Array
    saturated: int | None


def residual(
    norm: str = "derf", *, alpha: float = 1.0, depth: int = 1000, sigma: float = 0.2, q0: float = 0.2
) -> Residual:
    """The recurrences of h += W f(h) through `depth` layers."""
    # The same checks as for transformers; tokens play no part here.
    settings = Settings(norm=norm, alpha=alpha, depth=depth, q0=q0, p0=0.0, sigma_o=sigma)  # type: ignore[arg-type]
    q, log_J = np.empty((2, settings.depth + 1))
    q[0], log_J[0] = settings.q0, 0.0
    for place in range(settings.depth):
        found = moments(settings.norm, settings.alpha, float(q[place]), 0.0)
        q[place + 1] = q[place] + settings.sigma_o**2 * found.variance
        log_J[place + 1] = log_J[place] + math.log1p(settings.sigma_o**2 * found.slope_variance)
    reached = np.flatnonzero(settings.alpha**2 * q >= 1.0)
    first = int(reached[0]) if len(reached) else None
    return Residual(settings.norm, settings.alpha, frozen(q), frozen(log_J), first)
