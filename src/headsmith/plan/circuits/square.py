"""The square by repeated folding: each level folds the argument into a smaller cell and adds what it folded.

With u in [0, 1], radices b_1..b_L, N_t = b_1 ... b_t, N = N_L, z_0 = u:

    r_ti = max(z_{t-1} - i / N_t, 0)    i = 1..b_t - 1        z_t = z_{t-1} + 2 sum_i (-1)^i r_ti   in [0, 1/N_t]

Why the sum below is the interpolant of u^2 at the N + 1 uniform knots. Put h(u) = u - u^2. The interpolant of h at
i / b is P(u) = (1 - 1/b) u - (2/b) sum_i max(u - i/b, 0), and h - P = h(g) / b^2 where g in [0, 1] is the place
within the cell, counted from either end, since h(g) = h(1 - g). With g the folded argument, scaled back to [0, 1],
this repeats:
    u^2 = u - sum_t N_{t-1}^{-1} [(1 - 1/b_t) z_{t-1} - (2/b_t) sum_i r_ti] - N^{-2} h(g_L).
Collect: u has the coefficient 1 - sum_t (1/N_{t-1} - 1/N_t) = 1/N, and r_ti has 2/N_t - 2 (-1)^i (1/N_t - 1/N).
The dropped term lies in [0, 1/(4 N^2)]; subtracting half of that centres it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, gates, scalar
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.radix import cells_of, fold_signs, radices

Terms = list[tuple[int, Any]]


def fold(builder: Builder, start: int, scale: Terms, width: float, split: tuple[int, ...]) -> Terms:
    """Fold the node `start` in [0, width V], level by level; V is the sum of `scale`, or 1 where that is empty.

    Returns the terms of  width V I(start / (width V)) - start / N,  I the interpolant of the square.
    """
    cells = cells_of(split)
    terms: Terms = []
    done, running = 1, start
    for radix in split:
        done *= radix
        steps = [width * i / done for i in range(1, radix)]
        if scale:
            against = [(node, [-weight * step for step in steps]) for node, weight in scale]
            gate = gates(builder, [(running, 1.0), *against], [0.0] * len(steps))
        else:
            gate = gates(builder, [(running, 1.0)], [-step for step in steps])
        signs = fold_signs(radix)
        terms.append((gate, 2.0 / done - signs * (1.0 / done - 1.0 / cells)))
        if done < cells:
            running = scalar(builder, [(running, 1.0), (gate, signs)])
    return terms


def square(low: float, high: float, split: tuple[int, ...], centred: bool = True) -> Fragment:
    """x^2 on [low, high] with sum (b - 1) gates at depth len(split).

    Guarantee: |out - x^2| <= (high - low)^2 / (8 N^2), N the product of the radices; attained at both ends and at
    every knot. Not centred: 0 <= out - x^2 <= (high - low)^2 / (4 N^2).
    """
    width = high - low
    cells = cells_of(split)
    builder = Builder(["x"])
    start = scalar(builder, [(builder.input, 1.0)], -low)
    terms = fold(builder, start, [], width, split)
    error = (width / cells) ** 2 / 8.0
    # x^2 = low^2 + 2 low (x - low) + (x - low)^2, and (x - low)^2 ~ width (x - low) / N + width sum (weights . gates).
    slope = 2.0 * low + width / cells
    scaled = [(node, width * weights) for node, weights in terms]
    bias = -low * (low + width / cells)
    output = scalar(builder, [(builder.input, slope), *scaled], bias - error if centred else bias)
    return Fragment("square", builder.graph(output), low, high, error if centred else 2.0 * error)


def square_proposals(low: float, high: float, error: float) -> list[Proposal]:
    """The cheapest squares within `error`, for each depth that pays."""
    return [
        Proposal(sum(split) - len(split), len(split), partial(square, low, high, split))
        for split in radices((high - low) / math.sqrt(8.0 * error))
    ]
