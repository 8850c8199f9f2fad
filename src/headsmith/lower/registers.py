"""Where each affine node lives: in a register that heads add to, on top of an older register, or nowhere at all.

Linear algebra is free in a residual stream, up to the number of weights. For a reduced graph (affine nodes and unstable
gates):

  home      an affine node that sums gates or inputs directly gets a register block. The embedding and the heads that
            compute its gates write it; its bias is the register's initial value.
  in place  z' = D z + (gates), D diagonal, takes over z's register where nobody reads z any more when the first of
            these gates writes. Running sums of deep circuits stay one column wide and their weights stay O(1) for each
            gate.
  virtual   an affine function of other affine nodes is read directly from their registers, twice (query and value), or
            folded into writes: whichever has fewer weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lower.linear import applied, product, total
from headsmith.source.graph import Affine, Graph, Input, Relu, Term


@dataclass(frozen=True, eq=False)
class Combination:
    """A linear combination of nodes plus a constant: node number -> weights (to, from), dense or diagonal."""

    parts: dict[int, Array]
    constant: Array


@dataclass(frozen=True, eq=False)
class Home:
    """Node value = scale * register + offset, once all of the node's gates have written."""

    register: int
    scale: Array
    offset: Array


@dataclass(frozen=True, eq=False)
class Allocation:
    """For each placed affine node its home; for each register (named by its first node) what is written into it."""

    levels: dict[int, int]
    homes: dict[int, Home]
    writes: dict[int, list[Combination]]
    reads: dict[int, Combination]


@dataclass(eq=False)
class _Allocator:
    graph: Graph
    levels: dict[int, int] = field(default_factory=dict)
    expansions: dict[int, Combination] = field(default_factory=dict)
    flattenings: dict[int, Combination] = field(default_factory=dict)

    def expand(self, number: int) -> Combination:
        """The node over inputs and gates."""
        if number not in self.expansions:
            node = self.graph.nodes[number]
            if isinstance(node, Affine):
                self.expansions[number] = self._substitute(node, self.expand)
            else:
                self.expansions[number] = Combination({number: np.ones(node.size)}, np.zeros(node.size))
        return self.expansions[number]

    def flatten(self, number: int) -> Combination:
        """The node over nodes that have a register."""
        if number not in self.flattenings:
            node = self.graph.nodes[number]
            assert isinstance(node, Affine)
            if self._virtual(node):
                self.flattenings[number] = self._substitute(node, self.flatten)
            else:
                self.flattenings[number] = Combination({number: np.ones(node.size)}, np.zeros(node.size))
        return self.flattenings[number]

    def _substitute(self, node: Affine, meaning: Callable[[int], Combination]) -> Combination:
        parts: dict[int, Array] = {}
        constant = np.asarray(node.bias)
        for term in node.terms:
            inner = meaning(term.node)
            constant = constant + applied(term.weights, inner.constant)
            for source, weights in inner.parts.items():
                added = _scaled(term.weights, weights)
                parts[source] = total(parts[source], added) if source in parts else added
        return Combination(parts, constant)

    def _virtual(self, node: Affine) -> bool:
        if not node.terms or any(not isinstance(self.graph.nodes[term.node], Affine) for term in node.terms):
            return not node.terms
        reading = 2 * sum(term.weights.size for term in node.terms)
        return reading <= sum(self._folded_size(node).values())

    def _folded_size(self, node: Affine) -> dict[int, int]:
        """How many weights the expansion would have, from each input or gate node."""
        sizes: dict[int, int] = {}
        for term in node.terms:
            inner = self.graph.nodes[term.node]
            if isinstance(inner, Affine):
                for source, size in self._folded_size(inner).items():
                    columns = self.graph.nodes[source].size
                    diagonal = term.diagonal and size == columns
                    sizes[source] = max(sizes.get(source, 0), columns if diagonal else node.size * columns)
            else:
                sizes[term.node] = max(sizes.get(term.node, 0), term.weights.size)
        return sizes


