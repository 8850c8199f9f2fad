"""Drafts: what the proof of a file says, to be changed at will.

A draft has the circuit, node by node, which components have heads and of what kind, regions, margins, steps and all the
rest. It is taken from a compiled file, or sketched (forged_seeds.py); rewrites.py and false_claims.py change it, and
forging.py makes a file of it again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headsmith.kernel.core.graph import Node, read_graph
from headsmith.kernel.core.model import GAINS, Bank, read_model

Header = Mapping[str, Any]
LISTS = ("regions", "tables", "views", "norms", "linear", "bends")
NUMBERS = ("output", "stands_for", "node", "as", "argument")
"""Fields of a proof that are numbers of circuit nodes."""


@dataclass(frozen=True, eq=False)
class DraftHead:
    """What computes a node: a kind of bank, the components, the arrays of each one's head, and gains."""

    kind: str
    components: Any
    arrays: Mapping[str, Any]
    gains: Mapping[str, float]


@dataclass(eq=False)
class FileDraft:
    """A circuit and what is claimed of it; entries of `lists` are those of the file, with arrays in place of names."""

    nodes: list[Node]
    output: int
    heads: dict[int, DraftHead]
    lists: dict[str, list[dict[str, Any]]]
    steps: list[int]
    powers: list[int]
    halvings: int
    tokens: int
    dtype: str
    domain: Any
    grid: int = 0
    label: list[str] = field(default_factory=list)

    def insert(self, place: int, *nodes: Node) -> None:
        """Put nodes before a place; all numbers from there on rise."""
        more = len(nodes)

        def moved(number: int) -> int:
            return number + more if number >= place else number

        later = [replace(each, arguments=tuple(map(moved, each.arguments))) for each in self.nodes]
        self.nodes = [*later[:place], *nodes, *later[place:]]
        self.output, self.heads = moved(self.output), {moved(number): head for number, head in self.heads.items()}
        self.steps, self.powers = ([moved(number) for number in each] for each in (self.steps, self.powers))
        for each in (entry for entries in self.lists.values() for entry in entries):
            each.update({name: moved(each[name]) for name in NUMBERS if name in each})

    def copy(self) -> FileDraft:
        """Another one, to be changed."""
        return replace(
            self,
            nodes=[*self.nodes],
            heads=dict(self.heads),
            lists={name: [dict(each) for each in entries] for name, entries in self.lists.items()},
            steps=[*self.steps],
            powers=[*self.powers],
            label=[*self.label],
        )

    @property
    def meant(self) -> list[Node]:
        """The nodes, with outputs of regions as what they stand for."""
        nodes = [*self.nodes]
        for region in self.lists["regions"]:
            nodes[region["output"]] = self.nodes[region["stands_for"]]
        return nodes


def draft_of(header: Header, tensors: Mapping[str, Any]) -> FileDraft | None:
    """The draft that a compiled file is made of; None where nobody can lay it out anew."""
    stored, proof = header["transformer"], header["proof"]
    target = read_graph(header["source"], dict(tensors))
    circuit, model = (
        read_graph(proof["circuit"], dict(tensors), target),
        read_model(stored, dict(tensors), proof["roles"]),
    )
    if proof["blocks"] or "approximates" in header or model.attention != "softmax":
        return None
    if any(node.kind == "sampled" for node in circuit.nodes):
        return None
    heads: dict[int, DraftHead] = {}
    for bank in model.computing:
        for number in np.unique(bank.node).tolist():
            heads[number] = _head(bank, number)
    lists = {
        name: [
            {key: tensors.get(value, value) if isinstance(value, str) else value for key, value in each.items()}
            for each in proof.get(name, [])
        ]
        for name in LISTS
    }
    return FileDraft(
        nodes=list(circuit.nodes),
        output=circuit.output,
        heads=heads,
        lists=lists,
        steps=[*proof.get("steps", [])],
        powers=[*proof.get("powers", [])],
        halvings=proof["halvings"],
        tokens=model.tokens,
        dtype=stored["dtype"],
        domain=copy.deepcopy(header["domain"]),
        grid=model.grid_tokens,
    )


def _head(bank: Bank, number: int) -> DraftHead:
    """The heads that compute a node, each with its own arrays."""
    mine = np.flatnonzero(bank.node == number)
    heads, columns = mine // (bank.outputs // bank.heads), mine % (bank.outputs // bank.heads)
    arrays = {name: values[heads] for name, values in bank.arrays.items()}
    if "values" in arrays:
        arrays["values"] = np.stack([bank.arrays["values"][h][:, [c]] for h, c in zip(heads, columns, strict=True)])
    return DraftHead(bank.kind, bank.component[mine], arrays, bank.gains)


SINK = dict.fromkeys(GAINS["sink"], 800.0)


def sink(components: Any, scale: float) -> DraftHead:
    """Gates by heads that are off by up to 0.278 / scale."""
    count = len(components)
    return DraftHead(
        "sink", np.asarray(components), {"query_scale": np.full(count, scale), "key_scale": np.ones(count)}, SINK
    )
