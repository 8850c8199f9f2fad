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
from headsmith.circuits.assemble import Assembly, Splice
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TooManyPiecesError
from headsmith.core.intervals import Interval, add, linear_image, point
from headsmith.core.rounding import upper
from headsmith.source.graph import Affine, Function, Graph, Hypotenuse, Input, Product, Quotient, Relu


@dataclass(frozen=True, eq=False)
class Approximation:
    """Ranges of all circuit nodes at the reference, and for circuit nodes that stand for approximated targets the
    interval of circuit value - target value, component by component."""

    ranges: tuple[Interval, ...]
    errors: Mapping[int, Interval]


def approximate(target: Graph, found: Sequence[Interval], assembly: Assembly) -> Approximation:
    """Bound every approximated node. `found` are the exact ranges of the target's nodes.

    Guarantee: with exact arguments, (circuit node - target node) lies in `errors`, and every circuit node in `ranges`.
    """
    return _Approximator(target, found, assembly).result()


class _Approximator:
    def __init__(self, target: Graph, found: Sequence[Interval], assembly: Assembly) -> None:
        self.target, self.found, self.assembly = target, found, assembly
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
                left, right = self.known[item.left], self.known[item.right]
                pick = np.maximum if item.largest else np.minimum
                self.known[number] = Interval(pick(left.low, right.low), pick(left.high, right.high))
            elif isinstance(node, Affine):
                total = point(node.bias)
                for term in node.terms:
                    total = add(total, linear_image(term.weights, self.known[term.node]))
                self.known[number] = total
            elif isinstance(node, Relu):
                self.known[number] = self.known[node.argument].relu()
            else:
                assert not isinstance(node, Input)
                raise CertificateError(f"circuit node {number} is neither affine nor relu")
        ranges = tuple(self.known[number] for number in range(len(self.assembly.circuit.nodes)))
        errors = {self.assembly.places[number]: self._error(number) for number in self._approximated()}
        return Approximation(ranges, errors)

    def _approximated(self) -> list[int]:
        kinds = (Function, Product, Quotient, Hypotenuse)
        return [number for number in self.assembly.places if isinstance(self.target.nodes[number], kinds)]

    def _check(self, splice: Splice) -> None:
        """Bound the fragment on the hull of its argument's components; all inner nodes get their ranges."""
        node = self.target.nodes[splice.target]
        argument = self.known[splice.argument]
        name, parameter = (node.name, node.parameter) if isinstance(node, Function) else ("square", None)
        scale = np.ones(1)
        if isinstance(node, Hypotenuse):
            # 0 <= Y <= X by construction, for X >= 0; at X = 0 both sides are zero.
            name, low, high = "hypotenuse", 0.0, 1.0
            scale = self.known[splice.scale or 0].high
        elif splice.scale is None:
            low, high = float(argument.low.min()), float(argument.high.max())
        else:
            denominator = self.known[splice.scale]
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
                smallest, largest = (np.repeat(end, width) for end in (self.known[splice.scale].low, scale))
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
            return Interval(-upper(max(-checked.low, 0.0) * largest, 2), upper(max(checked.high, 0.0) * largest, 2))
        plus, minus = self.checks[number, "plus"], self.checks[number, "minus"]
        low, high = plus.low - minus.high, plus.high - minus.low
        weight: Array = size
        if isinstance(node, Quotient):
            place = next(s.scale for s in self.assembly.splices if s.target == number)
            assert place is not None
            weight = self.known[place].high
        # The last weights (0.25 / balance, 0.25 / Z) are exact powers of two: read them off the circuit.
        last = self.assembly.circuit.nodes[self.assembly.places[number]]
        assert isinstance(last, Affine)
        factor = np.abs(last.terms[0].weights)
        below = upper(max(-low, 0.0) * weight * factor, 8)
        above = upper(max(high, 0.0) * weight * factor, 8)
        return Interval(-below, above)


def _ratios(numerator: Interval, denominator: Interval) -> Interval:
    corners = [a / b for a in (numerator.low, numerator.high) for b in (denominator.low, denominator.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
