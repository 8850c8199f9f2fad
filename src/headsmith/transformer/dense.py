"""Every matrix written out: what a textbook transformer would store. For small models, tests and exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.transformer.heads.attentions import AttentionKind
from headsmith.transformer.heads.stream import DATA, GRID, POSITION, REFERENCE, Link, position_code
from headsmith.transformer.heads.swiglu import NeuronBank
from headsmith.transformer.ir import Bank, Layer, Transformer, layout, width


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """W_Q and W_K are (heads, d_model, d_head); W_V is (heads, d_model, d_value); W_O is (heads, d_value, d_model). Of
    a layer of neurons, which has no heads, W_gate and W_up are (d_model, neurons), and W_down (neurons, d_model)."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array
    W_gate: Array = field(default_factory=lambda: np.zeros((0, 0)))
    W_up: Array = field(default_factory=lambda: np.zeros((0, 0)))
    W_down: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def neurons(self) -> int:
        """How many neurons there are."""
        return len(self.W_down)

    def __repr__(self) -> str:
        names = ("W_gate", "W_up", "W_down") if self.neurons else ("W_Q", "W_K", "W_V", "W_O")
        shapes = ", ".join(f"{name} {getattr(self, name).shape}" for name in names)
        return f"<DenseLayer: {shapes}>"


@dataclass(frozen=True, eq=False)
class DenseTransformer:
    """A model as a textbook writes it. Its stream X has a row for each token, and d_model columns.

    references                    the rows of the reference tokens, which come first
    x @ W_E + b_E + W_pos[i]      the row of the data token at position i, which holds the inputs x
    layers                        X <- X + sum over heads h of softmax(X W_Q[h] (X W_K[h])^T) X W_V[h] W_O[h];
                                  scores are not divided by anything; of a layer of neurons
                                  X <- X + (silu(X W_gate) * (X W_up)) W_down
    attention                     what stands in place of softmax, if not that (heads/attentions.py)
    X @ W_U + b_U                 the outputs, at the data tokens
    last                          (W, b, V) of a model that ends in softmax(X W + b) V, as some of sampled callables
    columns                       which columns of the stream a register has, by its name
    """

    references: Array
    W_E: Array
    b_E: Array
    W_pos: Array
    layers: tuple[DenseLayer, ...]
    W_U: Array
    b_U: Array
    columns: Mapping[str, slice]
    last: tuple[Array, Array, Array] | None = None
    attention: AttentionKind = "softmax"

    @property
    def d_model(self) -> int:
        """How many columns the stream has."""
        return int(self.W_E.shape[1])

    def __repr__(self) -> str:
        heads = sum(len(layer.W_Q) for layer in self.layers)
        size = (
            f"{len(self.layers)} layers, {heads} heads, d_model {self.d_model}, {len(self.references)} reference tokens"
        )
        return f"<DenseTransformer: {size}; references, W_E, b_E, W_pos, layers[i].W_Q, W_K, W_V, W_O, W_U, b_U>"


def dense(transformer: Transformer) -> DenseTransformer:
    """Write out all matrices of `transformer`, in float64."""
    columns, d_model = layout(transformer), width(transformer)
    references = np.zeros((transformer.reference_tokens, d_model))
    if transformer.sink_tokens:
        references[0, columns[REFERENCE]] = 1.0
    if transformer.grid_tokens:
        references[transformer.sink_tokens :, columns[GRID]] = grid_rows(transformer)
    W_E = np.zeros((transformer.inputs, d_model))
    for link in transformer.embedding:
        _place(transformer, W_E[link.sources, columns[link.register]], matrix(link).T)
    b_E = np.zeros(d_model)
    b_E[columns[DATA]] = 1.0
    for name, value in transformer.initial.items():
        b_E[columns[name]] = value
    W_pos = np.zeros((transformer.tokens, d_model))
    if transformer.tokens > 1:
        W_pos[:, columns[POSITION]] = position_code(transformer.tokens)
    for name, value in transformer.positional.items():
        W_pos[:, columns[name]] = value
    W_U = dense_readout(transformer)
    softmax = transformer.grid_form == "softmax"
    attention = transformer.layers[:-1] if softmax else transformer.layers
    layers = tuple(dense_layer(transformer, layer) for layer in attention)
    bias, last = np.asarray(transformer.readout_bias), None
    if softmax:
        last = last_softmax(transformer)
        W_U = np.zeros_like(W_U)
    return DenseTransformer(references, W_E, b_E, W_pos, layers, W_U, bias, columns, last, transformer.attention)


