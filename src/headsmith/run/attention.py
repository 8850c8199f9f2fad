"""One bank of heads at work on a batch of sequences: what all kinds need, and the token-wise kinds.

A data token of these looks at itself and at reference tokens; the kinds that mix tokens are in run/mixing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.heads.sink import KEY, SinkBank
from headsmith.heads.stream import DATA, GRID, POSITION, REFERENCE, Link, position_bits
from headsmith.heads.table import TableBank, silent_registers
from headsmith.transformer.ir import Bank, Transformer

Stream = dict[str, Any]
"""The residual stream: for each register an array (batch, token, column); the reference tokens come first."""

Observer = Callable[[int, slice, slice, Any], None]


@dataclass(eq=False)
class Attention:
    """One bank's place: its model, the stream that it finds, the mask, how many scores to hold at once, and who
    watches."""

    transformer: Transformer
    stream: Stream
    causal: bool
    first: int
    layer: int
    chunk: int
    observe: Observer | None
    hard: bool = False

    @property
    def prefix(self) -> int:
        """How many reference tokens there are."""
        return self.transformer.reference_tokens

    @property
    def size(self) -> int:
        """How many tokens there are, reference tokens included."""
        return int(self.stream[DATA].shape[1])

    def kept(self, gain: float, queries: slice = slice(None)) -> Any:
        """What keeps reference tokens to the sink: scores (query token, key token) of some queries."""
        reference = self.stream[REFERENCE][0, :, 0]
        mine = reference[queries]
        if GRID in self.stream:
            mine = mine + self.stream[GRID][0, queries].sum(axis=1)
        return np.outer(mine * (gain / KEY), reference * KEY)

    def reads(self, bank: Bank) -> Any:
        """The linear forms that the bank reads: (batch, token, readers)."""
        batch, size, _ = self.stream[DATA].shape
        values = np.zeros((batch, size, bank.readers), dtype=self.transformer.dtype)
        for link in bank.read:
            values[..., link.reads] += linear(link, self.stream[link.register])
        return values

    def masked(self, scores: Any, queries: slice = slice(None)) -> Any:
        """The scores (query token, key token) of some queries; minus infinity where the mask hides the key."""
        if not self.causal:
            return scores
        places = np.arange(self.size)
        return np.where(places[None, :] > places[queries, None], -np.inf, scores).astype(scores.dtype)

    def report(self, heads: slice, queries: slice, weights: Any) -> None:
        """Tell the observer, if there is one: weights[head, query token, key token] of the first sequence."""
        if self.observe is not None:
            self.observe(self.layer, slice(self.first + heads.start, self.first + heads.stop), queries, weights)

    def averaged(self, scores: Any, values: Any, heads: slice, queries: slice) -> Any:
        """What heads return whose scores are [key token, sequence, query token, head], which are overwritten, and whose
        values are [sequence, token, head]."""
        softmax(scores, self.hard)
        self.report(heads, queries, scores[:, 0].transpose(2, 1, 0))
        scores *= values.transpose(1, 0, 2)[:, :, None, heads]
        return scores.sum(axis=0)

    def chunks(self, heads: int, batch: int) -> Iterator[tuple[slice, list[slice]]]:
        """Runs of query tokens, and the runs of heads of each; reference tokens are left out unless somebody
        observes."""
        start = 0 if self.observe is not None else self.prefix
        queries = max(1, min(self.size - start, self.chunk // max(1, batch * self.size)))
        group = max(1, min(heads, self.chunk // max(1, batch * self.size * queries)))
        groups = [slice(head, min(head + group, heads)) for head in range(0, heads, group)]
        for query in range(start, self.size, queries):
            yield slice(query, min(query + queries, self.size)), groups


def sink_outputs(attention: Attention, bank: SinkBank) -> Any:
    """What sink heads return: (batch, token, head)."""
    stream, dtype = attention.stream, np.dtype(attention.transformer.dtype)
    values = attention.reads(bank)
    slopes = values * bank.query_scale.astype(dtype)
    keys = (stream[DATA] * bank.key_scale.astype(dtype)).transpose(1, 0, 2)
    outputs = np.zeros_like(values)
    for queries, groups in attention.chunks(bank.heads, len(values)):
        shared = attention.masked(_shared_sink_scores(attention.transformer, bank, stream, queries), queries)
        for heads in groups:
            # The leading axis runs over key tokens: weights[key token, sequence, query token, head].
            weights = slopes[None, :, queries, heads] * keys[:, :, None, heads]
            weights += shared.T[:, None, :, None]
            outputs[:, queries, heads] = attention.averaged(weights, values, heads, queries)
    return outputs


def table_outputs(attention: Attention, bank: TableBank) -> Any:
    """What table heads return: (batch, token, head and column)."""
    stream, dtype = attention.stream, np.dtype(attention.transformer.dtype)
    batch, size, _ = stream[DATA].shape
    reads = attention.reads(bank).reshape(batch, size, bank.heads, bank.arguments)
    grid = stream[bank.grid][0]
    slopes = np.einsum("jk,hka->jha", grid, bank.slope.astype(dtype))
    silent = sum(stream[name][0].sum(axis=1) for name in silent_registers(bank, attention.transformer.grid_tokens))
    offsets = grid @ bank.offset.astype(dtype).T - silent[:, None] * dtype.type(bank.gain)
    values = np.einsum("jk,hkm->jhm", grid, bank.values.astype(dtype))
    data = stream[DATA][0, :, 0]
    outputs = np.zeros((batch, size, bank.heads, bank.columns), dtype=dtype)
    for queries, groups in attention.chunks(bank.heads, batch):
        shared = attention.masked(attention.kept(bank.keep_gain, queries), queries)
        for heads in groups:
            weights = np.einsum("bqha,jha->jbqh", reads[:, queries, heads], slopes[:, heads])
            weights += data[queries][None, None, :, None] * offsets[:, None, None, heads]
            weights += shared.T[:, None, :, None]
            softmax(weights, attention.hard)
            attention.report(heads, queries, weights[:, 0].transpose(2, 1, 0))
            outputs[:, queries, heads] = np.einsum("jbqh,jhm->bqhm", weights, values[:, heads])
    return outputs.reshape(batch, size, bank.outputs)


def softmax(scores: Any, hard: bool = False) -> None:
    """Scores become weights along the first axis, in place; `hard` is the limit of large scores: the largest share."""
    scores -= scores.max(axis=0)
    if hard:
        scores[...] = scores == 0.0
    else:
        np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)


def _shared_sink_scores(transformer: Transformer, bank: SinkBank, stream: Stream, queries: slice) -> Any:
    """The part of the scores (query token, key token) of some queries that all heads of the bank have in common: the
    same for every sequence of the batch."""
    reference, data = stream[REFERENCE][0], stream[DATA][0]
    # Features of all tokens as queries and as keys: (token, features).
    kept, query, key = reference, [], []
    if transformer.grid_tokens:
        grid = stream[GRID][0].sum(axis=1, keepdims=True)
        kept = reference + grid
        query, key = [data * KEY], [grid * (-bank.reference_gain / KEY)]
    query.append(kept * (bank.reference_gain / KEY))
    key.append(reference * KEY)
    if transformer.tokens > 1:
        bits, position = position_bits(transformer.tokens), stream[POSITION][0]
        query += [position * (bank.position_gain / 2.0 / KEY), data * KEY]
        key += [position * KEY, data * (-bank.position_gain * bits / 2.0 / KEY)]
    return np.hstack(query)[queries] @ np.hstack(key).T


def linear(link: Link, values: Any) -> Any:
    """A link's weights times values (..., from)."""
    weights = link.weights.astype(values.dtype, copy=False)
    if weights.ndim == 1:
        return values * weights
    if weights.shape[1] == 1:
        return values * weights[:, 0]
    return values @ weights.T
