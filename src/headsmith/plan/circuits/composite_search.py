"""Choosing the stages of a composite: the error is shared out between exp and what stands before or behind it."""

from __future__ import annotations

import math
from functools import partial

from headsmith.plan.circuits.composite import Decay, Split, gaussian, logistic, slope_peak, softplus
from headsmith.plan.circuits.exponential import needed_cells
from headsmith.plan.circuits.logarithm import needed_cells as needed_log_cells
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.radix import radices

DEEPEST = 20
# Beyond this 1 + e^-|x| is 1 to double precision.
FLAT = 18.0
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def composite_proposals(name: str, low: float, high: float, error: float) -> list[Proposal]:
    """All sensible plans for sigmoid, tanh, softplus or gaussian within `error`."""
    found: list[Proposal] = []
    for share in SHARES:
        if name == "gaussian":
            found += _gaussians(low, high, error, share)
        else:
            found += _sided(name, low, high, error, share)
    return found


def _sided(name: str, low: float, high: float, error: float, share: float) -> list[Proposal]:
    """sigmoid, tanh and softplus: exp of -|x|, `share` of the error for it, the rest for what follows."""
    both = low < 0.0 < high
    if not both and min(abs(low), abs(high)) > FLAT:
        return []
    speed, gain = (2.0, 2.0) if name == "tanh" else (1.0, 1.0)
    start = 0.0 if both else speed * min(abs(low), abs(high))
    stop = speed * max(abs(low), abs(high))
    # exp may err by this much, centred and as a share of e^-z; the tail counts in full.
    allowed = share * error / (gain * slope_peak(name, start))
    tail = 1.6 * share * error / gain
    follow: list[tuple[int, int, int, Split]] = []
    for levels, split in _behind(name, 1.0 + math.exp(-stop), 1.0 + math.exp(-start), (1.0 - share) * error / gain):
        follow.append((2 * levels + sum(split) - len(split), 2 * levels + len(split), levels, split))
    extra = (2 if name != "softplus" else 1) * both
    deeper = extra
    found: list[Proposal] = []
    for decay in _decays(start, stop, allowed, tail):
        for gates, depth, levels, split in follow:
            make = (
                partial(softplus, low, high, decay, levels, split)
                if name == "softplus"
                else partial(logistic, name, low, high, decay, split)
            )
            found.append(Proposal(decay.gates + gates + extra, decay.depth + depth + deeper, make))
    return found


def _behind(name: str, near: float, far: float, error: float) -> list[tuple[int, Split]]:
    """Levels and radices of ln, or no levels and the radices of 1/y, on [near, far] within `error`."""
    if name != "softplus":
        return [(0, split) for split in radices((far - near) / near / math.sqrt(8.0 * far * error))]
    found: list[tuple[int, Split]] = []
    for levels in range(DEEPEST):
        cells = needed_log_cells(0.5 * math.log(far / near) / 2.0**levels, error)
        found += [(levels, split) for split in radices(cells)] if cells is not None else []
        if cells == 1:
            break
    return found


def _decays(start: float, stop: float, allowed: float, tail: float) -> list[Decay]:
    """Ways to compute e^-z on [start, stop] with the centred relative error `allowed`, clipped where e^-z < tail."""
    whole = stop - start
    reach = -math.log(tail) - start if 0.0 < tail < math.exp(-start) else whole
    found: list[Decay] = []
    for span in (whole, reach) if 0.0 < reach < whole else (whole,):
        for levels in range(DEEPEST):
            cell = span / 2.0**levels
            # Within a cell the slope of what follows varies: see composite.slope_peak.
            cells = needed_cells(cell, allowed * math.exp(-0.5 * min(cell, 1.0)))
            for split in radices(cells) if cells is not None else []:
                found.append(Decay(start, stop, levels, span, split))
            if cells == 1:
                break
    return found


def _gaussians(low: float, high: float, error: float, share: float) -> list[Proposal]:
    """exp(-y) with `share` of the error, y = x^2 / 2 with the rest; x is cut where the gaussian is below the error."""
    found: list[Proposal] = []
    if min(abs(low), abs(high)) > FLAT and not low <= 0.0 <= high:
        return []
    clip = math.sqrt(max(-2.0 * math.log(1.6 * share * error), 0.0)) if error < 0.5 else math.inf
    for limit in (math.inf, clip):
        left, right = max(low, -limit), min(high, limit)
        if not left < right or (limit < math.inf and not (low < -limit or high > limit)):
            continue
        cuts = (low < -limit) + (high > limit)
        largest = max(abs(left), abs(right))
        stop = 0.5 * largest**2
        start = 0.0 if left <= 0.0 <= right else 0.5 * min(abs(left), abs(right)) ** 2
        width = right - left
        splits = radices(width / math.sqrt(16.0 * (1.0 - share) * error) * math.exp(-0.5 * start))
        for decay in _decays(start, stop, share * error * math.exp(start), 0.0):
            for split in splits:
                make = partial(gaussian, low, high, decay, limit if cuts else 2.0 * largest, split)
                gates = sum(split) - len(split) + decay.gates + cuts
                found.append(Proposal(gates, len(split) + decay.depth + (cuts > 0), make))
    return found
