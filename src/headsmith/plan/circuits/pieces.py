"""One token for each affine piece: how a maxout network is laid out over a sequence, so that attention takes the max.

A target of affine, relu, maximum and minimum nodes becomes a graph about k tokens, k the largest number of arguments of
a maximum (a ReLU has two: z and 0). Everything is computed token by token but for the maximum:

    the inputs      come in blocks: token j holds x in block j, and zeros in the others
    a block B_j(v)  is v at token j and zero at the others
    a maximum       of a_0, a_1, ...: the sum z of the B_j(a_j) is a_j at token j; its largest value over the tokens is
                    the maximum y, which every token then has.  Affine maps of blocks are weights; their constants,
                    different for each token, are a table (Positional)
    blocks of y     B_j(y) is fetched by token j from itself, and nothing by the others (Move): the layout is restored

Tokens beyond the number of arguments repeat the first. min(a, ...) = -max(-a, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, Graph, Input, Maximum, Minimum, Relu, once_for_graph
from headsmith.plan.rewrite.fuse import Fusion


@dataclass(frozen=True)
class Pieces:
    """Says that a model has one token for each affine piece."""


Arrangement = Fusion | Pieces | None
"""How a target was rewritten before heads were chosen for it."""


Piece = tuple[int, float] | None
"""sign * (target node), or zero for None."""


@dataclass(frozen=True, eq=False)
class LaidOut:
    """The graph about `tokens` tokens; the nodes of it over which maxima are taken, with the piece that each is at
    every token; and where the target's nodes are that every token has."""

    graph: Graph
    tokens: int
    choosing: dict[int, tuple[Piece, ...]]
    places: dict[int, int]


def tokens_for(target: Graph) -> int:
    """How many tokens a target takes: the largest number of arguments of a maximum, two at least."""
    counts = [2]
    for number in target.used:
        node = target.nodes[number]
        match node:
            case Maximum() | Minimum():
                counts.append(len(node.arguments))
            case Input() | Affine() | Relu():
                pass
            case _:
                raise TargetError(
                    f"recipe 'maxout' takes networks of affine maps, relu, max and min; node {number} is a "
                    f"{type(node).__name__.lower()}"
                )
    return max(counts)


@once_for_graph
def lay_out(target: Graph) -> LaidOut:
    """The target over tokens.

    Guarantee: for inputs in blocks (`in_blocks`), every token's output is the target's, in exact arithmetic.
    """
    return _Layout(target).result()


def in_blocks(inputs: Array, tokens: int) -> Array:
    """Inputs (..., inputs) as sequences (..., tokens, tokens * inputs): token j holds them in block j."""
    size = inputs.shape[-1]
    laid = np.zeros((*inputs.shape[:-1], tokens, tokens * size))
    for token in range(tokens):
        laid[..., token, token * size : (token + 1) * size] = inputs
    return laid


