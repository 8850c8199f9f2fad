"""Table heads for the non-linear nodes of a target, within the error, with as few reference tokens as the fits find.

Nodes of the same arguments are columns of one head. All heads share one set of reference tokens, so only the head that
needs most of them costs anything: every head gets the same share of the error first; then those that are easy take a
hundredth of it, which costs them nothing, and leave the rest to the hardest one.

A node that no table can stand for (an end of a square root's domain) or that needs no head at all (a chord is within
its share) takes a ReLU circuit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headsmith.analysis.doubling_gains import doublings_on, size_of
from headsmith.circuits.assemble import GATE, TABLE, Choice, assemble, expressions_of
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, HeadsmithError, UnreachableError
from headsmith.core.intervals import Interval
from headsmith.core.program import Program
from headsmith.core.rounding import HALVES, Precision
from headsmith.lower.approximation import approximate
from headsmith.lower.candidates import Option, analytic, candidates
from headsmith.lower.choose import argument_slopes, cheapest, possible_margin, softmax_share, steps_on, target_gains
from headsmith.lower.fit import Fit, fit_program
from headsmith.lower.fit_accurate import attained, fit_accurate
from headsmith.lower.fit_curve import value_room
from headsmith.lower.gate_plan import MOST_GATE_TOKENS, Factors, Gating, best_gate, factors_of, fewest_tokens, gate_of
from headsmith.lower.plan import Planned, gained
from headsmith.lower.tables import Gate, Multiplied, Progress, Table
from headsmith.source.describe import describe
from headsmith.source.graph import (
    Approximated,
    Expression,
    Graph,
    Input,
    Maximum,
    Minimum,
    Mixing,
    Node,
    Pool,
    Product,
    Relu,
    arguments,
    needed,
)
from headsmith.source.node_programs import is_given, is_product, program_of

ROUNDS = 6
EASY = 0.01
"""What part of its share a head takes that has tokens to spare."""
MOST_TOKENS = 160
LIMITS = (1e3, 30.0)
"""Limits of the values that are tried besides none."""
FITTED = 0.985
"""The proof is a little looser than the fit's estimate."""


@dataclass(eq=False)
class Failed:
    """Programs that no table was found for, with the errors that were too small: smaller ones need not be tried."""

    errors: dict[tuple[Program, ...], list[tuple[float, ...]]] = field(default_factory=dict)

    def covers(self, programs: tuple[Program, ...], errors: tuple[float, ...]) -> bool:
        known = self.errors.get(programs, [])
        return any(all(a <= b for a, b in zip(errors, other, strict=True)) for other in known)

    def add(self, programs: tuple[Program, ...], errors: tuple[float, ...]) -> None:
        self.errors.setdefault(programs, []).append(errors)


FINEST = 2.0**-28
"""In units of what is computed: circuits for smaller errors have so many pieces that their proof takes minutes."""


class UnfittableError(HeadsmithError):
    """No table head was found for an expression; `node` is its number in the fused target."""

    def __init__(self, message: str, node: int) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of the same arguments: columns of one head."""

    nodes: tuple[int, ...]
    variables: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was found for a group: a table with a column for each node, or one table for each, or circuits."""

    fits: tuple[tuple[Fit, tuple[int, ...]], ...]
    circuits: Mapping[int, Option]
    margin: float
    gates: Mapping[int, Gating] = field(default_factory=dict)
    attained: Mapping[int, float] = field(default_factory=dict)
    """Estimates of errors, where these are not what was allowed."""
    multiplied: bool = False
    """Whether it is a product that neurons compute, exactly."""

    @property
    def tokens(self) -> int:
        """Reference tokens; gates need the sink besides their grid."""
        return max(
            max((fit.tokens for fit, _ in self.fits), default=0),
            max((gate.tokens for gate in self.gates.values()), default=0),
        )


