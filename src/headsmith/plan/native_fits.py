"""What stands for nodes of the same arguments: a table head with a column for each, a gate head for a product, or a
ReLU circuit, where no head can or none is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import UnfittableError
from headsmith.core.intervals import Interval
from headsmith.core.program import Program
from headsmith.core.rounding import HALVES, Precision
from headsmith.language.builder import is_given, is_product, program_of
from headsmith.language.describe import describe
from headsmith.language.graph import Approximated, Expression, Graph, Product
from headsmith.plan.choose import Option, candidates, cheapest
from headsmith.plan.fit import Fit, fit_program
from headsmith.plan.fit.accurate import attained, fit_accurate
from headsmith.plan.fit.curve import value_room
from headsmith.plan.request import Policy, Request
from headsmith.transformer.heads.gate import Factors, Gating, best_gate, factors_of, fewest_tokens, gate_of

LIMITS = (1e3, 30.0)
"""Limits of the values that are tried besides none."""
MOST_TOKENS = 160
"""Reference tokens that tables are tried with."""
FINEST = 2.0**-28
"""In units of what is computed: circuits for smaller errors have so many pieces that their proof takes minutes."""


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of the same arguments: columns of one head, if tables can stand for them (`tabled`)."""

    nodes: tuple[int, ...]
    variables: tuple[int, ...]
    tabled: bool


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


