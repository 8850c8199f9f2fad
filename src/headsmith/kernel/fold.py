"""Gains of a node that reaches later nodes both directly and through gates.

A fold z' = z - 2 relu(z - t) does not amplify: its slope is 1 or -1. Treating z and the gate apart would give 1 + 2 = 3
for each fold, and 3^20 for a deep circuit. So the coefficients with which z enters later affine nodes are collected,

    d z'/d z  =  (weights of z)  +  sum over gates of s_g (weights of the gate) (d argument of the gate / d z),

and since that is linear in the slopes s_g, its extremes are at extreme slopes. Gates that read z alone, at different
thresholds, are a piecewise linear function of z, and a chord of such a function is a mean of its slopes: so only the
slope on each of its pieces counts, one more than there are gates. Any other gate has a slope of its own in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval
from .graph import Graph, dense

Slope = Array | Interval
Readers = Mapping[int, Sequence[tuple[int, Slope]]]

MOST_ROWS = 4096
"""How many combinations of extreme slopes are looked at together."""
MOST_NUMBERS = 1 << 22
MOST_ENTRIES = 1 << 16
"""Larger nodes are treated without collecting."""


def collect(
    circuit: Graph, readers: Readers, number: int, found: Mapping[int, Interval], output: int
) -> tuple[Interval | None, Sequence[tuple[int, Slope]]]:
    """What a node's readers that feed back add to its gain, together, and the readers that are left."""
    paths = _paths(circuit, readers, number, output)
    through = {reader for _, _, reader in paths}
    # A reader that leads to gates by its weights may read the node by interval slopes, too: these stay.
    direct = [
        (reader, slope)
        for reader, slope in readers[number]
        if reader not in through or (isinstance(slope, Interval) and circuit.nodes[reader].kind != "relu")
    ]
    affine = [(reader, slope) for reader, slope in direct if not isinstance(slope, Interval)]
    if not _worth_it(circuit, readers, number, paths, affine):
        return None, readers[number]
    later = sorted({reader for reader, _ in affine} | {r for gate, _, _ in paths for r, _ in readers[gate]})
    places, total = {}, 0
    for reader in later:
        places[reader] = slice(total, total + circuit.nodes[reader].size)
        total += circuit.nodes[reader].size
    gains = Interval(*(np.concatenate([end(found[reader]) for reader in later]) for end in (_low, _high)))
    rows = []
    for component in range(circuit.nodes[number].size):
        base = interval(np.zeros(total))
        for reader, slope in affine:
            assert not isinstance(slope, Interval)
            base = base + interval(_placed(dense(slope)[:, component], places[reader], total))
        groups = [group for path in paths for group in _groups(circuit, readers, path, component, places, total)]
        rows.append(_hull(base, groups, gains))
    whole = Interval(np.stack([row.low for row in rows]), np.stack([row.high for row in rows]))
    return whole, [(reader, slope) for reader, slope in direct if isinstance(slope, Interval)]


def _low(x: Interval) -> Array:
    return x.low


def _high(x: Interval) -> Array:
    return x.high


Path = tuple[int, Array, int]
"""A gate, the weights with which it reads a node, and the reader of the node that leads to it."""


def _paths(circuit: Graph, readers: Readers, number: int, output: int) -> list[Path]:
    """Gates that read a node directly, or through an affine node that only feeds gates; all are read by affine nodes
    alone."""
    found: list[Path] = []
    for reader, slope in readers[number]:
        node = circuit.nodes[reader]
        if node.kind == "relu":
            found.append((reader, np.eye(node.size), reader))
        elif node.kind == "affine" and not isinstance(slope, Interval) and reader != output:
            gates = [gate for gate, _ in readers[reader]]
            if gates and all(circuit.nodes[gate].kind == "relu" for gate in gates):
                found.extend((gate, dense(slope), reader) for gate in gates)
    plain = all(
        gate != output and readers[gate] and not any(isinstance(slope, Interval) for _, slope in readers[gate])
        for gate, _, _ in found
    )
    return found if plain else []


