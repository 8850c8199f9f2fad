"""How far a circuit can be from its target, node by node, and where all of its values lie: the approximation part.

This is for planning; what the kernel proves in the end is close to it. The circuit is assembled from the target and the
choices (`circuits.assemble`), and each spliced fragment is bounded on the range of its argument (`plan/chords.py`).
Every value is taken at the reference: arguments are exact target values, so a fragment's error is that of the fragment
alone, and errors of its argument travel through the circuit's own slopes.

A node that a table head computes is bounded by the kernel's own rule for tables, on cells that make it tight
(`plan/evidence/cells.py`, which remembers them by the table's numbers); what its arguments are off by passes with the
slopes of the head itself. Expressions with the same keys and arguments are columns of one head and are bounded
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TooManyPiecesError
from headsmith.core.intervals import Interval, added_outwards, linear_image, point
from headsmith.core.program import Linear, Program, Times, kernel_program, program_range
from headsmith.core.rounding import upper
from headsmith.kernel.core.arithmetic import Interval as KernelInterval
from headsmith.kernel.core.arithmetic import Upper, largest
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.flow import Gain
from headsmith.kernel.core.proof import Proof
from headsmith.kernel.core.table import Table as KernelTable
from headsmith.language.builder import moved
from headsmith.language.graph import (
    Affine,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Mixing,
    Node,
    Quotient,
    Relu,
)
from headsmith.plan.analysis.flow import Flow, Stretch, flow_of, kernel_interval, known_of
from headsmith.plan.chords import Checked, check_circuit
from headsmith.plan.circuits.assemble import Assembly, Choice, Splice, expressions_of
from headsmith.plan.evidence.cells import table_cells
from headsmith.plan.tables import GateHead, Multiplied, Progress, Table, Tables

TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Approximation:
    """Ranges of all circuit nodes at the reference, and for circuit nodes that stand for approximated targets the
    interval of circuit value - target value, component by component; and how errors travel from there."""

    ranges: tuple[Interval, ...]
    errors: Mapping[int, Interval]
    flow: Flow


@dataclass(frozen=True, eq=False)
class Design:
    """What stands for a target: a circuit, with where the target's nodes are in it, the choices that rebuild it, ranges
    and gains of its nodes, its proven approximation part, and the tables, gate heads and products of its expressions by
    node and component."""

    choices: Mapping[int, Choice]
    assembly: Assembly
    ranges: tuple[Interval, ...]
    gains: Mapping[int, Gain]
    approximation: float
    tables: Tables = field(default_factory=dict)

    @property
    def circuit(self) -> Graph:
        return self.assembly.circuit

    @property
    def gates(self) -> int:
        return self.assembly.circuit.gates

    @property
    def undecided(self) -> Design:
        """The design, with ranges as if the argument of every gate might cross zero."""
        read = {node.argument for node in self.circuit.nodes if isinstance(node, Relu)}
        crossing = [
            Interval(np.minimum(each.low, -TINY), np.maximum(each.high, TINY)) if number in read else each
            for number, each in enumerate(self.ranges)
        ]
        return replace(self, ranges=tuple(crossing))


def approximate(
    target: Graph,
    found: Sequence[Interval],
    assembly: Assembly,
    choices: Mapping[int, Choice],
    tables: Tables | None = None,
    progress: Progress | None = None,
) -> Approximation:
    """Bound every approximated node. `found` are the exact ranges of the target's nodes.

    Guarantee: for arguments within the node's margin of the exact ones, (circuit node - function of the same arguments)
    lies in `errors` and every circuit node in `ranges`, provided that every argument node in `margins` is off by
    at most its margin (which the caller must check), and what the heads of a node in `table_margins` read is off by at
    most that.
    """
    return _Approximator(target, found, assembly, choices, tables or {}, progress).result()


def gained(
    target: Graph,
    choices: Mapping[int, Choice],
    assembly: Assembly,
    approximation: Approximation,
    tables: Tables | None = None,
) -> Design:
    """The design with its gains and its proven approximation part."""
    gains = approximation.flow.gains
    sides = [Upper(np.zeros(target.nodes[target.output].size))] * 2
    for number in approximation.errors.keys() & gains.keys():
        pushes = gains[number].pushes(kernel_interval(approximation.errors[number]))
        sides = [total + pushed for total, pushed in zip(sides, pushes, strict=True)]
    proven = float(largest(*sides).max().value)
    return Design(choices, assembly, approximation.ranges, gains, proven, tables or {})


class _Approximator:
    def __init__(
        self,
        target: Graph,
        found: Sequence[Interval],
        assembly: Assembly,
        choices: Mapping[int, Choice],
        tables: Tables,
        progress: Progress | None,
    ) -> None:
        self.target, self.found, self.assembly = target, found, assembly
        self.tables, self.progress = tables, progress
        self.heads: dict[int, list[TableBounds]] = {}
        self.margins = {
            number: _margin(choices[number].margin)
            for number in assembly.regions
            if number in choices and choices[number].margin is not None
        }
        self.owner = {
            inner: number for number, region in assembly.regions.items() if number in self.margins for inner in region
        }
        self.computed = {number: places for number in assembly.regions if (places := expressions_of(assembly, number))}
        self.known: dict[int, Interval] = {place: found[number] for number, place in assembly.places.items()}
        self.checks: dict[tuple[int, str], Checked] = {}

    def result(self) -> Approximation:
        splices = {splice.first: splice for splice in self.assembly.splices}
        extrema = {item.node: item for item in self.assembly.extrema}
        for number, node in enumerate(self.assembly.circuit.nodes):
            if number in splices:
                self._check(splices[number])
            if number in self.known:
                continue
            if number in extrema:
                item = extrema[number]
                left, right = self._read(number, item.left), self._read(number, item.right)
                pick = np.maximum if item.largest else np.minimum
                self.known[number] = Interval(pick(left.low, right.low), pick(left.high, right.high))
            elif isinstance(node, Affine):
                total = point(node.bias)
                for term in node.terms:
                    total = added_outwards(total, linear_image(term.weights, self._read(number, term.node)))
                self.known[number] = total
            elif isinstance(node, Relu):
                self.known[number] = self._read(number, node.argument).relu()
            elif isinstance(node, Input):
                self.known[number] = self.found[0]
            elif isinstance(node, Mixing):
                # The pool of a negated argument (a minimum): within the range of what it reads.
                self.known[number] = self._read(number, self.assembly.circuit.reads[number][-1])
            elif isinstance(node, Expression):
                found = [self._read(number, argument) for argument in node.arguments]
                ends = (np.stack([getattr(each, end) for each in found]) for end in ("low", "high"))
                self.known[number] = Interval(*program_range(node.program, *ends))
            else:
                raise CertificateError(f"circuit node {number} is neither affine nor relu")
        self._check_tables()
        ranges = tuple(self.known[number] for number in range(len(self.assembly.circuit.nodes)))
        errors = {self.assembly.places[number]: self._error(number) for number in self.assembly.regions}
        flow = flow_of(self._known(), ranges, self._table_slopes())
        for number, edges in flow.edges.of.items():
            if not all(slope.finite() for _, slope, _ in edges if isinstance(slope, KernelInterval)):
                raise CertificateError(f"circuit node {number} has no slopes of its own: it cannot have a margin")
        return Approximation(ranges, errors, flow)

    def _known(self) -> Proof:
        """The circuit as the kernel will see it: what has a margin, and is no table, is known by what it stands for."""
        places, circuit, stretches = self.assembly.places, self.assembly.circuit, {}
        for number, margin in self.margins.items():
            if not isinstance(circuit.nodes[places[number]], Expression):
                node = self.target.nodes[number]
                meaning = moved(node, {each: places[each] for each in self.target.reads[number]})
                stretches[places[number]] = Stretch(meaning, frozenset(self.assembly.regions[number]), margin)
        return known_of(circuit, stretches)

    def _table_slopes(self) -> dict[int, tuple[Interval, ...]]:
        """The slopes of table heads."""
        pairs = [zip(self.computed[number], bounds, strict=True) for number, bounds in self.heads.items()]
        return {place: each.slopes for mine in pairs for place, each in mine}

    def _read(self, reader: int, source: int) -> Interval:
        """The range of a node as another reads it: with the margin, where an argument enters its region."""
        number = self.owner.get(reader)
        if number is not None and source not in self.assembly.regions[number]:
            return self.known[source].inflated(np.full(len(self.known[source].low), self.margins[number]))
        return self.known[source]

    def _check_tables(self) -> None:
        """Bound every table head on the ranges of its arguments, widened by the margin."""
        circuit = self.assembly.circuit
        items = []
        for number, places in self.computed.items():
            if number not in self.margins:
                raise CertificateError(f"target node {number} is computed by a table head: it needs a margin")
            for place in places:
                node = circuit.nodes[place]
                assert isinstance(node, Expression)
                margin = np.full(node.size, self.margins[number])
                around = [self.known[each].inflated(margin) for each in node.arguments]
                items.append(Item(place, node, around, self.margins[number]))
        bounds = table_bounds(items, self.tables, self.progress)
        self.heads = {number: [bounds[place] for place in places] for number, places in self.computed.items()}

    def _divisor(self, number: int) -> float | None:
        """What a gate head's output is divided by, a power of two; None for tables, which are their expressions."""
        last = self.assembly.circuit.nodes[self.assembly.places[number]]
        return None if isinstance(last, Expression) else 1.0 / _first_weight(last)

    def _check(self, splice: Splice) -> None:
        """Bound the fragment on the hull of its argument's components; all inner nodes get their ranges."""
        node = self.target.nodes[splice.target]
        argument = self._read(splice.first, splice.argument)
        name, parameter = (node.name, node.parameter) if isinstance(node, Function) else ("square", None)
        scale = np.ones(1)
        if isinstance(node, Hypotenuse):
            # 0 <= Y <= X by construction, for X >= 0; at X = 0 both sides are zero.
            name, low, high = "hypotenuse", 0.0, 1.0
            scale = self._read(splice.first, splice.scale or 0).high
        elif splice.scale is None:
            low, high = float(argument.low.min()), float(argument.high.max())
        else:
            denominator = self._read(splice.first, splice.scale)
            if not (denominator.low > 0.0).all():
                raise CertificateError(f"the denominator of target node {splice.target} is not positive")
            ratios = _ratios(argument, denominator)
            low, high = float(ratios.low.min()), float(ratios.high.max())
            scale = denominator.high
        try:
            checked = check_circuit(splice.fragment.graph, low, high, name, parameter)
        except TooManyPiecesError as refusal:
            refusal.target = splice.target
            raise
        self.checks[splice.target, splice.part] = checked
        copies = len(argument.low)
        for place, inner in enumerate(checked.ranges[1:], start=1):
            low_end, high_end = np.tile(inner.low, copies), np.tile(inner.high, copies)
            if splice.scale is not None:
                # The perspective's nodes are V times the fragment's at s / V.
                width = len(inner.low)
                smallest, largest = (
                    np.repeat(end, width) for end in (self._read(splice.first, splice.scale).low, scale)
                )
                low_end = np.nextafter(np.minimum(low_end * smallest, low_end * largest), -np.inf)
                high_end = np.nextafter(np.maximum(high_end * smallest, high_end * largest), np.inf)
            self.known.setdefault(splice.first + place - 1, Interval(low_end, high_end))

    def _error(self, number: int) -> Interval:
        node = self.target.nodes[number]
        size = np.ones(node.size)
        if number in self.heads:
            divisor = self._divisor(number)
            if divisor is None:
                return self.heads[number][0].error
            if len(self.heads[number]) == 1:
                error = self.heads[number][0].error
                return Interval(error.low / divisor, error.high / divisor)
            size = upper(sum(each.error.magnitude for each in self.heads[number]) / divisor, 2)
            return Interval(-size, size)
        if isinstance(node, Function):
            checked = self.checks[number, ""]
            return Interval(checked.low * size, checked.high * size)
        if isinstance(node, Hypotenuse):
            checked = self.checks[number, ""]
            largest = np.maximum(self.found[node.left].magnitude, self.found[node.right].magnitude)
            largest = upper(largest + self.margins.get(number, 0.0), 1)
            return Interval(-upper(max(-checked.low, 0.0) * largest, 2), upper(max(checked.high, 0.0) * largest, 2))
        plus, minus = self.checks[number, "plus"], self.checks[number, "minus"]
        low, high = plus.low - minus.high, plus.high - minus.low
        weight: Array = size
        if isinstance(node, Quotient):
            splice = next(s for s in self.assembly.splices if s.target == number)
            assert splice.scale is not None
            weight = self._read(splice.first, splice.scale).high
        # The last weights (0.25 / balance, 0.25 / Z) are exact powers of two: read them off the circuit.
        last = self.assembly.circuit.nodes[self.assembly.places[number]]
        assert isinstance(last, Affine)
        factor = np.abs(last.terms[0].weights)
        below = upper(max(-low, 0.0) * weight * factor, 8)
        above = upper(max(high, 0.0) * weight * factor, 8)
        return Interval(-below, above)


