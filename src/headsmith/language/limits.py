"""Networks that nobody trains, and that would keep the compiler busy for minutes, are refused with the reason.

Files may say whatever they like in a few bytes: x^1000000000, sixty squarings in a row, thousands of functions of one
input. Networks that are worth compiling stay far below these limits: a layer, however wide, is one function.
"""

from __future__ import annotations

from headsmith.core.errors import TargetError
from headsmith.language.expression import LARGEST_POWER
from headsmith.language.graph import Affine, Approximated, Function, Graph, Node, Product

MOST_FUNCTIONS = 512
"""Nodes of a network that are neither affine nor piecewise linear: each is fitted and proven on its own."""

Power = tuple[int, float]
"""A node and an exponent: a multiple of what the node computes, to this power."""


def refuse_absurd(graph: Graph, origin: str) -> None:
    """Raise TargetError for powers beyond 64, also those that are written as repeated products, and for more functions
    than a network has layers."""
    powers: dict[int, Power] = {}
    functions = 0
    for number in graph.used:
        node = graph.nodes[number]
        powers[number] = _power(number, node, powers)
        functions += isinstance(node, Approximated)
        if abs(powers[number][1]) > LARGEST_POWER:
            raise TargetError(
                f"{origin}: it takes a value to the power {powers[number][1]:g}. Exponents go up to {LARGEST_POWER}: "
                f"beyond that x**n spans more orders of magnitude than doubles carry digits"
            )
    if functions > MOST_FUNCTIONS:
        raise TargetError(
            f"{origin}: it has {functions} products, quotients and functions such as sin and exp, one by one, and at "
            f"most {MOST_FUNCTIONS} are taken, since each is fitted and proven on its own. Write those of a layer as "
            f"one operation on a tensor, which counts once however large it is"
        )


def _power(number: int, node: Node, powers: dict[int, Power]) -> Power:
    match node:
        case Function(name="square" | "power"):
            base, exponent = powers[node.argument]
            return base, exponent * (2.0 if node.parameter is None else node.parameter)
        case Product() if powers[node.left][0] == powers[node.right][0]:
            return powers[node.left][0], powers[node.left][1] + powers[node.right][1]
        case Affine(terms=(term,)) if term.weights.ndim == 1 and not node.bias.any():
            return powers[term.node]
    return number, 1.0
