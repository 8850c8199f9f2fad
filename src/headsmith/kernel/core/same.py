"""Rule Same: two graphs compute the same function. Both are brought into one normal form, exactly, and compared.

A component of a node is a polynomial with rational coefficients over atoms. Atoms are components of the input, of
positional constants, and what is not polynomial: relu, named functions, reciprocals, pools, moves, attention, each of
the normal forms of its arguments. So the following are identities, and need no rule of their own:

    max(a, b) = b + relu(a - b),     min(a, b) = a - relu(a - b),     relu(-t) = relu(t) - t,     relu(2 t) = 2 relu(t)
    x y = ((c x + y)^2 - (c x - y)^2) / (4 c) = (y (a + b x) - a y) / b,     x / y = ((x + Z)^2 - (x - Z)^2) / (4 Z y)

The maximum of more than two is a tree: pairs of neighbours, then pairs of those; so is the minimum. In blocks, where
tokens repeat what others hold, equal ones count once.
Nodes that are too large to be written out are atoms themselves: equal if they are the same operation on equal
arguments, with equal numbers. All this is about places where both graphs are defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from itertools import chain, product
from operator import mul
from typing import Any

import numpy as np
from flint import fmpq

from .errors import Refused, spend
from .functions import run
from .graph import Graph, Node, arrays_of, needed
from .sparse import sparse_of

Monomial = tuple[int, ...]
Term = tuple[Monomial, fmpq]

MOST_PRODUCTS, MOST_WORK = 2048, 1 << 15  # products that a polynomial, or a node, may take before it is an atom
MOST_READ, MOST_TERMS, MOST_FACTORS, MOST_BITS = 512, 64, 64, 1 << 14


class TooLarge(Exception):
    """A normal form is not worth writing out."""


@dataclass(frozen=True)
class Polynomial:
    """Monomials, sorted tuples of atoms, each with its coefficient, which is not zero."""

    terms: dict[Monomial, fmpq]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((frozenset(self.terms), str(sum(self.terms.values()))))

    def __add__(self, other: Polynomial) -> Polynomial:
        return polynomial(chain(self.terms.items(), other.terms.items()))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(self.terms) * len(other.terms) > MOST_PRODUCTS:
            raise TooLarge
        spend(2500.0 * len(self.terms) * len(other.terms))
        pairs = product(self.terms.items(), other.terms.items())
        return polynomial((tuple(sorted(m + n)), a * b) for (m, a), (n, b) in pairs)


def polynomial(terms: Iterable[Term]) -> Polynomial:
    """The sum of these terms."""
    total, work = dict[Monomial, fmpq](), 40000.0
    for monomial, coefficient in terms:
        total[monomial] = total[monomial] + coefficient if monomial in total else coefficient
        work += 10000.0 + 20.0 * coefficient.height_bits()
    spend(work)
    found = {monomial: coefficient for monomial, coefficient in total.items() if coefficient}
    bits, factors = (max(each, default=0) for each in (map(fmpq.height_bits, found.values()), map(len, found)))
    if len(found) > MOST_PRODUCTS or bits > MOST_BITS or factors > MOST_FACTORS:
        raise TooLarge
    return Polynomial(found)


def number(value: Any) -> Polynomial:
    """A constant."""
    return Polynomial({(): found} if (found := exact(value)) else {})


def exact(value: Any) -> fmpq:
    """An integer, double or fraction, as a number of the fast kind."""
    return value if isinstance(value, fmpq) else fmpq(*value.as_integer_ratio())


Row = list[Polynomial]


class Forms:
    """The atoms that have been met, each with its number; and whether equal arguments of a maximum count once."""

    def __init__(self, once: bool = False) -> None:
        self._atoms, self._once = dict[Any, int](), once

    def atom(self, *key: Any) -> Polynomial:
        """The atom with this key, as a polynomial."""
        spend(40000.0 + sum(100.0 * len(each) for each in key if isinstance(each, tuple)))  # keys are hashed, compared
        return Polynomial({(self._atoms.setdefault(key, len(self._atoms)),): fmpq(1)})

    def mean(self, x: Polynomial) -> Polynomial:
        """The mean over all tokens."""
        return self.atom("mean", False, x)

    def free(self, graph: Graph, place: int) -> Row:
        """The components of a node, as variables of their own."""
        return [self.atom("free", place, component) for component in range(graph.nodes[place].size)]

    def of(self, graph: Graph, numbers: Sequence[int], free: Iterable[int] = (), blocks: int = 0) -> list[list[Row]]:
        """The normal forms of some nodes, component by component, with the components of the nodes `free` as variables
        of their own; in blocks at every token."""
        found, free = dict[int, list[Row]](), {*free}
        for place in needed(graph, numbers, free):
            node = graph.nodes[place]
            spend(500.0 * node.size * max(blocks, 1) * len(node.arguments))
            arguments = [found[argument] for argument in node.arguments if place not in free]
            if place in free:
                found[place] = [self.free(graph, place)]
            elif blocks and node.kind in ("input", "positional", "pool", "move", "exchange", "attend"):
                found[place] = self._across(node, arguments, blocks)
            else:
                tokens = range(max(blocks, 1))
                found[place] = [self._found(node, [argument[token] for argument in arguments]) for token in tokens]
        return [found[place] for place in numbers]

    def _across(self, node: Node, arguments: list[list[Row]], blocks: int) -> list[Row]:
        """The forms at every token, where token j holds the inputs in block j, and zeros elsewhere."""
        tokens, size = range(blocks), node.size // blocks
        match node.kind:
            case "input":
                every = range(node.size)
                return [[self.atom("input", i % size) if i // size == j else number(0) for i in every] for j in tokens]
            case "positional":
                return [[number(x) for x in row] for row in node.constants.tolist()]
            case "pool" if node.name == "max" and not node.causal:
                return [[self.maximum(pieces) for pieces in zip(*arguments[0], strict=True)]] * blocks
            case "move":
                return [arguments[0][j] if j >= 0 else [number(0)] * node.size for j in node.targets]
        raise Refused(f"there is no rule for {node.kind} in blocks")

    def _found(self, node: Node, arguments: list[Row]) -> Row:
        """The forms of a node; if they are too large to be written out, atoms of all that the node does and reads."""
        try:
            return self._written(node, arguments)
        except TooLarge:
            arrays = tuple((array.shape, sha256(array.tobytes()).digest()) for array in arrays_of(node))
            spend(sum(10.0 * array.size for array in arrays_of(node)))
            whole = self.atom(node.operation, arrays, *map(tuple, arguments))
            return [self.atom("component", whole, component) for component in range(node.size)]

    def _affine(self, node: Node, arguments: list[Row]) -> Row:
        """Sums; where they take too many products, what they read are atoms."""
        pairs = list(zip(map(sparse_of, node.weights), arguments, strict=True))
        counts = [(matrix.T.counts, [len(x.terms) for x in argument]) for matrix, argument in pairs]
        if sum(count @ np.minimum(lengths, 1) for count, lengths in counts) > MOST_WORK:
            raise TooLarge
        if sum(count @ lengths for count, lengths in counts) > MOST_WORK:
            pairs = [(matrix, [self.total(x, 1) for x in argument]) for matrix, argument in pairs]
        rows: Row = []
        for row, bias in enumerate(node.constants.tolist()):
            read = [
                (exact(x.values[entry]), argument[x.columns[entry]])
                for x, argument in pairs
                for entry in range(x.starts[row], x.starts[row] + x.counts[row])
            ]
            if sum(len(x.terms) for _, x in read) > MOST_READ:
                read = [(weight, self.total(x, 1)) for weight, x in read]
            terms = ((m, weight * c) for weight, x in read for m, c in x.terms.items())
            rows.append(self.total(polynomial(chain(terms, [((), exact(bias))]))))
        return rows

    def _written(self, node: Node, arguments: list[Row]) -> Row:
        match node.kind:
            case "input":
                return [self.atom("input", component) for component in range(node.size)]
            case "positional":
                return [self.atom("positional", column.tobytes()) for column in node.constants.T]
            case "affine":
                return self._affine(node, arguments)
            case "attend":
                scores = self.atom("scores", *map(tuple, arguments[:2]))
                return [self.atom("attend", node.causal, scores, value) for value in arguments[2]]
            case "sampled":
                raise TooLarge
        return [self._scalar(node, each) for each in zip(*arguments, strict=True)]

    def _scalar(self, node: Node, x: Sequence[Polynomial]) -> Polynomial:
        match node.kind:
            case "relu":
                return self.relu(x[0])
            case "maximum":
                return self.maximum(x)
            case "minimum":
                return -self.maximum([-each for each in x])
            case "expression":
                value: Polynomial = run(node.program, x, _linear, self.call, mul)
                return value
            case "pool" if node.name == "min":
                return -self.atom("max", node.causal, -x[0])
            case "pool":
                return self.atom(node.name, node.causal, x[0])
            case "move":
                return self.atom("move", node.targets, x[0])
            case "exchange":
                gap = x[0] - self.atom("move", node.targets, x[0])
                return x[0] - self.relu(gap - x[1]) + self.relu(-gap - x[2])
        raise Refused(f"{node.kind} has no normal form")

    def maximum(self, x: Sequence[Polynomial]) -> Polynomial:
        """The largest, by pairs."""
        rest = [*dict.fromkeys(x)] if self._once else [*x]
        while len(rest) > 1:
            pairs = [self.total(b + self.relu(a - b)) for a, b in zip(rest[::2], rest[1::2], strict=False)]
            rest = pairs + rest[len(rest) // 2 * 2 :]
        return rest[0]

    def total(self, x: Polynomial, most: int = MOST_TERMS) -> Polynomial:
        """A long sum as an atom: of a multiple whose first coefficient is 1, its constant apart."""
        if len(x.terms.keys() - {()}) <= most:
            return x
        constant = number(x.terms.get((), 0))
        rest = x - constant
        first = rest.terms[min(rest.terms)]
        return constant + self.atom("sum", rest * number(1 / first)) * number(first)

    def relu(self, x: Polynomial) -> Polynomial:
        """max(x, 0), of a multiple of x whose first coefficient is 1 where that is not a constant."""
        x = self.total(x)
        first = min((monomial for monomial in x.terms if monomial), default=())
        if not first:
            return number(max(x.terms.get((), 0), 0))
        scale = x.terms[first]
        if scale == 1:
            return self.atom("relu", x)
        gate = self.atom("relu", x * number(1 / scale)) * number(abs(scale))
        return gate if scale > 0 else gate + x

    def call(self, name: str, parameter: float | None, x: Polynomial) -> Polynomial:
        """A named function; of 1/x a multiple of x whose first coefficient is 1."""
        if name == "square":
            return x * x
        if name == "reciprocal" and x.terms:
            first = x.terms[min(x.terms)]
            return self.atom("call", name, None, x * number(1 / first)) * number(1 / first)
        return self.atom("call", name, parameter, x)


def _linear(terms: list[tuple[Fraction, Polynomial]], constant: Fraction) -> Polynomial:
    return sum((x * number(coefficient) for coefficient, x in terms), start=number(constant))
