"""A target made simpler before anything is searched for: brackets, what is fixed on its domain, and what is a layer.

Products, maxima and minima do not depend on brackets, so they are as flat as they can be.

    ((((a b) c) d) e) f        ->  ((a b) (c d)) (e f)      3 products deep instead of 5
    max(a, max(b, max(c, d)))  ->  max(a, b, c, d)          one node, which becomes a tree of any shape

A node is drawn into the one that reads it where both are of one kind and nobody else reads it; what is read twice stays
a node of its own. The factors of a product are then multiplied two by two, at every time the two that are least deep
(as Huffman's code joins the two that are rarest): no other order of the brackets is less deep. A product that is no
flatter for that stays as it is written.

Values that are the same for all inputs of the domain need no head: an input of the domain (1, 1), and what follows.

    x * y with x = 3          ->  3 y, an affine map
    sqrt(x) with x = 4        ->  2

Units of one kind side by side become one vector node: a layer of a network that was written unit by unit.

    gelu(w_1 . x + b_1), ..., gelu(w_n . x + b_n)   ->   gelu(W x + b), one node of size n

A vector node has one table for all of its components, fitted and proven once. Small layers stay as they are: fused into
larger expressions they take fewer heads (rewrite.fuse), which for many units takes long to prove.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.language.builder import Builder, moved, pruned
from headsmith.language.graph import (
    Affine,
    Approximated,
    Function,
    Graph,
    Input,
    Maximum,
    Minimum,
    Node,
    Positional,
    Product,
    Term,
    arguments,
)
from headsmith.plan.analysis.flow import known_steps

Chained = Product | Maximum | Minimum


def balanced(graph: Graph) -> Graph:
    """A graph of the same function on which products are as flat as they can be, and maxima of maxima are one node.

    Guarantee: exact.
    """
    chains = _chains(graph)
    if not chains:
        return graph
    nodes: list[Node] = []
    depths: list[int] = []
    places: dict[int, int] = {}

    def add(node: Node) -> int:
        below = max((depths[argument] for argument in arguments(node)), default=0)
        nodes.append(node)
        depths.append(below if isinstance(node, Affine | Input | Positional) else below + 1)
        return len(nodes) - 1

    for number, node in enumerate(graph.nodes):
        places[number] = add(moved(node, places))
        leaves = [places[leaf] for leaf in chains.get(number, ())]
        if leaves and isinstance(node, Maximum | Minimum):
            places[number] = add(type(node)(tuple(leaves), node.size))
        elif leaves:
            pairs, depth = _pairs([depths[leaf] for leaf in leaves])
            if depth < depths[places[number]]:
                for left, right in pairs:
                    leaves.append(add(Product(leaves[left], leaves[right], graph.nodes[number].size)))
                places[number] = leaves[-1]
    return pruned(Graph(tuple(nodes), places[graph.output]))


def _chains(graph: Graph) -> dict[int, list[int]]:
    """For each outermost node of a chain the nodes that the chain reads, in order; a factor may stand there twice."""
    readers = Counter(argument for number in graph.used for argument in graph.reads[number])
    # The larger and the smaller of the same numbers are told apart together: such pairs are left as they are.
    pairs = Counter(frozenset(node.arguments) for node in graph.nodes if isinstance(node, Maximum | Minimum))
    drawn: set[int] = set()
    leaves: dict[int, list[int]] = {}
    for number in graph.used:
        node = graph.nodes[number]
        if not isinstance(node, Chained):
            continue
        leaves[number] = []
        for argument in graph.reads[number]:
            inner = graph.nodes[argument]
            alone = readers[argument] == 1 and argument != graph.output
            if alone and type(inner) is type(node) and _unpaired(inner, pairs) and _unpaired(node, pairs):
                drawn.add(argument)
                leaves[number] += leaves[argument]
            else:
                leaves[number].append(argument)
    return {number: found for number, found in leaves.items() if number not in drawn and _longer(graph, number, found)}


def _unpaired(node: Node, pairs: Counter[frozenset[int]]) -> bool:
    return not isinstance(node, Maximum | Minimum) or pairs[frozenset(node.arguments)] == 1


def _longer(graph: Graph, number: int, leaves: Sequence[int]) -> bool:
    return len(leaves) > len(graph.reads[number])


def _pairs(depths: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Which two factors to multiply, step by step, and how deep the result is; each product is a factor from then on,
    numbered behind the others."""
    heap = [(depth, place) for place, depth in enumerate(depths)]
    heapq.heapify(heap)
    pairs: list[tuple[int, int]] = []
    while len(heap) > 1:
        (less, one), (depth, other) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (depth + 1, len(depths) + len(pairs)))
        # The deeper factor stands first: the head's weight then follows the factor that is better known.
        pairs.append((other, one) if depth > less else (one, other))
    return pairs, heap[0][0]


