"""Banks of other attentions than softmax at work: the textbook's weights for the tokens that a data token sees, from
the scores of each; and products. Reference tokens hold zero: the sink counts by its weight alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.heads.attentions import WITHOUT_SINK, shares_of, weights_of
from headsmith.heads.move import MoveBank, address_rows
from headsmith.heads.product import ProductBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.stream import position_bits, position_code
from headsmith.run.attention import Attention


def other_gates(attention: Attention, bank: SinkBank) -> Any:
    """What sink heads return, (batch, token, head)."""
    kind, dtype, tokens = attention.transformer.attention, attention.dtype, attention.tokens
    values = attention.reads(bank)
    scores = values * bank.query_scale.astype(dtype)
    if kind == "elu+1":
        return values * _feature_by_feature(scores, bank)
    scores, outputs = scores * bank.key_scale.astype(dtype), np.empty_like(values)
    held = np.ones_like(values) if kind == "relu" else values
    code, bits = position_code(attention.transformer.tokens, tokens), position_bits(attention.transformer.tokens)
    for queries in attention.query_chunks(values.size):
        # (batch, query token, head, key token), the sink first
        others = ((code[queries] @ code.T - bits) * (bank.position_gain / 2.0)).astype(dtype)[:, None]
        every = scores[:, queries, :, None] + others
        visible = attention.in_sight(queries)[:, None]
        if kind not in WITHOUT_SINK:
            every = np.concatenate([np.zeros_like(every[..., :1]), every], axis=-1)
            visible = np.concatenate([np.ones_like(visible[..., :1]), visible], axis=-1)
        weights = shares_of(kind, every, visible)[..., -tokens:]
        outputs[:, queries] = np.einsum("bihj,bjh->bih", weights, held)
    return outputs


def _feature_by_feature(scores: Any, bank: SinkBank) -> Any:
    """The weight of the token itself beside the sink's, under elu+1: (batch, token, head)."""
    queries, keys = np.stack([scores, -scores], axis=-1), np.zeros((bank.heads, 2, 2), scores.dtype)
    keys[:, 0, 0] = keys[:, 1, 1] = -bank.reference_gain
    return weights_of("elu+1", queries[..., None, :], keys, True)[..., 0, -1]


def other_moves(attention: Attention, bank: MoveBank) -> Any:
    """What a move head returns, without a sink: (batch, token, output)."""
    values, dtype, tokens = attention.reads(bank), attention.dtype, attention.tokens
    model, bits = attention.transformer, position_bits(attention.transformer.tokens)
    address = address_rows(bank, model.positional, model.tokens)[:tokens, :bits].astype(dtype)
    code, outputs = position_code(model.tokens, tokens).astype(dtype), np.empty_like(values)
    for queries in attention.query_chunks(tokens):
        scores = (address[queries] * dtype.type(bank.gain)) @ code.T - dtype.type(bank.gain * (bits - 0.5))
        outputs[:, queries] = shares_of(model.attention, scores, attention.in_sight(queries)) @ values
    return outputs


def products(attention: Attention, bank: ProductBank) -> Any:
    """What product heads return: (batch, token, head)."""
    reads = attention.reads(bank)
    return reads[..., 0::2] * reads[..., 1::2]
