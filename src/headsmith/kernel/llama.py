"""A certified model inside a stock Llama: what config.json and model.safetensors must be.

The stock model computes what the proven one computes, and its certificate holds. What a Llama adds, and why that
changes nothing:

Norm.   Every token holds c = 2^p in one column, the width is n = 4^q, every weight of every RMSNorm is 2^(p - q). Let Q
        bound the sum of the squares of all other columns, and Q (1 + 2 n u) + n epsilon < u c^2. Then RMSNorm returns
        every column z as it is. For half a unit in the last place above c^2 is u c^2, so that a sum of squares, in any
        order, is c^2 from where c^2 comes in; the mean is 4^(p - q), to which epsilon adds nothing; its inverse root
        2^(q - p) is exact, and so are the two products, unless the first one underflows: then a number below 2^-126 is
        lost, 2^(p - q - 126) after the second. Times any weight that is at most 2^-100, and so the bound is proved
        again, in a float32 whose smallest normal number is 2^-100. If exact squares are summed without rounding, the
        root of 1 + Q/c^2 < 1 + u rounds to 1.
RoPE.   Frequencies are at most 2^-100 and positions below 2^12, so that cosines are 1 and sines below 2^-87. Features
        fill the first half of d_head alone: there, a zero times a sine is added. The second half holds features times
        sines; a product of two of them is below 2^-150 if that of the features is below 2^24, and a score has fewer
        than 2^20 of them, so that all of them together are less than 2^-100.
Scale.  Scores are divided by the root of d_head = 16^k, together or a quarter power for each factor: powers of two, by
        which W_Q is multiplied.
MLP.    All weights are zero: zero is added.
Mask.   Reference tokens come first, and no token sees later ones: the mask `causal` of the claim.
Heads.  Heads and columns of zeros are filled in, which add zeros. The bias of the read-out is a weight on `data`.

The rows of embed_tokens: the reference tokens; the data token at each place, without its inputs; for each input what it
adds to a data token, times its value; one row for padding, of zeros. With a vocabulary of numbers (tokenizer.json),
there are as many data tokens as inputs, and rows for words: "x=0.25" is the data token at the place of x among the
inputs, with 0.25 there and the middles of the domain for all others, an input like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import FLOAT32, Array, Interval, Precision, Upper, largest
from .check import Certificate, certificate, facts_of
from .errors import Refused
from .graph import Graph
from .matrices import heads_of, readout_of, tokens_of
from .model import RESERVED, Model
from .proof import Proof
from .reading import whole
from .walk import Walk, walk_through

NUMBER = re.compile(r"(.*)=(-?[0-9]{1,40}(\.[0-9]{1,200})?)", re.DOTALL)
EPSILON = 1e-6
MOST_POSITIONS, MOST_NUMBERS, LARGEST_CONSTANT = 1 << 12, 1 << 28, 2.0**60
COARSE = Precision("float32", FLOAT32.unit_roundoff, 2.0**-100, FLOAT32.largest)
ASSUMES = (
    "a stock Llama as in transformers, in float32: no TF32, bfloat16, autocast or quantisation, no kernels put in "
    "place of its own; softmax subtracts the largest score of a row",
    "the inverse square root of a power of four is exact, and the cosine of a number below 2^-87 is 1",
    "inputs enter as inputs_embeds: rows of embed_tokens for the tokens in their order, and for every data token its "
    "inputs times the inputs' rows, added in float32; no padding. Words for numbers, if there are any, enter as "
    "input_ids: the reference tokens, and then one word for each variable, in the order of the variables",
)


def llama(
    target: Graph, model: Model, proof: Proof, box: Interval, root: float | None, words: Mapping[str, Any]
) -> tuple[Certificate, dict[str, Any], dict[str, Any]]:
    """What is proved of the stock model, its configuration and its weights by name."""
    facts = facts_of(target, replace(model, precision=COARSE), proof, box)
    found = certificate(target, facts, box)
    layers = [[heads_of(model, bank) for bank in layer] for layer in model.layers]
    numbers = numbers_of(model, target.nodes[0].names, box, words)
    sizes, config = column_sizes(model, walk_through(facts), COARSE), config_of(model, layers, len(numbers))
    root = _root(model, sizes, config["hidden_size"], root)
    weights = weights_of(model, layers, config, root, numbers)
    _refuse_features([bank for layer in layers for bank in layer], weights, sizes, config["head_dim"], root)
    return replace(found, masks=("causal",), assumes=(*found.assumes, *ASSUMES)), config, weights


# What a Llama adds --------------------------------------------------------------------------------------------------


def column_sizes(model: Model, walk: Walk, precision: Precision) -> Upper:
    """How large each column of the stream may be, on any token, before any layer and after the last."""
    found = np.zeros(sum(model.sizes.values()))
    for stream in (*walk.past, walk.stream):
        sizes = []
        for name, register in stream.items():
            drift = register.drift + precision.gamma(register.count + 2) * register.drift
            size = largest(register.magnitude + register.off(precision), drift + register.off(precision))
            sizes.append(np.ones_like(size.value) if name in RESERVED else size.value)
        found = np.maximum(found, np.concatenate(sizes))
    return Upper(found)


def _root(model: Model, sizes: Upper, width: int, given: float | None) -> float:
    """The weight of the norms with which RMSNorm returns what it is given: the one that is given, or the smallest."""
    own = np.concatenate([np.full(size, name not in RESERVED) for name, size in model.sizes.items()])
    # Of data and reference at most one is 1, and of the columns of the grid; those of the position code are +-1.
    squares = (sizes * sizes * own).sum() + (2.0 + model.bits)
    needed = squares * (1.0 + 2.0 * width * FLOAT32.unit_roundoff) + width * EPSILON
    for root in 2.0 ** np.arange(41.0) if given is None else [given]:
        c = float(root) * float(np.sqrt(width))
        if np.frexp(root)[0] == 0.5 and c <= LARGEST_CONSTANT and needed.value < FLOAT32.unit_roundoff * c * c:
            return float(root)
    shown = "no constant is large enough" if given is None else f"the norms' weight {given:.4g} does not fit"
    raise Refused(f"registers whose squares add up to {float(squares.value):.4g} are not normed away: {shown}")


def _refuse_features(banks: Sequence[Any], weights: dict[str, Any], sizes: Upper, width: int, root: float) -> None:
    """Raise Refused where sines may matter, or what a norm loses of small numbers."""
    heaviest = [float(np.abs(weights["score.weight"]).max(initial=0.0))]
    for W_Q, W_K, W_V, _ in banks:
        flat = [np.abs(each).transpose(0, 2, 1).reshape(-1, each.shape[1]) for each in (W_Q, W_K)]
        products = (flat[0] @ sizes) * (flat[1] @ sizes) * float(np.sqrt(width))
        heaviest += [float(np.abs(each).max(initial=0.0)) for each in (W_Q, W_K, W_V)]
        if not float(products.max().value) < 2.0**24:
            raise Refused(f"features of {float(products.max().value):.3g} are too large for rotations not to matter")
    if not max(heaviest) * root <= 2.0**26:
        raise Refused(f"weights of {max(heaviest):.3g} are too large for norms with the weight {root:g}")


# What a Llama must hold ---------------------------------------------------------------------------------------------


def config_of(model: Model, layers: Sequence[Sequence[Any]], words: int) -> dict[str, Any]:
    """config.json, with so many words for numbers."""
    # A power of two, for the width of a Llama must be a multiple of it.
    heads = 1 << (max(sum(len(W_Q) for W_Q, _, _, _ in layer) for layer in layers) - 1).bit_length()
    features = max(2 * W_Q.shape[2] for layer in layers for W_Q, _, _, _ in layer)
    values = max(W_V.shape[2] for layer in layers for _, _, W_V, _ in layer)
    head, width, tokens = 16, 4, model.references + model.tokens
    while head < max(features, values):
        head *= 16
    while width < max(sum(model.sizes.values()) + 1, heads):
        width *= 4
    rows = padding(model) + 1 + words
    if tokens > MOST_POSITIONS or width * (4 * len(layers) * heads * head + rows) > MOST_NUMBERS:
        raise Refused(f"{tokens} tokens, width {width}, {heads} heads of {head}: too large for a stock model")
    sequences = model.tokens > 1 and not words
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0**100}
    return {
        "architectures": ["LlamaForTokenClassification" if sequences else "LlamaForSequenceClassification"],
        "model_type": "llama",
        "head_dim": head,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": 1,
        "max_position_embeddings": tokens,
        "num_attention_heads": heads,
        "num_hidden_layers": len(layers),
        "num_key_value_heads": heads,
        "rms_norm_eps": EPSILON,
        "rope_parameters": rope,
        "rope_scaling": rope,
        **dict.fromkeys(("attention_bias", "mlp_bias"), False),
        **dict.fromkeys(("attention_dropout", "classifier_dropout"), 0.0),
        **settings(model, rows),
    }


def settings(model: Model, rows: int) -> dict[str, Any]:
    """What config.json says in any architecture."""
    names = {str(place): f"y{place}" for place in range(model.outputs)}
    found = {"dtype": "float32", "pad_token_id": padding(model), "vocab_size": rows, "id2label": names}
    found |= {"label2id": {name: int(place) for place, name in names.items()}, "use_cache": False}
    return found | {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}


def weights_of(
    model: Model, layers: Sequence[Sequence[Any]], config: dict[str, Any], root: float, numbers: Sequence[Any]
) -> dict[str, Any]:
    """model.safetensors: every tensor by its name; `root` is the weight of the norms."""
    width, heads, head = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    norm = np.full(width, root)
    found: dict[str, Any] = {
        "model.embed_tokens.weight": _rows(model, config, root, numbers),
        "model.norm.weight": norm,
    }
    for number, layer in enumerate(layers):
        stem = f"model.layers.{number}"
        for place, name in enumerate("qkvo"):
            parts = [bank[place] if name != "o" else bank[place].transpose(0, 2, 1) for bank in layer]
            filled = np.zeros((heads, head, width))
            first = 0
            for part in parts:
                filled[first : first + len(part), : part.shape[2], : part.shape[1]] = part.transpose(0, 2, 1)
                first += len(part)
            whole = filled.reshape(heads * head, width) * (float(np.sqrt(head)) if name == "q" else 1.0)
            found[f"{stem}.self_attn.{name}_proj.weight"] = whole.T if name == "o" else whole
        for name, shape in (("gate", (1, width)), ("up", (1, width)), ("down", (width, 1))):
            found[f"{stem}.mlp.{name}_proj.weight"] = np.zeros(shape)
        for name in ("input", "post_attention"):
            found[f"{stem}.{name}_layernorm.weight"] = norm
    score = np.zeros((model.outputs, width))
    score[:, : sum(model.sizes.values())] = readout_of(model)
    found["score.weight"] = score
    if "Token" in config["architectures"][0]:
        found["score.bias"] = np.zeros(model.outputs)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def padding(model: Model) -> int:
    """The row of padding: after those of all tokens and inputs."""
    return model.references + model.tokens + model.inputs


def numbers_of(model: Model, names: Sequence[str], box: Interval, words: Mapping[str, Any]) -> list[tuple[int, Array]]:
    """The place and the inputs of the word in each row after that of padding."""
    found: dict[int, tuple[int, Array]] = {}
    middles = ((box.low + box.high) / 2.0).astype(np.float32).astype(np.float64)
    for word, row in words.items():
        if whole(row) > padding(model):
            read, values = NUMBER.fullmatch(word), middles.copy()
            if read is None or read[1] not in names or row in found:
                raise Refused(f"the word {word!r} is not a name, = and a number; or two words have the row {row}")
            place, number = names.index(read[1]), Fraction(read[2])
            values[place] = float(number)
            found[row] = place, values
            if Fraction(float(np.float32(values[place]))) != number or not np.all(
                (box.low <= values) & (values <= box.high)
            ):
                raise Refused(f"the number of the word {word!r} is no float32, or not in the domain")
    if found and (
        sorted(found) != [padding(model) + 1 + each for each in range(len(found))] or model.tokens != len(names)
    ):
        raise Refused("the rows of words are not one after the other, or there is not one token for each variable")
    return [found[row] for row in sorted(found)]


def _rows(model: Model, config: dict[str, Any], root: float, numbers: Sequence[tuple[int, Array]]) -> Array:
    """embed_tokens."""
    tokens, inputs = tokens_of(model)
    found, (count, used) = np.zeros((config["vocab_size"], config["hidden_size"])), tokens.shape
    found[:count, :used], found[count : count + model.inputs, :used] = tokens, inputs
    found[:count, used] = root * np.sqrt(config["hidden_size"])
    data = found[model.references : count]
    if numbers and (np.count_nonzero(inputs, axis=0) + data[:, :used].any(axis=0) > 1).any():
        raise Refused("words need inputs that have columns of the stream for themselves")
    for row, (place, values) in enumerate(numbers, padding(model) + 1):
        found[row] = data[place]
        found[row, :used] += values @ inputs  # one product of two float32 in each column, or what was there
    return found
