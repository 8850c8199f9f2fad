"""How far a circuit can be from its target, node by node, and where all of its values lie: the approximation part.

The kernel rebuilds the circuit from the target and the stored choices (`circuits.assemble`), then bounds each spliced
fragment on the exact range of its argument (`certify.chords`). Every value is taken at the reference: arguments are
exact target values, so a fragment's error is that of the fragment alone, and errors of its argument travel through the
circuit's own slopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.certify.chords import Checked, check_circuit
from headsmith.circuits.assemble import Assembly, Choice, Splice
from headsmith.core.arrays import Array
from headsmith.core.directed import divided, multiplied
from headsmith.core.errors import CertificateError, TooManyPiecesError
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval, add, linear_image, point
from headsmith.core.rounding import upper
from headsmith.source.graph import (
    Affine,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Node,
    Product,
    Quotient,
    Relu,
    arguments,
)
from headsmith.source.sensitivity import Shortcut


@dataclass(frozen=True, eq=False)
class Approximation:
    """Ranges of all circuit nodes at the reference, and for circuit nodes that stand for approximated targets the
    interval of circuit value - target value, component by component."""

    ranges: tuple[Interval, ...]
    errors: Mapping[int, Interval]
    shortcuts: Mapping[int, Shortcut]
    margins: Mapping[int, float]


def approximate(
    target: Graph, found: Sequence[Interval], assembly: Assembly, choices: Mapping[int, Choice]
) -> Approximation:
    """Bound every approximated node. `found` are the exact ranges of the target's nodes.

    Guarantee: for arguments within the node's margin of the exact ones, (circuit node - function of the same arguments)
    lies in `errors` and every circuit node in `ranges`, provided that every argument node in `margins` is off by
    at most its margin (which the caller must check).
    """
    return _Approximator(target, found, assembly, choices).result()


class _Approximator:
    def __init__(
        self, target: Graph, found: Sequence[Interval], assembly: Assembly, choices: Mapping[int, Choice]
    ) -> None:
        self.target, self.found, self.assembly = target, found, assembly
        self.margins = {
            number: _margin(choices[number].margin)
            for number in assembly.regions
            if number in choices and choices[number].margin is not None
        }
        self.owner = {
            inner: number for number, region in assembly.regions.items() if number in self.margins for inner in region
        }
        self.known: dict[int, Interval] = {place: found[number] for number, place in assembly.places.items()}
        self.checks: dict[tuple[int, str], Checked] = {}

    def result(self) -> Approximation:
        splices = {splice.first: splice for splice in self.assembly.splices}
        extrema = {item.node: item for item in self.assembly.extrema}
        for number, node in enumerate(self.assembly.circuit.nodes):
            if number in splices:
                self._check(splices[number])
            if number in self.known:
                continue
            if number in extrema:
                item = extrema[number]
                left, right = self._read(number, item.left), self._read(number, item.right)
                pick = np.maximum if item.largest else np.minimum
                self.known[number] = Interval(pick(left.low, right.low), pick(left.high, right.high))
            elif isinstance(node, Affine):
                total = point(node.bias)
                for term in node.terms:
                    total = add(total, linear_image(term.weights, self._read(number, term.node)))
                self.known[number] = total
            elif isinstance(node, Relu):
                self.known[number] = self._read(number, node.argument).relu()
            elif isinstance(node, Input):
                self.known[number] = self.found[0]
            else:
                raise CertificateError(f"circuit node {number} is neither affine nor relu")
        ranges = tuple(self.known[number] for number in range(len(self.assembly.circuit.nodes)))
        errors = {self.assembly.places[number]: self._error(number) for number in self.assembly.regions}
        shortcuts = {self.assembly.places[number]: self._shortcut(number) for number in self.margins}
        margins: dict[int, float] = {}
        for number, margin in self.margins.items():
            for argument in arguments(self.target.nodes[number]):
                place = self.assembly.places[argument]
                margins[place] = min(margin, margins.get(place, margin))
        return Approximation(ranges, errors, shortcuts, margins)

    def _read(self, reader: int, source: int) -> Interval:
        """The range of a node as another reads it: with the margin, where an argument enters its region."""
        number = self.owner.get(reader)
        if number is not None and source not in self.assembly.regions[number]:
            return self.known[source].inflated(np.full(len(self.known[source].low), self.margins[number]))
        return self.known[source]

    def _shortcut(self, number: int) -> Shortcut:
        """The function's own slopes over the widened ranges of its arguments."""
        node, margin = self.target.nodes[number], self.margins[number]
        places = tuple(self.assembly.places[argument] for argument in arguments(node))
        wide = [self.found[argument].inflated(np.full(node.size, margin)) for argument in arguments(node)]
        slopes = _slopes(node, wide)
        if len(set(places)) < len(places) or not all(np.isfinite(slope.magnitude).all() for slope in slopes):
            raise CertificateError(f"target node {number} has no slopes of its own: it cannot have a margin")
        return Shortcut(places, slopes, frozenset(self.assembly.regions[number]))

    def _check(self, splice: Splice) -> None:
        """Bound the fragment on the hull of its argument's components; all inner nodes get their ranges."""
        node = self.target.nodes[splice.target]
        argument = self._read(splice.first, splice.argument)
        name, parameter = (node.name, node.parameter) if isinstance(node, Function) else ("square", None)
        scale = np.ones(1)
        if isinstance(node, Hypotenuse):
            # 0 <= Y <= X by construction, for X >= 0; at X = 0 both sides are zero.
            name, low, high = "hypotenuse", 0.0, 1.0
            scale = self._read(splice.first, splice.scale or 0).high
        elif splice.scale is None:
            low, high = float(argument.low.min()), float(argument.high.max())
        else:
            denominator = self._read(splice.first, splice.scale)
            if not (denominator.low > 0.0).all():
                raise CertificateError(f"the denominator of target node {splice.target} is not positive")
            ratios = _ratios(argument, denominator)
            low, high = float(ratios.low.min()), float(ratios.high.max())
            scale = denominator.high
        try:
            checked = check_circuit(splice.fragment.graph, low, high, name, parameter)
        except TooManyPiecesError as refusal:
            refusal.target = splice.target
            raise
        self.checks[splice.target, splice.part] = checked
        copies = len(argument.low)
        for place, inner in enumerate(checked.ranges[1:], start=1):
            low_end, high_end = np.tile(inner.low, copies), np.tile(inner.high, copies)
            if splice.scale is not None:
                # The perspective's nodes are V times the fragment's at s / V.
                width = len(inner.low)
                smallest, largest = (
                    np.repeat(end, width) for end in (self._read(splice.first, splice.scale).low, scale)
                )
                low_end = np.nextafter(np.minimum(low_end * smallest, low_end * largest), -np.inf)
                high_end = np.nextafter(np.maximum(high_end * smallest, high_end * largest), np.inf)
            self.known.setdefault(splice.first + place - 1, Interval(low_end, high_end))

    def _error(self, number: int) -> Interval:
        node = self.target.nodes[number]
        size = np.ones(node.size)
        if isinstance(node, Function):
            checked = self.checks[number, ""]
            return Interval(checked.low * size, checked.high * size)
        if isinstance(node, Hypotenuse):
            checked = self.checks[number, ""]
            largest = np.maximum(self.found[node.left].magnitude, self.found[node.right].magnitude)
            largest = upper(largest + self.margins.get(number, 0.0), 1)
            return Interval(-upper(max(-checked.low, 0.0) * largest, 2), upper(max(checked.high, 0.0) * largest, 2))
        plus, minus = self.checks[number, "plus"], self.checks[number, "minus"]
        low, high = plus.low - minus.high, plus.high - minus.low
        weight: Array = size
        if isinstance(node, Quotient):
            splice = next(s for s in self.assembly.splices if s.target == number)
            assert splice.scale is not None
            weight = self._read(splice.first, splice.scale).high
        # The last weights (0.25 / balance, 0.25 / Z) are exact powers of two: read them off the circuit.
        last = self.assembly.circuit.nodes[self.assembly.places[number]]
        assert isinstance(last, Affine)
        factor = np.abs(last.terms[0].weights)
        below = upper(max(-low, 0.0) * weight * factor, 8)
        above = upper(max(high, 0.0) * weight * factor, 8)
        return Interval(-below, above)


def _margin(margin: float | None) -> float:
    if margin is None or not 0.0 <= margin < np.inf:
        raise CertificateError(f"a margin is {margin!r}; it must be a finite number, not negative")
    return margin


def _slopes(node: Node, wide: list[Interval]) -> tuple[Interval, ...]:
    """The ranges of the partial derivatives of a target node over the ranges of its arguments."""
    match node:
        case Function():
            return (Interval(*FUNCTIONS[node.name].enclose(wide[0].low, wide[0].high, 1, node.parameter)),)
        case Product():
            return wide[1], wide[0]
        case Quotient():
            one = Interval(np.ones(node.size), np.ones(node.size))
            inverse = divided(one, wide[1])
            slope = multiplied(wide[0], multiplied(inverse, inverse))
            return inverse, Interval(-slope.high, -slope.low)
        case Hypotenuse():
            unit = Interval(-np.ones(node.size), np.ones(node.size))
            return unit, unit
    raise CertificateError("only approximated nodes have slopes")


def _ratios(numerator: Interval, denominator: Interval) -> Interval:
    corners = [a / b for a in (numerator.low, numerator.high) for b in (denominator.low, denominator.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
