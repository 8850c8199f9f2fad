"""Graphs are made here: node by node, or from other graphs, without what is not needed, with quotients taken apart or
powers multiplied out. And what is asked of their nodes: the program that one is, the tokens that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, assert_never

from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.language.graph import (
    Affine,
    Approximated,
    Attend,
    Average,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Mixing,
    Move,
    Node,
    Pool,
    PoolKind,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
    Term,
    arguments,
    needed,
)


class Builder:
    """Grows a graph node by node; each method returns the new node's number."""

    def __init__(self, names: Sequence[str], attention: bool = False) -> None:
        self._nodes: list[Node] = [Input(tuple(names))]
        self.attention = attention
        """Whether softmax is written as means (Average), or as powers of e and their quotients, which compile."""

    @property
    def input(self) -> int:
        return 0

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes so far."""
        return tuple(self._nodes)

    @property
    def count(self) -> int:
        """How many nodes there are: the number of the next one."""
        return len(self._nodes)

    def size(self, node: int) -> int:
        return self._nodes[node].size

    def affine(self, terms: Sequence[tuple[int, Any]], bias: Any) -> int:
        """weights @ node summed over `terms`, plus `bias`."""
        return self._add(Affine(tuple(Term(node, weights) for node, weights in terms), bias))

    def relu(self, argument: int) -> int:
        """max(argument, 0)."""
        return self._add(Relu(argument, self.size(argument)))

    def maximum(self, arguments: Sequence[int]) -> int:
        """The largest of several nodes, component by component."""
        return self._add(Maximum(tuple(arguments), self.size(arguments[0])))

    def minimum(self, arguments: Sequence[int]) -> int:
        """The smallest of several nodes, component by component."""
        return self._add(Minimum(tuple(arguments), self.size(arguments[0])))

    def product(self, left: int, right: int) -> int:
        """left * right."""
        return self._add(Product(left, right, self.size(left)))

    def quotient(self, numerator: int, denominator: int) -> int:
        """numerator / denominator."""
        return self._add(Quotient(numerator, denominator, self.size(numerator)))

    def hypotenuse(self, left: int, right: int) -> int:
        """sqrt(left^2 + right^2)."""
        return self._add(Hypotenuse(left, right, self.size(left)))

    def function(self, name: str, argument: int, parameter: float | None = None) -> int:
        """A named function of one variable."""
        return self._add(Function(name, argument, self.size(argument), parameter))

    def positional(self, values: Any) -> int:
        """Constants of the tokens."""
        return self._add(Positional(values))

    def pool(self, kind: PoolKind, argument: int, causal: bool = False) -> int:
        """Mean, maximum or minimum over the tokens."""
        return self._add(Pool(kind, argument, self.size(argument), causal))

    def move(self, argument: int, targets: Sequence[int]) -> int:
        """The value at other tokens."""
        return self._add(Move(argument, tuple(targets), self.size(argument)))

    def attend(self, queries: int, keys: int, values: int, causal: bool = False) -> int:
        """Softmax attention."""
        return self._add(Attend(queries, keys, values, self.size(values), causal))

    def average(self, scores: int, values: int, keys: int, size: int) -> int:
        """Softmax means, of one vector that holds all tokens."""
        return self._add(Average(scores, values, keys, size))

    def expression(self, program: Program, arguments: Sequence[int]) -> int:
        """A program of one or two nodes."""
        return self._add(Expression(program, tuple(arguments), self.size(arguments[0])))

    def add(self, node: Node) -> int:
        """A node that reads nodes of this graph."""
        return self._add(node)

    def graph(self, output: int) -> Graph:
        """The finished graph."""
        return Graph(tuple(self._nodes), output)

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


MOST_FACTORS = 64


def program_of(node: Approximated) -> tuple[Program, tuple[int, ...]]:
    """What the node computes, as a program, and the nodes that are its variables (each named once)."""
    match node:
        case Function():
            return Program(1, (Call(node.name, 0, node.parameter),)), (node.argument,)
        case Product():
            same = node.left == node.right
            return (Program(1, (Times(0, 0),)), (node.left,)) if same else (Program(2, (Times(0, 1),)), arguments(node))
        case Quotient():
            return Program(2, (Over(0, 1),)), (node.numerator, node.denominator)
        case Hypotenuse():
            square = (Times(0, 0), Times(1, 1), Linear(((Fraction(1), 2), (Fraction(1), 3))), Call("sqrt", 4))
            return Program(2, square), (node.left, node.right)
        case Expression():
            return node.program, node.arguments
        case _:
            assert_never(node)


def is_product(node: Node) -> bool:
    """Whether a node is a product, or a square."""
    return isinstance(node, Product) or (isinstance(node, Function) and node.name == "square")


def pruned(graph: Graph) -> Graph:
    """A graph without the nodes that its output does not depend on."""
    kept = sorted({0, *graph.used})
    places = {number: place for place, number in enumerate(kept)}
    return Graph(tuple(moved(graph.nodes[number], places) for number in kept), places[graph.output])


def taken_apart(graph: Graph) -> tuple[Graph, dict[int, int]]:
    """A graph of the same function with every quotient a/b written as a * (1/b), and the new number of each node: a
    reciprocal is a function of one variable, and products are cheap."""
    nodes: list[Node] = []
    places: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Quotient):
            nodes.append(Function("reciprocal", places[node.denominator], node.size))
            nodes.append(Product(places[node.numerator], len(nodes) - 1, node.size))
        else:
            nodes.append(moved(node, places))
        places[number] = len(nodes) - 1
    return Graph(tuple(nodes), places[graph.output]), places


def multiplied_out(graph: Graph) -> Graph:
    """A graph of the same function with whole powers written as products."""
    nodes: list[Node] = []
    places: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        power = node.parameter if isinstance(node, Function) and node.name == "power" else None
        if isinstance(node, Function) and power is not None and power in range(2, MOST_FACTORS + 1):
            first, result = places[node.argument], -1
            for bit in f"{int(power):b}":
                if result >= 0:
                    nodes.append(Function("square", result, node.size))
                    result = len(nodes) - 1
                if bit == "1":
                    nodes.extend([Product(result, first, node.size)] if result >= 0 else [])
                    result = len(nodes) - 1 if result >= 0 else first
            places[number] = result
        else:
            nodes.append(moved(node, places))
            places[number] = len(nodes) - 1
    return Graph(tuple(nodes), places[graph.output])


def moved(node: Node, places: dict[int, int]) -> Node:
    """The node, reading its arguments in their new places."""
    match node:
        case Input():
            return node
        case Affine():
            terms = tuple(replace(term, node=places[term.node]) for term in node.terms)
            return replace(node, terms=terms)
        case Positional():
            return node
        case Relu() | Function() | Pool() | Move():
            return replace(node, argument=places[node.argument])
        case Attend():
            queries, keys, values = (places[argument] for argument in arguments(node))
            return replace(node, queries=queries, keys=keys, values=values)
        case Average():
            return replace(node, scores=places[node.scores], values=places[node.values])
        case Maximum() | Minimum() | Expression() | Sampled():
            return replace(node, arguments=tuple(places[argument] for argument in node.arguments))
        case Product() | Hypotenuse():
            return replace(node, left=places[node.left], right=places[node.right])
        case Quotient():
            return replace(node, numerator=places[node.numerator], denominator=places[node.denominator])
        case _:
            assert_never(node)


def mixes(graph: Graph) -> bool:
    """Whether the graph is about sequences of tokens."""
    return any(isinstance(node, Mixing | Positional | Sampled) for node in graph.nodes)


def domain_names(graph: Graph) -> tuple[str, ...]:
    """The names of the intervals of a domain: one for each input, or one for each input of each token where a function
    of all of them was sampled."""
    tokens = [len(node.answers) for node in graph.nodes if isinstance(node, Sampled)]
    if not tokens:
        return graph.input.names
    return tuple(f"[{token}, {place}]" for token in range(tokens[0]) for place in range(graph.input.size))


def masks(graph: Graph) -> set[bool]:
    """Under which masks (causal or not) the graph's nodes look at other tokens; none or both of them may be there."""
    return {node.causal for node in graph.nodes if isinstance(node, Pool | Attend)}


def is_given(graph: Graph, number: int) -> bool:
    """Whether a node is an affine form of the inputs alone."""
    return all(isinstance(graph.nodes[each], Input | Affine) for each in needed(graph, number))
