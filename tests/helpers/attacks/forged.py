"""Files made by hand, as an adversary makes them: a target, a model and a proof that nobody compiled."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.kernel.core.check import Certificate, proved
from headsmith.kernel.core.errors import Refused
from headsmith.lab.attack.file_attack import stored_model
from headsmith.lab.attack.rounding_oracle import plain_run
from headsmith.lab.attack.target_oracle import Wide, target_values


class Forged:
    """The contents of a file, node by node and bank by bank."""

    def __init__(self, inputs: int, low: float, high: float, *, tokens: int = 1, dtype: str = "float64") -> None:
        self.tensors: dict[str, Any] = {}
        names = [f"x{i}" for i in range(inputs)]
        self.source: list[Any] = [{"kind": "input", "names": names}]
        self.circuit: list[Any] = [{"kind": "input", "names": names}]
        registers = [{"name": "data", "size": 1}, {"name": "reference", "size": 1}]
        registers += [{"name": "position", "size": (tokens - 1).bit_length()}] if tokens > 1 else []
        self.model: dict[str, Any] = {
            "inputs": inputs,
            "outputs": 1,
            "tokens": tokens,
            "dtype": dtype,
            "registers": registers,
            "embedding": [],
            "initial": {},
            "positional": {},
            "layers": [],
            "readout": [],
            "readout_bias": self.keep([0.0]),
        }
        self.proof: dict[str, Any] = {
            "circuit": {"nodes": self.circuit, "output": 0},
            **{name: [] for name in ("regions", "tables", "views", "roles")},
            "halvings": 0,
            "blocks": 0,
        }
        self.header: dict[str, Any] = {
            "domain": {"low": [low] * inputs, "high": [high] * inputs},
            "source": {"nodes": self.source, "output": 0},
            "transformer": self.model,
            "proof": self.proof,
        }

    def keep(self, values: Any, kind: Any = np.float64) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name

    def add(self, graph: list[Any], kind: str, **fields: Any) -> int:
        graph.append({"kind": kind, **fields})
        return len(graph) - 1

    def affine(self, graph: list[Any], terms: list[tuple[int, Any]], bias: Any) -> int:
        stored = [{"node": node, "weights": self.keep(weights)} for node, weights in terms]
        return self.add(graph, "affine", terms=stored, bias=self.keep(bias))

    def scaled(self, graph: list[Any], *terms: tuple[int, float], bias: float = 0.0) -> int:
        """A sum of multiples of nodes of one component."""
        return self.affine(graph, [(node, [[weight]]) for node, weight in terms], [bias])

    def relu(self, graph: list[Any], argument: int, size: int = 1) -> int:
        return self.add(graph, "relu", argument=argument, size=size)

    def function(self, graph: list[Any], name: str, argument: int, size: int = 1) -> int:
        return self.add(graph, "function", name=name, argument=argument, size=size, parameter=None)

    def product(self, graph: list[Any], left: int, right: int, size: int = 1) -> int:
        return self.add(graph, "product", left=left, right=right, size=size)

    def outputs(self, target: int, circuit: int) -> None:
        self.header["source"]["output"], self.proof["circuit"]["output"] = target, circuit

    def register(self, *names: str, size: int = 1) -> None:
        self.model["registers"] += [{"name": name, "size": size} for name in names]

    def link(self, register: str, weights: Any, first: int = 0) -> dict[str, Any]:
        return {"register": register, "first": first, "weights": self.keep(weights)}

    def bank(self, kind: str, read: list[Any], write: list[Any], node: Any, component: Any, **fields: Any) -> None:
        """A layer of its own."""
        self.model["layers"].append([{"kind": kind, "read": read, "write": write, **fields}])
        role = {"node": self.keep(node, np.int64), "component": self.keep(component, np.int64)}
        self.proof["roles"].append([role])

    def gates(self, read: list[Any], write: list[Any], node: Any, component: Any, scale: float) -> None:
        """Sink heads with scores of `scale` times what they read: they are off by up to 0.278 / scale."""
        scales = {"query_scale": self.keep(np.full(len(node), scale)), "key_scale": self.keep(np.ones(len(node)))}
        self.bank("sink", read, write, node, component, **scales, reference_gain=800.0, position_gain=800.0)

    def embed(self, register: str = "x") -> None:
        """The one input, as it is."""
        self.register(register)
        self.model["embedding"] = [self.link(register, [[1.0]])]

    def contents(self) -> tuple[Any, Any]:
        """As a file would hold it."""
        return json.loads(json.dumps(self.header)), self.tensors

    def check(self) -> Certificate:
        return proved(*self.contents())

    def furthest(self, certificate: Certificate, sequences: Any) -> float:
        """The largest error over its bound, at sequences (count, tokens, inputs), under every mask of the claim."""
        header, tensors = self.contents()
        sequences, model = np.asarray(sequences, dtype=np.float64), stored_model(header, tensors)
        with np.errstate(all="ignore"):
            wanted = target_values(header["source"], tensors, sequences, Wide())
        worst = 0.0
        for mask in certificate.masks:
            off = np.abs(plain_run(model, sequences, header["transformer"]["dtype"], mask == "causal") - wanted)
            share = np.where(np.isfinite(off), off, np.inf) / np.maximum(certificate.outputs, 1e-300)
            worst = max(worst, float(share.max()))
        return worst


def answer(check: Callable[[], Certificate], *, seconds: int = 20, memory: int = 4 << 30) -> str:
    """What a check says, in a process of its own with so much processor time and address space: "certified ...",
    "refused: ...", or what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        try:
            text = f"certified {check().error!r}"
        except Refused as problem:
            text = f"refused: {problem}"
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}"
        os.write(writing, text.encode("utf-8", "backslashreplace")[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text or f"no answer within {seconds} s of processor time"


SECONDS = 15
"""Generous: a slow machine, and the largest work that the kernel allows itself."""


def plain(inputs: int = 1) -> Forged:
    """The first input, as it is: certified, if nothing is wrong with the rest of the file."""
    file = Forged(inputs, -1.0, 1.0)
    weights = np.eye(1, inputs)
    nodes = [file.affine(graph, [(0, weights)], [0.0]) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.register("x")
    file.model["embedding"], file.model["readout"] = [file.link("x", weights)], [file.link("x", [[1.0]])]
    return file


def refused(file: Forged) -> str:
    """The sentence with which a file is refused."""
    said = answer(file.check, seconds=SECONDS)
    assert said.startswith("refused: "), said
    return said


def answered(file: Forged) -> str:
    """What is said of a file that may be certified as well."""
    said = answer(file.check, seconds=SECONDS)
    assert said.startswith(("refused: ", "certified ")), said
    return said
