"""Transformers, banks and links as a file holds them: structure as JSON, numbers as tensors.

`keep(name, values, type)` stores a tensor and returns its name; `tensor(name)` gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headsmith.core.errors import FileFormatError
from headsmith.core.rounding import PRECISIONS
from headsmith.heads.kinds import KINDS
from headsmith.heads.stream import Link, Register
from headsmith.source.stored_nodes import read_weights, stored_weights
from headsmith.transformer.ir import Bank, Layer, Transformer


def stored_links(stem: str, items: Sequence[Link], keep: Callable[..., str]) -> list[dict[str, Any]]:
    """Links, with the names of their tensors."""
    return [
        {
            "register": link.register,
            "first": link.first,
            "weights": stored_weights(f"{stem}.{index}", link.weights, keep),
        }
        for index, link in enumerate(items)
    ]


def read_links(items: list[dict[str, Any]], tensor: Callable[[str], Any]) -> tuple[Link, ...]:
    """The links that `stored_links` stored."""
    return tuple(Link(item["register"], read_weights(item["weights"], tensor), int(item["first"])) for item in items)


def stored_bank(stem: str, item: Bank, keep: Callable[..., str]) -> dict[str, Any]:
    """A bank, with the names of its tensors."""
    stored: dict[str, Any] = {
        "kind": item.kind,
        "node": keep(f"{stem}.node", item.node, np.int64),
        "component": keep(f"{stem}.component", item.component, np.int64),
        "read": stored_links(f"{stem}.read", item.read, keep),
        "write": stored_links(f"{stem}.write", item.write, keep),
    }
    for name in item.arrays:
        stored[name] = keep(f"{stem}.{name}", getattr(item, name))
    for name in (*item.numbers, *item.counts):
        stored[name] = getattr(item, name)
    for name, default in item.registers.items():
        if getattr(item, name) != default:
            stored[name] = getattr(item, name)
    if getattr(item, "split", 1) > 1:
        stored["split"] = item.heads
    return stored


def read_bank(item: dict[str, Any], tensor: Callable[[str], Any]) -> Bank:
    """The bank that `stored_bank` stored, or FileFormatError."""
    kind = item["kind"]
    if kind not in KINDS:
        raise FileFormatError(f"unknown bank kind {kind!r}")
    bank = KINDS[kind]
    found: dict[str, Any] = {name: tensor(item[name]) for name in ("node", "component", *bank.arrays)}
    found |= {name: read_links(item[name], tensor) for name in ("read", "write")}
    found |= {name: float(item[name]) for name in bank.numbers}
    found |= {name: int(item[name]) for name in bank.counts}
    found |= {"split": int(item["split"])} if "split" in item else {}
    if kind == "move" and type(item["address"]) is int:
        return bank(**found | {"address": item["address"]})
    found |= {name: _name(item, name, default) for name, default in bank.registers.items()}
    return bank(**found)


def read_transformer(stored: Mapping[str, Any], tensor: Callable[[str], Any]) -> Transformer:
    """The transformer that export/stored.py stored, or FileFormatError."""
    if stored["dtype"] not in PRECISIONS:
        raise FileFormatError(f"unknown dtype {stored['dtype']!r}")
    return Transformer(
        inputs=int(stored["inputs"]),
        outputs=int(stored["outputs"]),
        tokens=int(stored["tokens"]),
        dtype=stored["dtype"],
        registers=tuple(Register(str(item["name"]), int(item["size"])) for item in stored["registers"]),
        embedding=read_links(stored["embedding"], tensor),
        initial={name: tensor(key) for name, key in stored["initial"].items()},
        positional={name: tensor(key) for name, key in stored.get("positional", {}).items()},
        layers=tuple(Layer(tuple(read_bank(item, tensor) for item in banks)) for banks in stored["layers"]),
        readout=read_links(stored["readout"], tensor),
        readout_bias=tensor(stored["readout_bias"]),
        grid_form=stored.get("grid_form", "one-hot"),
        attention=stored.get("attention", "softmax"),
        alone=stored.get("alone", False),
    )


def _name(item: Mapping[str, Any], name: str, default: str | None) -> str:
    found = item[name] if default is None else item.get(name, default)
    if not isinstance(found, str):
        raise FileFormatError(f"the {name} of a bank must be the name of a register, not {found!r}")
    return found