def without_fixed(graph: Graph, found: Sequence[Interval]) -> Graph:
    """A graph of the same function on the domain, with non-linear nodes of fixed values as constants, and products with
    them as affine maps. `found` has the ranges of all nodes.

    Guarantee: exact. A range that is one double is the exact value, and weights are such doubles.
    """
    nodes = [_simpler(node, number, found) for number, node in enumerate(graph.nodes)]
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return pruned(Graph(tuple(nodes), graph.output))


def _simpler(node: Node, number: int, found: Sequence[Interval]) -> Node:
    if not isinstance(node, Approximated):
        return node
    value = _fixed(found[number])
    if value is not None:
        return Affine((), value)
    if isinstance(node, Product):
        for factor, other in ((node.left, node.right), (node.right, node.left)):
            weights = _fixed(found[factor])
            if weights is not None:
                return Affine((Term(other, weights),), np.zeros(node.size))
    return node


def _fixed(interval: Interval) -> Array | None:
    """The value of a range that is a single double for every component; None for others."""
    same = np.all(interval.low == interval.high) and np.all(np.isfinite(interval.low))
    return np.array(interval.low, dtype=np.float64) if same else None


FEWEST = 8
"""So many units are a layer."""
FEWEST_OF_ONE = 64
"""So many are one even if they all read the same number, of which a single head could compute their sum: a function of
so many turns takes longer to fit than the head takes to save."""


@dataclass(frozen=True)
class NewPlace:
    """Where a node of the old graph is in the new one: a node, or one component of it."""

    node: int
    component: int | None = None


def in_layers(graph: Graph) -> Graph:
    """A graph of the same function, with layers as vector nodes.

    Guarantee: every weight of the result is a weight of the graph, and the output is the same in exact arithmetic.
    """
    layers = _layers(graph)
    if not layers or known_steps(graph):
        return graph
    return _Rewriting(graph, layers).result()


def _levels(graph: Graph, order: Sequence[int]) -> dict[int, int]:
    """How many nodes that are not affine lie on the longest path to each node, itself included."""
    levels: dict[int, int] = {}
    for number in order:
        node = graph.nodes[number]
        below = max((levels[argument] for argument in graph.reads[number]), default=0)
        levels[number] = below if isinstance(node, Affine | Input | Positional) else below + 1
    return levels


def _layers(graph: Graph) -> list[tuple[int, ...]]:
    """Functions of the same name, of the same level, as many as make a layer."""
    order = graph.used
    levels = _levels(graph, order)
    found: dict[tuple[str, float | None, int], list[int]] = {}
    for number in order:
        node = graph.nodes[number]
        if isinstance(node, Function) and node.size == 1:
            found.setdefault((node.name, node.parameter, levels[number]), []).append(number)
    layers = [tuple(each) for each in found.values() if len(each) >= FEWEST]
    return [each for each in layers if len(each) >= FEWEST_OF_ONE or _of_several(graph, each)]


