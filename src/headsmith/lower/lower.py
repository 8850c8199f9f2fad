"""Graph in, transformer out: every gate a sink head, every expression a column of a table head; all scales are one.

Gates that cannot cross zero on the domain vanish: an active one is its argument, a dead one is zero.

What remains is a graph of the same function on the domain whose relu nodes hold unstable gates only; expressions
stay. An affine node that sums gates and passed-through arguments, P = W_U relu + W_A P_A, is split into Q = W_U relu (a
running sum that heads write) and P = Q + W_A P_A, so that the register allocator can choose between reading P_A and
folding it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Interval
from headsmith.core.rounding import Dtype, held
from headsmith.language.builder import Builder
from headsmith.language.graph import (
    Affine,
    Attend,
    Expression,
    Graph,
    Input,
    Mixing,
    Move,
    Pool,
    Positional,
    Relu,
    needed,
)
from headsmith.lower.banks import address_registers, gather, mixing_banks, table_banks
from headsmith.lower.registers import (
    OUTPUT,
    Allocation,
    Reduced,
    allocate,
    constant,
    diagonal,
    holds_constants,
    links,
    select_columns,
    select_rows,
    writes,
)
from headsmith.lower.reuse import MORE_HEADS, own_addresses, own_head, with_registers_reused
from headsmith.lower.split import with_sums_in_parts
from headsmith.plan.tables import Multiplied, Tables
from headsmith.transformer.heads.attentions import AttentionKind
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import Link, Register
from headsmith.transformer.heads.swiglu import SiluBank
from headsmith.transformer.ir import Bank, Layer, Transformer, reserved_registers


@dataclass(frozen=True, eq=False)
class _Part:
    """Some components of an original node, as the whole of a new node."""

    node: int
    components: Indices
    passed: bool


def reduce(graph: Graph, ranges: Sequence[Interval]) -> Reduced:
    """Drop stable gates. Guarantee: on the domain, the reduced graph's output equals the original's."""
    return _Reducer(graph, ranges).result()


class _Reducer:
    def __init__(self, graph: Graph, ranges: Sequence[Interval]) -> None:
        self.graph, self.ranges = graph, ranges
        self.builder = Builder(graph.input.names)
        self.origin: dict[int, tuple[int, Indices]] = {}
        self.parts: dict[int, list[_Part]] = {}
        self.whole: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        for number, read in enumerate(graph.reads):
            for argument in read:
                self.readers.setdefault(argument, []).append(number)

    def result(self) -> Reduced:
        dead = {
            number
            for number, node in enumerate(self.graph.nodes)
            if isinstance(node, Relu) and np.all(self.ranges[node.argument].high <= 0.0)
        }
        for number in needed(self.graph, self.graph.output, dead):
            node = self.graph.nodes[number]
            if isinstance(node, Input):
                self.parts[number] = [_Part(self.builder.input, np.arange(node.size), False)]
            elif isinstance(node, Relu):
                self.parts[number] = self._gates(number, node)
            elif isinstance(node, Positional):
                # Constants of tokens are read where they stand, as passed-through arguments are.
                self.parts[number] = [_Part(self.builder.positional(node.values), np.arange(node.size), True)]
            elif isinstance(node, Expression | Mixing):
                self.parts[number] = [self._headed(number, node)]
        output = self._rows(self.graph.output, np.arange(self.graph.nodes[self.graph.output].size))
        return Reduced(self.builder.graph(output), self.origin)

    def _headed(self, number: int, node: Expression | Mixing) -> _Part:
        every = np.arange(node.size)
        places = [
            self._rows(argument, np.arange(self.graph.nodes[argument].size)) for argument in self.graph.reads[number]
        ]
        match node:
            case Expression():
                head = self.builder.expression(node.program, places)
            case Pool():
                head = self.builder.pool(node.kind, places[0], node.causal)
            case Move():
                head = self.builder.move(places[0], node.targets)
            case Attend():
                queries, keys, values = places
                head = self.builder.attend(queries, keys, values, node.causal)
        self.origin[head] = (number, every)
        return _Part(head, every, False)

    def _gates(self, number: int, node: Relu) -> list[_Part]:
        found = self.ranges[node.argument]
        active = np.flatnonzero((found.low >= 0.0) & (found.high > 0.0))
        unstable = np.flatnonzero((found.low < 0.0) & (found.high > 0.0))
        parts = []
        if len(unstable):
            gate = self.builder.relu(self._rows(node.argument, unstable))
            self.origin[gate] = (number, unstable)
            parts.append(_Part(gate, unstable, False))
        if len(active):
            parts.append(_Part(self._rows(node.argument, active), active, True))
        return parts

    def _rows(self, number: int, rows: Indices) -> int:
        """A new affine node: the given components of an original node."""
        node = self.graph.nodes[number]
        complete = len(rows) == node.size
        if complete and number in self.whole:
            return self.whole[number]
        terms: list[tuple[int, Array]] = [(number, np.ones(node.size))]
        bias = np.zeros(node.size)
        if isinstance(node, Affine):
            terms, bias = self._without_products(number, node), node.bias
        gates: list[tuple[int, Any]] = []
        passed: list[tuple[int, Any]] = []
        for source, weights in terms:
            picked = select_rows(weights, rows)
            for part in self._parts_of(source):
                term = (part.node, select_columns(picked, part.components))
                (passed if part.passed else gates).append(term)
        result = self._affine(gates, passed, bias[rows])
        if complete:
            self.whole[number] = result
        return result

    def _without_products(self, number: int, node: Affine) -> list[tuple[int, Array]]:
        """The node's terms; sums of products that nothing else reads are sums of what their heads return."""
        terms: list[tuple[int, Array]] = []
        for term in node.terms:
            inner = self.graph.nodes[term.node]
            if (
                isinstance(inner, Affine)
                and term.weights.ndim == 2
                and node.size < inner.size
                and not inner.bias.any()
                and self.readers.get(term.node) == [number]
                and all(each.diagonal and isinstance(self.graph.nodes[each.node], Expression) for each in inner.terms)
            ):
                terms += [(each.node, term.weights * each.weights) for each in inner.terms]
            else:
                terms.append((term.node, term.weights))
        return terms

    def _parts_of(self, number: int) -> list[_Part]:
        if number in self.parts:
            return self.parts[number]
        size = self.graph.nodes[number].size
        return [_Part(self._rows(number, np.arange(size)), np.arange(size), holds_constants(self.graph, number))]

    def _affine(self, gates: list[tuple[int, Any]], passed: list[tuple[int, Any]], bias: Array) -> int:
        if not (gates and passed):
            return self.builder.affine(gates + passed, bias)
        running = self.builder.affine(gates, bias)
        return self.builder.affine([(running, np.ones(len(bias))), *passed], np.zeros(len(bias)))


