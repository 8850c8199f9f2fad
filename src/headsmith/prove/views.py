"""Other ways to write a node, whose intervals are narrower than those of the sum that it is.

kernel/core/proof.py calls them views.

    merged      nested sums as one sum over what is not affine: what cancels is gone before intervals are added
    halves      relu(a) = (relu(a) + relu(-a) + a) / 2: |x| = relu(x) + relu(-x) is never negative
    bends       gates of one argument t, with what else of the sum is a multiple of t, are one piecewise linear function
                of t: relu(t) - relu(t - 1) lies between 0 and 1
    choice      z - max(z, y) = min(0, z - y): a sum with a maximum is the larger or smaller of two sums
    order       of a value and its pools over the tokens: min <= mean <= max, min <= own <= max (kernel/core/ranges.py)

Nothing here is trusted: the kernel compares normal forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.language.graph import Affine, Graph, Maximum, Minimum, Pool, Relu
from headsmith.plan.analysis.piecewise import Atom, Direction, ExactForm, Forms, is_layered, meets, share_of

Header = dict[str, Any]
MOST_TERMS, MOST_DOUBLES, MOST_ROWS = 32, 4, 16

Sum = ExactForm
"""constant + sum coefficient * component, over (place, component): nodes of the circuit."""


class Views:
    """Reference nodes for the nodes of a target; `add` appends a node to the circuit, `keep` stores numbers, and
    `places` say where the target's nodes are."""

    def __init__(
        self, target: Graph, places: Callable[[int], int], add: Callable[[Header], int], keep: Callable[[Any], str]
    ) -> None:
        self.target, self.places, self.add, self.keep = target, places, add, keep
        self.forms = Forms(target)
        self.layered = is_layered(target)
        """There is nothing that intervals forget."""
        self.sizes: dict[int, int] = {}
        self.mirrored: dict[int, int] = {}
        self.bends: list[Header] = []

    def of(self, number: int) -> list[int]:
        """Reference nodes that equal a node of the target."""
        node = self.target.nodes[number]
        if isinstance(node, Maximum | Minimum):
            kind = "maximum" if isinstance(node, Maximum) else "minimum"
            arguments = [self.places(argument) for argument in node.arguments]
            return [self.add({"kind": kind, "arguments": arguments, "size": node.size})]
        small = isinstance(node, Affine) and self.forms.small(node) and self.forms.expanded(number)
        if self.layered or not small:
            return []
        rows = [self.forms.of(number, row) for row in range(node.size)]
        if max(len(row.terms) for row in rows) < 2 or max(len(row.terms) for row in rows) > MOST_TERMS:
            return []
        atoms = {atom for row in rows for atom in row.terms}
        found = [self._sum([self._placed(row) for row in rows])]
        if any(isinstance(self.target.nodes[atom[0]], Relu) for atom in atoms):
            found.append(self._sum([self._halved(row) for row in rows]))
            found.append(self._bent(rows))
        if node.size == 1:
            found += self._ordered(rows[0])
            met = [atom for atom in sorted(atoms) if meets(self.forms, rows[0], self.target.nodes[atom[0]], atom)]
            found += [self._choice(rows[0], atom) for atom in met]
        return [each for each in found if each is not None]

    def _placed(self, form: ExactForm) -> Sum:
        """A form of atoms as a sum over nodes of the circuit."""
        terms: dict[Atom, Fraction] = {}
        for (atom, component), coefficient in form.terms.items():
            self.sizes[self.places(atom)] = self.target.nodes[atom].size
            terms[self.places(atom), component] = coefficient
        return ExactForm(terms, form.constant)

    def _sum(self, rows: Sequence[Sum | None]) -> int | None:
        """Sums as one affine node, exactly: a coefficient is a sum of doubles, in as many terms. None where that takes
        too many."""
        terms: dict[tuple[int, int], Any] = {}
        bias = np.zeros(len(rows))
        for index, row in enumerate(rows):
            if row is None:
                return None
            constant = _doubles(row.constant)
            if constant is None:
                return None
            bias[index] = constant[0] if constant else 0.0
            coefficients = dict(row.terms)
            if len(constant) > 1:
                coefficients[self._one(), 0] = row.constant - Fraction(constant[0])
            for (place, component), coefficient in coefficients.items():
                parts = _doubles(coefficient)
                if parts is None:
                    return None
                for level, part in enumerate(parts):
                    terms.setdefault((place, level), np.zeros((len(rows), self.sizes[place])))[index, component] = part
        stored = [{"node": place, "weights": self.keep(weights)} for (place, _), weights in terms.items()]
        place = self.add({"kind": "affine", "terms": stored, "bias": self.keep(bias)})
        self.sizes[place] = len(rows)
        return place

    def _one(self) -> int:
        """A node that is 1."""
        place = self.add({"kind": "affine", "terms": [], "bias": self.keep(np.ones(1))})
        self.sizes[place] = 1
        return place

    def _mirrored(self, gate: int) -> int:
        """relu(-a), for a gate relu(a)."""
        if gate not in self.mirrored:
            node = self.target.nodes[gate]
            assert isinstance(node, Relu)
            terms = [{"node": self.places(node.argument), "weights": self.keep(-np.ones(node.size))}]
            turned = self.add({"kind": "affine", "terms": terms, "bias": self.keep(np.zeros(node.size))})
            self.mirrored[gate] = self.add({"kind": "relu", "argument": turned, "size": node.size})
            self.sizes[self.mirrored[gate]] = node.size
        return self.mirrored[gate]

    def _halved(self, form: ExactForm) -> Sum:
        mirrored: dict[Atom, Fraction] = {}
        for atom, weight in form.terms.items():
            node = self.target.nodes[atom[0]]
            if isinstance(node, Relu):
                form = form.plus(-weight / 2, ExactForm({atom: Fraction(1)}, Fraction(0)))
                form = form.plus(weight / 2, self.forms.of(node.argument, atom[1]))
                mirrored[self._mirrored(atom[0]), atom[1]] = weight / 2
        return self._placed(form).plus(Fraction(1), ExactForm(mirrored, Fraction(0)))

    def _bent(self, rows: Sequence[ExactForm]) -> int | None:
        """Each row as a sum of piecewise linear functions of one number each, and a rest; None where there are none."""
        if len(rows) > MOST_ROWS:
            return None
        before = len(self.bends)
        found = [self._functions(row) for row in rows]
        return self._sum(found) if len(self.bends) > before else None

    def _functions(self, form: ExactForm) -> Sum | None:
        nodes = self.target.nodes
        arguments = {a: (node.argument, a[1]) for a in form.terms if isinstance(node := nodes[a[0]], Relu)}
        groups: dict[Direction, list[Atom]] = {}
        for atom in sorted(arguments, reverse=True):
            groups.setdefault(self.forms.direction(*arguments[atom]), []).append(atom)
        functions: dict[Atom, Fraction] = {}
        for direction, parallel in groups.items():
            members = [atom for atom in parallel if atom in form.terms]
            if not direction or not members or (len(members) < 2 and direction[-1][0] not in form.terms):
                continue
            # The function is one of the only atom, or of what the first of the gates reads.
            number, component = direction[0][0] if len(direction) == 1 else arguments[members[0]]
            argument = self.forms.of(number, component) if len(direction) > 1 else _atom((number, component))
            rest = ExactForm({other: c for other, c in form.terms.items() if other not in members}, form.constant)
            share = share_of(rest, argument)
            if share == 0 and len(members) < 2:
                continue
            left = rest.plus(-share, argument)
            constant = Fraction(0) if left.terms else left.constant
            gates = [(form.terms[atom], self.forms.of(*arguments[atom])) for atom in members]
            place = self._function((number, component), argument, share, constant, gates)
            if place is None:
                return None
            functions[place, 0] = Fraction(1)
            form = ExactForm(left.terms, left.constant - constant)
        return self._placed(form).plus(Fraction(1), ExactForm(functions, Fraction(0)))

    def _function(
        self,
        place: Atom,
        argument: ExactForm,
        share: Fraction,
        constant: Fraction,
        gates: list[tuple[Fraction, ExactForm]],
    ) -> int | None:
        """constant + share t + sum weight relu(own), t what is at a place, each `own` a multiple of it plus a
        constant."""
        self.sizes[self.places(place[0])] = self.target.nodes[place[0]].size
        single = self._sum([ExactForm({(self.places(place[0]), place[1]): Fraction(1)}, Fraction(0))])
        assert single is not None
        pivot = next(iter(argument.terms))
        slopes = [own.terms[pivot] / argument.terms[pivot] for _, own in gates]
        offsets = [own.constant - slope * argument.constant for slope, (_, own) in zip(slopes, gates, strict=True)]
        lines = [ExactForm({(single, 0): slope}, offset) for slope, offset in zip(slopes, offsets, strict=True)]
        inner = self._sum(lines)
        if inner is None:
            return None
        gate = self.add({"kind": "relu", "argument": inner, "size": len(gates)})
        self.sizes[gate] = len(gates)
        weights = {(gate, index): weight for index, (weight, _) in enumerate(gates)}
        outer = self._sum([ExactForm({**weights, **({(single, 0): share} if share else {})}, constant)])
        if outer is not None:
            kinks = [end for slope, offset in zip(slopes, offsets, strict=True) for end in _around(-offset / slope)]
            self.bends.append({"node": outer, "argument": single, "kinks": self.keep(sorted(kinks))})
        return outer

    def _ordered(self, form: ExactForm) -> list[int | None]:
        """Sums over the gaps between a value and its pools over the tokens, which are not negative: each from the
        smallest, and each from the largest."""
        groups: dict[tuple[int, bool], dict[str, Fraction]] = {}
        for atom, weight in form.terms.items():
            pool = self.target.nodes[atom[0]]
            if isinstance(pool, Pool) and pool.size == 1:
                groups.setdefault((pool.argument, pool.causal), {})[pool.kind] = weight
                form = form.without(atom)
        sums = [ExactForm({}, Fraction(0)), ExactForm({}, Fraction(0))]
        useful = False
        for (argument, causal), weights in groups.items():
            own = self.forms.of(argument, 0)
            share = share_of(form, own)
            form = form.plus(-share, own)
            weights = {**weights, **({"own": share} if share else {})}
            useful |= len(weights) > 1
            places = {name: self._pooled(name, argument, causal) for name in sorted({*weights, "min", "max"})}
            for side, base in enumerate(("min", "max")):
                terms = {(places[base], 0): sum(weights.values(), Fraction(0))}
                for name in sorted(weights.keys() - {base}):
                    upper, lower = (name, base) if base == "min" else (base, name)
                    gap = self._gap(places[upper], places[lower])
                    terms[gap, 0] = weights[name] if base == "min" else -weights[name]
                terms = {key: weight for key, weight in terms.items() if weight}
                sums[side] = sums[side].plus(Fraction(1), ExactForm(terms, Fraction(0)))
        rest = self._placed(form)
        return [self._sum([each.plus(Fraction(1), rest)]) for each in sums] if useful else []

    def _pooled(self, name: str, argument: int, causal: bool) -> int:
        """A value, or a pool of it over the tokens, as a reference node."""
        place = self.places(argument)
        if name != "own":
            place = self.add({"kind": "pool", "of": name, "argument": place, "size": 1, "causal": causal})
        self.sizes[place] = 1
        return place

    def _gap(self, upper: int, lower: int) -> int:
        terms = [{"node": upper, "weights": self.keep(np.ones(1))}, {"node": lower, "weights": self.keep(-np.ones(1))}]
        place = self.add({"kind": "affine", "terms": terms, "bias": self.keep(np.zeros(1))})
        self.sizes[place] = 1
        return place

    def _choice(self, form: ExactForm, atom: Atom) -> int | None:
        node, weight, rest = self.target.nodes[atom[0]], form.terms[atom], form.without(atom)
        assert isinstance(node, Maximum | Minimum)
        forms = [rest.plus(weight, self.forms.of(each, atom[1])) for each in node.arguments]
        sums = [self._sum([self._placed(each)]) for each in forms]
        if any(each is None for each in sums):
            return None
        kind = "maximum" if isinstance(node, Maximum) == (weight > 0) else "minimum"
        return self.add({"kind": kind, "arguments": sums, "size": 1})


def _atom(atom: Atom) -> ExactForm:
    return ExactForm({atom: Fraction(1)}, Fraction(0))


def _doubles(value: Fraction) -> list[float] | None:
    """Doubles that add up to the value, exactly, the largest first; None where that takes more than a few."""
    parts: list[float] = []
    while value and len(parts) < MOST_DOUBLES:
        parts.append(float(value))
        value -= Fraction(parts[-1])
    return None if value else parts


def _around(value: Fraction) -> list[float]:
    """The double that a number is, and some on both sides of it, far enough that signs there are beyond doubt."""
    near = float(value)
    room = 16.0 * float(np.spacing(near))
    return [near - room, near, near + room]
