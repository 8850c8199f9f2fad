"""The proof kernel. It re-derives, from stored weights and target alone, how far the model can be from its target.

The target becomes a circuit (`circuits.assemble`, rebuilt here). Compare what floating point computes with the exact
target. Let D be the difference at a circuit node, between the circuit's affine maps applied to the heads' actual
outputs and the exact target value. Then

    D at an affine node  =  sum of W D  (+ the approximation error, where the node stands for an approximated target),
    D at a gate          =  s (D at its argument) + r + e,         0 <= s <= 1: a chord slope of the ReLU,
    D at an expression   =  sum of g' (D at its arguments) + (g - f) + r + e,     f the expression, g its table head,

where each head contributes two local errors:

    r   what it reads is off: stored weights against the circuit's (deviation), rounding of the register sums and of the
        read (times the slope g', for a table);
    e   what it returns is off, for the argument it has: gate lemma (softmax), other tokens (leak), rounding inside the
        head.

Local errors are bounded going forward, with ranges inflated by what has accumulated so far, and carried to the outputs
by the gains of `source.sensitivity` going backward. Everything is rounded outwards; nan or infinity means not
certified.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headsmith.certify.accounts import Accounts, read_rows
from headsmith.certify.approximation import Approximation, approximate
from headsmith.certify.certificate import Certificate
from headsmith.certify.local import Local, Reads, gate_errors, ramp_errors, sink_errors, table_errors
from headsmith.certify.meaning import SourceMeaning, StreamMeaning, output_deviation, read_deviation
from headsmith.certify.mixing import attend_errors, boltzmann_errors, mean_errors, move_errors, move_targets
from headsmith.certify.pieces import PieceFlow, approximate_pieces
from headsmith.certify.table_bounds import Gate, Progress, Table
from headsmith.circuits.assemble import Choice, assemble
from headsmith.circuits.pieces import LaidOut, Pieces, tokens_for
from headsmith.core.arrays import Array, Indices
from headsmith.core.errors import CertificateError, ThinMarginError
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import FLOAT64, upper
from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.table import TableBank
from headsmith.source.doubled_flow import DoubledFlow, flow_through
from headsmith.source.fuse import Fusion, fuse
from headsmith.source.gains import pushed
from headsmith.source.graph import (
    Attend,
    Graph,
    Move,
    Positional,
    Relu,
    arguments,
    needed,
)
from headsmith.source.ranges import ranges
from headsmith.source.sensitivity import Flow
from headsmith.source.steps import SteppedFlow
from headsmith.source.views import masks, tokens_of
from headsmith.transformer.gains import gains_of_heads
from headsmith.transformer.ir import Bank, Layer, Transformer

Arrangement = Fusion | Pieces | None
"""How the target is rewritten before its nodes are given heads."""

UNKNOWN = 1e150
"""Stands for the error of a gate that has not been computed yet."""


def certify(
    target: Graph,
    choices: Mapping[int, Choice],
    box: Box,
    transformer: Transformer,
    fusion: Arrangement = None,
    progress: Progress | None = None,
) -> Certificate:
    """Prove a bound for `transformer` against `target` on `box`, or raise CertificateError.

    `choices` are about the nodes of the fused target, where there is a `fusion`; both only say what the heads stand
    for. With `Pieces` the model takes inputs in blocks (`circuits.pieces.in_blocks`). Guarantee: the inequality of
    `Certificate`, for the returned error.
    """
    blocks = tokens_for(target) if isinstance(fusion, Pieces) else 1
    if (transformer.inputs, transformer.outputs) != (blocks * target.input.size, target.nodes[target.output].size):
        raise CertificateError("the transformer's inputs and outputs are not the target's")
    if isinstance(fusion, Pieces) and (choices or transformer.tokens != blocks):
        raise CertificateError(f"a model of one token for each piece has {blocks} tokens here, and no choices")
    if any(tokens_of(node) not in (None, transformer.tokens) for node in target.nodes):
        raise CertificateError(f"the target is about another number of tokens than {transformer.tokens}")
    if len(masks(target)) > 1:
        raise CertificateError("the target looks at all tokens and at those so far: no mask computes both")
    if box.size != target.input.size:
        raise CertificateError(f"a box of {box.size} intervals for {target.input.size} inputs")
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(fusion, Pieces):
            laid, circuit, approximation = approximate_pieces(target, box)
            return _Kernel(circuit, approximation, transformer, laid).certificate()
        fused = target if fusion is None else fuse(target, fusion)
        assembly = assemble(fused, choices)
        tables = stored_tables(transformer)
        approximation = approximate(fused, ranges(fused, box), assembly, choices, tables, progress)
        return _Kernel(assembly.circuit, approximation, transformer).certificate()


class _Kernel:
    def __init__(
        self,
        circuit: Graph,
        approximation: Approximation,
        transformer: Transformer,
        laid: LaidOut | None = None,
    ) -> None:
        self.transformer, self.precision, self.circuit = transformer, transformer.precision, circuit
        self.approximations = approximation.errors
        self.table_margins, self.head_slopes = approximation.table_margins, approximation.head_slopes
        self.source = SourceMeaning(circuit, approximation.ranges, transformer)
        self.stream = StreamMeaning(circuit, transformer)
        slopes, shortcuts, found = self.source.slopes(), approximation.shortcuts, approximation.ranges
        self.flow: Flow = flow_through(circuit, slopes, shortcuts, approximation.steps, approximation.doublings)
        if laid is not None:
            self.flow = PieceFlow(circuit, slopes, shortcuts, laid)
        self.margins = approximation.margins
        # What each node commits itself, how far it can be off in all, and how large basis values can be.
        self.own: dict[int, Array] = {
            number: error.magnitude for number, error in self.approximations.items() if number not in self.source.headed
        }
        self.input_error = np.zeros(circuit.input.size)
        if self.precision is not FLOAT64:
            rounded = self.precision.unit_roundoff * found[0].magnitude
            self.input_error = upper(rounded, 1) + self.precision.smallest_normal
            self.own[0] = self.input_error
        self.deviations: dict[int, Array] = {}
        self.held: dict[int, Array] = {}
        self.magnitudes = {0: upper(found[0].magnitude + self.input_error, 1)}
        for number, node in enumerate(self.circuit.nodes):
            if isinstance(node, Positional):
                self.magnitudes[number] = np.abs(node.values).max(axis=0)
        self.accounts = Accounts(transformer, self.magnitudes[0])

    def certificate(self) -> Certificate:
        locals_ = [self._advance(layer) for layer in self.transformer.layers]
        # What nobody reads but the read-out arrives too: steps charge for what their copies differ by.
        self._arriving(self.circuit.output)
        self._refuse_thin_margins()
        self.max_score = max((local.max_score for layer in locals_ for local in layer), default=0.0)
        approximation, softmax, leak, rounding = self._carry(locals_)
        links, outputs = self.transformer.readout, self.transformer.outputs
        off = output_deviation(self.source, self.stream, self.magnitudes)
        stored, read = self.accounts.read_rounding(links, outputs)
        # The bias of the read-out is one more term of that sum.
        terms = 4 + sum(link.columns for link in links)
        bias = upper(self.precision.gamma(terms) * np.abs(self.transformer.readout_bias), 2)
        rounding = upper(rounding + off + stored + read + bias, 5)
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

    def _refuse_thin_margins(self) -> None:
        """What was proven of circuits with a margin holds only if their arguments are off by less."""
        for number, margin in self.margins.items():
            off = float(np.max(self._arriving(number)))
            if not off <= margin:
                raise ThinMarginError(
                    f"circuit node {number} may be off by {off:.3g}, more than the margin {margin:.3g}"
                )

    def _advance(self, layer: Layer) -> list[Local]:
        """Bound the local errors of all banks as they find the stream, and only then note what they write."""
        found = [self._local(bank) for bank in layer.banks]
        for bank, local in zip(layer.banks, found, strict=True):
            self._write(bank, local)
        return found

    def _local(self, bank: Bank) -> Local:
        match bank:
            case SinkBank():
                return sink_errors(self.transformer, bank, self._reads(bank), self.accounts)
            case TableBank():
                return self._table(bank, self._reads(bank))
            case GateBank():
                reads = self._reads(bank)
                slopes, _ = self._proven_slopes(bank, bank.node, reads.off.reshape(-1, 2).max(axis=1))
                return gate_errors(self.transformer, bank, reads, self.accounts, slopes)
            case MeanBank():
                return mean_errors(self.transformer, bank, self._reads(bank), self.accounts)
            case BoltzmannBank():
                return boltzmann_errors(self.transformer, bank, self._reads(bank), self.accounts)
            case MoveBank():
                self._refuse_other_targets(bank)
                return move_errors(self.transformer, bank, self._reads(bank), self.accounts)
            case AttendBank():
                return attend_errors(self.transformer, bank, self._reads(bank), self.accounts)
        raise CertificateError(f"there is no proof for {bank.kind} banks in this release")

    def _refuse_other_targets(self, bank: MoveBank) -> None:
        """A move head must fetch from where its nodes say."""
        fetched = move_targets(self.transformer, bank)
        for number in map(int, np.unique(bank.node)):
            node = self.circuit.nodes[number]
            if not isinstance(node, Move) or node.targets != fetched:
                raise CertificateError(f"a move head fetches from other tokens than circuit node {number} says")

    def _table(self, bank: TableBank, reads: Reads) -> Local:
        """The local errors of table heads, whose arguments must lie where their tables were proven."""
        gates = [isinstance(self.circuit.nodes[int(number)], Relu) for number in np.unique(bank.node)]
        if any(gates):
            if not all(gates):
                raise CertificateError("a table bank computes gates and expressions")
            return ramp_errors(self.transformer, bank, reads, self.accounts)
        off = np.repeat(reads.off.reshape(bank.heads, bank.arguments).max(axis=1), bank.columns)
        slopes, sizes = self._proven_slopes(bank, bank.node, off)
        return table_errors(self.transformer, bank, reads, self.accounts, slopes, sizes)

    def _proven_slopes(self, bank: TableBank | GateBank, nodes: Indices, off: Array) -> tuple[Array, Array]:
        """For each output, bounds of the head's slopes (outputs, arguments), and of the expression it stands for; what
        it reads may be `off`, which must be within the margin of what was proven."""
        variables = bank.arguments if isinstance(bank, TableBank) else 2
        slopes, sizes = np.zeros((bank.outputs, variables)), np.zeros(bank.outputs)
        for number in map(int, np.unique(bank.node)):
            mine = np.flatnonzero(bank.node == number)
            components = bank.component[mine]
            margin, furthest = self.table_margins[number], float(np.max(off[mine]))
            if not furthest <= margin:
                raise ThinMarginError(
                    f"what the heads of circuit node {number} read may be off by {furthest:.3g}, more than the margin "
                    f"{margin:.3g}"
                )
            for variable, slope in enumerate(self.head_slopes[number]):
                slopes[mine, variable] = slope.magnitude[components]
            sizes[mine] = self.source.ranges[number].magnitude[components]
        return slopes, sizes

    def _reads(self, bank: Bank) -> Reads:
        nodes, components = self.source.arguments_of(bank)
        stored, read = self.accounts.read_rounding(bank.read, bank.readers)
        stored = self._held_by_nodes(bank, nodes, components, stored)
        low, high, arriving = (np.empty(bank.readers) for _ in range(3))
        for number in map(int, np.unique(nodes)):
            mine = nodes == number
            found = self.source.ranges[number][components[mine]]
            low[mine], high[mine] = found.low, found.high
            arriving[mine] = self._arriving(number)[components[mine]]
        deviation = read_deviation(self.source, self.stream, bank, self.magnitudes)
        return Reads(Interval(low, high), deviation, arriving, stored, read)

    def _held_by_nodes(self, bank: Bank, nodes: Indices, components: Indices, stored: Array) -> Array:
        """What is left of `stored` where the rounding of registers is an error of the node that they hold.

        The two heads of a mirrored product read the same registers with the same weights: what is off there is off for
        both, and passes as any error of their argument does, not once for each.
        """
        if not isinstance(self.flow, DoubledFlow):
            return stored
        computed, rows = set(map(int, bank.node)), read_rows(bank)
        left = stored.copy()
        for number in map(int, np.unique(nodes)):
            readers = {place for place, node in enumerate(self.circuit.nodes) if number in arguments(node)}
            if number in self.deviations or not readers <= computed or not self.flow.holds(number) or rows is None:
                continue
            mine = np.flatnonzero(nodes == number)
            _, first, same = np.unique(components[mine], return_index=True, return_inverse=True)
            if np.array_equal(rows[mine], rows[mine[first]][same]):
                self.own[number] = self.held[number] = np.zeros(self.circuit.nodes[number].size)
                np.maximum.at(self.held[number], components[mine], stored[mine])
                left[mine] = 0.0
        return left

    def _arriving(self, number: int) -> Array:
        """How far a node can be off because of what came before."""
        before = needed(self.circuit, number, self.flow.stops)
        later = [n for n in before if n in self.source.headed and n not in self.own]
        if not later:
            return self.flow.arriving(number, self.deviations, self.own)
        # Other components of the same vector nodes: whatever reads these gates here gets an enormous bound.
        unknown = {n: np.full(self.circuit.nodes[n].size, UNKNOWN) for n in later}
        return self.flow.arriving(number, dict(self.deviations), {**self.own, **unknown})

    def _write(self, bank: Bank, local: Local) -> None:
        """Note what the heads commit, how large their outputs can be, and what that adds to the registers."""
        self.stream.advance(bank)
        magnitude = np.empty(bank.outputs)
        for number in map(int, np.unique(bank.node)):
            mine, components = bank.node == number, bank.component[bank.node == number]
            if len(components) != len(self.source.headed[number]):
                raise CertificateError(f"the heads of node {number} are spread over several banks")
            own = np.zeros(self.circuit.nodes[number].size)
            own[components] = local.committed[mine]
            if number in self.approximations:
                own = np.asarray(upper(own + self.approximations[number].magnitude, 1))
            self.own[number] = own
            if isinstance(self.flow, SteppedFlow) and local.apart is not None:
                self.flow.noise[number] = np.zeros(len(own))
                self.flow.noise[number][components] = local.apart[mine]
            off = self._arriving(number)
            magnitude[mine] = upper(np.minimum(local.largest[mine] + off[components], local.reach[mine]), 1)
            values = np.zeros(len(own))
            values[components] = magnitude[mine]
            self.magnitudes[number] = values
        self.accounts.write(bank.write, magnitude, local.spilled)

    def _carry(self, locals_: list[list[Local]]) -> tuple[Array, Array, Array, Array]:
        """Carry approximation and local errors to the outputs."""
        self.flow.arrived = {
            node.queries: self._arriving(node.queries) for node in self.circuit.nodes if isinstance(node, Attend)
        }
        everything = gains = self.flow.gains()
        sides = np.zeros((2, 2, self.transformer.outputs))
        leak, rounding = (np.zeros(self.transformer.outputs) for _ in range(2))
        if isinstance(self.flow, DoubledFlow):
            through, gains = self.flow.through, self.flow.outside(everything)
            inside = {number: error.magnitude for number, error in self.approximations.items()}
            sides[0] = upper(sides[0] + through(everything, inside), 1)
            sides[1] = upper(sides[1] + through(everything, self._by_node(locals_, "softmax")), 1)
            leak = through(everything, self._by_node(locals_, "leak"))
            rounding = through(everything, {**self._by_node(locals_, "rounding"), **self.held})
        for number, approximated in self.approximations.items():
            if number in gains:
                sides[0] = pushed(sides[0], gains[number], approximated)
        for layer, errors in zip(self.transformer.layers, locals_, strict=True):
            for bank, error in zip(layer.banks, errors, strict=True):
                gain = gains_of_heads(bank, gains, self.transformer.outputs)
                if error.sides.magnitude.any():
                    sides[1] = pushed(sides[1], gain, error.sides)
                size = gain.magnitude.T
                leak = upper(leak + size @ error.leak, bank.outputs + 2)
                rounding = upper(rounding + size @ error.rounding, bank.outputs + 2)
        if isinstance(self.flow, SteppedFlow):
            # Copies differ by what soft gates commit, where there are any, and else by rounding.
            soft = any(error.sides.magnitude.any() for layer in locals_ for error in layer)
            for number, apart in self.flow.uneven.items():
                if number in everything:
                    moved = upper(everything[number].magnitude.T @ apart, len(apart) + 1)
                    sides[1] = upper(sides[1] + moved, 1) if soft else sides[1]
                    rounding = rounding if soft else upper(rounding + moved, 1)
        if 0 in gains:
            rounding = upper(rounding + gains[0].magnitude.T @ self.input_error, len(self.input_error) + 2)
        approximation, softmax = sides.max(axis=1)
        return approximation, softmax, leak, rounding

    def _by_node(self, locals_: list[list[Local]], part: str) -> dict[int, Array]:
        """One part of what heads commit, for each circuit node that they compute."""
        found = {}
        for layer, errors in zip(self.transformer.layers, locals_, strict=True):
            for bank, error in zip(layer.banks, errors, strict=True):
                committed = error.sides.magnitude if part == "softmax" else getattr(error, part)
                for number in map(int, np.unique(bank.node)):
                    mine = bank.node == number
                    found[number] = np.zeros(self.circuit.nodes[number].size)
                    found[number][bank.component[mine]] = committed[mine]
        return found

    def _refuse_overflow(self, errors: Array) -> None:
        model = self.transformer
        groups = [model.embedding, model.readout]
        groups += [links for layer in model.layers for bank in layer.banks for links in (bank.read, bank.write)]
        # Matrices hold the sum of all links to one place.
        heaviest = max(sum(float(np.max(np.abs(link.weights), initial=0.0)) for link in links) for links in groups)
        outputs = self.accounts.read_magnitude(self.transformer.readout, self.transformer.outputs)
        outputs = upper(outputs + np.abs(self.transformer.readout_bias), 2)
        largest = max(self.accounts.largest(), self.max_score, float(np.max(outputs)), heaviest)
        if not largest < self.precision.largest / 16.0:
            raise CertificateError(
                f"a value, score or weight may reach {largest:.3g}, beyond {self.precision.name}: "
                "shrink the domain or the weights"
            )
        if not np.isfinite(errors).all():
            raise CertificateError("no finite bound: rounding errors may be as large as the scores themselves")


def stored_tables(transformer: Transformer) -> dict[tuple[int, int], Table | Gate]:
    """The tables of a model, by the circuit node and component that they claim to compute."""
    found: dict[tuple[int, int], Table | Gate] = {}
    for layer in transformer.layers:
        for bank in layer.banks:
            if isinstance(bank, GateBank):
                for head, claim in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
                    found[claim] = Gate(bank.slope[head], bank.offset[head])
            if isinstance(bank, TableBank):
                for output, (node, component) in enumerate(
                    zip(bank.node.tolist(), bank.component.tolist(), strict=True)
                ):
                    head, column = divmod(output, bank.columns)
                    found[node, component] = Table(bank.slope[head], bank.offset[head], bank.values[head][:, column])
    return found
