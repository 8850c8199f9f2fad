"""From the circuit's nodes to the heads that compute them: how much each head's error can move each output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headsmith.analysis.gains import Far, Gain
from headsmith.core.intervals import Interval
from headsmith.transformer.ir import Bank


def gains_of_heads(bank: Bank, gains: Mapping[int, Gain], outputs: int) -> Gain:
    """The gains of a bank's heads, (heads, outputs), from the gains of the circuit's nodes (see source.sensitivity)."""
    low, high, rising, falling, size = (np.zeros((bank.outputs, outputs)) for _ in range(5))
    distant = False
    for number in map(int, np.unique(bank.node)):
        if number in gains:
            mine, gain = bank.node == number, gains[number]
            components = bank.component[mine]
            low[mine], high[mine] = gain.here.low[components], gain.here.high[components]
            if gain.far is not None:
                distant = True
                rising[mine], falling[mine] = gain.far.rising[components], gain.far.falling[components]
                size[mine] = gain.far.size[components]
    return Gain(Interval(low, high), Far(rising, falling, size) if distant else None)
