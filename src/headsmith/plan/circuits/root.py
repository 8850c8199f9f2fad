"""sqrt by folding the ratio: sqrt(U V) does not change under the reflection, so nothing needs to be unfolded.

On the last cell [1, beta] the chord (U + g V) / (1 + g), g = sqrt(beta), is exact at both ends and low by the relative
    delta = 1 - sech(q / 4),   q = ln beta = ln(far / near) / N,
at the middle. Times 1 / (1 - delta/2), the relative error is delta / (2 - delta), both ways.

A domain that reaches down to 0, or below near: there no gate switches, and the circuit goes on in a straight line,
which meets 0 at about sqrt(near) / 2. Allow an absolute error E: out = chord / (1 - delta) - E errs by something in
[-E, sqrt(x) delta / (1 - delta) - E] above near, so E = sqrt(far) delta / (1 - delta) / 2 is centred. At x = 0 it errs
by sqrt(near) (g / (1 + g)) / (1 - delta) - E, which is E for near = far (delta (1 + 1/g))^2 ~ 16 E^2.
"""

from __future__ import annotations

import math
from functools import partial

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.radix import cells_of, radices
from headsmith.plan.circuits.ratio import split_ratio


def root(low: float, high: float, near: float, split: tuple[int, ...]) -> Fragment:
    """sqrt on [low, high], 0 <= low, folded on [near, high] with near >= low. sum (b - 1) gates at depth len(split).

    Guarantee: |out - sqrt(x)| <= sqrt(high) delta / (2 - delta) if near = low; if near > low, the larger of
    E = sqrt(high) delta / (1 - delta) / 2 and the error at low,
    |sqrt(near) (g + low / near) / ((1 + g)(1 - delta)) - E - sqrt(low)|.
    """
    builder = Builder(["x"])
    spread = math.log(high / near)
    upper, lower = split_ratio(builder, near, spread, split)
    quarter = 0.25 * spread / cells_of(split)
    delta = 2.0 * math.sinh(0.5 * quarter) ** 2 / math.cosh(quarter)
    g = math.exp(2.0 * quarter)
    if low < near:
        shift, scale = 0.5 * delta / (1.0 - delta) * math.sqrt(high), math.sqrt(near) / (1.0 - delta)
        start = scale * (g + low / near) / (1.0 + g) - shift - math.sqrt(low)
        error = max(shift, abs(start))
    else:
        shift, scale = 0.0, math.sqrt(near) / (1.0 - 0.5 * delta)
        error = math.sqrt(high) * delta / (2.0 - delta)
    output = scalar(builder, [(upper, scale / (1.0 + g)), (lower, scale * g / (1.0 + g))], -shift)
    return Fragment("sqrt", builder.graph(output), low, high, error)


def root_proposals(low: float, high: float, error: float) -> list[Proposal]:
    """For each depth the cheapest fold within `error`, from `low` or from the best place above it."""
    top = math.sqrt(high)
    found: list[Proposal] = []
    if low > 0.0:
        for split in _splits(math.log(high / low), 2.0 * error / (top + error)):
            found.append(Proposal(sum(split) - len(split), len(split), partial(root, low, high, low, split)))
    if low < 16.0 * error**2 < 0.25 * high:
        delta = 2.0 * error / (top + 2.0 * error)
        g = math.exp(2.0 * math.acosh(1.0 / (1.0 - delta)))
        for split in _splits(-2.0 * math.log(delta * (1.0 + 1.0 / g)), delta):
            near = _best_near(high, cells_of(split))
            if low < near:
                found.append(Proposal(sum(split) - len(split), len(split), partial(root, low, high, near, split)))
    return found


def _splits(spread: float, delta: float) -> list[tuple[int, ...]]:
    """Splits of a ratio interval of logarithm `spread` into cells of relative gap `delta`."""
    return radices(0.25 * spread / math.acosh(1.0 / (1.0 - delta)) * (1.0 + 1e-12)) if delta < 0.5 else []


def _best_near(high: float, cells: int) -> float:
    """Where the error at 0 equals the error above: near = high (delta (1 + 1/g))^2, by iteration."""
    near = 1e-6 * high
    for _ in range(12):
        quarter = 0.25 * math.log(high / near) / cells
        delta = 2.0 * math.sinh(0.5 * quarter) ** 2 / math.cosh(quarter)
        near = high * (delta * (1.0 + math.exp(-2.0 * quarter))) ** 2
    return near
