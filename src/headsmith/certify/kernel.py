"""The proof kernel. It re-derives, from stored weights and source graph alone, how far the model can be from its target.

Compare the stream that floating point computes with the stream in which every head is its exact gate, of the exact argument.
The difference D of the two obeys, layer by layer,

    D' = D + W_O (s (W_V D + r) + e),        0 <= s <= 1: a chord slope of the ReLU,

where each head h contributes two local errors:

    r_h   what it reads is off: stored weights against the source's (deviation), rounding of the register sums and of the read;
    e_h   what it returns is off, for the argument it has: gate lemma (softmax), other tokens (leak), rounding inside the head.

`local` errors are bounded going forward (with ranges inflated by what has accumulated so far), and carried to the outputs by the
intervals of `transformer.sensitivity` going backward. Everything is rounded outwards; nan or infinity means not certified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.certify.certificate import Certificate
from headsmith.certify.meaning import SourceMeaning, StreamMeaning, gate_deviation, output_deviation
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import FLOAT64, lower, magnitude_product, upper
from headsmith.heads.sink import SinkBank, gate_error, gate_rounding, leak_weight, score_rounding
from headsmith.heads.stream import DATA, POSITION, REFERENCE, Link, position_bits
from headsmith.source.graph import Graph, Relu
from headsmith.source.ranges import ranges
from headsmith.transformer.ir import Transformer
from headsmith.transformer.sensitivity import sensitivity


@dataclass(frozen=True, eq=False)
class LocalErrors:
    """Bounds for the heads of one bank. `softmax` is one-sided: the head is below its gate by at most that."""

    softmax: Array
    leak: Array
    rounding: Array


@dataclass(eq=False)
class _Sums:
    """What is known of one register on data tokens: sum of absolute values of all that was added, how many, error so far;
    and a bound of its value on the reference token, where it should be zero."""

    magnitude: Array
    count: int
    error: Array
    drift: Array


def certify(graph: Graph, box: Box, transformer: Transformer) -> Certificate:
    """Prove a bound for `transformer` against `graph` on `box`, or raise CertificateError.

    Guarantee: the inequality of `Certificate`, for the returned error.
    """
    if (transformer.inputs, transformer.outputs) != (graph.input.size, graph.nodes[graph.output].size):
        raise CertificateError("the transformer's inputs and outputs are not the source graph's")
    with np.errstate(over="ignore", invalid="ignore"):
        return _Kernel(graph, box, transformer).certificate()


class _Kernel:
    def __init__(self, graph: Graph, box: Box, transformer: Transformer) -> None:
        self.transformer, self.precision = transformer, transformer.precision
        found = ranges(graph, box)
        self.source = SourceMeaning(graph, found, transformer)
        self.stream = StreamMeaning(graph, transformer)
        self.max_score = 0.0
        self.input_error = np.zeros(box.size)
        if self.precision is not FLOAT64:
            self.input_error = upper(self.precision.unit_roundoff * found[0].magnitude, 1)
            self.input_error = self.input_error + self.precision.smallest_normal
        self.sums = self._embedded(found[0])

    def certificate(self) -> Certificate:
        locals_ = [[self._advance(bank) for bank in layer.banks] for layer in self.transformer.layers]
        softmax, leak, rounding = self._carry(locals_)
        deviation = output_deviation(self.source, self.stream)
        stored, read = self._read_rounding(self.transformer.readout, self.transformer.outputs)
        rounding = upper(rounding + deviation + stored + read, 4)
        errors = upper(softmax + leak + rounding, 4)
        self._refuse_overflow(errors)
        worst = int(np.argmax(errors))
        return Certificate(
            error=float(errors[worst]),
            parts={
                "approximation": 0.0,
                "softmax": float(softmax[worst]),
                "leak": float(leak[worst]),
                "rounding": float(rounding[worst]),
            },
            outputs=tuple(float(error) for error in errors),
            dtype=self.transformer.dtype,
            tokens=self.transformer.tokens,
            max_score=self.max_score,
        )

    def _embedded(self, domain: Interval) -> dict[str, _Sums]:
        sums = {}
        for register in self.transformer.registers:
            initial = self.transformer.initial.get(register.name, np.zeros(register.size))
            if register.name in (DATA, REFERENCE, POSITION):
                initial = np.ones(register.size)
            zero = np.zeros(register.size)
            sums[register.name] = _Sums(np.abs(initial), 1, zero, zero)
        for link in self.transformer.embedding:
            part = sums[link.register]
            magnitude = upper(domain.magnitude + self.input_error, 1)[link.sources]
            part.magnitude = upper(part.magnitude + magnitude_product(link.weights, magnitude), 2)
            part.error = upper(part.error + magnitude_product(link.weights, self.input_error[link.sources]), 2)
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
        off = gate_deviation(self.source, self.stream, bank)
        stored, read = self._read_rounding(bank.read, bank.heads)
        arriving = upper(self._sum_over(bank.read, bank.heads, "error") + off + stored + read, 4)
        size = upper(argument.magnitude + arriving, 1)
        score = upper(upper(bank.query_scale * bank.key_scale, 1) * size, 1)
        roundings = score_rounding(precision, tokens, bank.position_gain)
        disturbance = roundings.disturbance(score)
        drift = self._sum_over(bank.read, bank.heads, "drift")

        softmax = gate_error(scale, size)
        leak = upper(2.0 * size * leak_weight(bank.position_gain, tokens, disturbance) + drift, 4)
        # The query and the value round apart: |z_v - z_q| <= 2 read, |z_q - z| <= stored + read, and one more for their product.
        rounding = upper(off + stored + 4.0 * read + gate_rounding(roundings, scale, size, precision, tokens), 4)

        error = upper(arriving + softmax + leak + rounding, 4)
        self._write(bank, np.maximum(argument.high, 0.0), error, size, drift, score, roundings.absolute)
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

    def _write(
        self, bank: SinkBank, largest: Array, error: Array, size: Array, drift: Array, score: Array, absolute: float
    ) -> None:
        self.stream.advance(bank)
        # The reference token's own query: itself at reference_gain, data tokens near zero.
        spill = upper(score * drift / np.maximum(size, np.finfo(float).tiny) + absolute, 4)
        gain = bank.reference_gain * (1.0 - self.precision.gamma(8))
        weight = upper(self.transformer.tokens * np.exp(spill - gain) * (1.0 + 1e-9), 4)
        drifting = upper((weight * size + drift) * (1.0 + self.precision.gamma(2 * self.transformer.tokens + 8)), 4)
        drifting = drifting + 4.0 * self.precision.smallest_normal * (1.0 + size)
        magnitude = upper(np.minimum(largest + error, size), 1)
        for link in bank.write:
            part, mine = self.sums[link.register], link.sources
            part.magnitude = upper(part.magnitude + magnitude_product(link.weights, magnitude[mine]), 2)
            part.error = upper(part.error + magnitude_product(link.weights, error[mine]), 2)
            part.drift = upper(part.drift + 1.01 * magnitude_product(link.weights, drifting[mine]), 4)
            part.count += link.columns if link.weights.ndim == 2 else 1

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

    def _sum_over(self, links: tuple[Link, ...], rows: int, account: str) -> Array:
        total = np.zeros(rows)
        for link in links:
            values = getattr(self.sums[link.register], account)
            total[link.reads] = upper(total[link.reads] + magnitude_product(link.weights, values), 2)
        return total

    def _carry(self, locals_: list[list[LocalErrors]]) -> tuple[Array, Array, Array]:
        """Carry the local errors to the outputs."""
        outputs = self.transformer.outputs
        below, above, leak, rounding = (np.zeros(outputs) for _ in range(4))
        gains = sensitivity(self.transformer)
        for errors, intervals in zip(locals_, gains.heads, strict=True):
            for error, interval in zip(errors, intervals, strict=True):
                heads = len(error.softmax)
                below = upper(below + np.maximum(interval.high, 0.0).T @ error.softmax, heads + 2)
                above = upper(above + np.maximum(-interval.low, 0.0).T @ error.softmax, heads + 2)
                size = interval.magnitude.T
                leak = upper(leak + size @ error.leak, heads + 2)
                rounding = upper(rounding + size @ error.rounding, heads + 2)
        if self.precision is not FLOAT64:
            rounding = upper(rounding + self._carried_input_error(gains.stream), 2)
        return np.maximum(below, above), leak, rounding

    def _carried_input_error(self, gains: dict[str, Interval]) -> Array:
        total = np.zeros(self.transformer.outputs)
        for link in self.transformer.embedding:
            if link.register in gains:
                off = magnitude_product(link.weights, self.input_error[link.sources])
                total = upper(total + gains[link.register].magnitude.T @ off, len(off) + 2)
        return np.asarray(total)

    def _refuse_overflow(self, errors: Array) -> None:
        largest = max((float(np.max(part.magnitude, initial=0.0)) for part in self.sums.values()), default=0.0)
        largest = max(largest, self.max_score)
        if not largest < self.precision.largest / 16.0:
            raise CertificateError(
                f"a value or score may reach {largest:.3g}, beyond {self.precision.name}; shrink the domain or the weights"
            )
        if not np.isfinite(errors).all():
            raise CertificateError("no finite bound: rounding errors may be as large as the scores themselves")