class _Layout:
    def __init__(self, target: Graph) -> None:
        self.target, self.tokens = target, tokens_for(target)
        size = target.input.size
        self.builder = Builder([f"{name}@{token}" for token in range(self.tokens) for name in target.input.names])
        self.inputs = []
        for token in range(self.tokens):
            weights = np.zeros((size, self.tokens * size))
            weights[:, token * size : (token + 1) * size] = np.eye(size)
            self.inputs.append(self.builder.affine([(self.builder.input, weights)], np.zeros(size)))
        self.everywhere: dict[int, int] = {}
        self.blocks: dict[tuple[int, int], int] = {}
        self.choosing: dict[int, tuple[Piece, ...]] = {}

    def result(self) -> LaidOut:
        for number in self.target.used:
            self._place(number)
        output = self._whole(self.target.output)
        graph = self.builder.graph(output)
        return LaidOut(graph, self.tokens, self.choosing, self.everywhere)

    def _place(self, number: int) -> None:
        node = self.target.nodes[number]
        match node:
            case Relu():
                self.everywhere[number] = self._maximum([(node.argument, 1.0), None], node.size)
            case Maximum():
                self.everywhere[number] = self._maximum([(a, 1.0) for a in node.arguments], node.size)
            case Minimum():
                largest = self._maximum([(a, -1.0) for a in node.arguments], node.size)
                self.everywhere[number] = self.builder.affine([(largest, -np.ones(node.size))], np.zeros(node.size))

    def _maximum(self, pieces: Sequence[Piece], size: int) -> int:
        """The largest of the pieces."""
        terms: list[tuple[int, Array]] = []
        shifts = np.zeros((self.tokens, size))
        pieces = [pieces[token] if token < len(pieces) else pieces[0] for token in range(self.tokens)]
        for token, piece in enumerate(pieces):
            if piece is not None:
                for source, weights, shift in self._reads(*piece):
                    if source is None:
                        shifts[token] = shift
                        continue
                    terms.append((self._block(source, token), weights))
        fixed = self.builder.positional(shifts) if shifts.any() else None
        merged = _merged(terms, size)
        node = self.builder.affine(merged, np.zeros(size))
        if fixed is not None:
            node = self.builder.affine([(node, np.ones(size)), (fixed, np.ones(size))], np.zeros(size))
        self.choosing[node] = tuple(pieces)
        return self.builder.pool("max", node)

    def _reads(self, number: int, sign: float) -> list[tuple[int | None, Array, Array]]:
        """sign * node as weights over target nodes that are not affine, and a constant (source None)."""
        node = self.target.nodes[number]
        if not isinstance(node, Affine):
            return [(number, sign * np.ones(node.size), np.zeros(0))]
        if any(isinstance(self.target.nodes[term.node], Affine) for term in node.terms):
            return self._picked(number, node, sign)
        parts: list[tuple[int | None, Array, Array]] = [
            (term.node, sign * term.weights, np.zeros(0)) for term in node.terms
        ]
        return [*parts, (None, np.zeros(0), sign * node.bias)]

    def _picked(self, number: int, node: Affine, sign: float) -> list[tuple[int | None, Array, Array]]:
        """An affine map that picks components of another one, up to signs: exactly its weights. Others are refused,
        because products of weights would be rounded."""
        inner = self.target.nodes[node.terms[0].node]
        weights = np.diag(node.terms[0].weights) if node.terms[0].diagonal else node.terms[0].weights
        picks = np.all(np.count_nonzero(weights, axis=1) <= 1) and np.all(np.isin(weights, (-1.0, 0.0, 1.0)))
        if len(node.terms) > 1 or not isinstance(inner, Affine) or not picks or node.bias.any():
            raise TargetError(
                f"node {number} is an affine map of an affine map: multiply the two out, and compile that network"
            )
        found: list[tuple[int | None, Array, Array]] = []
        for source, read, shift in self._reads(node.terms[0].node, sign):
            if source is None:
                found.append((None, read, weights @ shift))
            else:
                found.append((source, weights @ (np.diag(read) if read.ndim == 1 else read), shift))
        return found

    def _block(self, number: int, token: int) -> int:
        """B_token of a target node that is not affine."""
        if isinstance(self.target.nodes[number], Input):
            return self.inputs[token]
        if (number, token) not in self.blocks:
            targets = [token if place == token else -1 for place in range(self.tokens)]
            self.blocks[number, token] = self.builder.move(self.everywhere[number], targets)
        return self.blocks[number, token]

    def _whole(self, number: int) -> int:
        """The node at every token; the inputs are the sum of their blocks, of which a token has one."""
        if number in self.everywhere:
            return self.everywhere[number]
        node = self.target.nodes[number]
        if isinstance(node, Affine):
            terms = [(self._whole(term.node), term.weights) for term in node.terms]
            self.everywhere[number] = self.builder.affine(terms, node.bias)
            return self.everywhere[number]
        assert isinstance(node, Input)
        ones = np.ones(node.size)
        self.everywhere[number] = self.builder.affine([(block, ones) for block in self.inputs], 0.0 * ones)
        return self.everywhere[number]


def _merged(terms: Sequence[tuple[int, Array]], size: int) -> list[tuple[int, Array]]:
    """Terms of the same node are one: no weights are added, as a block is read for one token only."""
    found: dict[int, Array] = {}
    for node, weights in terms:
        if node in found:
            raise TargetError("one piece of a maximum reads the same node twice: add the weights up first")
        found[node] = weights
    return list(found.items())
