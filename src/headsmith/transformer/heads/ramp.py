"""Ramp head: the truncated linear function clamp(s; a, b), as a table head whose grid interpolates.

p tokens L_k = a + k h, h = (b - a)/(p - 1), score -c ((s - L_k)/h)^2 and hold L_k. What all tokens share does not
count, and the grid is centred, l_k = L_k - (a + b)/2, so that scores stay small:

    slope[k] = 2 c l_k / h^2,      offset[k] = -c (l_k^2 + (a + b) l_k) / h^2,      values[k] = L_k.

Ramp lemma.  For c = WIDTH the head is within 0.0622 h of clamp(s; a, b), for all s and any p. A wide kernel (small c)
    bends at the ends, by about h e^{-c}/(1 + e^{-c}); a narrow one is a staircase, off by about h (2 pi/c) e^{-pi^2/c};
    WIDTH balances the two. The limit of large c is the nearest grid point (hardmax): h/2, eight times worse.

Rate.  H heads share the interval: clamp(s; a, b) = a + sum_m (clamp(s; t_m, t_{m+1}) - t_m), t_m = a + m (b - a)/H. The
    bends at inner ends cancel but for a little: within 0.0624 (b - a) / ((p - 1) H) for p >= 3, and 0.0630 for p = 2.
    With the data tokens themselves as grid (heads/table.py) this is the O(1/(nH)) of n tokens and H heads, without any
    reference token.

relu(z) on |z| <= B is the ramp on [0, B]; so are hard tanh, clip and the identity.
"""

from __future__ import annotations

from functools import cache
from math import ceil, inf

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError

WIDTH = 2.725
"""The best c: it makes the largest error over all s as small as it gets."""

HARDMAX_ERROR = 0.5
"""The error of the nearest grid point, in steps of the grid."""

REACH = 12
"""Tokens and heads that are so many grid steps away do not count: e^{-c REACH^2} is below 1e-30 for c >= 1/2."""

CELLS = 1 << 13
"""How many cells a grid step is cut into for the bound."""


def ramp_table(
    low: float, high: float, tokens: int, heads: int = 1, width: float = WIDTH
) -> tuple[Array, Array, Array]:
    """(slope, offset, values) of a table bank whose outputs add up to clamp(s; low, high).

    slope is (heads, tokens, 1), offset (heads, tokens), values (heads, tokens, 1).
    Guarantee: within ramp_error(tokens, width, heads) (high - low) / ((tokens - 1) heads), exactly evaluated.
    """
    if tokens < 2 or heads < 1 or not (low < high and width > 0.0):
        raise DomainError(f"no ramp from {low} to {high} of {heads} heads, {tokens} tokens and width {width}")
    ends = np.linspace(low, high, heads + 1)
    middle = (ends[:-1] + ends[1:])[:, None] / 2.0
    step = (high - low) / heads / (tokens - 1)
    centred = np.tile((np.arange(tokens) - (tokens - 1) / 2.0) * step, (heads, 1))
    sharpness = width / step**2
    values = centred + middle - ends[:-1, None]
    values[0] += low
    offset = -sharpness * centred * (centred + 2.0 * middle)
    return frozen((2.0 * sharpness * centred)[:, :, None]), frozen(offset), frozen(values[:, :, None])


@cache
def ramp_error(tokens: int, width: float = WIDTH, heads: int = 1) -> float:
    """Bound of the error of `heads` ramp heads of `tokens` tokens, in grid steps, over all s. Infinite for width < 1/2.

    Guarantee: the sum of the heads' means and the ramp both rise with s, so between two points the error is at most
    that of one's upper against the other's lower value. Beyond the ends it is smaller than at them, and the whole is
    symmetric. Larger grids and more heads differ from those within REACH by less than is added.
    """
    if not 0.5 <= width <= 1e6:
        return inf
    tokens = min(tokens, 2 * REACH)
    heads = min(heads, 2 * ceil(REACH / (tokens - 1)) + 1)
    length = heads * (tokens - 1)
    points = np.arange(CELLS * length // 2 + 2) / CELLS
    total = np.zeros_like(points)
    for head in range(heads):
        places = points - head * (tokens - 1)
        # Relative to the nearest token: no power exceeds 1 by more than rounding, and the sum is at least 1.
        nearest = np.clip(np.rint(places), 0, tokens - 1)
        mass, moment = np.zeros_like(places), np.zeros_like(places)
        for token in range(tokens):
            with np.errstate(under="ignore"):
                weight = np.exp(width * ((places - nearest) ** 2 - (places - token) ** 2))
            mass += weight
            moment += weight * token
        total += moment / mass
    ramp = np.minimum(points, length)
    worst = max(float(np.max(total[1:] - ramp[:-1])), float(np.max(ramp[1:] - total[:-1])))
    return worst + 1e-11 * (1.0 + width)
