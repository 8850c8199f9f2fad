"""From a target graph to a circuit: every non-linear node becomes affine and relu nodes, by a stated choice for each.

    Relu, Maximum, Minimum    exact: max(a, b) = b + relu(a - b), min(a, b) = a - relu(a - b), one shared gate; more
                              arguments by a tree
    Function                  a circuit of one variable (a fragment), spliced in at its argument
    Product                   x y = ((c x + y)^2 - (c x - y)^2) / (4 c), two fragments of the square; c a power of two
                              balances the widths
    Quotient                  x / y = ((x + Z)^2 - (x - Z)^2) / (4 Z y), two perspectives y q(s / y) ~ s^2 / y of
                              fragments q of the square on the range of s / y, s = x +- Z; Z a power of two. In a
                              perspective every constant is multiplied by y > 0: relu(y v) = y relu(v)

    Hypotenuse                sqrt(x^2 + y^2): with X = max(|x|, |y|), Y = min(|x|, |y|), the perspective X h(Y / X) of
                              h(s) = sqrt(1 + s^2) on [0, 1]

    Pool, Move, Attend, Positional    as they are: heads that look at other tokens compute them; min is -max(-x)

Any of the four before these may instead be left to a table head (the choice `TABLE`): it stays one node, an Expression.

The proof of a model stores the circuit (prove/proof_circuit.py); the kernel believes none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, assert_never

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TargetError
from headsmith.core.program import gate_program, straightened
from headsmith.language.builder import Builder, program_of
from headsmith.language.graph import (
    GIVEN,
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
    Move,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
    Term,
    arguments,
)
from headsmith.plan.circuits.fragment import Fragment
from headsmith.plan.circuits.square import square

GATE = "gate"
"""The family of products that a gate head computes."""

HALVES = ("plus", "minus")
"""The two squares that a product or a quotient is made of."""

TABLE = "table"
"""The family of nodes that a table head computes: its keys and values are the model's own weights."""


@dataclass(frozen=True)
class Square:
    """The square on [low, high], folded so: a circuit that is built once it is chosen."""

    low: float
    high: float
    radices: tuple[int, ...]


@lru_cache(maxsize=4096)
def _built(planned: Square) -> Fragment:
    """The same object for the same square, so that what is proven of it is proven once."""
    return square(planned.low, planned.high, planned.radices)


