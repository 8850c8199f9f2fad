"""What every register and every source node means: an affine form of the inputs and of the gates that have a head.

Both sides are derived here, independently: the registers' forms from the stored weights, layer by layer; the source's
forms from the graph, where a gate without a head must be one that cannot cross zero on the domain. Where a head reads a
register, the two are compared: the difference is the head's `deviation`, an error like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from headsmith.certify.forms import (
    Form,
    basis_form,
    constant_form,
    deviation,
    embedded_rows,
    image,
    plus,
    rows_of,
    scattered,
)
from headsmith.core.arrays import Array, Indices
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval
from headsmith.core.rounding import upper
from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.stream import DATA, Link
from headsmith.heads.table import TableBank
from headsmith.source.graph import (
    Affine,
    Attend,
    Expression,
    Graph,
    Input,
    Move,
    Node,
    Pool,
    Positional,
    Relu,
    arguments,
    needed,
)
from headsmith.source.sensitivity import Slopes
from headsmith.transformer.ir import Bank, Transformer

Mask = npt.NDArray[np.bool_]


class SourceMeaning:
    """Forms of the source nodes over the input and the gates that have a head."""

    def __init__(self, graph: Graph, ranges: Sequence[Interval], transformer: Transformer) -> None:
        self.graph, self.ranges = graph, ranges
        self.headed = _headed(graph, transformer)
        self._forms: dict[int, Form] = {}

    def slopes(self) -> dict[int, Slopes]:
        """Chord slopes: anything in [0, 1] for a gate with a head; 1 or 0 for one that cannot cross zero and has
        none."""
        found = {}
        stops = self._dead_nodes()
        wanted = set(needed(self.graph, self.graph.output, stops))
        for number in sorted(wanted.union(*(needed(self.graph, gate, stops) for gate in self.headed))):
            node = self.graph.nodes[number]
            if isinstance(node, Relu):
                has_head, active, _ = self._sorted_gates(number, node)
                found[number] = Slopes(active.astype(np.float64), (active | has_head).astype(np.float64))
        return found

    def _dead_nodes(self) -> set[int]:
        """Relu nodes that are zero on the whole domain and have no heads: nothing they read matters."""
        return {
            number
            for number, node in enumerate(self.graph.nodes)
            if isinstance(node, Relu)
            and number not in self.headed
            and bool(np.all(self.ranges[node.argument].high <= 0.0))
        }

    def arguments_of(self, bank: Bank) -> tuple[Indices, Indices]:
        """The circuit node and component that each of the bank's reads should be."""
        if isinstance(bank, TableBank):
            return self._arguments_of_tables(bank, bank.columns, bank.arguments)
        if isinstance(bank, GateBank):
            return self._arguments_of_tables(bank, 1, 2)
        if isinstance(bank, AttendBank):
            return self._arguments_of_attention(bank)
        nodes = np.zeros(bank.readers, dtype=np.int64)
        for number in map(int, np.unique(bank.node)):
            node = self.graph.nodes[number]
            assert isinstance(node, Relu | Pool | Move)
            nodes[bank.node == number] = node.argument
        return nodes, bank.component

    def _arguments_of_tables(self, bank: TableBank | GateBank, width: int, count: int) -> tuple[Indices, Indices]:
        """All columns of a head must be expressions of the same arguments."""
        claimed, components = (each.reshape(bank.heads, width) for each in (bank.node, bank.component))
        nodes = np.zeros((bank.heads, count), dtype=np.int64)
        for number in map(int, np.unique(bank.node)):
            variables = arguments(self.graph.nodes[number])
            heads, columns = np.nonzero(claimed == number)
            if len(variables) != count:
                raise CertificateError(f"a head of {count} arguments claims node {number}, which has others")
            nodes[heads[columns == 0]] = variables
        for number in map(int, np.unique(bank.node)):
            heads = np.nonzero(claimed == number)[0]
            if np.any(nodes[heads] != np.array(arguments(self.graph.nodes[number]))):
                raise CertificateError("the columns of a table head are expressions of different arguments")
        if np.any(components != components[:, :1]):
            raise CertificateError("the columns of a table head are different components")
        return nodes.reshape(-1), np.repeat(components[:, 0], count)

    def _arguments_of_attention(self, bank: AttendBank) -> tuple[Indices, Indices]:
        """All nodes of a head must have the same queries and keys, as wide as the head's."""
        nodes, components = np.zeros(bank.readers, dtype=np.int64), np.zeros(bank.readers, dtype=np.int64)
        claimed = [self.graph.nodes[number] for number in map(int, np.unique(bank.node))]
        shared = {(node.queries, node.keys) for node in claimed if isinstance(node, Attend)}
        queries, keys = next(iter(shared))
        if len(shared) > 1 or self.graph.nodes[queries].size != bank.width:
            raise CertificateError(f"an attend head of width {bank.width} claims nodes of other queries and keys")
        for part, number in zip(bank.parts, (queries, keys), strict=False):
            nodes[part], components[part] = number, np.arange(bank.width)
        components[bank.parts[2]] = bank.component
        for number in map(int, np.unique(bank.node)):
            nodes[bank.parts[2]][bank.node == number] = arguments(self.graph.nodes[number])[2]
        return nodes, components

    def form(self, number: int) -> Form:
        """The node's form; computed once, in the order of the graph."""
        for earlier in self._missing(number):
            self._forms[earlier] = self._derive(earlier)
        return self._forms[number]

    def _missing(self, number: int) -> list[int]:
        needed, stack = set(), [number]
        while stack:
            current = stack.pop()
            if current in needed or current in self._forms:
                continue
            needed.add(current)
            node = self.graph.nodes[current]
            if isinstance(node, Affine):
                stack.extend(term.node for term in node.terms)
            elif isinstance(node, Relu) and self._sorted_gates(current, node)[1].any():
                stack.append(node.argument)
        return sorted(needed)

    def _derive(self, number: int) -> Form:
        node = self.graph.nodes[number]
        match node:
            case Input() | Expression() | Pool() | Move() | Attend():
                return basis_form(number, node.size)
            case Positional():
                return basis_form(first_equal(self.graph, number), node.size)
            case Affine():
                total = constant_form(node.bias)
                for term in node.terms:
                    total = plus(total, image(term.weights, self._forms[term.node]))
                return total
            case Relu():
                return self._gates(number, node)
            case _:
                raise CertificateError(f"node {number} is not part of a circuit")

    def _gates(self, number: int, node: Relu) -> Form:
        has_head, active, _ = self._sorted_gates(number, node)
        if has_head.all():
            return basis_form(number, node.size)
        passed = constant_form(np.zeros(node.size))
        if active.any():
            passed = image(active.astype(np.float64), self._forms[node.argument])
        if not has_head.any():
            return passed
        return plus(image(has_head.astype(np.float64), basis_form(number, node.size)), passed)

    def _sorted_gates(self, number: int, node: Relu) -> tuple[Mask, Mask, Mask]:
        """Which gates have a head, are active, are dead; raises if one is neither."""
        found = self.ranges[node.argument]
        has_head = np.isin(np.arange(node.size), self.headed.get(number, np.zeros(0, dtype=np.int64)))
        dead = ~has_head & (found.high <= 0.0)
        active = ~has_head & ~dead & (found.low >= 0.0)
        if not (has_head | active | dead).all():
            gate = int(np.argmin(has_head | active | dead))
            raise CertificateError(
                f"gate {gate} of node {number} crosses zero on the domain (its argument ranges over "
                f"[{found.low[gate]:.6g}, {found.high[gate]:.6g}]), but no head computes it"
            )
        return has_head, active, dead


