"""Slopes for the rule Linear (kernel/core/ranges.py): by which line each gate is bounded from below.

Closed form: relu(w) >= w where w is more often positive, and >= 0 elsewhere, is the line that leaves the smallest area.

Improved. The least value of a form is attained, as far as the bounds know, at one corner of the box of inputs. With w
what gates read there, by the lines that bound them, the derivative of that value by the slope s of a gate whose
coefficient in the form is a > 0 is a w: one pass forwards for each pass backwards. All components share the slopes, and
the sum of their least values is made larger by ascent (Adam).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.kernel.core.arithmetic import Array, Interval
from headsmith.kernel.core.graph import Graph, needed
from headsmith.kernel.core.ranges import linear_range, node_range
from headsmith.kernel.core.sparse import Sparse

WORK = 2e8
"""How many products of numbers one node's bounds may take, a pass."""
ASCENT = 4e8
"""How many products of numbers the ascents of all nodes may take."""
A_SPARSE = 16
"""How many products of full matrices a product of a sparse one is worth."""
STEPS, RATE = 24, 0.1
GAIN = 0.99
"""Bounds are worth carrying that are at most so wide, all in all, as those of intervals."""


@dataclass(frozen=True, eq=False)
class Found:
    """Slopes for the nodes whose ranges they make smaller, and the ranges of all nodes."""

    slopes: dict[int, Array]
    ranges: Sequence[Interval] | None


def find_linear(circuit: Graph, box: Interval) -> Found:
    """Slopes for all that gates read in a circuit of affine nodes and gates; nothing for other circuits."""
    nodes = circuit.nodes
    gates = [number for number, node in enumerate(nodes) if node.kind == "relu"]
    if len(gates) < 2 or any(node.kind not in ("input", "affine", "relu") for node in nodes):
        return Found({}, None)
    read = {nodes[number].arguments[0] for number in gates} - {nodes[gates[0]].arguments[0]}
    before = {number: needed(circuit, [number]) for number in read if nodes[number].kind == "affine"}
    works = {number: _work(circuit, number, places) for number, places in before.items()}
    works = {number: work for number, work in works.items() if work <= WORK}
    if not works:
        return Found({}, None)
    slopes, found, left = dict[int, Array](), [box], ASCENT
    for number, node in enumerate(nodes[1:], start=1):
        found.append(node_range(node, [found[argument][:, None] for argument in node.arguments])[:, 0])
        if number not in works or {*before[number]}.isdisjoint(gates):
            continue
        work = works[number]
        steps = int(min(STEPS, left / (2.0 * work)))
        left -= 2.0 * work * steps
        chosen = _chosen(circuit, number, found, before[number], steps)
        better = found[number].meet(linear_range(circuit, number, chosen, found, set()))
        if float((better.high - better.low).sum()) <= GAIN * float((found[number].high - found[number].low).sum()):
            slopes[number], found[number] = chosen, better
    return Found(slopes, found)


def _work(circuit: Graph, number: int, before: Sequence[int]) -> float:
    """About how many products of numbers linear bounds of a node take."""
    weights = [each for place in before for each in circuit.nodes[place].weights]
    sizes = [
        float(min(each.size * A_SPARSE, math.prod(each.shape)) if isinstance(each, Sparse) else each.size)
        for each in weights
    ]
    return 2.0 * circuit.nodes[number].size * sum(sizes)


def _chosen(circuit: Graph, number: int, found: Sequence[Interval], before: Sequence[int], steps: int) -> Array:
    """Good slopes for the gates before a node."""
    gates = [place for place in before if circuit.nodes[place].kind == "relu"]
    around = [found[circuit.nodes[place].arguments[0]] for place in gates]
    ends = np.cumsum([0, *(circuit.nodes[place].size for place in gates)])
    where = {place: slice(a, b) for place, a, b in zip(gates, ends, ends[1:], strict=False)}
    first = np.concatenate([(each.high > -each.low).astype(np.float64) for each in around])
    free = np.concatenate([(each.low < 0.0) & (each.high > 0.0) for each in around])
    place, best = np.stack([first, first]), (np.full(2, -np.inf), np.stack([first, first]))
    mean, square = np.zeros((2, *place.shape))
    for step in range(1, steps + 1):
        value, upwards = _pass(circuit, number, found, before, place, where)
        better = value > best[0]
        best = np.where(better, value, best[0]), np.where(better[:, None], place, best[1])
        mean, square = 0.8 * mean + 0.2 * upwards, 0.95 * square + 0.05 * upwards**2
        move = (mean / (1.0 - 0.8**step)) / (np.sqrt(square / (1.0 - 0.95**step)) + 1e-300)
        place = np.where(free, np.clip(place + RATE * 0.9**step * move, 0.0, 1.0), place)
    return best[1]


def _pass(
    circuit: Graph,
    number: int,
    found: Sequence[Interval],
    before: Sequence[int],
    slopes: Array,
    where: Mapping[int, Any],
) -> tuple[Array, Array]:
    """The sums of the least values of a node's components, and of their negatives; and their derivatives by slopes."""
    nodes, eye = circuit.nodes, np.eye(circuit.nodes[number].size)
    forms, lines = {number: np.stack([eye, -eye])}, dict[int, tuple[Array, Array]]()
    for place in reversed(before):
        node, form = nodes[place], forms[place]
        if node.kind == "affine":
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                part = form @ weights if weights.ndim == 2 else form * weights
                forms[argument] = forms[argument] + part if argument in forms else part
        elif node.kind == "relu":
            low, high = found[node.arguments[0]].low, found[node.arguments[0]].high
            active, crosses = low >= 0.0, (low < 0.0) & (high > 0.0)
            above = np.where(crosses, high / np.where(crosses, high - low, 1.0), active.astype(np.float64))
            lines[place] = above, np.where(crosses, -above * low, 0.0)
            part = form * np.where(form > 0.0, slopes[:, None, where[place]], above)
            argument = node.arguments[0]
            forms[argument] = forms[argument] + part if argument in forms else part
    values, upwards = dict[int, Array](), np.zeros_like(slopes)
    for place in before:
        node, form = nodes[place], forms[place]
        if node.kind == "affine":
            values[place] = np.zeros_like(form) + node.constants
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                read = values[argument]
                values[place] += read @ weights.T if weights.ndim == 2 else read * weights
        elif node.kind == "relu":
            read, (above, more) = values[node.arguments[0]], lines[place]
            values[place] = np.where(form > 0.0, slopes[:, None, where[place]] * read, above * read + more)
            upwards[:, where[place]] = (np.maximum(form, 0.0) * read).sum(axis=1)
        else:
            values[place] = np.where(form > 0.0, found[place].low, found[place].high)
    at = np.einsum("skk->sk", values[number])
    return np.array([at[0].sum(), -at[1].sum()]), upwards
