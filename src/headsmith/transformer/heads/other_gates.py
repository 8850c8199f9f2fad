"""Gates and moves of other attentions than softmax at work: the textbook's weights for the tokens that a data token
sees, from the scores of each. Reference tokens hold zero: the sink counts by its weight alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headsmith.transformer.heads.attentions import WITHOUT_SINK, shares_of, weights_of
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.stream import position_bits, position_code

if TYPE_CHECKING:
    from headsmith.transformer.heads.sink import SinkBank


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


def other_moves(attention: Attention, values: Any, address: Any, gain: float) -> Any:
    """What is moved, (batch, token, output), without a sink; `address` is the code of each token's addressee, or zero
    for none."""
    dtype, tokens, model = attention.dtype, attention.tokens, attention.transformer
    code, outputs = position_code(model.tokens, tokens).astype(dtype), np.empty_like(values)
    for queries in attention.query_chunks(tokens):
        scores = (address[queries] * dtype.type(gain)) @ code.T - dtype.type(gain * (position_bits(model.tokens) - 0.5))
        outputs[:, queries] = shares_of(model.attention, scores, attention.in_sight(queries)) @ values
    return outputs
