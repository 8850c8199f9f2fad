"""The default runner: softmax attention in numpy, in the model's dtype, over batches of token sequences.

It evaluates the transformer and nothing else: scores from queries and keys, softmax over all tokens (or over the
earlier ones), weighted values, output maps added to the residual stream. It only avoids multiplying by zeros: registers
are kept apart, and the scores that all heads of a bank share (position code, reference token) are computed once. Memory
stays bounded: attention goes chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.heads.sink import KEY, SinkBank
from headsmith.heads.stream import DATA, POSITION, REFERENCE, Link, position_bits, position_code
from headsmith.transformer.ir import Transformer

CHUNK = 1 << 18
"""How many scores are held at once."""

Stream = dict[str, Any]
"""The residual stream: for each register an array (batch, token, column); token 0 is the reference token."""

Observer = Callable[[int, slice, slice, Any], None]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The attention of one layer on one sequence: weights[head, query token, key token]."""

    layer: int
    weights: Any


def run(transformer: Transformer, inputs: Any, *, causal: bool = False) -> Any:
    """The model's output (batch, tokens, outputs) on `inputs` (batch, tokens, inputs), in the model's dtype."""
    batch, tokens, _ = inputs.shape
    rows = max(1, CHUNK // max(1, max((layer.heads for layer in transformer.layers), default=1) * (tokens + 1) ** 2))
    parts = [_run(transformer, inputs[start : start + rows], causal) for start in range(0, batch, rows)]
    if not parts:
        return np.zeros((0, tokens, transformer.outputs), dtype=transformer.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def patterns(transformer: Transformer, inputs: Any, *, causal: bool = False) -> list[Pattern]:
    """The attention weights of every layer on one sequence `inputs` (tokens, inputs)."""
    size = inputs.shape[0] + 1
    found = [Pattern(number, np.zeros((layer.heads, size, size))) for number, layer in enumerate(transformer.layers)]

    def observe(number: int, heads: slice, queries: slice, weights: Any) -> None:
        found[number].weights[heads, queries, :] = weights

    _run(transformer, inputs[None], causal, observe)
    return found


def _run(transformer: Transformer, inputs: Any, causal: bool, observe: Observer | None = None) -> Any:
    stream = embed(transformer, inputs)
    for number, layer in enumerate(transformer.layers):
        first, updates = 0, []
        for bank in layer.banks:
            updates.append((bank, _sink_outputs(transformer, bank, stream, causal, number, first, observe)))
            first += bank.heads
        for bank, outputs in updates:
            for link in bank.write:
                stream[link.register] = stream[link.register] + _linear(link, outputs[..., link.sources])
    result = np.zeros((*inputs.shape[:2], transformer.outputs), dtype=transformer.dtype)
    for link in transformer.readout:
        result[..., link.reads] += _linear(link, stream[link.register][:, 1:])
    return result + transformer.readout_bias.astype(transformer.dtype)


def embed(transformer: Transformer, inputs: Any) -> Stream:
    """The stream before the first layer."""
    batch, tokens, _ = inputs.shape
    dtype = np.dtype(transformer.dtype)
    inputs = inputs.astype(dtype)
    stream: Stream = {}
    for register in transformer.registers:
        stream[register.name] = np.zeros((batch, tokens + 1, register.size), dtype=dtype)
    stream[DATA][:, 1:] = 1.0
    stream[REFERENCE][:, 0] = 1.0
    if transformer.tokens > 1:
        stream[POSITION][:, 1:] = position_code(transformer.tokens)[:tokens]
    for name, value in transformer.initial.items():
        stream[name][:, 1:] += value.astype(dtype)
    for link in transformer.embedding:
        stream[link.register][:, 1:] += _linear(link, inputs[..., link.sources])
    return stream


def _sink_outputs(
    transformer: Transformer,
    bank: SinkBank,
    stream: Stream,
    causal: bool,
    number: int,
    first: int,
    observe: Observer | None,
) -> Any:
    dtype = np.dtype(transformer.dtype)
    batch, size, _ = stream[DATA].shape
    values = np.zeros((batch, size, bank.heads), dtype=dtype)
    for link in bank.read:
        values[..., link.reads] += _linear(link, stream[link.register])
    slopes = values * bank.query_scale.astype(dtype)
    keys = stream[DATA] * bank.key_scale.astype(dtype)
    shared = _shared_scores(transformer, bank, stream, causal)
    outputs = np.empty_like(values)
    for heads, queries in _chunks(batch, bank.heads, size):
        # The leading axis runs over key tokens: weights[key token, sequence, query token, head].
        weights = slopes[None, :, queries, heads] * keys.transpose(1, 0, 2)[:, :, None, heads]
        weights += shared[queries].T[:, None, :, None]
        weights -= weights.max(axis=0)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=0)
        if observe is not None:
            observe(number, slice(first + heads.start, first + heads.stop), queries, weights[:, 0].transpose(2, 1, 0))
        weights *= values.transpose(1, 0, 2)[:, :, None, heads]
        outputs[:, queries, heads] = weights.sum(axis=0)
    return outputs


def _shared_scores(transformer: Transformer, bank: SinkBank, stream: Stream, causal: bool) -> Any:
    """The part of the scores that all heads of the bank have in common: the same for every sequence of the batch."""
    reference, data = stream[REFERENCE][0, :, 0], stream[DATA][0, :, 0]
    scores = np.outer(reference * (bank.reference_gain / KEY), reference * KEY)
    if transformer.tokens > 1:
        bits = position_bits(transformer.tokens)
        position = stream[POSITION][0]
        scores += (position * (bank.position_gain / 2.0 / KEY)) @ (position * KEY).T
        scores += np.outer(data * KEY, data * (-bank.position_gain * bits / 2.0 / KEY))
    if causal:
        scores = scores + np.triu(np.full_like(scores, -np.inf), 1)
    return scores


def _chunks(batch: int, heads: int, size: int) -> Iterator[tuple[slice, slice]]:
    queries = max(1, min(size, CHUNK // (batch * size)))
    group = max(1, min(heads, CHUNK // (batch * size * queries)))
    for head in range(0, heads, group):
        for query in range(0, size, queries):
            yield slice(head, min(head + group, heads)), slice(query, min(query + queries, size))


def _linear(link: Link, values: Any) -> Any:
    weights = link.weights.astype(values.dtype, copy=False)
    if weights.ndim == 1:
        return values * weights
    if weights.shape[1] == 1:
        return values * weights[:, 0]
    return values @ weights.T
