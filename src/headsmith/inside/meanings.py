"""What heads compute and what registers hold, in words of the target: relu(x - y), and not gate 4[0].

A head's output stands for a node of the circuit that the target was turned into. Nodes of the circuit that stand for a
node of the target are told in the target's words; the gates in between are told by what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np

from headsmith.core.certificate import Certificate
from headsmith.core.figures import shortened
from headsmith.core.intervals import Box
from headsmith.language.describe import Reading, describe, number
from headsmith.language.graph import Expression, Graph, Node, Pool
from headsmith.language.labels import Circuit, Labels
from headsmith.plan.circuits.pieces import lay_out
from headsmith.transformer.bill import Bill
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import RESERVED, Link
from headsmith.transformer.ir import Bank, Transformer

LENGTH = 44
"""Texts are cut to so many characters."""

DIGITS = 4
"""Numbers in texts are rounded to so many digits."""

MOST_COLUMNS, MOST_TERMS = 8, 6
"""Registers of more columns are not told column by column; sums of more terms are cut."""


Held = dict[str, list[dict[tuple[str, int], float]]]
"""For each register and column the terms of a sum: a text, a number that tells cut texts apart, and the weight."""


class Model(Protocol):
    """What is needed of a compiled model."""

    @property
    def graph(self) -> Graph: ...
    @property
    def approximates(self) -> Graph | None: ...
    @property
    def wanted(self) -> Graph: ...
    @property
    def box(self) -> Box: ...
    @property
    def transformer(self) -> Transformer: ...
    @property
    def certificate(self) -> Certificate: ...
    @property
    def bill(self) -> Bill: ...
    @property
    def blocks(self) -> bool: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def computed(self) -> Circuit: ...


@dataclass(frozen=True, eq=False)
class Meanings:
    """What the heads and registers of one model stand for. Texts are made on demand: a network has thousands."""

    model: Model

    @cached_property
    def heads(self) -> list[list[str]]:
        """What the heads compute, layer by layer."""
        return [[text for bank in layer.banks for text in self._heads(bank)] for layer in self.model.transformer.layers]

    @cached_property
    def registers(self) -> list[dict[str, str]]:
        """What the registers of data tokens hold: by name, after the embedding and after each layer. Only those that
        changed are listed."""
        return _told(self)

    @cached_property
    def pieces(self) -> dict[tuple[int, int], list[str]]:
        """For heads that take a maximum over one token for each piece: what each token holds, by node and component
        of the head's output."""
        model = self.model
        if not model.blocks:
            return {}
        laid, reading = lay_out(model.graph), Reading(model.graph, digits=DIGITS)
        found: dict[tuple[int, int], list[str]] = {}
        # The maxima of the proof's circuit, in their order.
        numbers = {place: number for number, place in model.computed.places.items()}
        mine, theirs = (
            [place for place, node in enumerate(graph.nodes) if isinstance(node, Pool)]
            for graph in (laid.graph, model.computed.graph)
        )
        for place, same in zip(mine, theirs, strict=True):
            node = laid.graph.nodes[place]
            assert isinstance(node, Pool)
            for component in range(node.size):
                found[numbers[same], component] = [
                    "0" if piece is None else _signed(piece[1], describe(reading, piece[0], component))
                    for piece in laid.choosing[node.argument]
                ]
        return found

    def outputs(self, bank: Bank) -> list[str]:
        """What each output of a bank is, exactly: of a product's head, what it returns before the read-out's part."""
        return [self.output(bank, place) for place in range(bank.outputs)]

    def neurons(self, bank: Bank) -> list[str]:
        """What each output of a bank of neurons computes: a product, or a gate."""
        places = zip(bank.node.tolist(), bank.component.tolist(), strict=True)
        return [self._gate(*each) if bank.kind == "silu" else shortened(self._text(*each), LENGTH) for each in places]

    def node(self, number: int) -> Node:
        """The node of the circuit that an output of a bank stands for."""
        circuit = self.model.computed
        return circuit.graph.nodes[circuit.places[number]]

    @property
    def reading(self) -> Reading:
        """The circuit that the heads compute, in the target's words."""
        return self._reading

    @cached_property
    def _reading(self) -> Reading:
        """The circuit, in the target's words."""
        labels, circuit = self.model.labels, self.model.computed
        words = Reading(labels.words(self.model.graph), digits=DIGITS)
        means = {circuit.places[place]: node for place, node in labels.means.items() if place in circuit.places}
        return Reading(circuit.graph, {place: (words, node) for place, node in means.items()}, DIGITS)

    @cached_property
    def _owners(self) -> dict[int, str]:
        """For gates of circuits that stand for a function: which function."""
        return {gate: describe(self._reading, owner) for gate, owner in self.model.computed.parts.items()}

    def _text(self, node: int, component: int) -> str:
        """What a component of a node of the proof's circuit is; -1 is no node."""
        return "" if node < 0 else describe(self._reading, self.model.computed.places[node], component)

    def _heads(self, bank: Bank) -> list[str]:
        """What each head computes: a gate of the target's circuit, or expressions of the target."""
        places = list(zip(bank.node.tolist(), bank.component.tolist(), strict=True))
        if isinstance(bank, SinkBank):
            return [self._gate(node, component) for node, component in places]
        if bank.cleared:
            return [f"{bank.kind}: clears {shortened(', '.join(bank.cleared), LENGTH)}"] * bank.heads
        if bank.neurons:
            return []
        each = len(places) // bank.heads
        names = []
        for head in range(bank.heads):
            texts = [self._text(*place) for place in places[head * each : (head + 1) * each]]
            told = shortened(", ".join(text for text in dict.fromkeys(texts) if text), LENGTH)
            names.append(f"{bank.called}: {told}" if told else bank.called)
        return names

    def _gate(self, node: int, component: int) -> str:
        text, owner = shortened(self._text(node, component) or "relu", LENGTH), self._owner(node)
        return text if owner is None or owner == text else f"{text} (part of {shortened(owner, LENGTH // 2)})"

    def _owner(self, node: int) -> str | None:
        """The function that a gate is a part of."""
        return self._owners.get(self.model.computed.places.get(node, -1))

    def output(self, bank: Bank, place: int) -> str:
        """What one output of a bank stands for."""
        node, component = int(bank.node[place]), int(bank.component[place])
        text = self._text(node, component)
        if isinstance(bank, GateBank) and text:
            expression = self.node(node)
            assert isinstance(expression, Expression)
            by, value = (_grouped(describe(self._reading, each, component)) for each in expression.arguments)
            line = expression.program.steps[0]
            incline, intercept = float(line.terms[0][0]), float(line.constant)  # type: ignore[union-attr]
            return f"{value}*({_sum([(intercept, ''), (incline, by)])})"
        return text


