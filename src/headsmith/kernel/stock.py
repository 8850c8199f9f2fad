"""A certified model inside a stock architecture: a folder with config.json, model.safetensors and the proof.

Every weight of the folder must be the one that the proven model has there, and config.json the one that goes with it.
llama.py and gpt2.py say what these are, and why the stock model is then within the error that is stated.
A language model computes its first logits as a classifier does: its head has the same rows, and then rows of zeros.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from .arithmetic import FLOAT32
from .check import DAMAGE, Certificate, checked, contents
from .check import _masks as masks_of
from .errors import Refused
from .gpt2 import gpt2
from .llama import llama
from .reading import Tensors, field, mapping, read

CONFIG, WEIGHTS, PROOF, WORDS = "config.json", "model.safetensors", "proof.safetensors", "tokenizer.json"
LARGEST_TEXT = 1 << 26
ARCHITECTURES = {"llama": llama, "gpt2": gpt2}
LANGUAGE = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}
LAST_NORMS = ("model.norm.weight", "transformer.ln_f.weight")


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
    config = _json(os.path.join(folder, CONFIG))
    if not isinstance(config, dict) or config.get("model_type") not in ARCHITECTURES:
        raise Refused(f"{CONFIG} is not that of a stock model for which there is a rule: {', '.join(ARCHITECTURES)}")
    roots = [held[name].ravel()[:1].tolist() for name in LAST_NORMS if name in held]
    path = os.path.join(folder, WORDS)
    words = field(field(_json(path), "model"), "vocab") if os.path.isfile(path) else {}
    root = roots[0][0] if len(roots) == 1 and roots[0] else 0.0
    language = config.get("architectures") == [LANGUAGE[config["model_type"]]]
    wanted = stock(header, tensors, config["model_type"], root, mapping(words), language)
    refuse_others(wanted, config, held)
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


def stock(
    header: Any,
    tensors: Tensors,
    architecture: str = "llama",
    root: float | None = None,
    words: Mapping[str, Any] | None = None,
    language: bool = False,
) -> Stock:
    """The stock model of a file that carries a proof. `root` is the weight of its norms, the smallest possible one
    unless given; `words` are the numbers of a vocabulary, with their rows. Raises Refused where a stock model cannot
    hold it."""
    try:
        with np.errstate(all="ignore"):
            found = _stock(header, tensors, architecture, root, words or {})
            return _as_language_model(found) if language else found
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def _stock(header: Any, tensors: Tensors, architecture: str, root: float | None, words: Mapping[str, Any]) -> Stock:
    if architecture not in ARCHITECTURES:
        raise Refused(f"there is no rule for a stock {architecture!r}, only for {', '.join(ARCHITECTURES)}")
    target, model, proof, box, name = contents(header, tensors)
    if model.precision is not FLOAT32:
        raise Refused("a stock model computes in float32, and the proof is about float64: compile with dtype float32")
    if proof.blocks:
        raise Refused("the model takes its inputs at many tokens, one for each piece, which must all see each other")
    if "causal" not in masks_of(target, model, proof):
        raise Refused("a stock model has a causal mask, and the model looks at later tokens")
    if model.attention != "softmax":
        raise Refused(f"a stock model has softmax attention, and the model {model.attention} attention")
    if not model.layers:
        raise Refused("the model has no layer of attention")
    found, config, weights = ARCHITECTURES[architecture](target, model, proof, box, root, words)
    return Stock(replace(found, target=name), config, weights)


def _as_language_model(found: Stock) -> Stock:
    weights = {name: value for name, value in found.weights.items() if not name.startswith("score.")}
    score, rows = found.weights["score.weight"], found.config["vocab_size"]
    if len(score) >= rows:
        raise Refused(f"a language model of {rows} tokens has fewer than {rows} outputs, and not {len(score)}")
    weights["lm_head.weight"] = np.vstack([score, np.zeros((rows - len(score), score.shape[1]), np.float32)])
    config = found.config | {"architectures": [LANGUAGE[found.config["model_type"]]]}
    return replace(found, config=config, weights=weights)


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
