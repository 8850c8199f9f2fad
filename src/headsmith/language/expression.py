"""Expressions while they are being written down: linear combinations of recorded operations, simplified on the way.

    value ::= constant + sum coefficient * atom         exact rational numbers
    atom  ::= variable | operation(value, ...)           recorded once: equal operations are one atom

So 2*x + 3*y - 1 is one affine node, x - x is 0, x*y and y*x are the same product, and what nobody reads is never built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph, PoolKind

LARGEST_POWER = 64
POOLS: dict[str, PoolKind] = {"mean": "mean", "max": "max", "min": "min"}

Kind = Literal[
    "variable",
    "relu",
    "maximum",
    "minimum",
    "product",
    "quotient",
    "hypotenuse",
    "function",
    "positional",
    "pool",
    "move",
    "held",
    "attend",
]
Key = tuple[tuple[tuple[int, Fraction], ...], Fraction]


@dataclass(frozen=True)
class Value:
    """constant + sum coefficient * atom; atoms are numbers of the recorder's list, in rising order."""

    terms: tuple[tuple[int, Fraction], ...]
    constant: Fraction

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def atom(self) -> int | None:
        """The atom that this value is a multiple of, if it is one."""
        return self.terms[0][0] if len(self.terms) == 1 and not self.constant else None

    @property
    def unit(self) -> tuple[Fraction, Value]:
        """A factor and the rest: pulled out of multiples of one atom, where that is exact."""
        if self.atom is None:
            return Fraction(1), self
        return self.terms[0][1], Value(((self.atom, Fraction(1)),), Fraction(0))

    def key(self) -> Key:
        return self.terms, self.constant


def constant(number: float | Fraction) -> Value:
    """A number as a value."""
    if isinstance(number, float) and not math.isfinite(number):
        raise TargetError(f"the constant {number} is not a finite number")
    return Value((), Fraction(number))


ZERO = constant(0)


def combine(left: Value, factor: Fraction, right: Value) -> Value:
    """left + factor * right."""
    terms = dict(left.terms)
    for atom, coefficient in right.terms:
        terms[atom] = terms.get(atom, Fraction(0)) + factor * coefficient
    kept = tuple(sorted((atom, coefficient) for atom, coefficient in terms.items() if coefficient))
    return Value(kept, left.constant + factor * right.constant)


def scale(factor: Fraction, value: Value) -> Value:
    """factor * value."""
    return combine(ZERO, factor, value)


@dataclass(frozen=True)
class Operation:
    """A recorded operation: `name` and `parameter` are those of a function, `name` also that of a variable.

    About the tokens of a sequence: `table` holds the constants or the targets of each token, `name` the kind of pool.
    The arguments of attention are the numbers of a query, as many of a key, and a value.
    """

    kind: Kind
    arguments: tuple[Value, ...] = ()
    name: str = ""
    parameter: float | None = None
    table: tuple[float, ...] = ()
    causal: bool = False


