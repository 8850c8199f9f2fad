"""exp by folding: e^x = e^high B, B = e^-z with z = high - x in [0, W]; its mirror image A = e^(z - W) comes along.

Reflection at p: for z = 2p - z', e^-z = e^-p e^(z' - p). So the gated swap (halving.py) has the factor q = e^-p, and
s = B - q A = 2 e^-p sinh(p - z') is convex and falls to 0 at z' = p, where t = p - z' does: s <= K t with
K = s(0) / p = (1 - e^-2p) / p.

On the last cell B = chord - k bubble, where k = 4 (chord - e^-z)(w/2) / w^2 makes the middle exact; A(z) = B(w - z)
takes the same k. Then
    B - e^-z  =  -(1/6) z (w - z)(w/2 - z) e^-xi  +  k (z (w - z) - bubble),
the first at most w^3 / (72 sqrt 3), the second between 0 and k w^2 / (4 N^2), k <= 1/2. Without the bubble only
0 <= B - e^-z <= w^2 / 8. The outer cells repeat the first, times e^-(a multiple of w).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.halving import SLACK, bubble, halve, interpolated_bubble, joined
from headsmith.plan.circuits.proposal import Proposal, smallest
from headsmith.plan.circuits.radix import cells_of, radices

DEEPEST = 40


def exponential(
    low: float, high: float, levels: int, reach: float, split: tuple[int, ...], centred: bool = True
) -> Fragment:
    """exp on [low, high]; arguments below high - reach count as that. 2 levels + sum (b - 1) gates, and one to clip.

    Guarantee: |out - e^x| <= e^high (c + max(c + w^2 / (8 N^2), e^-reach if clipped)) / 2, c = w^3 / (72 sqrt 3),
    w = min(reach, high - low) / 2^levels; c = 0 and N = 1 where the split is empty.
    """
    builder = Builder(["x"])
    clipped = reach < high - low
    width = reach if clipped else high - low
    if clipped:
        near = builder.relu(scalar(builder, [(builder.input, 1.0)], reach - high))
        start = scalar(builder, [(near, -1.0)], reach)
    else:
        start = scalar(builder, [(builder.input, -1.0)], high)
    z, done = halve(builder, start, width, levels)
    cell = width / 2.0**levels
    slope, curve = _cell(cell)
    bump = bubble(builder, z, cell, split)
    falling = joined(builder, slope, z, -curve, bump, 1.0)
    rising = joined(builder, -slope, z, -curve, bump, math.exp(-cell))
    for level in reversed(done):
        q, steep = math.exp(-level.place), -SLACK * math.expm1(-2.0 * level.place) / level.place
        gate = builder.relu(scalar(builder, [(falling, 1.0), (rising, -q), (level.moved, -steep)]))
        falling, rising = (
            scalar(builder, [(rising, q), (gate, 1.0)]),
            scalar(builder, [(falling, 1.0), (gate, -1.0)]),
        )
    least, most = deviation(cell, cells_of(split))
    most = max(most, math.exp(-reach)) if clipped else most
    middle, top = 0.5 * (least + most) if centred else 0.0, math.exp(high)
    output = scalar(builder, [(falling, top)], -top * middle)
    return Fragment("exp", builder.graph(output), low, high, top * max(most - middle, middle - least))


def _cell(cell: float) -> tuple[float, float]:
    """The chord's slope and the bubble's factor k on [0, cell]."""
    chord = 0.5 * (1.0 + math.exp(-cell))
    # chord - e^(-cell/2) = e^(-cell/2) (cosh(cell/2) - 1) = 2 e^(-cell/2) sinh(cell/4)^2, without cancellation.
    gap = 2.0 * math.exp(-0.5 * cell) * math.sinh(0.25 * cell) ** 2 if cell < 1.0 else chord - math.exp(-0.5 * cell)
    return math.expm1(-cell) / cell, 4.0 * gap / cell**2


@lru_cache(maxsize=4096)
def deviation(cell: float, cells: int) -> tuple[float, float]:
    """The least and the largest value of B - e^-z on the last cell."""
    slope, curve = _cell(cell)
    z, bump = interpolated_bubble(cell, cells)
    gap = slope * z - np.expm1(-z) - curve * bump
    return min(float(gap.min()), 0.0), max(float(gap.max()), 0.0)


def exponential_proposals(low: float, high: float, error: float) -> list[Proposal]:
    """All sensible (levels, reach, radices) within `error`."""
    if high > 700.0:
        return []
    share = error / math.exp(high)
    if not share > 1e-300:
        return []
    whole = high - low
    far = -math.log(1.6 * share) if share < 0.5 else math.inf
    found: list[Proposal] = []
    for reach in [whole] if whole <= far else [whole, far]:
        clip = int(reach < whole)
        for levels in range(DEEPEST):
            cells = needed_cells(reach / 2.0**levels, share, math.exp(-reach) if clip else 0.0)
            for split in radices(cells) if cells is not None else []:
                make = partial(exponential, low, high, levels, reach, split)
                extra = sum(split) - len(split) + clip
                found.append(Proposal(2 * levels + extra, 2 * levels + len(split) + clip, make))
            if cells == 1:
                break
    return found


def needed_cells(cell: float, share: float, tail: float = 0.0) -> int | None:
    """The fewest cells of the bubble for a centred deviation of `share`; None where the cubic term forbids it."""

    def passes(cells: int) -> bool:
        least, most = deviation(cell, cells)
        return max(most, tail) - least <= 2.0 * share

    if passes(1):
        return 1
    if cell > 4.0:
        return None
    least, most = deviation(cell, 1 << 30)
    rest = share - 0.5 * (most - least)
    return smallest(passes, cell * math.sqrt(_cell(cell)[1] / (8.0 * rest)) if rest > 0.0 else math.inf)
