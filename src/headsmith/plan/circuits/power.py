"""x^a, a any real, by folding the ratio: F = U^a V^(1-a) and its partner G = U^(1-a) V^a.

Reflected at c, (U, V) = (c V', U' / c): so F = k G' and G = F' / k, k = c^(2a-1), a gated swap (halving.py). With
sgn = 1 for a < 1/2 and -1 for a > 1/2:
    s = sgn (F' - k G') >= 0,   v = max(s - K r, 0),   F <- k G' + sgn v,   G <- (F' - sgn v) / k.
Where r > 0, with y = U / (c V) in [1, c]: r = (y - 1) V and s = c^a |y^a - y^(1-a)| V; K = sup s / r over y.

On the last cell [1, beta], g = sqrt(beta): the chord of F has the slope (beta^a - 1) / (beta - 1), and the bubble that
makes the middle exact has the factor 2 (g^a - 1)(g - g^a) / (g^2 - 1) on H / (g - 1). With q = ln beta the relative
error is at most |a (a-1)| q^2 / (8 N^2), one way, and |a (a-1) (a-1/2)| q^3 / 124.7, both ways, each times 1 + O(q).
(For F = e^(bs), b = a - 1/2, s = ln of the ratio from the middle, the odd part is sinh(bs) - 2 b sinh(s/2) to leading
order, b a (a-1) s^3 / 6; minus what vanishes at both ends this is at most 0.3849 (q/2)^3 / 6 = q^3 / 124.7 of it.)

A domain that reaches down to 0, a > 0: below `near` no gate is active, and the circuit goes on in a straight line.
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
WIDEST = 1e26


def power(exponent: float, low: float, high: float, near: float, levels: int, split: tuple[int, ...]) -> Fragment:
    """x^exponent on [low, high], 0 <= low <= near, folded on [near, high]; 2 levels + sum (b - 1) gates, depth 2
    levels + len(split).

    Guarantee: |out - x^a| <= max(near^a, high^a) D, D = |a (a-1)| q^2 (1/(16 N^2) + |a-1/2| q / 124.7) (1 + O(q)),
    q = ln(high/near)/2^levels, on [near, high]; below near the error at low.
    """
    builder = Builder(["x"])
    spread = math.log(high / near)
    upper, lower, done = halve_ratio(builder, near, spread, levels)
    log_g = 0.5 * spread / 2.0**levels
    bump = ratio_bubble(builder, upper, lower, log_g, split)
    slope, curve = _cell(exponent, log_g)
    other, bend = _cell(1.0 - exponent, log_g)
    f = on_cell(builder, upper, lower, (slope, 1.0 - slope), curve, bump)
    g = on_cell(builder, upper, lower, (other, 1.0 - other), bend, bump)
    sign = 1.0 if exponent < 0.5 else -1.0
    for level in reversed(done):
        k = level.place ** (2.0 * exponent - 1.0)
        steep = _steepest(exponent, level.place)
        gate = builder.relu(scalar(builder, [(f, sign), (g, -sign * k), (level.moved, -steep)]))
        f, g = (
            scalar(builder, [(g, k), (gate, sign)]),
            scalar(builder, [(f, 1.0 / k), (gate, -sign / k)]),
        )
    least, most = _deviation(exponent, log_g, cells_of(split))
    scale = near**exponent / (1.0 + 0.5 * (least + most))
    error = max(near**exponent, high**exponent) * 0.5 * (most - least) / (1.0 + 0.5 * (least + most))
    output = scalar(builder, [(f, scale)])
    if low < near:
        # No gate is active below near: U = low / near, V = 1 in the formula of the last cell.
        start = 1.0 - (slope + curve * (1.0 - 1.0 / cells_of(split)) * (len(split) > 0)) * (1.0 - low / near)
        error = max(error, abs(scale * start - low**exponent))
    return Fragment("power", builder.graph(output), low, high, error)


def _cell(exponent: float, log_g: float) -> tuple[float, float]:
    """The slope of the chord of rho^exponent on [1, g^2], and the factor of the bubble."""
    slope = math.expm1(2.0 * exponent * log_g) / math.expm1(2.0 * log_g)
    rise = math.expm1(exponent * log_g)
    rest = math.exp(exponent * log_g) * math.expm1((1.0 - exponent) * log_g)
    return slope, 2.0 * rise * rest / math.expm1(2.0 * log_g)


def _steepest(exponent: float, c: float) -> float:
    """K = sup c^a |y^a - y^(1-a)| / (y - 1) over 1 < y <= c, with slack."""
    log_y = np.linspace(math.log(c) / 256.0, math.log(c), 256)
    ratio = np.abs(np.exp(exponent * log_y) - np.exp((1.0 - exponent) * log_y)) / np.expm1(log_y)
    return float(c**exponent * max(ratio.max(), abs(2.0 * exponent - 1.0)) * SLACK**2)


@lru_cache(maxsize=4096)
def _deviation(exponent: float, log_g: float, cells: int) -> tuple[float, float]:
    """The least and the largest relative error on any cell: that of F on direct cells, of G on reflected ones."""
    log_rho, bump = sampled_bubble(log_g, cells)
    u = np.expm1(log_rho)
    found = [np.zeros(1)]
    for a in (exponent, 1.0 - exponent):
        slope, curve = _cell(a, log_g)
        found.append((slope * u + curve * bump - np.expm1(a * log_rho)) * np.exp(-a * log_rho))
    both = np.concatenate(found)
    return float(both.min()), float(both.max())


def power_proposals(exponent: float, low: float, high: float, error: float) -> list[Proposal]:
    """All sensible (near, levels, radices) within `error`, 0 <= low < high."""
    if exponent in (0.0, 0.5, 1.0) or (low == 0.0 and exponent < 0.0) or error <= 0.0:
        return []
    near = low
    if exponent > 0.0:
        # The straight line below near errs by about |1 - a| near^a at 0.
        reach = math.log(0.85 * error / max(abs(1.0 - exponent), 0.05)) / exponent
        if reach > math.log(high):
            return []
        near = max(low, math.exp(reach))
    top = max(near**exponent, high**exponent)
    # A ratio beyond WIDEST drowns in rounding: the fold takes a difference of numbers as large as the ratio.
    if not high < WIDEST * near or not near < (0.5 * high if near > low else high) or not math.isfinite(top):
        return []
    share = error / top
    found: list[Proposal] = []
    for levels in range(DEEPEST):
        log_g = 0.5 * math.log(high / near) / 2.0**levels
        cells = _needed_cells(exponent, log_g, share)
        for split in radices(cells) if cells is not None else []:
            make = partial(power, exponent, low, high, near, levels, split)
            found.append(Proposal(2 * levels + sum(split) - len(split), 2 * levels + len(split), make))
        if cells == 1:
            break
    return found


def _needed_cells(exponent: float, log_g: float, share: float) -> int | None:
    def passes(cells: int) -> bool:
        least, most = _deviation(exponent, log_g, cells)
        return most - least <= 2.0 * share * (1.0 + 0.5 * (least + most))

    if log_g * max(abs(exponent), 1.0) > 3.0:
        return None
    if passes(1):
        return 1
    least, most = _deviation(exponent, log_g, 1 << 30)
    rest = share - 0.5 * (most - least)
    if rest <= 0.0:
        return None
    return smallest(passes, log_g * math.sqrt(abs(exponent * (exponent - 1.0)) / (4.0 * rest)))
