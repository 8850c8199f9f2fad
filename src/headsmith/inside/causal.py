"""The causal model that a transformer carries out: its variables, one computed from the others, which can be set.

    causal = model.causal()
    causal.values(x)["v1"]                      every variable at an input
    causal.run(x, set={"v1": 0.25})             the target, had x*y been 0.25
    causal.run(x, set={"x*y": 0.25})            the same, by what the variable says

It is the circuit that the heads compute, with every stretch that approximates a function of the target replaced by that
function, in floating point: an oracle for interchange interventions, and no bound. On a model, `write` sets a variable:
the head that writes it last returns so much more (labels.py tells what the stream gains).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.inside.ablation import Machine
from headsmith.inside.labels import Labels, Variable
from headsmith.language.builder import moved
from headsmith.language.evaluation import node_values
from headsmith.language.graph import Graph, arguments
from headsmith.language.stored import read_node
from headsmith.plan.circuits.pieces import in_blocks


@dataclass(frozen=True, eq=False)
class Causal:
    """The causal model of a compiled one."""

    labels: Labels

    def __repr__(self) -> str:
        told = "; ".join(f"{each.id} = {each.text}" for each in self.variables[:8])
        more = f"; and {len(self.variables) - 8} more" if len(self.variables) > 8 else ""
        return f"<Causal {told}{more}>"

    @property
    def variables(self) -> list[Variable]:
        """All variables, in order: later ones are computed from earlier ones."""
        return self.labels.variables

    def variable(self, name: str) -> Variable:
        """The variable of that id, or with that text."""
        for each in self.variables:
            if name in (each.id, each.text):
                return each
        known = ", ".join(f"{each.id} ({each.text})" for each in self.variables[:6])
        raise TargetError(f"there is no variable {name!r}; there are {known}, ...")

    @cached_property
    def graph(self) -> Graph:
        """The circuit, in which what approximates a function is that function."""
        model: Any = self.labels.model
        circuit, proof = model.computed, model.proof
        nodes, places = list(circuit.graph.nodes), circuit.places
        for region in () if proof is None else proof.stored.get("regions", ()):
            output = places.get(region["output"], -1)
            if output in circuit.regions:
                reference = proof.stored["circuit"]["nodes"][region["stands_for"]]
                exact = read_node(reference, proof.tensors.__getitem__, model.graph)
                if all(each in places for each in arguments(exact)):
                    nodes[output] = moved(exact, places)
        return Graph(tuple(nodes), circuit.graph.output)

    def run(self, array: Any, set: Mapping[str, Any] | None = None) -> Array:
        """The target at inputs as the model takes them, with some variables set: to a number, or to one for each input
        (and token)."""
        return self._values(array, set or {})[1]

    def values(self, array: Any, set: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Every variable at inputs as the model takes them."""
        return self._values(array, set or {})[0]

    def _values(self, array: Any, given: Mapping[str, Any]) -> tuple[dict[str, Array], Array]:
        model: Any = self.labels.model
        inputs = np.asarray(array, dtype=np.float64)
        blocks, instead = model.blocks, dict[int, Any]()
        seen = in_blocks(inputs.reshape(-1, inputs.shape[-1]), model.transformer.tokens) if blocks else inputs
        for name, value in given.items():
            variable = self.variable(name)
            earlier = instead.get(variable.place)
            instead[variable.place] = _setting(variable.component, value, earlier)
        found = node_values(self.graph, seen, instead=instead)
        known = {each.id: found[each.place][..., each.component] for each in self.variables}
        outputs = found[self.graph.output]
        if blocks:
            known = {name: each[:, 0] for name, each in known.items()}
            outputs = outputs[:, 0].reshape(*inputs.shape[:-1], -1)
        return known, np.asarray(outputs)

    def interchanged(
        self, machine: Machine, base: Array, name: str, value: Array, vector: Array | None = None
    ) -> Array:
        """What a model returns at inputs of its own form if it holds another value of a variable: (batch, tokens,
        outputs). After the layer that completes the variable, the stream gains (value - variable) times the vector that
        writes it. `machine` is the plain model or one in disguise, whose `vector` is its own."""
        variable = self.variable(name)
        layer, writers = self.labels.write(variable)
        if not writers:
            raise TargetError(f"{name}: no head writes this variable")
        row = writers[0][1] if vector is None else vector
        tokens = tokens_of(self.labels.model, base)
        trace, now = machine.run(tokens), self.values(base)[variable.id].reshape(len(tokens), -1, 1)
        moved = (np.asarray(value, dtype=np.float64).reshape(len(tokens), -1, 1) - now) * row
        stream = trace.streams[layer + 1].copy()
        stream[:, machine.references :] += moved
        return machine.resumed([*trace.streams[: layer + 1], stream], trace).outputs


def causal_of(model: Any) -> Causal:
    """The causal model of a compiled one."""
    plain = model.plain()
    return Causal(Labels(model, Machine(plain.config, plain.tensors)))


def tokens_of(model: Any, array: Any) -> Array:
    """Inputs as tokens of sequences: (batch, tokens, inputs)."""
    inputs = np.asarray(array, dtype=np.float64)
    if model.blocks:
        return np.asarray(in_blocks(inputs.reshape(-1, inputs.shape[-1]), model.transformer.tokens))
    return inputs.reshape(-1, model.transformer.tokens, model.transformer.inputs)


def _setting(component: int, value: Any, earlier: Any) -> Any:
    def change(found: Array) -> Array:
        changed = np.array(found if earlier is None else earlier(found))
        changed[..., component] = value
        return changed

    return change
