"""A node of a graph as the text of a formula, for messages and for looking inside a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import assert_never

from headsmith.core.figures import count
from headsmith.language.graph import (
    Affine,
    Attend,
    Average,
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
    Sampled,
)

LARGEST_TEXT = 60
"""Sub-expressions that are printed before the rest becomes an ellipsis."""

FEW = 4
"""Sums inside sums of at most so many terms are added up, where a graph is read aloud."""

_SUM, _PRODUCT, _POWER, _ATOM = range(4)
"""How tightly a printed expression binds."""


@dataclass(frozen=True, eq=False)
class Reading:
    """How a graph is read aloud: some nodes stand for nodes of another graph, such as gates of a circuit for the
    function that they compute, and are told in its words. With `digits` numbers are rounded to so many."""

    graph: Graph
    elsewhere: Mapping[int, tuple[Reading, int]] = field(default_factory=dict)
    digits: int | None = None


def describe(graph: Graph | Reading, node: int, component: int = 0) -> str:
    """The expression that a component of a node stands for."""
    reading = Reading(graph) if isinstance(graph, Graph) else graph
    return _text(reading, node, component, _SUM, iter(range(LARGEST_TEXT)))


def outputs_text(graph: Graph, length: int = 60) -> str:
    """What a graph computes, as formulas where these are short, and as sizes where they are not."""
    outputs = graph.nodes[graph.output].size
    if outputs <= 4:
        reading = Reading(graph, digits=4)
        text = ", ".join(describe(reading, graph.output, component) for component in range(outputs))
        if len(text) <= length and "..." not in text:
            return text
    return f"{count(graph.input.size, 'input')} to {count(outputs, 'output')}"


def number(value: float, digits: int | None = None) -> str:
    """A number as people write it: 2 and not 2.0, 0.1 and not 0.10000000000000001."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value)) if digits is None else f"{value:.{digits}g}"


def _text(reading: Reading, place: int, component: int, outer: int, budget: Iterator[int]) -> str:
    if next(budget, None) is None:
        return "..."
    if place in reading.elsewhere:
        return _text(*reading.elsewhere[place], component, outer, budget)
    node = reading.graph.nodes[place]

    def inner(argument: int, binding: int = _SUM) -> str:
        return _text(reading, argument, component, binding, budget)

    match node:
        case Input():
            return node.names[component]
        case Affine():
            return _affine(reading, node, component, outer, budget)
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
            exponent = number(parameter, reading.digits)
            text, binding = f"{inner(node.argument, _ATOM)}**{exponent}", _POWER
        case Function():
            text, binding = f"{node.name}({inner(node.argument)})", _ATOM
        case Positional():
            text, binding = "position", _ATOM
        case Pool():
            text, binding = f"tokens.{node.kind}({inner(node.argument)})", _ATOM
        case Move():
            text, binding = _move(node, inner(node.argument)), _ATOM
        case Attend():
            text, binding = f"tokens.attend({inner(node.values)})", _ATOM
        case Average():
            text, binding = f"softmax({inner(node.scores)}) @ {inner(node.values)}", _ATOM
        case Sampled():
            text, binding = f"sampled({inner(node.arguments[0])})", _ATOM
        case Expression():
            text, binding = f"f({', '.join(inner(argument) for argument in node.arguments)})", _ATOM
        case _:
            assert_never(node)
    return text if binding >= outer else f"({text})"


def _move(node: Move, argument: str) -> str:
    """Where a token fetches from: so many tokens back, or one and the same token, or the places of a list."""
    sources = {token - target for token, target in enumerate(node.targets) if target >= 0}
    places = {target for target in node.targets if target >= 0}
    if len(sources) == 1:
        (back,) = sources
        return f"tokens.shift({argument}, {back})" if back else f"{argument} at token {', '.join(map(str, places))}"
    if len(places) == 1:
        return f"tokens.at({argument}, {next(iter(places))})"
    return f"tokens.gather({argument})"


def _affine(reading: Reading, node: Affine, component: int, outer: int, budget: Iterator[int]) -> str:
    """coefficient*term + ... + constant."""
    terms, constant = _row(node, component), float(node.bias[component])
    if reading.digits is not None:
        terms, constant = _flat(reading, node, component)
    first = list(islice(terms, 2))
    if len(first) == 1 and first[0][2] == 1.0 and constant == 0.0:
        return _text(reading, first[0][0], first[0][1], outer, budget)
    parts = []
    for source, column, weight in chain(first, terms):
        size = "" if abs(weight) == 1.0 else f"{number(abs(weight), reading.digits)}*"
        text = _text(reading, source, column, _POWER if size else _PRODUCT, budget)
        parts.append(("- " if weight < 0.0 else "+ ") + size + text)
        if text == "...":
            break
    if constant or not parts:
        parts.append(("- " if constant < 0.0 else "+ ") + number(abs(constant), reading.digits))
    joined = " ".join(parts)
    text = joined[2:] if joined.startswith("+ ") else "-" + joined[2:]
    binding = _PRODUCT if len(parts) == 1 and parts[0].startswith("+ ") else _SUM
    return text if binding >= outer else f"({text})"


def _row(node: Affine, component: int) -> Iterator[tuple[int, int, float]]:
    """(node, component, weight) of the terms that are not zero."""
    for term in node.terms:
        row = term.weights[component]
        for column in [component] if term.diagonal else row.nonzero()[0].tolist():
            weight = float(row if term.diagonal else row[column])
            if weight != 0.0:
                yield term.node, column, weight


def _flat(reading: Reading, node: Affine, component: int) -> tuple[Iterator[tuple[int, int, float]], float]:
    """Terms and constant of a sum whose summands are sums themselves, as one sum: ((x + y) + 2) - 2 is x + y."""
    whole: dict[tuple[int, int], float] = {}
    constant = float(node.bias[component])
    waiting = list(islice(_row(node, component), LARGEST_TEXT))[::-1]
    steps = iter(range(LARGEST_TEXT * FEW))
    while waiting:
        source, column, weight = waiting.pop()
        inner = reading.graph.nodes[source]
        terms = list(islice(_row(inner, column), FEW + 1)) if isinstance(inner, Affine) else []
        few = source not in reading.elsewhere and len(terms) <= FEW and next(steps, None) is not None
        if isinstance(inner, Affine) and few:
            constant += weight * float(inner.bias[column])
            waiting += [(place, position, weight * inner_weight) for place, position, inner_weight in terms[::-1]]
        else:
            whole[source, column] = whole.get((source, column), 0.0) + weight
    return ((place, position, weight) for (place, position), weight in whole.items() if weight), constant
