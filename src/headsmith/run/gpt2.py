"""A stock GPT-2 in numpy, in float32, operation by operation as transformers writes it: LayerNorm, causal softmax
attention, an MLP with the approximate gelu. For those who have no torch at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.run.llama import head_of

Singles = npt.NDArray[np.float32]


def logits(config: Mapping[str, Any], tensors: Mapping[str, Singles], embeds: Singles) -> Singles:
    """The logits of every token, (..., tokens, labels), for `inputs_embeds` (..., tokens, width)."""
    x = np.asarray(embeds, dtype=np.float32) + tensors["transformer.wpe.weight"][: embeds.shape[-2]]
    for number in range(config["n_layer"]):
        stem = f"transformer.h.{number}."
        own = {name.removeprefix(stem): value for name, value in tensors.items() if name.startswith(stem)}
        x = x + _attention(config, own, norm(x, own["ln_1.weight"], own["ln_1.bias"], config["layer_norm_epsilon"]))
        x = x + _mlp(own, norm(x, own["ln_2.weight"], own["ln_2.bias"], config["layer_norm_epsilon"]))
    x = norm(x, tensors["transformer.ln_f.weight"], tensors["transformer.ln_f.bias"], config["layer_norm_epsilon"])
    return np.asarray(x @ head_of(tensors).T)


def norm(x: Singles, weight: Singles, bias: Singles, epsilon: float) -> Singles:
    """LayerNorm."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float32)
    variance = (centred * centred).mean(axis=-1, keepdims=True, dtype=np.float32)
    return np.asarray(centred / np.sqrt(variance + np.float32(epsilon)) * weight + bias, dtype=np.float32)


def _attention(config: Mapping[str, Any], own: Mapping[str, Singles], x: Singles) -> Singles:
    heads, width = config["n_head"], x.shape[-1]
    whole = x @ own["attn.c_attn.weight"] + own["attn.c_attn.bias"]
    apart = whole.reshape(*x.shape[:-1], 3, heads, width // heads)
    query, key, values = (np.swapaxes(apart[..., place, :, :], -2, -3) for place in range(3))
    scores = query @ np.swapaxes(key, -1, -2) / np.float32((width // heads) ** 0.5)
    scores = np.where(np.tri(x.shape[-2], dtype=bool), scores, np.float32(-np.inf))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    means = (powers / powers.sum(axis=-1, keepdims=True)) @ values
    together = np.swapaxes(means, -2, -3).reshape(x.shape)
    return np.asarray(together @ own["attn.c_proj.weight"] + own["attn.c_proj.bias"])


def _mlp(own: Mapping[str, Singles], x: Singles) -> Singles:
    inner = x @ own["mlp.c_fc.weight"] + own["mlp.c_fc.bias"]
    cubic = np.float32((2.0 / np.pi) ** 0.5) * (inner + np.float32(0.044715) * inner**3)
    active = np.float32(0.5) * inner * (np.float32(1.0) + np.tanh(cubic))
    return np.asarray(active @ own["mlp.c_proj.weight"] + own["mlp.c_proj.bias"])