def _first_weight(node: Node) -> float:
    assert isinstance(node, Affine)
    return float(node.terms[0].weights[0])


def _margin(margin: float | None) -> float:
    if margin is None or not 0.0 <= margin < np.inf:
        raise CertificateError(f"a margin is {margin!r}; it must be a finite number, not negative")
    return margin


def _ratios(numerator: Interval, denominator: Interval) -> Interval:
    corners = [a / b for a in (numerator.low, numerator.high) for b in (denominator.low, denominator.high)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


# Table heads ----------------------------------------------------------------------------------------------------------


def _gate_weight(program: Program) -> Program:
    """x -> intercept + incline x, of a gate's program."""
    match program:
        case Program(variables=2, steps=(Linear(terms=((_, 0),)) as weight, Times(left=1, right=2))):
            return Program(1, (weight,))
    raise CertificateError("a gate head computes y (a + b x) only")


def _weight_of(gate: GateHead) -> Table:
    """The weight g(x) of a gate as a table of x: the token itself scores and holds 0 and 1, the grid holds nothing."""
    slope = np.concatenate([[0.0], gate.slope])[:, None]
    return Table(slope, np.concatenate([[0.0], gate.offset]), np.concatenate([[1.0], 0.0 * gate.offset]))


@dataclass(frozen=True, eq=False)
class TableBounds:
    """For each component of an expression: head - expression, and for each argument the slope of the head."""

    error: Interval
    slopes: tuple[Interval, ...]


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
    known: dict[tuple[int, int], tuple[KernelInterval, int]] = {}
    for number, job in enumerate(jobs.values()):
        if progress is not None:
            progress("proving table heads", number / len(jobs))
        bounds = _bounds(job)
        for column, members in enumerate(job.members):
            known.update(dict.fromkeys(members, (bounds, column)))
    return {**exact, **{item.place: _collected(item, known) for item in items}}


def _product_bounds(item: Item) -> TableBounds:
    """Nothing is off; the slopes of x y are y and x, those of a square twice its argument."""
    slopes = tuple(reversed(item.ranges)) if len(item.ranges) > 1 else (added_outwards(item.ranges[0], item.ranges[0]),)
    return TableBounds(point(np.zeros(item.node.size)), slopes)


def _gate_bounds(items: Sequence[Item], tables: Tables, progress: Progress | None) -> dict[int, TableBounds]:
    """out = y g(x), so |out - y (a + b x)| <= |y| |g - a - b x|, with slopes y g' and g, where 0 <= g <= 1."""
    weights: dict[tuple[int, int], Table | GateHead] = {}
    for item in items:
        for component in range(item.node.size):
            gate = tables.get((item.place, component))
            if not isinstance(gate, GateHead):
                raise CertificateError("some components of an expression have gate heads, and others have not")
            weights[item.place, component] = _weight_of(gate)
    inner = [
        Item(
            item.place,
            Expression(_gate_weight(item.node.program), item.node.arguments[:1], item.node.size),
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
        found[item.place] = TableBounds(Interval(-error, error), slopes)
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


def _bounds(job: _Job) -> KernelInterval:
    """The kernel's bounds for the columns of a head, on cells that make them tight."""
    values = np.stack([column for _, column in job.columns], axis=1)
    programs = [kernel_program(program) for program, _ in job.columns]
    try:
        table = KernelTable(job.slope, job.offset, values, programs, np.stack([job.low, job.high], axis=1))
        return table_cells(table, margin=job.margin).bounds
    except Refused as problem:
        raise CertificateError(str(problem)) from None


def _collected(item: Item, known: Mapping[tuple[int, int], tuple[KernelInterval, int]]) -> TableBounds:
    rows = [known[item.place, component] for component in range(item.node.size)]
    low, high = (np.array([getattr(bounds, end)[column] for bounds, column in rows]) for end in ("low", "high"))
    slopes = (Interval(low[:, variable], high[:, variable]) for variable in range(1, low.shape[1]))
    return TableBounds(Interval(low[:, 0], high[:, 0]), tuple(slopes))
