"""Gate heads for products: which argument the weight follows, and the constants of a head that is good enough.

A gate multiplies a form y by a function of a form x that is nearly straight; what is off is divided by its incline. A
larger incline has smaller weights and rounds less, a smaller one is straighter: more reference tokens allow both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from headsmith.core.errors import DomainError
from headsmith.core.rounding import Precision
from headsmith.transformer.heads.gate_fit import LARGEST_RISE, GateFit, gate_product_fit, rise_for

MOST_GATE_TOKENS = 4
RISES = (0.125, 0.1, 0.05, 0.025, 0.0125)
"""How much of a gate's weight follows its argument: less is more accurate, and rounds more. These are for products of
products, where both are to be small; other gates take what the error asks for."""
OCTAVES = 4
"""How many powers of two are tried for a gate's incline, from a little above what its law says."""
GATE_ROUNDING = 12.0
"""What a gate rounds, in units of the unit roundoff and of its other argument: an estimate."""


@dataclass(frozen=True)
class Factors:
    """A product of two ranges: which of them the weight follows, the middle and the radius of that range, and the size
    of the other one. The ranges of `mirrored` gates lie around zero: they come in pairs, one with the other's sign."""

    follows: int
    centre: float
    radius: float
    size: float
    mirrored: bool


@dataclass(frozen=True, eq=False)
class Gating:
    """A gate head for a product: which of the two arguments its weight follows, and its constants."""

    follows: int
    fit: GateFit
    mirrored: bool = False

    @property
    def tokens(self) -> int:
        """Reference tokens, the sink included."""
        return len(self.fit.offset) + 1


def factors_of(box: list[tuple[float, float]], follows: int, mirrored: bool) -> Factors:
    """The factors of a product, whose ranges are given."""
    (low, high), size = box[follows], max(abs(end) for end in box[1 - follows])
    if mirrored:
        low, high = -max(-low, high), max(-low, high)
    return Factors(follows, (low + high) / 2.0, _half_octave((high - low) / 2.0), size, mirrored)


def gate_of(tokens: int, factors: Factors, allowed: float, precision: Precision, caution: float) -> Gating | None:
    """The gate of so many tokens with the largest incline, and so with the smallest weights, that is good enough.

    `caution` is how many times the rounding of gates of small rises is taken for what it is on its own.
    """
    radius, size = factors.radius, factors.size
    rise = rise_for(tokens, allowed / (size * radius)) if size > 0.0 else LARGEST_RISE
    # Dividing by the incline is exact where it is a power of two; it multiplies all rounding.
    first = math.floor(math.log2(min(2.0 * rise, LARGEST_RISE) / radius))
    for exponent in range(first, first - OCTAVES, -1):
        incline = 2.0**exponent
        careful = caution if incline * radius < RISES[-1] / 2.0 else 1.0
        if size * GATE_ROUNDING * precision.inside * careful > 0.3 * allowed * incline:
            return None
        fit = _gate_within(factors.centre, radius, tokens, incline)
        if fit is not None and size * fit.error / incline <= 0.97 * allowed:
            return Gating(factors.follows, fit)
    return None


def fewest_tokens(factors: Factors, allowed: float, precision: Precision, caution: float) -> Gating | None:
    """The gate with the fewest reference tokens that is good enough."""
    gates = (gate_of(tokens, factors, allowed, precision, caution) for tokens in range(1, MOST_GATE_TOKENS + 1))
    return next((gate for gate in gates if gate is not None), None)


def best_gate(factors: Factors, allowed: float, precision: Precision) -> tuple[float, Gating] | None:
    """The gate with the fewest tokens that is good enough, rounding included; else the best there is; with its error,
    an estimate."""
    best: tuple[float, Gating] | None = None
    for tokens in range(1, MOST_GATE_TOKENS + 1):
        for rise in RISES:
            incline = 2.0 ** math.floor(math.log2(rise / factors.radius))
            found = _gate_within(factors.centre, factors.radius, tokens, incline)
            if found is not None:
                total = factors.size * (found.error + GATE_ROUNDING * precision.inside) / incline
                if best is None or total < best[0]:
                    best = total, Gating(factors.follows, found, factors.mirrored)
        if best is not None and best[0] <= allowed:
            break
    return best


def _half_octave(radius: float) -> float:
    """The next power of the root of two, so that few different gates are fitted; a little less will do: the room for
    what arguments are off by, in float32, is less."""
    return float(2.0 ** (math.ceil(2.0 * math.log2(radius) - 2e-3) / 2.0))


@lru_cache(maxsize=256)
def _gate_within(centre: float, radius: float, tokens: int, incline: float) -> GateFit | None:
    try:
        found = gate_product_fit(centre - radius, centre + radius, tokens, rise=incline * radius)
    except DomainError:
        return None
    return replace(found, incline=incline, intercept=found.intercept + (found.incline - incline) * centre)
