"""A certified model inside a stock Llama: a folder of config.json and model.safetensors, and the proof beside them.

Every weight of the folder must be the one that the proven model has there, and config.json the one below. Then the
stock model computes what the proven one computes, and its certificate holds. What a Llama adds, and why that changes
nothing:

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

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from .arithmetic import FLOAT32, Array, Interval, Precision, Upper, largest
from .check import DAMAGE, Certificate, box_of, certificate, checked, facts_of
from .errors import Refused
from .graph import dense, read_graph
from .heads import addresses
from .model import DATA, GRID, KEY, POSITION, REFERENCE, RESERVED, Bank, Link, Model, read_model
from .proof import read_proof
from .reading import Tensors, digest, field, mapping, read, whole
from .walk import Walk, walk_through

CONFIG, WEIGHTS, PROOF, WORDS = "config.json", "model.safetensors", "proof.safetensors", "tokenizer.json"
NUMBER = re.compile(r"(.*)=(-?[0-9]{1,40}(\.[0-9]{1,200})?)", re.DOTALL)
EPSILON = 1e-6
MOST_POSITIONS, MOST_NUMBERS, LARGEST_TEXT, LARGEST_CONSTANT = 1 << 12, 1 << 28, 1 << 26, 2.0**60
COARSE = Precision("float32", FLOAT32.unit_roundoff, 2.0**-100, FLOAT32.largest)
ASSUMES = (
    "a stock Llama as in transformers, in float32: no TF32, bfloat16, autocast or quantisation, no kernels put in "
    "place of its own; softmax subtracts the largest score of a row",
    "the inverse square root of a power of four is exact, and the cosine of a number below 2^-87 is 1",
    "inputs enter as inputs_embeds: rows of embed_tokens for the tokens in their order, and for every data token its "
    "inputs times the inputs' rows, added in float32; no padding. Words for numbers, if there are any, enter as "
    "input_ids: the reference tokens, and then one word for each variable, in the order of the variables",
)


@dataclass(frozen=True, eq=False)
class Stock:
    """A certified model as a stock one: what is proved of it, its configuration and its weights by name."""

    certificate: Certificate
    config: dict[str, Any]
    weights: dict[str, Any]


def check_folder(folder: str | os.PathLike[str]) -> Certificate:
    """The certificate of the stock model in a folder, by the proof beside it. Raises Refused with the reason."""
    header, tensors = read(os.path.join(folder, PROOF))
    checked(header, tensors)
    held = _weights(os.path.join(folder, WEIGHTS))
    root = held.get("model.norm.weight", np.zeros(0)).ravel()[:1].tolist()
    path = os.path.join(folder, WORDS)
    words = field(field(_json(path), "model"), "vocab") if os.path.isfile(path) else {}
    wanted = stock(header, tensors, root[0] if root else 0.0, mapping(words))
    refuse_others(wanted, _json(os.path.join(folder, CONFIG)), held)
    return wanted.certificate


def refuse_others(wanted: Stock, config: Any, held: dict[str, Any]) -> None:
    """Raise Refused unless this is the configuration, and these are the weights, of the proven model."""
    text = [json.dumps(each, sort_keys=True) for each in (config, wanted.config)]  # so that 1, 1.0 and true differ
    if text[0] != text[1]:
        names = {*config, *wanted.config} if isinstance(config, dict) else ()
        wrong = [name for name in sorted(names) if config.get(name, wanted) != wanted.config.get(name, wanted)]
        raise Refused(f"{CONFIG} is not the one of the proven model ({', '.join(wrong)})")
    for name in sorted({*held, *wanted.weights}):
        if name not in held or name not in wanted.weights or held[name].shape != wanted.weights[name].shape:
            raise Refused(f"{WEIGHTS}: {name} is missing, of another shape, or not one of the proven model's")
        for place in np.argwhere(held[name] != wanted.weights[name])[:1].tolist():
            found, proven = held[name][tuple(place)], wanted.weights[name][tuple(place)]
            raise Refused(f"{WEIGHTS}: {name}{place} is {found}, and {proven} in the proven model")


def stock(header: Any, tensors: Tensors, root: float | None = None, words: Mapping[str, Any] | None = None) -> Stock:
    """The stock model of a file that carries a proof. `root` is the weight of its norms, the smallest possible one
    unless given; `words` are the numbers of a vocabulary, with their rows. Raises Refused where a stock model cannot
    hold it."""
    try:
        with np.errstate(all="ignore"):
            return _stock(header, tensors, root, words or {})
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def _stock(header: Any, tensors: Tensors, root: float | None, words: Mapping[str, Any]) -> Stock:
    target, stored = read_graph(field(header, "source"), tensors), field(header, "proof")
    model = read_model(field(header, "transformer"), tensors, field(stored, "roles"))
    box, proof = box_of(field(header, "domain"), target), read_proof(stored, tensors, target)
    if model.precision is not FLOAT32:
        raise Refused("a stock Llama computes in float32, and the proof is about float64: compile with dtype float32")
    if proof.blocks:
        raise Refused("the model takes its inputs at many tokens, one for each piece, which must all see each other")
    facts = facts_of(target, replace(model, precision=COARSE), proof, box)
    found = certificate(target, facts, box)
    if "causal" not in found.masks:
        raise Refused("a stock Llama has a causal mask, and the model looks at later tokens")
    if not model.layers:
        raise Refused("the model has no layer of attention")
    layers = [[_heads(model, bank) for bank in layer] for layer in model.layers]
    numbers = _numbers(model, target.nodes[0].names, box, words)
    sizes, config = _column_sizes(model, walk_through(facts)), config_of(model, layers, len(numbers))
    root = _root(model, sizes, config["hidden_size"], root)
    weights = weights_of(model, layers, config, root, numbers)
    _refuse_features([bank for layer in layers for bank in layer], weights, sizes, config["head_dim"], root)
    own = digest(field(header, "source"), tensors)
    return Stock(replace(found, target=own, masks=("causal",), assumes=(*found.assumes, *ASSUMES)), config, weights)


def _json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read(LARGEST_TEXT))
    except (OSError, ValueError, RecursionError) as problem:
        raise Refused(f"{os.path.basename(path)} cannot be read ({problem})") from None


def _weights(path: str) -> dict[str, Any]:
    """The tensors of the stock model: float32, all finite."""
    try:
        with open(path, "rb") as file:
            found = load(file.read())
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise Refused(f"{WEIGHTS}: not a complete safetensors file ({problem})") from None
    for name, values in found.items():
        if values.dtype != np.float32 or not np.isfinite(values).all():
            raise Refused(f"{WEIGHTS}: {name} does not hold finite float32 numbers")
    return found


# What a Llama adds --------------------------------------------------------------------------------------------------


def _column_sizes(model: Model, walk: Walk) -> Upper:
    """How large each column of the stream may be, on any token and before any layer: sums only grow."""
    found = []
    for name, register in walk.stream.items():
        size, terms = largest(register.magnitude, register.drift), register.count + len(model.layers) + 2
        size = size + COARSE.gamma(terms) * size + terms * COARSE.smallest_normal
        found.append(np.ones_like(size.value) if name in RESERVED else size.value)
    return Upper(np.concatenate(found))


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
    heads = max(sum(len(W_Q) for W_Q, _, _, _ in layer) for layer in layers)
    features = max(2 * W_Q.shape[2] for layer in layers for W_Q, _, _, _ in layer)
    values = max(W_V.shape[2] for layer in layers for _, _, W_V, _ in layer)
    head, width, tokens = 16, 4, model.references + model.tokens
    while head < max(features, values):
        head *= 16
    while width <= sum(model.sizes.values()):
        width *= 4
    rows = _pad(model) + 1 + words
    if tokens > MOST_POSITIONS or width * (4 * len(layers) * heads * head + rows) > MOST_NUMBERS:
        raise Refused(f"{tokens} tokens, width {width}, {heads} heads of {head}: too large for a stock model")
    sequences = model.tokens > 1 and not words
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0**100}
    return {
        "architectures": ["LlamaForTokenClassification" if sequences else "LlamaForSequenceClassification"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "classifier_dropout": 0.0,
        "dtype": "float32",
        "eos_token_id": None,
        "head_dim": head,
        "hidden_act": "silu",
        "hidden_size": width,
        "id2label": {str(place): f"y{place}" for place in range(model.outputs)},
        "intermediate_size": 1,
        "label2id": {f"y{place}": place for place in range(model.outputs)},
        "max_position_embeddings": tokens,
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": len(layers),
        "num_key_value_heads": heads,
        "pad_token_id": _pad(model),
        "rms_norm_eps": EPSILON,
        "rope_parameters": rope,
        "rope_scaling": rope,
        "tie_word_embeddings": False,
        "use_cache": False,
        "vocab_size": rows,
    }


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
    score[:, : sum(model.sizes.values())] = _placed(model, model.readout, model.outputs, "read")
    score[:, _columns(model)[DATA]] += model.readout_bias[:, None]
    if np.any(model.readout_bias) and any(link.register == DATA for link in model.readout):
        raise Refused("the bias of the read-out meets another weight")
    found["score.weight"] = score
    if "Token" in config["architectures"][0]:
        found["score.bias"] = np.zeros(model.outputs)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def _pad(model: Model) -> int:
    """The row of padding: after those of all tokens and inputs."""
    return model.references + model.tokens + model.inputs


def _numbers(model: Model, names: Sequence[str], box: Interval, words: Mapping[str, Any]) -> list[tuple[int, Array]]:
    """The place and the inputs of the word in each row after that of padding."""
    found: dict[int, tuple[int, Array]] = {}
    middles = ((box.low + box.high) / 2.0).astype(np.float32).astype(np.float64)
    for word, row in words.items():
        if whole(row) > _pad(model):
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
        sorted(found) != [_pad(model) + 1 + each for each in range(len(found))] or model.tokens != len(names)
    ):
        raise Refused("the rows of words are not one after the other, or there is not one token for each variable")
    return [found[row] for row in sorted(found)]


def _rows(model: Model, config: dict[str, Any], root: float, numbers: Sequence[tuple[int, Array]]) -> Array:
    """embed_tokens."""
    columns, used, tokens = _columns(model), sum(model.sizes.values()), model.references + model.tokens
    found = np.zeros((config["vocab_size"], config["hidden_size"]))
    found[:tokens, used] = root * np.sqrt(config["hidden_size"])
    if model.sink_tokens:
        found[0, columns[REFERENCE]] = 1.0
    if model.grid_tokens:
        found[model.sink_tokens : model.references, columns[GRID]] = np.eye(model.grid_tokens)
    data = found[model.references : tokens]
    data[:, columns[DATA]] = 1.0
    if model.tokens > 1:
        data[:, columns[POSITION]] = addresses(tuple(range(model.tokens)), model.bits)[:, :-1]
    for name, values in (*model.initial.items(), *model.positional.items()):
        data[:, columns[name]] = values
    inputs = found[tokens : tokens + model.inputs, :used]
    inputs[:] = _placed(model, model.embedding, model.inputs, "write")
    if numbers and (np.count_nonzero(inputs, axis=0) + data[:, :used].any(axis=0) > 1).any():
        raise Refused("words need inputs that have columns of the stream for themselves")
    for row, (place, values) in enumerate(numbers, _pad(model) + 1):
        found[row] = data[place]
        found[row, :used] += values @ inputs  # one product of two float32 in each column, or what was there
    return found


def _columns(model: Model) -> dict[str, slice]:
    """Which columns of the stream a register has: one after the other."""
    ends = np.cumsum([*model.sizes.values()]).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(model.sizes.items(), ends, strict=True)}


def _placed(model: Model, links: Sequence[Link], rows: int, way: str) -> Array:
    """Links as one matrix (rows, d_model), in which no two may meet so that their sum is rounded."""
    columns, found = _columns(model), np.zeros((rows, sum(model.sizes.values())))
    for link in links:
        weights, place = dense(link.weights), link.rows if way == "read" else link.columns
        held = found[place, columns[link.register]]
        weights = weights if way == "read" else weights.T
        total = held + weights
        if not np.array_equal(total.astype(np.float32), total) or not np.array_equal(total - held, weights):
            raise Refused("two links meet in one weight, whose sum would be rounded")
        found[place, columns[link.register]] = total
    return found


def _heads(model: Model, bank: Bank) -> tuple[Array, Array, Array, Array]:
    """W_Q, W_K (heads, d_model, features), W_V (heads, d_model, values) and W_O (heads, values, d_model) of a bank, as
    model.py says."""
    columns, gains, bits = _columns(model), bank.gains, model.bits
    read, write = _placed(model, bank.read, bank.forms, "read"), _placed(model, bank.write, bank.outputs, "write")
    ones = np.eye(read.shape[1])
    data, reference, grid = (ones[columns[name]] if name in columns else ones[:0] for name in (DATA, REFERENCE, GRID))
    place, kept = ones[columns[POSITION]] if bits else ones[:0], reference + grid.sum(axis=0)
    keep = [(gains["keep_gain"] / KEY * kept, KEY * reference)] if "keep_gain" in gains and model.sink_tokens else []
    values, arrays = read[:, :, None], bank.arrays
    if bank.kind == "sink":
        reference_gain, position_gain = gains["reference_gain"] / KEY, gains["position_gain"] / KEY
        query, key = arrays["query_scale"][:, None], arrays["key_scale"][:, None]
        features = [(query * read, key * data), (reference_gain * kept, KEY * reference)]
        features += [(position_gain / 2.0 * bit, KEY * bit) for bit in place]
        features += [(KEY * data, -position_gain * bits / 2.0 * data)] if bits else []
        features += [(KEY * data, -reference_gain * grid.sum(axis=0))] if len(grid) else []
    elif bank.kind == "table":
        slope, silent, wide = arrays["slope"], gains["gain"] * (data + reference), arrays["slope"].shape[2]
        features = [(read[each::wide], slope[:, :, each] @ grid) for each in range(wide)]
        features += [(data, arrays["offset"] @ grid - silent), *keep]
        values = np.einsum("hgc,gn->hnc", arrays["values"], grid)
    elif bank.kind == "gate":
        position_gain = gains["position_gain"] / KEY
        own = arrays["offset"] / KEY @ grid - position_gain * bits / 2.0 * data
        features = [(read[0::2], arrays["slope"] @ grid), (KEY * data, own)]
        features += [(position_gain / 2.0 * bit, KEY * bit) for bit in place]
        features += [(gains["keep_gain"] / KEY * (kept - data), KEY * reference)]
        values = read[1::2, :, None]
    elif bank.kind == "boltzmann":
        features = [(arrays["query_scale"][:, None] * data, arrays["key_scale"][:, None] * read)]
        features += [(gains["gain"] / KEY * data, KEY * data), *keep]
    elif bank.kind == "mean":
        features, values = [(gains["gain"] / KEY * data, KEY * data), *keep], read.T[None]
    elif bank.kind == "move" and isinstance(bank.address, int):
        code = addresses((bank.address,), bits)[:, :-1] @ place
        features, values = [(gains["gain"] / KEY * data, KEY * code), *keep], read.T[None]
    elif bank.kind == "move":
        address = ones[columns[str(bank.address)]]
        features = [(gains["gain"] / KEY * one, KEY * bit) for one, bit in zip(address[:-1], place, strict=True)]
        features += [(query + gains["gain"] * bits / KEY * address[-1], key) for query, key in keep]
        values = read.T[None]
    else:
        wide = bank.width
        features = [(read[each], read[wide + each]) for each in range(wide)]
        features += [(KEY * data, -gains["gain"] / KEY * kept)] if model.references else []
        features, values = [*features, *keep], read[2 * wide :].T[None]
    shape = (bank.heads, read.shape[1])
    W_Q, W_K = (np.stack([np.broadcast_to(each[way], shape) for each in features], axis=2) for way in (0, 1))
    return W_Q, W_K, values, write.reshape(bank.heads, -1, read.shape[1])
