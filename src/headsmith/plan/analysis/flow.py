"""How errors travel through a graph that is still being planned: the kernel's own rules (kernel/core/flow.py), called
forwards.

The kernel reads a circuit and what is known of it from a file; here the same is put together in memory. A **stretch**
is a part of the graph that is known as a whole: the node that it stands for, and how far what it reads may be off.
Behind the graph's own nodes, which keep their numbers, come the nodes that stretches stand for, and exchanges. Steps
and powers are recognised by the kernel (plan/evidence/steps.py).

What is said here of a graph is what the kernel will say of it, as far as the ranges agree; nobody believes it.

In an **exchange** a token and its partner compare their values, one keeps the smaller and the other the larger.

    m = x at the partner (a move)            r = x - relu(x - m - c) + relu(m - x - c')          c, c' >= 0

c and c' are constants of the tokens: 0 on the side that acts, at least the width of x's range on the side that does
not. c = 0 leaves the minimum, c' = 0 the maximum; this is one stage of a sorting network across tokens.

Theorem. Let d = x - m and phi(d) = relu(d - c) - relu(-d - c'), so that r = x - phi(d). For any c, c' >= 0 at most one
of the two gates is open, phi rises with slopes in [0, 1], and phi(d) lies between 0 and d. Hence
  range    r lies between x and m: wherever x lies at all tokens, r does too;
  errors   if x is off by D_i at token i and by D_p at its partner, r is off by (1 - s) D_i + s D_p with s in [0, 1]:
           by no more than x is anywhere.

This is about the values of x at all tokens at once, and a bound of a deviation is one for every token. So tokens need
not share x, as they must for a gradient step, and there are no copies of it that could be uneven.

A partner that is not there (a move of -1, which fetches 0) is no partner: 0 need not lie in the range of x.
Recognising is exact: every weight is 1 or -1, every constant is looked at, and nothing else is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Box, Interval
from headsmith.kernel.core import arithmetic
from headsmith.kernel.core.expressions import Computed
from headsmith.kernel.core.flow import Gain, arrive, gains
from headsmith.kernel.core.graph import Graph as Circuit
from headsmith.kernel.core.graph import Node as CircuitNode
from headsmith.kernel.core.graph import read_graph
from headsmith.kernel.core.proof import Proof, Region
from headsmith.kernel.core.ranges import ranges
from headsmith.kernel.core.slopes import Edges, edges_of
from headsmith.language.graph import (
    Affine,
    Graph,
    Hypotenuse,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
    Term,
    once_for_graph,
)
from headsmith.language.stored import Tensors, nodes_data
from headsmith.plan.evidence.steps import find_powers, find_steps


@once_for_graph
def exchanges(graph: Graph) -> dict[int, tuple[int, frozenset[int]]]:
    """All exchanges whose inside nobody else reads, by their results: (x, the nodes from the move to r)."""
    if not any(isinstance(node, Move) for node in graph.nodes):
        return {}
    readers: dict[int, set[int]] = {graph.output: {len(graph.nodes)}}
    for number, read in enumerate(graph.reads):
        for argument in read:
            readers.setdefault(argument, set()).add(number)
    found = {}
    for number in range(len(graph.nodes)):
        each = exchange(graph, number)
        if each is not None and all(readers.get(inner, set()) <= each[1] for inner in each[1] - {number}):
            found[number] = each
    return found


def exchange(graph: Graph, number: int) -> tuple[int, frozenset[int]] | None:
    """(x, the nodes from the move to r) if node `number` is the r of an exchange. Who else reads them is not looked
    at."""
    node = graph.nodes[number]
    if not isinstance(node, Affine) or node.size != 1 or node.bias[0] != 0.0 or len(node.terms) != 3:
        return None
    for kept, falling, rising in itertools.permutations(node.terms):
        source = kept.node
        if tuple(map(_weight, (kept, falling, rising))) != (1.0, -1.0, 1.0):
            continue
        sides = [_side(graph, source, gate.node, sign) for gate, sign in ((falling, 1.0), (rising, -1.0))]
        first, second = sides
        if first is not None and second is not None and first[0] == second[0]:
            return source, frozenset({number, falling.node, rising.node, *first, *second})
    return None


def _side(graph: Graph, source: int, gate: int, sign: float) -> tuple[int, int] | None:
    """(m, the gate's argument) if the gate is relu(sign (x - m) - c), x being node `source` and c >= 0 everywhere."""
    relu = graph.nodes[gate]
    if not isinstance(relu, Relu):
        return None
    argument = graph.nodes[relu.argument]
    if not isinstance(argument, Affine) or argument.size != 1:
        return None
    weights = {term.node: _weight(term) for term in argument.terms}
    if len(weights) < len(argument.terms):
        return None
    moves = [each for each in weights if _fetches(graph, each, source)]
    if weights.pop(source, None) != sign or len(moves) != 1 or weights.pop(moves[0]) != -sign:
        return None
    constant = [Fraction(float(argument.bias[0]))]
    for each, weight in weights.items():
        table = graph.nodes[each]
        if len(weights) > 1 or not isinstance(table, Positional) or weight is None:
            return None
        ends = (table.values.min(), table.values.max())
        constant = [constant[0] + Fraction(weight) * Fraction(float(end)) for end in ends]
    return (moves[0], relu.argument) if max(constant) <= 0 else None


def _fetches(graph: Graph, number: int, source: int) -> bool:
    """Whether the node is the source's value at some token, wherever it is."""
    node = graph.nodes[number]
    return isinstance(node, Move) and node.argument == source and node.size == 1 and -1 not in node.targets


def _weight(term: Term) -> float | None:
    """The weight of a term that is one number."""
    return float(term.weights.reshape(-1)[0]) if term.weights.size == 1 else None


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
    """What is known of a target before heads are chosen for it: each product, quotient, norm, maximum and minimum is
    taken for a stretch of its own, because whatever will stand for it computes the same."""
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
