"""Which heads compute which nodes, and how close table and gate heads are to the expressions that they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, joined, rational
from .errors import Refused, refuse
from .functions import Program, named
from .graph import PRODUCT, Graph
from .heads import RULES
from .model import PAIRS, Bank, Model
from .proof import Proof
from .table import Table, check_table

SQUARES = named("square"), Program(1, (("times", 0, 0),))


def headed(circuit: Graph, model: Model) -> dict[int, Any]:
    """For each node that has heads, the components that they compute, sorted; each is computed once, by one bank."""
    found: dict[int, Any] = {}
    for bank in model.computing:
        for number in np.unique(bank.node).tolist():
            node = circuit.nodes[number] if 0 <= number < len(circuit.nodes) else None
            components = np.sort(bank.component[bank.node == number])
            if node is None or f"{node.kind} {node.name}".strip() not in RULES[bank.kind]:
                raise Refused(f"a {bank.kind} head claims node {number}, which it cannot compute")
            inside = components[0] >= 0 and components[-1] < node.size and bool(np.all(np.diff(components) > 0))
            if not inside or (node.kind != "relu" and len(components) < node.size) or number in found:
                raise Refused(f"{bank.kind} heads claim {components[:3]}... of the {node.size} of node {number}")
            found[number] = components
    return found


def arguments_of(bank: Bank, circuit: Graph) -> tuple[Any, Any]:
    """The node and component that each form of a bank should be."""
    if bank.kind in PAIRS:
        read = [circuit.nodes[number].arguments for number in bank.node.tolist()]
        return np.array([(each[0], each[-1]) for each in read]).reshape(-1), np.repeat(bank.component, 2)
    claimed = np.array([circuit.nodes[number].arguments for number in bank.node.tolist()])
    if circuit.nodes[bank.node[0]].kind == "sampled":
        sizes = [circuit.nodes[argument].size for argument in claimed[0]]
        return np.repeat(claimed[0], sizes), np.concatenate([np.arange(size) for size in sizes])
    if bank.kind == "attend":
        queries, every = claimed[0, 0], np.arange(bank.width)
        if np.any(claimed[:, :2] != claimed[0, :2]) or circuit.nodes[queries].size != bank.width:
            raise Refused(f"an attend head of width {bank.width} claims nodes of other queries and keys")
        shared = np.repeat(claimed[0, :2], bank.width)
        return np.concatenate([shared, claimed[:, 2]]), np.concatenate([every, every, bank.component])
    if bank.kind not in ("table", "gate"):
        return claimed[:, 0], bank.component
    # All columns of a head share its arguments.
    nodes, components = claimed.reshape(bank.heads, -1, claimed.shape[1]), bank.component.reshape(bank.heads, -1)
    width = bank.forms // bank.heads
    if nodes.shape[2] != width or np.any(nodes != nodes[:, :1]) or np.any(components != components[:, :1]):
        raise Refused("the columns of a head are expressions of different arguments or components")
    return nodes[:, 0].reshape(-1), np.repeat(components[:, 0], width)


@dataclass(frozen=True, eq=False)
class Computed:
    """For each component of an expression: head - expression, and the slopes of the head by each argument."""

    error: Interval
    slopes: tuple[Interval, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Columns of one table that are compared at once, on the same cells of the hull of their boxes. A column is a
    program and the bytes of its values; it stands for components of nodes."""

    slopes: Array
    offsets: Array
    cells: str
    boxes: list[Interval]
    columns: dict[tuple[Program, bytes], list[tuple[int, int]]]

    @property
    def table(self) -> Table:
        """What is compared."""
        box = np.min([box.low for box in self.boxes], axis=0), np.max([box.high for box in self.boxes], axis=0)
        programs, values = zip(*self.columns, strict=True)
        held = np.stack([np.frombuffer(column) for column in values], axis=1)
        return Table(self.slopes, self.offsets, held, programs, np.stack(box, axis=1))


def comparisons(proof: Proof, model: Model, ranges: Sequence[Interval]) -> list[Comparison]:
    """The heads that compute expressions, on the ranges of their arguments, wider by their margins."""
    found: dict[Any, Comparison] = {}
    for bank in model.computing:
        for output, (number, component) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
            node, carried = proof.circuit.nodes[number], proof.tables.get(number)
            if node.kind != "expression" or bank.kind in PAIRS:
                continue
            slopes, offsets, values, program = _column(bank, output, node.program)
            arguments = node.arguments[: program.variables]
            if carried is None or slopes.shape[1] != len(arguments):
                raise Refused(f"node {number} is computed by a {bank.kind} head, and its proof has no cells that fit")
            box = joined([ranges[argument][component] for argument in arguments], np.stack).widened(carried.margin)
            key = slopes.tobytes(), offsets.tobytes(), carried.cells, arguments
            mine = found.setdefault(key, Comparison(slopes, offsets, carried.cells, [], {}))
            mine.boxes.append(box)
            mine.columns.setdefault((program, values.tobytes()), []).append((number, component))
    return list(found.values())


