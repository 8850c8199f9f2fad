"""log by folding the ratio: Q = V ln(U / (c V)), P = U ln(U / (c V)); at (U, V) = (x / near, 1), ln x = ln(c near) + Q.

Reflected at c, (U, V) = (c V', U' / c), ln(U / (c V)) = -ln(U' / (c V')): so Q = -P' / c, P = -c Q', a gated swap by
    s = -P' / c - Q' = (U' / c + V') ln(c V' / U') >= 0,  v = max(s - K r, 0),  Q <- -P' / c - v,  P <- -c Q' - c v.
Where r > 0, with y = U / (c V) in [1, c]: r = (y - 1) V and s = (1 + y) ln y V. As (1 + y) ln y / (y - 1) grows,
K = (1 + c) ln c / (c - 1). The next level has the centre c^2: Q <- Q - ln c V and P <- P - ln c U, with the pair (U, V)
as it was before this level's fold.
(Without the centring, s = (2 ln c / c) U' - P' / c - Q' is negative next to the fold as soon as ln c > 2: the gate
would then do harm.)

On the last cell [1, beta], g = sqrt(beta), chords plus bubbles that make the middle exact, m = 2 ln g / (g + 1):
    Q = m (u + H) / (g - 1),     P = m (g^2 u - g H) / (g - 1).
Error in every cell, per V, with q = ln beta: at most q^3 / 249 (1 + O(q)) both ways, from what is odd about the
middle, and a gap of at most q^2 / (8 N^2) (1 + O(q)), downwards. Without the bubble the gap q^2 / 8 alone.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.halving import SLACK
from headsmith.plan.circuits.proposal import Proposal, smallest
from headsmith.plan.circuits.radix import cells_of, radices
from headsmith.plan.circuits.ratio import halve_ratio, on_cell, ratio_bubble, sampled_bubble

DEEPEST = 30


def logarithm(low: float, high: float, levels: int, split: tuple[int, ...]) -> Fragment:
    """log on [low, high], 0 < low. 2 levels + sum (b - 1) gates at depth 2 levels + len(split).

    Guarantee: |out - ln x| <= (q^3 / 249 + q^2 / (16 N^2)) (1 + q), q = ln(high / low) / 2^levels <= 1; q^2 / 16
    where the split is empty.
    """
    builder = Builder(["x"])
    spread = math.log(high / low)
    upper, lower, done = halve_ratio(builder, low, spread, levels)
    log_g = 0.5 * spread / 2.0**levels
    q_slope, q_curve, p_slope, p_curve = _cell(log_g)
    bump = ratio_bubble(builder, upper, lower, log_g, split)
    # On the last cell the centre is beta = g^2, that of the first level to be unfolded.
    centre = 2.0 * log_g
    q = on_cell(builder, upper, lower, (q_slope, -q_slope - centre), q_curve, bump)
    p = on_cell(builder, upper, lower, (p_slope - centre, -p_slope), p_curve, bump)
    for level in reversed(done):
        c, half = level.place, math.log(level.place)
        steep = SLACK * (1.0 + c) * half / (c - 1.0)
        gate = builder.relu(scalar(builder, [(p, -1.0 / c), (q, -1.0), (level.moved, -steep)]))
        q, p = (
            scalar(builder, [(p, -1.0 / c), (gate, -1.0), (level.lower, -half)]),
            scalar(builder, [(q, -c), (gate, -c), (level.upper, -half)]),
        )
        centre = 2.0 * half
    least, most = _deviation(log_g, cells_of(split))
    output = scalar(builder, [(q, 1.0)], math.log(low) + centre - 0.5 * (least + most))
    return Fragment("log", builder.graph(output), low, high, 0.5 * (most - least))


def _cell(log_g: float) -> tuple[float, float, float, float]:
    """Slope of the chord and factor of the bubble, for Q and for P."""
    g, less = math.exp(log_g), math.expm1(log_g)
    slope = 2.0 * log_g / (less * (g + 1.0))
    return slope, slope * less, slope * g * g, -slope * less * g


@lru_cache(maxsize=4096)
def _deviation(log_g: float, cells: int) -> tuple[float, float]:
    """The least and the largest error of ln on any cell: that of Q / V on direct cells, of -P / U on reflected ones."""
    q_slope, q_curve, p_slope, p_curve = _cell(log_g)
    log_rho, bump = sampled_bubble(log_g, cells)
    u = np.expm1(log_rho)
    direct = q_slope * u + q_curve * bump - log_rho
    mirrored = log_rho - (p_slope * u + p_curve * bump) / (1.0 + u)
    both = np.concatenate([direct, mirrored, [0.0]])
    return float(both.min()), float(both.max())


def logarithm_proposals(low: float, high: float, error: float) -> list[Proposal]:
    """All sensible (levels, radices) within `error`."""
    found: list[Proposal] = []
    for levels in range(DEEPEST):
        log_g = 0.5 * math.log(high / low) / 2.0**levels
        cells = needed_cells(log_g, error)
        for split in radices(cells) if cells is not None else []:
            make = partial(logarithm, low, high, levels, split)
            found.append(Proposal(2 * levels + sum(split) - len(split), 2 * levels + len(split), make))
        if cells == 1:
            break
    return found


def needed_cells(log_g: float, error: float) -> int | None:
    def passes(cells: int) -> bool:
        least, most = _deviation(log_g, cells)
        return most - least <= 2.0 * error

    if log_g > 3.0:
        return None
    if passes(1):
        return 1
    least, most = _deviation(log_g, 1 << 30)
    rest = error - 0.5 * (most - least)
    return smallest(passes, log_g / (2.0 * math.sqrt(rest)) if rest > 0.0 else math.inf)
