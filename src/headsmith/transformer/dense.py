"""Every matrix written out: what a textbook transformer would store. For small models, tests and exports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.heads.sink import KEY, SinkBank, feature_count
from headsmith.heads.stream import DATA, POSITION, REFERENCE, Link, position_bits, position_code
from headsmith.transformer.ir import Transformer, layout, width


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """W_Q and W_K are (heads, d_model, d_head); W_V is (heads, d_model, d_value); W_O is (heads, d_value, d_model)."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array


@dataclass(frozen=True, eq=False)
class DenseTransformer:
    """The stream starts as `reference` on the first token and x @ W_E + b_E + W_pos[position] on data tokens."""

    reference: Array
    W_E: Array
    b_E: Array
    W_pos: Array
    layers: tuple[DenseLayer, ...]
    W_U: Array
    b_U: Array


def dense(transformer: Transformer) -> DenseTransformer:
    """Write out all matrices of `transformer`, in float64."""
    columns, d_model = layout(transformer), width(transformer)
    reference = np.zeros(d_model)
    reference[columns[REFERENCE]] = 1.0
    W_E = np.zeros((transformer.inputs, d_model))
    for link in transformer.embedding:
        W_E[link.sources, columns[link.register]] += _matrix(link).T
    b_E = np.zeros(d_model)
    b_E[columns[DATA]] = 1.0
    for name, value in transformer.initial.items():
        b_E[columns[name]] = value
    W_pos = np.zeros((transformer.tokens, d_model))
    if transformer.tokens > 1:
        W_pos[:, columns[POSITION]] = position_code(transformer.tokens)
    W_U = np.zeros((d_model, transformer.outputs))
    for link in transformer.readout:
        W_U[columns[link.register], link.reads] += _matrix(link).T
    layers = []
    for layer in transformer.layers:
        banks = [_sink(transformer, bank) for bank in layer.banks]
        layers.append(
            DenseLayer(
                W_Q=np.concatenate([bank.W_Q for bank in banks]),
                W_K=np.concatenate([bank.W_K for bank in banks]),
                W_V=np.concatenate([bank.W_V for bank in banks]),
                W_O=np.concatenate([bank.W_O for bank in banks]),
            )
        )
    return DenseTransformer(reference, W_E, b_E, W_pos, tuple(layers), W_U, np.asarray(transformer.readout_bias))


def _sink(transformer: Transformer, bank: SinkBank) -> DenseLayer:
    columns, d_model = layout(transformer), width(transformer)
    features, bits = feature_count(transformer.tokens), position_bits(transformer.tokens)
    read = np.zeros((bank.heads, d_model))
    for link in bank.read:
        read[link.reads, columns[link.register]] += _matrix(link)
    write = np.zeros((bank.heads, d_model))
    for link in bank.write:
        write[link.sources, columns[link.register]] += _matrix(link).T
    W_Q = np.zeros((bank.heads, d_model, features))
    W_K = np.zeros((bank.heads, d_model, features))
    data, reference = columns[DATA], columns[REFERENCE]
    W_Q[:, :, 0] = read * bank.query_scale[:, None]
    W_K[:, data, 0] = bank.key_scale[:, None]
    W_Q[:, reference, 1] = bank.reference_gain / KEY
    W_K[:, reference, 1] = KEY
    if transformer.tokens > 1:
        first = columns[POSITION].start
        for bit in range(bits):
            W_Q[:, first + bit, 2 + bit] = bank.position_gain / 2.0 / KEY
            W_K[:, first + bit, 2 + bit] = KEY
        W_Q[:, data, 2 + bits] = KEY
        W_K[:, data, 2 + bits] = -bank.position_gain * bits / 2.0 / KEY
    return DenseLayer(W_Q, W_K, read[:, :, None], write[:, None, :])


def _matrix(link: Link) -> Array:
    return np.diag(link.weights) if link.weights.ndim == 1 else link.weights
