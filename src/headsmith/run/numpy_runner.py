"""The default runner: softmax attention in numpy, in the model's dtype, over batches of token sequences.

It evaluates the transformer and nothing else: scores from queries and keys, softmax over all tokens (or over the
earlier ones), weighted values, output maps added to the residual stream. It only leaves out what is zero or unused:
registers are kept apart instead of multiplied with zeros, scores that all heads of a bank share are computed once, and
the rows of reference tokens are not computed (nothing reads what heads write there, but for the sink, which stays zero
within the certificate's leak). Memory stays bounded: attention goes chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from headsmith.heads.sink import KEY, SinkBank
from headsmith.heads.stream import DATA, GRID, POSITION, REFERENCE, Link, position_bits, position_code
from headsmith.heads.table import TableBank
from headsmith.transformer.ir import Bank, Transformer

CHUNK = 1 << 18
"""How many scores are held at once."""

Stream = dict[str, Any]
"""The residual stream: for each register an array (batch, token, column); the reference tokens come first."""

Observer = Callable[[int, slice, slice, Any], None]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The attention of one layer on one sequence: weights[head, query token, key token], over all tokens."""

    layer: int
    weights: Any


def run(transformer: Transformer, inputs: Any, *, causal: bool = False) -> Any:
    """The model's output (batch, tokens, outputs) on `inputs` (batch, tokens, inputs), in the model's dtype."""
    batch, tokens, _ = inputs.shape
    widest = max((layer.heads for layer in transformer.layers), default=1)
    rows = max(1, CHUNK // max(1, widest * tokens * (tokens + transformer.reference_tokens)))
    parts = [_run(transformer, inputs[start : start + rows], causal) for start in range(0, batch, rows)]
    if not parts:
        return np.zeros((0, tokens, transformer.outputs), dtype=transformer.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def patterns(transformer: Transformer, inputs: Any, *, causal: bool = False) -> list[Pattern]:
    """The attention weights of every layer on one sequence `inputs` (tokens, inputs), reference tokens included."""
    size = inputs.shape[0] + transformer.reference_tokens
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
            attention = _Attention(transformer, bank, stream, causal, first, number, observe)
            updates.append((bank, attention.outputs()))
            first += bank.heads
        for bank, outputs in updates:
            for link in bank.write:
                stream[link.register] = stream[link.register] + _linear(link, outputs[..., link.sources])
    prefix = transformer.reference_tokens
    result = np.zeros((*inputs.shape[:2], transformer.outputs), dtype=transformer.dtype)
    for link in transformer.readout:
        result[..., link.reads] += _linear(link, stream[link.register][:, prefix:])
    return result + transformer.readout_bias.astype(transformer.dtype)


def embed(transformer: Transformer, inputs: Any) -> Stream:
    """The stream before the first layer."""
    batch, tokens, _ = inputs.shape
    dtype, prefix = np.dtype(transformer.dtype), transformer.reference_tokens
    inputs = inputs.astype(dtype)
    stream: Stream = {}
    for register in transformer.registers:
        stream[register.name] = np.zeros((batch, prefix + tokens, register.size), dtype=dtype)
    stream[DATA][:, prefix:] = 1.0
    stream[REFERENCE][:, : transformer.sink_tokens] = 1.0
    if transformer.grid_tokens:
        stream[GRID][:, transformer.sink_tokens : prefix] = np.eye(transformer.grid_tokens)
    if transformer.tokens > 1:
        stream[POSITION][:, prefix:] = position_code(transformer.tokens)[:tokens]
    for name, value in transformer.initial.items():
        stream[name][:, prefix:] += value.astype(dtype)
    for link in transformer.embedding:
        stream[link.register][:, prefix:] += _linear(link, inputs[..., link.sources])
    return stream


@dataclass(eq=False)
class _Attention:
    """One bank at work on one batch of sequences."""

    transformer: Transformer
    bank: Bank
    stream: Stream
    causal: bool
    first: int
    layer: int
    observe: Observer | None

    def outputs(self) -> Any:
        """What the heads return: (batch, token, outputs); zero on reference tokens unless somebody observes."""
        match self.bank:
            case SinkBank():
                return self._sink(self.bank)
            case TableBank():
                return self._table(self.bank)
            case _:
                assert_never(self.bank)

    def _sink(self, bank: SinkBank) -> Any:
        dtype = np.dtype(self.transformer.dtype)
        values = self._reads()
        slopes = values * bank.query_scale.astype(dtype)
        keys = (self.stream[DATA] * bank.key_scale.astype(dtype)).transpose(1, 0, 2)
        shared = self._masked(_shared_sink_scores(self.transformer, bank, self.stream))
        outputs = np.zeros_like(values)
        for heads, queries in self._chunks():
            # The leading axis runs over key tokens: weights[key token, sequence, query token, head].
            weights = slopes[None, :, queries, heads] * keys[:, :, None, heads]
            weights += shared[queries].T[:, None, :, None]
            _softmax(weights)
            self._report(heads, queries, weights[:, 0].transpose(2, 1, 0))
            weights *= values.transpose(1, 0, 2)[:, :, None, heads]
            outputs[:, queries, heads] = weights.sum(axis=0)
        return outputs

    def _table(self, bank: TableBank) -> Any:
        dtype = np.dtype(self.transformer.dtype)
        batch, size, _ = self.stream[DATA].shape
        reads = self._reads().reshape(batch, size, bank.heads, bank.arguments)
        grid = self.stream[GRID][0]
        slopes = np.einsum("jk,hka->jha", grid, bank.slope.astype(dtype))
        offsets = grid @ (bank.offset + bank.gain).astype(dtype).T
        values = np.einsum("jk,hkm->jhm", grid, bank.values.astype(dtype))
        shared = self._masked(_shared_table_scores(bank, self.stream))
        data = self.stream[DATA][0, :, 0]
        outputs = np.zeros((batch, size, bank.heads, bank.columns), dtype=dtype)
        for heads, queries in self._chunks():
            weights = np.einsum("bqha,jha->jbqh", reads[:, queries, heads], slopes[:, heads])
            weights += data[queries][None, None, :, None] * offsets[:, None, None, heads]
            weights += shared[queries].T[:, None, :, None]
            _softmax(weights)
            self._report(heads, queries, weights[:, 0].transpose(2, 1, 0))
            outputs[:, queries, heads] = np.einsum("jbqh,jhm->bqhm", weights, values[:, heads])
        return outputs.reshape(batch, size, bank.outputs)

    def _reads(self) -> Any:
        batch, size, _ = self.stream[DATA].shape
        values = np.zeros((batch, size, self.bank.readers), dtype=self.transformer.dtype)
        for link in self.bank.read:
            values[..., link.reads] += _linear(link, self.stream[link.register])
        return values

    def _masked(self, scores: Any) -> Any:
        return scores + np.triu(np.full_like(scores, -np.inf), 1) if self.causal else scores

    def _report(self, heads: slice, queries: slice, weights: Any) -> None:
        if self.observe is not None:
            self.observe(self.layer, slice(self.first + heads.start, self.first + heads.stop), queries, weights)

    def _chunks(self) -> Iterator[tuple[slice, slice]]:
        batch, size, _ = self.stream[DATA].shape
        start = 0 if self.observe is not None else self.transformer.reference_tokens
        queries = max(1, min(size, CHUNK // (batch * size)))
        group = max(1, min(self.bank.heads, CHUNK // (batch * size * queries)))
        for head in range(0, self.bank.heads, group):
            for query in range(start, size, queries):
                yield slice(head, min(head + group, self.bank.heads)), slice(query, min(query + queries, size))


def _softmax(scores: Any) -> None:
    """Scores become weights along the first axis, in place."""
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)


def _shared_sink_scores(transformer: Transformer, bank: SinkBank, stream: Stream) -> Any:
    """The part of the scores that all heads of the bank have in common: the same for every sequence of the batch."""
    reference, data = stream[REFERENCE][0, :, 0], stream[DATA][0, :, 0]
    kept = reference
    scores = np.zeros((len(data), len(data)), dtype=data.dtype)
    if transformer.grid_tokens:
        grid = stream[GRID][0].sum(axis=1)
        kept = reference + grid
        scores += np.outer(data * KEY, grid * (-bank.reference_gain / KEY))
    scores += np.outer(kept * (bank.reference_gain / KEY), reference * KEY)
    if transformer.tokens > 1:
        bits = position_bits(transformer.tokens)
        position = stream[POSITION][0]
        scores += (position * (bank.position_gain / 2.0 / KEY)) @ (position * KEY).T
        scores += np.outer(data * KEY, data * (-bank.position_gain * bits / 2.0 / KEY))
    return scores


def _shared_table_scores(bank: TableBank, stream: Stream) -> Any:
    """Reference tokens keep to the sink, where there is one."""
    reference = stream[REFERENCE][0, :, 0]
    kept = reference + stream[GRID][0].sum(axis=1)
    return np.outer(kept * (bank.keep_gain / KEY), reference * KEY)


def _linear(link: Link, values: Any) -> Any:
    weights = link.weights.astype(values.dtype, copy=False)
    if weights.ndim == 1:
        return values * weights
    if weights.shape[1] == 1:
        return values * weights[:, 0]
    return values @ weights.T
