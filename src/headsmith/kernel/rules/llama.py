"""A certified model inside a stock Llama: what config.json and model.safetensors must be.

The stock model computes what the proven one computes, and its certificate holds. What a Llama adds, and why that
changes nothing:

Norm.   Every token holds c = 2^p in one column, the width is n = 4^q, every weight of every RMSNorm is 2^(p - q). Let Q
        bound the sum of the squares of all other columns, and Q (1 + 2 n u) + n epsilon < u c^2. Then RMSNorm returns
        every column z as it is. For half a unit in the last place above c^2 is u c^2, so that a sum of squares, in any
        order, is c^2 from where c^2 comes in; the mean is 4^(p - q), to which epsilon adds nothing; its inverse root
        2^(q - p) is exact, and so are the two products, unless the first one underflows: then a number below 2^-126 is
        lost, 2^(p - q - 126) after the second. Times any weight that is at most 2^-80, and so the bound is proved
        again, in a float32 whose smallest normal number is 2^-80. If exact squares are summed without rounding, the
        root of 1 + Q/c^2 < 1 + u rounds to 1.
RoPE.   Frequencies are at most 2^-100 and positions below 2^12, so that cosines are 1 and sines below 2^-87. Features
        fill the first half of d_head alone: there, a zero times a sine is added. The second half holds features times
        sines; a product of two of them is below 2^-150 if that of the features is below 2^24, and a score has fewer
        than 2^20 of them, so that all of them together are less than 2^-100.
MLP.    Neurons (attentions.py), and neurons of zeros, which add zeros.
Mask.   Reference tokens come first, and no token sees later ones: the mask `causal` of the claim.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arithmetic import FLOAT32, Interval, Precision, Upper
from ..core.check import Certificate, certificate
from ..core.errors import refuse
from ..core.graph import Graph
from ..core.model import Model
from ..core.walk import Facts
from .layout import Laid, Layers, Neurons, Words, column_sizes, grown, laid_out, root_of, settings, totals, widest

LANGUAGE, NORM = "LlamaForCausalLM", "model.norm.weight"
EPSILON, MOST_POSITIONS = 1e-6, 1 << 12
COARSE = Precision("float32", FLOAT32.unit_roundoff, 2.0**-80, FLOAT32.largest)
ASSUMES = (
    "a stock Llama as in transformers, in float32: no TF32, bfloat16, autocast or quantisation, no kernels put in "
    "place of its own; softmax subtracts the largest score of a row",
    "the inverse square root of a power of four is exact, and the cosine of a number below 2^-87 is 1; silu(t) is "
    "computed as t / (1 + exp(-t)), or as t times 1 / (1 + exp(-t)) or, of t < 0, exp(t) / (1 + exp(t))",
)


def stock(
    target: Graph, facts: Facts, box: Interval, layers: Layers, neurons: list[Neurons], words: Words, root: float | None
) -> tuple[Certificate, dict[str, Any], dict[str, Any]]:
    """What is proved of the stock model, its configuration and its weights by name."""
    model, facts = facts.model, replace(facts, model=replace(facts.model, precision=COARSE))
    inner = max(1, *(len(gate) for gate, _, _ in neurons))
    config, sizes = config_of(model, layers, inner, len(words)), column_sizes(facts)
    width, heads, head = (config[name] for name in ("hidden_size", "num_attention_heads", "head_dim"))
    root = root_of(totals(model, sizes)[1], width, EPSILON, root)
    constant = np.array([root * np.sqrt(width)])
    laid = laid_out(model, layers, words, config["vocab_size"], (width, heads, head), constant, False)
    _refuse_features(layers, neurons, laid, sizes, head, root)
    weights = weights_of(laid, neurons, inner, root)
    if "Token" in config["architectures"][0]:
        weights["score.bias"] = np.zeros(model.outputs)
    return certificate(target, facts, box), config, weights


def _refuse_features(layers: Layers, neurons: list[Neurons], laid: Laid, sizes: Upper, head: int, root: float) -> None:
    """Raise Refused where sines may matter, or what a norm loses of small numbers."""
    read = [laid.score, *(each for gate, up, _ in neurons for each in (gate, up))]
    for W_Q, W_K, W_V, _ in (bank for layer in layers for bank in layer):
        flat = [np.abs(each).transpose(0, 2, 1).reshape(-1, each.shape[1]) for each in (W_Q, W_K)]
        most = float(((flat[0] @ sizes) * (flat[1] @ sizes) * float(np.sqrt(head))).max().value)
        read += [W_Q, W_K, W_V]
        refuse(not most < 2.0**24, f"features of {most:.3g} are too large for rotations not to matter")
    heaviest = max(float(np.abs(each).max(initial=0.0)) for each in read)
    refuse(not heaviest * root <= 2.0**46, f"weights of {heaviest:.3g} are too large for norms of {root:g}")


def config_of(model: Model, layers: Layers, inner: int, words: int) -> dict[str, Any]:
    """config.json, with so many neurons in a layer, and words for numbers."""
    most, features, values = widest(layers)
    heads = grown(1, 2, most)  # a power of two, for the width of a Llama must be a multiple of it
    head, width = grown(16, 16, max(2 * features, values)), grown(4, 4, max(sum(model.sizes.values()) + 1, heads))
    tokens = model.references + model.tokens
    refuse(tokens > MOST_POSITIONS, f"{tokens} tokens are too many for rotations not to matter")
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0**100}
    found = settings("Llama", model, words, len(layers) * (4 * heads * head + 3 * inner) * width, width)
    found |= {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": EPSILON, "max_position_embeddings": tokens}
    found |= {"num_attention_heads": heads, "num_key_value_heads": heads, "num_hidden_layers": len(layers)}
    found |= {"hidden_size": width, "head_dim": head, "intermediate_size": inner}
    found |= dict.fromkeys(("rope_parameters", "rope_scaling"), rope)
    return found | {"attention_dropout": 0.0, "classifier_dropout": 0.0, "attention_bias": False, "mlp_bias": False}


def weights_of(laid: Laid, neurons: list[Neurons], inner: int, root: float) -> dict[str, Any]:
    """model.safetensors: every tensor by its name; `root` is the weight of the norms."""
    width, norm = laid.table.shape[1], np.full(laid.table.shape[1], root)
    found = {"model.embed_tokens.weight": laid.table, NORM: norm, "score.weight": laid.score.T}
    for number, (reads, writes) in enumerate(laid.layers):
        stem = f"model.layers.{number}"
        for name, read in zip("qkv", reads, strict=True):
            found[f"{stem}.self_attn.{name}_proj.weight"] = read.reshape(width, -1).T
        found[f"{stem}.self_attn.o_proj.weight"] = writes.reshape(-1, width).T
        for name, part in zip(("gate", "up", "down"), neurons[number], strict=True):
            filled = np.pad(part, [(0, inner - part.shape[0]), (0, width - part.shape[1])])
            found[f"{stem}.mlp.{name}_proj.weight"] = filled.T if name == "down" else filled
        for name in ("input", "post_attention"):
            found[f"{stem}.{name}_layernorm.weight"] = norm
    return found
