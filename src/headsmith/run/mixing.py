"""The kinds of heads whose data tokens read values from data tokens: mean, Boltzmann, move, attend.

Each computes what attention would, in its own best order: a mean is a running sum, all queries of a Boltzmann head have
the same scores unless a mask tells them apart, a move's weights are the same for every sequence. Reference tokens hold
zero here (see run/numpy_runner.py); with `leak` their powers count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.heads.attend import AttendBank
from headsmith.heads.attentions import shares_of
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank, address_rows
from headsmith.heads.stream import position_bits, position_code
from headsmith.run.attention import Attention


def mean_outputs(attention: Attention, bank: MeanBank, leak: bool = True) -> Any:
    """What a mean head returns: (batch, token, output)."""
    values, dtype = attention.reads(bank), attention.dtype
    # exp(-gain) for each reference token beside ones for the data tokens in sight.
    silent = attention.references * np.exp(dtype.type(-bank.gain)) if leak and not attention.hard else dtype.type(0.0)
    shares = 1.0 / (attention.seen() + dtype.type(silent))
    if attention.causal:
        return np.cumsum(values, axis=1) * shares[:, None]
    mean = (values * shares[0]).sum(axis=1, keepdims=True)
    return np.broadcast_to(mean, values.shape)


def boltzmann_outputs(attention: Attention, bank: BoltzmannBank, leak: bool = True) -> Any:
    """What Boltzmann heads return: (batch, token, head)."""
    values, dtype = attention.reads(bank), attention.dtype
    # The scores of any data token's query: (batch, key token, head).
    scores = values * bank.key_scale.astype(dtype) * bank.query_scale.astype(dtype) + dtype.type(bank.gain)
    references = attention.references if leak else 0
    if not attention.causal:
        weights, total = _shares(attention, scores, 0.0, references)
        mean = (weights * values).sum(axis=1, keepdims=True) / total
        return np.broadcast_to(mean, values.shape)
    places, outputs = np.arange(attention.tokens), np.empty_like(values)
    for queries in attention.query_chunks(values.size):
        hidden = places[None, :] > places[queries, None]
        # weights[sequence, query token, key token, head]
        weights = np.where(hidden[None, :, :, None], dtype.type(-np.inf), scores[:, None])
        weights, total = _shares(attention, weights, 0.0, references)
        weights *= values[:, None]
        outputs[:, queries] = weights.sum(axis=2) / total[:, :, 0]
    return outputs


def move_outputs(attention: Attention, bank: MoveBank) -> Any:
    """What a move head returns: (batch, token, output)."""
    values, dtype, tokens = attention.reads(bank), attention.dtype, attention.tokens
    bits = position_bits(attention.transformer.tokens)
    position = position_code(attention.transformer.tokens, tokens).astype(dtype)
    address = address_rows(bank, attention.transformer.positional, attention.transformer.tokens)[:tokens].astype(dtype)
    places, outputs = np.arange(tokens), np.empty_like(values)
    for queries in attention.query_chunks(tokens):
        scores = (address[queries, :bits] * dtype.type(bank.gain)) @ position.T
        if attention.causal:
            scores[places[None, :] > places[queries, None]] = -np.inf
        sink = address[queries, bits:] * dtype.type(bank.gain * bits)
        top = scores.max(axis=1, keepdims=True)
        if attention.references:
            top = np.maximum(top, np.maximum(sink, 0.0) if attention.transformer.grid_tokens else sink)
        weights = attention.powers(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        if attention.transformer.sink_tokens:
            total += attention.powers(sink - top)
        if attention.transformer.grid_tokens:
            total += attention.power(0.0, top) * dtype.type(attention.transformer.grid_tokens)
        weights /= total
        np.matmul(weights, values, out=outputs[:, queries])
    return outputs


def attend_outputs(attention: Attention, bank: AttendBank, leak: bool = True) -> Any:
    """What an attend head returns: (batch, token, output)."""
    reads = attention.reads(bank)
    query, key, value = (reads[..., part] for part in bank.parts)
    places, outputs = np.arange(attention.tokens), np.empty_like(value)
    references = attention.references if leak else 0
    for queries in attention.query_chunks(attention.batch * attention.tokens):
        # weights[sequence, query token, key token]
        scores = query[:, queries] @ key.swapaxes(1, 2)
        if attention.causal:
            scores[:, places[None, :] > places[queries, None]] = -np.inf
        weights, total = _shares(attention, scores[..., None], -bank.gain, references)
        outputs[:, queries] = weights[..., 0] @ value / total[..., 0]
    return outputs


def _shares(attention: Attention, scores: Any, silent: float, references: int) -> tuple[Any, Any]:
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
