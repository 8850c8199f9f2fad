"""A target and a model as a file holds them: structure as JSON, numbers as tensors by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headsmith.core.errors import FileFormatError
from headsmith.export.banks import stored_bank, stored_links
from headsmith.source.graph import Expression, Graph, Node
from headsmith.source.stored_nodes import node_data
from headsmith.transformer.ir import Transformer

Header = dict[str, Any]
Tensors = dict[str, Any]


SOURCE, PROOF, APPROXIMATES = "source.", "proof.", "approximates"
"""How the names of the target's tensors begin, and those of a proof's own; the field of a file, and the beginning of
the names of tensors, of what a network approximates."""

SPARSE = (".gaps", ".values")
"""How the names of the tensors of sparse weights end."""

SMALL = 64
"""Arrays of at most so many numbers are stored wherever they are used."""


@dataclass(frozen=True, eq=False)
class Proof:
    """What a file carries for the kernel: structure as JSON, and the tensors that are the proof's own."""

    stored: Header
    tensors: Tensors


def proof_of(header: Header, tensors: Tensors) -> Proof:
    """The proof in a file."""
    return Proof(header["proof"], {name: each for name, each in tensors.items() if name.startswith(PROOF)})


def graph_data(graph: Graph, tensors: Tensors, prefix: str = "source") -> Header:
    """A target as JSON; its weights are added to the tensors."""

    def node(number: int, item: Node) -> Header:
        if isinstance(item, Expression):
            raise FileFormatError("a target that is stored has no fused expressions")

        def keep(name: str, values: Any, kind: Any = np.float64) -> str:
            tensors[f"{prefix}.{number}.{name}"] = np.ascontiguousarray(values, dtype=kind)
            return f"{prefix}.{number}.{name}"

        return node_data(item, lambda read: read, keep)

    return {"nodes": [node(number, item) for number, item in enumerate(graph.nodes)], "output": graph.output}


def approximated_data(graph: Graph | None, tensors: Tensors) -> Header:
    """What a network approximates, as the fields of a file."""
    return {} if graph is None else {APPROXIMATES: graph_data(graph, tensors, APPROXIMATES)}


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
        **({"grid_form": transformer.grid_form} if transformer.grid_form != "one-hot" else {}),
        **({"attention": transformer.attention} if transformer.attention != "softmax" else {}),
        **({"alone": True} if transformer.alone else {}),
    }
