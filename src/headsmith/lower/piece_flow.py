"""What the kernel proves of a model with one token for each affine piece.

The laid-out graph (`circuits.pieces`) is rebuilt from the target. Two things are known of it that token by token
analysis would forget, because at token j all blocks but block j are zero:

  ranges    z at token j is one argument of the maximum: its range is the hull of theirs, not the sum over all blocks
  errors    what earlier maxima are off by arrives through block j only, so that
                |D z|  <=  max_j |W_j| |D y|  +  sum_j |W_j| (what the move of block j commits)
            and an output that z moves by g is moved by y by at most  (max_j |W_j|)^T |g|,  for each maximum that reads
            y, with the largest of each weight: components of z may pick different tokens
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headsmith.analysis.gains import Far, Gain
from headsmith.analysis.mixing import mixing_shortcuts
from headsmith.analysis.ranges import ranges
from headsmith.analysis.sensitivity import Flow, Shortcut, Slopes
from headsmith.circuits.assemble import with_own_output
from headsmith.circuits.pieces import LaidOut, box_in_blocks, lay_out
from headsmith.core.arrays import Array
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import magnitude_product, upper
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


def approximate_pieces(target: Graph, box: Box) -> tuple[LaidOut, Graph, Approximation]:
    """The laid-out graph as a circuit, with its ranges; nothing is approximated but by its heads."""
    laid = lay_out(target)
    found = laid_out_ranges(target, box, laid)
    circuit = with_own_output(laid.graph)
    if len(circuit.nodes) > len(found):
        found = (*found, found[laid.graph.output])
    return laid, circuit, Approximation(found, {}, mixing_shortcuts(circuit, found), {}, {}, {})


class PieceFlow(Flow):
    """Deviations of a laid-out graph, with what is known of its blocks."""

    def __init__(
        self, graph: Graph, slopes: Mapping[int, Slopes], shortcuts: Mapping[int, Shortcut], laid: LaidOut
    ) -> None:
        super().__init__(graph, slopes, shortcuts)
        self.sums = {choosing.sum: choosing for choosing in laid.choosing.values()}
        self.blocks: dict[int, set[int]] = {}
        for number, node in enumerate(graph.nodes):
            if isinstance(node, Move):
                self.blocks.setdefault(node.argument, set()).add(number)

    def _met(self, number: int) -> list[tuple[int, Interval]]:
        return [] if isinstance(self.graph.nodes[number], Move) else super()._met(number)

    def _known(self, number: int, rest: Gain, found: Mapping[int, Gain]) -> Far | None:
        """Blocks of this node: for each maximum that reads them, the largest weights over the tokens. Components of a
        maximum may pick different tokens, so the largest is taken weight by weight."""
        blocks = self.blocks.get(number)
        if blocks is None:
            return None
        size = np.zeros(rest.here.low.shape)
        for place, choosing in self.sums.items():
            read = {block for sources in choosing.sources for block, _ in sources}
            if place in found and read & blocks:
                shape = (self.graph.nodes[place].size, len(size))
                largest = np.maximum.reduce([_weights(sources, blocks, shape) for sources in choosing.sources])
                size = upper(size + magnitude_product(largest.T, found[place].magnitude), 2)
        return Far(size, size, size)

    def _affine_deviation(self, number: int, known: dict[int, Array], own: Mapping[int, Array]) -> Array:
        if number not in self.sums:
            return super()._affine_deviation(number, known, own)
        choosing = self.sums[number]
        size = self.graph.nodes[number].size
        committed, arriving = np.zeros(size), [np.zeros(size)]
        for sources in choosing.sources:
            mine = np.zeros(size)
            for block, weights in sources:
                node = self.graph.nodes[block]
                arrived = known[node.argument] if isinstance(node, Move) else known[block]
                mine = upper(mine + magnitude_product(weights, arrived), 2)
                if isinstance(node, Move) and block in own:
                    committed = upper(committed + magnitude_product(weights, own[block]), 2)
            arriving.append(mine)
        return np.asarray(upper(np.maximum.reduce(arriving) + committed, 1))


def _weights(sources: tuple[tuple[int, Array], ...], blocks: set[int], shape: tuple[int, int]) -> Array:
    """The sizes of all weights with which one token's piece reads the blocks of a node."""
    total = np.zeros(shape)
    for block, weights in sources:
        if block in blocks:
            total = upper(total + np.abs(np.diag(weights) if weights.ndim == 1 else weights), 1)
    return total
