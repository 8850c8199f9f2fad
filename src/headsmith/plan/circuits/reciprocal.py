"""1/y as quadratic over linear: the perspective of the square, with V = y.

For 0 < a <= y <= b put R = 1/a - 1/b and u = (1 - y/b) / R. Then 0 <= u <= y (u = y at y = a, u = 0 at y = b), and

    R^2 u^2 / y = (1 - y/b)^2 / y = 1/y - 2/b + y/b^2.

So 1/y = 2/b - y/b^2 + R^2 (u^2 / y), and the folding square with the thresholds (i / N_t) y computes u^2 / y.
"""

from __future__ import annotations

import math
from functools import partial

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.radix import cells_of, radices
from headsmith.plan.circuits.square import fold


def reciprocal(low: float, high: float, split: tuple[int, ...]) -> Fragment:
    """1/x on [low, high], 0 not in it, with sum (b - 1) gates at depth len(split).

    Guarantee: |out - 1/x| <= R^2 |x| / (8 N^2) <= (b - a)^2 / (8 a^2 b N^2), [a, b] = [|low|, |high|] in order;
    attained at |x| = b.
    """
    sign, near, far = (1.0, low, high) if low > 0.0 else (-1.0, -high, -low)
    cells = cells_of(split)
    # 1/R = near far / (far - near); in this order there is no cancellation and no overflow for near ~ far.
    inverse = near * far / (far - near) if far > near else 1.0
    stretch = (far - near) / far / near
    builder = Builder(["x"])
    x = scalar(builder, [(builder.input, sign)])
    start = scalar(builder, [(builder.input, -sign * inverse / far)], inverse)
    terms = fold(builder, start, [(x, 1.0)], 1.0, split)
    # R^2 (u/N - x/(8 N^2)) with u = (1 - x/far)/R, and the linear part 2/far - x/far^2.
    gain = sign * stretch**2
    slope = -(stretch / cells + 1.0 / far) / far - stretch**2 / (8.0 * cells**2)
    bias = sign * (stretch / cells + 2.0 / far)
    scaled = [(node, gain * weights) for node, weights in terms]
    output = scalar(builder, [(builder.input, slope), *scaled], bias)
    error = (stretch / cells) ** 2 * far / 8.0
    return Fragment("reciprocal", builder.graph(output), low, high, error)


def reciprocal_proposals(low: float, high: float, error: float) -> list[Proposal]:
    """The cheapest reciprocals within `error`, for each depth that pays; none where 0 lies in [low, high]."""
    near, far = sorted((abs(low), abs(high)))
    if low <= 0.0 <= high:
        return []
    return [
        Proposal(sum(split) - len(split), len(split), partial(reciprocal, low, high, split))
        for split in radices((far - near) / near / math.sqrt(8.0 * far * error))
    ]