def native_plan(
    target: Graph,
    found: Sequence[Interval],
    error: float,
    inputs: Array,
    room: float,
    precision: Precision,
    value_limit: float = np.inf,
    max_tokens: int = MOST_TOKENS,
    progress: Progress | None = None,
    failed: Failed | None = None,
    accurate: bool = False,
    caution: float = 1.0,
    neurons: bool = False,
) -> Planned:
    """Choose table heads so that the proven approximation part is at most `error`.

    `inputs` bounds the rounding of the inputs, `room` widens the margins for what else arguments may be off by;
    `value_limit` bounds the values of the tables; `failed` remembers fits that failed from one call to the next. Raises
    UnfittableError for an expression that no table was found for. With `accurate`, every head is as accurate as
    rounding lets it be, and only the rest of the error is for circuits: the result may exceed the error. `caution` is
    how many times the rounding of gates of small rises is taken for what it is on its own: rounding passes through all
    that follows. With `neurons`, products are left to those.
    """
    planner = _Planner(
        target, found, inputs, room, precision, value_limit, max_tokens, failed, accurate, caution, progress, neurons
    )
    budget, smallest = FITTED * error, np.inf
    if accurate:
        return planner.proven(planner.choose(budget), progress)
    for _ in range(ROUNDS):
        planned = planner.proven(planner.choose(budget), progress)
        if planned.approximation <= error:
            return planned
        smallest = min(smallest, planned.approximation)
        budget *= 0.97 * error / planned.approximation
    raise UnreachableError(
        f"no table heads were found whose proven approximation error is at most {error:.3g}; the smallest was "
        f"{smallest:.3g}: ask for more than that, or for a smaller domain",
        part="approximation",
        smallest=1.1 * float(smallest),
    )


