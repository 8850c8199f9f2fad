"""Compiled models, laid out in another way: other registers, other layers, heads that carry registers along, low gains.

Every rewrite changes a file in place. Most leave what is computed as it is; some make heads worse, as far as the proof
still allows for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
RESERVED = ("data", "reference", "position", "grid")
GAINS = ("gain", "keep_gain", "reference_gain", "position_gain")


class Layout:
    """The contents of a file, whose model is rewritten."""

    def __init__(self, header: Any, tensors: Any) -> None:
        self.header, self.tensors = json.loads(json.dumps(header)), dict(tensors)
        self.model, self.proof = self.header["transformer"], self.header["proof"]

    def keep(self, values: Any, kind: Any = np.float64) -> str:
        name = f"new{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name

    def rounded(self, values: Any) -> Any:
        """Numbers of the model's format, where that is float64 or float32."""
        return np.asarray(values, dtype=self.model["dtype"]).astype(np.float64)

    def weights(self, link: Any) -> Any:
        """The weights of a link, written out."""
        stored = link["weights"]
        if isinstance(stored, str):
            values = np.asarray(self.tensors[stored], dtype=np.float64)
            return np.diag(values) if values.ndim == 1 else values
        found = np.zeros(stored["shape"])
        places = np.cumsum(self.tensors[stored["gaps"]]).astype(int) - 1
        found.reshape(-1)[places] = self.tensors[stored["values"]]
        return found

    @property
    def sizes(self) -> dict[str, int]:
        return {each["name"]: each["size"] for each in self.model["registers"]}

    @property
    def banks(self) -> list[Any]:
        return [bank for layer in self.model["layers"] for bank in layer]

    @property
    def reads(self) -> list[Any]:
        return [*(link for bank in self.banks for link in bank["read"]), *self.model["readout"]]

    @property
    def writes(self) -> list[Any]:
        return [*(link for bank in self.banks for link in bank["write"]), *self.model["embedding"]]

    def register(self, rng: Random, least: int = 1) -> str | None:
        """One that heads may write."""
        fixed = {*RESERVED, *self.model.get("positional", {})}
        names = [name for name, size in self.sizes.items() if name not in fixed and size >= least]
        return str(rng.choice(names)) if names else None

    def new_register(self, size: int) -> str:
        name = f"r{len(self.model['registers'])}"
        self.model["registers"].append({"name": name, "size": size})
        return name

    def turn(self, register: str, matrix: Any, back: Any) -> None:
        """The register holds matrix @ (what it held), of which `back` is the inverse."""
        for link in (each for each in self.reads if each["register"] == register):
            link["weights"] = self.keep(self.rounded(self.weights(link) @ back))
        for link in (each for each in self.writes if each["register"] == register):
            link["weights"] = self.keep(self.rounded(matrix @ self.weights(link)))
        initial = self.model["initial"]
        if register in initial:
            initial[register] = self.keep(self.rounded(matrix @ self.tensors[initial[register]]))


def permuted(file: Layout, rng: Random) -> None:
    """The columns of a register in another order."""
    register = file.register(rng, 2)
    if register is not None:
        matrix = np.eye(file.sizes[register])[rng.permutation(file.sizes[register])]
        file.turn(register, matrix, matrix.T)


def scaled(file: Layout, rng: Random) -> None:
    """The columns of a register times other numbers: weights are no longer those of the circuit, up to rounding."""
    register = file.register(rng)
    if register is not None:
        factors = rng.choice([2.0, 0.5, 3.0, 0.1, -1.0], file.sizes[register])
        file.turn(register, np.diag(factors), np.diag(1.0 / factors))


def mixed(file: Layout, rng: Random) -> None:
    """A column of a register has another one added."""
    register = file.register(rng, 2)
    if register is not None:
        (one, other), matrix = rng.choice(file.sizes[register], 2, replace=False), np.eye(file.sizes[register])
        matrix[one, other] = rng.choice([1.0, -1.0, 16.0])
        file.turn(register, matrix, 2.0 * np.eye(len(matrix)) - matrix)


def later(file: Layout, rng: Random) -> None:
    """A bank in a layer of its own, after the others."""
    place = int(rng.integers(len(file.model["layers"])))
    for layers in (file.model["layers"], file.proof["roles"]):
        layers[place : place + 1] = [layers[place][1:], layers[place][:1]]


def carried(file: Layout, rng: Random) -> None:
    """A register is carried to another one, by a head that clears it, or not; all that comes later uses that."""
    register, tokens = file.register(rng), file.model["tokens"]
    if register is None or "attention" in file.model:
        return
    size, place, gain = file.sizes[register], int(rng.integers(len(file.model["layers"]) + 1)), rng.choice([6.0, 40.0])
    other, ones = file.new_register(size), np.ones(size)
    bank: dict[str, Any] = {"kind": "mean", "gain": float(gain), "keep_gain": float(rng.choice([4.0, 40.0]))}
    if tokens > 1:
        bits, places = (tokens - 1).bit_length(), np.arange(tokens)[:, None]
        codes = np.hstack([1.0 - 2.0 * (places >> np.arange(bits) & 1), np.zeros((tokens, 1))])
        bank |= {"kind": "move", "address": file.new_register(bits + 1)}
        file.model.setdefault("positional", {})[bank["address"]] = file.keep(codes)
    for layer in file.model["layers"][place:]:
        for link in (link for each in layer for link in (*each["read"], *each["write"])):
            link["register"] = other if link["register"] == register else link["register"]
    for link in file.model["readout"]:
        link["register"] = other if link["register"] == register else link["register"]
    bank["read"] = [{"register": register, "first": 0, "weights": file.keep(ones)}]
    bank["write"] = [{"register": other, "first": 0, "weights": file.keep(ones)}]
    if rng.random() < 0.5:
        bank["write"].append({"register": register, "first": 0, "weights": file.keep(-ones)})
    role = {name: file.keep(np.full(size, -1), np.int64) for name in ("node", "component")}
    file.model["layers"].insert(place, [bank])
    file.proof["roles"].insert(place, [role])


def leaking(file: Layout, rng: Random) -> None:
    """Low gains, so that heads see what they should not; and margins that may be large enough for it."""
    for bank in file.banks:
        for name in (name for name in GAINS if name in bank and bank["kind"] not in ("table", "boltzmann", "attend")):
            bank[name] = float(file.rounded(rng.uniform(2.0, 14.0)))
    for each in (*file.proof.get("regions", []), *file.proof.get("tables", [])):
        if each.get("margin") is not None and each.get("ends") is None:
            each["margin"] = max(each["margin"], 0.05)


REWRITES: list[Callable[[Layout, Random], None]] = [permuted, scaled, mixed, later, carried, carried, leaking]


def rewritten(header: Any, tensors: Any, rng: Random) -> Layout:
    """A file, changed in a few of these ways."""
    file = Layout(header, tensors)
    for _ in range(int(rng.integers(1, 5))):
        REWRITES[int(rng.integers(len(REWRITES)))](file, rng)
    return file
