"""Ranges of sums that share an argument, where adding intervals term by term would forget that they do.

    2 relu(a) - a                 is |a|: never negative
    relu(a - l) - relu(a - h)     is a clip: between 0 and h - l
    z - max(z, ...)               is never positive

A `Form` is a component of an affine node as an exact linear combination of atoms: components of other nodes.
Gates whose arguments are multiples of one form t, up to constants, make with the part of the sum that is a multiple
of t one piecewise linear function of t alone; it takes its extremes at the ends of t's interval and at the kinks.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from headsmith.core.intervals import (
    Interval,
    added,
    divided,
    fraction_bounds,
    hull,
    intersected,
    interval_of,
    multiple,
    point,
    range_of_sum,
)
from headsmith.language.graph import Affine, Graph, Input, Maximum, Minimum, Node, Quotient, Relu

LARGEST_FORM = 1024
LARGEST_HALVES = 32
LARGEST_WEIGHTS = 1024

Atom = tuple[int, int]
"""A node that is not affine, and a component of it."""
Direction = tuple[tuple[Atom, Fraction], ...]


@dataclass(frozen=True)
class ExactForm:
    """constant + sum coefficient * atom, exactly."""

    terms: dict[Atom, Fraction]
    constant: Fraction

    def plus(self, factor: Fraction, other: ExactForm) -> ExactForm:
        """self + factor * other."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, Fraction(0)) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return ExactForm(terms, self.constant + factor * other.constant)

    def without(self, atom: Atom) -> ExactForm:
        return ExactForm({other: c for other, c in self.terms.items() if other != atom}, self.constant)


class Forms:
    """The forms of a graph's small affine nodes, each found once. Larger nodes are atoms, and those in `atoms`."""

    def __init__(self, graph: Graph, atoms: Container[int] = ()) -> None:
        self._graph, self._atoms = graph, atoms
        self._known: dict[int, list[ExactForm]] = {}
        self._directions: dict[Atom, Direction] = {}

    def small(self, node: Affine) -> bool:
        return bool(node.size * sum(term.weights.shape[-1] for term in node.terms) <= LARGEST_WEIGHTS)

    def expanded(self, number: int) -> bool:
        """Whether a node's forms are about other nodes: it is no atom itself."""
        rows = range(self._graph.nodes[number].size)
        return all((number, row) not in self.of(number, row).terms for row in rows)

    def of(self, number: int, component: int) -> ExactForm:
        node = self._graph.nodes[number]
        if not (isinstance(node, Affine) and self.small(node)) or number in self._atoms:
            return ExactForm({(number, component): Fraction(1)}, Fraction(0))
        if number not in self._known:
            self._known[number] = [self._row(number, node, row) for row in range(node.size)]
        return self._known[number][component]

    def _row(self, number: int, node: Affine, row: int) -> ExactForm:
        terms: dict[Atom, Fraction] = {}
        constant = Fraction(float(node.bias[row]))
        for term in node.terms:
            weights = {row: term.weights[row]} if term.weights.ndim == 1 else dict(enumerate(term.weights[row]))
            for column, weight in weights.items():
                if weight:
                    inner, factor = self.of(term.node, column), Fraction(float(weight))
                    constant += factor * inner.constant
                    for atom, coefficient in inner.terms.items():
                        terms[atom] = terms.get(atom, Fraction(0)) + factor * coefficient
        form = ExactForm({atom: coefficient for atom, coefficient in terms.items() if coefficient}, constant)
        return form if len(form.terms) <= LARGEST_FORM else ExactForm({(number, row): Fraction(1)}, Fraction(0))

    def direction(self, number: int, component: int) -> Direction:
        """The form without its constant, divided by its first coefficient: what parallel forms have in common."""
        if (number, component) not in self._directions:
            terms = sorted(self.of(number, component).terms.items())
            self._directions[number, component] = tuple((atom, c / terms[0][1]) for atom, c in terms)
        return self._directions[number, component]


def form_range(form: ExactForm, found: Sequence[Interval]) -> Interval:
    """Term by term, for every column of the ranges `found`; the first column rounded once only."""
    terms = [
        (c, found[node].low[component], found[node].high[component]) for (node, component), c in form.terms.items()
    ]
    return range_of_sum(form.constant, terms, found[0].low.shape[1])


