"""The heads of one layer.

Heads that look at other tokens: one for all means, one for each pattern of moves, one a maximum, one for each pair of
queries and keys. Table heads, from the tables of expressions (and of gates, where they are ramps): expressions of the
same arguments and keys share a head, they are its columns. All tables share one set of reference tokens; a table with
fewer tokens splits its last one into equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.errors import TargetError
from headsmith.language.graph import Attend, Expression, Move, Pool, Relu
from headsmith.lower.registers import Allocation, Reader, Reduced, constant, links, product, sourced, writes
from headsmith.plan.tables import GateHead, Multiplied, Table, Tables
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank, addresses
from headsmith.transformer.heads.product import ProductBank
from headsmith.transformer.heads.stream import DATA, Link
from headsmith.transformer.heads.swiglu import SwigluBank
from headsmith.transformer.heads.table import TableBank


@dataclass(frozen=True, eq=False)
class Gathered:
    """What heads that compute some nodes, one output a component, claim, read and write."""

    node: Indices
    component: Indices
    read: tuple[Link, ...]
    write: tuple[Link, ...]

    @property
    def outputs(self) -> int:
        return len(self.node)


def gather(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], nodes: Sequence[int], argument: int = 0
) -> Gathered:
    """Nodes whose one argument, or one of whose arguments, has a component for each of theirs, one after the other."""
    read: list[Link] = []
    first: dict[int, int] = {}
    total = 0
    for number in nodes:
        first[number] = total
        read.extend(_read(allocation, names, (number, argument), total))
        total += reduced.graph.nodes[number].size
    return Gathered(
        node=np.concatenate([np.full(len(reduced.origin[n][1]), reduced.origin[n][0]) for n in nodes]),
        component=np.concatenate([reduced.origin[n][1] for n in nodes]),
        read=tuple(read),
        write=tuple(writes(allocation, names, first)),
    )


def _read(allocation: Allocation, names: dict[int, str], reader: Reader, first: int) -> list[Link]:
    """What a node reads as one of its arguments, constants included."""
    combination = allocation.reads[reader]
    read = links(allocation, names, combination, first)
    shift = constant(allocation, combination)
    return [*read, Link(DATA, shift[:, None], first)] if shift.any() else read


def mixing_banks(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], level: int
) -> list[MeanBank | BoltzmannBank | MoveBank | AttendBank]:
    """The banks of one layer."""
    here = [n for n in reduced.origin if allocation.levels[n] == level]
    banks: list[MeanBank | BoltzmannBank | MoveBank | AttendBank] = []
    attends: dict[tuple[int, int], list[int]] = {}
    kinds: dict[str, list[int]] = {}
    moves: dict[tuple[int, ...], list[int]] = {}
    for number in here:
        node = reduced.graph.nodes[number]
        if isinstance(node, Pool):
            kinds.setdefault(node.kind, []).append(number)
        elif isinstance(node, Move):
            moves.setdefault(node.targets, []).append(number)
        elif isinstance(node, Attend):
            attends.setdefault((node.queries, node.keys), []).append(number)
    if "mean" in kinds:
        got = gather(reduced, allocation, names, kinds["mean"])
        banks.append(MeanBank(got.node, got.component, got.read, got.write, 1.0, 1.0))
    if "max" in kinds:
        got = gather(reduced, allocation, names, kinds["max"])
        ones = np.ones(got.outputs)
        banks.append(BoltzmannBank(got.node, got.component, got.read, got.write, ones, ones, 1.0, 1.0))
    for targets, numbers in moves.items():
        got = gather(reduced, allocation, names, numbers)
        banks.append(MoveBank(got.node, got.component, got.read, got.write, address_name(targets), 1.0, 1.0))
    for (queries, _), numbers in attends.items():
        width = reduced.graph.nodes[queries].size
        got = gather(reduced, allocation, names, numbers, argument=2)
        read = [link for side in (0, 1) for link in _read(allocation, names, (numbers[0], side), side * width)]
        read += [replace(link, first=link.first + 2 * width) for link in got.read]
        banks.append(AttendBank(got.node, got.component, tuple(read), got.write, width, 1.0, 1.0))
    return banks


def address_registers(reduced: Reduced, tokens: int) -> dict[str, Array]:
    """The positional registers that move heads take their addresses from."""
    found = {}
    for node in reduced.graph.nodes:
        if isinstance(node, Move):
            if tokens < 2:
                raise TargetError("tokens can only be moved in sequences of two or more")
            found[address_name(node.targets)] = addresses(node.targets, tokens)
    return found


def address_name(targets: tuple[int, ...]) -> str:
    """from+1, from-2: shifts; from[3]: one token; from[2,0,1,...]: any other pattern."""
    places = np.arange(len(targets))
    wanted = np.array(targets)
    offsets = set((wanted - places)[wanted >= 0].tolist())
    inside = {int(o) for o in offsets if np.array_equal(wanted >= 0, (places + o >= 0) & (places + o < len(targets)))}
    if len(offsets) == 1 and inside:
        return f"from{next(iter(inside)):+d}"
    if len(set(targets)) == 1:
        return f"from[{targets[0]}]"
    return f"from[{','.join(map(str, targets))}]"


# Table heads ----------------------------------------------------------------------------------------------------------


def table_banks(
    reduced: Reduced,
    allocation: Allocation,
    names: dict[int, str],
    level: int,
    tables: Tables,
    grid: int,
    neurons: bool = False,
) -> list[TableBank | GateBank | ProductBank | SwigluBank]:
    """The table heads of one layer: a bank for each number of arguments and of columns, one of all gates, and one of
    all products, under linear attention or by `neurons`."""
    heads: dict[tuple[tuple[int, ...], bytes], list[int]] = {}
    gates: list[int] = []
    products: list[int] = []
    for number, node in enumerate(reduced.graph.nodes):
        if not isinstance(node, Expression | Relu) or allocation.levels[number] != level:
            continue
        if (reduced.origin[number][0], int(reduced.origin[number][1][0])) in tables:
            table = tables[reduced.origin[number][0], int(reduced.origin[number][1][0])]
            if isinstance(table, GateHead):
                gates.append(number)
                continue
            if isinstance(table, Multiplied):
                products.append(number)
                continue
            heads.setdefault((reduced.graph.reads[number], table.slope.tobytes() + table.offset.tobytes()), []).append(
                number
            )
    shapes: dict[tuple[int, int], list[list[int]]] = {}
    for (variables, _), columns in heads.items():
        shapes.setdefault((len(variables), len(columns)), []).append(columns)
    banks: list[TableBank | GateBank | ProductBank | SwigluBank] = [
        _table_bank(reduced, allocation, names, groups, tables, grid) for groups in shapes.values()
    ]
    banks += [_gate_bank(reduced, allocation, names, gates, tables, grid)] if gates else []
    kind = SwigluBank if neurons else ProductBank
    return [*banks, *([_product_bank(reduced, allocation, names, products, kind)] if products else [])]


def _table_bank(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], groups: list[list[int]], tables: Tables, grid: int
) -> TableBank:
    """Every group of expressions is as many heads as it has components, each expression a column of these."""
    nodes = reduced.graph.nodes
    variables, columns = len(reduced.graph.reads[groups[0][0]]), len(groups[0])
    claims: list[int] = []
    components: list[int] = []
    read: list[Link] = []
    slope: list[Array] = []
    offset: list[Array] = []
    values: list[Array] = []
    outputs: dict[int, int] = {}
    spread: dict[int, int] = {}
    for group in groups:
        head, size = len(slope), nodes[group[0]].size
        for variable in range(variables):
            read.extend(_rows(allocation, names, group[0], variable, variables, head * variables))
        for column, number in enumerate(group):
            outputs[number], spread[number] = head * columns + column, columns
        for component in range(size):
            originals = [reduced.origin[number] for number in group]
            members = [_table(tables[original, int(parts[component])]) for original, parts in originals]
            claims.extend(original for original, _ in originals)
            components.extend(int(parts[component]) for _, parts in originals)
            padded = [_padded(member, grid) for member in members]
            slope.append(padded[0].slope)
            offset.append(padded[0].offset)
            values.append(np.stack([each.values for each in padded], axis=1))
    return TableBank(
        node=np.array(claims),
        component=np.array(components),
        read=tuple(read),
        write=tuple(_spread(link, spread[source]) for source, link in sourced(allocation, names, outputs)),
        slope=np.array(slope),
        offset=np.array(offset),
        values=np.array(values),
        gain=1.0,
        keep_gain=1.0,
    )


def _gate_bank(
    reduced: Reduced, allocation: Allocation, names: dict[int, str], numbers: list[int], tables: Tables, grid: int
) -> GateBank:
    """One head for each component of the expressions, one after the other."""
    claims: list[int] = []
    components: list[int] = []
    read: list[Link] = []
    padded: list[Table] = []
    outputs: dict[int, int] = {}
    for number in numbers:
        size, (original, parts) = reduced.graph.nodes[number].size, reduced.origin[number]
        outputs[number] = len(claims)
        for variable in range(2):
            read.extend(_rows(allocation, names, number, variable, 2, 2 * len(claims)))
        for component in range(size):
            gate = tables[original, int(parts[component])]
            assert isinstance(gate, GateHead)
            padded.append(_padded(Table(gate.slope[:, None], gate.offset, 0.0 * gate.offset), grid))
            claims.append(original)
            components.append(int(parts[component]))
    return GateBank(
        node=np.array(claims),
        component=np.array(components),
        read=tuple(read),
        write=tuple(link for _, link in sourced(allocation, names, outputs)),
        slope=np.array([table.slope[:, 0] for table in padded]),
        offset=np.array([table.offset for table in padded]),
        position_gain=1.0,
        keep_gain=1.0,
    )


def _product_bank(
    reduced: Reduced,
    allocation: Allocation,
    names: dict[int, str],
    numbers: list[int],
    kind: type[ProductBank | SwigluBank],
) -> ProductBank | SwigluBank:
    """One output for each component of the products, one after the other; a square reads its argument twice."""
    claims: list[int] = []
    components: list[int] = []
    read: list[Link] = []
    outputs: dict[int, int] = {}
    for number in numbers:
        node, (original, parts) = reduced.graph.nodes[number], reduced.origin[number]
        outputs[number] = len(claims)
        for place in range(2):
            read.extend(
                _rows(allocation, names, number, place, 2, 2 * len(claims), len(reduced.graph.reads[number]) == 1)
            )
        claims.extend([original] * node.size)
        components.extend(map(int, parts))
    write = tuple(link for _, link in sourced(allocation, names, outputs))
    return kind(np.array(claims), np.array(components), tuple(read), write)


def _rows(
    allocation: Allocation,
    names: dict[int, str],
    number: int,
    variable: int,
    variables: int,
    first: int,
    only: bool = False,
) -> list[Link]:
    """Reads of argument `variable`: that of component c is row first + c * variables + variable. With `only`, it is the
    node's only argument that is read there."""
    combination = allocation.reads[number, 0 if only else variable]
    shift = constant(allocation, combination)
    size = len(shift)
    rows = np.zeros((size * variables, size))
    rows[np.arange(size) * variables + variable, np.arange(size)] = 1.0
    read = [
        Link(link.register, product(rows, link.weights), first) for link in links(allocation, names, combination, 0)
    ]
    return [*read, Link(DATA, (rows @ shift)[:, None], first)] if shift.any() else read


def _table(table: Table | GateHead | Multiplied) -> Table:
    assert isinstance(table, Table)
    return table


def _padded(table: Table, tokens: int) -> Table:
    """The same table with more tokens: its last one is shared out evenly, e^c = n e^(c - ln n)."""
    missing = tokens - len(table.offset)
    if missing == 0:
        return table
    offset = np.concatenate([table.offset, np.full(missing, table.offset[-1])])
    offset[-missing - 1 :] -= math.log(missing + 1)
    slope = np.concatenate([table.slope, np.repeat(table.slope[-1:], missing, axis=0)])
    return Table(slope, offset, np.concatenate([table.values, np.full(missing, table.values[-1])]))


def _spread(link: Link, step: int) -> Link:
    """Weights from outputs first, first + step, first + 2 step, ...: those of one column of consecutive heads."""
    if step == 1:
        return link
    dense = np.diag(link.weights) if link.weights.ndim == 1 else link.weights
    wide = np.zeros((dense.shape[0], (dense.shape[1] - 1) * step + 1))
    wide[:, ::step] = dense
    return Link(link.register, wide, link.first)
