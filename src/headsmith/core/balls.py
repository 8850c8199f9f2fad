"""Ball arithmetic: the one module that talks to Arb (through python-flint), and rounds its answers outwards."""

from functools import cache

import numpy as np
from flint import arb, ctx

PRECISION_BITS = 128


def upper_float(value: arb) -> float:
    """A double at or above every number in the ball."""
    return _outward(value.upper(), np.inf)


def lower_float(value: arb) -> float:
    """A double at or below every number in the ball."""
    return _outward(value.lower(), -np.inf)


def _outward(end: arb, direction: float) -> float:
    # float() rounds to nearest, and may land on the wrong side: step once, and check exactly.
    nearest = float(end)
    if np.isnan(nearest):
        return direction
    return float(np.nextafter(nearest, direction))


@cache
def gate_constant() -> float:
    """W(1/e), rounded up: the largest value of b (relu(z) - z sigmoid(b z))."""
    saved = ctx.prec
    try:
        ctx.prec = PRECISION_BITS
        return upper_float((-arb(1)).exp().lambertw())
    finally:
        ctx.prec = saved