def _may_compute(bank: Bank, node: Node | None) -> bool:
    """Whether heads of this kind can stand for the node."""
    match bank:
        case SinkBank():
            return isinstance(node, Relu)
        case TableBank():
            return isinstance(node, Expression | Relu)
        case MeanBank():
            return isinstance(node, Pool) and node.kind == "mean"
        case BoltzmannBank():
            return isinstance(node, Pool) and node.kind == "max"
        case MoveBank():
            return isinstance(node, Move)
        case AttendBank():
            return isinstance(node, Attend)
        case GateBank():
            return isinstance(node, Expression)
        case _:
            return False


def _table_deviation(stored: Array, wanted: Array) -> Array | None:
    """How far a stored table of constants is from the one wanted, by column; None if it is another one."""
    if stored.shape != wanted.shape:
        return None
    off = np.asarray(upper(np.abs(stored - wanted).max(axis=0), 1)) if not np.array_equal(stored, wanted) else 0.0
    off = off + np.zeros(wanted.shape[1])
    return off if np.all(off <= 1e-6 * (1e-30 + np.abs(wanted).max(axis=0))) else None


def first_equal(graph: Graph, number: int) -> int:
    """The first node with the same constants of tokens: what stands for all of them."""
    wanted = graph.nodes[number]
    assert isinstance(wanted, Positional)
    return next(
        place
        for place, node in enumerate(graph.nodes)
        if isinstance(node, Positional) and np.array_equal(node.values, wanted.values)
    )


