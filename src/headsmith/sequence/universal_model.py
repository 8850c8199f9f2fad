"""A sampled callable as a graph and a transformer: gather the tokens, then look up the answer.

The graph, of n tokens with d features each, D = n d:

    x - middle of its domain      moved from each token j to all of them      the whole input, at every token
    t = scale (x - middle)        the input in steps of a grid, D numbers
    place                         a code that tells tokens apart
    sampled(t, place)             any function with the stated bound and the sampled answers

The transformer. Layer 1 has one move head for each token j, which copies x less its middle from there to all tokens.
Layer 2 has one table head; its n p^D reference tokens are the nodes of the grid, once for each token:

    score of node g for token i      2 c g . t - c |g|^2 - b (bits in which i differs from the node's token)
    value                            the answer

where the last term, up to what all nodes share, is -b times the sum of the entries of i's position code (+1, -1) at
those bits that are set for the node's token.

All tokens gather the same input and must answer differently. The cheapest way is to let the place be one more
coordinate of the grid: n blocks of reference tokens, and a bonus for one's own. It needs one head and no further layer;
n heads of which all but one look at a sink cost as many scores and more heads; a mask on n e outputs is a product, and
no linear map. A single token needs no gathering, and no layer for it.

The other architecture ends in softmax(X W + b) V with the same scores and answers: no reference tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph, Move, Sampled
from headsmith.plan.analysis.smoothness import Lipschitz
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.stream import DATA, Link, Register, position_bits, position_code
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import GridForm, Layer, Transformer, reserved_registers

APART, LEAST_APART = 60.0, 36.0
"""By how much the nodes of other blocks score less: so much for all bits, but no less than that for each."""
SILENT = 38.0
"""How far silent tokens stay below the others: e^-38 is below the unit roundoff."""
GATHERED = 60.0
"""The score of the token that a move fetches from."""

Architecture = Literal["two layers", "one layer and a softmax"]
FORMS: dict[Architecture, GridForm] = {"two layers": "rows", "one layer and a softmax": "softmax"}


def sampled_graph(
    middle: Array, scale: Array, answers: Array, stated: Lipschitz, evaluation: float, tokens: int
) -> Graph:
    """What is claimed. `answers` are (tokens, p_1, ..., p_D, outputs)."""
    features = len(scale) // tokens
    builder, every = Builder([f"x[:, {feature}]" for feature in range(features)]), range(tokens)
    middles = middle.reshape(tokens, features)
    centred = [builder.affine([(builder.input, np.ones(features))], -middles[token]) for token in every]
    if tokens > 1:
        moved = [builder.move(centred[token], [token] * tokens) for token in every]
        places = [builder.positional(position_code(tokens))]
    else:
        moved, places = centred, []
    blocks = np.split(np.diag(scale), tokens, axis=1)
    steps = builder.affine(list(zip(moved, blocks, strict=True)), np.zeros(len(scale)))
    node = Sampled((steps, *places), answers, stated.constants, scale, stated.norm, float(evaluation))
    outputs = node.size
    return builder.graph(builder.affine([(builder.add(node), np.ones(outputs))], np.zeros(outputs)))


def transformer_of(graph: Graph, width: float, architecture: Architecture) -> Transformer:
    """The model of such a graph; `width` is c."""
    (number,) = (place for place, node in enumerate(graph.nodes) if isinstance(node, Sampled))
    node = graph.nodes[number]
    assert isinstance(node, Sampled)
    tokens, outputs, size = len(node.answers), node.size, len(node.scale)
    features, bits = size // tokens, position_bits(tokens)
    middles = -np.array([graph.nodes[1 + token].bias for token in range(tokens)])  # type: ignore[union-attr]
    grid = node.answers.size // outputs
    registers = [*reserved_registers(tokens, grid), Register("x", features)]
    moves = [place for place, each in enumerate(graph.nodes) if isinstance(each, Move)]
    banks = []
    for token, place in enumerate(moves):
        mine = np.eye(size)[:, token * features : (token + 1) * features]
        banks.append(
            MoveBank(
                node=np.full(features, place),
                component=np.arange(features),
                read=_centred(np.ones(features), middles[token]),
                write=(Link("gathered", mine, 0),),
                address=token,
                gain=max(GATHERED / bits, 25.0),
                keep_gain=1.0,
            )
        )
    if moves:
        registers += [Register("place", bits), Register("gathered", size)]
        read: tuple[Link, ...] = (Link("gathered", node.scale, 0), Link("place", np.ones(bits), size))
    else:
        read = _centred(node.scale, middles[0])
    slope, offset, lowest = _keys(node, width, bits)
    table = TableBank(
        node=np.full(outputs, number),
        component=np.arange(outputs),
        read=read,
        write=(Link("out", np.ones(outputs), 0),),
        slope=slope[None],
        offset=offset[None],
        values=node.answers.reshape(1, grid, outputs),
        gain=SILENT + lowest,
        keep_gain=1.0,
    )
    return Transformer(
        inputs=features,
        outputs=outputs,
        tokens=tokens,
        dtype="float64",
        registers=(*registers, Register("out", outputs)),
        embedding=(Link("x", np.ones(features), 0),),
        initial={},
        layers=(*([Layer(tuple(banks))] if banks else []), Layer((table,))),
        readout=(Link("out", np.ones(outputs), 0),),
        readout_bias=np.zeros(outputs),
        positional={"place": position_code(tokens)} if moves else {},
        grid_form=FORMS[architecture],
    )


def _centred(weights: Array, middle: Array) -> tuple[Link, ...]:
    """weights (x - middle), as a read."""
    off = -(weights * middle)[:, None]
    return (Link("x", weights, 0), *((Link(DATA, off, 0),) if off.any() else ()))


def _keys(node: Sampled, width: float, bits: int) -> tuple[Array, Array, float]:
    """Slopes and offsets of the grid's tokens, and how far below zero the best of them may score."""
    tokens, counts = len(node.answers), node.counts
    nodes = points_of([np.arange(float(count)) - (count - 1) / 2.0 for count in counts])
    codes = np.zeros((1, 0))
    if bits:
        codes = (position_code(tokens) < 0.0).astype(np.float64)
        codes *= -max(APART / codes.sum(axis=1).max(), LEAST_APART)
    slope = np.hstack([np.tile(2.0 * width * nodes, (tokens, 1)), np.repeat(codes, len(nodes), axis=0)])
    offset = np.tile(-width * (nodes**2).sum(axis=1), tokens)
    # A node in the middle scores 0, or at least -c (p/2 + 1/4) where there is none.
    lowest = sum(width * (count / 2.0 + 0.25) for count in counts if count % 2 == 0)
    return slope, offset, lowest


def points_of(axes: Sequence[Array]) -> Array:
    """All points (nodes, D) of a tensor grid, the last coordinate fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
