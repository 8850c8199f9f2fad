"""A run of a universal model with every intermediate by name, as intermediates.py has them for compiled models.

    embedding / register x                  (token, column), reference tokens first
    layer 1 / gather head 0 / queries       (data token, feature)
    ... / keys, values                      (token, feature or value)
    ... / scores, pattern                   (data token, token): where data tokens look, reference tokens first
    ... / output                            (data token, column of the stream)
    layer 1 / register gathered             (data token, column): what the layer wrote
    layer 2 / table head 0 / pattern
    softmax / pattern                       (data token, answer), for one layer and a softmax
    output                                  (token, output)

What reference tokens collect in layer 1 is read by nobody, and is left out: there may be very many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.intermediates import head_parts
from headsmith.sequence.universal_model import Architecture, Attention, Head, attend, layout, pattern, softmax
from headsmith.transformer.dense import DenseLayer, DenseTransformer, stacked

HEADS = ("gather", "table")
WRITTEN = ("gathered", "out")
"""What heads of the two layers do, and the register that they write."""


def run_with_cache(model: Attention, architecture: Architecture, table: Array) -> tuple[Array, dict[str, Array]]:
    """The output (tokens, outputs) on one sequence (tokens, features), and every intermediate by its name."""
    if table.ndim != 2:
        raise DomainError(f"intermediates are those of one sequence (tokens, features); got shape {table.shape}")
    columns = layout(model.tokens, model.features, model.outputs, architecture)
    data = table @ model.embedding + model.positional
    stream = np.concatenate([model.prefix, data])
    found = {f"embedding / register {name}": stream[:, place] for name, place in columns.items()}
    for number, layer in enumerate(model.layers):
        matrices, state = dense_heads(layer), np.concatenate([model.prefix, data])
        for place, head in enumerate(layer):
            parts = head_parts(matrices, place, state, pattern(head, data, model.prefix, data))
            found |= {f"layer {number + 1} / {HEADS[number]} head {place} / {name}": parts[name] for name in parts}
        data = data + np.sum([attend(head, data, model.prefix, data) for head in layer], axis=0)
        found[f"layer {number + 1} / register {WRITTEN[number]}"] = data[:, columns[WRITTEN[number]]]
    if model.last is None:
        found["output"] = np.asarray(data @ model.readout)
    else:
        found["softmax / pattern"] = softmax(data @ model.last.W + model.last.b)
        found["output"] = np.asarray(found["softmax / pattern"] @ model.last.V)
    return found["output"], found


def dense_heads(layer: Sequence[Head]) -> DenseLayer:
    """A layer's matrices with a leading head axis."""
    return stacked([DenseLayer(head.W_Q[None], head.W_K[None], head.W_V[None], head.W_O[None]) for head in layer])


def dense(model: Attention, architecture: Architecture) -> DenseTransformer:
    """The matrices of a universal model under the names that every kind of model has."""
    columns = layout(model.tokens, model.features, model.outputs, architecture)
    last = None if model.last is None else (model.last.W, model.last.b, model.last.V)
    zeros = np.zeros(model.d_model)
    layers = tuple(dense_heads(layer) for layer in model.layers)
    W_U = model.readout if last is None else np.zeros((model.d_model, model.outputs))
    return DenseTransformer(
        model.prefix, model.embedding, zeros, model.positional, layers, W_U, np.zeros(model.outputs), columns, last
    )
