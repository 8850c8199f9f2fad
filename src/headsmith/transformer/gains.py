"""From the circuit's nodes to the heads that compute them: how much each head's error can move each output."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headsmith.core.intervals import Interval
from headsmith.transformer.ir import Bank


def gains_of_heads(bank: Bank, gains: Mapping[int, Interval], outputs: int) -> Interval:
    """The gains of a bank's heads, (heads, outputs), from the gains of the circuit's nodes (see source.sensitivity)."""
    low, high = np.zeros((bank.outputs, outputs)), np.zeros((bank.outputs, outputs))
    for number in map(int, np.unique(bank.node)):
        if number in gains:
            mine = bank.node == number
            low[mine] = gains[number].low[bank.component[mine]]
            high[mine] = gains[number].high[bank.component[mine]]
    return Interval(low, high)
