"""A node of a graph as the text of a formula, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from headsmith.source.graph import (
    Affine,
    Attend,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Move,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
)

LARGEST_TEXT = 60
"""Sub-expressions that are printed before the rest becomes an ellipsis."""

_SUM, _PRODUCT, _POWER, _ATOM = range(4)
"""How tightly a printed expression binds."""


def describe(graph: Graph, node: int, component: int = 0) -> str:
    """The expression that a component of a node stands for."""
    return _text(graph, node, component, _SUM, iter(range(LARGEST_TEXT)))


def number(value: float) -> str:
    """A number as people write it: 2 and not 2.0, 0.1 and not 0.10000000000000001."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _text(graph: Graph, place: int, component: int, outer: int, budget: Iterator[int]) -> str:
    if next(budget, None) is None:
        return "..."
    node = graph.nodes[place]

    def inner(argument: int, binding: int = _SUM) -> str:
        return _text(graph, argument, component, binding, budget)

    match node:
        case Input():
            return node.names[component]
        case Affine():
            return _affine(graph, node, component, outer, budget)
        case Relu():
            text, binding = f"relu({inner(node.argument)})", _ATOM
        case Maximum() | Minimum():
            name = "max" if isinstance(node, Maximum) else "min"
            text, binding = f"{name}({', '.join(inner(argument) for argument in node.arguments)})", _ATOM
        case Product():
            text, binding = f"{inner(node.left, _PRODUCT)}*{inner(node.right, _POWER)}", _PRODUCT
        case Quotient():
            text, binding = f"{inner(node.numerator, _PRODUCT)}/{inner(node.denominator, _POWER)}", _PRODUCT
        case Hypotenuse():
            text, binding = f"norm({inner(node.left)}, {inner(node.right)})", _ATOM
        case Function(name="square"):
            text, binding = f"{inner(node.argument, _ATOM)}**2", _POWER
        case Function(name="reciprocal"):
            text, binding = f"1/{inner(node.argument, _POWER)}", _PRODUCT
        case Function(name="power", parameter=parameter) if parameter is not None:
            exponent = number(parameter)
            text, binding = f"{inner(node.argument, _ATOM)}**{exponent}", _POWER
        case Function():
            text, binding = f"{node.name}({inner(node.argument)})", _ATOM
        case Positional():
            text, binding = "position", _ATOM
        case Pool():
            text, binding = f"{node.kind}_of_tokens({inner(node.argument)})", _ATOM
        case Move():
            text, binding = f"moved({inner(node.argument)})", _ATOM
        case Attend():
            text, binding = f"attended({inner(node.values)})", _ATOM
        case Expression():
            text, binding = f"f({', '.join(inner(argument) for argument in node.arguments)})", _ATOM
        case _:
            assert_never(node)
    return text if binding >= outer else f"({text})"


def _affine(graph: Graph, node: Affine, component: int, outer: int, budget: Iterator[int]) -> str:
    """coefficient*term + ... + constant."""
    terms = list(_row(node, component))
    constant = float(node.bias[component])
    if len(terms) == 1 and terms[0][2] == 1.0 and constant == 0.0:
        return _text(graph, terms[0][0], terms[0][1], outer, budget)
    parts = []
    for source, column, weight in terms:
        size = "" if abs(weight) == 1.0 else f"{number(abs(weight))}*"
        text = _text(graph, source, column, _POWER if size else _PRODUCT, budget)
        parts.append(("- " if weight < 0.0 else "+ ") + size + text)
        if text == "...":
            break
    if constant or not parts:
        parts.append(("- " if constant < 0.0 else "+ ") + number(abs(constant)))
    joined = " ".join(parts)
    text = joined[2:] if joined.startswith("+ ") else "-" + joined[2:]
    binding = _PRODUCT if len(parts) == 1 and parts[0].startswith("+ ") else _SUM
    return text if binding >= outer else f"({text})"


def _row(node: Affine, component: int) -> Iterator[tuple[int, int, float]]:
    """(node, component, weight) of the terms that are not zero."""
    for term in node.terms:
        row = term.weights[component]
        for column, weight in [(component, row)] if term.diagonal else enumerate(row):
            if weight != 0.0:
                yield term.node, column, float(weight)