def _column(bank: Bank, output: int, program: Program) -> tuple[Array, Array, Array, Program]:
    """Slopes, offsets and values of an output, and what it stands for."""
    head, column = divmod(output, bank.outputs // bank.heads)
    slopes, offsets = bank.arrays["slope"][head], bank.arrays["offset"][head]
    if bank.kind == "table":
        return slopes, offsets, bank.arrays["values"][head][:, column], program
    # The weight g(x) of a gate is a table of x: the token itself scores 0 and holds 1, the grid holds nothing.
    slopes, offsets = np.concatenate([[0.0], slopes])[:, None], np.concatenate([[0.0], offsets])
    return slopes, offsets, np.eye(len(offsets))[0], _weight(program)


def _sampled(proof: Proof, bank: Bank, number: int, ranges: Sequence[Interval]) -> Computed:
    """A sampled function, compared with the head that computes it; slopes are those by each form that it reads."""
    from ..rules.sampled import answered

    node, (argument, *others) = proof.circuit.nodes[number], proof.circuit.nodes[number].arguments
    place = proof.circuit.nodes[others[0]].constants if others else np.zeros((1, 0))
    alone = bank.heads == 1 and np.all(bank.node == number) and np.array_equal(bank.component, np.arange(node.size))
    fits = place.ndim == 2 and place.shape[1] + len(ranges[argument].low) == bank.forms
    refuse(not (alone and fits and number in proof.tables), f"node {number} is not computed by one head, with a margin")
    refuse(ranges[argument].magnitude.value[node.weights[1] == 0.0].any(), "a number whose scale is zero is not zero")
    error, slopes = answered(node, place, ranges[argument].widened(proof.tables[number].margin), bank.arrays)
    every = np.broadcast_to(slopes.value[:, None], (bank.forms, node.size))
    return Computed(Interval(-error.value, error.value), tuple(Interval(-each, each) for each in every))


def _product(proof: Proof, number: int, ranges: Sequence[Interval]) -> Computed:
    """A product or a square that a product head, or a pair of neurons, computes: up to rounding it is that. Its slopes
    are those for arguments as they are and as they arrive."""
    node = proof.circuit.nodes[number]
    refuse(number not in proof.tables, f"nothing says how far what node {number} reads may be off")
    seen = [ranges[argument].widened(proof.tables[number].margin) for argument in node.arguments]
    refuse(node.program not in (PRODUCT, *SQUARES), "a product head computes products and squares only")
    slopes = (seen[1], seen[0]) if node.program == PRODUCT else (seen[0] + seen[0],)
    return Computed(Interval(*np.zeros((2, node.size))), slopes)


def computed(proof: Proof, model: Model, ranges: Sequence[Interval]) -> dict[int, Computed]:
    """All expressions and sampled functions that heads compute, compared with their heads."""
    rows: dict[int, dict[int, Interval]] = {}
    for each in comparisons(proof, model, ranges):
        bounds = check_table(each.table, each.cells)
        for column, members in enumerate(each.columns.values()):
            for number, component in members:
                rows.setdefault(number, {})[component] = bounds[column]
    result = {}
    for bank in model.computing:
        for number in {each for each in bank.node.tolist() if proof.circuit.nodes[each].kind == "sampled"}:
            result[number] = _sampled(proof, bank, number, ranges)
        for number in {*bank.node.tolist()} if bank.kind in PAIRS else ():
            result[number] = _product(proof, number, ranges)
    for number, row in rows.items():
        bounds = joined([row[component] for component in range(proof.circuit.nodes[number].size)], np.stack)
        found = Computed(bounds[:, 0], tuple(bounds[:, place] for place in range(1, bounds.low.shape[1])))
        gated = len(found.slopes) < len(proof.circuit.nodes[number].arguments)
        result[number] = _gated(proof, number, found, ranges) if gated else found
    return result


def _weight(program: Program) -> Program:
    """x -> a + b x, of a gate's program y (a + b x)."""
    match program:
        case Program(2, (("linear", ((_, 0),), _) as weight, ("times", 1, 2) | ("times", 2, 1))):
            return Program(1, (weight,))
    raise Refused("a gate head computes y (a + b x) only")


def _gated(proof: Proof, number: int, weight: Computed, ranges: Sequence[Interval]) -> Computed:
    """Of y g(x): |y| times what g is off, and the slopes y g' by x and g by y, g = a + b x + what it is off."""
    node, margin = proof.circuit.nodes[number], proof.tables[number].margin
    x, y = (ranges[argument].widened(margin) for argument in node.arguments)
    ((_, ((incline, _),), constant), _) = node.program.steps
    g = x * rational(incline) + rational(constant) + weight.error
    return Computed(y * weight.error, (y * weight.slopes[0], g))
