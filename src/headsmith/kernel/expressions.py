"""Which heads compute which nodes, and how close table and gate heads are to the expressions that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, rational
from .errors import Refused
from .functions import Program
from .graph import Graph, Node
from .model import Bank, Model
from .proof import Proof
from .table import check_table

COMPUTES = {
    "sink": ("relu",),
    "table": ("expression", "relu"),
    "gate": ("expression",),
    "mean": ("pool",),
    "boltzmann": ("pool",),
    "move": ("move",),
    "attend": ("attend",),
}
POOLS = {"mean": "mean", "boltzmann": "max"}


def headed(circuit: Graph, model: Model) -> dict[int, Any]:
    """For each node that has heads, the components that they compute, sorted; each is computed once, by one bank."""
    found: dict[int, Any] = {}
    for bank in (bank for layer in model.layers for bank in layer):
        for number in np.unique(bank.node).tolist():
            node = circuit.nodes[number] if 0 <= number < len(circuit.nodes) else None
            components = np.sort(bank.component[bank.node == number])
            if node is None or node.kind not in COMPUTES[bank.kind] or POOLS.get(bank.kind, node.name) != node.name:
                raise Refused(f"a {bank.kind} head claims node {number}, which it cannot compute")
            inside = components[0] >= 0 and components[-1] < node.size and bool(np.all(np.diff(components) > 0))
            if not inside or (node.kind != "relu" and len(components) < node.size) or number in found:
                raise Refused(
                    f"{bank.kind} heads claim {components.tolist()[:3]}... of the {node.size} of node {number}"
                )
            found[number] = components
    return found


def arguments_of(bank: Bank, circuit: Graph) -> tuple[Any, Any]:
    """The node and component that each form of a bank should be."""
    nodes, components = np.zeros(bank.forms, dtype=np.int64), np.zeros(bank.forms, dtype=np.int64)
    if bank.kind == "attend":
        shared = {circuit.nodes[number].arguments[:2] for number in bank.node.tolist()}
        (queries, keys), *others = shared
        if others or circuit.nodes[queries].size != bank.width:
            raise Refused(f"an attend head of width {bank.width} claims nodes of other queries and keys")
        every = np.arange(bank.width)
        nodes[: bank.width], nodes[bank.width : 2 * bank.width] = queries, keys
        nodes[2 * bank.width :] = [circuit.nodes[number].arguments[2] for number in bank.node.tolist()]
        return nodes, np.concatenate([every, every, bank.component])
    # One form for each output; or, of tables and gates, one for each argument that all columns of a head share.
    width, columns = bank.forms // bank.heads, bank.outputs // bank.heads
    if bank.kind not in ("table", "gate"):
        return np.array([circuit.nodes[number].arguments[0] for number in bank.node.tolist()]), bank.component
    claimed = [circuit.nodes[number].arguments for number in bank.node.tolist()]
    for head in range(bank.heads):
        mine = slice(head * columns, (head + 1) * columns)
        if len({*claimed[mine]}) > 1 or len(claimed[mine][0]) != width or len({*bank.component[mine].tolist()}) > 1:
            raise Refused("the columns of a head are expressions of different arguments or components")
        nodes[head * width : (head + 1) * width] = claimed[mine][0]
        components[head * width : (head + 1) * width] = bank.component[mine][0]
    return nodes, components


@dataclass(frozen=True, eq=False)
class Computed:
    """For each component of an expression: head - expression, and the slopes of the head by each argument."""

    error: Interval
    slopes: tuple[Interval, ...]


@dataclass(eq=False)
class TableHead:
    """All that is compared at once: columns of one table on one box, on the same cells."""

    slopes: Array
    offsets: Array
    cells: str
    low: Array
    high: Array
    columns: list[tuple[Program, bytes]]
    members: list[list[tuple[int, int]]]

    @property
    def values(self) -> Array:
        """The values (tokens, columns)."""
        return np.stack([np.frombuffer(column) for _, column in self.columns], axis=1)

    @property
    def programs(self) -> list[Program]:
        """What each column stands for."""
        return [program for program, _ in self.columns]

    @property
    def box(self) -> Array:
        """Where the arguments lie, (variables, 2)."""
        return np.stack([self.low, self.high], axis=1)


def table_heads(proof: Proof, model: Model, ranges: Sequence[Interval]) -> list[TableHead]:
    """The heads that compute expressions, on the ranges of their arguments, wider by their margins."""
    heads: dict[Any, TableHead] = {}
    for bank in (bank for layer in model.layers for bank in layer):
        for output, (number, component) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
            node = proof.circuit.nodes[number]
            if node.kind != "expression":
                continue
            if number not in proof.tables:
                raise Refused(f"node {number} is computed by a {bank.kind} head, and its proof has no cells")
            _enter(heads, proof, bank, output, node, number, component, ranges)
    return list(heads.values())


def computed(proof: Proof, model: Model, ranges: Sequence[Interval]) -> dict[int, Computed]:
    """All expressions that heads compute, compared with their heads."""
    banks = [bank for layer in model.layers for bank in layer]
    gates = {number for bank in banks if bank.kind == "gate" for number in bank.node.tolist()}
    found: dict[tuple[int, int], tuple[float, ...]] = {}
    for head in table_heads(proof, model, ranges):
        bounds = check_table(head.slopes, head.offsets, head.values, head.programs, head.box, head.cells)
        for column, members in enumerate(head.members):
            row = tuple(float(end) for each in bounds for end in np.atleast_1d(each[column]))
            found.update(dict.fromkeys(members, row))
    result = {}
    for number in {number for number, _ in found}:
        node = proof.circuit.nodes[number]
        rows = np.array([found[number, component] for component in range(node.size)])
        variables = (rows.shape[1] - 2) // 2
        slopes = tuple(Interval(rows[:, 2 + v], rows[:, 2 + variables + v]) for v in range(variables))
        whole = Computed(Interval(rows[:, 0], rows[:, 1]), slopes)
        result[number] = _gated(proof, number, whole, ranges) if number in gates else whole
    return result


def _enter(
    heads: dict[Any, TableHead],
    proof: Proof,
    bank: Bank,
    output: int,
    node: Node,
    number: int,
    component: int,
    ranges: Sequence[Interval],
) -> None:
    table, program = proof.tables[number], node.program
    if bank.kind == "gate":
        # The weight g(x) of a gate is a table of x: the token itself scores 0 and holds 1, the grid holds nothing.
        grid = bank.arrays["offset"].shape[1]
        slopes = np.concatenate([[0.0], bank.arrays["slope"][output]])[:, None]
        offsets = np.concatenate([[0.0], bank.arrays["offset"][output]])
        values, arguments, program = np.eye(1 + grid)[0], node.arguments[:1], _weight(program)
    else:
        head, column = divmod(output, bank.outputs // bank.heads)
        slopes, offsets = bank.arrays["slope"][head], bank.arrays["offset"][head]
        values, arguments = bank.arrays["values"][head][:, column], node.arguments
    boxes = [ranges[argument][component].widened(table.margin) for argument in arguments]
    low, high = np.array([float(each.low) for each in boxes]), np.array([float(each.high) for each in boxes])
    key = slopes.tobytes(), offsets.tobytes(), table.cells, arguments
    job = heads.setdefault(key, TableHead(slopes, offsets, table.cells, low, high, [], []))
    job.low, job.high = np.minimum(job.low, low), np.maximum(job.high, high)
    column_key = program, np.ascontiguousarray(values).tobytes()
    if column_key not in job.columns:
        job.columns.append(column_key)
        job.members.append([])
    job.members[job.columns.index(column_key)].append((number, component))


def _weight(program: Program) -> Program:
    """x -> a + b x, of a gate's program y (a + b x)."""
    match program:
        case Program(2, (("linear", ((_, 0),), _) as weight, ("times", (1 | 2) as left, (1 | 2) as right))):
            if left != right:
                return Program(1, (weight,))
    raise Refused("a gate head computes y (a + b x) only")


def _gated(proof: Proof, number: int, weight: Computed, ranges: Sequence[Interval]) -> Computed:
    """Of y g(x): |y| times what g is off, and the slopes y g' by x and g by y, g = a + b x + what it is off."""
    node, margin = proof.circuit.nodes[number], proof.tables[number].margin
    x, y = (ranges[argument].widened(margin) for argument in node.arguments)
    ((_, ((incline, _),), constant), _) = node.program.steps
    affine = x * rational(incline) + rational(constant)
    g = affine + weight.error
    return Computed(y * weight.error, (y * weight.slopes[0], g))
