"""One bank of heads at work on a batch of sequences: what all kinds need.

Every head computes a mean of values with powers of e as weights, e^(score - top), where `top` is the query's largest
score. What the structure of a bank knows is used:

- Reference tokens hold zero (see run/numpy_runner.py): of them only the sum of their powers is needed.
- Other data tokens score `gain` less for each bit in which their positions differ, whatever the head reads: their
  powers are one small matrix (query token, key token), e^(-gain h), for all heads and all sequences.
- All data tokens of a table head are silent and score the same: they are counted, not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headsmith.core.sparse import blocks_of, sparse_product
from headsmith.kernel.core.sparse import Sparse
from headsmith.transformer.heads.attentions import shares_of
from headsmith.transformer.heads.stream import Link, position_bits, position_code
from headsmith.transformer.heads.surroundings import Surroundings

Stream = dict[str, Any]
"""What data tokens hold: for each register an array (batch, token, column); a batch of one stands for all alike. A
register that is not there holds zeros."""


class Reader(Protocol):
    """What reads linear forms of the stream: a bank."""

    @property
    def read(self) -> tuple[Link, ...]:
        """The weights of the forms."""

    @property
    def readers(self) -> int:
        """How many forms there are."""


@dataclass(eq=False)
class Attention:
    """One bank's place: its model, the stream that it finds, how many sequences and tokens there are, the mask, and
    how many scores to hold at once. `hard` is the limit of large scores: the largest scores share all the weight."""

    transformer: Surroundings
    stream: Stream
    batch: int
    tokens: int
    causal: bool
    chunk: int
    hard: bool = False

    @property
    def references(self) -> int:
        """How many reference tokens there are."""
        return self.transformer.reference_tokens

    @property
    def dtype(self) -> Any:
        """The numbers of the model."""
        return self.transformer.arithmetic

    def reads(self, bank: Reader) -> Any:
        """The linear forms that the bank reads: (batch, token, readers), an array of its own."""
        shape = self.batch, self.tokens, bank.readers
        return self.transformer.held(read(bank.read, self.stream, shape, self.dtype))

    def powers(self, scores: Any) -> Any:
        """The powers of e of scores from which the largest is subtracted, in place."""
        return np.equal(scores, 0.0, out=scores, casting="unsafe") if self.hard else np.exp(scores, out=scores)

    def power(self, score: float, top: Any) -> Any:
        """The power of e of one score that many tokens have: an array like `top`."""
        return self.powers(self.dtype.type(score) - top)

    def seen(self, queries: slice = slice(None)) -> Any:
        """How many data tokens each of some queries sees."""
        count = np.arange(1, self.tokens + 1) if self.causal else np.full(self.tokens, self.tokens)
        return count[queries].astype(self.dtype)

    def in_sight(self, queries: slice) -> Any:
        """Which data tokens each of some queries sees: (query token, key token)."""
        places = np.arange(self.tokens)
        return (places[None, :] <= places[queries, None]) | (not self.causal)

    def crowd(self, gain: float, queries: slice) -> Any:
        """The powers of the data tokens, up to that of the token itself: (query token, key token) of some queries."""
        if self.hard:
            weights = np.eye(self.tokens, dtype=self.dtype)[queries]
        else:
            code = position_code(self.transformer.tokens, self.tokens).astype(self.dtype)
            bits = position_bits(self.transformer.tokens)
            weights = np.exp((code[queries] @ code.T - bits) * self.dtype.type(gain / 2.0))
        if self.causal:
            weights[np.arange(self.tokens)[None, :] > np.arange(self.tokens)[queries, None]] = 0.0
        return weights

    def crowded(self, gain: float, values: Any) -> tuple[Any, Any]:
        """What data tokens add up to, weighed by `crowd`: the values (batch, token, head), and the weights (token,
        1)."""
        if self.tokens == 1:
            return values, np.ones((1, 1), dtype=self.dtype)
        mixed, total = np.empty_like(values), np.empty((self.tokens, 1), dtype=self.dtype)
        for queries in self.query_chunks(self.tokens):
            weights = self.crowd(gain, queries)
            np.matmul(weights, values, out=mixed[:, queries])
            total[queries, 0] = weights.sum(axis=1)
        return mixed, total

    def query_chunks(self, each: int) -> Iterator[slice]:
        """Runs of query tokens, of which each has so many scores."""
        step = max(1, self.chunk // max(1, each))
        for start in range(0, self.tokens, step):
            yield slice(start, min(start + step, self.tokens))


def blocks(attention: Attention, heads: int, grid: int) -> Iterator[tuple[slice, slice]]:
    """Runs of rows, which are all tokens of all sequences, and of heads whose scores on the grid may be held at
    once."""
    rows = attention.batch * attention.tokens
    step = max(1, min(rows, attention.chunk // max(1, grid)))
    group = max(1, min(heads, attention.chunk // max(1, grid * step)))
    for row in range(0, rows, step):
        for head in range(0, heads, group):
            yield slice(row, min(row + step, rows)), slice(head, min(head + group, heads))


def shares(attention: Attention, scores: Any, silent: float, references: int) -> tuple[Any, Any]:
    """The powers of scores (..., key token, head), which are overwritten, and their sum (..., 1, head), to which so
    many reference tokens of the score `silent` belong."""
    top = scores.max(axis=-2, keepdims=True)
    if references:
        top = np.maximum(top, attention.dtype.type(silent))
    scores -= top
    if attention.transformer.attention == "sparsemax":
        # Reference tokens hold zero: only what data tokens weigh matters.
        low = np.broadcast_to(attention.dtype.type(silent) - top, (*scores.shape[:-2], references, scores.shape[-1]))
        every = np.swapaxes(np.concatenate([scores, low], axis=-2), -1, -2)
        weights = np.swapaxes(shares_of("sparsemax", every, True), -1, -2)[..., : scores.shape[-2], :]
        return weights.copy(), np.ones_like(top)
    weights = attention.powers(scores)
    total = weights.sum(axis=-2, keepdims=True)
    if references:
        total += attention.power(silent, top) * attention.dtype.type(references)
    return weights, total


def read(links: tuple[Link, ...], stream: Stream, shape: tuple[int, int, int], dtype: Any) -> Any:
    """Linear forms of the stream: an array of that shape, which nobody else holds."""
    if len(links) == 1 and links[0].rows == shape[2] and links[0].register in stream:
        values = linear(links[0], stream[links[0].register])
        return values if values.shape == shape else np.broadcast_to(values, shape).copy()
    values = np.zeros(shape, dtype=dtype)
    for link in links:
        if link.register in stream:
            values[..., link.reads] += linear(link, stream[link.register])
    return values


def linear(link: Link, values: Any) -> Any:
    """A link's weights times values (..., from)."""
    if isinstance(link.weights, Sparse):
        flat = values.reshape(-1, values.shape[-1])
        return sparse_product(link.weights, link.grouped(blocks_of), flat).reshape(*values.shape[:-1], -1)
    weights = link.weights.astype(values.dtype, copy=False)
    if weights.ndim == 1:
        return values * weights
    if weights.shape[1] == 1:
        return values * weights[:, 0]
    # One product of matrices: numpy would take a batch of single tokens for as many products with vectors.
    return (values.reshape(-1, values.shape[-1]) @ weights.T).reshape(*values.shape[:-1], -1)