def _worth_it(
    circuit: Graph, readers: Readers, number: int, paths: list[Path], affine: Sequence[tuple[int, Slope]]
) -> bool:
    size = circuit.nodes[number].size
    if not paths or size * sum(circuit.nodes[gate].size for gate, _, _ in paths) > MOST_ENTRIES:
        return False
    reached = {reader for reader, _ in affine}
    feedback = any(reader in reached for gate, _, _ in paths for reader, _ in readers[gate])
    return feedback or (size == 1 and any(len(weights) > 1 for _, weights, _ in paths))


def _placed(values: Array, place: slice, total: int) -> Array:
    whole = np.zeros(total)
    whole[place] = values
    return whole


def _groups(
    circuit: Graph, readers: Readers, path: Path, component: int, places: Mapping[int, slice], total: int
) -> list[Interval]:
    """For gates that switch together, what they may add: one row for each vertex."""
    gate, weights, _ = path
    read = weights[:, component]
    gates = np.flatnonzero(read)
    if not len(gates):
        return []
    adds = interval(np.zeros((len(gates), total)))
    for reader, slope in readers[gate]:
        assert not isinstance(slope, Interval)
        more = np.zeros((len(gates), total))
        more[:, places[reader]] = dense(slope)[:, gates].T
        adds = adds + interval(more) * read[gates, None]
    slopes = _slopes_of(circuit, readers, gate)
    low, high = adds * slopes.low[gates, None], adds * slopes.high[gates, None]
    order = None if path[2] == gate else _thresholds(circuit, gate, gates, read)
    if order is None:
        return [
            Interval(np.stack([low.low[k], high.low[k]]), np.stack([low.high[k], high.high[k]]))
            for k in range(len(gates))
        ]
    # Left of all thresholds the falling gates are open, and right of all the rising ones.
    state = high.low * 0.0
    rows = [sum((high[k] if read[gates[k]] < 0.0 else low[k] for k in order), interval(state[0]))]
    for k in order:
        swing = high[k] - low[k]
        rows.append(rows[-1] + swing if read[gates[k]] > 0.0 else rows[-1] - swing)
    return [Interval(np.stack([row.low for row in rows]), np.stack([row.high for row in rows]))]


def _slopes_of(circuit: Graph, readers: Readers, gate: int) -> Interval:
    argument = circuit.nodes[gate].arguments[0]
    slope = next(slope for reader, slope in readers[argument] if reader == gate)
    assert isinstance(slope, Interval)
    return slope


def _thresholds(circuit: Graph, gate: int, gates: Any, read: Array) -> list[int] | None:
    """The order in which gates that read one number alone switch, from the left; None for any others."""
    argument = circuit.nodes[circuit.nodes[gate].arguments[0]]
    if len(gates) == 1 or argument.kind != "affine" or len(argument.weights) != 1:
        return None
    if dense(argument.weights[0]).shape[1] != 1:
        return None
    at = [-Fraction(float(argument.constants[k])) / Fraction(float(read[k])) for k in gates.tolist()]
    return sorted(range(len(gates)), key=at.__getitem__)


def _hull(base: Interval, groups: list[Interval], gains: Interval) -> Interval:
    """The hull of (base + a row of each group) @ gains over all rows; groups beyond the limit are taken apart."""
    rows, rest = base[None, :], sorted(groups, key=lambda group: len(group.low))
    most = min(MOST_ROWS, MOST_NUMBERS // max(len(base.low), 1))
    while rest and len(rows.low) * len(rest[0].low) <= most:
        group = rest.pop(0)
        rows = rows[:, None, :] + group[None, :, :]
        rows = Interval(rows.low.reshape(-1, len(base.low)), rows.high.reshape(-1, len(base.low)))
    total = _extremes(rows, gains)
    for group in rest:
        total = total + _extremes(group, gains)
    return total


def _extremes(rows: Interval, gains: Interval) -> Interval:
    middle = 0.5 * rows.low + 0.5 * rows.high
    radius = np.maximum((Upper(rows.high) - middle).value, (Upper(middle) - rows.low).value)
    image = (middle @ gains).widened(radius @ gains.magnitude)
    return Interval(image.low.min(axis=0), image.high.max(axis=0))