class Recorder:
    """The operations of one target, each recorded once. In a sequence a value is a number that every token has."""

    is_sequence: ClassVar[bool] = False

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._numbers: dict[Operation, int] = {}

    def _record(self, operation: Operation) -> Value:
        if operation not in self._numbers:
            self._numbers[operation] = len(self.operations)
            self.operations.append(operation)
        return Value(((self._numbers[operation], Fraction(1)),), Fraction(0))

    def variable(self, name: str) -> Value:
        """An input."""
        return self._record(Operation("variable", name=name))

    def relu(self, value: Value) -> Value:
        """max(value, 0)."""
        if value.is_constant:
            return constant(max(value.constant, Fraction(0)))
        factor, inner = value.unit
        if factor != 1:
            # relu(c a) = c relu(a) and relu(-c a) = c (relu(a) - a), c > 0: one gate for both signs.
            gate = scale(abs(factor), self.relu(inner))
            return gate if factor > 0 else combine(gate, factor, inner)
        if inner.atom is not None and self.operations[inner.atom].kind == "relu":
            return inner
        opposite = scale(Fraction(-1), value)
        if Operation("relu", (opposite,)) in self._numbers:
            return combine(value, Fraction(1), self._record(Operation("relu", (opposite,))))
        return self._record(Operation("relu", (value,)))

    def held(self, value: Value) -> Value:
        """The value as one atom, which later sums read as it is instead of taking it apart."""
        return self._record(Operation("held", (value,)))

    def extremum(self, values: Sequence[Value], largest: bool) -> Value:
        """The largest or the smallest of several values."""
        fixed = [value.constant for value in values if value.is_constant]
        moving = sorted({value for value in values if not value.is_constant}, key=Value.key)
        pick = max if largest else min
        if not moving:
            return constant(pick(fixed))
        if fixed and len(moving) == 1:
            # max(a, c) = c + relu(a - c), min(a, c) = a - relu(a - c).
            bound = constant(pick(fixed))
            gate = self.relu(combine(moving[0], Fraction(-1), bound))
            return combine(bound, Fraction(1), gate) if largest else combine(moving[0], Fraction(-1), gate)
        if len(moving) == 1:
            return moving[0]
        arguments = (*moving, *([constant(pick(fixed))] if fixed else []))
        return self._record(Operation("maximum" if largest else "minimum", arguments))

    def absolute(self, value: Value) -> Value:
        """|a| = 2 relu(a) - a."""
        return combine(scale(Fraction(2), self.relu(value)), Fraction(-1), value)

    def clip(self, value: Value, low: Value, high: Value) -> Value:
        """min(max(value, low), high): for constant ends low + relu(value - low) - relu(value - high)."""
        if not (low.is_constant and high.is_constant):
            return self.extremum([self.extremum([value, low], True), high], False)
        if low.constant > high.constant:
            raise TargetError(f"clip to [{float(low.constant)}, {float(high.constant)}]: the ends are reversed")
        above, beyond = (self.relu(combine(value, Fraction(-1), end)) for end in (low, high))
        return combine(combine(low, Fraction(1), above), Fraction(-1), beyond)

    def _one_plus_exp(self, value: Value) -> Value | None:
        """v, if the value is 1 + exp(v)."""
        if value.constant != 1 or len(value.terms) != 1 or value.terms[0][1] != 1:
            return None
        operation = self.operations[value.terms[0][0]]
        return operation.arguments[0] if operation.name == "exp" and operation.kind == "function" else None

    def multiply(self, left: Value, right: Value) -> Value:
        """left * right."""
        if left.is_constant or right.is_constant:
            number, value = (left, right) if left.is_constant else (right, left)
            return scale(number.constant, value)
        (first, left), (second, right) = left.unit, right.unit
        ratio = right.terms[0][1] / left.terms[0][1]
        if scale(ratio, left) == right:
            return scale(first * second * ratio, self.function("square", left))
        arguments = tuple(sorted((left, right), key=Value.key))
        return scale(first * second, self._record(Operation("product", arguments)))

    def divide(self, left: Value, right: Value) -> Value:
        """left / right."""
        if right.is_constant:
            if right.constant == 0:
                raise TargetError("division by the constant 0")
            return scale(1 / right.constant, left)
        (first, left), (second, right) = left.unit, right.unit
        if left.is_constant:
            exponent = self._one_plus_exp(right)
            if exponent is not None:  # 1 / (1 + exp(v)) = sigmoid(-v)
                return scale(left.constant, self.function("sigmoid", scale(Fraction(-1), exponent)))
            return scale(left.constant / second, self.function("reciprocal", right))
        return scale(first / second, self._record(Operation("quotient", (left, right))))

    def hypotenuse(self, left: Value, right: Value) -> Value:
        """sqrt(left^2 + right^2)."""
        if left.is_constant and left.constant == 0:
            return self.absolute(right)
        if right.is_constant and right.constant == 0:
            return self.absolute(left)
        if left == right:  # A proof has two arguments here, and -a is as good as a.
            right = scale(Fraction(-1), right)
        return self._record(Operation("hypotenuse", tuple(sorted((left, right), key=Value.key))))

    def power(self, base: Value, exponent: Value) -> Value:
        """base ** exponent: whole numbers up to 64 and real numbers as functions, anything else through exp and log."""
        if not exponent.is_constant:
            if base.is_constant and base.constant <= 0:
                raise TargetError(
                    f"{float(base.constant):g} to a power that varies: only a positive number has every power"
                )
            return self.function("exp", self.multiply(exponent, self.function("log", base)))
        number = float(exponent.constant)
        if base.is_constant:
            return constant(_plain_power(float(base.constant), number))
        if abs(number) > LARGEST_POWER:
            kind = "integer power" if number.is_integer() else "power"
            raise TargetError(
                f"{kind} of {number:g}: exponents go up to {LARGEST_POWER}, since beyond that x**n spans more orders "
                f"of magnitude than doubles carry digits; write exp(n*log(x)) for x > 0, or a product of smaller powers"
            )
        match number:
            case 0.0:
                return constant(1)
            case 1.0:
                return base
            case 2.0:
                return self.multiply(base, base)
            case 0.5:
                return self.function("sqrt", base)
            case -1.0:
                return self.divide(constant(1), base)
        return self.function("power", base, number)

    def function(self, name: str, value: Value, parameter: float | None = None) -> Value:
        """A named function of one variable; of a constant, its value."""
        if name not in FUNCTIONS:
            raise TargetError(f"there is no function named {name!r}")
        if not value.is_constant:
            factor, inner = value.unit
            if name in ("square", "reciprocal") and factor != 1:
                return scale(factor**2 if name == "square" else 1 / factor, self.function(name, inner))
            exponent = self._one_plus_exp(value) if name == "log" else None
            if exponent is not None:  # log(1 + exp(v)) = softplus(v)
                return self.function("softplus", exponent)
            return self._record(Operation("function", (value,), name, parameter))
        number = float(value.constant)
        function = FUNCTIONS[name]
        if not function.domain(parameter).covers(number, number):
            raise TargetError(f"{name}({number:g}) is not defined: {name} needs {function.domain(parameter).needs}")
        result = float(function.value(number, parameter))
        if not math.isfinite(result):
            raise TargetError(f"{name}({number:g}) is not a finite number")
        return constant(result)


