"""The linear pieces of hardmax attention, counted from its own matrices, along one input.

On a piece every entry of the stream is affine in the input x: a constant and a slope, which are exact fractions. Where
keys or queries of a head are constant, its scores are affine, too. Then every query looks at the keys with the largest
score, and that changes where lines cross: the piece is cut there, exactly, and the stream goes on on each part. In the
end neighbours with the same output are one piece. Nothing is rounded, and nothing is known of what the model is for.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.transformer.dense import DenseLayer, DenseTransformer

Line = tuple[Fraction, Fraction]
"""A constant and a slope."""


def pieces_of(model: DenseTransformer, inputs: Any, low: float, high: float) -> list[tuple[Fraction, Fraction, Any]]:
    """The pieces [from, to] of the first output at the first data token, each with its constant and slope.

    `inputs` (tokens, inputs) says which multiple of x each input is. Every token sees all.
    """
    prefix, tokens = len(model.references), len(inputs)
    slope = np.concatenate([np.zeros_like(model.references), np.asarray(inputs) @ model.W_E])
    constant = np.concatenate([model.references, np.broadcast_to(model.b_E, (tokens, model.d_model))])
    constant[prefix:] += model.W_pos[:tokens]
    found = [(Fraction(low), Fraction(high), _exact(np.stack([constant, slope])))]
    for layer in model.layers:
        matrices = [[_exact(each) for each in head] for head in _heads(layer)]
        found = [part for piece in found for part in _through(matrices, *piece)]
    readout, bias = _exact(model.W_U[:, :1]), Fraction(float(model.b_U[0]))
    merged: list[tuple[Fraction, Fraction, Any]] = []
    for start, end, stream in found:
        line = stream[0, prefix] @ readout + bias, stream[1, prefix] @ readout
        told = (line[0][0], line[1][0])
        if merged and merged[-1][2] == told:
            merged[-1] = merged[-1][0], end, told
        else:
            merged.append((start, end, told))
    return merged


def _heads(layer: DenseLayer) -> list[tuple[Any, ...]]:
    """W_Q, W_K, W_V and W_O of each head, without columns that are zero."""
    found = []
    for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
        features, values = W_Q.any(axis=0) & W_K.any(axis=0), W_V.any(axis=0) & W_O.any(axis=1)
        found.append((W_Q[:, features], W_K[:, features], W_V[:, values], W_O[values]))
    return found


def _exact(values: Any) -> Any:
    """Doubles as fractions, in an array of objects."""
    flat = [Fraction(float(each)) for each in np.asarray(values).reshape(-1)]
    return np.array([*flat, None], dtype=object)[:-1].reshape(np.shape(values))


def _through(heads: Any, low: Fraction, high: Fraction, stream: Any) -> list[tuple[Fraction, Fraction, Any]]:
    """What a layer makes of a piece: one or several."""
    scored, cuts = [], {low, high}
    for W_Q, W_K, W_V, W_O in heads:
        queries, keys = stream @ W_Q, stream @ W_K
        if np.any((queries[1] != 0) @ (keys[1] != 0).T):
            raise TargetError("a score is no affine function of the input: there are no linear pieces to count")
        scores = queries[0] @ keys[0].T, queries[0] @ keys[1].T + queries[1] @ keys[0].T
        for constants, slopes in zip(*scores, strict=True):
            cuts |= set(_envelope([*zip(constants, slopes, strict=True)], low, high))
        scored.append((scores, stream @ W_V, W_O))
    found = []
    for start, end in pairwise(sorted(cuts)):
        middle, after = (start + end) / 2, stream.copy()
        for (constants, slopes), values, W_O in scored:
            heights = constants + slopes * middle
            chosen = heights == heights.max(axis=1)[:, None]
            shares = _exact(np.ones(len(chosen))) / chosen.sum(axis=1)
            weights = chosen * shares[:, None]
            after = after + np.stack([weights @ values[0] @ W_O, weights @ values[1] @ W_O])
        found.append((start, end, after))
    return found


def _envelope(lines: list[Line], low: Fraction, high: Fraction) -> list[Fraction]:
    """Where the largest of several lines changes, between `low` and `high`: at the line with the largest slope of those
    that are largest now, look for the first crossing."""
    lines, at = list(set(lines)), low
    found: list[Fraction] = []
    current = max(lines, key=lambda line: (line[0] + line[1] * at, line[1]))
    while True:
        crossings = [((current[0] - line[0]) / (line[1] - current[1]), line) for line in lines if line[1] > current[1]]
        later = [(place, line[1], line) for place, line in crossings if at <= place < high]
        if not later:
            return found
        first = min(place for place, _, _ in later)
        at, current = first, max((line for place, _, line in later if place == first), key=lambda line: line[1])
        if at > low:
            found.append(at)
