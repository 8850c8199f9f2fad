"""Gates of other attentions than softmax at work: the textbook's weights for the two tokens that a data token sees,
itself and the sink, which holds zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headsmith.heads.attentions import weights_of
from headsmith.heads.running import Attention

if TYPE_CHECKING:
    from headsmith.heads.sink import SinkBank


def other_gates(attention: Attention, bank: SinkBank) -> Any:
    """What sink heads return, (batch, token, head): their value times the weight of the token itself."""
    kind, dtype = attention.transformer.attention, attention.dtype
    values = attention.reads(bank)
    query, key = bank.query_scale.astype(dtype), bank.key_scale.astype(dtype)
    scores = (values * query)[..., None]
    if kind == "elu+1":
        queries, keys = np.concatenate([scores, -scores], axis=-1), np.zeros((bank.heads, 2, 2), dtype)
        keys[:, 0, 0] = keys[:, 1, 1] = -bank.reference_gain
    else:
        queries, keys = scores, np.stack([0.0 * key, key], axis=-1)[..., None]
    # (batch, token, head, one query, feature) and (head, sink and itself, feature)
    seen = slice(2 - attention.transformer.sink_tokens - 1, None)
    weights = weights_of(kind, queries[..., None, :], keys[:, seen], True)[..., 0, -1]
    return weights if kind == "relu" else weights * values