# Registers and heads --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a model is for: how many data tokens, in which floating point, with which attention. With `alone`, data
    tokens see themselves and reference tokens alone. With `neurons`, gates and products are left to those."""

    tokens: int = 1
    dtype: Dtype = "float64"
    attention: AttentionKind = "softmax"
    alone: bool = False
    neurons: bool = False


def lower(
    graph: Graph, ranges: Sequence[Interval], tables: Tables, setting: Setting, *, reuse: bool = True, parts: int = 1
) -> Transformer:
    """The transformer whose sink heads, in the limit of large scales, compute `graph` exactly (up to rounded weights
    and what its `tables` do for the expressions). With `reuse`, registers serve again where that pays: under softmax
    attention without neurons, whose heads can clear them. Else long sums may be in several `parts`."""
    reduced, dtype = reduce(graph, ranges), setting.dtype
    laid = partial(_laid, graph, reduced, tables, setting)
    inner = _neurons(reduced, tables) if setting.neurons else frozenset()
    transformer = laid(allocate(reduced.graph, neurons=inner))
    if parts > 1 and not inner:
        transformer = with_sums_in_parts(transformer, parts)
    elif reuse and setting.attention == "softmax" and not inner and MORE_HEADS * transformer.heads >= 1.0:
        # Where there are fewer heads, one more to clear registers is too much.
        others = allocate(reduced.graph, carry=True)
        plain = all(
            np.all(others.homes[each].scale == 1.0) and not others.homes[each].offset.any() for each in others.carried
        )
        carrying = laid(others) if others.carried and plain else None
        transformer = with_registers_reused(transformer, carrying, apart=dtype != "float64")
    return transformer if dtype == "float64" else _rounded(transformer, dtype)


def _laid(graph: Graph, reduced: Reduced, tables: Tables, setting: Setting, allocation: Allocation) -> Transformer:
    """The transformer whose registers are these."""
    tokens, neurons = setting.tokens, setting.neurons
    grid = max((len(table.offset) for table in tables.values() if not isinstance(table, Multiplied)), default=0)
    names = _names(reduced.graph, allocation)
    registers = [Register(names[register], reduced.graph.nodes[register].size) for register in allocation.writes]
    constants = {
        names[n]: node.values
        for n, node in enumerate(reduced.graph.nodes)
        if isinstance(node, Positional) and n in names
    }
    addresses = {**(own_addresses(tokens) if allocation.carried else {}), **address_registers(reduced, tokens)}
    registers += [Register(name, table.shape[1]) for name, table in addresses.items()]
    depth = max((allocation.levels[node] for node in reduced.origin), default=0)
    return Transformer(
        inputs=graph.input.size,
        outputs=graph.nodes[graph.output].size,
        tokens=tokens,
        dtype="float64",
        registers=(*reserved_registers(tokens, grid), *registers),
        embedding=tuple(writes(allocation, names, {0: 0})),
        initial={
            names[register]: sum((part.constant for part in parts[1:]), parts[0].constant)
            for register, parts in allocation.writes.items()
            if parts
        },
        positional={**constants, **addresses},
        layers=tuple(
            Layer(
                (
                    *_gates(reduced, allocation, names, level, tables, neurons),
                    *table_banks(reduced, allocation, names, level, tables, grid, neurons),
                    *mixing_banks(reduced, allocation, names, level),
                    *_carrying(reduced, allocation, names, level, tokens),
                )
            )
            for level in range(1, depth + 1)
            if not neurons or any(allocation.levels[number] == level for number in reduced.origin)
        ),
        readout=tuple(links(allocation, names, allocation.reads[OUTPUT], 0)),
        readout_bias=constant(allocation, allocation.reads[OUTPUT]),
        attention=setting.attention,
        alone=setting.alone,
    )


def _carrying(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], level: int, tokens: int
) -> list[MeanBank | MoveBank]:
    """The head that carries what is complete since the layer before."""
    first, read = dict[int, int](), list[Link]()
    for number in allocation.carried:
        if allocation.levels[number] == level - 1:
            first[number] = sum(link.rows for link in read)
            ones = np.ones(reduced.graph.nodes[number].size)
            read.append(Link(names[allocation.homes[number].register], ones, first[number]))
    added = [
        replace(link, weights=diagonal(link.weights)) if link.weights.ndim == 1 else link
        for link in writes(allocation, names, first)
    ]
    return [own_head(read, added, sum(link.rows for link in read), tokens)] if read else []


def _neurons(reduced: Reduced, tables: Tables) -> frozenset[int]:
    """The nodes that neurons compute: products, and gates that are no ramps."""
    claims = {number: tables.get((node, int(parts[0]))) for number, (node, parts) in reduced.origin.items()}
    gates = {each for each, table in claims.items() if table is None and isinstance(reduced.graph.nodes[each], Relu)}
    return frozenset(gates | {each for each, table in claims.items() if isinstance(table, Multiplied)})


def _gates(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], level: int, tables: Tables, neurons: bool
) -> list[SinkBank | SiluBank]:
    gates = [
        number
        for number in reduced.origin
        if allocation.levels[number] == level
        and isinstance(reduced.graph.nodes[number], Relu)
        and (reduced.origin[number][0], int(reduced.origin[number][1][0])) not in tables
    ]
    if not gates:
        return []
    got = gather(reduced, allocation, names, gates)
    ones = np.ones(got.outputs)
    if neurons:
        return [SiluBank(got.node, got.component, got.read, got.write, ones)]
    return [SinkBank(got.node, got.component, got.read, got.write, ones, ones, 1.0, 1.0)]


def _names(graph: Graph, allocation: Allocation) -> dict[int, str]:
    """z1, z2, ...: what the gates of layer 1, 2, ... read; out: what the read-out reads; a letter where there are
    several."""
    readers: dict[int, list[int]] = {register: [] for register in allocation.writes}
    for reader, combination in allocation.reads.items():
        for number in combination.parts:
            readers[allocation.homes[number].register].append(allocation.levels.get(reader[0], len(graph.nodes)))
    names: dict[int, str] = {}
    seen: dict[str, int] = {}
    for register in allocation.writes:
        level = min(readers[register], default=0)
        stem = "out" if level == len(graph.nodes) else f"z{level}"
        seen[stem] = seen.get(stem, 0) + 1
        names[register] = stem if seen[stem] == 1 else f"{stem}.{seen[stem]}"
    return names


def _rounded(transformer: Transformer, dtype: Dtype) -> Transformer:
    """The same model with all weights rounded to a format."""

    def stored(values: Array, where: str) -> Array:
        return _held(values, where, dtype)

    def link(value: Link) -> Link:
        return Link(value.register, stored(value.weights, value.register), value.first)

    def rounded(bank: Bank) -> Bank:
        bank = replace(bank, read=tuple(map(link, bank.read)), write=tuple(map(link, bank.write)))
        own: dict[str, Any] = {name: stored(getattr(bank, name), f"a {bank.kind} head") for name in bank.arrays}
        return replace(bank, **own)

    layers = tuple(Layer(tuple(map(rounded, layer.banks))) for layer in transformer.layers)
    return replace(
        transformer,
        dtype=dtype,
        embedding=tuple(map(link, transformer.embedding)),
        initial={name: stored(value, name) for name, value in transformer.initial.items()},
        positional={name: stored(value, name) for name, value in transformer.positional.items()},
        layers=layers,
        readout=tuple(map(link, transformer.readout)),
        readout_bias=stored(transformer.readout_bias, "the read-out"),
    )


def _held(values: Array, where: str, dtype: Dtype) -> Array:
    """`values` rounded to a format, refused where they overflow."""
    result = held(values, dtype).astype(np.float64)
    if not np.isfinite(result).all():
        raise TargetError(
            f"a weight at {where} is {np.abs(values).max():.3g}, beyond {dtype}; compile with dtype='float64'"
        )
    return frozen(result)