def affine_range(forms: Forms, graph: Graph, number: int, component: int, found: Sequence[Interval]) -> Interval:
    """The range of one component of an affine node: term by term, and by what its gates, maxima and minima share."""
    form = forms.of(number, component)
    result = form_range(form, found)
    if len(form.terms) < 2:
        return result
    gates = sum(isinstance(graph.nodes[atom[0]], Relu) for atom in form.terms)
    if gates:
        result = intersected(_by_gates(forms, graph, form, found), result)
    if 2 <= gates <= LARGEST_HALVES:
        result = intersected(_by_halves(forms, graph, form, found), result)
    for atom in form.terms:
        node = graph.nodes[atom[0]]
        if meets(forms, form, node, atom):
            result = intersected(_by_choice(forms, graph, form, atom, found), result)
    return result


def is_layered(graph: Graph) -> bool:
    """Whether every sum is of one node, and all else gates: no sum reads an argument twice."""
    return all(
        isinstance(node, Input | Relu) or (isinstance(node, Affine) and len(node.terms) <= 1) for node in graph.nodes
    )


def meets(forms: Forms, form: ExactForm, node: Node, atom: Atom) -> bool:
    """Whether the node of an atom is a maximum or minimum of which an argument has an atom in common with the rest of
    the form: only then can putting the argument in its place cancel anything."""
    return isinstance(node, Maximum | Minimum) and any(
        other in form.terms and other != atom
        for argument in node.arguments
        for other in forms.of(argument, atom[1]).terms
    )


def quotient_range(forms: Forms, node: Quotient, component: int, found: Sequence[Interval]) -> Interval:
    """The range of one component of a quotient whose denominator holds a multiple of its numerator.

    a / (c a + r) for c > 0 rises in a and falls in r where neither is negative: its extremes are at two corners.
    """
    numerator, denominator = forms.of(node.numerator, component), forms.of(node.denominator, component)
    everything = np.full(found[0].low.shape[1], np.inf)
    share = share_of(denominator, numerator)
    if share <= 0:
        return Interval(-everything, everything)
    a = found[node.numerator][component]
    r = form_range(denominator.plus(-share, numerator), found)
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = [
            divided(top, added(multiple(share, top), other))
            for top, other in ((point(a.low), point(r.high)), (point(a.high), point(r.low)))
        ]
    sound = (a.low >= 0.0) & (r.low >= 0.0) & (a.low + r.high > 0.0) & (a.high + r.low > 0.0)
    return Interval(np.where(sound, corners[0].low, -everything), np.where(sound, corners[1].high, everything))


def stacked(rows: Sequence[Interval]) -> Interval:
    """Ranges of components as the range of a vector."""
    return Interval(np.stack([row.low for row in rows]), np.stack([row.high for row in rows]))


def _by_choice(forms: Forms, graph: Graph, form: ExactForm, atom: Atom, found: Sequence[Interval]) -> Interval:
    """rest + w max(a_1, ...) is the largest, or for w < 0 the smallest, of the rest + w a_j; min alike."""
    node = graph.nodes[atom[0]]
    assert isinstance(node, Maximum | Minimum)
    weight, rest = form.terms[atom], form.without(atom)
    choices = [form_range(rest.plus(weight, forms.of(a, atom[1])), found) for a in node.arguments]
    pick = np.maximum if isinstance(node, Maximum) == (weight > 0) else np.minimum
    return Interval(pick.reduce([c.low for c in choices]), pick.reduce([c.high for c in choices]))


@dataclass(frozen=True)
class _Gate:
    """weight * relu(slope * t + offset)."""

    weight: Fraction
    slope: Fraction
    offset: Fraction


