"""A stock Llama in numpy, in float32, operation by operation as transformers writes it: RMSNorm, rotations, causal
softmax attention, SwiGLU. For those who have no torch at hand, and to see that norms and rotations change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.transformer.heads.swiglu import silu

Singles = npt.NDArray[np.float32]


def logits(config: Mapping[str, Any], tensors: Mapping[str, Singles], embeds: Singles) -> Singles:
    """The logits of every token, (..., tokens, labels), for `inputs_embeds` (..., tokens, width)."""
    x = np.asarray(embeds, dtype=np.float32)
    rotation = rotations(config, x.shape[-2])
    for number in range(config["num_hidden_layers"]):
        own = {
            name.removeprefix(f"model.layers.{number}."): value
            for name, value in tensors.items()
            if name.startswith(f"model.layers.{number}.")
        }
        x = x + _attention(config, own, norm(x, own["input_layernorm.weight"], config["rms_norm_eps"]), rotation)
        x = x + _mlp(own, norm(x, own["post_attention_layernorm.weight"], config["rms_norm_eps"]))
    x = norm(x, tensors["model.norm.weight"], config["rms_norm_eps"])
    found = x @ head_of(tensors).T
    return found + tensors["score.bias"] if "score.bias" in tensors else found


def head_of(tensors: Mapping[str, Singles]) -> Singles:
    """The weights of the last layer: of a classifier, or of a language model."""
    return next(tensors[name] for name in ("lm_head.weight", "score.weight", "classifier.weight") if name in tensors)


def norm(x: Singles, weight: Singles, epsilon: float) -> Singles:
    """RMSNorm."""
    variance = (x * x).mean(axis=-1, keepdims=True, dtype=np.float32)
    inverse = np.float32(1.0) / np.sqrt(variance + np.float32(epsilon))
    return np.asarray(weight * (x * inverse), dtype=np.float32)


def rotations(config: Mapping[str, Any], length: int) -> tuple[Singles, Singles]:
    """Cosines and sines, (tokens, d_head): linear scaling divides the frequencies."""
    rope, width = config["rope_parameters"], config["head_dim"]
    powers = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = np.float32(1.0) / np.float32(rope["rope_theta"]) ** powers / np.float32(rope["factor"])
    angles = np.arange(length, dtype=np.float32)[:, None] * np.tile(frequencies, 2)
    return np.cos(angles), np.sin(angles)


def rotated(x: Singles, rotation: tuple[Singles, Singles]) -> Singles:
    """Queries or keys, (..., tokens, d_head), each pair of columns turned by its angle."""
    cosines, sines = rotation
    first, second = np.split(x, 2, axis=-1)
    return np.asarray(x * cosines + np.concatenate([-second, first], axis=-1) * sines)


def _attention(
    config: Mapping[str, Any], own: Mapping[str, Singles], x: Singles, rotation: tuple[Singles, Singles]
) -> Singles:
    heads, width = config["num_attention_heads"], config["head_dim"]

    def apart(name: str) -> Singles:
        found = x @ own[f"self_attn.{name}_proj.weight"].T
        return np.swapaxes(found.reshape(*found.shape[:-1], heads, width), -2, -3)

    query, key, values = rotated(apart("q"), rotation), rotated(apart("k"), rotation), apart("v")
    scores = query @ np.swapaxes(key, -1, -2) * np.float32(width**-0.5)
    unseen = ~np.tri(x.shape[-2], dtype=bool)
    scores = np.where(unseen, np.float32(-np.inf), scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    means = (powers / powers.sum(axis=-1, keepdims=True)) @ values
    together = np.swapaxes(means, -2, -3).reshape(*x.shape[:-1], heads * width)
    return np.asarray(together @ own["self_attn.o_proj.weight"].T)


def _mlp(own: Mapping[str, Singles], x: Singles) -> Singles:
    gate = x @ own["mlp.gate_proj.weight"].T
    return np.asarray((silu(gate) * (x @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T)
