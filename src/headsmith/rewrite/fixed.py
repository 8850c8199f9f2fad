"""Values that are the same for all inputs of the domain need no head: an input of the domain (1, 1), and what follows.

x * y with x = 3          ->  3 y, an affine map
sqrt(x) with x = 4        ->  2
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.source.graph import Affine, Approximated, Graph, Node, Product, Term
from headsmith.source.node_programs import pruned


def without_fixed(graph: Graph, found: Sequence[Interval]) -> Graph:
    """The same function on the domain, with non-linear nodes of fixed values as constants, and products with them as
    affine maps. `found` has the ranges of all nodes.

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
