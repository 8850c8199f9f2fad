"""Zigzags: exponentially many linear regions, built and counted.

The zigzag of P pieces runs from 0 up to 1, down to 0, ... on [0, 1], with slope +-P and kinks at i/P. It takes [0, 1]
onto itself P times, so composed L times it has P^L pieces. Its convex kinks are at the even i, its concave ones at the
odd i: it is g - h with g and h convex, and so maxima of affine pieces, of which each kink adds one:

    g(x) = max_j (2j + 1) P x - 2 j (j + 1),    j = 0 .. floor((P - 1)/2)
    h(x) = max_j 2j P x - 2 j^2,                j = 0 .. ceil((P - 1)/2)

A hardmax head takes the largest of one affine piece for each token. So two heads and ceil((P - 1)/2) + 1 tokens make
one zigzag, for each coordinate. H heads of T tokens have at most 1 + H (T - 1) pieces (each of the H maxima has T - 1
kinks): with P odd and H = 2 that is P. More heads share the kinks, and then need fewer tokens. All the numbers above
are integers: floating-point weights hold them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.lab.regions.enumeration import regions
from headsmith.lab.regions.levels import Level, Levels, relu_level

Piece = tuple[float, float]
"""Slope and constant."""


@dataclass(frozen=True)
class ZigzagBlock:
    """A function of one coordinate as a signed sum of maxima: sum over heads of sign * max over its pieces."""

    heads: tuple[tuple[float, tuple[Piece, ...]], ...]
    relu: bool = False

    @property
    def tokens(self) -> int:
        return max(len(pieces) for _, pieces in self.heads)


def attention_block(pieces: int, heads: int = 2) -> ZigzagBlock:
    """The zigzag of `pieces` pieces by `heads` hardmax heads; half of them take convex kinks, half concave ones."""
    if pieces < 2 or heads < 2 or heads % 2:
        raise TargetError(
            f"a zigzag of {pieces} pieces by {heads} heads: it takes 2 pieces and an even number of heads"
        )
    found: list[tuple[float, tuple[Piece, ...]]] = []
    for sign, kinks in ((1.0, range(2, pieces, 2)), (-1.0, range(1, pieces, 2))):
        for part in np.array_split(np.array(kinks, dtype=np.int64), heads // 2):
            # The first convex head also carries the slope P of the first piece.
            base = float(pieces) if sign > 0 and not any(s > 0 for s, _ in found) else 0.0
            found.append((sign, _max_affine(base, part.tolist(), pieces)))
    return ZigzagBlock(tuple(found))


def _max_affine(slope: float, kinks: Sequence[int], pieces: int) -> tuple[Piece, ...]:
    """The convex function that starts with slope * x and gains slope 2P at each kink i/P."""
    found, constant = [(slope, 0.0)], 0.0
    for kink in kinks:
        slope, constant = slope + 2.0 * pieces, constant - 2.0 * kink
        found.append((slope, constant))
    return tuple(found)


def feed_forward_block(pieces: int) -> ZigzagBlock:
    """The same zigzag by a ReLU block of width P: P relu(x) +- 2P relu(x - i/P), as relu(P x) and relu(2 P x - 2 i)."""
    first = (1.0, ((0.0, 0.0), (float(pieces), 0.0)))
    others = [(1.0 if kink % 2 == 0 else -1.0, ((0.0, 0.0), (2.0 * pieces, -2.0 * kink))) for kink in range(1, pieces)]
    return ZigzagBlock((first, *others), relu=True)


def composed(blocks: Sequence[ZigzagBlock], inputs: int = 1) -> Levels:
    """The blocks one after the other, in each coordinate for itself; the outputs are the coordinates."""
    levels, reader, names = [], np.eye(inputs), tuple(f"x{i}" for i in range(inputs))
    for block in blocks:
        levels.append(_level(block, reader))
        reader = _reader(block, inputs)
    return Levels(names, tuple(levels), frozen(reader), frozen(np.zeros(inputs)))


def _level(block: ZigzagBlock, reader: Array) -> Level:
    """The block on every coordinate; the coordinates are `reader` @ state."""
    if block.relu:
        slopes = np.array([pieces[1] for _, pieces in block.heads])
        return relu_level(
            np.concatenate([np.outer(slopes[:, 0], row) for row in reader]), np.tile(slopes[:, 1], len(reader))
        )
    weights, bias, unit = [], [], []
    for coordinate, row in enumerate(reader):
        for number, (_, pieces) in enumerate(block.heads):
            weights += [slope * row for slope, _ in pieces]
            bias += [constant for _, constant in pieces]
            unit += [coordinate * len(block.heads) + number] * len(pieces)
    return Level(np.array(weights), np.array(bias), np.arange(len(bias)), np.array(unit), np.zeros(0, dtype=np.int64))


def _reader(block: ZigzagBlock, inputs: int) -> Array:
    """The coordinates as signed sums of the block's heads."""
    signs = np.array([sign for sign, _ in block.heads])
    return np.kron(np.eye(inputs), signs)


@dataclass(frozen=True)
class Growth:
    """One row of the table: what was built, what it costs for each layer and coordinate, what was counted."""

    layout: str
    pieces: int
    inputs: int
    depth: int
    heads: int
    tokens: int
    gates: int
    regions: int
    closed_form: int


def growth(pieces: int, depth: int, inputs: int = 1, heads: int = 2, layout: str = "attention") -> Growth:
    """Build, enumerate and count `depth` layers.

    `layout` is "attention", "feed-forward", or "both": attention and then a feed-forward block in every layer, each a
    zigzag, so that a layer multiplies by P^2.
    """
    attention, forward = attention_block(pieces, heads), feed_forward_block(pieces)
    layer = {"attention": [attention], "feed-forward": [forward], "both": [attention, forward]}[layout]
    found = regions(composed(layer * depth, inputs), (0.0, 1.0))
    return Growth(
        layout,
        pieces,
        inputs,
        depth,
        heads if attention in layer else 0,
        attention.tokens if attention in layer else 0,
        pieces if forward in layer else 0,
        found.count("linear"),
        pieces ** (len(layer) * depth * inputs),
    )
