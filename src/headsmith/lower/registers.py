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
  carried   P = Q + W z, where z is complete a layer before Q is: what active gates pass on. Folded, W z is written by
            all heads that wrote z, and P's register is in use since then; virtual, z's register is for longer. Instead,
            a head that looks at its own token alone may read z and add W z to P's register while other heads write Q.

Links say how heads and the read-out read registers, and how heads write them. Weights are dense or sparse matrices, or
diagonal vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

import numpy as np

from headsmith.core.arrays import LARGE, Array, Indices, Weights
from headsmith.core.sparse import sparse_array
from headsmith.language.graph import (
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
    Term,
    needed,
)
from headsmith.transformer.heads.stream import Link

Headed = Relu | Expression | Mixing
"""The nodes that heads compute."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """The reduced graph, and for each of its relu nodes and expressions the original (node, components)."""

    graph: Graph
    origin: dict[int, tuple[int, Indices]]


@dataclass(frozen=True, eq=False)
class Combination:
    """A linear combination of nodes plus a constant: node number -> weights (to, from), dense, sparse or diagonal."""

    parts: dict[int, Weights]
    constant: Array


Reader = tuple[int, int]
"""A relu node or expression, and which of its arguments it reads; OUTPUT is the read-out."""

OUTPUT: Reader = (-1, 0)


@dataclass(frozen=True, eq=False)
class Home:
    """Node value = scale * register + offset, once all of the node's gates have written."""

    register: int
    scale: Array
    offset: Array


@dataclass(frozen=True, eq=False)
class Allocation:
    """For each placed affine node its home; for each register (named by its first node) what is written into it; and
    the placed nodes that are carried, in the layer after they are complete."""

    levels: dict[int, int]
    homes: dict[int, Home]
    writes: dict[int, list[Combination]]
    reads: dict[Reader, Combination]
    carried: tuple[int, ...] = ()


