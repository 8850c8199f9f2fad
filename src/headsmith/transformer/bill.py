"""What a transformer costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.heads.sink import KEY, feature_count
from headsmith.heads.stream import position_bits
from headsmith.transformer.ir import Transformer, arrays, width


@dataclass(frozen=True)
class Bill:
    """Sizes of the model. `parameters` counts dense matrices, `nonzeros` their non-zero entries; `max_score` is a
    bound."""

    layers: int
    heads: int
    heads_per_layer: tuple[int, ...]
    reference_tokens: int
    d_model: int
    d_head: int
    parameters: int
    nonzeros: int
    max_weight: float
    max_score: float


def bill(transformer: Transformer, max_score: float) -> Bill:
    """Count everything, as if every W_Q, W_K, W_V and W_O were written out."""
    heads = [layer.heads for layer in transformer.layers]
    d_model, tokens = width(transformer), transformer.tokens
    features = feature_count(tokens)
    per_head = d_model * (2 * features + 2)
    # The flag of the reference token and the position code; the flag of data tokens stands in the embedding's bias.
    constants = 1 + tokens * position_bits(tokens)
    return Bill(
        layers=len(transformer.layers),
        heads=sum(heads),
        heads_per_layer=tuple(heads),
        reference_tokens=1 if transformer.layers else 0,
        d_model=d_model,
        d_head=features if transformer.layers else 0,
        parameters=sum(heads) * per_head
        + d_model * (transformer.inputs + 1)
        + d_model * transformer.outputs
        + transformer.outputs
        + constants,
        nonzeros=_nonzeros(transformer) + 1 + constants,
        max_weight=_max_weight(transformer),
        max_score=max_score,
    )


def _nonzeros(transformer: Transformer) -> int:
    bits = position_bits(transformer.tokens)
    # Besides the read (once in W_Q, once in W_V): the key's slope, the reference pair, the position pairs, the offset
    # pair.
    features = 3 + (2 * bits + 2 if transformer.tokens > 1 else 0)
    count = sum(link.nonzeros for link in (*transformer.embedding, *transformer.readout))
    count += sum(int(np.count_nonzero(value)) for value in transformer.initial.values())
    count += int(np.count_nonzero(transformer.readout_bias))
    for layer in transformer.layers:
        for bank in layer.banks:
            count += 2 * sum(link.nonzeros for link in bank.read)
            count += sum(link.nonzeros for link in bank.write) + bank.heads * features
    return count


def _max_weight(transformer: Transformer) -> float:
    weights = (values for where, values in arrays(transformer) if not where.endswith("gains"))
    largest = max((float(np.max(np.abs(values), initial=0.0)) for values in weights), default=0.0)
    bits = position_bits(transformer.tokens)
    for layer in transformer.layers:
        for bank in layer.banks:
            largest = max(largest, KEY, bank.reference_gain / KEY, bank.position_gain * max(bits, 1) / 2.0 / KEY)
            for link in bank.read:
                scale = bank.query_scale[link.reads]
                scaled = np.abs(link.weights) * (scale if link.weights.ndim == 1 else scale[:, None])
                largest = max(largest, float(np.max(scaled, initial=0.0)))
    return largest