def without_kind(text: str) -> str:
    """What a head computes, without the word for its kind."""
    return text.partition(": ")[2] or text


def read_text(links: Sequence[Link], row: int, sizes: Mapping[str, int]) -> str:
    """What one linear form reads, as a sum of registers."""
    terms = []
    for link in links:
        if link.first <= row < link.first + link.rows:
            weights = link.weights[row - link.first]
            columns = [row - link.first] if link.weights.ndim == 1 else np.flatnonzero(weights).tolist()
            for column in columns:
                weight = float(weights if link.weights.ndim == 1 else weights[column])
                name = link.register if sizes[link.register] == 1 else f"{link.register}[{column}]"
                terms.append((weight, name))
    return _sum(terms)


def _told(meanings: Meanings) -> list[dict[str, str]]:
    model = meanings.model.transformer
    small = {name: size for name, size in model.sizes.items() if size <= MOST_COLUMNS and name not in RESERVED}
    held: Held = {name: [{} for _ in range(size)] for name, size in small.items()}
    for name, values in model.initial.items():
        for column, value in enumerate(values if name in small else ()):
            held[name][column]["", 0] = float(value)
    for name in model.positional:
        for column in range(small.get(name, 0)):
            held[name][column]["position" if small[name] == 1 else f"position[{column}]", 0] = 1.0
    _add(held, model.embedding, _input_names(meanings.model))
    told = [{name: _columns(columns) for name, columns in held.items()}]
    for layer in model.layers:
        changed = set()
        for name in (name for bank in layer.banks for name in bank.cleared if name in small):
            held[name] = [{} for _ in range(small[name])]
        for bank in layer.banks:
            if any(link.register in small for link in bank.write):
                # What a bank that clears registers adds besides are constants.
                links = [link for link in bank.write if not bank.cleared or link.weights.ndim == 2]
                _add(held, links, meanings.outputs(bank))
            changed |= {link.register for link in bank.write}
        told.append({name: _columns(held[name]) for name in small if name in changed})
    return told


def _add(held: Held, links: Sequence[Link], texts: Sequence[str]) -> None:
    """Add what links write: weights times texts."""
    for link in links:
        if link.register not in held:
            continue
        for column, terms in enumerate(held[link.register]):
            row = link.weights[column]
            sources = [column] if link.weights.ndim == 1 else np.flatnonzero(row).tolist()
            for source in sources:
                weight = float(row if link.weights.ndim == 1 else row[source])
                text = texts[link.first + source]
                # Texts that were cut may look alike and mean different things.
                key = text, len(terms) if "..." in text else 0
                terms[key] = terms.get(key, 0.0) + weight


def _input_names(model: Model) -> list[str]:
    names = list(model.graph.input.names if model.box.size > model.transformer.inputs else model.box.names)
    if model.blocks:
        return [f"{name} at token {token}" for token in range(model.transformer.tokens) for name in names]
    return names


def _columns(columns: Sequence[Mapping[tuple[str, int], float]]) -> str:
    texts = [_sum([(weight, text) for (text, _), weight in terms.items()]) for terms in columns]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _sum(terms: Sequence[tuple[float, str]]) -> str:
    """weight*text + ..., cut after a few terms; an empty text stands for one."""
    parts = []
    kept = [(weight, text) for weight, text in terms if weight]
    for weight, text in kept[:MOST_TERMS]:
        size = number(abs(weight), DIGITS)
        shown = size if not text else shortened(text, LENGTH) if size == "1" else f"{size}*{_grouped(text)}"
        parts.append(("- " if weight < 0.0 else "+ ") + shown)
    if len(kept) > MOST_TERMS:
        parts.append(f"+ {len(kept) - MOST_TERMS} more")
    joined = " ".join(parts) or "+ 0"
    return joined[2:] if joined.startswith("+ ") else "-" + joined[2:]


def _grouped(text: str) -> str:
    """In brackets, where it is a sum."""
    text = shortened(text, LENGTH)
    depths = accumulate((character == "(") - (character == ")") for character in text)
    outside = "".join(character for character, depth in zip(text, depths, strict=True) if depth == 0)
    return f"({text})" if " " in outside or text.startswith("-") else text


def _signed(sign: float, text: str) -> str:
    return text if sign > 0.0 else f"-{_grouped(text)}"