def allocate(graph: Graph) -> Allocation:
    """Give every affine node that is read a home, and collect what is written where."""
    allocator = _Allocator(graph)
    levels = _levels(graph)
    reads = {number: allocator.flatten(node.argument) for number, node in _gates(graph)}
    reads[-1] = allocator.flatten(graph.output)
    last_read: dict[int, int] = {}
    for reader, combination in reads.items():
        level = levels[reader] if reader >= 0 else len(graph.nodes)
        for number in combination.parts:
            last_read[number] = max(last_read.get(number, 0), level)
    homes: dict[int, Home] = {}
    writes: dict[int, list[Combination]] = {}
    taken: set[int] = set()
    for number in _with_ancestors(graph, last_read, levels):
        node = graph.nodes[number]
        assert isinstance(node, Affine)
        parent = _predecessor(graph, node, levels, last_read, homes, taken)
        if parent is None:
            homes[number] = Home(number, np.ones(node.size), np.zeros(node.size))
            writes[number] = [allocator.expand(number)]
            continue
        taken.add(parent.node)
        below = homes[parent.node]
        scale = parent.weights * below.scale
        homes[number] = Home(below.register, scale, parent.weights * below.offset + node.bias)
        own = {term.node: product(1.0 / scale, term.weights) for term in node.terms if term is not parent}
        writes[below.register].append(Combination(own, np.zeros(node.size)))
    return Allocation(levels, homes, writes, reads)


def _scaled(outer: Array, inner: Array) -> Array:
    """outer @ inner, without a copy where one of them is the identity."""
    if inner.ndim == 1 and np.all(inner == 1.0):
        return outer
    if outer.ndim == 1 and np.all(outer == 1.0):
        return inner
    return product(outer, inner)


def _gates(graph: Graph) -> list[tuple[int, Relu]]:
    return [(number, node) for number, node in enumerate(graph.nodes) if isinstance(node, Relu)]


def _levels(graph: Graph) -> dict[int, int]:
    """The layer of each gate node (from 1), and for other nodes the layer after which their value is complete."""
    levels: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        match node:
            case Input():
                levels[number] = 0
            case Affine():
                levels[number] = max((levels[term.node] for term in node.terms), default=0)
            case Relu():
                levels[number] = levels[node.argument] + 1
    return levels


def _with_ancestors(graph: Graph, read: dict[int, int], levels: dict[int, int]) -> list[int]:
    """The affine nodes that are read, and the diagonal predecessors that they may be built upon in place."""
    wanted = set()
    for number in sorted(read, reverse=True):
        current: int | None = number
        while current is not None and current not in wanted:
            wanted.add(current)
            node = graph.nodes[current]
            assert isinstance(node, Affine)
            term = _running_term(graph, node)
            current = term.node if term is not None and term.node in read else None
    return sorted(wanted)


def _running_term(graph: Graph, node: Affine) -> Term | None:
    """The one term D z with z affine and D diagonal without zeros, where the other terms are gates."""
    affine = [term for term in node.terms if isinstance(graph.nodes[term.node], Affine)]
    if len(affine) != 1 or not affine[0].diagonal or not np.all(affine[0].weights != 0.0):
        return None
    gates = [term for term in node.terms if isinstance(graph.nodes[term.node], Relu)]
    return affine[0] if len(gates) == len(node.terms) - 1 and gates else None


def _predecessor(
    graph: Graph,
    node: Affine,
    levels: dict[int, int],
    last_read: dict[int, int],
    homes: dict[int, Home],
    taken: set[int],
) -> Term | None:
    """The running term whose register this node may take over: nobody reads it after these gates start to write."""
    term = _running_term(graph, node)
    if term is None or term.node not in homes or term.node in taken:
        return None
    first_write = min(levels[other.node] for other in node.terms if other is not term)
    return term if last_read.get(term.node, 0) <= first_write else None