@dataclass(frozen=True, eq=False)
class Choice:
    """How one non-linear node is approximated: by the circuits of a family, or by a head (TABLE or GATE). A product or
    a quotient has two circuits, and the numbers of its identity.

    With a `margin`, the circuit is good for arguments that are off by that much, and errors of the arguments pass with
    the function's own slopes; without, they pass through the circuit's gates.
    """

    family: str
    margin: float | None = None
    fragments: tuple[Fragment | Square, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Splice:
    """A fragment inside the circuit: fragment node k stands at circuit node first + k - 1, once for each component.

    `part` tells the two halves of a product or quotient apart. With `scale`, a circuit node V, it is the perspective V
    q(u / V).
    """

    target: int
    part: str
    fragment: Fragment
    argument: int
    first: int
    scale: int | None = None


@dataclass(frozen=True, eq=False)
class Extremum:
    """A circuit node that is exactly the maximum or minimum of two others."""

    node: int
    largest: bool
    left: int
    right: int


@dataclass(frozen=True, eq=False)
class Assembly:
    """The circuit, where each target node lives in it, and what was spliced in. `regions` has the circuit nodes
    that were made for each approximated target node, the one that stands for it included."""

    circuit: Graph
    places: Mapping[int, int]
    splices: tuple[Splice, ...]
    extrema: tuple[Extremum, ...]
    regions: Mapping[int, range]


def expressions_of(assembly: Assembly, number: int) -> list[int]:
    """The circuit nodes that heads compute for a target node: one, or two for mirrored gates."""
    return [n for n in assembly.regions[number] if isinstance(assembly.circuit.nodes[n], Expression)]


def expression_of(assembly: Assembly, number: int) -> int:
    """The first of them."""
    return expressions_of(assembly, number)[0]


def is_circuit(graph: Graph) -> bool:
    """Whether the graph has affine and relu nodes alone."""
    return all(isinstance(node, Input | Affine | Relu) for node in graph.nodes)


def with_own_output(circuit: Graph) -> Graph:
    """The same circuit whose output is an affine node that nothing else reads."""
    output = circuit.output
    read = any(output in read for read in circuit.reads)
    if isinstance(circuit.nodes[output], Affine) and not read:
        return circuit
    size = circuit.nodes[output].size
    copied = Affine((Term(output, np.ones(size)),), np.zeros(size))
    return Graph((*circuit.nodes, copied), len(circuit.nodes))


def _made(planned: Fragment | Square) -> Fragment:
    return _built(planned) if isinstance(planned, Square) else planned


def assemble(target: Graph, choices: Mapping[int, Choice]) -> Assembly:
    """Build the circuit of `target`; `choices` has an entry for every Function, Product and Quotient node."""
    if is_circuit(target):
        circuit = with_own_output(target)
        return Assembly(circuit, {number: number for number in range(len(target.nodes))}, (), (), {})
    assembly = _Assembler(target, choices).result()
    return replace(assembly, circuit=with_own_output(assembly.circuit))


class _Assembler:
    def __init__(self, target: Graph, choices: Mapping[int, Choice]) -> None:
        self.target, self.choices = target, choices
        self.builder = Builder(target.input.names)
        self.places: dict[int, int] = {}
        self.splices: list[Splice] = []
        self.extrema: list[Extremum] = []
        self.gates: dict[tuple[int, int], int] = {}

    def result(self) -> Assembly:
        regions = {}
        for number in self.target.used:
            first = self.builder.count
            self.places[number] = self._place(number)
            if isinstance(self.target.nodes[number], Approximated):
                regions[number] = range(first, self.builder.count)
        circuit = self.builder.graph(self.places[self.target.output])
        return Assembly(circuit, self.places, tuple(self.splices), tuple(self.extrema), regions)

    def _place(self, number: int) -> int:
        node, builder, places = self.target.nodes[number], self.builder, self.places
        if isinstance(node, Approximated) and self._choice(number).family == TABLE:
            return self._table(number, node)
        if isinstance(node, Product) and self._choice(number).family == GATE:
            return self._gate_product(number, node)
        match node:
            case Input():
                return builder.input
            case Affine():
                return builder.affine([(places[term.node], term.weights) for term in node.terms], node.bias)
            case Relu():
                return builder.relu(places[node.argument])
            case Maximum() | Minimum():
                return self._tree([places[argument] for argument in node.arguments], isinstance(node, Maximum))
            case Function():
                return self._splice(number, "", self._fragment(number), places[node.argument])
            case Product():
                return self._product(number, node)
            case Quotient():
                return self._quotient(number, node)
            case Hypotenuse():
                return self._hypotenuse(number, node)
            case Positional():
                return builder.positional(node.values)
            case Pool():
                return self._pool(node)
            case Move():
                return builder.move(places[node.argument], node.targets)
            case Attend():
                queries, keys, values = (places[argument] for argument in arguments(node))
                return builder.attend(queries, keys, values, node.causal)
            case Average():
                raise TargetError(GIVEN)
            case Sampled():
                return builder.add(replace(node, arguments=tuple(places[argument] for argument in node.arguments)))
            case Expression():
                raise CertificateError(f"target node {number} is an expression: only a table head can stand for it")
            case _:
                assert_never(node)

    def _pool(self, node: Pool) -> int:
        """The minimum is the maximum of the negative."""
        argument, minus = self.places[node.argument], -np.ones(node.size)
        if node.kind != "min":
            return self.builder.pool(node.kind, argument, node.causal)
        negative = self.builder.affine([(argument, minus)], 0.0 * minus)
        return self.builder.affine([(self.builder.pool("max", negative, node.causal), minus)], 0.0 * minus)

    def _choice(self, number: int) -> Choice:
        if number not in self.choices:
            raise TargetError(f"no circuit was chosen for node {number}")
        return self.choices[number]

    def _fragment(self, number: int) -> Fragment:
        choice = self._choice(number)
        if len(choice.fragments) != 1:
            raise TargetError(f"the choice {choice.family!r} has no circuit for node {number}")
        return _made(choice.fragments[0])

    def _tree(self, nodes: list[int], largest: bool) -> int:
        while len(nodes) > 1:
            pairs = zip(nodes[::2], nodes[1::2], strict=False)
            nodes = [self._pair(left, right, largest) for left, right in pairs] + nodes[len(nodes) // 2 * 2 :]
        return nodes[0]

    def _pair(self, left: int, right: int, largest: bool) -> int:
        ones = np.ones(self.builder.size(left))
        if (left, right) not in self.gates:
            difference = self.builder.affine([(left, ones), (right, -ones)], np.zeros(len(ones)))
            self.gates[left, right] = self.builder.relu(difference)
        gate = self.gates[left, right]
        kept, sign = (right, ones) if largest else (left, -ones)
        node = self.builder.affine([(kept, ones), (gate, sign)], np.zeros(len(ones)))
        self.extrema.append(Extremum(node, largest, left, right))
        return node

    def _product(self, number: int, node: Product) -> int:
        choice = self._choice(number)
        balance = _power_of_two(choice.numbers["balance"], "balance")
        left, right = self.places[node.left], self.places[node.right]
        halves = []
        for part, sign, fragment in zip(HALVES, (1.0, -1.0), choice.fragments, strict=True):
            size = np.ones(node.size)
            total = self.builder.affine([(left, balance * size), (right, sign * size)], np.zeros(node.size))
            halves.append(self._splice(number, part, _made(fragment), total))
        quarter = np.full(node.size, 0.25 / balance)
        return self.builder.affine([(halves[0], quarter), (halves[1], -quarter)], np.zeros(node.size))

    def _table(self, number: int, node: Approximated) -> int:
        """The expression itself; or with an incline, f = unit e + incline . x + intercept, of which a head computes e.

        What is affine is in the stream already, and the unit, a power of two, makes the values of the table smaller.
        """
        program, variables = program_of(node)
        places, numbers = [self.places[variable] for variable in variables], self._choice(number).numbers
        if not numbers:
            return self.builder.expression(program, places)
        incline = [float(numbers[f"incline {place}"]) for place in range(len(places))]
        intercept, unit = float(numbers["intercept"]), _power_of_two(numbers["unit"], "unit")
        if not all(abs(each) < 1e100 for each in (*incline, intercept)):
            raise CertificateError("a table with an incline has a finite one for each argument")
        rest = self.builder.expression(straightened(program, incline, intercept, unit), places)
        one = np.ones(node.size)
        lines = [(place, one * each) for place, each in zip(places, incline, strict=True) if each]
        return self.builder.affine([(rest, one * unit), *lines], one * intercept)

    def _gate_product(self, number: int, node: Product) -> int:
        """x y = (y (a + b x) - a y) / b; with b a power of two both divisions are exact.

        Mirrored, x y = (y (a + b x) - y (a - b x)) / (2 b): twice the heads, but all of it is new. Where y is itself
        made of products, a y / b would hold all of these, some hundred times as large at each level.
        """
        numbers = self._choice(number).numbers
        incline, intercept = _power_of_two(numbers["incline"], "incline"), float(numbers["intercept"])
        if node.left == node.right or not abs(intercept) < 1e100:
            raise CertificateError("a gate head multiplies two different values, by a finite intercept")
        follows = int(numbers["follows"])
        left, right = (
            self.places[each] for each in ((node.left, node.right) if follows == 0 else (node.right, node.left))
        )
        gated = self.builder.expression(gate_program(intercept, incline), [left, right])
        one = np.ones(node.size)
        if numbers.get("mirrored"):
            other = self.builder.expression(gate_program(intercept, -incline), [left, right])
            half = one / (2.0 * incline)
            return self.builder.affine([(gated, half), (other, -half)], 0.0 * one)
        return self.builder.affine([(gated, one / incline), (right, -one * (intercept / incline))], 0.0 * one)

    def _quotient(self, number: int, node: Quotient) -> int:
        choice = self._choice(number)
        shift, sign = _power_of_two(choice.numbers["shift"], "shift"), float(choice.numbers["sign"])
        if sign not in (1.0, -1.0):
            raise CertificateError(f"the sign of a quotient is {sign!r}; it must be 1 or -1")
        one = np.ones(node.size)
        numerator, denominator = self.places[node.numerator], self.places[node.denominator]
        if sign < 0.0:
            denominator = self.builder.affine([(denominator, -one)], 0.0 * one)
        halves = []
        for part, direction, fragment in zip(HALVES, (shift, -shift), choice.fragments, strict=True):
            shifted = self.builder.affine([(numerator, sign * one)], direction * one)
            halves.append(self._splice(number, part, _made(fragment), shifted, denominator))
        quarter = one * (0.25 / shift)
        return self.builder.affine([(halves[0], quarter), (halves[1], -quarter)], 0.0 * one)

    def _hypotenuse(self, number: int, node: Hypotenuse) -> int:
        one = np.ones(node.size)
        sides = []
        for side in (node.left, node.right):
            # A copy of its own: what enters an approximated node may be off, and the gates must be ready for that.
            copy = self.builder.affine([(self.places[side], one)], 0.0 * one)
            gate = self.builder.relu(copy)
            sides.append(self.builder.affine([(copy, -one), (gate, 2.0 * one)], 0.0 * one))
        longer = self._pair(sides[0], sides[1], True)
        shorter = self._pair(sides[0], sides[1], False)
        return self._splice(number, "", self._fragment(number), shorter, longer)

    def _splice(self, number: int, part: str, fragment: Fragment, argument: int, scale: int | None = None) -> int:
        """Copy the fragment for every component of the argument."""
        copies = self.builder.size(argument)
        first = 0
        names = {0: argument}
        for place, node in enumerate(fragment.graph.nodes):
            match node:
                case Input():
                    continue
                case Relu():
                    names[place] = self.builder.relu(names[node.argument])
                case Affine():
                    terms = [(names[term.node], _repeated(term.weights, copies)) for term in node.terms]
                    bias = np.tile(node.bias, copies)
                    if scale is not None and node.bias.any():
                        terms.append((scale, _repeated(node.bias[:, None], copies)))
                        bias = 0.0 * bias
                    names[place] = self.builder.affine(terms, bias)
                case _:
                    raise TargetError("a fragment has affine and relu nodes only")
            first = first or names[place]
        self.splices.append(Splice(number, part, fragment, argument, first, scale))
        return names[fragment.graph.output]


def _power_of_two(value: Any, what: str) -> float:
    """The identities of products and quotients are exact only for positive powers of two."""
    number = float(value)
    if not (number > 0.0 and np.isfinite(number) and np.frexp(number)[0] == 0.5 and 1e-100 < number < 1e100):
        raise CertificateError(f"the {what} of a product or quotient is {number!r}; it must be a power of two")
    return number


def _repeated(weights: Array, copies: int) -> Array:
    """The weights of `copies` equal blocks side by side; single numbers become a diagonal."""
    if weights.ndim == 1:
        return np.tile(weights, copies)
    if weights.shape == (1, 1):
        return np.full(copies, weights[0, 0])
    return weights if copies == 1 else np.asarray(np.kron(np.eye(copies), weights), dtype=np.float64)
