"""The proof kernel. It re-derives, from stored weights and target alone, how far the model can be from its target.

The target becomes a circuit (`circuits.assemble`, rebuilt here). Compare what floating point computes with the exact
target. Let D be the difference at a circuit node, between the circuit's affine maps applied to the heads' actual
outputs and the exact target value. Then

    D at an affine node  =  sum of W D  (+ the approximation error, where the node stands for an approximated target),
    D at a gate          =  s (D at its argument) + r + e,         0 <= s <= 1: a chord slope of the ReLU,

where each head contributes two local errors:

    r   what it reads is off: stored weights against the circuit's (deviation), rounding of the register sums and of the
        read;
    e   what it returns is off, for the argument it has: gate lemma (softmax), other tokens (leak), rounding inside the
        head.

Local errors are bounded going forward, with ranges inflated by what has accumulated so far, and carried to the outputs
by the gains of `source.sensitivity` going backward. Everything is rounded outwards; nan or infinity means not
certified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.certify.approximation import approximate, refuse_inexact_constants
from headsmith.certify.certificate import Certificate
from headsmith.certify.meaning import SourceMeaning, StreamMeaning, gate_deviation, output_deviation
from headsmith.circuits.assemble import Choice, assemble
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import FLOAT64, lower, magnitude_product, upper
from headsmith.heads.sink import SinkBank, gate_error, gate_rounding, leak_weight, score_rounding
from headsmith.heads.stream import RESERVED, Link, position_bits
from headsmith.source.graph import Graph, Relu, needed
from headsmith.source.ranges import ranges
from headsmith.source.sensitivity import Flow, pushed
from headsmith.transformer.gains import gains_of_heads
from headsmith.transformer.ir import Transformer


@dataclass(frozen=True, eq=False)
class LocalErrors:
    """Bounds for the heads of one bank. `softmax` is one-sided: the head is below its gate by at most that."""

    softmax: Array
    leak: Array
    rounding: Array


@dataclass(eq=False)
class _Sums:
    """What is known of one register: on data tokens, the sum of absolute values of all that was added, and how many; on
    the reference token, where it should be zero, a bound of its value."""

    magnitude: Array
    count: int
    drift: Array


def certify(target: Graph, choices: Mapping[int, Choice], box: Box, transformer: Transformer) -> Certificate:
    """Prove a bound for `transformer` against `target` on `box`, or raise CertificateError.

    Guarantee: the inequality of `Certificate`, for the returned error.
    """
    if (transformer.inputs, transformer.outputs) != (target.input.size, target.nodes[target.output].size):
        raise CertificateError("the transformer's inputs and outputs are not the target's")
    with np.errstate(over="ignore", invalid="ignore"):
        return _Kernel(target, choices, box, transformer).certificate()


class _Kernel:
    def __init__(self, target: Graph, choices: Mapping[int, Choice], box: Box, transformer: Transformer) -> None:
        self.transformer, self.precision = transformer, transformer.precision
        found = ranges(target, box)
        assembly = assemble(target, choices)
        refuse_inexact_constants(assembly)
        approximation = approximate(target, found, assembly)
        self.approximations = approximation.errors
        self.circuit = assembly.circuit
        self.source = SourceMeaning(self.circuit, approximation.ranges, transformer)
        self.stream = StreamMeaning(self.circuit, transformer)
        self.flow = Flow(self.circuit, self.source.slopes())
        # What each node commits itself, how far it can be off in all, and how large basis values can be.
        self.own: dict[int, Array] = {number: error.magnitude for number, error in self.approximations.items()}
        self.input_error = np.zeros(box.size)
        if self.precision is not FLOAT64:
            rounded = self.precision.unit_roundoff * found[0].magnitude
            self.input_error = upper(rounded, 1) + self.precision.smallest_normal
            self.own[0] = self.input_error
        self.deviations: dict[int, Array] = {}
        self.magnitudes = {0: upper(found[0].magnitude + self.input_error, 1)}
        self.max_score = 0.0
        self.sums = self._embedded()

    def certificate(self) -> Certificate:
        locals_ = [[self._advance(bank) for bank in layer.banks] for layer in self.transformer.layers]
        approximation, softmax, leak, rounding = self._carry(locals_)
        off = output_deviation(self.source, self.stream, self.magnitudes)
        stored, read = self._read_rounding(self.transformer.readout, self.transformer.outputs)
        rounding = upper(rounding + off + stored + read, 4)
        errors = upper(approximation + softmax + leak + rounding, 4)
        self._refuse_overflow(errors)
        worst = int(np.argmax(errors))
        return Certificate(
            error=float(errors[worst]),
            parts={
                "approximation": float(approximation[worst]),
                "softmax": float(softmax[worst]),
                "leak": float(leak[worst]),
                "rounding": float(rounding[worst]),
            },
            outputs=tuple(float(error) for error in errors),
            dtype=self.transformer.dtype,
            tokens=self.transformer.tokens,
            max_score=self.max_score,
        )

    def _embedded(self) -> dict[str, _Sums]:
        sums = {}
        for register in self.transformer.registers:
            initial = self.transformer.initial.get(register.name, np.zeros(register.size))
            if register.name in RESERVED:
                initial = np.ones(register.size)
            sums[register.name] = _Sums(np.abs(initial), 1, np.zeros(register.size))
        for link in self.transformer.embedding:
            part = sums[link.register]
            magnitude = self.magnitudes[0][link.sources]
            part.magnitude = upper(part.magnitude + magnitude_product(link.weights, magnitude), 2)
            part.count += link.columns if link.weights.ndim == 2 else 1
        return sums

    def _advance(self, bank: SinkBank) -> LocalErrors:
        """Bound the local errors of one bank, then add what it writes to every account."""
        precision, tokens = self.precision, self.transformer.tokens
        if not (np.all(bank.query_scale > 0.0) and np.all(bank.key_scale > 0.0)):
            raise CertificateError("a score scale is not positive")
        if bank.reference_gain <= 0.0 or (tokens > 1 and bank.position_gain <= 0.0):
            raise CertificateError("the gains of a sink bank must be positive")
        scale = lower(bank.query_scale * bank.key_scale, 1)
        argument = self._arguments(bank)
        off = gate_deviation(self.source, self.stream, bank, self.magnitudes)
        stored, read = self._read_rounding(bank.read, bank.heads)
        arriving = upper(self._arriving(bank) + off + stored + read, 4)
        size = upper(argument.magnitude + arriving, 1)
        score = upper(upper(bank.query_scale * bank.key_scale, 1) * size, 1)
        roundings = score_rounding(precision, tokens, bank.position_gain)
        disturbance = roundings.disturbance(score)
        drift = self._drift(bank)

        softmax = gate_error(scale, size)
        leak = upper(2.0 * size * leak_weight(bank.position_gain, tokens, disturbance) + drift, 4)
        # The query and the value round apart: |z_v - z_q| <= 2 read, |z_q - z| <= stored + read, and one more for their
        # product.
        rounding = upper(off + stored + 4.0 * read + gate_rounding(roundings, scale, size, precision, tokens), 4)

        self._write(bank, upper(softmax + leak + rounding, 4), np.maximum(argument.high, 0.0), size)
        self._spill(bank, size, drift, score, roundings.absolute)
        code = position_bits(tokens) * bank.position_gain
        self.max_score = max(self.max_score, float(np.max(score)) + code, bank.reference_gain)
        return LocalErrors(softmax, leak, rounding)

    def _arguments(self, bank: SinkBank) -> Interval:
        """The exact range of each head's gate argument."""
        low, high = np.empty(bank.heads), np.empty(bank.heads)
        for number in np.unique(bank.node):
            mine = bank.node == number
            node = self.source.graph.nodes[int(number)]
            assert isinstance(node, Relu)
            found = self.source.ranges[node.argument][bank.component[mine]]
            low[mine], high[mine] = found.low, found.high
        return Interval(low, high)

    def _arriving(self, bank: SinkBank) -> Array:
        """How far each head's argument can be off because of what came before."""
        result = np.empty(bank.heads)
        for number in np.unique(bank.node):
            mine = bank.node == number
            argument = self._argument(int(number))
            for earlier in needed(self.circuit, argument):
                if earlier in self.source.headed and earlier not in self.own:
                    raise CertificateError(
                        f"a head of gate node {number} runs before gate node {earlier}, which it needs"
                    )
            result[mine] = self.flow.arriving(argument, self.deviations, self.own)[bank.component[mine]]
        return result

    def _argument(self, gate: int) -> int:
        node = self.circuit.nodes[gate]
        assert isinstance(node, Relu)
        return node.argument

    def _write(self, bank: SinkBank, committed: Array, largest: Array, size: Array) -> None:
        """Note what the heads commit, how large their outputs can be, and what that adds to the registers."""
        self.stream.advance(bank)
        magnitude = np.empty(bank.heads)
        for number in map(int, np.unique(bank.node)):
            mine, components = bank.node == number, bank.component[bank.node == number]
            if len(components) != len(self.source.headed[number]):
                raise CertificateError(f"the gates of node {number} are spread over several layers")
            own = np.zeros(self.circuit.nodes[number].size)
            own[components] = committed[mine]
            self.own[number] = own
            off = self.flow.arriving(number, self.deviations, self.own)
            magnitude[mine] = upper(np.minimum(largest[mine] + off[components], size[mine]), 1)
            values = np.zeros(len(own))
            values[components] = magnitude[mine]
            self.magnitudes[number] = values
        for link in bank.write:
            part = self.sums[link.register]
            part.magnitude = upper(part.magnitude + magnitude_product(link.weights, magnitude[link.sources]), 2)
            part.count += link.columns if link.weights.ndim == 2 else 1

    def _drift(self, bank: SinkBank) -> Array:
        """A bound of what the heads read on the reference token, where it should be zero."""
        total = np.zeros(bank.heads)
        for link in bank.read:
            drift = self.sums[link.register].drift
            total[link.reads] = upper(total[link.reads] + magnitude_product(link.weights, drift), 2)
        return total

    def _spill(self, bank: SinkBank, size: Array, drift: Array, score: Array, absolute: float) -> None:
        """The reference token's own query: itself at reference_gain, data tokens near zero. What comes over adds to the
        drift."""
        tokens = self.transformer.tokens
        slope = upper(score * drift / np.maximum(size, np.finfo(float).tiny) + absolute, 4)
        gain = bank.reference_gain * (1.0 - self.precision.gamma(8))
        weight = upper(tokens * np.exp(slope - gain) * (1.0 + 1e-9), 4)
        spilled = upper((weight * size + drift) * (1.0 + self.precision.gamma(2 * tokens + 8)), 4)
        spilled = spilled + 4.0 * self.precision.smallest_normal * (1.0 + size)
        for link in bank.write:
            part = self.sums[link.register]
            part.drift = upper(part.drift + 1.01 * magnitude_product(link.weights, spilled[link.sources]), 4)

    def _read_rounding(self, links: tuple[Link, ...], rows: int) -> tuple[Array, Array]:
        """Rounding of the register sums that are read, and of the read itself: any order, fused or not."""
        gamma, tiny = self.precision.gamma, self.precision.smallest_normal
        terms = sum(link.columns if link.weights.ndim == 2 else 1 for link in links) + 3
        stored, read = np.zeros(rows), np.zeros(rows)
        for link in links:
            part, mine = self.sums[link.register], link.reads
            each = upper(gamma(part.count + 2) * part.magnitude + (part.count + 1) * tiny, 3)
            stored[mine] = upper(stored[mine] + magnitude_product(link.weights, each), 2)
            value = magnitude_product(link.weights, upper(part.magnitude + each, 1))
            read[mine] = upper(read[mine] + gamma(terms) * value + link.columns * tiny, 3)
        return stored, read

    def _carry(self, locals_: list[list[LocalErrors]]) -> tuple[Array, Array, Array, Array]:
        """Carry approximation and local errors to the outputs."""
        gains = self.flow.gains()
        sides = np.zeros((2, 2, self.transformer.outputs))
        leak, rounding = (np.zeros(self.transformer.outputs) for _ in range(2))
        for number, approximated in self.approximations.items():
            if number in gains:
                sides[0] = pushed(sides[0], gains[number], approximated)
        for layer, errors in zip(self.transformer.layers, locals_, strict=True):
            for bank, error in zip(layer.banks, errors, strict=True):
                gain = gains_of_heads(bank, gains, self.transformer.outputs)
                sides[1] = pushed(sides[1], gain, Interval(-error.softmax, np.zeros(bank.heads)))
                size = gain.magnitude.T
                leak = upper(leak + size @ error.leak, bank.heads + 2)
                rounding = upper(rounding + size @ error.rounding, bank.heads + 2)
        if 0 in gains:
            rounding = upper(rounding + gains[0].magnitude.T @ self.input_error, len(self.input_error) + 2)
        approximation, softmax = sides.max(axis=1)
        return approximation, softmax, leak, rounding

    def _refuse_overflow(self, errors: Array) -> None:
        largest = max((float(np.max(part.magnitude, initial=0.0)) for part in self.sums.values()), default=0.0)
        largest = max(largest, self.max_score)
        if not largest < self.precision.largest / 16.0:
            raise CertificateError(
                f"a value or score may reach {largest:.3g}, beyond {self.precision.name}: "
                "shrink the domain or the weights"
            )
        if not np.isfinite(errors).all():
            raise CertificateError("no finite bound: rounding errors may be as large as the scores themselves")
