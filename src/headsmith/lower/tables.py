"""All table heads of a model against the expressions that they stand for: errors, and slopes for what arrives.

Expressions with the same keys and arguments are columns of one head and are bounded together. What has been proven of
a table is remembered by its numbers, so that planning and certifying prove it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval, add, point
from headsmith.core.program import Linear, Program, Times, kernel_program
from headsmith.core.rounding import upper
from headsmith.kernel.arithmetic import Interval as Bounds
from headsmith.kernel.errors import Refused
from headsmith.kernel.table import Table as KernelTable
from headsmith.search.cells import table_cells
from headsmith.source.graph import Expression

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Table:
    """The table that computes one component of an expression: slopes (tokens, variables), offsets and values
    (tokens)."""

    slope: Array
    offset: Array
    values: Array


@dataclass(frozen=True, eq=False)
class GateHead:
    """A gate head that computes one component of y (intercept + incline x): slopes and offsets of its grid (tokens)."""

    slope: Array
    offset: Array

    @property
    def weight(self) -> Table:
        """Its weight g(x) as a table of x: the token itself scores and holds 0 and 1, the grid holds nothing."""
        slope = np.concatenate([[0.0], self.slope])[:, None]
        return Table(slope, np.concatenate([[0.0], self.offset]), np.concatenate([[1.0], 0.0 * self.offset]))


@dataclass(frozen=True, eq=False)
class Multiplied:
    """A product head of linear attention, or two neurons, that compute one component of a product or a square:
    exactly."""


Tables = Mapping[tuple[int, int], Table | GateHead | Multiplied]
"""By circuit node and component."""


def gate_weight(program: Program) -> Program:
    """x -> intercept + incline x, of a gate's program."""
    match program:
        case Program(variables=2, steps=(Linear(terms=((_, 0),)) as weight, Times(left=1, right=2))):
            return Program(1, (weight,))
    raise CertificateError("a gate head computes y (a + b x) only")


@dataclass(frozen=True, eq=False)
class TableBounds:
    """For each component of an expression: head - expression, and for each argument the slope of the head."""

    error: Interval
    slopes: tuple[Interval, ...]
    weight_error: Array = field(default_factory=lambda: np.zeros(1))
    """For a gate, how far its weight is from affine."""


@dataclass(frozen=True, eq=False)
class Item:
    """An expression of the circuit and the ranges on which its heads are wanted."""

    place: int
    node: Expression
    ranges: Sequence[Interval]
    margin: float = 0.0


@dataclass(eq=False)
class _Job:
    """One proof: columns of a head on one box. `members` are (place, component) of each column."""

    slope: Array
    offset: Array
    columns: list[tuple[Program, Array]]
    members: list[list[tuple[int, int]]]
    low: Array
    high: Array
    margin: float = 0.0


def table_bounds(items: Sequence[Item], tables: Tables, progress: Progress | None) -> dict[int, TableBounds]:
    """The bounds of every item, by its place in the circuit. Raises CertificateError where a table is missing."""
    gates = [item for item in items if isinstance(tables.get((item.place, 0)), GateHead)]
    if gates:
        found = table_bounds([item for item in items if item not in gates], tables, progress)
        return {**found, **_gate_bounds(gates, tables, progress)}
    jobs: dict[tuple[bytes, bytes, tuple[int, ...]], _Job] = {}
    exact = {item.place: _product_bounds(item) for item in items if isinstance(tables.get((item.place, 0)), Multiplied)}
    items = [item for item in items if item.place not in exact]
    for item in items:
        low, high = (np.stack([getattr(each, end) for each in item.ranges]) for end in ("low", "high"))
        for component in range(item.node.size):
            if (item.place, component) not in tables:
                raise CertificateError(f"no table head computes component {component} of circuit node {item.place}")
            table = tables[item.place, component]
            if not isinstance(table, Table):
                raise CertificateError("some components of an expression have gate heads, and others tables")
            _enter(jobs, item, component, table, low[:, component], high[:, component])
    known: dict[tuple[int, int], tuple[Bounds, int]] = {}
    for number, job in enumerate(jobs.values()):
        if progress is not None:
            progress("proving table heads", number / len(jobs))
        bounds = _bounds(job)
        for column, members in enumerate(job.members):
            known.update(dict.fromkeys(members, (bounds, column)))
    return {**exact, **{item.place: _collected(item, known) for item in items}}


