"""Folding a ratio: what sqrt, log and powers share.

A positive argument x in [near, far] is a pair (U, V) = (x / near, 1) with the ratio U / V in [1, h]. Reflection of the
ratio at c, rho -> c^2 / rho, keeps U V and is linear, (U, V) -> (c V, U / c). Functions that are homogeneous of degree
one in (U, V) follow it. One gate leaves the pair alone where U / V <= c and reflects it elsewhere:

    r = max(U / c - V, 0);    U <- U - c r;    V <- V + r.

With radix b the ratio interval splits into b cells [k^i, k^(i+1)], k = h^(1/b), that are scaled (i even) or reflected
(i odd) onto [1, k].

The last cell is [1, beta], g = sqrt(beta). Functions there are chords (linear in U and V) plus a multiple of the bubble
    H = (U - V)(beta V - U) / (U + g V) = (g - 1) (u - u^2 / (tau l)),
    u = U - V in [0, tau l],   l = U + g V,   tau = (g - 1) / g,
zero at both ends and symmetric under the reflection of the cell. The perspective of the folding square gives its
u^2 / (tau l).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import gates, scalar
from headsmith.plan.circuits.radix import cells_of
from headsmith.plan.circuits.square import Terms, fold

WIDE = 8.0


@dataclass(frozen=True)
class Reflection:
    """One level: the pair before it, the node that holds r = max(U / c - V, 0) = V' - V, and the ratio c."""

    upper: int
    lower: int
    moved: int
    place: float


def pair(builder: Builder, near: float) -> tuple[int, int]:
    """The nodes (U, V) = (x / near, 1)."""
    return scalar(builder, [(builder.input, 1.0 / near)]), scalar(builder, [], 1.0)


def halve_ratio(builder: Builder, near: float, spread: float, levels: int) -> tuple[int, int, list[Reflection]]:
    """Fold U / V from [1, exp spread] into [1, exp(spread / 2^levels)].

    Over many decades the gates are those of `split_ratio`, active at small ratios: the differences that remain are then
    of small numbers. Otherwise max(U / c - V, 0), which needs fewer weights.
    """
    upper, lower = pair(builder, near)
    done = []
    for level in range(1, levels + 1):
        c = math.exp(spread / 2.0**level)
        if spread > WIDE:
            gate = builder.relu(scalar(builder, [(lower, 1.0), (upper, -1.0 / c)]))
            after = scalar(builder, [(upper, 1.0 / c), (gate, 1.0)])
            moved = scalar(builder, [(after, 1.0), (lower, -1.0)])
            above = scalar(builder, [(lower, c), (gate, -c)])
        else:
            gate = builder.relu(scalar(builder, [(upper, 1.0 / c), (lower, -1.0)]))
            moved = scalar(builder, [(gate, 1.0)])
            after = scalar(builder, [(lower, 1.0), (gate, 1.0)])
            above = scalar(builder, [(upper, 1.0), (gate, -c)])
        done.append(Reflection(upper, lower, moved, c))
        upper, lower = above, after
    return upper, lower, done


def split_ratio(builder: Builder, near: float, spread: float, split: tuple[int, ...]) -> tuple[int, int]:
    """Fold U / V from [1, exp spread] into [1, exp(spread / N)], level by level with the given radices.

    Gates are active at small ratios, max(V - k^-i U, 0), and the last of the b cells is the one without gates:
    large arguments then pass without cancellation, and what rounding does to small ones is small.
    """
    upper, lower = pair(builder, near)
    for radix in split:
        spread /= radix
        i = np.arange(1, radix)
        gate = gates(builder, [(upper, -np.exp(-spread * i)), (lower, 1.0)], [0.0] * len(i))
        # The last cell: (U', V') = (U k^(-m), V k^m) with m = (b-1)/2 if b is odd, (V k^m, U k^-m) with m = b/2 if
        # b is even. The jump of (U', V') at knot i is d (k^-i U - V) with d = (-k^((i+1)/2), k^((i-1)/2)) for i
        # odd, (k^(i/2), -k^(i/2)) for i even.
        odd = i % 2 == 1
        up = np.where(odd, -np.exp(0.5 * spread * (i + 1)), np.exp(0.5 * spread * i))
        down = np.where(odd, np.exp(0.5 * spread * (i - 1)), -np.exp(0.5 * spread * i))
        factor = math.exp(spread * (radix // 2))
        if radix % 2 == 0:
            upper, lower = lower, upper
            factor = 1.0 / factor
        upper, lower = (
            scalar(builder, [(upper, 1.0 / factor), (gate, up)]),
            scalar(builder, [(lower, factor), (gate, down)]),
        )
    return upper, lower


def ratio_bubble(builder: Builder, upper: int, lower: int, log_g: float, split: tuple[int, ...]) -> Terms:
    """The terms of H / (g - 1), less than it by at most tau l / (4 N^2); none where the split is empty."""
    if not split:
        return []
    g = math.exp(log_g)
    u = scalar(builder, [(upper, 1.0), (lower, -1.0)])
    inner = fold(builder, u, [(upper, 1.0), (lower, g)], -math.expm1(-log_g), split)
    rest = 1.0 - 1.0 / cells_of(split)
    return [(upper, rest), (lower, -rest), *((gate, -weights) for gate, weights in inner)]


def on_cell(builder: Builder, upper: int, lower: int, slopes: tuple[float, float], factor: float, terms: Terms) -> int:
    """The node  slopes . (U, V) + factor (terms)."""
    if not terms:
        return scalar(builder, [(upper, slopes[0]), (lower, slopes[1])])
    (_, first), (_, second), *inner = terms
    own = [(upper, slopes[0] + factor * first), (lower, slopes[1] + factor * second)]
    return scalar(builder, [*own, *((gate, factor * weights) for gate, weights in inner)])


def sampled_bubble(log_g: float, cells: int) -> tuple[Array, Array]:
    """Samples of ln rho on the last cell (rho = U / V), and H / ((g - 1) V) there as the circuit computes it."""
    samples = 2 * cells * -(-48 // cells) if cells <= 1024 else 256
    g, tau = math.exp(log_g), -math.expm1(-log_g)
    # share = u / (tau l) runs from 0 to 1: rho = (1 + share tau g) / (1 - share tau).
    share = np.linspace(0.0, 1.0, samples + 1)
    log_rho = np.log1p(share * math.expm1(log_g)) - np.log1p(-share * tau)
    size = tau * (np.exp(log_rho) + g)
    gap = share * (1.0 - share)
    if cells == 1:
        return log_rho, np.zeros(samples + 1)
    if cells <= 1024:
        knots = np.linspace(0.0, 1.0, cells + 1)
        return log_rho, size * np.interp(share, knots, knots * (1.0 - knots))
    return log_rho, size * (gap - np.where(np.arange(samples + 1) % 2 == 0, 0.0, 0.25 / cells**2))
