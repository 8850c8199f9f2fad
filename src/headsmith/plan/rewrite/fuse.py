"""Sub-expressions of one or two linear forms become single nodes, because one table head can stand for all of it.

    sin(2 x + 1) * x + x**3          depends on x alone: one program of one variable
    sin(x) * exp(-y), x * y * (x + y)    on two linear forms: one program of two variables
    x * y * z                        on three: x * y is computed first, and the result times z is a program of two

`fuse` changes how a graph is written, never what it computes: coefficients are exact rationals, and a sum is only
regrouped. It is a function of the graph and of a `Fusion` alone, so that the proof kernel can repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.core.program import Call, Linear, Over, Program, Step, Times
from headsmith.language.builder import Builder, pruned, taken_apart
from headsmith.language.graph import (
    GIVEN,
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
    arguments,
    once_for_graph,
)
from headsmith.plan.analysis.flow import exchanges
from headsmith.plan.analysis.piecewise import Atom, ExactForm, Forms


@dataclass(frozen=True)
class Fusion:
    """How much is fused: programs of at most so many `variables`. What `exits` (nodes of the target) compute is always
    computed on its own, and nodes in `plain` neither take in what they read nor are taken in. With `apart`, quotients
    become products with reciprocals first, and the others are about the nodes of that graph."""

    variables: int
    exits: frozenset[int] = frozenset()
    plain: frozenset[int] = frozenset()
    apart: bool = False


@dataclass(frozen=True, eq=False)
class Space:
    """The span of a few linearly independent forms over atoms, without constants."""

    rows: tuple[ExactForm, ...]

    @property
    def dimension(self) -> int:
        return len(self.rows)

    def coordinates(self, form: ExactForm) -> list[Fraction] | None:
        """The coefficients c with form = sum c_i row_i (constants aside), or None."""
        atoms = sorted({atom for row in (*self.rows, form) for atom in row.terms})
        matrix = [
            [row.terms.get(atom, Fraction(0)) for row in self.rows] + [form.terms.get(atom, Fraction(0))]
            for atom in atoms
        ]
        pivots: list[list[Fraction]] = []
        for column in range(self.dimension):
            rest = [row for row in matrix if not any(row is pivot for pivot in pivots)]
            pivot = next((row for row in rest if row[column]), None)
            if pivot is None:
                raise AssertionError("the rows of a space are independent")
            pivot[:] = [value / pivot[column] for value in pivot]
            pivots.append(pivot)
            for row in matrix:
                if row is not pivot and row[column]:
                    factor = row[column]
                    row[:] = [value - factor * leader for value, leader in zip(row, pivot, strict=True)]
        if any(row[-1] for row in matrix if not any(row is pivot for pivot in pivots)):
            return None
        return [pivot[-1] for pivot in pivots]

    def joined(self, forms: Iterable[ExactForm], limit: int) -> Space | None:
        """The span of this and of `forms`, if its dimension is within the limit."""
        space = self
        for form in forms:
            if form.terms and space.coordinates(form) is None:
                if space.dimension == limit:
                    return None
                space = Space((*space.rows, ExactForm(dict(form.terms), Fraction(0))))
        return space


NOTHING = Space(())


@dataclass(frozen=True, eq=False)
class _Inner:
    """A non-linear node that may be taken in by its readers: its arguments as forms, and the space it depends on."""

    forms: tuple[ExactForm, ...]
    space: Space


@once_for_graph
def named(target: Graph, fusion: Fusion) -> tuple[Graph, list[int]]:
    """The fused graph, and for each of its nodes the node of the target that it is (with `apart`, of the target with
    its quotients taken apart); -1 stands for none, which expressions have that are sums."""
    fuser = _Fuser(target, fusion)
    graph = fuser.result()[0]
    names = {place: number for number, place in fuser.places.items()} or {number: number for number in fuser.kept}
    return graph, [names.get(number, -1) for number in fuser.kept]


def fuse(target: Graph, fusion: Fusion) -> Graph:
    """A graph of the same function with fewer nodes that need a head.

    Guarantee: the output of the result equals the target's in exact arithmetic.
    """
    return named(target, fusion)[0]


def fused_nodes(target: Graph, fusion: Fusion) -> dict[int, frozenset[int]]:
    """For each expression of the fused graph, the nodes of the target that it takes in."""
    return _Fuser(target, fusion).result()[1]


class _Fuser:
    def __init__(self, target: Graph, fusion: Fusion) -> None:
        target = taken_apart(target)[0] if fusion.apart else target
        self.target, self.fusion = target, fusion
        # An exchange is known as a whole: what it reads and what it returns stay nodes.
        self.whole = {each for result, (source, _) in exchanges(target).items() for each in (source, result)}
        self.forms = Forms(target, self.whole)
        self.builder = Builder(target.input.names)
        self.inner: dict[int, _Inner] = {}
        self.places: dict[int, int] = {}
        self.lines: dict[tuple[tuple[Atom, Fraction], ...], int] = {}
        self.spaces: dict[tuple[tuple[tuple[Atom, Fraction], ...], ...], Space] = {}
        self.expressions: dict[tuple[Program, tuple[int, ...]], int] = {}
        self.members: dict[int, frozenset[int]] = {}
        self.kept: list[int] = []

    def result(self) -> tuple[Graph, dict[int, frozenset[int]]]:
        if self.fusion.variables not in (1, 2):
            raise TargetError(f"expressions of {self.fusion.variables} variables cannot be fused; 1 or 2 can")
        order = self.target.used
        for number in order:
            self._consider(number)
        if self._nothing_to_fuse(order):
            self.kept = sorted({0, *order})
            return (self.target if len(order) == len(self.target.nodes) else pruned(self.target)), {}
        for number in order:
            # In this order nothing that is placed is far below: no deep recursion.
            if number not in self.inner:
                self._place(number)
        graph = self.builder.graph(self._place(self.target.output))
        self.kept = sorted({0, *graph.used})
        members = {place: self.members[number] for place, number in enumerate(self.kept) if number in self.members}
        return pruned(graph), members

    # ---- what may be taken in ----------------------------------------------------------------------------------------

    def _consider(self, number: int) -> None:
        node = self.target.nodes[number]
        if not isinstance(node, Function | Product | Quotient) or node.size > 1 or number in self.fusion.plain:
            return
        if isinstance(node, Function) and node.name not in FUNCTIONS:
            return
        forms = [self._form(argument) for argument in self.target.reads[number]]
        spaces = [self._space_of(form) for form in forms]
        # Arguments that depend on too much are computed first, the one that depends on more before the other.
        order = sorted(
            range(len(forms)), key=lambda index: -99 if (space := spaces[index]) is None else -space.dimension
        )
        for index in (None, *order):
            if index is not None:
                forms[index] = self._alone(self.target.reads[number][index])
            space: Space | None = NOTHING
            for form in forms:
                inner = self._space_of(form)
                space = (
                    space.joined(inner.rows, self.fusion.variables) if space is not None and inner is not None else None
                )
            if space is not None and space.dimension:
                self.inner[number] = _Inner(tuple(forms), space)
                return

    def _nothing_to_fuse(self, order: Sequence[int]) -> bool:
        """Whether the graph would be written as it is, in the same order: sums read no sums, and at most one node could
        take in others. It stands between sums of its own, as many as it has variables, and the node that reads it."""
        nodes, reads = self.target.nodes, self.target.reads
        sums = [node for number in order if isinstance(node := nodes[number], Affine)]
        if len(self.inner) > 1 or any(isinstance(nodes[term.node], Affine) for node in sums for term in node.terms):
            return False
        read = Counter(each for number in order for each in reads[number])
        for number, inner in self.inner.items():
            own, place = reads[number], order.index(number)
            before, after = tuple(order[place - len(own) : place]), order[place + 1 : place + 2]
            alone = own == before and all(isinstance(nodes[each], Affine) and read[each] == 1 for each in own)
            if not alone or len(own) != inner.space.dimension or any(number not in reads[each] for each in after):
                return False
        return True

    def _form(self, number: int) -> ExactForm:
        return self.forms.of(number, 0)

    def _alone(self, number: int) -> ExactForm:
        """The argument as a value that is there: itself if it is a linear form of such values, else one atom."""
        form = self._form(number)
        free = all(not self._taken(atom) for atom in form.terms)
        return form if free else ExactForm({(number, 0): Fraction(1)}, Fraction(0))

    def _taken(self, atom: Atom) -> bool:
        return atom[0] in self.inner and atom[0] not in self.fusion.exits and atom[0] not in self.whole

    def _space_of(self, form: ExactForm) -> Space | None:
        """What a form depends on; None where that is too much."""
        free = ExactForm({atom: c for atom, c in form.terms.items() if not self._taken(atom)}, Fraction(0))
        space = NOTHING.joined([free], self.fusion.variables)
        for atom in form.terms:
            if space is not None and self._taken(atom):
                space = space.joined(self.inner[atom[0]].space.rows, self.fusion.variables)
        return space

    # ---- writing the new graph ---------------------------------------------------------------------------------------

    def _place(self, number: int) -> int:
        if number not in self.places:
            self.places[number] = self._placed(number)
        return self.places[number]

    def _placed(self, number: int) -> int:
        node, builder = self.target.nodes[number], self.builder
        if number in self.inner:
            return self._exit(number)
        match node:
            case Input():
                return builder.input
            case Affine():
                return self._affine(number, node)
            case Relu():
                return builder.relu(self._place(node.argument))
            case Maximum():
                return builder.maximum([self._place(argument) for argument in node.arguments])
            case Minimum():
                return builder.minimum([self._place(argument) for argument in node.arguments])
            case Product():
                return builder.product(self._place(node.left), self._place(node.right))
            case Quotient():
                return builder.quotient(self._place(node.numerator), self._place(node.denominator))
            case Hypotenuse():
                return builder.hypotenuse(self._place(node.left), self._place(node.right))
            case Function():
                return builder.function(node.name, self._place(node.argument), node.parameter)
            case Expression():
                return builder.expression(node.program, [self._place(argument) for argument in node.arguments])
            case Positional():
                return builder.positional(node.values)
            case Pool():
                return builder.pool(node.kind, self._place(node.argument), node.causal)
            case Move():
                return builder.move(self._place(node.argument), node.targets)
            case Attend():
                queries, keys, values = (self._place(argument) for argument in arguments(node))
                return builder.attend(queries, keys, values, node.causal)
            case Average():
                raise TargetError(GIVEN)
            case Sampled():
                return builder.add(replace(node, arguments=tuple(self._place(each) for each in node.arguments)))

    def _exit(self, number: int) -> int:
        """The node on its own: with what it takes in as one expression, or as it is if it takes in nothing."""
        inner, node = self.inner[number], self.target.nodes[number]
        if all(not self._taken(atom) for form in inner.forms for atom in form.terms):
            lines = [self._line(form) for form in inner.forms]
            if None not in lines:
                places = [line for line in lines if line is not None]
                match node:
                    case Function():
                        return self.builder.function(node.name, places[0], node.parameter)
                    case Product() if len(set(places)) == 2:
                        return self.builder.product(*places)
                    case Quotient() if len(set(places)) == 2:
                        return self.builder.quotient(*places)
        form = ExactForm({(number, 0): Fraction(1)}, Fraction(0))
        return self._expression(form, inner.space, {number})

    def _affine(self, number: int, node: Affine) -> int:
        """The node with what can be fused as expressions; as it is, where nothing can be, or where its rows are atoms
        or sums no doubles. (Sums regrouped for nothing are harder to recognise: rule Same of the kernel.)"""
        rows = [self.forms.of(number, row) for row in range(node.size)]
        whole = self.forms.small(node) and all((number, index) not in row.terms for index, row in enumerate(rows))
        if whole and any(self._taken(atom) for row in rows for atom in row.terms):
            coefficients: dict[tuple[int, int, int], Fraction] = {}
            for index, row in enumerate(rows):
                for place, component, weight in self._parts(row):
                    key = (place, index, component)
                    coefficients[key] = coefficients.get(key, Fraction(0)) + weight
            constants = [row.constant for row in rows]
            if all(_is_double(value) for value in (*coefficients.values(), *constants)):
                return self._weighted(coefficients, constants)
        terms = [(self._place(term.node), term.weights) for term in node.terms]
        return self.builder.affine(terms, node.bias)

    def _weighted(self, coefficients: dict[tuple[int, int, int], Fraction], constants: Sequence[Fraction]) -> int:
        """The affine node with coefficients by (node, row, component)."""
        weights: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
        for (place, row, component), value in coefficients.items():
            matrix = weights.setdefault(place, np.zeros((len(constants), self.builder.size(place))))
            matrix[row, component] = float(value)
        return self.builder.affine(list(weights.items()), [float(value) for value in constants])

    def _parts(self, row: ExactForm) -> list[tuple[int, int, Fraction]]:
        """(node, component, weight): values that are there, and sums of what can be fused as expressions."""
        parts = []
        groups: list[tuple[Space, dict[Atom, Fraction]]] = []
        for atom, coefficient in row.terms.items():
            if not self._taken(atom):
                parts.append((self._place(atom[0]), atom[1], coefficient))
                continue
            space = self.inner[atom[0]].space
            for index, (known, members) in enumerate(groups):
                joined = known.joined(space.rows, self.fusion.variables)
                if joined is not None:
                    groups[index] = (joined, {**members, atom: coefficient})
                    break
            else:
                groups.append((space, {atom: coefficient}))
        for space, members in groups:
            if len(members) == 1:
                ((atom, coefficient),) = members.items()
                parts.append((self._place(atom[0]), 0, coefficient))
            else:
                parts.append((self._expression(ExactForm(members, Fraction(0)), space, set()), 0, Fraction(1)))
        return parts

    def _expression(self, form: ExactForm, space: Space, opened: set[int]) -> int:
        """A node that computes the form; atoms in `opened` are taken in although they are exits."""
        space, places = self._basis(space)
        steps: list[Step] = []
        writer = _Writer(self, space, steps, opened)
        writer.form(form)
        program = Program(space.dimension, tuple(steps))
        if (program, places) not in self.expressions:
            self.expressions[program, places] = self.builder.expression(program, places)
        place = self.expressions[program, places]
        self.members[place] = frozenset(writer.known)
        return place

    def _basis(self, space: Space) -> tuple[Space, tuple[int, ...]]:
        """One space for all nodes that depend on it, with the nodes that are its forms."""
        key = _reduced(space)
        space = self.spaces.setdefault(key, space)
        places = [self._line(row) for row in space.rows]
        if None in places:
            raise TargetError("a linear form has coefficients that are not doubles")
        return space, tuple(place for place in places if place is not None)

    def _line(self, form: ExactForm) -> int | None:
        """The affine node that is this linear form; None if its coefficients are not doubles."""
        key = (*sorted(form.terms.items()), ((-1, -1), form.constant))
        if key in self.lines:
            return self.lines[key]
        coefficients: dict[tuple[int, int, int], Fraction] = {}
        for (number, component), coefficient in form.terms.items():
            place = (self._place(number), 0, component)
            coefficients[place] = coefficients.get(place, Fraction(0)) + coefficient
        if not all(_is_double(value) for value in (*coefficients.values(), form.constant)):
            return None
        self.lines[key] = self._weighted(coefficients, [form.constant])
        return self.lines[key]


@dataclass(eq=False)
class _Writer:
    """Writes forms and nodes as steps of a program over the rows of a space."""

    fuser: _Fuser
    space: Space
    steps: list[Step]
    opened: set[int]

    def __post_init__(self) -> None:
        self.known: dict[int, int] = {}

    def _add(self, step: Step) -> int:
        self.steps.append(step)
        return self.space.dimension + len(self.steps) - 1

    def form(self, form: ExactForm) -> int:
        """The operand that is the form's value."""
        terms: list[tuple[Fraction, int]] = []
        free = {}
        for atom, coefficient in form.terms.items():
            if self.fuser._taken(atom) or atom[0] in self.opened:
                terms.append((coefficient, self._node(atom[0])))
            else:
                free[atom] = coefficient
        if free:
            coordinates = self.space.coordinates(ExactForm(free, Fraction(0)))
            assert coordinates is not None, "a space holds all forms of its nodes"
            terms = [(c, index) for index, c in enumerate(coordinates) if c] + terms
        if form.constant == 0 and len(terms) == 1 and terms[0][0] == 1 and terms[0][1] >= 0:
            return terms[0][1]
        return self._add(Linear(tuple(terms), form.constant))

    def _node(self, number: int) -> int:
        if number not in self.known:
            node, operands = self.fuser.target.nodes[number], [self.form(f) for f in self.fuser.inner[number].forms]
            match node:
                case Function():
                    self.known[number] = self._add(Call(node.name, operands[0], node.parameter))
                case Product():
                    self.known[number] = self._add(Times(operands[0], operands[1]))
                case Quotient():
                    self.known[number] = self._add(Over(operands[0], operands[1]))
                case _:
                    raise AssertionError(f"node {number} cannot be taken in")
        return self.known[number]


def _is_double(value: Fraction) -> bool:
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def _reduced(space: Space) -> tuple[tuple[tuple[Atom, Fraction], ...], ...]:
    """The reduced echelon form: the same for every basis of the space."""
    rows = [dict(row.terms) for row in space.rows]
    done: list[dict[Atom, Fraction]] = []
    for _ in range(len(rows)):
        pivot = min(min(row) for row in rows)
        leader = next(row for row in rows if pivot in row)
        rows.remove(leader)
        leader = {atom: c / leader[pivot] for atom, c in leader.items()}
        rows, done = ([_minus(row, leader, pivot) for row in each] for each in (rows, done))
        done.append(leader)
    return tuple(tuple(sorted(row.items())) for row in done)


def _minus(row: dict[Atom, Fraction], leader: dict[Atom, Fraction], pivot: Atom) -> dict[Atom, Fraction]:
    factor = row.get(pivot, Fraction(0))
    result = {atom: row.get(atom, Fraction(0)) - factor * leader.get(atom, Fraction(0)) for atom in {*row, *leader}}
    return {atom: c for atom, c in result.items() if c}
