"""How errors travel through a graph that is still being planned: the kernel's own rules (kernel/flow.py), called
forwards.

The kernel reads a circuit and what is known of it from a file; here the same is put together in memory. A **stretch**
is a part of the graph that is known as a whole: the node that it stands for, and how far what it reads may be off.
Behind the graph's own nodes, which keep their numbers, come the nodes that stretches stand for, and exchanges. Steps
and powers are recognised by the kernel (search/steps.py).

What is said here of a graph is what the kernel will say of it, as far as the ranges agree; nobody believes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headsmith.analysis.exchange import exchanges
from headsmith.core.arrays import Array
from headsmith.core.intervals import Box, Interval
from headsmith.kernel import arithmetic
from headsmith.kernel.expressions import Computed
from headsmith.kernel.flow import Gain, arrive, gains
from headsmith.kernel.graph import Graph as Circuit
from headsmith.kernel.graph import Node as CircuitNode
from headsmith.kernel.graph import read_graph
from headsmith.kernel.proof import Proof, Region
from headsmith.kernel.ranges import ranges
from headsmith.kernel.slopes import Edges, edges_of
from headsmith.search.steps import find_powers, find_steps
from headsmith.source.graph import (
    Graph,
    Hypotenuse,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    Product,
    Quotient,
    once_for_graph,
)
from headsmith.source.stored import Tensors, nodes_data

Slopes = tuple[Interval, ...]


@dataclass(frozen=True, eq=False)
class Stretch:
    """The node that some nodes of a graph stand for, which reads nodes of the graph; these nodes; and how far what they
    read may be off."""

    meaning: Node
    inside: frozenset[int]
    margin: float


@dataclass(frozen=True, eq=False)
class Flow:
    """A graph as the kernel sees it, and the edges along which errors travel."""

    known: Proof
    edges: Edges

    @cached_property
    def gains(self) -> dict[int, Gain]:
        """For every node that matters, how its errors move the output."""
        circuit = self.known.circuit
        return gains(circuit, self.edges.of, circuit.output, self.edges.steps, self.edges.norms)

    @cached_property
    def grown(self) -> dict[int, list[tuple[int, float, frozenset[int]]]]:
        """For steps and powers: the nodes that they are made of, by how much the norm of an error there grows, and what
        lies between."""
        steps = self.edges.steps.of
        found = {number: [(step.source, 1.0, step.inside)] for number, step in steps.items() if step.gates}
        for source, grown in self.edges.steps.growth.items():
            for number, factor, inside in grown:
                found.setdefault(number, []).append((source, float(factor.value), frozenset(inside)))
        return found

    def arriving(
        self, number: int, off: Mapping[int, Array], own: Mapping[int, Array], norms: dict[int, float]
    ) -> Array:
        """How far a node is off because others are off by `off`, up to what it commits itself: by its arguments; of
        steps and powers also by the norms of what they are made of, and by what nodes between commit, `own`. `norms`
        holds, and receives, the norms of errors that are known."""
        found = self._arrived(number, off)
        grown, often = self.grown.get(number), self.edges.steps.often
        if grown is None:
            return found

        def norm(each: int, size: Array) -> float:
            return float(np.sqrt(np.sum(size * size * often.get(each, 1.0))))

        apart = {**off, **{source: 0.0 * off[source] for source, _, _ in grown}}
        for each in sorted({each for _, _, inside in grown for each in inside}):
            apart[each] = self._arrived(each, apart) + own.get(each, 0.0)
        norms[number] = norm(number, apart[number])
        for source, factor, _ in grown:
            norms[number] += factor * norms.get(source, norm(source, off[source]))
        return np.minimum(found, norms[number])

    def _arrived(self, number: int, off: Mapping[int, Array]) -> Array:
        read = {argument: arithmetic.Upper(off[argument]) for argument, _, _ in self.edges.of[number]}
        return np.asarray(arrive(self.edges.of, number, self.known.circuit.nodes[number].size, read).value)


NOTHING = Proof(Circuit((), 0), {}, {}, {}, {}, {}, {}, {}, {}, {}, 0, 0)
"""Nothing is known."""


def kernel_graph(graph: Graph, more: Sequence[Node] = ()) -> Circuit:
    """A graph as the kernel reads it, with more nodes behind its own."""
    tensors: Tensors = {}
    stored = nodes_data((*graph.nodes, *more), tensors, "nodes")
    return read_graph({"nodes": stored, "output": graph.output}, tensors)


def known_of(graph: Graph, stretches: Mapping[int, Stretch]) -> Proof:
    """What is known of a graph whose nodes, by their numbers, are the results of stretches."""
    circuit = kernel_graph(graph, [each.meaning for each in stretches.values()])
    nodes, regions = list(circuit.nodes), dict[int, Region]()
    for place, (number, stretch) in enumerate(stretches.items(), start=len(graph.nodes)):
        regions[number] = Region(number, place, nodes[place].arguments, stretch.inside, stretch.margin, None)
    for number, (source, inside) in exchanges(graph).items():
        regions[number] = Region(number, len(nodes), (source,), inside, 0.0, None)
        nodes.append(CircuitNode("exchange", nodes[number].size, (source,)))
    known = replace(NOTHING, circuit=replace(circuit, nodes=tuple(nodes)), regions=regions)
    if not any(isinstance(node, Pool) for node in graph.nodes):
        return known
    return replace(known, steps=find_steps(known), powers=find_powers(known))


@once_for_graph
def known_of_target(target: Graph) -> Proof:
    """The same of a target, before anything is chosen for its nodes: what stands for them will be what they are."""
    kinds = Product | Quotient | Hypotenuse | Maximum | Minimum
    found = {number: node for number, node in enumerate(target.nodes) if isinstance(node, kinds)}
    return known_of(target, {number: Stretch(node, frozenset({number}), 0.0) for number, node in found.items()})


def known_steps(target: Graph) -> int:
    """How many nodes of a target are known by more than what they read."""
    if not any(isinstance(node, Pool | Move) for node in target.nodes):
        return 0
    known = known_of_target(target)
    return len(known.steps) + len(known.powers) + len(exchanges(target))


def flow_of(known: Proof, around: Sequence[Interval], slopes: Mapping[int, Slopes]) -> Flow:
    """How errors travel if values lie in the ranges `around`, and exactly the gates that may cross zero have a head;
    `slopes` are those of expressions."""
    found, nodes = [arithmetic.Interval(each.low, each.high) for each in around], known.circuit.nodes
    places = {}
    for number, node in enumerate(nodes):
        if node.kind == "relu":
            (argument,) = node.arguments
            seen = found[argument].widened(known.margins_of_reads.get(number, {}).get(argument, 0.0))
            if (crossing := (seen.low < 0.0) & (seen.high > 0.0)).any():
                places[number] = np.flatnonzero(crossing)
    tables = {
        number: Computed(arithmetic.interval(np.zeros(nodes[number].size)), tuple(map(kernel_interval, each)))
        for number, each in slopes.items()
    }
    return Flow(known, edges_of(known, found, places, tables))


def ranges_in_blocks(known: Proof, box: Box) -> tuple[Interval, ...]:
    """The ranges of all nodes of a graph with one token for each affine piece, whose inputs come in blocks."""
    found, _ = ranges(known, arithmetic.Interval(box.low, box.high), lambda *_: (arithmetic.interval(0.0), {}))
    return tuple(Interval(each.low, each.high) for each in found)


def kernel_interval(each: Interval) -> arithmetic.Interval:
    """An interval as the kernel has it."""
    return arithmetic.Interval(each.low, each.high)
