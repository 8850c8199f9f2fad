"""Rule Chord: a circuit of affine nodes and gates of one variable t is within [low, high] of a function f.

The interval of t is cut at `ends`. On a cell [l, r] every node v is described by enclosures of v(l) and v(r), and
by how far it is at most from its chord, d:

-   t itself: d = 0. Affine: chords add, deviations add with |weights|.
-   A gate: if it is open, its argument; if it is closed, 0. Else d grows by min(|v(l)|, |v(r)|), and by nothing if both
    values have one sign: relu moves nothing by more than itself, and where a chord crosses 0, relu of it is below the
    chord of the relus by |v(l)| |v(r)| / (|v(l)| + |v(r)|) at most.
-   Against f, with e = v - f at both ends and s = (t - l) / (r - l) (Lagrange's remainder of the chord of f):
    v - f = e(l) + (e(r) - e(l)) s + f''(somewhere)/2 (r - l)^2 s (1 - s) + deviation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import SLACK, Array, Outside, Span, carried, image, point, require
from headsmith.small_kernel.circuit import Circuit
from headsmith.small_kernel.functions import enclose
from headsmith.small_kernel.ranges import relu


def compared(circuit: Circuit, output: int, found: list[Span]) -> tuple[Span, dict[int, Span]]:
    """The error of a region with ends, and the ranges of what is inside, but of its output."""
    nodes, inside, region = circuit.nodes, sorted(circuit.inside[output]), circuit.regions[output]
    reference = nodes[region.stands_for]
    if reference.program is None or reference.program[0] != 1:
        raise Outside("a circuit that stands for an operation on two arguments")
    require(
        all(nodes[n].kind in ("affine", "relu") for n in inside),
        "a circuit of one variable has another node than affine and relu",
    )
    argument, size = reference.reads[0], reference.size
    alone(circuit, argument, inside, output)
    t = found[argument].wider(region.margin or 0.0)
    low, high, places = t.low.min(), t.high.max(), region.ends
    require(len(places) <= 2**18 and (np.diff(places) >= 0).all(), "ends of cells are not in order")
    # Wrong ends cost tightness, not truth: they are made to begin and end with the interval.
    places = np.unique([low, *places[(places > low) & (places < high)], max(high, np.nextafter(low, np.inf))])
    require(
        len(places) * max(nodes[n].size for n in inside) <= 2**24, "a circuit of one variable is too large", Outside
    )
    at = {argument: (Span(*np.repeat([[places]] * 2, size, axis=1)), np.zeros((size, len(places) - 1)))}
    for n in inside:
        node = nodes[n]
        if node.kind == "relu":
            at[n] = gate(*at[node.reads[0]])
            continue
        value, off = point(np.repeat(node.bias[:, None], len(places), axis=1)), np.zeros((node.size, len(places) - 1))
        for a, weights in zip(node.reads, node.weights, strict=True):
            value, off = value + image(weights, at[a][0]), off + carried(weights, at[a][1])
        at[n] = value, off
    inner = {n: cells(at[n][0]).wider(at[n][1]).over_cells() for n in inside[:-1]}
    return against(*at[output], reference.program, places).over_cells(), inner


def alone(circuit: Circuit, argument: int, inside: list[int], output: int) -> None:
    """No inside row depends on two components of the argument, and component c of the output on no component but
    c."""
    of = {argument: np.eye(circuit.nodes[argument].size, dtype=bool)}
    for n in inside:
        node = circuit.nodes[n]
        of[n] = np.zeros((node.size, len(of[argument])), dtype=bool)
        for a, weights in zip(node.reads, node.weights or (np.ones(node.size),), strict=True):
            of[n] |= (carried(weights != 0, 1.0 * of[a])) > 0
        require((of[n].sum(axis=1) <= 1).all(), "a row of a circuit of one variable depends on two components")
    require(not (of[output] & ~of[argument]).any(), "an output of a circuit depends on another component")


def cells(v: Span) -> Span:
    """The hulls of values at the ends of cells."""
    return v[:, :-1].hull(v[:, 1:])


def gate(v: Span, d: Array) -> tuple[Span, Array]:
    around, size = cells(v), v.size
    grown = d + np.where((around.low >= 0) | (around.high <= 0), 0.0, np.minimum(size[:, :-1], size[:, 1:]))
    return relu(v), np.where(around.low >= d * SLACK, d, np.where(around.high <= -d * SLACK, 0.0, grown))


def against(v: Span, d: Array, f: Any, places: Array) -> Span:
    """v - f on every cell; where f'' is not bounded, from the range of f."""
    e, line = v + -enclose(f, 0, point(places)), Span(places[:-1], places[1:])
    bend = enclose(f, 2, line, 2)
    q = [side * (places[1:] - places[:-1]) ** 2 / 2 * SLACK for side in bend.sides]
    low, high = -hump(-e.low[:, :-1], -e.low[:, 1:], q[0]), hump(e.high[:, :-1], e.high[:, 1:], q[1])
    if not np.isfinite(bend.size).all():
        whole = cells(v) + -enclose(f, 0, line, 2)
        low, high = np.where(np.isfinite(low), low, whole.low), np.where(np.isfinite(high), high, whole.high)
    return Span(low, high).wider(d)


def hump(first: Array, last: Array, q: Array) -> Array:
    """The largest of E + A s - q s^2, 0 <= s <= 1, A = max(E' - E + q, 0)."""
    rise = np.maximum((point(last) + -point(first) + point(q)).high, 0.0)
    peak = np.where(rise < 2 * q, rise * rise / np.maximum(4 * q, 1e-300) * SLACK, (point(rise) + -point(q)).high)
    return (point(first) + point(peak)).high


__all__ = ["compared"]
