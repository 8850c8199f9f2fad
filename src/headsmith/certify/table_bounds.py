"""All table heads of a model against the expressions that they stand for: errors, and slopes for what arrives.

Expressions with the same keys and arguments are columns of one head and are bounded together. What has been proven of
a table is remembered by its numbers, so that planning and certifying prove it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from headsmith.certify.tables import Checked, check_program_table
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.intervals import Interval
from headsmith.core.program import Linear, Program, Times
from headsmith.core.rounding import FLOAT64, upper
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
class Gate:
    """A gate head that computes one component of y (intercept + incline x): slopes and offsets of its grid (tokens)."""

    slope: Array
    offset: Array

    @property
    def weight(self) -> Table:
        """Its weight g(x) as a table of x: the token itself scores and holds 0 and 1, the grid holds nothing."""
        slope = np.concatenate([[0.0], self.slope])[:, None]
        return Table(slope, np.concatenate([[0.0], self.offset]), np.concatenate([[1.0], 0.0 * self.offset]))


Tables = Mapping[tuple[int, int], Table | Gate]
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


@dataclass(eq=False)
class _Job:
    """One proof: columns of a head on one box. `members` are (place, component) of each column."""

    slope: Array
    offset: Array
    columns: list[tuple[Program, Array]]
    members: list[list[tuple[int, int]]]
    low: Array
    high: Array


def table_bounds(items: Sequence[Item], tables: Tables, progress: Progress | None) -> dict[int, TableBounds]:
    """The bounds of every item, by its place in the circuit. Raises CertificateError where a table is missing."""
    gates = [item for item in items if isinstance(tables.get((item.place, 0)), Gate)]
    if gates:
        found = table_bounds([item for item in items if item not in gates], tables, progress)
        return {**found, **_gate_bounds(gates, tables, progress)}
    jobs: dict[tuple[bytes, bytes, tuple[int, ...]], _Job] = {}
    for item in items:
        low, high = (np.stack([getattr(each, end) for each in item.ranges]) for end in ("low", "high"))
        for component in range(item.node.size):
            if (item.place, component) not in tables:
                raise CertificateError(f"no table head computes component {component} of circuit node {item.place}")
            table = tables[item.place, component]
            if isinstance(table, Gate):
                raise CertificateError("some components of an expression have gate heads, and others tables")
            _enter(jobs, item, component, table, low[:, component], high[:, component])
    checked: dict[tuple[int, int], tuple[Checked, int]] = {}
    for number, job in enumerate(jobs.values()):
        result = _proof(job, _reporter(progress, number, len(jobs)))
        for column, members in enumerate(job.members):
            checked.update(dict.fromkeys(members, (result, column)))
    return {item.place: _collected(item, checked) for item in items}


def _gate_bounds(items: Sequence[Item], tables: Tables, progress: Progress | None) -> dict[int, TableBounds]:
    """out = y g(x), so |out - y (a + b x)| <= |y| |g - a - b x|, with slopes y g' and g, where 0 <= g <= 1."""
    weights: dict[tuple[int, int], Table | Gate] = {}
    for item in items:
        for component in range(item.node.size):
            gate = tables.get((item.place, component))
            if not isinstance(gate, Gate):
                raise CertificateError("some components of an expression have gate heads, and others have not")
            weights[item.place, component] = gate.weight
    inner = [
        Item(
            item.place,
            Expression(gate_weight(item.node.program), item.node.arguments[:1], item.node.size),
            item.ranges[:1],
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
    for index, (program, values) in enumerate(job.columns):
        if program == item.node.program and np.array_equal(values, table.values):
            job.members[index].append((item.place, component))
            return
    job.columns.append((item.node.program, table.values))
    job.members.append([(item.place, component)])


def _proof(job: _Job, progress: Callable[[float], None] | None) -> Checked:
    values = np.stack([column for _, column in job.columns], axis=1)
    programs = tuple(program for program, _ in job.columns)
    box = tuple(zip(job.low.tolist(), job.high.tolist(), strict=True))
    remembered = _Remembered(job.slope.tobytes(), job.offset.tobytes(), values.tobytes(), programs, box)
    return _proven(remembered, _Numbers(job.slope, job.offset, values, progress))


@dataclass(frozen=True)
class _Remembered:
    slope: bytes
    offset: bytes
    values: bytes
    programs: tuple[Program, ...]
    box: tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The same numbers as arrays; equal to any other, so that only the bytes are a key."""

    slope: Array
    offset: Array
    values: Array
    progress: Callable[[float], None] | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Numbers)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=1024)
def _proven(key: _Remembered, numbers: _Numbers) -> Checked:
    # Errors far below the rounding of the values need no proof of their own.
    floor = max(1e-25, 1e-3 * FLOAT64.unit_roundoff * float(np.max(np.abs(numbers.values))))
    return check_program_table(
        numbers.slope,
        numbers.offset,
        numbers.values,
        key.programs,
        key.box,
        floor=floor,
        progress=numbers.progress,
    )


def _reporter(progress: Progress | None, number: int, count: int) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda fraction: progress("proving table heads", (number + fraction) / count)


def _collected(item: Item, checked: Mapping[tuple[int, int], tuple[Checked, int]]) -> TableBounds:
    found = [checked[item.place, component] for component in range(item.node.size)]
    error = Interval(
        np.array([result.low[column] for result, column in found]),
        np.array([result.high[column] for result, column in found]),
    )
    slopes = tuple(
        Interval(
            np.array([result.slope_low[column, variable] for result, column in found]),
            np.array([result.slope_high[column, variable] for result, column in found]),
        )
        for variable in range(len(item.node.arguments))
    )
    return TableBounds(error, slopes)
