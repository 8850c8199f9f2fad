"""What is true of every head and register of a model, read off its weights and the circuit that they compute.

    output     one number that a head returns: exactly the node of the circuit that it stands for, up to a proven error
    variable   what a stretch of the circuit means: x*y, relu(x - y), what stays of an exchange. A head may return it as
               it is, or a part of it, which other parts complete: x*y = 32 (y (1/2 + x/32)) - 16 y
    form       what a column of the stream holds at a layer's boundary: a sum of inputs, constants and outputs of heads

A variable and a direction are two things. What reads a variable is a covector: a combination of columns whose form is
the variable's. What writes it is a vector: the rows of the output matrices of its heads. They agree only in an
orthogonal basis with one register a variable, so both are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.inside.ablation import Machine, Node, node_name
from headsmith.inside.meanings import Meanings, Model
from headsmith.inside.trees import Tree, Writer, summed, text
from headsmith.language.describe import Reading
from headsmith.language.graph import Affine, Graph, Input, Positional, Relu
from headsmith.plan.analysis.flow import exchanges
from headsmith.plan.analysis.ranges import ranges
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.ir import Bank

ONE = "1"
"""What constants multiply."""

CLOSE = 1e-11
"""Combinations of columns are looked for in floating point, and may be off by this share of what is wanted."""

Form = Mapping[str, float]
"""A sum: the names of inputs, of constants of the tokens and of outputs of heads, ONE among them, with weights."""


@dataclass(frozen=True, eq=False)
class Output:
    """One number that a head returns, and the component of the circuit's `node` that it is; -1 is no node. `name` is
    that of the head, with the number in brackets where it returns several."""

    head: Node
    number: int
    name: str
    bank: Bank
    node: int
    component: int


@dataclass(frozen=True, eq=False)
class Variable:
    """What a component of a node of the circuit means, and the sum of outputs of heads and inputs that completes it;
    None where that is not known as one sum."""

    id: str
    place: int
    component: int
    tree: Tree
    completed: Form | None
    says: str = ""

    @property
    def text(self) -> str:
        return text(self.tree)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of one model whose layers are heads alone."""

    model: Model
    machine: Machine

    @cached_property
    def meanings(self) -> Meanings:
        return Meanings(self.model)

    @property
    def circuit(self) -> Graph:
        """The circuit that the heads compute."""
        return self.meanings.reading.graph

    @cached_property
    def inputs(self) -> dict[str, str]:
        """How the inputs are called: a sequence of one number a token is called x, and not x[:, 0]."""
        names = self.circuit.input.names
        plain = {name: name.replace("[:, ", "").replace("]", "") for name in names}
        return {name: "x" if len(names) == 1 and name == "x[:, 0]" else plain[name] for name in names}

    @cached_property
    def heads(self) -> list[list[tuple[Bank, list[Output]]]]:
        """The bank and the outputs of every head, layer by layer; of heads that clear registers, no outputs."""
        found, numbers = [], self.model.computed.places
        for number, layer in enumerate(self.model.transformer.layers):
            row: list[tuple[Bank, list[Output]]] = []
            for bank in layer.banks:
                each = bank.outputs // bank.heads
                for head in range(bank.heads):
                    node, mine = (number, len(row)), range(0 if bank.cleared else each)
                    tags = [f"[{k}]" if each > 1 else "" for k in mine]
                    first = slice(head * each, (head + 1) * each)
                    stands = [numbers.get(place, -1) for place in bank.node[first].tolist()]
                    roles = list(zip(stands, bank.component[first].tolist(), strict=True))
                    row.append((bank, [Output(node, k, node_name(node) + tags[k], bank, *roles[k]) for k in mine]))
            found.append(row)
        return found

    @cached_property
    def outputs(self) -> list[Output]:
        """All outputs of heads that compute something, in order."""
        return [each for layer in self.heads for _, outputs in layer for each in outputs if each.node >= 0]

    @cached_property
    def _of_node(self) -> dict[tuple[int, int], str]:
        return {(each.node, each.component): each.name for each in reversed(self.outputs)}

    # Variables ------------------------------------------------------------------------------------------------------

    @cached_property
    def variables(self) -> list[Variable]:
        """Every variable, in the order of the circuit."""
        return [self._variable(f"v{k}", place, component) for k, (place, component) in enumerate(self._meant)]

    @cached_property
    def _meant(self) -> list[tuple[int, int]]:
        """The nodes that mean something: what heads return, unless it is a part of a product; what regions stand for;
        what stays of an exchange."""
        found = dict[tuple[int, int], None]()
        parts: set[int] = set()
        for place, region in self.model.computed.regions.items():
            if any((each, k) in self._of_node for each in region for k in range(self.circuit.nodes[each].size)):
                found |= dict.fromkeys((place, k) for k in range(self.circuit.nodes[place].size))
                parts |= {each for each in region if not isinstance(self.circuit.nodes[each], Relu)}
        for place in self._exchanges:
            found[place, 0] = None
        for each in self.outputs:
            if each.node not in parts:
                found[each.node, each.component] = None
        return sorted(found)

    @cached_property
    def _exchanges(self) -> Mapping[int, Any]:
        return exchanges(self.circuit)

    @cached_property
    def names(self) -> dict[tuple[int, int, int], str]:
        """Which variable a component of a node is, in the circuit and in the graphs whose words tell it."""
        found: dict[tuple[int, int, int], str] = {}
        for number, (place, component) in enumerate(self._meant):
            for reading, node in _hops(self.meanings.reading, place):
                found.setdefault((id(reading.graph), node, component), f"v{number}")
        for number, (place, component) in enumerate(self._meant):
            found[id(self.circuit), place, component] = f"v{number}"
        return found

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.names, self.inputs)

    def _variable(self, name: str, place: int, component: int) -> Variable:
        tree = self.writer.tree(self.meanings.reading, place, component)
        says = self._exchanged(place) if place in self._exchanges else ""
        return Variable(name, place, component, tree, self._completed(place, component), says)

    def variables_of(self, output: Output) -> list[Variable]:
        """What an output is, or is a part of."""
        exact = [each for each in self.variables if (each.place, each.component) == (output.node, output.component)]
        return exact or [each for each in self.variables if output.node in self._region(each.place)]

    def _region(self, place: int) -> frozenset[int]:
        """The nodes that are a part of what a node stands for."""
        return self.model.computed.regions.get(place, frozenset())

    def returns(self, output: Output) -> Tree:
        """What an output is, exactly: of a head that multiplies, what it returns before others complete that."""
        node, reading = self.circuit.nodes[output.node], self.meanings.reading
        if isinstance(output.bank, GateBank):
            return self.writer.tree(Reading(self.circuit, {}), output.node, output.component)
        tree = self.writer.tree(reading, output.node, output.component)
        return tree if node is not None else ONE

    @cached_property
    def _ranges(self) -> Any:
        try:
            return ranges(self.circuit, self.model.box)
        except HeadsmithError:
            return None

    def _completed(self, place: int, component: int) -> Form | None:
        """The sum of outputs of heads, inputs and constants that a component of a node is."""
        total: dict[str, float] = {}
        waiting = [(place, component, 1.0)]
        while waiting:
            number, row, weight = waiting.pop()
            node = self.circuit.nodes[number]
            if (number, row) in self._of_node:
                name = self._of_node[number, row]
            elif isinstance(node, Input):
                name = self.inputs[node.names[row]]
            elif isinstance(node, Positional):
                name = f"{ONE}[{number},{row}]"
            elif isinstance(node, Affine):
                total[ONE] = total.get(ONE, 0.0) + weight * float(node.bias[row])
                for term in node.terms:
                    weights = term.weights[row]
                    for column in [row] if term.diagonal else weights.nonzero()[0].tolist():
                        each = float(weights if term.diagonal else weights[column])
                        waiting += [(term.node, column, weight * each)] if each else []
                continue
            elif isinstance(node, Relu) and self._ranges is not None:
                known = self._ranges[node.argument]
                low, high = float(np.min(known.low[row])), float(np.max(known.high[row]))
                if low < 0.0 < high:
                    return None
                waiting += [(node.argument, row, weight)] if low >= 0.0 else []
                continue
            else:
                return None
            total[name] = total.get(name, 0.0) + weight
        return {name: weight for name, weight in total.items() if weight}

    def _exchanged(self, place: int) -> str:
        """Between which tokens an exchange takes place, and what stays."""
        _, inside = self._exchanges[place]
        (move,) = (self.circuit.nodes[each] for each in inside if hasattr(self.circuit.nodes[each], "targets"))
        told = []
        for token, other in enumerate(move.targets):
            if other <= token:
                continue
            told.append(f"token {token} with token {other}: {self._stays(place, token)}")
        return "; ".join(told)

    def _stays(self, place: int, token: int) -> str:
        """Which of two values stays at the first token of an exchange: that of the gate that can open."""
        node = self.circuit.nodes[place]
        assert isinstance(node, Affine)
        closed = {}
        for term in node.terms:
            gate = self.circuit.nodes[term.node]
            if isinstance(gate, Relu) and isinstance(argument := self.circuit.nodes[gate.argument], Affine):
                shift = float(argument.bias[0])
                for each in argument.terms:
                    constant = self.circuit.nodes[each.node]
                    if isinstance(constant, Positional):
                        shift += float(each.weights.reshape(-1)[0]) * float(constant.values[token, 0])
                closed[float(term.weights.reshape(-1)[0])] = shift < 0.0
        if closed.get(-1.0) == closed.get(1.0):
            return "both stay" if closed.get(-1.0) else "exchanged"
        return "the larger stays at the first" if closed.get(-1.0) else "the smaller stays at the first"

    # Forms ----------------------------------------------------------------------------------------------------------

    @cached_property
    def basis(self) -> list[str]:
        """What forms are sums of: inputs, ONE, constants that differ from token to token, outputs of heads."""
        tokens = self.machine.tensors["positions"]
        constants = [f"position[{column}]" for column in range(tokens.shape[1]) if np.any(tokens[:, column])]
        return [*self.inputs.values(), ONE, *constants, *(each.name for each in self.outputs)]

    @cached_property
    def forms(self) -> list[Array]:
        """What the columns of the stream hold on data tokens, before each layer and at the end: (columns, basis)."""
        place = {name: number for number, name in enumerate(self.basis)}
        embed, bias = self.machine.tensors["embed.weight"], self.machine.tensors["embed.bias"]
        now = np.zeros((len(bias), len(self.basis)))
        names = list(self.inputs.values())
        for column in range(embed.shape[1]):
            # In blocks, token j holds the inputs in block j: what is told is told of one of them.
            now[:, place[names[column % len(names)]]] += embed[:, column]
        now[:, place[ONE]] += bias
        for name in (name for name in self.basis if name.startswith("position[")):
            now[int(name[9:-1]), place[name]] += 1.0
        found = [now]
        for layer, (_, _, value, write) in zip(self.heads, self.machine.layers, strict=True):
            now = now.copy()
            for number, (bank, outputs) in enumerate(layer):
                if bank.cleared:
                    now += write[number].T @ (value[number].T @ found[-1])
                for each in outputs:
                    if each.name in place:
                        now[:, place[each.name]] += write[number][each.number]
            found.append(now)
        return found

    def form(self, row: Array) -> dict[str, float]:
        """A row of forms by the names of what is in it."""
        return {name: float(weight) for name, weight in zip(self.basis, row.tolist(), strict=True) if weight}

    def wanted(self, variable: Variable) -> Array | None:
        """The form of a variable as a row."""
        if variable.completed is None or any(name not in self.basis for name in variable.completed):
            return None
        return np.array([variable.completed.get(name, 0.0) for name in self.basis])

    def read(self, variable: Variable, layer: int) -> tuple[Array, float] | None:
        """A covector, and what is added, so that the stream before a layer times it is the variable, on data tokens; of
        a single column where there is one."""
        wanted, forms = self.wanted(variable), self.forms[layer]
        if wanted is None or not wanted.any():
            return None
        one = self.basis.index(ONE)
        bare, shift = forms.copy(), wanted[one]
        bare[:, one] = 0.0
        goal = wanted.copy()
        goal[one] = 0.0
        lead = int(np.argmax(np.abs(goal)))
        for column in np.flatnonzero(bare[:, lead]).tolist():
            factor = goal[lead] / bare[column, lead]
            if np.array_equal(factor * bare[column], goal):
                found = np.zeros(len(forms))
                found[column] = factor
                return found, float(shift - factor * forms[column, one])
        found = np.asarray(np.linalg.lstsq(bare.T, goal, rcond=1e-12)[0], dtype=np.float64)
        found = np.where(np.abs(found) < 1e-10 * np.max(np.abs(found)), 0.0, found)
        tidy = np.array([float(f"{each:.12g}") for each in found])
        found = tidy if np.array_equal(tidy @ bare, goal) else found
        if np.max(np.abs(found @ bare - goal)) > CLOSE * np.max(np.abs(goal)):
            return None
        return found, float(shift - found @ forms[:, one])

    def write(self, variable: Variable) -> tuple[int, list[tuple[str, Array]]]:
        """The layer after which a variable is there, and for each head that writes it last what the stream gains when
        the variable rises by one."""
        form = variable.completed or {}
        mine = [each for each in self.outputs if form.get(each.name)]
        last = max((each.head[0] for each in mine), default=-1)
        rows = self.machine.layers
        return last, [
            (each.name, rows[last][3][each.head[1]][each.number] / form[each.name])
            for each in mine
            if each.head[0] == last
        ]

    def told(self, form: Mapping[str, float]) -> str:
        """A form as text."""
        return text(summed([(weight, name) for name, weight in form.items() if name != ONE], form.get(ONE, 0.0)))


def _hops(reading: Reading, place: int) -> Iterator[tuple[Reading, int]]:
    """A node, and the nodes of other graphs that it is told as."""
    yield reading, place
    while place in reading.elsewhere:
        reading, place = reading.elsewhere[place]
        yield reading, place