def _of_several(graph: Graph, numbers: Sequence[int]) -> bool:
    """Whether the units read more than one number in all: of one number, one head computes them all."""
    read = set()
    for number in numbers:
        node = graph.nodes[number]
        assert isinstance(node, Function)
        for source, row in _rows(graph, node.argument)[0].items():
            read |= {(source, int(column)) for column in np.flatnonzero(row)}
    return len(read) > 1


def _rows(graph: Graph, number: int) -> tuple[dict[int, Array], float]:
    """A node of size one as a weighted sum of others: an affine node's own weights, or the node itself."""
    node = graph.nodes[number]
    if not isinstance(node, Affine):
        return {number: np.ones(1)}, 0.0
    return {term.node: _matrix(term)[0] for term in node.terms}, float(node.bias[0])


def _matrix(term: Term) -> Array:
    return np.diag(term.weights) if term.weights.ndim == 1 else term.weights


class _Rewriting:
    def __init__(self, graph: Graph, layers: list[tuple[int, ...]]) -> None:
        self.graph, self.builder = graph, Builder(graph.input.names)
        self.layer_of = {number: layer for layer in layers for number in layer}
        self.places: dict[int, NewPlace] = {}

    def result(self) -> Graph:
        order = list(self.graph.used)
        levels = _levels(self.graph, order)
        # All that a layer reads is of a lower level: what is not affine comes first on each level.
        order.sort(key=lambda number: (levels[number], isinstance(self.graph.nodes[number], Affine), number))
        for number in order:
            if number not in self.places:
                self._place(number)
        return self.builder.graph(self._whole(self.graph.output))

    def _place(self, number: int) -> None:
        layer = self.layer_of.get(number)
        if layer is None:
            self.places[number] = NewPlace(self._copied(self.graph.nodes[number]))
            return
        weights: dict[int, Array] = {}
        bias = np.zeros(len(layer))
        for row, unit in enumerate(layer):
            node = self.graph.nodes[unit]
            assert isinstance(node, Function)
            sources, bias[row] = _rows(self.graph, node.argument)
            for source, read in sources.items():
                self._read(weights, source, read[None], row, len(layer))
        argument = self.builder.affine(list(weights.items()), bias)
        first = self.graph.nodes[layer[0]]
        assert isinstance(first, Function)
        place = self.builder.function(first.name, argument, first.parameter)
        self.places |= {unit: NewPlace(place, row) for row, unit in enumerate(layer)}

    def _read(self, weights: dict[int, Array], source: int, matrix: Array, row: int, size: int) -> None:
        """Add `matrix`, which reads the old node `source`, from this row on. No two weights meet in one entry."""
        place = self.places[source]
        known = weights.setdefault(place.node, np.zeros((size, self.builder.size(place.node))))
        rows = slice(row, row + len(matrix))
        if place.component is None:
            known[rows] += matrix
        else:
            known[rows, place.component] += matrix[:, 0]

    def _whole(self, number: int) -> int:
        """The node itself; a component of a layer is picked by an affine node."""
        place = self.places[number]
        if place.component is None:
            return place.node
        pick = np.zeros((1, self.builder.size(place.node)))
        pick[0, place.component] = 1.0
        return self.builder.affine([(place.node, pick)], np.zeros(1))

    def _copied(self, node: Node) -> int:
        if isinstance(node, Affine):
            weights: dict[int, Array] = {}
            plain: list[tuple[int, Array]] = []
            for term in node.terms:
                if self.places[term.node].component is None:
                    plain.append((self.places[term.node].node, term.weights))
                else:
                    self._read(weights, term.node, _matrix(term), 0, node.size)
            return self.builder.affine([*plain, *weights.items()], node.bias)
        if isinstance(node, Input):
            return self.builder.input
        return self.builder.add(moved(node, {argument: self._whole(argument) for argument in arguments(node)}))
