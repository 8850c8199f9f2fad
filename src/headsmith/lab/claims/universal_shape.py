"""A sequence-to-sequence function at the shape of the authors' experiment: n = 20 tokens of 5 numbers, 10 hidden ReLUs.

    Y = A relu(W vec(X) + b),      drawn once; rows of W have the 1-norm 0.9, so that |W vec(X) + b| <= 1 on [-1, 1]

Certified: the network compiled for the whole sequence (sequence/flattened.py), two layers of attention. Against heads
and tokens: the same function by interpolation alone, as the lemma of ramps has it (heads/ramp.py), with the data tokens
themselves as the grid and H heads for each gate and group of tokens. What runs here is textbook attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.network import Network
from headsmith.transformer.dense import DenseLayer, DenseTransformer
from headsmith.transformer.heads.ramp import WIDTH, ramp_error, ramp_table

TOKENS, FEATURES, HIDDEN = 20, 5, 10
GATHERED = 60.0
"""By how much the token that a head fetches from scores more than others."""
SILENT = 2.0
"""By how much gates of other tokens are moved down: their arguments end below -1 then."""


@dataclass(frozen=True, eq=False)
class ExperimentShape:
    """The function, with its weights by token: W (hidden, tokens, features), b (hidden), A (tokens, features,
    hidden)."""

    W: Array
    b: Array
    A: Array

    @property
    def network(self) -> Network:
        """It as a network of all numbers."""
        hidden, tokens, features = self.W.shape
        zeros = np.zeros(tokens * features)
        return Network([(self.W.reshape(hidden, -1), self.b), (self.A.reshape(-1, hidden), zeros)])

    def __call__(self, X: Array) -> Array:
        """(..., tokens, features) -> (..., tokens, features), from the weights, and by nothing of ours."""
        inner = np.einsum("kij,...ij->...k", self.W, X) + self.b
        return np.asarray(np.einsum("iok,...k->...io", self.A, np.maximum(inner, 0.0)))


def shape_of(tokens: int = TOKENS, seed: int = 0) -> ExperimentShape:
    """Drawn once: rows of W have the 1-norm 0.9, so that with b arguments stay within [-1, 1]."""
    random = np.random.default_rng(seed)
    W = random.normal(size=(HIDDEN, tokens, FEATURES))
    W *= 0.9 / np.abs(W).sum(axis=(1, 2), keepdims=True)
    b = random.uniform(-0.1, 0.1, HIDDEN)
    return ExperimentShape(W, b, random.normal(size=(tokens, FEATURES, HIDDEN)) / np.sqrt(HIDDEN))


def beside_kinks(shape: ExperimentShape, each: int = 12, seed: int = 1) -> Array:
    """Sequences at which some gate's argument is near zero, at distances from 1e-9 to 0.3; and random ones."""
    random = np.random.default_rng(seed)
    hidden, tokens, features = shape.W.shape
    points = [*random.uniform(-1.0, 1.0, (2 * each, tokens, features))]
    for k in range(hidden):
        away = np.geomspace(1e-9, 0.3, each) * random.choice([-1.0, 1.0], each)
        for distance in away:
            X = random.uniform(-0.9, 0.9, (tokens, features))
            off = float(np.sum(shape.W[k] * X)) + shape.b[k] - distance
            X = X - off * shape.W[k] / float(np.sum(shape.W[k] ** 2))
            points.append(np.clip(X, -1.0, 1.0))
    return np.array(points)


