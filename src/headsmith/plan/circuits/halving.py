"""What the fold-and-unfold families share: halving an interval again and again, and the bubble on the last cell.

    fold     z in [0, W]; for p = W/2, W/4, ..: t = max(z - p, 0), z <- z - 2 t, a reflection at p. t > 0 says
             "reflected", and is kept.
    base     on the last cell [0, w], w = W / 2^L, a pair of functions is given by chords plus multiples of the bubble
             w z - z^2 >= 0, which the folding square computes from below to within w^2 / (4 N^2), exactly at both ends.
    unfold   in reverse order, one gate a level: a gated swap of the pair, which t switches.

The gated swap. With the inner pair (f, g), the outer pair is (f, b g) where t = 0 and (b g, f) where t > 0. Let
s = f - b g >= 0 vanish where t does, and s <= K t wherever t > 0. Then v = max(s - K t, 0) is s where t = 0 and 0 where
t > 0, so (f, g) <- (b g + v, f - v) does it: two running sums in place, with one gate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import scalar
from headsmith.plan.circuits.radix import cells_of
from headsmith.plan.circuits.square import Terms, fold

SLACK = 1.001
LARGEST_SAMPLED = 1024


@dataclass(frozen=True)
class HalvingLevel:
    """One reflection at `place`: the node `moved` holds t = max(z - place, 0)."""

    moved: int
    place: float


def halve(builder: Builder, start: int, width: float, levels: int) -> tuple[int, list[HalvingLevel]]:
    """Fold the node `start` in [0, width] into [0, width / 2^levels]; its new node, and what was done."""
    running, done = start, []
    for level in range(1, levels + 1):
        place = width / 2.0**level
        gate = builder.relu(scalar(builder, [(running, 1.0)], -place))
        done.append(HalvingLevel(scalar(builder, [(gate, 1.0)]), place))
        running = scalar(builder, [(running, 1.0), (gate, -2.0)])
    return running, done


def bubble(builder: Builder, z: int, width: float, split: tuple[int, ...]) -> Terms:
    """The terms of  width z - F(z), F the interpolant of z^2 on the cells of `split`; none where the split is empty."""
    if not split:
        return []
    cells = cells_of(split)
    # F = width (gates . weights + z / N).
    gates = [(gate, -width * weights) for gate, weights in fold(builder, z, [], width, split)]
    return [(z, width * (1.0 - 1.0 / cells)), *gates]


def joined(builder: Builder, slope: float, z: int, factor: float, terms: Terms, bias: float) -> int:
    """The node  slope z + factor (terms) + bias, where `terms` may start with z itself."""
    if not terms:
        return scalar(builder, [(z, slope)], bias)
    (_, own), *gates = terms
    return scalar(builder, [(z, slope + factor * own), *((gate, factor * w) for gate, w in gates)], bias)


def interpolated_bubble(width: float, cells: int) -> tuple[Array, Array]:
    """Samples of the last cell, knots and middles among them, and of the bubble that the circuit computes there."""
    fine = cells > LARGEST_SAMPLED
    samples = 256 if fine else 2 * cells * -(-64 // cells)
    z = np.linspace(0.0, width, samples + 1)
    if fine:
        # The gap at its largest at every second sample: all that an estimate needs.
        return z, z * (width - z) - np.where(np.arange(samples + 1) % 2 == 0, 0.0, (width / cells) ** 2 / 4.0)
    knots = np.linspace(0.0, width, cells + 1)
    return z, np.interp(z, knots, knots * (width - knots))