def dense_readout(transformer: Transformer) -> Array:
    """W_U: what the outputs read."""
    columns = layout(transformer)
    W_U = np.zeros((width(transformer), transformer.outputs))
    for link in transformer.readout:
        place = columns[link.register]
        if place.start < place.stop:  # a model that ends in a softmax holds no outputs in its stream
            _place(transformer, W_U[place, link.reads], matrix(link).T)
    return W_U


def grid_rows(transformer: Transformer) -> Array:
    """What the grid's tokens hold in their register."""
    if transformer.grid_form == "one-hot":
        return np.eye(transformer.grid_tokens)
    bank = transformer.table
    return np.hstack([bank.slope[0], bank.offset.T, bank.values[0]])


def last_softmax(transformer: Transformer) -> tuple[Array, Array, Array]:
    """W, b and V of a model that ends in softmax(X W + b) V: what the table would write is what is read out."""
    bank = transformer.table
    V = np.zeros((len(bank.values[0]), transformer.outputs))
    for link, read in product(bank.write, transformer.readout):
        if link.register == read.register:
            V[:, read.reads] += bank.values[0][:, link.sources] @ matrix(link).T @ matrix(read).T
    return read_matrix(transformer, bank).T @ bank.slope[0].T, np.asarray(bank.offset[0]), V


def dense_layer(transformer: Transformer, layer: Layer) -> DenseLayer:
    """All banks of a layer, padded with zeros to the same widths."""
    if layer.neurons:
        return _neurons(transformer, layer)
    return stacked([_bank(transformer, bank) for bank in layer.banks])


def _neurons(transformer: Transformer, layer: Layer) -> DenseLayer:
    """All neurons of a layer."""
    data, d_model, parts = layout(transformer)[DATA].start, width(transformer), []
    for bank in layer.banks:
        assert isinstance(bank, NeuronBank)
        parts.append(bank.matrices(read_matrix(transformer, bank), write_matrix(transformer, bank), data))
    gate, up, down = zip(*parts, strict=True)
    none, empty = np.zeros((0, d_model, 0)), np.zeros((0, 0, d_model))
    return DenseLayer(none, none, none, empty, np.hstack(gate), np.hstack(up), np.vstack(down))


def stacked(banks: Sequence[DenseLayer]) -> DenseLayer:
    """All heads in one, padded with zeros to the same widths."""
    features = max(bank.W_Q.shape[2] for bank in banks)
    values = max(bank.W_V.shape[2] for bank in banks)
    return DenseLayer(
        W_Q=np.concatenate([_padded(bank.W_Q, 2, features) for bank in banks]),
        W_K=np.concatenate([_padded(bank.W_K, 2, features) for bank in banks]),
        W_V=np.concatenate([_padded(bank.W_V, 2, values) for bank in banks]),
        W_O=np.concatenate([_padded(bank.W_O, 1, values) for bank in banks]),
    )


def _padded(array: Array, axis: int, size: int) -> Array:
    pad = [(0, 0)] * array.ndim
    pad[axis] = (0, size - array.shape[axis])
    return np.pad(array, pad)


def _bank(transformer: Transformer, bank: Bank) -> DenseLayer:
    read, write = read_matrix(transformer, bank), write_matrix(transformer, bank)
    return DenseLayer(*bank.dense(transformer, layout(transformer), read, write))


def read_matrix(transformer: Transformer, bank: Bank) -> Array:
    """The linear forms that a bank reads, as rows: (readers, d_model)."""
    columns = layout(transformer)
    read = np.zeros((bank.readers, width(transformer)))
    for link in bank.read:
        _place(transformer, read[link.reads, columns[link.register]], matrix(link))
    return read


def write_matrix(transformer: Transformer, bank: Bank) -> Array:
    """Where a bank's outputs go, one row for each: (outputs, d_model)."""
    columns = layout(transformer)
    write = np.zeros((bank.outputs, width(transformer)))
    for link in bank.write:
        _place(transformer, write[link.sources, columns[link.register]], matrix(link).T)
    return write


def _place(transformer: Transformer, held: Array, weights: Array) -> None:
    """Add weights to those of a matrix, in place. Where two links meet, their sum must be a number of the model's
    dtype: what is proven is proven of each weight as it is stored."""
    total = held + weights
    exact = (total - held == weights) & (total - weights == held)
    if transformer.dtype != "float64":
        exact &= transformer.held(total) == total
    if not exact.all():
        raise CertificateError("two links meet in one weight of a matrix, which would be rounded: keep them apart")
    held[...] = total


def matrix(link: Link) -> Array:
    """A link's weights as a full matrix (to, from)."""
    return np.diag(link.weights) if link.weights.ndim == 1 else link.weights
