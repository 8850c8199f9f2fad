"""Linear attention: what it computes, and what it cannot.

A head of linear attention returns score times value, a product of three linear forms of what it reads at most. So L
layers compute polynomials of degree 3^L, with nothing in between: products and squares exactly, one head each; and no
gate. The best polynomial of degree n misses |x| on [-1, 1] by 0.2801695 / n in the limit (Bernstein, 1914), and the
ReLU on [-B, B] by B / 2 times that: a gate within e would take log(0.14 B / e) / log 3 layers at least.
"""

from __future__ import annotations

import math

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import is_product
from headsmith.language.describe import describe
from headsmith.language.graph import Affine, Graph, Input, arguments
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Design
from headsmith.plan.circuits.assemble import TABLE, Choice, assemble, expressions_of
from headsmith.plan.request import Request
from headsmith.plan.tables import Multiplied

BERNSTEIN = 0.2801694990238691
MARGIN, ROUNDINGS = 1e-3, 12.0
"""How far what a product reads may be off, of its size: far more than rounding; of 16 bits, so many roundings."""


def layers_for_gate(error: float, size: float = 1.0) -> int:
    """How many layers of linear attention a ReLU on [-size, size] takes at least, by Bernstein's law, if it is to be
    within `error`."""
    degree = 0.5 * BERNSTEIN * size / error
    return max(1, math.ceil(math.log(max(degree, 1.0)) / math.log(3.0)))


def product_design(request: Request) -> Design:
    """Every product and square of the target a head. Raises TargetError where the target is no polynomial."""
    graph, unit = request.graph, request.precision.unit_roundoff
    choices = {}
    for number in graph.used:
        node = graph.nodes[number]
        if isinstance(node, Input | Affine):
            continue
        if not is_product(node):
            raise TargetError(_refusal(graph, number, request.error))
        size = max(float(np.max(request.ranges[each].magnitude, initial=0.0)) for each in arguments(node))
        choices[number] = Choice(TABLE, max(MARGIN, ROUNDINGS * unit) * (size or 1.0))
    assembly = assemble(graph, choices)
    places = [place for number in choices for place in expressions_of(assembly, number)]
    nodes = assembly.circuit.nodes
    tables = {(place, component): Multiplied() for place in places for component in range(nodes[place].size)}
    return Design(choices, assembly, tuple(ranges(assembly.circuit, request.box)), {}, 0.0, tables)


def _refusal(graph: Graph, number: int, error: float) -> str:
    text = describe(graph, number, 0)
    return (
        f"linear attention computes polynomials alone, of degree 3^layers at most, and {text} is none: even a ReLU "
        f"on [-1, 1] within {error:.3g} takes {layers_for_gate(error)} layers or more (Bernstein); choose another kind"
    )
