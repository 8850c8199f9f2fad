"""Models as a file holds them: structure as JSON, numbers as tensors by name. Which nodes of the proof's circuit the
heads compute (`roles`) is stored apart, with the proof.

`keep(name, values, type)` stores a tensor and returns its name; `tensor(name)` gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from headsmith.core.errors import FileFormatError
from headsmith.core.rounding import PRECISIONS
from headsmith.language.stored import PROOF, ROLES, SOURCE, Header, Tensors, read_weights, stored_weights
from headsmith.transformer.heads.kinds import KINDS
from headsmith.transformer.heads.stream import Link, Register
from headsmith.transformer.ir import Bank, GridForm, Layer, Transformer

SPARSE = (".gaps", ".values")
"""How the names of the tensors of sparse weights end."""

ROLE = ("node", "component")
"""What is stored of the outputs of a bank: which components of which nodes they stand for."""

SMALL = 64
"""Arrays of at most so many numbers are stored wherever they are used."""


def _place(array: Any) -> tuple[Any, ...]:
    """Where an array without gaps lies, and how: others of the same place are the same."""
    return array.ctypes.data, array.shape, array.dtype


def transformer_data(transformer: Transformer, tensors: Tensors) -> Header:
    """A model as JSON; its weights are added to the tensors, in its own format. Large weights of the target, in the
    same memory, are stored once; and so are equal entries of sparse weights, and their places."""
    dtype = np.dtype(transformer.arithmetic)
    large = {name: each for name, each in tensors.items() if name.startswith(SOURCE) and each.size > SMALL}
    known = {_place(each): name for name, each in large.items()}
    sparse = {name: each for name, each in large.items() if name.endswith(SPARSE)}

    def keep(name: str, values: Any, kind: Any = dtype) -> str:
        array = np.ascontiguousarray(values, dtype=kind)
        name = known.get(_place(array), name)
        for other, each in sparse.items() if name.endswith(SPARSE) else ():
            if each.dtype == array.dtype and np.array_equal(each, array):
                name = other
        tensors[name] = array
        return name

    # Models without positional constants look as they did before there were any.
    positional = {name: keep(f"positional.{name}", value) for name, value in transformer.positional.items()}
    return {
        "inputs": transformer.inputs,
        "outputs": transformer.outputs,
        "tokens": transformer.tokens,
        "dtype": transformer.dtype,
        "registers": [asdict(register) for register in transformer.registers],
        "embedding": stored_links("embedding", transformer.embedding, keep),
        "initial": {name: keep(f"initial.{name}", value) for name, value in transformer.initial.items()},
        **({"positional": positional} if positional else {}),
        "layers": [
            [stored_bank(f"layers.{index}.{place}", item, keep) for place, item in enumerate(layer.banks)]
            for index, layer in enumerate(transformer.layers)
        ],
        "readout": stored_links("readout", transformer.readout, keep),
        "readout_bias": keep("readout_bias", transformer.readout_bias),
        **({"attention": transformer.attention} if transformer.attention != "softmax" else {}),
        **({"alone": True} if transformer.alone else {}),
    }


def stored_links(stem: str, items: Sequence[Link], keep: Callable[..., str]) -> list[dict[str, Any]]:
    """Links, with the names of their tensors."""
    return [
        {
            "register": link.register,
            "first": link.first,
            "weights": keep(f"{stem}.{index}", link.weights)
            if isinstance(link.weights, np.ndarray)
            else stored_weights(f"{stem}.{index}", link.weights, keep),
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


def roles_data(transformer: Transformer, tensors: Tensors) -> list[list[Header]]:
    """For each bank, the nodes and components that its outputs stand for; these arrays are added to the tensors."""

    def role(stem: str, bank: Bank) -> Header:
        for name in ROLE:
            tensors[f"{stem}.{name}"] = np.ascontiguousarray(getattr(bank, name), dtype=np.int64)
        return {name: f"{stem}.{name}" for name in ROLE}

    return [
        [role(f"{PROOF}{ROLES}.{index}.{place}", bank) for place, bank in enumerate(layer.banks)]
        for index, layer in enumerate(transformer.layers)
    ]


def numbered(transformer: Transformer, places: Mapping[int, int]) -> Transformer:
    """The same model, whose heads stand for the same nodes under other numbers; -1 is no node."""

    def moved(bank: Bank) -> Bank:
        return replace(bank, node=np.array([places.get(each, -1) for each in bank.node.tolist()], dtype=np.int64))

    return replace(transformer, layers=tuple(Layer(tuple(map(moved, layer.banks))) for layer in transformer.layers))


def read_bank(item: dict[str, Any], role: Header, tensor: Callable[[str], Any]) -> Bank:
    """The bank that `stored_bank` stored, or FileFormatError; its role is what its outputs stand for."""
    kind = item["kind"]
    if kind not in KINDS:
        raise FileFormatError(f"unknown bank kind {kind!r}")
    bank = KINDS[kind]
    found: dict[str, Any] = {name: tensor(role[name]) for name in ROLE}
    found |= {name: tensor(item[name]) for name in bank.arrays}
    found |= {name: read_links(item[name], tensor) for name in ("read", "write")}
    found |= {name: float(item[name]) for name in bank.numbers}
    found |= {name: int(item[name]) for name in bank.counts}
    found |= {"split": int(item["split"])} if "split" in item else {}
    if kind == "move" and type(item["address"]) is int:
        return bank(**found | {"address": item["address"]})
    found |= {name: _name(item, name, default) for name, default in bank.registers.items()}
    return bank(**found)


def read_transformer(
    stored: Mapping[str, Any], roles: Sequence[Any], tensor: Callable[[str], Any], grid_form: GridForm = "one-hot"
) -> Transformer:
    """The transformer that `transformer_data` stored, with the roles that `roles_data` stored, or FileFormatError."""
    pairs = [list(zip(layer, own, strict=True)) for layer, own in zip(stored["layers"], roles, strict=True)]
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
        layers=tuple(Layer(tuple(read_bank(*each, tensor) for each in banks)) for banks in pairs),
        readout=read_links(stored["readout"], tensor),
        readout_bias=tensor(stored["readout_bias"]),
        grid_form=grid_form,
        attention=stored.get("attention", "softmax"),
        alone=stored.get("alone", False),
    )


def _name(item: Mapping[str, Any], name: str, default: str | None) -> str:
    found = item[name] if default is None else item.get(name, default)
    if not isinstance(found, str):
        raise FileFormatError(f"the {name} of a bank must be the name of a register, not {found!r}")
    return found
