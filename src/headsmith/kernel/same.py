"""Rule Same: two graphs compute the same function. Both are brought into one normal form, exactly, and compared.

A component of a node is a polynomial with rational coefficients over atoms. Atoms are components of the input, of
positional constants, and what is not polynomial: relu, named functions, reciprocals, pools, moves, attention, each of
the normal forms of its arguments. So the following are identities, and need no rule of their own:

    max(a, b) = b + relu(a - b),     min(a, b) = a - relu(a - b),     relu(-t) = relu(t) - t,     relu(2 t) = 2 relu(t)
    x y = ((c x + y)^2 - (c x - y)^2) / (4 c) = (y (a + b x) - a y) / b,     x / y = ((x + Z)^2 - (x - Z)^2) / (4 Z y)

The maximum of more than two is a tree: pairs of neighbours, then pairs of those, equal ones once; so is the minimum.
Nodes that are too large to be written out are atoms themselves: equal if they are the same operation on equal
arguments, with equal numbers. All this is about places where both graphs are defined.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import Array
from .errors import Refused
from .functions import run
from .graph import Graph, Node, dense

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, Fraction]

MOST_PRODUCTS = 2048
"""How many products of numbers one component or node may take before it is an atom."""
MOST_BITS = 1 << 14


class TooLarge(Exception):
    """A normal form is not worth writing out."""


class Forms:
    """The atoms that have been met, each with its number, and the nodes, each with its normal form."""

    def __init__(self) -> None:
        self._atoms: dict[Any, int] = {}
        self._nodes: dict[Any, int] = {}
        self._known: list[list[Polynomial]] = []
        self._large: dict[Any, list[Array]] = {}

    def atom(self, *key: Any) -> Polynomial:
        """The atom with this key, as a polynomial."""
        return {(self._atoms.setdefault(key, len(self._atoms)),): Fraction(1)}

    def of(self, graph: Graph, meanings: Mapping[int, int]) -> list[list[Polynomial]]:
        """The normal forms of all nodes, component by component; a node in `meanings` has that of another one."""
        found: list[int] = []
        for number, node in enumerate(graph.nodes):
            if number in meanings:
                found.append(found[meanings[number]])
                continue
            key = self._operation(node), tuple(found[argument] for argument in node.arguments)
            if key not in self._nodes:
                arguments = [self._known[found[argument]] for argument in node.arguments]
                try:
                    self._known.append(self._node(node, arguments))
                except TooLarge:
                    self._known.append(self._opaque(node, arguments))
                self._nodes[key] = len(self._known) - 1
            found.append(self._nodes[key])
        return [self._known[place] for place in found]

    def in_blocks(self, graph: Graph, blocks: int) -> list[list[Polynomial]]:
        """The normal forms of the output at every token, where token j holds the inputs in block j and zeros elsewhere.
        Equal pieces of a maximum count once."""
        found: list[list[list[Polynomial]]] = []
        size = graph.nodes[0].size // blocks
        for node in graph.nodes:
            arguments = [found[argument] for argument in node.arguments]
            if node.kind == "input":
                rows = [
                    [self.atom("input", i % size) if i // size == j else {} for i in range(node.size)]
                    for j in range(blocks)
                ]
            elif node.kind == "positional" and node.constants is not None:
                rows = [[{(): Fraction(x)} if x else {} for x in row] for row in node.constants.tolist()]
            elif node.kind == "pool" and node.name == "max" and not node.causal:
                pieces = zip(*arguments[0], strict=True)
                rows = [[self._tree("maximum", list({_key(x): x for x in each}.values())) for each in pieces]] * blocks
            elif node.kind == "move":
                rows = [arguments[0][j] if j >= 0 else [{}] * node.size for j in node.targets]
            elif node.kind in ("pool", "attend"):
                raise Refused(f"there is no rule for {node.kind} in blocks")
            else:
                rows = [self._node(node, [each[j] for each in arguments]) for j in range(blocks)]
            found.append(rows)
        return found[graph.output]

    def _tree(self, kind: str, x: list[Polynomial]) -> Polynomial:
        while len(x) > 1:
            pairs = [self._extreme(kind, *x[i : i + 2]) for i in range(0, len(x) - 1, 2)]
            x = pairs + x[len(x) // 2 * 2 :]
        return x[0]

    def _opaque(self, node: Node, arguments: list[list[Polynomial]]) -> list[Polynomial]:
        inside = tuple(tuple(map(_key, argument)) for argument in arguments)
        whole = next(iter(self.atom(self._operation(node), inside)))[0]
        return [self.atom("component", whole, component) for component in range(node.size)]

    def free(
        self, graph: Graph, meanings: Mapping[int, int], numbers: Sequence[int], arguments: Container[int]
    ) -> list[list[Polynomial]]:
        """The normal forms of some nodes, with the components of their `arguments` as free variables."""
        wanted, stack = set[int](), list(numbers)
        while stack:
            number = stack.pop()
            if number not in wanted:
                wanted.add(number)
                if number not in arguments:
                    stack.extend([meanings[number]] if number in meanings else graph.nodes[number].arguments)
        found: dict[int, list[Polynomial]] = {}
        for number in sorted(wanted):
            node = graph.nodes[number]
            if number in arguments:
                found[number] = [self.atom("free", number, component) for component in range(node.size)]
            elif number in meanings:
                found[number] = found[meanings[number]]
            else:
                inside = [found[argument] for argument in node.arguments]
                try:
                    found[number] = self._node(node, inside)
                except TooLarge:
                    found[number] = self._opaque(node, inside)
        return [found[number] for number in numbers]

    def _operation(self, node: Node) -> Any:
        """What a node does, whatever its arguments are."""
        arrays = (*node.weights, *(() if node.constants is None else (node.constants,)))
        numbers = tuple(self._numbers(array) for array in arrays)
        return node.kind, node.size, node.name, node.parameter, node.causal, node.targets, node.program, numbers

    def _numbers(self, array: Array) -> Any:
        """The same for equal arrays: their bytes, or which of the large ones of the same shape it equals."""
        if array.size <= MOST_PRODUCTS:
            return array.shape, array.tobytes()
        seen = self._large.setdefault(array.shape, [])
        place = next((i for i, other in enumerate(seen) if other is array or np.array_equal(other, array)), len(seen))
        if place == len(seen):
            seen.append(array)
        return array.shape, place

    def _node(self, node: Node, arguments: list[list[Polynomial]]) -> list[Polynomial]:
        match node.kind:
            case "input":
                return [self.atom("input", component) for component in range(node.size)]
            case "positional":
                assert node.constants is not None
                return [self.atom("positional", column.tobytes()) for column in node.constants.T]
            case "affine":
                return _affine(node, arguments)
            case "attend":
                queries, keys = (tuple(map(_key, argument)) for argument in arguments[:2])
                return [self.atom("attend", node.causal, queries, keys, _key(value)) for value in arguments[2]]
            case "expression":
                assert node.program is not None
                return [run(node.program, each, _linear, self.call, _times) for each in zip(*arguments, strict=True)]
        if node.size > MOST_PRODUCTS // 8:
            raise TooLarge
        return [self._scalar(node, list(each)) for each in zip(*arguments, strict=True)]

    def _scalar(self, node: Node, x: list[Polynomial]) -> Polynomial:
        match node.kind:
            case "relu":
                return self.relu(x[0])
            case "maximum" | "minimum":
                return self._tree(node.kind, list({_key(each): each for each in x}.values()))
            case "product":
                return _times(x[0], x[1])
            case "quotient":
                return _times(x[0], self.call("reciprocal", None, x[1]))
            case "function":
                return self.call(node.name, node.parameter, x[0])
            case "hypotenuse":
                return self.call("sqrt", None, _plus(_times(x[0], x[0]), _times(x[1], x[1])))
            case "pool" if node.name == "min":
                return _scaled(self.atom("max", node.causal, _key(_scaled(x[0], Fraction(-1)))), Fraction(-1))
            case "pool":
                return self.atom(node.name, node.causal, _key(x[0]))
            case "move":
                return self.atom("move", node.targets, _key(x[0]))
        raise Refused(f"{node.kind} has no normal form")

    def _extreme(self, kind: str, left: Polynomial, right: Polynomial) -> Polynomial:
        gate = self.relu(_plus(left, _scaled(right, Fraction(-1))))
        return _plus(right, gate) if kind == "maximum" else _plus(left, _scaled(gate, Fraction(-1)))

    def relu(self, x: Polynomial) -> Polynomial:
        """max(x, 0), of a multiple of x whose first coefficient is 1 where that is not a constant."""
        first = min((monomial for monomial in x if monomial), default=None)
        if first is None:
            return x if x.get((), Fraction(0)) > 0 else {}
        size = abs(x[first])
        gate = _scaled(self.atom("relu", _key(_scaled(x, 1 / x[first]))), size)
        return gate if x[first] > 0 else _plus(gate, x)

    def exchanged(self, x: list[Polynomial], *others: list[Polynomial]) -> list[Polynomial]:
        """x - relu(x - m - c) + relu(m - x - d), for the others m, c, d."""
        result = []
        for value, moved, above, below in zip(x, *others, strict=True):
            gap = _plus(value, _scaled(moved, Fraction(-1)))
            falls = self.relu(_plus(gap, _scaled(above, Fraction(-1))))
            rises = self.relu(_scaled(_plus(gap, below), Fraction(-1)))
            result.append(_plus(_plus(value, rises), _scaled(falls, Fraction(-1))))
        return result

    def call(self, name: str, parameter: float | None, x: Polynomial) -> Polynomial:
        """A named function; of 1/x a multiple of x whose first coefficient is 1."""
        if name == "square":
            return _times(x, x)
        if name == "reciprocal" and x:
            first = x[min(x)]
            return _scaled(self.atom("call", name, None, _key(_scaled(x, 1 / first))), 1 / first)
        return self.atom("call", name, parameter, _key(x))


def _key(x: Polynomial) -> Any:
    return tuple(sorted(x.items()))


def _affine(node: Node, arguments: list[list[Polynomial]]) -> list[Polynomial]:
    products = 0
    for weights, argument in zip(node.weights, arguments, strict=True):
        products += int(np.count_nonzero(dense(weights), axis=0) @ np.array([len(each) for each in argument]))
    if products > MOST_PRODUCTS:
        raise TooLarge
    assert node.constants is not None
    rows: list[Polynomial] = [{(): Fraction(bias)} if bias else {} for bias in node.constants.tolist()]
    for weights, argument in zip(node.weights, arguments, strict=True):
        matrix = dense(weights)
        for row, column in np.argwhere(matrix).tolist():
            _add(rows[row], argument[column], Fraction(float(matrix[row, column])))
    return [_small(row) for row in rows]


def _linear(terms: list[tuple[Fraction, Polynomial]], constant: Fraction) -> Polynomial:
    total: Polynomial = {(): constant} if constant else {}
    for coefficient, x in terms:
        _add(total, x, coefficient)
    return _small(total)


def _add(total: Polynomial, x: Polynomial, factor: Fraction) -> None:
    """Add factor x to the total."""
    for monomial, coefficient in x.items():
        value = total.get(monomial, Fraction(0)) + factor * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    total = dict(left)
    _add(total, right, Fraction(1))
    return _small(total)


def _scaled(x: Polynomial, factor: Fraction) -> Polynomial:
    return _small({monomial: coefficient * factor for monomial, coefficient in x.items()}) if factor else {}


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left) * len(right) > MOST_PRODUCTS:
        raise TooLarge
    total: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            monomial = tuple(sorted(first + second))
            total[monomial] = total.get(monomial, Fraction(0)) + a * b
    return _small({monomial: coefficient for monomial, coefficient in total.items() if coefficient})


def _small(x: Polynomial) -> Polynomial:
    if len(x) > MOST_PRODUCTS or any(len(monomial) > 64 for monomial in x):
        raise TooLarge
    if any(max(c.numerator.bit_length(), c.denominator.bit_length()) > MOST_BITS for c in x.values()):
        raise TooLarge
    return x