def _product_bounds(item: Item) -> TableBounds:
    """Nothing is off; the slopes of x y are y and x, those of a square twice its argument."""
    slopes = tuple(reversed(item.ranges)) if len(item.ranges) > 1 else (add(item.ranges[0], item.ranges[0]),)
    return TableBounds(point(np.zeros(item.node.size)), slopes)


def _gate_bounds(items: Sequence[Item], tables: Tables, progress: Progress | None) -> dict[int, TableBounds]:
    """out = y g(x), so |out - y (a + b x)| <= |y| |g - a - b x|, with slopes y g' and g, where 0 <= g <= 1."""
    weights: dict[tuple[int, int], Table | GateHead] = {}
    for item in items:
        for component in range(item.node.size):
            gate = tables.get((item.place, component))
            if not isinstance(gate, GateHead):
                raise CertificateError("some components of an expression have gate heads, and others have not")
            weights[item.place, component] = gate.weight
    inner = [
        Item(
            item.place,
            Expression(gate_weight(item.node.program), item.node.arguments[:1], item.node.size),
            item.ranges[:1],
            item.margin,
        )
        for item in items
    ]
    found = {}
    for item in items:
        known = table_bounds([each for each in inner if each.place == item.place], weights, progress)[item.place]
        y, size = item.ranges[1], item.ranges[1].magnitude
        error = upper(size * known.error.magnitude, 1)
        steep = upper(size * known.slopes[0].magnitude, 1)
        slopes = (Interval(-steep, steep), Interval(np.zeros(len(y.low)), np.ones(len(y.low))))
        found[item.place] = TableBounds(Interval(-error, error), slopes, known.error.magnitude)
    return found


def _enter(
    jobs: dict[tuple[bytes, bytes, tuple[int, ...]], _Job],
    item: Item,
    component: int,
    table: Table,
    low: Array,
    high: Array,
) -> None:
    key = (table.slope.tobytes(), table.offset.tobytes(), item.node.arguments)
    job = jobs.setdefault(key, _Job(table.slope, table.offset, [], [], low, high))
    job.low, job.high = np.minimum(job.low, low), np.maximum(job.high, high)
    job.margin = max(job.margin, item.margin)
    for index, (program, values) in enumerate(job.columns):
        if program == item.node.program and np.array_equal(values, table.values):
            job.members[index].append((item.place, component))
            return
    job.columns.append((item.node.program, table.values))
    job.members.append([(item.place, component)])


def _bounds(job: _Job) -> Bounds:
    """The kernel's bounds for the columns of a head, on cells that make them tight."""
    values = np.stack([column for _, column in job.columns], axis=1)
    programs = [kernel_program(program) for program, _ in job.columns]
    try:
        table = KernelTable(job.slope, job.offset, values, programs, np.stack([job.low, job.high], axis=1))
        return table_cells(table, margin=job.margin).bounds
    except Refused as problem:
        raise CertificateError(str(problem)) from None


def _collected(item: Item, known: Mapping[tuple[int, int], tuple[Bounds, int]]) -> TableBounds:
    rows = [known[item.place, component] for component in range(item.node.size)]
    low, high = (np.array([getattr(bounds, end)[column] for bounds, column in rows]) for end in ("low", "high"))
    slopes = (Interval(low[:, variable], high[:, variable]) for variable in range(1, low.shape[1]))
    return TableBounds(Interval(low[:, 0], high[:, 0]), tuple(slopes))
