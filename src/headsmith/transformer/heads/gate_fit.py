"""Making a gate affine: constants of p reference tokens whose gate is nearly intercept + incline * x on an interval.

g(t) = 1 / (1 + sum_k e^{c_k + d_k t}) equals a + b t where sum_k e^{c_k + d_k t} = 1 / (a + b t) - 1. p exponentials
can match that in 2 p points: first equispaced ones (Prony's method), then Chebyshev's by Newton's method along the
way; then the points move until the 2 p + 1 errors between them are equal, which is the best gate for this a and b.

The best level a is 1 / (p + 1), and a little more: for small b all exponentials are then about 1, and one more order of
t agrees. The rise b is a trade: the error of x y falls like C_p b^(2 p), but all else (rounding, leak) is divided by b.
For |x|, |y| <= 1 the error of x y is

    b         1 token   2         3         4         5
    0.125     5e-3      1e-4      8e-6      9e-7      2e-7
    0.1       3e-3      5e-5      2e-6      2e-7      2e-8
    0.05      8e-4      3e-6      3e-8      5e-10     2e-11
    0.025     2e-4      2e-7      5e-10     2e-12
    0.0125    5e-5      1e-8      7e-12

The law for small b. 1 / (a + b t) is the integral of e^(-(a + b t) s) over s >= 0, and a sum of exponentials with one
node at s = 0 of weight 1 is a quadrature for it: the best is Gauss's with that node fixed (Radau), whose weight there
is 1 exactly for a = 1 / (p + 1). Its remainder gives C_p = p! (p + 1)! / (2 p + 1)! ((p + 1) / 2)^(2 p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError

LARGEST_RISE = 0.125
"""Larger ones have no good gates."""

SHARES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2)
"""The best level is 1 / (p + 1) and a share of the rise squared, of about 0.3 (p - 1)."""

RISE = 0.05
"""The usual b."""

SAMPLES = np.linspace(-1.0, 1.0, 2001)


@dataclass(frozen=True, eq=False)
class GateFit:
    """One gate head's constants: g(x) is intercept + incline * x up to `error`, an estimate (a bound is proved by
    `heads.gate.gate_deviation`)."""

    offset: Array
    slope: Array
    intercept: float
    incline: float
    error: float


def gate_product_fit(x_low: float, x_high: float, tokens: int, rise: float = RISE) -> GateFit:
    """The best gate of `tokens` reference tokens (1 to 6) that is nearly affine on [x_low, x_high], and rises by 2
    `rise` there.

    With it x y = (out - intercept y) / incline, up to |y| error / incline.
    """
    if not (1 <= tokens <= 6 and x_low < x_high):
        raise DomainError(f"a gate needs 1 to 6 reference tokens and an interval, not {tokens} and [{x_low}, {x_high}]")
    constants, level, error = _best_gate(tokens, rise)
    centre, radius = (x_low + x_high) / 2.0, (x_high - x_low) / 2.0
    offset, slope = constants[:tokens], constants[tokens:] / radius
    return GateFit(
        offset=frozen(offset - slope * centre),
        slope=frozen(slope),
        intercept=level - rise * centre / radius,
        incline=rise / radius,
        error=error,
    )


def rise_for(tokens: int, error: float) -> float:
    """The largest rise whose gate of `tokens` reference tokens multiplies numbers up to 1 within `error`, by the law
    for small rises: an estimate."""
    constant = math.factorial(tokens) * math.factorial(tokens + 1) / math.factorial(2 * tokens + 1)
    constant *= ((tokens + 1) / 2.0) ** (2 * tokens)
    return float(min(LARGEST_RISE, (error / constant) ** (0.5 / tokens)))


@cache
def _best_gate(tokens: int, rise: float) -> tuple[Array, float, float]:
    fits = {}
    for share in SHARES:
        level = 1.0 / (tokens + 1) + share * rise**2
        found = _fitted(tokens, level, rise) if level > 1.2 * rise > 0.0 else None
        if found is not None:
            fits[level] = found
    if not fits:
        raise DomainError(f"no gate of {tokens} reference tokens rises by {rise}; fewer tokens, or a rise near {RISE}")
    level = min(fits, key=lambda level: fits[level][1])
    return fits[level][0], level, fits[level][1]


def _fitted(tokens: int, level: float, rise: float) -> tuple[Array, float] | None:
    """Constants (c, d) on [-1, 1] and their largest error, or None where exponentials with such signs do not exist."""
    even = np.linspace(-1.0, 1.0, 2 * tokens)
    nodes = -np.cos(np.pi * (np.arange(2 * tokens) + 0.5) / (2 * tokens))
    constants = _prony(1.0 / (level + rise * even) - 1.0, even)
    for share in np.linspace(0.0, 1.0, 9):
        if constants is not None:
            constants = _through(constants, (1.0 - share) * even + share * nodes, level, rise)
    best: tuple[Array, float] | None = None
    for _ in range(24):
        if constants is None:
            break
        errors = np.abs(_gate(constants, SAMPLES) - level - rise * SAMPLES)
        if best is None or errors.max() < best[1]:
            best = constants, float(errors.max())
        # Narrower where the error between two points is large: it grows with about the 2 p-th power of the width.
        ends = np.concatenate([[-1.0], nodes, [1.0]])
        peaks = np.array([errors[(a <= SAMPLES) & (b >= SAMPLES)].max(initial=0.0) for a, b in pairwise(ends)])
        widths = np.diff(ends) * np.maximum(peaks / peaks.mean(), 1e-9) ** -0.2
        nodes = -1.0 + 2.0 * np.cumsum(widths)[:-1] / widths.sum()
        constants = _through(constants, nodes, level, rise)
    return best


def _prony(values: Array, points: Array) -> Array | None:
    """The sum of exponentials through 2 p values at equispaced points, by the recurrence that its values satisfy."""
    count, step = len(points) // 2, points[1] - points[0]
    hankel = np.array([values[row : row + count] for row in range(count)])
    recurrence = np.linalg.solve(hankel, -values[count:])
    roots = np.roots(np.concatenate([[1.0], recurrence[::-1]]))
    if np.any(np.abs(roots.imag) > 1e-9) or np.any(roots.real <= 0.0):
        return None
    rates = np.log(roots.real) / step
    factors = np.linalg.lstsq(np.exp(np.outer(points, rates)), values, rcond=None)[0]
    return None if np.any(factors <= 0.0) else np.concatenate([np.log(factors), rates])


def _through(constants: Array, points: Array, level: float, rise: float) -> Array | None:
    """Newton's method for g = level + rise t at 2 p points, on logarithms; None where it does not settle."""
    count = len(constants) // 2
    for _ in range(30):
        powers = np.exp(constants[:count] + np.outer(points, constants[count:]))
        gate = 1.0 / (1.0 + powers.sum(axis=1))
        slopes = -gate[:, None] * np.hstack([powers, powers * points[:, None]])
        step = np.linalg.solve(slopes, np.log(level + rise * points) - np.log(gate))
        largest = float(np.abs(step).max())
        constants = constants + step * min(1.0, 0.3 / max(largest, 1e-300))
        if largest < 1e-10:
            break
    return constants if largest < 1e-5 else None


def _gate(constants: Array, points: Array) -> Array:
    count = len(constants) // 2
    return np.asarray(1.0 / (1.0 + np.exp(constants[:count] + np.outer(points, constants[count:])).sum(axis=1)))