@dataclass(eq=False)
class _Allocator:
    graph: Graph
    levels: dict[int, int]
    carry: bool = False
    expansions: dict[int, Combination] = field(default_factory=dict)
    flattenings: dict[int, Combination] = field(default_factory=dict)
    folded: dict[int, dict[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._constants = any(isinstance(node, Positional) for node in self.graph.nodes)

    def expand(self, number: int) -> Combination:
        """The node over inputs, gates and what is carried."""
        stack = [number]
        while stack:
            current = stack[-1]
            node, old = self.graph.nodes[current], self.old(current)
            fresh = [each for each in self.graph.reads[current] if each not in old] if isinstance(node, Affine) else []
            missing = [each for each in fresh if each not in self.expansions]
            stack += missing
            if missing:
                continue
            stack.pop()
            if current not in self.expansions:
                known = {each: self.expansions[each] for each in fresh} | {each: self.flatten(each) for each in old}
                found = self._substitute(node, known.__getitem__) if isinstance(node, Affine) else None
                self.expansions[current] = found or _itself(current, node.size)
        return self.expansions[number]

    def old(self, number: int) -> set[int]:
        """The arguments of an affine node that are to be carried: they are complete before others are."""
        node = self.graph.nodes[number]
        if not self.carry or self._constants or not isinstance(node, Affine):
            return set()
        if not all(isinstance(self.graph.nodes[each], Affine) for each in self.graph.reads[number]):
            return set()
        return {each for each in self.graph.reads[number] if self.levels[each] < self.levels[number]}

    def flatten(self, number: int) -> Combination:
        """The node over nodes that have a register."""
        for earlier in needed(self.graph, number, self.flattenings):
            if earlier in self.flattenings:
                continue
            node = self.graph.nodes[earlier]
            if isinstance(node, Affine) and self._virtual(earlier):
                self.flattenings[earlier] = self._substitute(node, self.flattenings.__getitem__)
            else:
                self.flattenings[earlier] = _itself(earlier, node.size)
        return self.flattenings[number]

    def _substitute(self, node: Affine, meaning: Callable[[int], Combination]) -> Combination:
        parts: dict[int, Weights] = {}
        constant = np.asarray(node.bias)
        for term in node.terms:
            inner = meaning(term.node)
            constant = constant + applied(term.weights, inner.constant)
            for source, weights in inner.parts.items():
                added = _scaled(term.weights, weights)
                parts[source] = total(parts[source], added) if source in parts else added
        return Combination(parts, constant)

    def _virtual(self, number: int) -> bool:
        """An affine function of affine nodes alone, when reading them (twice) takes no more weights than folding
        them."""
        node = self.graph.nodes[number]
        if not isinstance(node, Affine) or self.old(number):
            return False
        sources = [self.graph.nodes[term.node] for term in node.terms]
        if any(not isinstance(source, Affine | Positional) for source in sources):
            return False
        if self._constants and holds_constants(self.graph, number):
            return True
        reading = 2 * sum(term.weights.size for term in node.terms)
        return bool(reading <= self._folded_size(number))

    def _folded_size(self, number: int) -> int:
        """How many weights the expansion over inputs and gates would have."""
        for earlier in needed(self.graph, number, self.folded):
            if earlier in self.folded:
                continue
            node, sizes = self.graph.nodes[earlier], {earlier: 1}
            if isinstance(node, Affine):
                sizes = {}
                for term in node.terms:
                    for source, rows in self.folded[term.node].items():
                        # Diagonal through and through: one weight a row; otherwise the whole matrix.
                        wide = 1 if term.weights.ndim == 1 and rows == 1 else self.graph.nodes[source].size
                        sizes[source] = max(sizes.get(source, 0), wide)
            self.folded[earlier] = sizes
        return self.graph.nodes[number].size * sum(self.folded[number].values())


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


def _itself(number: int, size: int) -> Combination:
    return Combination({number: np.ones(size)}, np.zeros(size))


def allocate(graph: Graph, carry: bool = False, neurons: Container[int] = ()) -> Allocation:
    """Give every affine node that is read a home, and collect what is written where. Nothing is carried unless
    `carry`. Nodes that `neurons` compute have layers of even numbers for themselves, and heads those of odd numbers,
    where there are any neurons."""
    levels = _levels(graph, neurons)
    allocator = _Allocator(graph, levels, carry)
    reads = {
        (number, index): allocator.flatten(argument)
        for number, node in enumerate(graph.nodes)
        if isinstance(node, Headed)
        for index, argument in enumerate(graph.reads[number])
    }
    reads[OUTPUT] = allocator.flatten(graph.output)
    last_read: dict[int, int] = {}
    for reader, combination in reads.items():
        level = levels[reader[0]] if reader != OUTPUT else len(graph.nodes)
        for number in combination.parts:
            last_read[number] = max(last_read.get(number, 0), level)
    placed, carried = list(last_read), set[int]()
    while placed:
        for source in allocator.expand(placed.pop()).parts:
            if isinstance(graph.nodes[source], Affine):
                placed += [source] if source not in last_read else []
                last_read[source] = max(last_read.get(source, 0), levels[source] + 1)
                carried.add(source)
    homes: dict[int, Home] = {}
    writes: dict[int, list[Combination]] = {}
    taken: set[int] = set()
    for number in _with_ancestors(graph, last_read, levels):
        node = graph.nodes[number]
        if isinstance(node, Positional):
            homes[number], writes[number] = Home(number, np.ones(node.size), np.zeros(node.size)), []
            continue
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
    return Allocation(levels, homes, writes, reads, tuple(sorted(carried)))


def _scaled(outer: Weights, inner: Weights) -> Weights:
    """outer @ inner, without a copy where one of them is the identity."""
    if inner.ndim == 1 and np.all(inner == 1.0):
        return outer
    if outer.ndim == 1 and np.all(outer == 1.0):
        return inner
    return product(outer, inner)


def _levels(graph: Graph, neurons: Container[int]) -> dict[int, int]:
    """The layer of each node that has heads (from 1), and for others the layer after which their value is complete."""
    levels: dict[int, int] = {}
    apart = any(number in neurons for number in range(len(graph.nodes)))
    for number, node in enumerate(graph.nodes):
        match node:
            case Input() | Positional():
                levels[number] = 0
            case Affine():
                levels[number] = max((levels[term.node] for term in node.terms), default=0)
            case Relu() | Expression() | Pool() | Move() | Attend():
                levels[number] = max(levels[argument] for argument in graph.reads[number]) + 1
                if apart and (number in neurons) == levels[number] % 2:
                    levels[number] += 1
    return levels


def _with_ancestors(graph: Graph, read: dict[int, int], levels: dict[int, int]) -> list[int]:
    """The affine nodes that are read, and the diagonal predecessors that they may be built upon in place."""
    wanted = set()
    for number in sorted(read, reverse=True):
        current: int | None = number
        while current is not None and current not in wanted:
            wanted.add(current)
            node = graph.nodes[current]
            term = _running_term(graph, node) if isinstance(node, Affine) else None
            current = term.node if term is not None and term.node in read else None
    return sorted(wanted)


def _running_term(graph: Graph, node: Affine) -> Term | None:
    """The one term D z with z affine and D diagonal without zeros, where the other terms are gates."""
    affine = [term for term in node.terms if isinstance(graph.nodes[term.node], Affine)]
    if len(affine) != 1 or affine[0].weights.ndim != 1 or not np.all(affine[0].weights != 0.0):
        return None
    gates = [term for term in node.terms if isinstance(graph.nodes[term.node], Headed)]
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


# Links ----------------------------------------------------------------------------------------------------------------


def writes(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[Link]:
    """What the given source nodes (with the number of their first head or input) add to each register."""
    return [link for _, link in sourced(allocation, names, sources)]


def sourced(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[tuple[int, Link]]:
    """The same, with the source of each link."""
    found = []
    for register, combinations in allocation.writes.items():
        for combination in combinations:
            for source, weights in combination.parts.items():
                if source in sources and weights.any():
                    found.append((source, Link(names[register], weights, sources[source])))
    return found


def links(allocation: Allocation, names: dict[int, str], combination: Combination, first: int) -> list[Link]:
    """A combination of placed nodes as reads of their registers."""
    found = []
    for number, weights in combination.parts.items():
        home = allocation.homes[number]
        scaled = weights if np.all(home.scale == 1.0) else product(weights, home.scale)
        found.append(Link(names[home.register], scaled, first))
    return found


def constant(allocation: Allocation, combination: Combination) -> Array:
    total = np.array(combination.constant)
    for number, weights in combination.parts.items():
        offset = allocation.homes[number].offset
        if offset.any():
            total = total + applied(weights, offset)
    return total


# Weights --------------------------------------------------------------------------------------------------------------


def product(left: Weights, right: Weights) -> Weights:
    """left @ right; diagonal where both are."""
    if left.ndim == 1:
        return left * right if right.ndim == 1 else left[:, None] * right
    return left * right if right.ndim == 1 else left @ right


def total(left: Weights, right: Weights) -> Weights:
    """left + right; diagonal where both are."""
    if left.ndim == right.ndim:
        return left + right
    return diagonal(left) + right if left.ndim == 1 else left + diagonal(right)


def diagonal(weights: Array) -> Weights:
    """The diagonal matrix; by its entries, unless it is small."""
    return np.diag(weights) if len(weights) ** 2 < LARGE else sparse_array(weights)


def applied(weights: Weights, vector: Array) -> Array:
    """weights @ vector."""
    return weights * vector if weights.ndim == 1 else np.asarray(weights @ vector)


def select_rows(weights: Weights, rows: Indices) -> Weights:
    """Some rows of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(rows) == len(weights) else weights[rows]
    return weights if len(rows) == len(weights) else diagonal(weights)[rows]


def select_columns(weights: Weights, columns: Indices) -> Weights:
    """Some columns of the matrix; the whole diagonal stays a diagonal."""
    if weights.ndim == 2:
        return weights if len(columns) == weights.shape[1] else weights[:, columns]
    return weights if len(columns) == len(weights) else diagonal(weights)[:, columns]