class _Planner:
    def __init__(
        self,
        target: Graph,
        found: Sequence[Interval],
        inputs: Array,
        room: float,
        precision: Precision,
        value_limit: float,
        max_tokens: int,
        failed: Failed | None,
        accurate: bool,
        caution: float,
        progress: Progress | None,
        neurons: bool,
    ) -> None:
        self.neurons = neurons
        self.failed, self.accurate, self.progress = failed or Failed(), accurate, progress
        self.caution = caution
        self.target, self.found, self.inputs, self.room = target, found, inputs, room
        self.precision, self.value_limit, self.max_tokens = precision, value_limit, max_tokens
        self.order = needed(target, target.output)
        norms: dict[int, Array] = {}
        gains = target_gains(target, found, norms)
        self.gains = {number: gains[number].sum(axis=0) for number in self.order}
        self.steps, self.doublings = steps_on(target, found), doublings_on(target, found)
        for number in norms:
            # The same error in all products: what it makes in the norm of the result.
            each = self.doublings[number]
            length = each.rows * float(np.sqrt(each.counts(number).sum()))
            for inner in each.region:
                if isinstance(target.nodes[inner], Product):
                    self.gains[inner] = np.minimum(self.gains[inner], norms[number] * length)
        # Products of products: see circuits/assemble.py.
        self.mirrored = {number for each in self.doublings.values() for number in each.region}
        self.groups = self._grouped()
        self.group_of = {number: group for group in self.groups for number in group.nodes}

    def _grouped(self) -> list[Group]:
        found: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        for number in self.order:
            node = self.target.nodes[number]
            if isinstance(node, Approximated):
                variables = program_of(node)[1]
                fits = analytic(self.target, self.found, number) and not self._multiplied(number)
                # What only a circuit can do is a group of its own.
                key = (variables, True) if fits else ((number,), False)
                found.setdefault(key, []).append(number)
        return [Group(tuple(nodes), program_of(self._node(nodes[0]))[1]) for nodes in found.values()]

    def _multiplied(self, number: int) -> bool:
        """Whether neurons compute a node: a product, or a square."""
        return self.neurons and is_product(self.target.nodes[number])

    def choose(self, budget: float) -> dict[int, Fitted]:
        """For each group (by its first node) what stands for it, with estimated errors of at most `budget` in all."""
        if self.doublings:
            return self._fit_all(self._allowances(budget, self._even()), budget)
        equal = self._allowances(budget, dict.fromkeys(self.group_of, 1.0))
        chosen = self._fit_all(equal, budget)
        tokens = {first: fitted.tokens for first, fitted in chosen.items()}
        hardest = max(tokens, key=tokens.__getitem__, default=None)
        if self.accurate or len(tokens) < 2 or hardest is None or tokens[hardest] <= 2:
            return chosen
        chosen = self._with_spare_tokens(chosen, equal, tokens[hardest])
        weights = {
            number: EASY if tokens[group.nodes[0]] > 0 and group.nodes[0] != hardest else 1.0
            for number, group in self.group_of.items()
        }
        try:
            other = self._fit_all(self._allowances(budget, weights), budget)
        except UnfittableError:
            return chosen
        better = max(fitted.tokens for fitted in other.values()) < tokens[hardest]
        return other if better else chosen

    def _with_spare_tokens(
        self, chosen: Mapping[int, Fitted], allowed: Mapping[int, float], tokens: int
    ) -> dict[int, Fitted]:
        """The choices, with gates that use the tokens that other heads need anyway: their weights are smaller."""
        return {first: self._with_larger_inclines(fitted, allowed, tokens) for first, fitted in chosen.items()}

    def _with_larger_inclines(self, fitted: Fitted, allowed: Mapping[int, float], tokens: int) -> Fitted:
        gates = dict(fitted.gates)
        for number, gate in fitted.gates.items():
            box = [self._wide(variable, fitted.margin) for variable in self.group_of[number].variables]
            for grid in range(gate.tokens, min(tokens - 1, MOST_GATE_TOKENS) + 1):
                other = gate_of(grid, self._factors(number, box), allowed[number], self.precision, self.caution)
                if other is not None and other.fit.incline > gates[number].fit.incline:
                    gates[number] = other
        return replace(fitted, gates=gates)

    def _even(self) -> dict[int, float]:
        """Weights that allow all nodes the same error for their size: products of products are as good as rounding."""
        sizes = {
            number: math.prod(float(np.max(self.found[each].magnitude)) for each in group.variables)
            for number, group in self.group_of.items()
        }
        even = {number: sizes[number] * float(np.max(self.gains[number])) for number in sizes}
        largest = max(even.values()) or 1.0
        return {number: max(weight / largest, 1e-6) for number, weight in even.items()}

    def _allowances(self, budget: float, weights: Mapping[int, float]) -> dict[int, float]:
        """The error of each node: sum_n g_on e_n <= budget for every output o, in proportion to the weights."""
        weights = {number: 0.0 if self._multiplied(number) else weight for number, weight in weights.items()}
        total = sum((weights[number] * (self.gains[number] > 0.0) for number in self.group_of), np.zeros(1))
        allowed = {}
        for number in self.group_of:
            gain = self.gains[number]
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = np.where(gain > 0.0, budget * weights[number] / (gain * total), np.inf)
            smallest = float(np.min(shares))
            allowed[number] = smallest if np.isfinite(smallest) else max(budget, 1e-3)
        return allowed

    def _fit_all(self, allowed: Mapping[int, float], budget: float) -> dict[int, Fitted]:
        off: dict[int, Array] = {}
        chosen: dict[int, Fitted] = {}
        fresh: dict[int, Array] = {}
        lengths: dict[int, float] = {}
        for number in self.order:
            node = self.target.nodes[number]
            off[number] = self.inputs if isinstance(node, Input) else self._passed(node, off)
            if number in self.steps:
                # No further off than before the step, and by what happens inside it.
                step = self.steps[number]
                inside = self._inside(step.region, (step.source,), off, fresh)
                before = lengths.get(step.source, float(np.linalg.norm(off[step.source])))
                lengths[number] = before + float(np.linalg.norm(inside[number]))
                off[number] = np.minimum(off[number], lengths[number])
            if number in self.doublings:
                double = self.doublings[number]
                inside = self._inside(double.region, double.sources, off, fresh)
                lengths[number] = float(size_of(inside[number], double.counts(number)))
                for source in double.sources:
                    before = lengths.get(source, float(size_of(off[source], double.counts(source))))
                    lengths[number] += double.factor(source, 0.0) * before
                off[number] = np.minimum(off[number], lengths[number])
            if isinstance(node, Mixing):
                off[number] = off[number] + 1e-11 * (1.0 + self.found[number].magnitude)
            arrived = off[number]
            if isinstance(node, Relu | Maximum | Minimum | Pool):
                off[number] = off[number] + softmax_share(budget, self.gains[number], self.found[number])
            if isinstance(node, Approximated):
                group = self.group_of[number]
                if group.nodes[0] not in chosen:
                    chosen[group.nodes[0]] = self._fit_group(group, off, allowed)
                off[number] = off[number] + chosen[group.nodes[0]].attained.get(number, allowed[number])
            fresh[number] = off[number] - arrived
        return chosen

    def _inside(
        self, region: frozenset[int], sources: Sequence[int], off: Mapping[int, Array], fresh: Mapping[int, Array]
    ) -> dict[int, Array]:
        """What the nodes of a region are off by, if its sources are exact."""
        inside = {**off, **{source: 0.0 * off[source] for source in sources}}
        for each in sorted(region):
            inside[each] = self._passed(self.target.nodes[each], inside) + fresh.get(each, 0.0)
        return inside

    def _passed(self, node: Node, off: Mapping[int, Array]) -> Array:
        """What a node is off by because its arguments are."""
        total: Array = np.zeros(node.size)
        for argument, slope in zip(arguments(node), argument_slopes(node, self.found), strict=True):
            total = total + (slope @ off[argument] if slope.ndim == 2 else slope * off[argument])
        return total

    def _fit_group(self, group: Group, off: Mapping[int, Array], allowed: Mapping[int, float]) -> Fitted:
        margin = self._margin(group, off)
        if self._multiplied(group.nodes[0]):
            return Fitted((), {}, margin, {}, {group.nodes[0]: 0.0}, multiplied=True)
        box = [self._wide(variable, margin) for variable in group.variables]
        circuits = {n: option for n in group.nodes if (option := self._headless(n, allowed[n])) is not None}
        rest = [n for n in group.nodes if n not in circuits]
        if not all(analytic(self.target, self.found, n) for n in rest):
            (number,) = rest
            return Fitted((), {number: self._circuit(number, allowed[number])}, margin)
        if not rest:
            return Fitted((), circuits, margin)
        if self.accurate:
            return self._most_accurate(rest, circuits, box, margin)
        gate = self._gate(rest, box, allowed)
        if gate is not None and self.doublings:
            return Fitted((), circuits, margin, {rest[0]: gate})
        programs = {n: program_of(self._node(n))[0] for n in rest}
        # No table multiplies with fewer tokens than the smallest gates do, and where rounding rules gates out, it rules
        # out the larger values of tables.
        gated = self._gated(rest, box) and (gate is None or gate.tokens <= 4)
        together = None if gated else self._fit(programs, rest, box, allowed)
        if gate is not None and (together is None or gate.tokens < together.tokens):
            return Fitted((), circuits, margin, {rest[0]: gate})
        if together is not None:
            return Fitted(((together, tuple(rest)),), circuits, margin)
        fits = []
        for number in rest:
            alone = self._fit(programs, [number], box, allowed) if len(rest) > 1 else None
            if alone is not None:
                fits.append((alone, (number,)))
            elif isinstance(self._node(number), Expression) or self._rounds_away(number, allowed[number]):
                raise UnfittableError(
                    f"no table of {self.max_tokens} tokens was found for {describe(self.target, number)} within "
                    f"{allowed[number]:.3g}",
                    number,
                )
            else:
                circuits[number] = self._circuit(number, allowed[number])
        return Fitted(tuple(fits), circuits, margin)

    def _most_accurate(
        self, nodes: list[int], circuits: dict[int, Option], box: list[tuple[float, float]], margin: float
    ) -> Fitted:
        """A gate or a table for all nodes, whatever its number of tokens."""
        if self._gated(nodes, box):
            (number,) = nodes
            found = best_gate(self._factors(number, box), 0.0, self.precision)
            if found is not None:
                return Fitted((), circuits, margin, {number: found[1]}, {number: found[0]})
        table = fit_accurate([program_of(self._node(n))[0] for n in nodes], box, self.precision, self.max_tokens)
        if table is None:
            raise UnfittableError(f"no table was found for {describe(self.target, nodes[0])}", nodes[0])
        errors = dict(zip(nodes, attained(table, self.precision).tolist(), strict=True))
        return Fitted(((table, tuple(nodes)),), circuits, margin, {}, errors)

    def _gated(self, nodes: list[int], box: list[tuple[float, float]]) -> bool:
        """Whether a gate head could stand for these nodes: one product of two different values."""
        return len(nodes) == 1 and isinstance(self._node(nodes[0]), Product) and len(box) == 2

    def _gate(self, nodes: list[int], box: list[tuple[float, float]], allowed: Mapping[int, float]) -> Gating | None:
        """A gate head for a product on its own, with the fewest reference tokens.

        Its weight follows an argument that is a form of the inputs, where there is one: the same gate then does for
        all products with it.
        """
        if not self._gated(nodes, box):
            return None
        (number,) = nodes
        factors = self._factors(number, box)
        if self.doublings:
            found = best_gate(factors, allowed[number], self.precision)
            return None if found is None else found[1]
        return fewest_tokens(factors, allowed[number], self.precision, self.caution)

    def _factors(self, number: int, box: list[tuple[float, float]]) -> Factors:
        node = self._node(number)
        assert isinstance(node, Product)
        follows = int(not is_given(self.target, node.left) and is_given(self.target, node.right))
        return factors_of(box, follows, number in self.mirrored)

    def _rounds_away(self, number: int, allowed: float) -> bool:
        """Whether rounding rules tables out. It then rules out circuits, whose gates round one after the other; and
        the proof of circuits of so small errors takes long: more tokens are the better way."""
        size = float(np.max(self.found[number].magnitude))
        return size > min(value_room(self.precision), 1.0 / FINEST) * allowed

    def _fit(
        self,
        programs: Mapping[int, Program],
        nodes: list[int],
        box: list[tuple[float, float]],
        allowed: Mapping[int, float],
    ) -> Fit | None:
        several = tuple(programs[n] for n in nodes)
        errors = tuple(allowed[n] for n in nodes)
        if self.failed.covers(several, errors):
            return None
        # A limit on the values leads the search to other heads: now and then to smaller ones.
        alone = len(self.groups) == 1 and math.isinf(self.value_limit)
        best: Fit | None = None
        for limit in (self.value_limit, *LIMITS) if alone else (self.value_limit,):
            if best is not None and len(box) == 2 and best.largest_value <= limit:
                continue  # a search in two variables takes seconds: only for smaller values
            found = fit_program(
                several,
                box,
                errors,
                max_tokens=self.max_tokens if best is None else best.tokens,
                value_limit=limit,
                precision=self.precision,
            )
            if found is None and best is None:
                # Large values make the easier search: where it fails, a limit does not help.
                self.failed.add(several, errors)
                break
            if found is not None and (best is None or _size(found) < _size(best)):
                best = found
        return best

    def _margin(self, group: Group, off: Mapping[int, Array]) -> float:
        """Room for what the arguments are expected to be off by, and for rounding."""
        size = max(float(np.max(self.found[variable].magnitude)) for variable in group.variables)
        rounding = (12.0 if self.precision.name in HALVES else 1e4) * self.precision.unit_roundoff * (1e-3 + size)
        return self.room * max(float(np.max(off[variable])) for variable in group.variables) + rounding

    def _wide(self, variable: int, margin: float) -> tuple[float, float]:
        return float(np.min(self.found[variable].low)) - margin, float(np.max(self.found[variable].high)) + margin

    def _headless(self, number: int, allowed: float) -> Option | None:
        """A circuit without gates, where an affine function is good enough."""
        if isinstance(self._node(number), Expression):
            return None
        found = candidates(self.target, self._node(number), self.found, allowed, 1)
        return found[0] if found and found[0].gates == 0 else None

    def _circuit(self, number: int, allowed: float) -> Option:
        found = candidates(self.target, self._node(number), self.found, allowed)
        return cheapest(found, f"neither a table head nor a ReLU circuit for {describe(self.target, number)}", allowed)

    def _node(self, number: int) -> Approximated:
        node = self.target.nodes[number]
        assert isinstance(node, Approximated)
        return node

    def proven(self, chosen: Mapping[int, Fitted], progress: Progress | None) -> Planned:
        """What the choices really do."""
        choices: dict[int, Choice] = {}
        columns: dict[int, list[Table | Gate | Multiplied]] = {}
        for first, fitted in chosen.items():
            if fitted.multiplied:
                choices[first], columns[first] = Choice(TABLE, {}, fitted.margin), [Multiplied()]
            for number, gate in fitted.gates.items():
                fit = gate.fit
                parameters = {"incline": fit.incline, "intercept": fit.intercept, "follows": gate.follows}
                if gate.mirrored:
                    parameters["mirrored"] = True
                choices[number] = Choice(GATE, parameters, fitted.margin)
                signs = (1.0, -1.0) if gate.mirrored else (1.0,)
                columns[number] = [Gate(sign * fit.slope, fit.offset) for sign in signs]
            for number, option in fitted.circuits.items():
                margin = possible_margin(self.target, self.found, number, fitted.margin)
                choices[number] = Choice(option.choice.family, option.choice.parameters, margin)
            for table, nodes in fitted.fits:
                slope = np.stack([table.alpha] if table.beta is None else [table.alpha, table.beta], axis=1)
                for column, number in enumerate(nodes):
                    choices[number] = Choice(TABLE, {}, fitted.margin)
                    columns[number] = [Table(slope, table.offset, table.values[:, column])]
        assembly = assemble(self.target, choices)
        tables = {
            (place, component): table
            for number, each in columns.items()
            for place, table in zip(expressions_of(assembly, number), each, strict=True)
            for component in range(self.target.nodes[number].size)
        }
        try:
            approximation = approximate(self.target, self.found, assembly, choices, tables, progress)
        except CertificateError as refusal:
            raise UnfittableError(str(refusal), next(iter(columns), 0)) from refusal
        return gained(self.target, choices, assembly.circuit, approximation, tables)


def _size(fit: Fit) -> tuple[int, float]:
    """What a table costs: tokens, then the largest of its numbers."""
    keys = max(float(np.max(np.abs(array))) for array in (fit.alpha, fit.offset))
    return fit.tokens, max(fit.largest_value, keys)