def interpolating(shape: ExperimentShape, heads: int) -> DenseTransformer:
    """Two layers: one move head a token; then `heads` ramp heads for each gate and token, over the data tokens."""
    hidden, tokens, features = shape.W.shape
    one, x, place, gathered = 0, 1, 1 + features, 1 + features + tokens
    out = gathered + tokens * features
    width = out + features
    rows = np.arange(tokens)
    W_Q, W_K, W_V, W_O = (np.zeros(each) for each in _sizes(tokens, width, 1, features))
    W_Q[:, one, 0] = GATHERED
    W_K[rows, place + rows, 0] = 1.0
    W_V[:, x + np.arange(features), np.arange(features)] = 1.0
    for token in range(tokens):
        W_O[token, np.arange(features), gathered + token * features + np.arange(features)] = 1.0
    gather = DenseLayer(W_Q, W_K, W_V, W_O)
    count = hidden * tokens * heads
    W_Q, W_K, W_V, W_O = (np.zeros(each) for each in _sizes(count, width, 2, features))
    slope, offset, values = ramp_table(0.0, 1.0, tokens, heads)
    for number in range(count):
        k, token, part = number // (tokens * heads), number // heads % tokens, number % heads
        W_Q[number, gathered:out, 0] = shape.W[k].ravel()
        W_Q[number, one, 0] = shape.b[k] - SILENT
        W_Q[number, place + token, 0] = SILENT
        W_Q[number, one, 1] = 1.0
        W_K[number, place + rows, 0], W_K[number, place + rows, 1] = slope[part, :, 0], offset[part]
        W_V[number, place + rows] = np.outer(values[part, :, 0], shape.A[token, :, k])
        W_O[number, np.arange(features), out + np.arange(features)] = 1.0
    W_E, b_E, W_pos = np.eye(features, width, x), np.eye(1, width)[0], np.eye(tokens, width, place)
    W_U = np.eye(width)[:, out:]
    layers = (gather, DenseLayer(W_Q, W_K, W_V, W_O))
    return DenseTransformer(np.zeros((0, width)), W_E, b_E, W_pos, layers, W_U, np.zeros(features), {})


def _sizes(heads: int, width: int, features: int, values: int) -> tuple[tuple[int, int, int], ...]:
    both = (heads, width, features)
    return both, both, (heads, width, values), (heads, values, width)


def without_attention(shape: ExperimentShape, heads: int, X: Array) -> Array:
    """What the formula alone gives for one sequence: each part of a ramp is a Gaussian mean over its grid."""
    inner = (np.einsum("kij,ij->k", shape.W, X) + shape.b)[:, None]
    ends, total = np.linspace(0.0, 1.0, heads + 1), np.zeros(len(inner))
    for low, high in pairwise(ends):
        grid = np.linspace(low, high, len(shape.A))
        total = total + shares(-WIDTH * ((inner - grid) / (grid[1] - grid[0])) ** 2) @ (grid - low)
    return np.asarray(shape.A @ total)


def lemma(shape: ExperimentShape, heads: int) -> float:
    """What interpolation errs by, at most: each gate by ramp_error steps of its grid, the others, at the tokens that
    are not theirs, by less than rounding."""
    tokens = len(shape.A)
    step = 1.0 / ((tokens - 1) * heads)
    return float(np.abs(shape.A).sum(axis=2).max() * ramp_error(tokens, heads=heads) * step)


def textbook(written: DenseTransformer, X: Array, softmax_last: bool = False) -> Array:
    """Textbook attention from the matrices alone: (sequences, tokens, inputs) -> (sequences, tokens, outputs).

    With `softmax_last` the last layer is no attention: every data token takes softmax(x W + b) V of its own row x, with
    W and V made of the reference tokens, which are constants.
    """
    data = X @ written.W_E + written.b_E + written.W_pos[: X.shape[1]]
    references = np.broadcast_to(written.references, (len(X), *written.references.shape))
    stream, prefix = np.concatenate([references, data], axis=1), len(written.references)
    for number, layer in enumerate(written.layers):
        rows = stream[:, :prefix] if softmax_last and number + 1 == len(written.layers) else stream
        more = np.zeros_like(stream)
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            scores = (stream @ W_Q) @ (rows @ W_K).transpose(0, 2, 1)
            more += shares(scores) @ (rows @ W_V) @ W_O
        stream = stream + more
    data = stream[:, prefix:]
    if written.last is not None:
        W, b, V = written.last
        return np.asarray(shares(data @ W + b) @ V)
    return np.asarray(data @ written.W_U + written.b_U)


def shares(scores: Array) -> Array:
    """The softmax along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def figures(written: DenseTransformer) -> dict[str, Any]:
    """Layers and heads, as written."""
    return {"layers": len(written.layers), "heads": sum(len(layer.W_Q) for layer in written.layers)}