def _headed(graph: Graph, transformer: Transformer) -> dict[int, Indices]:
    """For each node that has heads, the components that they claim to compute, sorted; each at most once."""
    claims: dict[int, list[Indices]] = {}
    for layer in transformer.layers:
        for bank in layer.banks:
            for number in map(int, np.unique(bank.node)):
                node = graph.nodes[number] if 0 <= number < len(graph.nodes) else None
                components = bank.component[bank.node == number]
                if (
                    not _may_compute(bank, node)
                    or node is None
                    or components.min() < 0
                    or components.max() >= node.size
                ):
                    what = "gate" if isinstance(bank, SinkBank) else "component"
                    claim = f"a {bank.kind} head claims {what} {components.tolist()[:3]} of node {number}"
                    raise CertificateError(f"{claim}: there is no such {what}")
                claims.setdefault(number, []).append(components)
    headed = {}
    for number, lists in claims.items():
        components = np.sort(np.concatenate(lists))
        if len(np.unique(components)) != len(components):
            raise CertificateError(f"two heads claim the same component of node {number}")
        node = graph.nodes[number]
        # A gate without a head may be dead or active; of all other nodes every component needs one.
        if not isinstance(node, Relu) and len(components) != node.size:
            raise CertificateError(f"heads claim {len(components)} of the {node.size} components of node {number}")
        headed[number] = components
    return headed


class StreamMeaning:
    """Forms of the registers on data tokens, advanced layer by layer from the stored weights."""

    def __init__(self, graph: Graph, transformer: Transformer) -> None:
        self.graph, self.transformer = graph, transformer
        self._forms = {name: constant_form(value) for name, value in transformer.initial.items()}
        self._forms[DATA] = constant_form(np.ones(1))
        for number, node in enumerate(graph.nodes):
            if isinstance(node, Positional):
                for name, values in transformer.positional.items():
                    off = _table_deviation(values, node.values)
                    if off is not None and name not in self._forms:
                        form = basis_form(first_equal(graph, number), node.size)
                        self._forms[name] = Form(form.parts, form.constant, off)
        self._opaque = {name for name in transformer.positional if name not in self._forms}
        for link in transformer.embedding:
            columns = np.arange(link.first, link.first + link.columns)
            self._add(link.register, 0, link.weights, columns)

    def _add(self, register: str, node: int, weights: Array, columns: Indices) -> None:
        size = self.graph.nodes[node].size
        wide = scattered(weights, columns, size)
        written = image(wide, basis_form(node, size))
        self._forms[register] = plus(self._form(register), written)

    def _form(self, register: str) -> Form:
        if register not in self._forms:
            self._forms[register] = constant_form(np.zeros(self.transformer.sizes[register]))
        return self._forms[register]

    def read(self, links: Sequence[Link], rows: int, constant: Array | None = None) -> Form:
        """What heads (or the read-out) read through `links`."""
        total = constant_form(np.zeros(rows) if constant is None else constant)
        for link in links:
            if link.register in self._opaque:
                raise CertificateError(f"the positional register {link.register} is read, but stands for nothing")
            total = plus(total, embedded_rows(image(link.weights, self._form(link.register)), link.first, rows))
        return total

    def advance(self, bank: Bank) -> None:
        """Add what the bank's heads write, each head being its gate."""
        for link in bank.write:
            nodes, components = bank.node[link.sources], bank.component[link.sources]
            for number in np.unique(nodes):
                mine = nodes == number
                weights = link.weights
                if not mine.all():
                    weights = (np.diag(weights) if weights.ndim == 1 else weights)[:, mine]
                self._add(link.register, int(number), weights, components[mine])


def read_deviation(source: SourceMeaning, stream: StreamMeaning, bank: Bank, magnitudes: Mapping[int, Array]) -> Array:
    """For each read, a bound of |what is read - the circuit's argument|, as functions of the same inputs and gates."""
    nodes, components = source.arguments_of(bank)
    read = stream.read(bank.read, bank.readers)
    result = np.zeros(bank.readers)
    for number in map(int, np.unique(nodes)):
        mine = np.flatnonzero(nodes == number)
        wanted = rows_of(source.form(number), components[mine])
        result[mine] = deviation(rows_of(read, mine), wanted, magnitudes)
    return result


def output_deviation(source: SourceMeaning, stream: StreamMeaning, magnitudes: Mapping[int, Array]) -> Array:
    """For each output, a bound of |what the read-out reads - the source's output|, as functions of the same gates."""
    transformer = stream.transformer
    read = stream.read(transformer.readout, transformer.outputs, transformer.readout_bias)
    return deviation(read, source.form(source.graph.output), magnitudes)
