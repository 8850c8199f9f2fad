"""Gates after max-pooling in place of gates before it: max(relu(a), relu(b)) = relu(max(a, b)), and there are fewer."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from headsmith.kernel.core.sparse import sparse_of
from headsmith.language.builder import Builder, moved, pruned
from headsmith.language.graph import Affine, Graph, Input, Maximum, Relu, arguments


def finished(graph: Graph) -> Graph:
    """A graph that was read, without what its output does not need, and with gates after pooling.

    Guarantee: the same function, exactly.
    """
    graph = pruned(graph)
    readers: dict[int, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for argument in arguments(node):
            readers.setdefault(argument, set()).add(number)
    pooled = {}
    for number, node in enumerate(graph.nodes):
        gates = _pooled_gates(graph, number, node, readers) if isinstance(node, Maximum) else None
        if gates is not None:
            pooled[number] = gates
    if not pooled:
        return graph
    builder, places = Builder(graph.input.names), {0: 0}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            continue
        if isinstance(node, Relu) and number in pooled.values():
            places[number] = places[node.argument]
            continue
        places[number] = builder.add(moved(node, places))
        if number in pooled:
            places[number] = builder.relu(places[number])
    return builder.graph(places[graph.output])


def _pooled_gates(graph: Graph, number: int, node: Maximum, readers: dict[int, set[int]]) -> int | None:
    """The gates that a maximum pools, if nothing else reads them."""
    sources = set[int]()
    for argument in node.arguments:
        picked = graph.nodes[argument]
        if not (isinstance(picked, Affine) and _picks(picked) and readers[argument] == {number}):
            return None
        sources.update(arguments(picked))
    gates = next(iter(sources))
    alone = len(sources) == 1 and isinstance(graph.nodes[gates], Relu) and gates != graph.output
    return gates if alone and _only(readers[gates], node.arguments) else None


def _only(found: Collection[int], allowed: Collection[int]) -> bool:
    return set(found) <= set(allowed)


def _picks(node: Affine) -> bool:
    """Whether every component is one component of one other node."""
    if len(arguments(node)) != 1 or node.bias.any():
        return False
    weights = sparse_of(node.terms[0].weights)
    return bool(np.all(weights.values == 1.0) and np.all(weights.counts == 1))
