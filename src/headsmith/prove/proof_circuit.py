"""The circuit of a proof: what the heads compute, node by node, with reference nodes in front of what stands for them.

A reference node says what a stretch of the circuit means: a function of the target, the maximum of two nodes, an
exchange of a sort. No head computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import same_weights
from headsmith.core.program import Over, Program, Times
from headsmith.kernel.rules.sampled import BEYOND
from headsmith.language.graph import (
    Affine,
    Attend,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Move,
    Node,
    Positional,
    Relu,
    Sampled,
    arguments,
)
from headsmith.language.stored import Header, Tensors, node_data, program_data
from headsmith.plan.analysis.flow import exchanges
from headsmith.plan.circuits.assemble import Assembly, Choice, Extremum
from headsmith.prove.views import Views

PERSPECTIVE = Program(2, (Times(0, 0), Over(2, 1)))
"""s^2 / V."""
SMALL = 64
"""Weights of at most so many numbers are stored again in the circuit; larger ones are the target's."""


class Writer:
    """The circuit as a file has it, with reference nodes in front of what stands for them."""

    def __init__(
        self, target: Graph, fused: Graph, assembly: Assembly, choices: Mapping[int, Choice], tensors: Tensors
    ) -> None:
        self.target, self.fused, self.assembly, self.choices, self.tensors = target, fused, assembly, choices, tensors
        self.nodes: list[Header] = []
        self.places: dict[int, int] = {}
        self.regions: list[Header] = []
        self.tables: list[Header] = []
        self.viewed: list[Header] = []
        self.exchanges = exchanges(assembly.circuit)
        self.anew = {number for _, inside in self.exchanges.values() for number in inside}
        """Nodes inside of exchanges, which must have no views."""
        self.constants: dict[Any, int] = {}
        self.alike: list[Header] = []
        self.bends: list[Header] = []
        self.scales: dict[tuple[int, str], int] = {}
        self.names = {place: number for number, place in reversed([*assembly.places.items()])}
        """The first node of the target that each node of the circuit is."""
        self.views = Views(fused, lambda number: self.places[assembly.places[number]], self._add, self._keep)
        within = {inner for region in assembly.regions.values() for inner in region}
        self.extrema = {item.node: item for item in assembly.extrema if item.node not in within}
        self.outputs = {assembly.places[number]: number for number in assembly.regions}
        self.perspectives = [
            (splice, splice.scale)
            for splice in assembly.splices
            if splice.scale is not None and not isinstance(fused.nodes[splice.target], Hypotenuse)
        ]
        self.fragments = {splice.first + splice.fragment.graph.output - 1: splice for splice in assembly.splices}
        self.large = {
            number: node
            for number, node in enumerate(target.nodes)
            if isinstance(node, Affine) and any(term.weights.size > SMALL for term in node.terms)
        }

    def write(self) -> None:
        for number, node in enumerate(self.assembly.circuit.nodes):
            self._enter_perspective(number)
            references = self._references(number)
            viewed = self.names.get(number)
            plain = viewed is not None and not references and number not in self.anew
            views = self.views.of(viewed) if viewed is not None and plain else []
            if number in self.extrema:
                views.append(self._extremum(self.extrema[number]))
            exchanged = self._exchange(number)
            self.places[number] = self._placed(node, self._seen(number))
            self.viewed += [{"node": self.places[number], "as": view} for view in views]
            if exchanged is not None:
                self.regions.append({"output": self.places[number], "stands_for": exchanged, "margin": 0.0})
            for reference, ends in references:
                owner = self.fragments[number].target if ends else self.outputs[number]
                # Halves of a product lie inside of its region: what they read is not off.
                halved = ends and self.fragments[number].part
                margin = 0.0 if halved and self.choices[owner].margin is not None else self.choices[owner].margin
                region = {"output": self.places[number], "stands_for": reference, "margin": margin}
                self.regions.append({**region, "ends": ""} if ends else region)
            if isinstance(node, Sampled):
                self.tables.append({"node": self.places[number], "margin": BEYOND / 2.0, "cells": ""})
            if isinstance(node, Expression):
                owner = next(each for each, region in self.assembly.regions.items() if number in region)
                self.tables.append({"node": self.places[number], "margin": self.choices[owner].margin, "cells": ""})
            if isinstance(node, Attend):
                self.tables.append({"node": self.places[number], "margin": 0.0, "cells": ""})

    def _placed(self, node: Node, places: Mapping[int, int]) -> int:
        """A new node; equal constants of the tokens are one node, since they are one register."""
        if not isinstance(node, Positional):
            return self._add(self._stored(node, places))
        key = node.values.shape, node.values.tobytes()
        if key not in self.constants:
            self.constants[key] = self._add(self._stored(node, places))
        return self.constants[key]

    def _extremum(self, item: Extremum) -> int:
        """A reference node that is the maximum or minimum of two nodes, of which the circuit has a sum."""
        kind, sides = "maximum" if item.largest else "minimum", [self.places[item.left], self.places[item.right]]
        return self._add({"kind": kind, "arguments": sides, "size": self.assembly.circuit.nodes[item.node].size})

    def copy_target(self) -> None:
        """The whole target as reference nodes, with views: where that shows that its functions are defined, and adding
        up intervals does not."""
        places = {0: 0}
        views = Views(self.target, places.__getitem__, self._add, self._keep)
        for number, node in list(enumerate(self.target.nodes))[1:]:
            found = views.of(number)
            places[number] = self._placed(node, places)
            self.viewed += [{"node": places[number], "as": view} for view in found]
            self.alike.append({"node": number, "as": places[number]})
        self.bends += views.bends

    def _exchange(self, number: int) -> int | None:
        """The reference node of an exchange, with others for its constants."""
        found = self.exchanges.get(number)
        node = self.assembly.circuit.nodes[number]
        if found is None or not isinstance(node, Affine):
            return None
        value, nodes = found[0], self.assembly.circuit.nodes
        (moved,) = (each for each in (nodes[inner] for inner in found[1]) if isinstance(each, Move))
        parts = {"value": self.places[value], "targets": list(moved.targets), "size": node.size}
        for term in node.terms:
            gate = nodes[term.node]
            if isinstance(gate, Relu) and isinstance(argument := nodes[gate.argument], Affine):
                # relu(x - m - c) falls, relu(m - x - d) rises.
                name = "above" if float(term.weights.reshape(-1)[0]) < 0.0 else "below"
                tables = [each for each in argument.terms if isinstance(nodes[each.node], Positional)]
                terms = [{"node": self.places[each.node], "weights": self._keep(-each.weights)} for each in tables]
                parts[name] = self._add({"kind": "affine", "terms": terms, "bias": self._keep(-argument.bias)})
        return self._add({"kind": "exchange", **parts})

    def _add(self, stored: Header) -> int:
        self.nodes.append(stored)
        return len(self.nodes) - 1

    def _references(self, number: int) -> list[tuple[int, bool]]:
        """Reference nodes for a circuit node, each with whether it is compared cell by cell."""
        found = []
        owner = self.outputs.get(number)
        if number in self.fragments and owner is not None and isinstance(self.fused.nodes[owner], Hypotenuse):
            return [(self._reference(owner), True)]
        if number in self.fragments:
            splice = self.fragments[number]
            node = self.fused.nodes[splice.target]
            name, parameter = (node.name, node.parameter) if isinstance(node, Function) else ("square", None)
            argument = self.places[splice.argument]
            size = self.assembly.circuit.nodes[splice.argument].size
            stored = {"kind": "function", "name": name, "argument": argument, "size": size, "parameter": parameter}
            if splice.scale is not None:
                arguments_ = [argument, self.scales[splice.scale, splice.part]]
                stored = {
                    "kind": "expression",
                    "arguments": arguments_,
                    "size": size,
                    "program": program_data(PERSPECTIVE),
                }
            found.append((self._add(stored), True))
        circuit_node = self.assembly.circuit.nodes[number]
        if owner is not None and number not in self.fragments and not isinstance(circuit_node, Expression):
            found.append((self._reference(owner), False))
        return found

    def _reference(self, number: int) -> int:
        """A node of the fused target, which reads what the circuit has for its arguments."""
        node = self.fused.nodes[number]
        renamed = {each: self.places[self.assembly.places[each]] for each in self.fused.reads[number]}
        return self._add(node_data(node, renamed.__getitem__, self._keep_named))

    def _stored(self, node: Node, places: Mapping[int, int]) -> Header:
        if isinstance(node, Sampled):
            (number,) = (n for n, other in enumerate(self.target.nodes) if isinstance(other, Sampled))
            return {"kind": "copy", "node": number, "arguments": [places[each] for each in arguments(node)]}
        if isinstance(node, Affine):
            for number, other in self.large.items():
                if _same_weights(node, other):
                    return {"kind": "copy", "node": number, "arguments": [places[each] for each in arguments(node)]}
        return node_data(node, places.__getitem__, self._keep_named)

    def _enter_perspective(self, number: int) -> None:
        """In front of a perspective, a copy of its scale: it must not read the argument of the region around it."""
        for splice, scale in self.perspectives:
            if splice.first == number:
                size = self.assembly.circuit.nodes[scale].size
                terms = [{"node": self.places[scale], "weights": self._keep(np.ones(size))}]
                copy = self._add({"kind": "affine", "terms": terms, "bias": self._keep(np.zeros(size))})
                self.scales[scale, splice.part] = copy

    def _seen(self, number: int) -> Mapping[int, int]:
        """Where a node finds what it reads: in a perspective, its own copy of the scale."""
        for splice, scale in self.perspectives:
            if splice.first <= number < splice.first + len(splice.fragment.graph.nodes) - 1:
                return {**self.places, scale: self.scales[scale, splice.part]}
        return self.places

    def _keep_named(self, _: str, values: Any, kind: Any = np.float64) -> str:
        return self._keep(values, kind)

    def _keep(self, values: Any, kind: Any = np.float64) -> str:
        name = f"proof.{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name


def _same_weights(left: Affine, right: Affine) -> bool:
    return (
        len(left.terms) == len(right.terms)
        and np.array_equal(left.bias, right.bias)
        and all(same_weights(a.weights, b.weights) for a, b in zip(left.terms, right.terms, strict=True))
    )
