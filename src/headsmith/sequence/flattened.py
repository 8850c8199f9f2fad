"""A ReLU network of a whole sequence: all numbers of all tokens in, all numbers of all tokens out, no layer wasted.

    n d numbers -> ... -> n e numbers;      token i holds inputs i d to i d + d - 1, outputs i e to i e + e - 1

Layer 1 gathers: one move head for each token copies it to all of them. Then every layer of gates is a layer of heads,
so one hidden layer makes two layers of attention. All tokens then hold the same gates h_k and must return different
sums of them, c_ik h_k. Multiplying by constants of the tokens would take a third layer. Instead the last gates know the
tokens: with M_k >= z_k on the domain,

    relu(z_k - M_k [token i is not in the group G])     is  h_k at the tokens of G, and 0 at the others,

and c_ik h_k is a sum of such gates over groups of tokens that have the same coefficients: one group, and not one gate
more, where all tokens return the same; n groups where all differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.intervals import as_box
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.language.network import Network
from headsmith.plan.analysis.ranges import ranges

ROOM = 1.0 + 1e-9
"""M_k is larger than the bound of z_k by this: sums may be rounded in another order."""


def flattened_graph(network: Network, tokens: int, features: int, domain: Any) -> Graph:
    """The network as a sequence program of `tokens` tokens with so many features each."""
    inputs, outputs = network.layers[0][0].shape[1], network.layers[-1][0].shape[0]
    if inputs != tokens * features or outputs % tokens:
        raise TargetError(
            f"the network maps {inputs} numbers to {outputs}; {tokens} tokens of {features} features are "
            f"{tokens * features}, and each of the {tokens} tokens must get equally many outputs"
        )
    names = [f"x[:, {feature}]" for feature in range(features)]
    builder, each = Builder(names), outputs // tokens
    moved = [builder.move(builder.input, [token] * tokens) for token in range(tokens)]
    (first, bias), *others = network.layers
    terms = [(node, first[:, features * token : features * (token + 1)]) for token, node in enumerate(moved)]
    for weights, constants in others[:-1]:
        terms, bias = [(builder.relu(builder.affine(terms, bias)), weights)], constants
    if not others:
        return _without_gates(builder, terms, bias, tokens)
    last, constants = others[-1]
    coefficients = last.reshape(tokens, each, -1)
    value = builder.affine(terms, bias)
    highest = ranges(builder.graph(value), as_box(domain, names))[value].high
    gate, group = _groups(coefficients)
    most = ROOM * np.maximum(highest, 0.0)[gate]
    different, which = np.unique(np.array(group, dtype=np.float64), axis=0, return_inverse=True)
    terms = [(node, weights[gate]) for node, weights in terms]
    if not different.all():
        terms += [(builder.positional(different.T), most[:, None] * np.eye(len(different))[np.ravel(which)])]
    else:
        most = np.zeros(len(gate))
    hidden = builder.relu(builder.affine(terms, np.asarray(bias)[gate] - most))
    # A group's coefficients are those of its first token.
    shared = np.array([coefficients[int(np.argmax(mine)), :, k] for k, mine in zip(gate, group, strict=True)]).T
    parts = [(hidden, shared.reshape(each, len(gate)))]
    return builder.graph(_with_constants(builder, parts, constants, tokens))


def _groups(coefficients: Array) -> tuple[list[int], list[Array]]:
    """Gates, and for each of them the tokens where it counts: those with the same coefficients, if not all zero."""
    gate: list[int] = []
    group: list[Array] = []
    for k in range(coefficients.shape[2]):
        rows, which = np.unique(coefficients[:, :, k], axis=0, return_inverse=True)
        for place, row in enumerate(rows):
            if row.any():
                gate.append(k)
                group.append(np.ravel(which) == place)
    return (gate, group) if gate else ([0], [np.ones(len(coefficients), dtype=bool)])


def _without_gates(builder: Builder, terms: list[tuple[int, Array]], bias: Array, tokens: int) -> Graph:
    """One pair of weights alone: sums of all tokens, the same for all of them."""
    rows = [weights.reshape(tokens, -1, weights.shape[1]) for _, weights in terms]
    if any(np.any(each != each[:1]) for each in rows):
        raise TargetError("a network without gates that gives every token other sums of all tokens is no program here")
    parts = [(node, each[0]) for (node, _), each in zip(terms, rows, strict=True)]
    return builder.graph(_with_constants(builder, parts, bias, tokens))


def _with_constants(builder: Builder, terms: list[tuple[int, Array]], constants: Array, tokens: int) -> int:
    """Sums, and constants that the tokens have."""
    each = np.asarray(constants).reshape(tokens, -1)
    if np.all(each == each[:1]):
        return builder.affine(terms, each[0])
    return builder.affine([*terms, (builder.positional(each), np.eye(each.shape[1]))], np.zeros(each.shape[1]))
