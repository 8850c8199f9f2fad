"""Long products, maxima and minima as flat as they can be, whatever brackets the user wrote.

    ((((a b) c) d) e) f        ->  ((a b) (c d)) (e f)      3 products deep instead of 5
    max(a, max(b, max(c, d)))  ->  max(a, b, c, d)          one node, which becomes a tree of any shape

A node is drawn into the one that reads it where both are of one kind and nobody else reads it; what is read twice stays
a node of its own. The factors of a product are then multiplied two by two, at every time the two that are least deep
(as Huffman's code joins the two that are rarest): no other order of the brackets is less deep. A product that is no
flatter for that stays as it is written.

Guarantee: exact. Products, maxima and minima do not depend on brackets.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from headsmith.language.builder import moved, pruned
from headsmith.language.graph import Affine, Graph, Input, Maximum, Minimum, Node, Positional, Product, arguments

Chained = Product | Maximum | Minimum


def balanced(graph: Graph) -> Graph:
    """A graph of the same function on which products are as flat as they can be, and maxima of maxima are one node."""
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
    readers = Counter(argument for number in graph.used for argument in arguments(graph.nodes[number]))
    # The larger and the smaller of the same numbers are told apart together: such pairs are left as they are.
    pairs = Counter(frozenset(node.arguments) for node in graph.nodes if isinstance(node, Maximum | Minimum))
    drawn: set[int] = set()
    leaves: dict[int, list[int]] = {}
    for number in graph.used:
        node = graph.nodes[number]
        if not isinstance(node, Chained):
            continue
        leaves[number] = []
        for argument in arguments(node):
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
    return len(leaves) > len(arguments(graph.nodes[number]))


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
