"""The kinds of heads whose data tokens read values from data tokens: gate, mean, Boltzmann, move, attend.

Each computes what attention would, in its own best order: a mean is a running sum, all queries of a Boltzmann head have
the same scores unless a mask tells them apart, a move's weights are the same for every sequence. Reference tokens hold
zero here (see run/numpy_runner.py). When somebody observes, the weights are written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.sink import KEY
from headsmith.heads.stream import DATA, GRID, POSITION, REFERENCE, position_bits
from headsmith.run.attention import Attention, softmax


def mean_outputs(attention: Attention, bank: MeanBank) -> Any:
    """What a mean head returns: (batch, token, output)."""
    values = attention.reads(bank)
    if attention.observe is not None:
        data = attention.stream[DATA][0, :, 0]
        _observed(attention, np.outer(data * (bank.gain / KEY), data * KEY)[None], bank.keep_gain)
    prefix, dtype = attention.prefix, values.dtype
    outputs = np.zeros_like(values)
    mine = values[:, prefix:]
    tokens = mine.shape[1]
    # exp(-gain) for each reference token beside ones for the data tokens in sight.
    count = np.arange(1, tokens + 1) if attention.causal else np.full(1, tokens)
    silent = 0.0 if attention.hard else np.exp(dtype.type(-bank.gain))
    shares = 1.0 / (count.astype(dtype) + dtype.type(prefix * silent))
    if attention.causal:
        outputs[:, prefix:] = np.cumsum(mine, axis=1) * shares[:, None]
    else:
        outputs[:, prefix:] = (mine * shares[0]).sum(axis=1, keepdims=True)
    return outputs


def boltzmann_outputs(attention: Attention, bank: BoltzmannBank) -> Any:
    """What Boltzmann heads return: (batch, token, head)."""
    stream, dtype = attention.stream, np.dtype(attention.transformer.dtype)
    values = attention.reads(bank)
    data = stream[DATA][0, :, 0]
    keys = values * bank.key_scale.astype(dtype)
    # The scores of any data token's query: (batch, key token, head).
    scores = keys * bank.query_scale.astype(dtype) + (data * KEY * (bank.gain / KEY))[:, None]
    if attention.observe is not None:
        _observed(attention, data[None, :, None] * scores[0].T[:, None, :], bank.keep_gain)
    outputs = np.zeros_like(values)
    if not attention.causal:
        softmax(scores.swapaxes(0, 1), attention.hard)
        outputs[:, attention.prefix :] = (scores * values).sum(axis=1, keepdims=True)
        return outputs
    places = np.arange(attention.size)
    for queries, groups in attention.chunks(bank.heads, len(values)):
        hidden = places[:, None, None, None] > places[None, None, queries, None]
        for heads in groups:
            weights = np.where(hidden, dtype.type(-np.inf), scores.swapaxes(0, 1)[:, :, None, heads])
            softmax(weights, attention.hard)
            weights *= values.swapaxes(0, 1)[:, :, None, heads]
            outputs[:, queries, heads] = weights.sum(axis=0)
    return outputs


def move_outputs(attention: Attention, bank: MoveBank) -> Any:
    """What a move head returns: (batch, token, output)."""
    values, stream = attention.reads(bank), attention.stream
    address, position, reference = (stream[name][0] for name in (bank.address, POSITION, REFERENCE))
    bits = position.shape[1]
    outputs = np.zeros_like(values)
    for queries, (heads,) in attention.chunks(1, 1):
        scores = (address[queries, :bits] * (bank.gain / KEY)) @ (position * KEY).T
        scores += (address[queries, bits:] * (bank.gain * bits / KEY)) @ (reference * KEY).T
        scores += attention.kept(bank.keep_gain, queries)
        weights = attention.masked(scores, queries).T
        softmax(weights, attention.hard)
        attention.report(heads, queries, weights.T[None])
        outputs[:, queries] = np.einsum("jq,bjm->bqm", weights, values, optimize=True)
    return outputs


def attend_outputs(attention: Attention, bank: AttendBank) -> Any:
    """What an attend head returns: (batch, token, output)."""
    stream, reads = attention.stream, attention.reads(bank)
    query, key, value = (reads[..., part] for part in bank.parts)
    data, silent = stream[DATA][0, :, 0], stream[REFERENCE][0, :, 0]
    if GRID in stream:
        silent = silent + stream[GRID][0].sum(axis=1)
    outputs = np.zeros_like(value)
    for queries, (heads,) in attention.chunks(1, len(reads)):
        shared = np.outer(data[queries] * KEY, silent * (-bank.gain / KEY)) + attention.kept(bank.keep_gain, queries)
        # weights[key token, sequence, query token]
        weights = (key @ query[:, queries].swapaxes(1, 2)).swapaxes(0, 1)
        weights += attention.masked(shared, queries).T[:, None, :]
        softmax(weights, attention.hard)
        attention.report(heads, queries, weights[:, 0].T[None])
        outputs[:, queries] = weights.transpose(1, 2, 0) @ value
    return outputs


def gate_outputs(attention: Attention, bank: GateBank) -> Any:
    """What gate heads return: (batch, token, head)."""
    stream, dtype = attention.stream, np.dtype(attention.transformer.dtype)
    bits = position_bits(attention.transformer.tokens)
    reads = attention.reads(bank)
    slopes, values = reads[..., 0::2], reads[..., 1::2]
    grid, data, reference = stream[GRID][0], stream[DATA][0, :, 0], stream[REFERENCE][0, :, 0]
    keys = grid @ bank.slope.astype(dtype).T
    offsets = grid @ (bank.offset / KEY).astype(dtype).T + (data * (-bank.position_gain * bits / 2.0 / KEY))[:, None]
    outputs = np.zeros_like(values)
    for queries, groups in attention.chunks(bank.heads, len(values)):
        shared = attention.kept(bank.keep_gain, queries)
        shared += np.outer(data[queries] * (-bank.keep_gain / KEY), reference * KEY)
        if bits:
            position = stream[POSITION][0]
            shared += (position[queries] * (bank.position_gain / 2.0 / KEY)) @ (position * KEY).T
        shared = attention.masked(shared, queries)
        for heads in groups:
            # The leading axis runs over key tokens: weights[key token, sequence, query token, head].
            weights = slopes[None, :, queries, heads] * keys[:, None, None, heads]
            weights += (data[queries] * KEY)[None, None, :, None] * offsets[:, None, None, heads]
            weights += shared.T[:, None, :, None]
            outputs[:, queries, heads] = attention.averaged(weights, values, heads, queries)
    return outputs


def _observed(attention: Attention, scores: Any, keep_gain: float) -> None:
    """Report the weights of scores (head, query token, key token), of which the first sequence is observed."""
    for head, mine in enumerate(scores):
        weights = attention.masked(mine + attention.kept(keep_gain)).T
        softmax(weights, attention.hard)
        attention.report(slice(head, head + 1), slice(0, attention.size), weights.T[None])
