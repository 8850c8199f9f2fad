"""How much one head's error can move each output: an interval for every head and output.

Replace head h's exact gate by one that is off by e_h. A ReLU between two arguments has a chord slope in [0, 1], so the stream's
deviation obeys, layer by layer,   D' = D + W_O (S W_V D + e),   S diagonal with entries in [0, 1],   and the output moves by

    sum_h  c_h e_h,      c_h in (L W_O)_h,     L' = L + (L W_O) [0, 1] W_V      from the last layer backwards, L = read-out at first.

The intervals keep signs: errors of one sign (a sink head is never above its gate) only count where they push the same way, and a chain of
gates costs the positive or the negative parts of the products, not their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval, add, linear_image
from headsmith.heads.stream import Link
from headsmith.transformer.ir import Transformer

RegisterGains = dict[str, Interval]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Intervals of d output / d head output, (heads, outputs) for each bank of each layer, and of the embedded stream."""

    heads: tuple[tuple[Interval, ...], ...]
    stream: RegisterGains


def sensitivity(transformer: Transformer) -> Sensitivity:
    """Guarantee: outputs move by sum_h c_h e_h for some c in the intervals, whatever the slopes in [0, 1] are."""
    gains: RegisterGains = {}
    for link in transformer.readout:
        _gather(gains, link, _placed(link.weights.T, link, transformer.outputs))
    heads: list[tuple[Interval, ...]] = []
    for layer in reversed(transformer.layers):
        found = []
        for bank in layer.banks:
            total = Interval(*(np.zeros((bank.heads, transformer.outputs)) for _ in range(2)))
            for link in bank.write:
                if link.register in gains:
                    total = _add_rows(total, link.sources, linear_image(link.weights.T, gains[link.register]))
            found.append(total)
        for bank, total in zip(layer.banks, found, strict=True):
            sloped = Interval(np.minimum(total.low, 0.0), np.maximum(total.high, 0.0))
            for link in bank.read:
                _gather(gains, link, linear_image(link.weights.T, sloped[link.reads]))
        heads.append(tuple(found))
    return Sensitivity(tuple(reversed(heads)), gains)


def _gather(gains: RegisterGains, link: Link, value: Interval) -> None:
    gains[link.register] = add(gains[link.register], value) if link.register in gains else value


def _placed(weights: Array, link: Link, outputs: int) -> Interval:
    """A read-out's weights as exact gains (register size, outputs)."""
    gains = np.zeros((link.columns, outputs))
    if weights.ndim == 1:
        gains[np.arange(link.rows), link.first + np.arange(link.rows)] = weights
    else:
        gains[:, link.reads] = weights
    return Interval(gains, gains)


def _add_rows(total: Interval, rows: slice, value: Interval) -> Interval:
    low, high = total.low.copy(), total.high.copy()
    part = add(Interval(low[rows], high[rows]), value)
    low[rows], high[rows] = part.low, part.high
    return Interval(low, high)
