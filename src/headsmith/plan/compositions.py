"""How far a network is from the function that it was made for: piece by piece, where it is a composition.

Several ways to cut the two into pieces are looked at, and the function may be written by squares. Of each, the kernel
says how many inputs must be cut into cells together; the way with the fewest is tried first. Every piece gets a share
of what the network leaves of the error, by how much its own error moves the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Box
from headsmith.kernel.core.arithmetic import Interval, Upper
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph as KernelGraph
from headsmith.kernel.rules.approximates import boxes_of
from headsmith.kernel.rules.composed import Pair, check_composition, checked_piece, slopes_of, turned
from headsmith.kernel.rules.composed import cut as kernel_cut
from headsmith.language.evaluation import evaluate, node_values
from headsmith.language.graph import Graph, needed
from headsmith.language.stored import APPROXIMATES, PROOF, Tensors, graph_data
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.evidence.approximates import search_cells, turn_of
from headsmith.plan.rewrite.cuts import Cut, by_squares, composed, piece, uncut

POINTS, MORE = 1 << 9, 1 << 13
"""How many points are tried, for finding pieces and for what they are off by."""
ENOUGH = 0.6
"""What a proof must leave of the error that the network leaves, for no other way to be tried."""
MOST_TOGETHER = 3
"""How many inputs are cut into cells together, where there is another way."""


@dataclass(frozen=True, eq=False)
class Compared:
    """The network with its values between, what the proof carries, a bound of the difference, the largest difference
    found (an estimate), and where."""

    network: Graph
    stored: dict[str, Any]
    tensors: Tensors
    bound: float
    largest: float
    place: Array


@dataclass(frozen=True, eq=False)
class _Part:
    """A piece: which pairs it reads, both sides as functions of those, where these were seen to lie, the function
    written in another way, if it is, and how many inputs are cut into cells together."""

    reads: tuple[int, ...]
    nodes: tuple[int, int]
    ours: Graph
    theirs: Graph
    low: Array
    high: Array
    rewritten: Graph | None = None
    together: int = 99

    def difference(self, points: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(self.ours, points) - evaluate(self.theirs, points))


def compare(network: Graph, wanted: Graph, box: Box, error: float, tell: Callable[[str], None]) -> Compared:
    """A bound of the difference of the two, with its proof. Raises Refused or CertificateError where there is none."""
    points = _points(box, MORE)
    with np.errstate(all="ignore"):
        gaps = np.nan_to_num(np.abs(evaluate(network, points) - evaluate(wanted, points)).max(axis=1), posinf=0.0)
    worst = int(np.argmax(gaps))
    largest, place, best, problem = float(gaps[worst]), points[worst], None, ""
    for way, parts in sorted(_ways(network, wanted, points), key=lambda way: _together(way[1])):
        if best is not None and _together(parts) > MOST_TOGETHER:
            break
        tell(f"comparing the network with what it approximates, in {len(parts)} pieces")
        try:
            found = _searched(way, parts, wanted, box, error, largest, place)
        except (Refused, CertificateError) as refusal:
            problem = problem or str(refusal)
            continue
        best = found if best is None or found.bound < best.bound else best
        if best.bound <= max(1.05 * best.largest, error - ENOUGH * (error - best.largest)):
            break
    if best is None:
        raise CertificateError(problem)
    return best


def _points(box: Box, count: int) -> Array:
    rng = np.random.default_rng(0)
    corners = np.where(rng.random((count // 4, len(box.low))) < 0.5, box.low, box.high)
    return np.concatenate([corners, rng.uniform(box.low, box.high, (count - len(corners), len(box.low)))])


def _ways(network: Graph, wanted: Graph, points: Array) -> Iterator[tuple[Cut, list[_Part]]]:
    """Ways to cut both into pieces, until one has pieces whose inputs are cut into cells one by one."""
    for way in _cuts(network, wanted, points[:: len(points) // POINTS]):
        parts = _parts(way, points) if way is not None else None
        if way is not None and parts is not None:
            yield way, parts
            if _together(parts) <= 1:
                return


def _cuts(network: Graph, wanted: Graph, points: Array) -> Iterator[Cut | None]:
    yield uncut(network, wanted)
    yield composed(network, wanted, points, fine=False)
    squares = by_squares(wanted, apart=True)
    yield None if squares is None else composed(network, squares, points, fine=True)


def _parts(way: Cut, points: Array) -> list[_Part] | None:
    """The pieces of a way; None where a side of one reads what the other does not."""
    pairs = [(0, 0), *way.pairs]
    with np.errstate(all="ignore"):
        seen = [node_values(graph, points) for graph in (way.network, way.wanted)]
    parts = list[_Part]()
    for place, (number, function) in enumerate(way.pairs, start=1):
        known = pairs[:place]
        stops = {pair[0] for pair in known}
        read = {each for each in needed(way.network, number, stops) if each in stops}
        reads = [each for each, pair in enumerate(known) if pair[0] in read]
        if 0 not in reads and 0 in needed(way.wanted, function, {known[each][1] for each in reads}):
            return None
        sides = [[known[each][side] for each in reads] for side in (0, 1)]
        ours, theirs = piece(way.network, number, sides[0]), piece(way.wanted, function, sides[1])
        values = [np.concatenate([seen[side][each] for each in sides[side]], axis=1) for side in (0, 1)]
        low, high = (getattr(np, end)(values, axis=(0, 1)) for end in ("min", "max"))
        plain = _Part(tuple(reads), (number, function), ours, theirs, low, high)
        written = None, by_squares(theirs, apart=False)
        others = [replace(plain, rewritten=each, together=_cut_at_once(plain, each)) for each in written]
        parts.append(min(others, key=lambda part: part.together))
    return parts


def _together(parts: list[_Part]) -> int:
    return max(part.together for part in parts)


def _cut_at_once(part: _Part, rewritten: Graph | None) -> int:
    """How many inputs of a piece are cut into cells together, in the better of two coordinates."""
    theirs = part.theirs if rewritten is None else rewritten
    ours, wanted, box = kernel_graph(part.ours), kernel_graph(theirs), Interval(part.low, part.high)
    counts = [max(int(np.sum(each.high > each.low)) for each in boxes_of(ours, wanted, box))]
    turn = turn_of(ours)
    if turn is not None:
        M, around = turned(box, turn)
        ours, wanted = (kernel_cut(graph, graph.output, [0], M) for graph in (ours, wanted))
        counts.append(max(int(np.sum(each.high > each.low)) for each in boxes_of(ours, wanted, around)))
    return min(counts)


def _searched(
    way: Cut, parts: list[_Part], wanted: Graph, box: Box, error: float, largest: float, place: Array
) -> Compared:
    graphs: tuple[KernelGraph, KernelGraph] = (kernel_graph(way.network), kernel_graph(way.wanted))
    whole, tensors = Interval(box.low, box.high), Tensors()
    pairs, stored = [Pair((0, 0), whole, Upper(np.zeros(len(box.low))))], list[dict[str, Any]]()
    for part, share in zip(parts, _shares(parts, error, box), strict=True):
        read = [pairs[each] for each in part.reads]
        low, high = (np.concatenate([getattr(pair.box, end) for pair in read]) for end in ("low", "high"))
        theirs = part.theirs if part.rewritten is None else part.rewritten
        found = search_cells(kernel_graph(part.ours), kernel_graph(theirs), low, high, part.difference, share)
        if not np.isfinite(found.bound):
            raise CertificateError("no bound was found")
        if len(parts) == 1 and found.largest > largest:
            largest, place = found.largest, found.place
        stored.append({"network": part.nodes[0], "function": part.nodes[1], "reads": list(part.reads), **found.stored})
        if part.rewritten is not None:
            prefix = f"{PROOF}{APPROXIMATES}.{len(stored)}"
            stored[-1]["rewritten"] = graph_data(part.rewritten, tensors, prefix)
        pairs.append(checked_piece(graphs, read, stored[-1], tensors))
    carried: dict[str, Any] = {"pieces": stored}
    if way.wanted is not wanted:
        carried["rewritten"] = graph_data(way.wanted, tensors, f"{PROOF}{APPROXIMATES}")
        check_composition(graphs[0], kernel_graph(wanted), whole, carried, tensors)
    return Compared(way.network, carried, tensors, float(pairs[-1].error.value.max()), largest, place)


def _shares(parts: list[_Part], error: float, box: Box) -> list[float]:
    """The error that each piece is asked for: what it is off by, and its share of what is left."""
    if len(parts) == 1:
        return [error]
    gains, off = [0.0] * len(parts) + [1.0], [0.0]
    rng = np.random.default_rng(1)
    for part in parts:
        gaps = np.abs(part.difference(rng.uniform(part.low, part.high, (MORE, len(part.low)))))
        off.append(float(np.nan_to_num(gaps, posinf=0.0).max()))
    for place in range(len(parts), 0, -1):
        part = parts[place - 1]
        slopes = slopes_of(kernel_graph(part.theirs), Interval(part.low, part.high))[1].magnitude.value.max(axis=0)
        start = 0
        for each in part.reads:
            size = len(box.low) if each == 0 else parts[each - 1].ours.nodes[parts[each - 1].ours.output].size
            gains[each] += gains[place] * float(slopes[start : start + size].max())
            start += size
    left = max(error - sum(gain * each for gain, each in zip(gains, off, strict=True)), 0.05 * error)
    return [off[place] + left / (len(parts) * max(gains[place], 1e-9)) for place in range(1, len(gains))]
