"""Other ways to write a node, whose intervals are narrower than those of the sum that it is (kernel/proof.py: views).

    merged      nested sums as one sum over what is not affine: what cancels is gone before intervals are added
    halves      relu(a) = (relu(a) + relu(-a) + a) / 2: |x| = relu(x) + relu(-x) is never negative
    choice      z - max(z, y) = min(0, z - y): a sum with a maximum is the larger or smaller of two sums

Nothing here is trusted: the kernel compares normal forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.source.graph import Affine, Graph, Input, Maximum, Minimum, Node, Relu
from headsmith.source.piecewise import Form, Forms

Header = dict[str, Any]
MOST_TERMS = 32
MOST_DOUBLES = 4


class Views:
    """Reference nodes for the nodes of a target; `add` appends a node to the circuit, `keep` stores numbers, and
    `places` say where the target's nodes are."""

    def __init__(
        self, target: Graph, places: Callable[[int], int], add: Callable[[Header], int], keep: Callable[[Any], str]
    ) -> None:
        self.target, self.places, self.add, self.keep = target, places, add, keep
        self.forms = Forms(target)
        self.layered = all(isinstance(node, Input | Relu) or _one_term(node) for node in target.nodes)
        """No sum reads an argument twice: there is nothing that intervals forget."""
        self.mirrored: dict[int, int] = {}

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
        found = [self._sum(rows, {})]
        if any(isinstance(self.target.nodes[atom[0]], Relu) for atom in atoms):
            found.append(self._halves(rows))
        if node.size == 1:
            found += [self._choice(rows[0], atom) for atom in sorted(atoms) if self._meets(rows[0], atom)]
        return [each for each in found if each is not None]

    def _sum(self, rows: list[Form], mirrored: Mapping[tuple[int, int], list[Fraction]]) -> int | None:
        """The rows as one affine node; `mirrored` are further coefficients, of relu(-a) for gates relu(a)."""
        terms: dict[tuple[int, int], Any] = {}

        def put(place: int, size: int, row: int, component: int, coefficient: Fraction) -> bool:
            """Add a coefficient, as a sum of doubles: as many terms."""
            parts = _doubles(coefficient)
            for level, part in enumerate(parts or ()):
                terms.setdefault((place, level), np.zeros((len(rows), size)))[row, component] = part
            return parts is not None

        whole = True
        for index, row in enumerate(rows):
            for (atom, component), coefficient in row.terms.items():
                whole &= put(self.places(atom), self.target.nodes[atom].size, index, component, coefficient)
        for (gate, component), coefficients in mirrored.items():
            for index, coefficient in enumerate(coefficients):
                place, size = self._mirrored(gate), self.target.nodes[gate].size
                whole &= put(place, size, index, component, coefficient)
        if not whole or any(Fraction(float(row.constant)) != row.constant for row in rows):
            return None
        stored = [{"node": place, "weights": self.keep(weights)} for (place, _), weights in terms.items()]
        return self.add({"kind": "affine", "terms": stored, "bias": self.keep([float(row.constant) for row in rows])})

    def _mirrored(self, gate: int) -> int:
        """relu(-a), for a gate relu(a)."""
        if gate not in self.mirrored:
            node = self.target.nodes[gate]
            assert isinstance(node, Relu)
            terms = [{"node": self.places(node.argument), "weights": self.keep(-np.ones(node.size))}]
            turned = self.add({"kind": "affine", "terms": terms, "bias": self.keep(np.zeros(node.size))})
            self.mirrored[gate] = self.add({"kind": "relu", "argument": turned, "size": node.size})
        return self.mirrored[gate]

    def _halves(self, rows: list[Form]) -> int | None:
        halved, mirrored = [], dict[tuple[int, int], list[Fraction]]()
        for index, row in enumerate(rows):
            for atom, weight in row.terms.items():
                node = self.target.nodes[atom[0]]
                if isinstance(node, Relu):
                    row = row.plus(-weight / 2, Form({atom: Fraction(1)}, Fraction(0)))
                    row = row.plus(weight / 2, self.forms.of(node.argument, atom[1]))
                    mirrored.setdefault(atom, [Fraction(0)] * len(rows))[index] = weight / 2
            halved.append(row)
        return self._sum(halved, mirrored)

    def _meets(self, form: Form, atom: tuple[int, int]) -> bool:
        """Whether an argument of a maximum or minimum has an atom in common with the rest of the form."""
        node = self.target.nodes[atom[0]]
        if not isinstance(node, Maximum | Minimum):
            return False
        return any(
            other in form.terms and other != atom
            for argument in node.arguments
            for other in self.forms.of(argument, atom[1]).terms
        )

    def _choice(self, form: Form, atom: tuple[int, int]) -> int | None:
        node, weight, rest = self.target.nodes[atom[0]], form.terms[atom], form.without(atom)
        assert isinstance(node, Maximum | Minimum)
        sums = [self._sum([rest.plus(weight, self.forms.of(each, atom[1]))], {}) for each in node.arguments]
        if any(each is None for each in sums):
            return None
        kind = "maximum" if isinstance(node, Maximum) == (weight > 0) else "minimum"
        return self.add({"kind": kind, "arguments": sums, "size": 1})


def _one_term(node: Node) -> bool:
    return isinstance(node, Affine) and len(node.terms) <= 1


def _doubles(value: Fraction) -> list[float] | None:
    """Doubles that add up to the value, exactly, the largest first; None where that takes more than a few."""
    parts: list[float] = []
    while value and len(parts) < MOST_DOUBLES:
        parts.append(float(value))
        value -= Fraction(parts[-1])
    return None if value else parts
