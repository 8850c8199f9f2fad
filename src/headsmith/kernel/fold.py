"""Gains of a node that reaches later nodes both directly and through gates.

A fold z' = z - 2 relu(z - t) does not amplify: its slope is 1 or -1. Treating z and the gate apart would give 1 + 2 = 3
for each fold, and 3^20 for a deep circuit. So the coefficients with which z enters later affine nodes are collected,

    d z'/d z  =  (weights of z)  +  sum over gates of s_g (weights of the gate) (d argument of the gate / d z),

and since that is linear in the slopes s_g, its extremes are at extreme slopes. Gates that read z alone, at different
thresholds, are a piecewise linear function of z, and a chord of such a function is a mean of its slopes: so only the
slope on each of its pieces counts, one more than there are gates. Any other gate has a slope of its own in [0, 1].
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Upper, Weights, interval, joined
from .graph import Graph, Node, dense

Slope = Weights | Interval
Readers = Mapping[int, Sequence[tuple[int, Slope]]]

MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22  # combinations of slopes looked at together; numbers, for all of a node
MOST_ENTRIES = 1 << 16  # larger nodes are treated without collecting


def collect(
    circuit: Graph, readers: Readers, number: int, found: Mapping[int, Interval], output: int
) -> tuple[Interval | None, Sequence[tuple[int, Slope]]]:
    """What a node's readers that feed back add to its gain, together, and the readers that are left."""
    paths, size = _paths(circuit, readers, number, output), circuit.nodes[number].size
    through = {reader for _, _, reader in paths}
    # A reader that leads to gates by its weights may read the node by interval slopes, too: these stay.
    gated = {reader for reader in through if circuit.nodes[reader].kind == "relu"}
    bounded = [each for each in readers[number] if isinstance(each[1], Interval) and each[0] not in gated]
    affine = [each for each in readers[number] if not isinstance(each[1], Interval) and each[0] not in through]
    reached, behind = {reader for reader, _ in affine}, {reader for gate, _, _ in paths for reader, _ in readers[gate]}
    several = size == 1 and any(len(weights) > 1 for _, weights, _ in paths)
    few = size * sum(circuit.nodes[gate].size for gate, _, _ in paths) <= MOST_ENTRIES
    if not paths or not few or not (several or reached & behind):
        return None, readers[number]
    paths, later = [(gate, dense(weights), reader) for gate, weights, reader in paths], sorted(reached | behind)
    gains = joined([found[reader] for reader in later])
    ends = np.cumsum([circuit.nodes[reader].size for reader in later]).tolist()
    if ends[-1] * max(len(weights) for _, weights, _ in paths) > 16 * MOST_NUMBERS:
        return None, readers[number]
    places = {reader: slice(end - circuit.nodes[reader].size, end) for reader, end in zip(later, ends, strict=True)}

    def onto(edges: Sequence[tuple[int, Slope]], rows: int) -> Interval:
        """With which weights the later nodes read a node, (its size, all their sizes)."""
        total = interval(np.zeros((rows, ends[-1])))
        for reader, slope in edges:
            more = np.zeros((rows, ends[-1]))
            more[:, places[reader]] = dense(slope).T
            total = total + interval(more)
        return total

    base, adds = onto(affine, size), {gate: onto(readers[gate], circuit.nodes[gate].size) for gate, _, _ in paths}
    rows = []
    for component in range(size):
        groups = [group for path in paths for group in _groups(circuit, readers, path, component, adds[path[0]])]
        rows.append(_hull(base[component], groups, gains, size))
    return joined(rows, np.stack), bounded


# A gate, the weights with which it reads a node, and the reader of the node that leads to it.
Path = tuple[int, Weights, int]


def _paths(circuit: Graph, readers: Readers, number: int, output: int) -> list[Path]:
    """Gates that read a node directly, or through an affine node that only feeds gates; all are read by affine nodes
    alone."""
    found: list[Path] = []
    for reader, slope in readers[number]:
        node = circuit.nodes[reader]
        if node.kind == "relu":
            found.append((reader, np.ones(node.size), reader))
        elif node.kind == "affine" and not isinstance(slope, Interval) and reader != output:
            gates = [gate for gate, _ in readers[reader]]
            if gates and all(circuit.nodes[gate].kind == "relu" for gate in gates):
                found.extend((gate, slope, reader) for gate in gates)
    read = [(gate, [slope for _, slope in readers[gate]]) for gate, _, _ in found]
    plain = all(gate != output and slopes for gate, slopes in read)
    return found if plain and not any(isinstance(each, Interval) for _, slopes in read for each in slopes) else []


def _groups(circuit: Graph, readers: Readers, path: Path, component: int, adds: Interval) -> list[Interval]:
    """For gates that switch together, what they may add: one row for each vertex."""
    gate, weights, reader = path
    gates = np.flatnonzero(weights[:, component])
    read = weights[gates, component]
    slopes = next(slope for each, slope in readers[circuit.nodes[gate].arguments[0]] if each == gate)
    assert isinstance(slopes, Interval)
    low, high = (adds[gates] * read[:, None] * end[gates, None] for end in (slopes.low, slopes.high))
    order = None if reader == gate else _thresholds(circuit.nodes[reader], gates, read)
    if order is None:
        return [joined([low[k], high[k]], np.stack) for k in range(len(gates))]
    # Left of all thresholds the falling gates are open, and right of all the rising ones.
    rows = [sum((high[k] if read[k] < 0.0 else low[k] for k in order), interval(np.zeros(adds.low.shape[1])))]
    for k in order:
        swing = high[k] - low[k]
        rows.append(rows[-1] + swing if read[k] > 0.0 else rows[-1] - swing)
    return [joined(rows, np.stack)]


def _thresholds(argument: Node, gates: Any, read: Array) -> list[int] | None:
    """The order in which gates that read one number alone switch, from the left; None for any others."""
    if len(gates) <= 1 or len(argument.weights) != 1 or argument.weights[0].shape[-1] != 1:
        return None
    biases = argument.constants[gates].tolist()
    at = [-Fraction(bias) / Fraction(weight) for bias, weight in zip(biases, read.tolist(), strict=True)]
    return sorted(range(len(gates)), key=at.__getitem__)


def _hull(base: Interval, groups: list[Interval], gains: Interval, size: int) -> Interval:
    """The hull of (base + a row of each group) @ gains over all rows; groups beyond the limit, which all components of
    a node share, are taken apart."""
    rows, rest = base[None, :], sorted(groups, key=lambda group: len(group.low))
    most = min(MOST_ROWS, MOST_NUMBERS // (size * max(len(base.low), 1)))
    while rest and len(rows.low) * len(rest[0].low) <= most:
        rows = (rows[:, None, :] + rest.pop(0)[None, :, :]).mapped(lambda end: end.reshape(-1, len(base.low)))
    total = _extremes(rows, gains)
    for group in rest:
        total = total + _extremes(group, gains)
    return total


def _extremes(rows: Interval, gains: Interval) -> Interval:
    middle = 0.5 * rows.low + 0.5 * rows.high
    radius = np.maximum((Upper(rows.high) - middle).value, (Upper(middle) - rows.low).value)
    return (middle @ gains).widened(radius @ gains.magnitude).over(0)
