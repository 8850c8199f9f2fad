"""Gates that cannot cross zero on the domain vanish: an active one is its argument, a dead one is zero.

What remains is a graph of the same function on the domain whose relu nodes hold unstable gates only; expressions
stay. An affine node that sums gates and passed-through arguments, P = W_U relu + W_A P_A, is split into Q = W_U relu (a
running sum that heads write) and P = Q + W_A P_A, so that the register allocator can choose between reading P_A and
folding it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.intervals import Interval
from headsmith.lower.linear import select_columns, select_rows
from headsmith.source.builder import Builder
from headsmith.source.graph import (
    Affine,
    Attend,
    Expression,
    Graph,
    Input,
    Mixing,
    Move,
    Pool,
    Positional,
    Relu,
    needed,
)


@dataclass(frozen=True, eq=False)
class Reduced:
    """The reduced graph, and for each of its relu nodes and expressions the original (node, components)."""

    graph: Graph
    origin: dict[int, tuple[int, Indices]]


def holds_constants(graph: Graph, number: int) -> bool:
    """Whether an affine node holds constants of tokens, through affine nodes: no head could write those."""
    stack = [number]
    while stack:
        node = graph.nodes[stack.pop()]
        if isinstance(node, Positional):
            return True
        if isinstance(node, Affine):
            stack.extend(term.node for term in node.terms)
    return False


@dataclass(frozen=True, eq=False)
class _Part:
    """Some components of an original node, as the whole of a new node."""

    node: int
    components: Indices
    passed: bool


def reduce(graph: Graph, ranges: Sequence[Interval]) -> Reduced:
    """Drop stable gates. Guarantee: on the domain, the reduced graph's output equals the original's."""
    return _Reducer(graph, ranges).result()


class _Reducer:
    def __init__(self, graph: Graph, ranges: Sequence[Interval]) -> None:
        self.graph, self.ranges = graph, ranges
        self.builder = Builder(graph.input.names)
        self.origin: dict[int, tuple[int, Indices]] = {}
        self.parts: dict[int, list[_Part]] = {}
        self.whole: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        for number, read in enumerate(graph.reads):
            for argument in read:
                self.readers.setdefault(argument, []).append(number)

    def result(self) -> Reduced:
        dead = {
            number
            for number, node in enumerate(self.graph.nodes)
            if isinstance(node, Relu) and np.all(self.ranges[node.argument].high <= 0.0)
        }
        for number in needed(self.graph, self.graph.output, dead):
            node = self.graph.nodes[number]
            if isinstance(node, Input):
                self.parts[number] = [_Part(self.builder.input, np.arange(node.size), False)]
            elif isinstance(node, Relu):
                self.parts[number] = self._gates(number, node)
            elif isinstance(node, Positional):
                # Constants of tokens are read where they stand, as passed-through arguments are.
                self.parts[number] = [_Part(self.builder.positional(node.values), np.arange(node.size), True)]
            elif isinstance(node, Expression | Mixing):
                self.parts[number] = [self._headed(number, node)]
        output = self._rows(self.graph.output, np.arange(self.graph.nodes[self.graph.output].size))
        return Reduced(self.builder.graph(output), self.origin)

    def _headed(self, number: int, node: Expression | Mixing) -> _Part:
        every = np.arange(node.size)
        places = [
            self._rows(argument, np.arange(self.graph.nodes[argument].size)) for argument in self.graph.reads[number]
        ]
        match node:
            case Expression():
                head = self.builder.expression(node.program, places)
            case Pool():
                head = self.builder.pool(node.kind, places[0], node.causal)
            case Move():
                head = self.builder.move(places[0], node.targets)
            case Attend():
                queries, keys, values = places
                head = self.builder.attend(queries, keys, values, node.causal)
        self.origin[head] = (number, every)
        return _Part(head, every, False)

    def _gates(self, number: int, node: Relu) -> list[_Part]:
        found = self.ranges[node.argument]
        active = np.flatnonzero((found.low >= 0.0) & (found.high > 0.0))
        unstable = np.flatnonzero((found.low < 0.0) & (found.high > 0.0))
        parts = []
        if len(unstable):
            gate = self.builder.relu(self._rows(node.argument, unstable))
            self.origin[gate] = (number, unstable)
            parts.append(_Part(gate, unstable, False))
        if len(active):
            parts.append(_Part(self._rows(node.argument, active), active, True))
        return parts

    def _rows(self, number: int, rows: Indices) -> int:
        """A new affine node: the given components of an original node."""
        node = self.graph.nodes[number]
        complete = len(rows) == node.size
        if complete and number in self.whole:
            return self.whole[number]
        terms: list[tuple[int, Array]] = [(number, np.ones(node.size))]
        bias = np.zeros(node.size)
        if isinstance(node, Affine):
            terms, bias = self._without_products(number, node), node.bias
        gates: list[tuple[int, Any]] = []
        passed: list[tuple[int, Any]] = []
        for source, weights in terms:
            picked = select_rows(weights, rows)
            for part in self._parts_of(source):
                term = (part.node, select_columns(picked, part.components))
                (passed if part.passed else gates).append(term)
        result = self._affine(gates, passed, bias[rows])
        if complete:
            self.whole[number] = result
        return result

    def _without_products(self, number: int, node: Affine) -> list[tuple[int, Array]]:
        """The node's terms; sums of products that nothing else reads are sums of what their heads return."""
        terms: list[tuple[int, Array]] = []
        for term in node.terms:
            inner = self.graph.nodes[term.node]
            if (
                isinstance(inner, Affine)
                and term.weights.ndim == 2
                and node.size < inner.size
                and not inner.bias.any()
                and self.readers.get(term.node) == [number]
                and all(each.diagonal and isinstance(self.graph.nodes[each.node], Expression) for each in inner.terms)
            ):
                terms += [(each.node, term.weights * each.weights) for each in inner.terms]
            else:
                terms.append((term.node, term.weights))
        return terms

    def _parts_of(self, number: int) -> list[_Part]:
        if number in self.parts:
            return self.parts[number]
        size = self.graph.nodes[number].size
        return [_Part(self._rows(number, np.arange(size)), np.arange(size), holds_constants(self.graph, number))]

    def _affine(self, gates: list[tuple[int, Any]], passed: list[tuple[int, Any]], bias: Array) -> int:
        if not (gates and passed):
            return self.builder.affine(gates + passed, bias)
        running = self.builder.affine(gates, bias)
        return self.builder.affine([(running, np.ones(len(bias))), *passed], np.zeros(len(bias)))
