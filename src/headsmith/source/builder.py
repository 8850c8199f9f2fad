"""A source graph that grows node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headsmith.core.program import Program
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
    Node,
    Pool,
    PoolKind,
    Positional,
    Product,
    Quotient,
    Relu,
    Term,
)


class Builder:
    """Grows a graph node by node; each method returns the new node's number."""

    def __init__(self, names: Sequence[str]) -> None:
        self._nodes: list[Node] = [Input(tuple(names))]

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