@dataclass(frozen=True, eq=False)
class Fitter:
    """Finds what stands for a group of nodes of `target`, whose `ranges` are known. `mirrored` are the nodes of
    products of products (plan/circuits/assemble.py): where there are any, multiplying heads are all that is tried. With
    `alone`, there is one group."""

    request: Request
    policy: Policy
    target: Graph
    ranges: Sequence[Interval]
    mirrored: frozenset[int]
    alone: bool

    @property
    def precision(self) -> Precision:
        return self.request.precision

    def fit(self, group: Group, off: Mapping[int, Array], allowed: Mapping[int, float]) -> Fitted:
        """What stands for a group, whose nodes may be off by what is `allowed`; arguments are `off` by what is said."""
        margin = self._margin(group, off)
        if self.multiplied(group.nodes[0]):
            return Fitted((), {}, margin, {}, {group.nodes[0]: 0.0}, multiplied=True)
        box = [self.wide(variable, margin) for variable in group.variables]
        if not np.isfinite(box).all():
            read = describe(self.target, group.nodes[0])
            raise UnfittableError(f"nothing is known of how far what {read} reads may be off", group.nodes[0])
        circuits = {n: option for n in group.nodes if (option := self._headless(n, allowed[n])) is not None}
        rest = [n for n in group.nodes if n not in circuits]
        if rest and not group.tabled:
            (number,) = rest
            return Fitted((), {number: self._circuit(number, allowed[number])}, margin)
        if not rest:
            return Fitted((), circuits, margin)
        if self.request.accurate:
            return self._most_accurate(rest, circuits, box, margin)
        gate = self._gate(rest, box, allowed)
        if gate is not None and self.mirrored:
            return Fitted((), circuits, margin, {rest[0]: gate})
        programs = {n: program_of(self._node(n))[0] for n in rest}
        # No table multiplies with fewer tokens than the smallest gates do, and where rounding rules gates out, it rules
        # out the larger values of tables.
        gated = self._gated(rest, box) and (gate is None or gate.tokens <= 4)
        together = None if gated else self._table(programs, rest, box, allowed)
        if gate is not None and (together is None or gate.tokens < together.tokens):
            return Fitted((), circuits, margin, {rest[0]: gate})
        if together is not None:
            return Fitted(((together, tuple(rest)),), circuits, margin)
        fits = []
        for number in rest:
            alone = self._table(programs, [number], box, allowed) if len(rest) > 1 else None
            if alone is not None:
                fits.append((alone, (number,)))
            elif isinstance(self._node(number), Expression) or self._rounds_away(number, allowed[number]):
                raise UnfittableError(
                    f"no table of {MOST_TOKENS} tokens was found for {describe(self.target, number)} within "
                    f"{allowed[number]:.3g}",
                    number,
                )
            else:
                circuits[number] = self._circuit(number, allowed[number])
        return Fitted(tuple(fits), circuits, margin)

    def gate(self, tokens: int, number: int, box: list[tuple[float, float]], allowed: float) -> Gating | None:
        """A gate head of so many tokens for a product."""
        return gate_of(tokens, self._factors(number, box), allowed, self.precision, self.policy.caution)

    def multiplied(self, number: int) -> bool:
        """Whether neurons compute a node: a product, or a square."""
        return self.request.neurons and is_product(self.target.nodes[number])

    def _most_accurate(
        self, nodes: list[int], circuits: dict[int, Option], box: list[tuple[float, float]], margin: float
    ) -> Fitted:
        """A gate or a table for all nodes, whatever its number of tokens."""
        if self._gated(nodes, box):
            (number,) = nodes
            found = best_gate(self._factors(number, box), 0.0, self.precision)
            if found is not None:
                return Fitted((), circuits, margin, {number: found[1]}, {number: found[0]})
        table = fit_accurate([program_of(self._node(n))[0] for n in nodes], box, self.precision, MOST_TOKENS)
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
        if self.mirrored:
            found = best_gate(factors, allowed[number], self.precision)
            return None if found is None else found[1]
        return fewest_tokens(factors, allowed[number], self.precision, self.policy.caution)

    def _factors(self, number: int, box: list[tuple[float, float]]) -> Factors:
        node = self._node(number)
        assert isinstance(node, Product)
        follows = int(not is_given(self.target, node.left) and is_given(self.target, node.right))
        return factors_of(box, follows, number in self.mirrored)

    def _rounds_away(self, number: int, allowed: float) -> bool:
        """Whether rounding rules tables out. It then rules out circuits, whose gates round one after the other; and
        the proof of circuits of so small errors takes long: more tokens are the better way."""
        size = float(np.max(self.ranges[number].magnitude))
        return size > min(value_room(self.precision), 1.0 / FINEST) * allowed

    def _table(
        self,
        programs: Mapping[int, Program],
        nodes: list[int],
        box: list[tuple[float, float]],
        allowed: Mapping[int, float],
    ) -> Fit | None:
        several = tuple(programs[n] for n in nodes)
        errors = tuple(allowed[n] for n in nodes)
        if self.request.failed.covers(several, errors):
            return None
        # A limit on the values leads the search to other heads: now and then to smaller ones.
        alone = self.alone and math.isinf(self.request.value_limit)
        best: Fit | None = None
        for limit in (self.request.value_limit, *LIMITS) if alone else (self.request.value_limit,):
            if best is not None and len(box) == 2 and best.largest_value <= limit:
                continue  # a search in two variables takes seconds: only for smaller values
            found = fit_program(
                several,
                box,
                errors,
                max_tokens=MOST_TOKENS if best is None else best.tokens,
                value_limit=limit,
                precision=self.precision,
                known=() if best is None else best.sides,
            )
            if found is None and best is None:
                # Large values make the easier search: where it fails, a limit does not help.
                self.request.failed.add(several, errors)
                break
            if found is not None and (best is None or _size(found) < _size(best)):
                best = found
        return best

    def _margin(self, group: Group, off: Mapping[int, Array]) -> float:
        """Room for what the arguments are expected to be off by, and for rounding."""
        size = max(float(np.max(self.ranges[variable].magnitude)) for variable in group.variables)
        rounding = (12.0 if self.precision.name in HALVES else 1e4) * self.precision.unit_roundoff * (1e-3 + size)
        return self.policy.room * max(float(np.max(off[variable])) for variable in group.variables) + rounding

    def wide(self, variable: int, margin: float) -> tuple[float, float]:
        """The range of an argument, and the margin."""
        return float(np.min(self.ranges[variable].low)) - margin, float(np.max(self.ranges[variable].high)) + margin

    def _headless(self, number: int, allowed: float) -> Option | None:
        """A circuit without gates, where an affine function is good enough."""
        if isinstance(self._node(number), Expression):
            return None
        found = candidates(self.target, self._node(number), self.ranges, allowed, max_depth=0)
        return found[0] if found else None

    def _circuit(self, number: int, allowed: float) -> Option:
        found = candidates(self.target, self._node(number), self.ranges, allowed)
        return cheapest(found, f"neither a table head nor a ReLU circuit for {describe(self.target, number)}", allowed)

    def _node(self, number: int) -> Approximated:
        node = self.target.nodes[number]
        assert isinstance(node, Approximated)
        return node


def _size(fit: Fit) -> tuple[int, float]:
    """What a table costs: tokens, then the largest of its numbers."""
    keys = max(float(np.max(np.abs(array))) for array in (fit.alpha, fit.offset))
    return fit.tokens, max(fit.largest_value, keys)
