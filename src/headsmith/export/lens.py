"""A model for TransformerLens: the weights of a TransformerBridge that boots natively, attention-only, un-normalised.

All layers there have the same number of heads, and queries, keys and values the same width, so both are filled up with
zeros: a head of zeros adds nothing. Scores are divided by the square root of the width: that is a power of four, and
W_Q is multiplied by its root, a power of two, so that neither rounds anything. Real numbers enter as the residual
stream, at layer 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.export.plain import Plain, refuse_halves


def lens(model: Plain) -> Plain:
    """The model's weights under the names of a native TransformerBridge, and its configuration."""
    config, tensors = model.config, model.tensors
    if "attention" in config:
        raise TargetError(
            f"this model has {config['attention']} attention under the mask self+prefix; TransformerLens has softmax "
            "attention, full or causal: export to torch, onnx or huggingface"
        )
    if config["answers"] is not None:
        raise TargetError("this model ends in a softmax over answers, for which TransformerLens has no place")
    if any(layer.get("neurons") for layer in config["layers"]):
        raise TargetError(
            "this model has SwiGLU blocks, and the native models of TransformerLens that take it are attention alone: "
            "export it to llama as a language model, which TransformerLens boots"
        )
    if not config["layers"]:
        raise TargetError("this model has no layer of attention: there is nothing to look at in TransformerLens")
    heads = max(layer["heads"] for layer in config["layers"])
    width = 1
    while width < max(max(layer["d_head"], layer["d_value"]) for layer in config["layers"]):
        width *= 4
    root, d_model = float(np.sqrt(width)), config["d_model"]
    context = config["reference_tokens"] + config["tokens"]
    found: dict[str, Any] = {
        "embed.weight": tensors["embed.weight"],
        "embed.bias": tensors["embed.bias"],
        "positions": tensors["positions"],
        "references": tensors["references"],
        "bridge.tok_embed.weight": np.zeros((1, d_model)),
        "bridge.pos.weight": np.zeros((context, d_model)),
        "bridge.head.weight": tensors["unembed.weight"],
        "bridge.head.bias": tensors["unembed.bias"],
    }
    for number, layer in enumerate(config["layers"]):
        stem = f"bridge.layers.{number}.attn"
        for name, own in (("q", "query"), ("k", "key"), ("v", "value")):
            weights = _filled(tensors[f"layers.{number}.{own}.weight"], layer["heads"], heads, width)
            found[f"{stem}.{name}.weight"] = weights * root if name == "q" else weights
            found[f"{stem}.{name}.bias"] = np.zeros(heads * width)
        found[f"{stem}.o.weight"] = _filled(tensors[f"layers.{number}.output.weight"].T, layer["heads"], heads, width).T
        found[f"{stem}.o.bias"] = np.zeros(d_model)
    bridge = {
        "n_layers": len(config["layers"]),
        "d_model": d_model,
        "d_head": width,
        "n_heads": heads,
        "n_ctx": context,
        "d_vocab": 1,
        "d_vocab_out": config["outputs"],
        "d_mlp": 1,
        "act_fn": "relu",
        "attn_only": True,
        "normalization_type": None,
        "attention_dir": "causal" if config["causal"] else "bidirectional",
    }
    dtype = config["dtype"]
    refuse_halves(dtype, "TransformerLens")
    arrays = {name: np.ascontiguousarray(value, dtype=dtype) for name, value in found.items()}
    return Plain({"bridge": bridge, "headsmith": config}, arrays)


def _filled(weights: Any, own: int, heads: int, width: int) -> Any:
    """Weights (own heads * their width, d_model) as (heads * width, d_model), with zeros."""
    found = np.zeros((heads, width, weights.shape[1]), dtype=weights.dtype)
    apart = weights.reshape(own, -1, weights.shape[1])
    found[:own, : apart.shape[1]] = apart
    return found.reshape(heads * width, -1)
