"""A certified model inside a stock GPT-2: what config.json and model.safetensors must be, and what the norms cost.

Norm.   Beside the registers z a token holds a balance, -sum z up to rounding; a probe, 0; and c = 2^p and -c. The width
        is n = 2 . 4^q, and every LayerNorm has the weight 2^(p - q) = c sqrt(2 / n) and no bias. With Q a bound of the
        sum of the squares of registers and balance, and m the mean, 0 <= Q - n m^2 (Cauchy), the norm multiplies all
        columns less m by r with r^-2 = 1 + (Q - n m^2 + n epsilon) / (2 c^2); if Q + n epsilon <= 2 u c^2, by 1 up to
        u/2. A matrix that reads registers by w reads the probe by -sum w, so that m cancels.

        In floating point, by assumption, the computed mean M is within 5 u sum |z| of m, and the inverse root within
        8 u + 3 Q / (4 c^2) <= 9.5 u; both are the same for all columns. (z - M) times it rounds four times at most. So
        a product that is read, w z, is off by a factor within 1 +- 15.2 u, its own rounding included, and by 4.1 u |w|
        |M|; with the probe, whose weight is rounded, a form is off by 10.4 u |M| sum |w| at most.

Coarse. So the stock model is a run of the proven one in a coarser format of u' >= 16 u, in which no product is exact,
        not even with a power of two, and in which a product may lose `tiny`: what forms that values and outputs read
        are off by. What queries and keys are off by besides moves scores by at most D, which must be below 8 (u' - u):
        as a change of its argument, exp is within 8.08 u' in that format, and within 8.08 u here. Values of tables are
        stored: they are off by 15.2 u and by what the mean leaves, at most 42 u of the largest if |M| (tokens of the
        grid) <= 4, and sums, which need 4 u, count 64 u at least. The rules of sinks, tables and gates count every
        score, value and sum so, if there is one data token alone. The bound is proved again in that format.

Scale.  Scores are divided by the root of d_head = 16^k, as in a Llama. MLPs and positions are zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .arithmetic import FLOAT32, Array, Interval, Precision, Upper
from .check import Certificate, certificate, facts_of
from .errors import Refused
from .graph import Graph
from .llama import column_sizes, numbers_of, settings
from .matrices import Heads, heads_of, readout_of, tokens_of
from .model import RESERVED, Model
from .proof import Proof
from .walk import walk_through

EPSILON = 1e-5
MOST_NUMBERS, LARGEST_CONSTANT, LARGEST_LOSS = 1 << 28, 2.0**30, 2.0**-16
UNIT = FLOAT32.unit_roundoff
COARSE = [UNIT * 4.0**power for power in range(2, 7)]  # the first of these that will do
ASSUMES = (
    "a stock GPT-2 as in transformers, in float32, in evaluation mode: no TF32, bfloat16, autocast or quantisation, no "
    "kernels put in place of its own; softmax subtracts the largest score of a row",
    "LayerNorm computes the mean of a row within 5 u of the sum of absolute values, u = 2^-24, and the inverse root of "
    "the variance within 8 u and 3/4 of the squares of all columns but +-c over c^2; it rounds each column four times",
    "inputs enter as inputs_embeds: rows of wte for the tokens in their order, and for the data token its inputs times "
    "the inputs' rows, added in float32; no padding",
)


def gpt2(
    target: Graph, model: Model, proof: Proof, box: Interval, root: float | None, words: Mapping[str, Any]
) -> tuple[Certificate, dict[str, Any], dict[str, Any]]:
    """What is proved of the stock model, its configuration and its weights by name."""
    numbers = numbers_of(model, target.nodes[0].names, box, words)
    kinds = {bank.kind for layer in model.layers for bank in layer}
    if model.tokens > 1 or numbers or kinds - {"sink", "table", "gate"}:
        raise Refused("no rule for several data tokens in a GPT-2: norms move scores that must be equal; take a Llama")
    layers = [[heads_of(model, bank) for bank in layer] for layer in model.layers]
    config, readout = config_of(model, layers), readout_of(model)
    for unit in COARSE:
        facts = facts_of(target, replace(model, precision=_format(unit, LARGEST_LOSS)), proof, box)
        sizes = column_sizes(model, walk_through(facts), _format(unit, LARGEST_LOSS))
        own, mean = _norms(model, sizes, config["n_embd"], root)
        lost = max(float(_noise(each, mean).max().value) for each in (readout.T[None], *_values(model, layers)))
        moved = max(_moved(model, bank, sizes, mean) for layer in layers for bank in layer)
        if lost <= LARGEST_LOSS and moved <= 8.0 * (unit - UNIT) and mean * max(model.grid_tokens, 1) <= 4.0:
            facts = facts_of(target, replace(model, precision=_format(unit, lost)), proof, box)
            found = certificate(target, facts, box)
            weights = weights_of(model, layers, readout, config, own)
            return replace(found, masks=("causal",), assumes=(*found.assumes, *ASSUMES)), config, weights
    raise Refused(f"norms move scores by {moved:.3g} and values by {lost:.3g}: weights are too large for a GPT-2")


def _format(unit: float, lost: float) -> Precision:
    return Precision("float32", unit, lost, FLOAT32.largest, exact=False)


def _values(model: Model, layers: Sequence[Sequence[Heads]]) -> list[Array]:
    """W_V of all banks but tables, whose values are stored."""
    banks = [bank for layer in model.layers for bank in layer]
    heads = [each for layer in layers for each in layer]
    return [W_V for bank, (_, _, W_V, _) in zip(banks, heads, strict=True) if bank.kind != "table"]


def _norms(model: Model, sizes: Upper, width: int, given: float | None) -> tuple[float, float]:
    """The weight of the norms, the one that is given or the smallest possible; and a bound of the mean of a row."""
    own = np.concatenate([np.full(size, name not in RESERVED) for name, size in model.sizes.items()])
    total = (sizes * own).sum() + 2.0  # of the reserved columns at most two are one
    squares = (sizes * sizes * own).sum() + 2.0 + total * total
    # The mean itself is what sums and weights round, of registers and balance: so many terms at most have these.
    terms = 16 + model.inputs + len(model.layers) + sum(bank.outputs for layer in model.layers for bank in layer)
    for root in 2.0 ** np.arange(31.0) if given is None else [given]:
        c = float(root) * float(np.sqrt(width / 2.0))
        room = 2.0 * UNIT * c * c if np.frexp(root)[0] == 0.5 and 1.0 <= c <= LARGEST_CONSTANT else 0.0
        if float((squares + width * EPSILON).value) <= room:
            return float(root), float(((total + total) * ((5.0 + terms) * UNIT) + 10.1 * UNIT * c).value)
    shown = "no constant is large enough" if given is None else f"the norms' weight {given:.4g} does not fit"
    raise Refused(f"registers whose squares add up to {float(squares.value):.4g} are not normed away: {shown}")


def _noise(weights: Array, mean: float) -> Upper:
    """What a form may be off by because of the mean, for weights (heads, d_model, forms)."""
    return Upper(np.abs(weights)).reshape(*weights.shape).sum(axis=1) * (10.4 * UNIT * mean)


def _moved(model: Model, bank: Heads, sizes: Upper, mean: float) -> float:
    """By how much scores may move because of the mean in queries and keys."""
    reserved = np.concatenate([np.full(size, name in RESERVED) for name, size in model.sizes.items()])
    read = []
    for weights in bank[:2]:
        size = (Upper(np.abs(weights)) * (sizes.value * ~reserved)[None, :, None]).sum(axis=1)
        read.append(size + np.abs(weights[:, reserved]).max(axis=1, initial=0.0))  # of these at most one is 1
    noise = [_noise(weights, mean) for weights in bank[:2]]
    total = read[0] * noise[1] + read[1] * noise[0] + noise[0] * noise[1]
    return float(total.sum().max().value)


def config_of(model: Model, layers: Sequence[Sequence[Heads]]) -> dict[str, Any]:
    """config.json."""
    heads = max(sum(len(W_Q) for W_Q, _, _, _ in layer) for layer in layers)
    widest = max(max(W_Q.shape[2], W_V.shape[2]) for layer in layers for W_Q, _, W_V, _ in layer)
    head, width, tokens = 16, 2, model.references + model.tokens
    while head < widest:
        head *= 16
    while width < max(sum(model.sizes.values()) + 4, heads * head):
        width *= 4
    rows = tokens + model.inputs + 1
    if width * (4 * len(layers) * width + rows) > MOST_NUMBERS:
        raise Refused(f"{tokens} tokens, width {width}, {heads} heads of {head}: too large for a stock model")
    return {
        "architectures": ["GPT2ForSequenceClassification"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPSILON,
        "n_embd": width,
        "n_head": width // head,
        "n_inner": 1,
        "n_layer": len(layers),
        "n_positions": tokens,
        "scale_attn_weights": True,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        **dict.fromkeys(("add_cross_attention", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx"), False),
        **settings(model, rows),
    }


def weights_of(
    model: Model, layers: Sequence[Sequence[Heads]], readout: Array, config: dict[str, Any], root: float
) -> dict[str, Any]:
    """model.safetensors: every tensor by its name; `root` is the weight of the norms."""
    width, head = config["n_embd"], config["n_embd"] // config["n_head"]
    used, scale = sum(model.sizes.values()), float(np.sqrt(head))
    c = root * float(np.sqrt(width / 2.0))
    rows, inputs = tokens_of(model)
    table = np.zeros((config["vocab_size"], width))
    table[: len(rows) + len(inputs)] = _balanced(np.concatenate([rows, inputs]), width)
    table[: len(rows), used + 2 : used + 4] = [c, -c]
    found: dict[str, Any] = {"transformer.wte.weight": table, "transformer.wpe.weight": np.zeros((len(rows), width))}
    for number, layer in enumerate(layers):
        stem, first = f"transformer.h.{number}", 0
        attention, output = np.zeros((width, 3, config["n_head"], head)), np.zeros((config["n_head"], head, width))
        for W_Q, W_K, W_V, W_O in layer:
            mine = slice(first, first + len(W_Q))
            for place, weights in enumerate((W_Q * scale, W_K, W_V)):
                attention[:, place, mine, : weights.shape[2]] = _probed(weights.transpose(1, 0, 2), width)
            output[mine, : W_O.shape[1]] = _balanced(W_O, width)
            first += len(W_Q)
        found[f"{stem}.attn.c_attn.weight"] = attention.reshape(width, -1)
        found[f"{stem}.attn.c_proj.weight"] = output.reshape(-1, width)
        found |= {f"{stem}.mlp.c_fc.weight": np.zeros((width, 1)), f"{stem}.mlp.c_proj.weight": np.zeros((1, width))}
        for name, size in (("attn.c_attn", 3 * width), ("attn.c_proj", width), ("mlp.c_fc", 1), ("mlp.c_proj", width)):
            found[f"{stem}.{name}.bias"] = np.zeros(size)
        for name in ("ln_1", "ln_2"):
            found |= {f"{stem}.{name}.weight": np.full(width, root), f"{stem}.{name}.bias": np.zeros(width)}
    found |= {"transformer.ln_f.weight": np.full(width, root), "transformer.ln_f.bias": np.zeros(width)}
    found["score.weight"] = _probed(readout.T, width).T
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def _balanced(written: Array, width: int) -> Array:
    """What is written to registers, (..., d_model), and to the balance: minus their sum."""
    stored = written.astype(np.float32).astype(np.float64)
    found = np.zeros((*written.shape[:-1], width))
    found[..., : written.shape[-1]], found[..., written.shape[-1]] = stored, -stored.sum(axis=-1)
    return found


def _probed(read: Array, width: int) -> Array:
    """Weights that read registers, (d_model, ...), and the probe: minus their sum."""
    stored = read.astype(np.float32).astype(np.float64)
    found = np.zeros((width, *read.shape[1:]))
    found[: len(read)], found[len(read) + 1] = stored, -stored.sum(axis=0)
    return found