def _plain_power(base: float, exponent: float) -> float:
    try:
        result = base**exponent
    except (OverflowError, ZeroDivisionError) as problem:
        raise TargetError(f"{base:g} ** {exponent:g} is not a finite number") from problem
    if isinstance(result, complex):
        raise TargetError(f"{base:g} ** {exponent:g} is not a real number")
    return float(result)


def build(recorder: Recorder, outputs: Sequence[Value], names: Sequence[str]) -> Graph:
    """The graph of the outputs: scalar nodes, and one affine node that stacks the outputs."""
    return _Construction(recorder, names).graph(outputs)


class _Construction:
    def __init__(self, recorder: Recorder, names: Sequence[str]) -> None:
        self.operations, self.names = recorder.operations, list(names)
        self.builder = Builder(names)
        self.atoms: dict[int, int] = {}
        self.values: dict[Value, int] = {}
        self.vectors: dict[tuple[Value, ...], int] = {}

    def graph(self, outputs: Sequence[Value]) -> Graph:
        for atom in self._reachable(outputs):
            if self.operations[atom].kind != "variable":
                self.atoms[atom] = self._operation(self.operations[atom])
        return self.builder.graph(self._affine(outputs))

    def _reachable(self, outputs: Sequence[Value]) -> list[int]:
        """Atoms that the outputs need; arguments are recorded before what reads them."""
        found: set[int] = set()
        stack = [atom for output in outputs for atom, _ in output.terms]
        while stack:
            atom = stack.pop()
            if atom not in found:
                found.add(atom)
                stack += [inner for value in self.operations[atom].arguments for inner, _ in value.terms]
        return sorted(found)

    def _operation(self, operation: Operation) -> int:
        if operation.kind == "attend":
            width = len(operation.arguments) // 2
            queries, keys, values = (operation.arguments[part : part + width] for part in (0, width, 2 * width))
            places = (self._vector(queries), self._vector(keys), self._node(values[0]))
            return self.builder.attend(*places, operation.causal)
        arguments = [self._node(value) for value in operation.arguments]
        match operation.kind:
            case "relu":
                return self.builder.relu(arguments[0])
            case "maximum":
                return self.builder.maximum(arguments)
            case "minimum":
                return self.builder.minimum(arguments)
            case "product":
                return self.builder.product(arguments[0], arguments[1])
            case "quotient":
                return self.builder.quotient(arguments[0], arguments[1])
            case "hypotenuse":
                return self.builder.hypotenuse(arguments[0], arguments[1])
            case "function":
                return self.builder.function(operation.name, arguments[0], operation.parameter)
            case "positional":
                return self.builder.positional(np.array(operation.table, dtype=np.float64)[:, None])
            case "pool":
                return self.builder.pool(POOLS[operation.name], arguments[0], operation.causal)
            case "move":
                return self.builder.move(arguments[0], [int(target) for target in operation.table])
            case "held":
                return arguments[0]
        raise AssertionError(operation.kind)

    def _node(self, value: Value) -> int:
        """The node of a value: an atom's own, or an affine node."""
        atom = value.atom
        if atom in self.atoms and value.terms[0][1] == 1:
            return self.atoms[atom]
        if value not in self.values:
            self.values[value] = self._affine([value])
        return self.values[value]

    def _vector(self, rows: tuple[Value, ...]) -> int:
        """One node for several values."""
        if rows not in self.vectors:
            self.vectors[rows] = self._affine(rows)
        return self.vectors[rows]

    def _affine(self, rows: Sequence[Value]) -> int:
        weights: dict[int, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
        for row, value in enumerate(rows):
            for atom, coefficient in value.terms:
                operation = self.operations[atom]
                node = self.atoms.get(atom, self.builder.input)
                column = self.names.index(operation.name) if operation.kind == "variable" else 0
                matrix = weights.setdefault(node, np.zeros((len(rows), self.builder.size(node))))
                matrix[row, column] = _double(coefficient)
        bias = np.array([_double(value.constant) for value in rows], dtype=np.float64)
        return self.builder.affine(sorted(weights.items(), key=lambda item: item[0]), bias)


def _double(number: Fraction) -> float:
    """The nearest double, the one rounding between the text and the graph."""
    try:
        return float(number)
    except OverflowError:
        raise TargetError("a constant is larger than double precision can hold") from None
