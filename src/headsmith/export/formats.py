"""What each tool reads, as files: made from a model alone, the same every time, so that they can be made again and
compared (export/folder.py).

    torch             config.json, model.safetensors, headsmith_model.py
    onnx              model.onnx
    huggingface       config.json, model.safetensors, headsmith_model.py, two more files of code: AutoModel loads it
    transformerlens   config.json, model.safetensors, headsmith_lens.py
    circuit           circuit.json, which every folder has, alone
    llama, gpt2       config.json, model.safetensors: a stock model (export/stock.py), which transformers loads as it
                      is; language models and those with a vocabulary have tokenizer.json and tokenizer_config.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

from safetensors.numpy import save

from headsmith.core.errors import FileFormatError, TargetError
from headsmith.export.card import card
from headsmith.export.folder import MANIFEST, Files
from headsmith.export.lens import lens
from headsmith.export.plain import refuse_halves
from headsmith.export.rocq import rocq_text
from headsmith.export.stock import as_stock
from headsmith.export.tokenizer import PAD, UNKNOWN, tokenizer

To = Literal["torch", "onnx", "huggingface", "transformerlens", "circuit", "rocq", "llama", "gpt2"]
FORMATS: tuple[To, ...] = get_args(To)
STOCK: tuple[To, ...] = ("llama", "gpt2")
"""Stock architectures: they hold models that are certified in float32, under a causal mask."""

VERSION = 1


@dataclass(frozen=True)
class Wanted:
    """What is exported, and how: the tool, whether through closed forms (ONNX alone), under which mask, where the model
    may run under both; with a vocabulary of how many numbers, and whether as a language model (stock models alone)."""

    to: To
    fused: bool = False
    causal: bool | None = None
    vocabulary: int = 0
    language_model: bool = False

    def __post_init__(self) -> None:
        if self.to not in FORMATS:
            raise TargetError(f"cannot export to {self.to!r}; choose one of {', '.join(FORMATS)}")
        if self.fused and self.to != "onnx":
            raise TargetError(f"closed forms are exported to onnx; to {self.to}, attention itself is")
        if self.to in STOCK and self.causal is False:
            raise TargetError(f"a stock {self.to} has a causal mask")
        if self.vocabulary and self.to not in STOCK:
            raise TargetError(f"a vocabulary of numbers is for stock models ({', '.join(STOCK)}), not for {self.to}")
        if self.language_model and self.to not in STOCK:
            raise TargetError(f"language models are stock models ({', '.join(STOCK)}), not for {self.to}")

    @property
    def mask(self) -> dict[str, bool]:
        """The mask as an option of a call, if it was chosen."""
        return {} if self.causal is None else {"causal": self.causal}


def manifest(wanted: Wanted) -> bytes:
    """export.json."""
    stored = {"headsmith": VERSION, "to": wanted.to, "fused": wanted.fused, "causal": wanted.causal}
    options = {"vocabulary": wanted.vocabulary, "language_model": wanted.language_model}
    return _text(stored | {name: value for name, value in options.items() if value})


def wanted_of(stored: dict[str, Any]) -> Wanted:
    """What an export.json says; FileFormatError if it is another version's, or damaged."""
    if stored.get("headsmith") != VERSION:
        raise FileFormatError(f"export version {stored.get('headsmith')!r}; this release reads version {VERSION}")
    to, fused, causal = (stored.get(name) for name in ("to", "fused", "causal"))
    vocabulary, language = stored.get("vocabulary", 0), stored.get("language_model", False)
    known = type(vocabulary) is int and type(language) is bool
    known = known and len(stored) == 4 + ("vocabulary" in stored) + ("language_model" in stored)
    if to not in FORMATS or type(fused) is not bool or causal not in (None, True, False) or not known:
        raise FileFormatError(f"{MANIFEST} is damaged")
    return Wanted(to, fused, causal, vocabulary, language)


def circuit_text(model: Any) -> bytes:
    """circuit.json: what every head does, which every folder has (inside/circuit.py)."""
    return (json.dumps(model.circuit(), ensure_ascii=False) + "\n").encode()


def contents(model: Any, wanted: Wanted) -> Files:
    """All files of an export of a model of any kind, but the proof, the picture and circuit.json, by name."""
    stock = None
    match wanted.to:
        case "onnx":
            proto = model.to_onnx(fused=wanted.fused, **wanted.mask)
            found = {"model.onnx": proto.SerializeToString(deterministic=True)}
        case "circuit":
            found = {}
        case "rocq":
            found = {"model.v": rocq_text(model).encode()}
        case "torch":
            plain = model.plain(**wanted.mask)
            found = {"config.json": _text(plain.config), "model.safetensors": _tensors(plain.tensors)}
        case "huggingface":
            plain = model.plain(**wanted.mask)
            refuse_halves(plain.config["dtype"], "transformers")
            tensors = {f"transformer.{name}": value for name, value in plain.tensors.items()}
            found = {"config.json": _text(_config(plain.config)), "model.safetensors": _tensors(tensors)}
            found |= {f"{name}_headsmith.py": _code(f"{name}_headsmith.txt") for name in ("configuration", "modeling")}
        case "transformerlens":
            plain = lens(model.plain(**wanted.mask))
            found = {"config.json": _text(plain.config), "model.safetensors": _tensors(plain.tensors)}
            found["headsmith_lens.py"] = _code("headsmith_lens.txt")
        case "llama" | "gpt2":
            stock = as_stock(model.contents(), wanted.to, wanted.vocabulary, wanted.language_model)
            plain = stock.plain
            found = {"config.json": _text(plain.config), "model.safetensors": _tensors(plain.tensors)}
            if wanted.vocabulary or wanted.language_model:
                known, unknown = stock.words, PAD if wanted.language_model else UNKNOWN
                whole, config = tokenizer(stock.reference_tokens, stock.tokens, stock.names, known, unknown)
                found |= {"tokenizer.json": _text(whole), "tokenizer_config.json": _text(config)}
    if wanted.to in ("torch", "huggingface"):
        found["headsmith_model.py"] = (files("headsmith.run") / "torch_model.py").read_bytes()
    found["README.md"] = card(model, wanted.to, wanted.fused, stock).encode()
    return {MANIFEST: manifest(wanted), **found}


def _config(config: dict[str, Any]) -> dict[str, Any]:
    """What transformers reads; the transformer's own configuration is inside."""
    return {
        "architectures": ["HeadsmithModel"],
        "auto_map": {
            "AutoConfig": "configuration_headsmith.HeadsmithConfig",
            "AutoModel": "modeling_headsmith.HeadsmithModel",
        },
        "model_type": "headsmith",
        "dtype": config["dtype"],
        "headsmith": config,
    }


def _tensors(tensors: dict[str, Any]) -> bytes:
    return save(tensors, metadata={"format": "pt"})


def _code(name: str) -> bytes:
    """A file of code that is copied as it is."""
    return (files("headsmith.export") / "code" / name).read_bytes()


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
