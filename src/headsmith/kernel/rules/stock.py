"""A certified model inside a stock architecture: a folder with config.json, model.safetensors and the proof.

Every weight of the folder must be the one that the proven model has there, and config.json the one that goes with it.
layout.py, llama.py and gpt2.py say what these are, and why the stock model is then within the error that is stated.
A language model computes its first logits as a classifier does: its head has the same rows, and then rows of zeros.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arithmetic import FLOAT32
from ..core.check import DAMAGE, Certificate, checked, contents, facts_of, masks_of
from ..core.errors import WORK, WORK_A_NUMBER, Refused, limited, refuse
from ..core.model import NEURONS
from ..core.reading import LARGEST_HEADER, Tensors, field, items, mapping, parsed, read, tensors_of, text, whole
from . import gpt2, llama
from .layout import ENTERS, MOST_NUMBERS, layers_of, numbers_of

CONFIG, WEIGHTS, PROOF, WORDS = "config.json", "model.safetensors", "proof.safetensors", "tokenizer.json"
SPOKEN, SPECIAL = "tokenizer_config.json", ("pad_token", "bos_token", "eos_token")
BESIDE = SPOKEN, "export.json", "README.md", "picture.png", "circuit.json"
OTHERS = CONFIG, WEIGHTS, PROOF, WORDS, *BESIDE
ARCHITECTURES: dict[str, Any] = {"llama": llama, "gpt2": gpt2}


@dataclass(frozen=True, eq=False)
class Stock:
    """A certified model as a stock one: what is proved of it, its configuration and its weights by name."""

    certificate: Certificate
    config: dict[str, Any]
    weights: dict[str, Any]
    references: int  # the tokens that come first, and hold no data


def check_folder(folder: str | os.PathLike[str]) -> Certificate:
    """The certificate of the stock model in a folder, by the proof beside it. Raises Refused with the reason."""
    refuse(not os.access(folder, os.R_OK | os.X_OK), f"{os.fspath(folder)}: the folder cannot be read")
    for name in sorted({*os.listdir(folder)} - {*OTHERS}):
        # An adapter, shards or code: a runtime may load them in place of the weights.
        refuse(not name.startswith(".git"), f"{name!r} is no file of the proven model, and other tools might read it")
    for name in os.listdir(folder):
        refuse(name in OTHERS and not os.path.isfile(os.path.join(folder, name)), f"{name!r} is no file")
    header, tensors = read(os.path.join(folder, PROOF))
    checked(header, tensors)
    held = tensors_of(os.path.join(folder, WEIGHTS), ("F32",))
    config, path = _json(os.path.join(folder, CONFIG)), os.path.join(folder, WORDS)
    kind: Any = config.get("model_type") if isinstance(config, dict) else None
    refuse(kind not in [*ARCHITECTURES], f"{CONFIG} names no model for which there is a rule: {[*ARCHITECTURES]}")
    root = held.get(ARCHITECTURES[kind].NORM, np.zeros(0)).ravel()[:1].sum()
    words, leading = dict[str, Any](), None
    if os.path.isfile(path) or os.path.exists(os.path.join(folder, SPOKEN)):
        words, leading = _words(_json(path), mapping(_json(os.path.join(folder, SPOKEN))))
    language = config.get("architectures") == [ARCHITECTURES[kind].LANGUAGE]
    wanted = stock(header, tensors, kind, float(root), words, language)
    refuse(leading not in (None, wanted.references), f"{WORDS} puts {leading} tokens first, not {wanted.references}")
    refuse_others(wanted, config, held)
    return wanted.certificate


def _words(spoken: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The words of a tokenizer with their rows, and how many of the first rows it puts in front. Raise Refused unless
    it splits prompts at blanks, knows no words beside its vocabulary, and changes and adds nothing else."""
    words, added = mapping(field(field(spoken, "model"), "vocab")), items(field(spoken, "added_tokens"))
    names = {text(field(each, "content")): whole(field(each, "id")) for each in added}
    processor = mapping(field(spoken, "post_processor"))
    leading = [each for each in items(field(processor, "single")) if "SpecialToken" in mapping(each)]
    first = [text(field(each["SpecialToken"], "id")) for each in leading]
    sequence, unknown = {"Sequence": {"id": "A", "type_id": 0}}, field(spoken["model"], "unk_token")
    ids = {each: {"id": each, "ids": [place], "tokens": [each]} for place, each in enumerate(first)}
    front = [{"SpecialToken": {"id": each, "type_id": 0}} for each in first]
    pair = [*front, sequence, {"Sequence": {"id": "B", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": [*front, sequence], "pair": pair, "special_tokens": ids}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    wanted = {
        **dict.fromkeys(("truncation", "padding", "normalizer", "decoder")),
        "version": "1.0",
        "added_tokens": [{"id": place, "content": name, **plain} for name, place in names.items()],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": template,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": unknown},
    }
    same = json.dumps(spoken, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    rows = list(names.values()) == list(range(len(names))) and names.items() <= words.items()
    known = unknown not in words or unknown == list(names)[-1]
    refuse(not (same and rows and known), f"{WORDS} has words, or changes them, beside its vocabulary")
    fixed = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    others = settings.keys() - {*fixed, "model_max_length", *SPECIAL}
    wrong = others or any(settings.get(name) != value for name, value in fixed.items())
    wrong = wrong or any(settings[name] not in [*names] for name in SPECIAL if name in settings)
    refuse(wrong, f"{SPOKEN} says more than which tokens are special")
    return words, len(first)


def refuse_others(wanted: Stock, config: Any, held: dict[str, Any]) -> None:
    """Raise Refused unless this is the configuration, and these are the weights, of the proven model."""
    dumped = [json.dumps(each, sort_keys=True) for each in (config, wanted.config)]  # so that 1, 1.0 and true differ
    if dumped[0] != dumped[1]:
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
    header: Any, tensors: Tensors, name: str = "llama", root: Any = None, words: Any = None, language: bool = False
) -> Stock:
    """The stock model of a file that carries a proof. `root` is the weight of its norms, the smallest possible one
    unless given; `words` are the numbers of a vocabulary, with their rows. Raises Refused where a stock model cannot
    hold it."""
    try:
        with limited(WORK + WORK_A_NUMBER * sum(each.size for each in tensors.values())), np.errstate(all="ignore"):
            found = _stock(header, tensors, name, root, words or {})
            return _as_language_model(found, ARCHITECTURES[name].LANGUAGE) if language else found
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def _stock(header: Any, tensors: Tensors, name: str, root: float | None, words: Mapping[str, Any]) -> Stock:
    refuse(name not in ARCHITECTURES, f"there is no rule for a stock {name!r}, only for {', '.join(ARCHITECTURES)}")
    target, model, proof, box, about = contents(header, tensors)
    refuse(model.precision is not FLOAT32, "a stock model computes in float32: compile with dtype float32")
    refuse(proof.blocks, "the model takes its inputs at many tokens, one for each piece, which must all see each other")
    masks = masks_of(target, model, proof)
    refuse("causal" not in masks, "a stock model has a causal mask, and the model looks at later tokens")
    refuse(model.attention != "softmax", f"a stock model has softmax attention, and this one {model.attention}")
    refuse(not model.layers, "the model has no layer of attention")
    # Before anything is written out: a head has 4 matrices of 16 columns at least, a pair of neurons 6 rows.
    rows = max(sum(bank.heads * (6 if bank.kind in NEURONS else 64) for bank in layer) for layer in model.layers)
    refuse(rows * sum(model.sizes.values()) > MOST_NUMBERS, "a layer has more weights than a stock model may have")
    facts, numbers = facts_of(target, model, proof, box), numbers_of(model, target.nodes[0].names, box, words)
    (layers, neurons), rules = layers_of(model), ARCHITECTURES[name]
    found, config, weights = rules.stock(target, facts, box, layers, neurons, numbers, root)
    weights = {each: np.ascontiguousarray(value, dtype=np.float32) for each, value in weights.items()}
    heaviest = float(np.max([np.abs(value).max(initial=0.0) for value in weights.values()]))
    refuse(not np.isfinite(heaviest), "a stock model's weight is beyond float32")
    found = replace(found, masks=("causal",), assumes=(*found.assumes, *rules.ASSUMES, ENTERS), target=about)
    return Stock(replace(found, max_weight=heaviest), config, weights, model.references)


def _as_language_model(found: Stock, name: str) -> Stock:
    weights = {name: value for name, value in found.weights.items() if not name.startswith(("score.", "classifier."))}
    (score,) = (found.weights[name] for name in ("score.weight", "classifier.weight") if name in found.weights)
    rows = found.config["vocab_size"]
    refuse(len(score) >= rows, f"a language model of {rows} tokens has fewer than {rows} outputs, and not {len(score)}")
    weights["lm_head.weight"] = np.vstack([score, np.zeros((rows - len(score), score.shape[1]), np.float32)])
    return replace(found, config=found.config | {"architectures": [name]}, weights=weights)


def _json(path: str) -> Any:
    refuse(not os.path.isfile(path), f"{os.path.basename(path)}: no such file")  # a pipe would be waited for
    try:
        with open(path, encoding="utf-8") as file:
            return parsed(file.read(LARGEST_HEADER + 1), os.path.basename(path))
    except (OSError, ValueError) as problem:
        raise Refused(f"{os.path.basename(path)} cannot be read ({problem})") from None
