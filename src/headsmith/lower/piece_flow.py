"""Where the values of a model with one token for each affine piece lie.

Of the laid-out graph (`circuits.pieces`) more is known than token by token, because at token j all blocks but block j
are zero: z at token j is one argument of the maximum, so that its range is the hull of theirs, not the sum over all
blocks. What errors do there is the kernel's business (kernel/slopes.py).
"""

from __future__ import annotations

import numpy as np

from headsmith.analysis.flow import flow_of, known_of
from headsmith.analysis.ranges import ranges
from headsmith.circuits.assemble import with_own_output
from headsmith.circuits.pieces import LaidOut, box_in_blocks, lay_out
from headsmith.core.intervals import Box, Interval
from headsmith.lower.approximation import Approximation
from headsmith.source.graph import Graph, Move, Pool


def laid_out_ranges(target: Graph, box: Box, laid: LaidOut) -> tuple[Interval, ...]:
    """The range of every node of the laid-out graph, over all tokens, for inputs in blocks."""
    exact = ranges(target, box)
    found = list(ranges(laid.graph, box_in_blocks(box, laid.tokens)))
    for number, node in enumerate(laid.graph.nodes):
        if number in laid.choosing:
            pieces = [_piece(piece, exact, node.size) for piece in laid.choosing[number].pieces]
            found[number] = Interval(
                np.minimum.reduce([piece.low for piece in pieces]), np.maximum.reduce([piece.high for piece in pieces])
            )
        elif isinstance(node, Pool) and node.argument in laid.choosing:
            pieces = [_piece(piece, exact, node.size) for piece in laid.choosing[node.argument].pieces]
            found[number] = Interval(
                np.maximum.reduce([piece.low for piece in pieces]), np.maximum.reduce([piece.high for piece in pieces])
            )
        elif isinstance(node, Move):
            moved = found[node.argument]
            found[number] = Interval(np.minimum(moved.low, 0.0), np.maximum(moved.high, 0.0))
    for number, place in laid.places.items():
        found[place] = exact[number]
    return tuple(found)


def _piece(piece: tuple[int, float] | None, exact: tuple[Interval, ...], size: int) -> Interval:
    if piece is None:
        return Interval(np.zeros(size), np.zeros(size))
    number, sign = piece
    low, high = sign * exact[number].low, sign * exact[number].high
    return Interval(np.minimum(low, high), np.maximum(low, high))


def approximate_pieces(target: Graph, box: Box) -> tuple[Graph, Approximation]:
    """The laid-out graph as a circuit, with its ranges; nothing is approximated but by its heads."""
    laid = lay_out(target)
    found = laid_out_ranges(target, box, laid)
    circuit = with_own_output(laid.graph)
    if len(circuit.nodes) > len(found):
        found = (*found, found[laid.graph.output])
    return circuit, Approximation(found, {}, flow_of(known_of(circuit, {}), found, {}))
