"""A layer as a textbook computes it, on one sequence: every query, every key, every score of every token, reference
tokens included, from the matrices of transformer/dense.py, in the model's dtype; what 16 bits hold is rounded as in
run/numpy_runner.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.transformer.dense import DenseLayer, grid_rows
from headsmith.transformer.heads.attentions import weights_of
from headsmith.transformer.heads.running import linear
from headsmith.transformer.heads.stream import DATA, GRID, POSITION, REFERENCE, position_code
from headsmith.transformer.heads.swiglu import silu
from headsmith.transformer.ir import Transformer, layout, width


def first_stream(transformer: Transformer, inputs: Any) -> Any:
    """The residual stream (token, column) before the first layer, reference tokens first."""
    columns, prefix, tokens = layout(transformer), transformer.reference_tokens, len(inputs)
    stream = np.zeros((prefix + tokens, width(transformer)), dtype=transformer.arithmetic)
    inputs = transformer.held(inputs)
    stream[prefix:, columns[DATA]] = 1.0
    stream[: transformer.sink_tokens, columns[REFERENCE]] = 1.0
    if transformer.grid_tokens:
        stream[transformer.sink_tokens : prefix, columns[GRID]] = grid_rows(transformer)
    if transformer.tokens > 1:
        stream[prefix:, columns[POSITION]] = position_code(transformer.tokens, tokens)
    for name, value in transformer.positional.items():
        stream[prefix:, columns[name]] = value[:tokens]
    for name, value in transformer.initial.items():
        stream[prefix:, columns[name]] = value
    for link in transformer.embedding:
        stream[prefix:, columns[link.register]] += linear(link, inputs[:, link.sources])
    return transformer.held(stream)


def attended(transformer: Transformer, layer: DenseLayer, stream: Any, causal: bool, first: int = 0) -> tuple[Any, Any]:
    """Where the heads of a layer look, (head, query token, key token), and the stream after it. The tokens before the
    `first` are left as they are, and do not look. A layer of neurons has no heads."""
    heads, held = range(len(layer.W_Q)), transformer.held
    if layer.neurons:
        nowhere = np.zeros((0, len(stream) - first, len(stream)), dtype=stream.dtype)
        return nowhere, held(stream + held(activated(transformer, layer, stream)[2]))
    weights = np.stack([head_pattern(transformer, layer, head, stream, causal, first) for head in heads])
    added = np.zeros_like(stream)
    for head, pattern in enumerate(weights):
        values = held(stream @ held(layer.W_V[head]))
        added[first:] += held(pattern @ values) @ held(layer.W_O[head])
    return weights, held(stream + held(added))


def activated(transformer: Transformer, layer: DenseLayer, stream: Any) -> tuple[Any, Any, Any]:
    """What the gates of a layer of neurons read, what these return, (token, neuron), and what that adds to the stream,
    (token, column)."""
    held = transformer.held
    gates = held(stream @ held(layer.W_gate))
    returned = held(silu(gates) * held(stream @ held(layer.W_up)))
    return gates, returned, returned @ held(layer.W_down)


def head_pattern(
    transformer: Transformer, layer: DenseLayer, head: int, stream: Any, causal: bool, first: int = 0
) -> Any:
    """Where one head looks: (query token, key token). Under elu+1 the mask is causal: reference tokens see no data
    token."""
    held, kind = transformer.held, transformer.attention
    queries, keys = held(stream[first:] @ held(layer.W_Q[head])), held(stream @ held(layer.W_K[head]))
    if kind != "softmax":
        visible = (np.tri(len(stream), dtype=bool) | (not causal and kind != "elu+1"))[first:]
        return weights_of(kind, queries, keys, visible)
    scores = queries @ keys.T
    if causal:
        scores[np.triu_indices(len(scores), 1 + first, scores.shape[1])] = -np.inf
    return shares(scores)


def shares(scores: Any) -> Any:
    """The softmax of each row, in place."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
