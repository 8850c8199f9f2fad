"""Interval propagation: where each node's exact value can lie when the inputs range over the domain box."""

from typing import assert_never

from headsmith.core.intervals import Box, Interval, add, linear_image, point
from headsmith.source.graph import Affine, Graph, Input, Relu


def ranges(graph: Graph, box: Box) -> tuple[Interval, ...]:
    """One interval vector for each node.

    Guarantee: for every input in `box`, each component of each node's exact value lies in its interval.
    """
    found: list[Interval] = []
    for node in graph.nodes:
        match node:
            case Input():
                found.append(box.interval)
            case Affine():
                total = point(node.bias)
                for term in node.terms:
                    total = add(total, linear_image(term.weights, found[term.node]))
                found.append(total)
            case Relu():
                found.append(found[node.argument].relu())
            case _:
                assert_never(node)
    return tuple(found)