def _by_gates(forms: Forms, graph: Graph, form: ExactForm, found: Sequence[Interval]) -> Interval:
    """Split the form into piecewise linear functions of one argument each, and a rest; add their ranges."""
    arguments = {a: (node.argument, a[1]) for a in form.terms if isinstance(node := graph.nodes[a[0]], Relu)}
    groups: dict[Direction, list[Atom]] = {}
    for atom in sorted(arguments, reverse=True):
        groups.setdefault(forms.direction(*arguments[atom]), []).append(atom)
    parts: list[Interval] = []
    for direction, parallel in groups.items():
        members = [atom for atom in parallel if atom in form.terms]
        if not direction or not members or (len(members) < 2 and direction[-1][0] not in form.terms):
            continue
        number, component = arguments[members[0]]
        argument = forms.of(number, component)
        rest = ExactForm({other: c for other, c in form.terms.items() if other not in members}, form.constant)
        share = share_of(rest, argument)
        if share == 0 and len(members) < 2:
            continue
        gates = [_gate(form.terms[atom], forms.of(*arguments[atom]), argument) for atom in members]
        form = rest.plus(-share, argument)
        # With no other terms left the constant belongs to the function: |x - 0.1| is 0 at its kink, to the bit.
        constant = Fraction(0) if form.terms else form.constant
        form = ExactForm(form.terms, form.constant - constant)
        parts.append(_piecewise(constant, share, gates, found[number][component]))
    total = form_range(form, found)
    for part in parts:
        total = added(part, total)
    return total


def _by_halves(forms: Forms, graph: Graph, form: ExactForm, found: Sequence[Interval]) -> Interval:
    """With relu(a) = (a + |a|) / 2: relu(x + y) + relu(x - y) - x is (|x + y| + |x - y|) / 2, and so not negative."""
    rest, parts = form, []
    for atom, weight in form.terms.items():
        node = graph.nodes[atom[0]]
        if isinstance(node, Relu):
            argument = found[node.argument][atom[1]]
            magnitude = Interval(np.maximum(np.maximum(argument.low, -argument.high), 0.0), argument.magnitude)
            parts.append(multiple(weight / 2, magnitude))
            rest = rest.plus(-weight, ExactForm({atom: Fraction(1)}, Fraction(0)))
            rest = rest.plus(weight / 2, forms.of(node.argument, atom[1]))
    total = form_range(rest, found)
    for part in parts:
        total = added(part, total)
    return total


def _gate(weight: Fraction, own: ExactForm, argument: ExactForm) -> _Gate:
    """weight * relu(own), own a multiple of `argument` plus a constant."""
    pivot = next(iter(argument.terms))
    slope = own.terms[pivot] / argument.terms[pivot]
    return _Gate(weight, slope, own.constant - slope * argument.constant)


def share_of(rest: ExactForm, argument: ExactForm) -> Fraction:
    """How much of `argument` to take out of the rest: what leaves the fewest terms, or nothing."""
    pivot = max(argument.terms, default=None)
    if pivot is None or pivot not in rest.terms:
        return Fraction(0)
    share = rest.terms[pivot] / argument.terms[pivot]
    return share if len(rest.plus(-share, argument).terms) < len(rest.terms) else Fraction(0)


def _piecewise(constant: Fraction, share: Fraction, gates: Sequence[_Gate], place: Interval) -> Interval:
    """The range over t in `place` of constant + share * t + the gates: at the ends and at the kinks inside."""
    kinks = [fraction_bounds(-gate.offset / gate.slope) for gate in gates]
    kink = Interval(np.array([low for low, _ in kinks]), np.array([high for _, high in kinks]))
    places = Interval(*(np.concatenate([place.low, place.high, ends]) for ends in (kink.low, kink.high)))
    total = added(interval_of(constant), multiple(share, places))
    for gate in gates:
        inner = added(multiple(gate.slope, places), interval_of(gate.offset)).relu()
        total = added(total, multiple(gate.weight, inner))
    columns = len(place.low)
    first, second, at_kink = total[:columns], total[columns : 2 * columns], total[2 * columns :]
    inside = (place.low <= kink.high[:, None]) & (place.high >= kink.low[:, None])
    low = np.where(inside, at_kink.low[:, None], np.inf).min(axis=0)
    high = np.where(inside, at_kink.high[:, None], -np.inf).max(axis=0)
    return hull(first, second, Interval(low, high))
