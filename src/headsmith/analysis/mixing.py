"""How deviations pass through the nodes that read other tokens.

A pool or a move returns a mean of what stands at other tokens, with weights that are not negative and add up to at most
one (a maximum that moves: the weights of some chord). It is off by at most as much as its argument is anywhere.

Attention returns m = sum_j w_j v_j, w = softmax(q . k_j). Values off by D move m by at most D. Let queries be off by e,
|e_c| <= E_c, and keys by f_j, |f_jc| <= F_c. A score moves by  e . k_j + (q + e) . f_j,  and what moves all scores
alike, e . (the middle of the keys' ranges), does not count:

    |score_j moves| <= sum_c E_c rad(k_c) + (|q_c| + E_c) F_c =: d,        m moves by at most  R tanh(d/2) <= R d / 2

with R the spread of the exact values (kernel/softmax.py). So the slopes are R rad(k_c) / 2 by q_c, and
R (|q_c| + E_c) / 2 by k_c: how steep it is by keys depends on how far queries are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.analysis.sensitivity import Shortcut
from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.core.rounding import upper
from headsmith.source.graph import Attend, Graph, Mixing, arguments


def attend_slopes(
    queries: Interval, keys: Interval, values: Interval, *, off: Array | float = 0.0
) -> tuple[Interval, Interval, Interval]:
    """How far attention moves with queries and keys, matrices (values, numbers of a query), and with values.

    Guarantee: that of the module, for exact values in these ranges and queries that are off by at most `off`.
    """
    spread = upper(values.high - values.low, 1) / 2.0
    radius = upper(keys.high - keys.low, 1) / 2.0
    size = upper(queries.magnitude + off, 1)
    by_query, by_key = (np.asarray(upper(np.outer(spread, each), 1)) for each in (radius, size))
    one = np.ones(len(values.low))
    return Interval(-by_query, by_query), Interval(-by_key, by_key), Interval(0.0 * one, one)


@dataclass(frozen=True, eq=False)
class Attention(Shortcut):
    """Attention on these ranges of its arguments."""

    ranges: tuple[Interval, ...]

    def slopes_at(self, off: Mapping[int, Array]) -> tuple[Interval, ...]:
        return attend_slopes(*self.ranges, off=off.get(self.arguments[0], 0.0))


def mixing_shortcuts(circuit: Graph, ranges: Sequence[Interval]) -> dict[int, Shortcut]:
    """The shortcuts of all nodes that read other tokens."""
    found: dict[int, Shortcut] = {}
    for number, node in enumerate(circuit.nodes):
        if isinstance(node, Mixing):
            read, region = arguments(node), frozenset({number})
            if isinstance(node, Attend):
                around = tuple(ranges[argument] for argument in read)
                found[number] = Attention(read, attend_slopes(*around), region, around)
            else:
                # Weights of other tokens are not negative, and add up to at most one.
                weights = Interval(np.zeros(node.size), np.ones(node.size))
                found[number] = Shortcut(read, (weights,), region)
    return found
