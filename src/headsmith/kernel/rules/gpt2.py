"""A certified model inside a stock GPT-2: what config.json and model.safetensors must be, and what the norms cost.

Norm.   Beside the registers z a token holds a balance, -sum z up to rounding; a probe, 0; and c = 2^p and -c. The width
        is n = 2 . 4^q, and every LayerNorm has the weight 2^(p - q) = c sqrt(2 / n) and no bias. With Q a bound of the
        sum of the squares of registers and balance, and m the mean, 0 <= Q - n m^2 (Cauchy), the norm multiplies all
        columns less m by r with r^-2 = 1 + (Q - n m^2 + n epsilon) / (2 c^2); if Q + n epsilon < 2 u c^2, by 1 up to
        u/2. A matrix that reads registers by w reads the probe by -sum w, so that m cancels.

        In floating point, by assumption, the computed mean M is within 5 u sum |z| of m, and the inverse root within
        8 u + 3 Q / (4 c^2) <= 9.5 u; both are the same for all columns. (z - M) times it rounds four times at most. So
        a product that is read, w z, is off by a factor within 1 +- 15.2 u, its own rounding included, and by 4.1 u |w|
        |M|; with the probe, whose weight is rounded, that is 10.4 u |M| sum |w|. Of n weights, n - 1 sums on the way
        hold a part of the mean, at most |M| sum |w|: a form is off by (9.4 + n) u |M| sum |w| at most.

Coarse. So the stock model is a run of the proven one in a coarser format of u' >= 16 u, in which no product is exact,
        not even with a power of two, and in which a product may lose `tiny`: what forms that values and outputs read
        are off by. What queries and keys are off by besides moves scores by at most D, which must be below 8 (u' - u):
        as a change of its argument, exp is within 8.08 u' in that format, and within 8.08 u here. Values of tables are
        stored: they are off by 15.2 u and by what the mean leaves, at most (38 + 4 G) u of the largest if |M| G <= 4
        for G tokens of the grid, and sums, which need 2 G + 2, count 16 (2 G + 2) u. Tokens that should hold zero hold
        (9.4 + n) u |M| sum |w|, and rules count 4 `tiny` for each token. Every token has a norm of its own: scores that
        are equal elsewhere differ here. All rules count scores, values and sums so. The bound is proved again in that
        format.

MLPs and positions are zero.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ..core.arithmetic import FLOAT32, Array, Interval, Precision, Upper
from ..core.check import Certificate, certificate
from ..core.errors import Refused, ThinMargin, refuse
from ..core.graph import Graph
from ..core.model import DATA, GRID, REFERENCE, Model
from ..core.walk import Facts
from . import layout
from .layout import Heads, Laid, Layers, Neurons, Words, column_sizes, root_of, totals

LANGUAGE, NORM, EPSILON = "GPT2LMHeadModel", "transformer.ln_f.weight", 1e-5
ONE_HOT = (DATA, REFERENCE, GRID)
UNIT, TINY = FLOAT32.unit_roundoff, FLOAT32.smallest_normal
LOSSES, COARSE = (2.0**-22, 2.0**-16), [UNIT * 4.0**power for power in range(2, 7)]  # the first of these that will do
ASSUMES = (
    "a stock GPT-2 as in transformers, in float32, in evaluation mode: no TF32, bfloat16, autocast or quantisation, no "
    "kernels put in place of its own; softmax subtracts the largest score of a row",
    "LayerNorm computes the mean of a row within 5 u of the sum of absolute values, u = 2^-24, and the inverse root of "
    "the variance within 8 u and 3/4 of the squares of all columns but +-c over c^2; it rounds each column four times",
)


def stock(
    target: Graph, facts: Facts, box: Interval, layers: Layers, neurons: list[Neurons], words: Words, root: float | None
) -> tuple[Certificate, dict[str, Any], dict[str, Any]]:
    """What is proved of the stock model, its configuration and its weights by name."""
    model, banks = facts.model, [bank for layer in facts.model.layers for bank in layer]
    refuse(any(len(gate) for gate, _, _ in neurons), "a GPT-2 has no SwiGLU blocks: take a Llama")
    config, heads = config_of(model, layers, len(words)), [head for layer in layers for head in layer]
    # The values of tables are stored; but where they should be zero, rules count what their mean is off by.
    forms = [W_V for bank, (_, _, W_V, _) in zip(banks, heads, strict=True) if bank.kind != "table"]
    forms += [np.full((1, model.grid_tokens, 1), 1.0 / model.grid_tokens) for bank in banks if bank.kind == "table"]
    why = Refused("norms move scores and values too much: weights are too large for a GPT-2")
    for unit, most in product(COARSE, LOSSES):
        try:
            sizes = column_sizes(_in(facts, unit, most))
        except ThinMargin as problem:
            why = problem
            continue
        own, mean = _norms(model, sizes, config["n_embd"], root)
        lost = max(float(_noise(each, mean).max().value) for each in (layout.readout_of(model).T[None], *forms))
        moved = max(_moved(model, bank, sizes, mean) for bank in heads)
        if lost <= most and moved <= 8.0 * (unit - UNIT) and mean * max(model.grid_tokens, 1) <= 4.0:
            shape = config["n_embd"], config["n_head"], config["n_embd"] // config["n_head"]
            constants = own * float(np.sqrt(shape[0] / 2.0)) * np.array([1.0, -1.0])
            laid = layout.laid_out(model, layers, words, config["vocab_size"], shape, constants, True)
            weights = weights_of(laid, own) | {"transformer.wpe.weight": np.zeros((config["n_positions"], shape[0]))}
            if "Token" in config["architectures"][0]:
                score = weights.pop("score.weight")
                weights |= {"classifier.weight": score, "classifier.bias": np.zeros(model.outputs)}
            return certificate(target, _in(facts, unit, lost), box), config, weights
    raise why


def _in(facts: Facts, unit: float, lost: float) -> Facts:
    """The same in a format in which products are not exact."""
    coarse = Precision("float32", unit, lost, FLOAT32.largest, exact=False)
    return replace(facts, model=replace(facts.model, precision=coarse))


def _norms(model: Model, sizes: Upper, width: int, given: float | None) -> tuple[float, float]:
    """The weight of the norms, the one that is given or the smallest possible; and a bound of the mean of a row."""
    total, squares = totals(model, sizes)
    root = root_of(squares + total * total, width, EPSILON, given)
    # The mean itself is what sums and weights round, of registers and balance: so many terms at most have these.
    terms = 16 + model.inputs + len(model.layers) + sum(bank.outputs for layer in model.layers for bank in layer)
    mean = (total + total) * ((5.0 + terms) * UNIT) + 10.1 * UNIT * root * float(np.sqrt(width / 2.0))
    return root, float(mean.value)


def _noise(weights: Array, mean: float) -> Upper:
    """What a form may be off by because of the mean, for weights (heads, d_model, forms). However small these are,
    their products may underflow."""
    return Upper(np.abs(weights)).sum(axis=1) * Upper(9.4 + (weights != 0.0).sum(axis=1)) * (UNIT * mean) + TINY


def _moved(model: Model, bank: Heads, sizes: Upper, mean: float) -> float:
    """By how much scores may move because of the mean in queries and keys."""
    fixed, read = np.concatenate([np.full(size, name in ONE_HOT) for name, size in model.sizes.items()]), []
    for weights in bank[:2]:
        size = (Upper(np.abs(weights)) * (sizes.value * ~fixed)[None, :, None]).sum(axis=1)
        read.append(size + np.abs(weights[:, fixed]).max(axis=1, initial=0.0))  # of these at most one is 1
    noise = [_noise(weights, mean) for weights in bank[:2]]
    total = read[0] * noise[1] + read[1] * noise[0] + noise[0] * noise[1]
    return float(total.sum().max().value)


def config_of(model: Model, layers: Layers, words: int) -> dict[str, Any]:
    """config.json, with so many words for numbers."""
    heads, features, values = layout.widest(layers)
    head = layout.grown(16, 16, max(features, values))
    width = layout.grown(2, 4, max(sum(model.sizes.values()) + 4, heads * head))
    found = layout.settings("GPT2", model, words, 4 * len(layers) * width * width, width)
    found |= {"model_type": "gpt2", "activation_function": "gelu_new", "n_layer": len(layers), "n_inner": 1}
    found |= {"n_embd": width, "n_head": width // head, "n_positions": model.references + model.tokens}
    found |= {"layer_norm_epsilon": EPSILON, "scale_attn_weights": True}
    found |= dict.fromkeys(("attn_pdrop", "classifier_dropout", "embd_pdrop", "resid_pdrop"), 0.0)
    never = "add_cross_attention", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx"
    return found | dict.fromkeys(never, False)


def weights_of(laid: Laid, root: float) -> dict[str, Any]:
    """model.safetensors: every tensor by its name; `root` is the weight of the norms."""
    width = laid.table.shape[1]
    found, norms = {"transformer.wte.weight": laid.table, "score.weight": laid.score.T}, ["transformer.ln_f"]
    for number, (reads, writes) in enumerate(laid.layers):
        norms += [f"transformer.h.{number}.ln_1", f"transformer.h.{number}.ln_2"]
        matrices = {"attn.c_attn": reads.transpose(1, 0, 2, 3).reshape(width, -1)}
        matrices |= {"attn.c_proj": writes.reshape(-1, width)}
        matrices |= {"mlp.c_fc": np.zeros((width, 1)), "mlp.c_proj": np.zeros((1, width))}
        for name, matrix in matrices.items():
            found[f"transformer.h.{number}.{name}.weight"] = matrix
            found[f"transformer.h.{number}.{name}.bias"] = np.zeros(matrix.shape[1])
    for name in norms:
        found |= {f"{name}.weight": np.full(width, root), f"{name}.bias": np.zeros(width)}
    return found
