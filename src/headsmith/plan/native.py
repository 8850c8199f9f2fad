"""Table heads for the non-linear nodes of a target, within the error, with as few reference tokens as the fits find.

Nodes of the same arguments are columns of one head. All heads share one set of reference tokens, so only the head that
needs most of them costs anything: every head gets the same share of the error first; then those that are easy take a
hundredth of it, which costs them nothing, and leave the rest to the hardest one.

A node that no table can stand for (an end of a square root's domain) or that needs no head at all (a chord is within
its share) takes a ReLU circuit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, UnfittableError, UnreachableError
from headsmith.language.builder import is_product, program_of
from headsmith.language.graph import (
    Approximated,
    Input,
    Maximum,
    Minimum,
    Pool,
    Relu,
)
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Design, approximate, gained
from headsmith.plan.choose import analytic, committed, possible_margin, softmax_share, target_flow, target_gains
from headsmith.plan.circuits.assemble import GATE, TABLE, Choice, assemble, expressions_of
from headsmith.plan.native_fits import Fitted, Fitter, Group
from headsmith.plan.request import Policy, Request
from headsmith.plan.rewrite.fuse import Fusion, fuse
from headsmith.plan.tables import GateHead, Multiplied, Table
from headsmith.transformer.heads.gate import MOST_GATE_TOKENS

ROUNDS = 6
EASY = 0.01
"""What part of its share a head takes that has tokens to spare."""
FITTED = 0.985
"""The proof is a little looser than the fit's estimate."""


def native_design(request: Request, policy: Policy, fusion: Fusion | None) -> Design:
    """Choose table heads for the fused target so that the proven approximation part is at most the policy's share of
    the error.

    Raises UnfittableError for an expression that no table was found for. With an accurate request, every head is as
    accurate as rounding lets it be, and only the rest of the error is for circuits: the result may exceed the error.
    """
    search, error = _Search(request, policy, fusion), policy.share * request.error
    budget, smallest = FITTED * error, np.inf
    if request.accurate:
        return search.proven(search.choose(budget))
    for _ in range(ROUNDS):
        design = search.proven(search.choose(budget))
        if design.approximation <= error:
            return design
        smallest = min(smallest, design.approximation)
        budget *= 0.97 * error / design.approximation
    raise UnreachableError(
        f"no table heads were found whose proven approximation error is at most {error:.3g}; the smallest was "
        f"{smallest:.3g}: ask for more than that, or for a smaller domain",
        part="approximation",
        smallest=1.1 * float(smallest),
    )


class _Search:
    """Shares the error out among the groups, and the tokens."""

    def __init__(self, request: Request, policy: Policy, fusion: Fusion | None) -> None:
        self.request, self.inputs = request, request.inputs
        self.target = target = request.graph if fusion is None else fuse(request.graph, fusion)
        self.ranges = request.ranges if target is request.graph else ranges(target, request.box)
        self.order = target.used
        self.flow = target_flow(target, tuple(self.ranges))
        self.gains = target_gains(target, self.ranges, self.order)
        # Products of products: see plan/circuits/assemble.py.
        self.mirrored = frozenset(number for power in self.flow.known.powers.values() for number in power.inside)
        self.groups = self._grouped()
        self.group_of = {number: group for group in self.groups for number in group.nodes}
        self.fitter = Fitter(request, policy, target, self.ranges, self.mirrored, len(self.groups) == 1)

    def _grouped(self) -> list[Group]:
        found: dict[tuple[tuple[int, ...], int], list[int]] = {}
        for number in self.order:
            node = self.target.nodes[number]
            if isinstance(node, Approximated):
                fits = analytic(self.target, self.ranges, number) and not self._multiplied(number)
                # What only a circuit can do is a group of its own.
                found.setdefault((program_of(node)[1], -1 if fits else number), []).append(number)
        return [Group(tuple(nodes), variables, alone < 0) for (variables, alone), nodes in found.items()]

    def _multiplied(self, number: int) -> bool:
        """Whether neurons compute a node: a product, or a square."""
        return self.request.neurons and is_product(self.target.nodes[number])

    def choose(self, budget: float) -> dict[int, Fitted]:
        """For each group (by its first node) what stands for it, with estimated errors of at most `budget` in all."""
        if self.mirrored:
            return self._fit_all(self._allowances(budget, self._even()), budget)
        equal = self._allowances(budget, dict.fromkeys(self.group_of, 1.0))
        chosen = self._fit_all(equal, budget)
        tokens = {first: fitted.tokens for first, fitted in chosen.items()}
        hardest = max(tokens, key=tokens.__getitem__, default=None)
        if self.request.accurate or len(tokens) < 2 or hardest is None or tokens[hardest] <= 2:
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
            box = [self.fitter.wide(variable, fitted.margin) for variable in self.group_of[number].variables]
            for grid in range(gate.tokens, min(tokens - 1, MOST_GATE_TOKENS) + 1):
                other = self.fitter.gate(grid, number, box, allowed[number])
                if other is not None and other.fit.incline > gates[number].fit.incline:
                    gates[number] = other
        return replace(fitted, gates=gates)

    def _even(self) -> dict[int, float]:
        """Weights that allow all nodes the same error for their size: products of products are as good as rounding."""
        sizes = {
            number: math.prod(float(np.max(self.ranges[each].magnitude)) for each in group.variables)
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
        own: dict[int, Array] = {}
        norms: dict[int, float] = {}
        chosen: dict[int, Fitted] = {}
        for number in self.order:
            node = self.target.nodes[number]
            arrived = self.flow.arriving(number, off, own, norms)
            own[number] = self.inputs if isinstance(node, Input) else committed(node, self.ranges[number])
            if isinstance(node, Relu | Maximum | Minimum | Pool):
                own[number] = own[number] + softmax_share(budget, self.gains[number], self.ranges[number])
            if isinstance(node, Approximated):
                group = self.group_of[number]
                if group.nodes[0] not in chosen:
                    chosen[group.nodes[0]] = self.fitter.fit(group, off, allowed)
                own[number] = own[number] + chosen[group.nodes[0]].attained.get(number, allowed[number])
            off[number] = arrived + own[number]
        return chosen

    def proven(self, chosen: Mapping[int, Fitted]) -> Design:
        """What the choices really do."""
        choices: dict[int, Choice] = {}
        columns: dict[int, list[Table | GateHead | Multiplied]] = {}
        for first, fitted in chosen.items():
            if fitted.multiplied:
                choices[first], columns[first] = Choice(TABLE, fitted.margin), [Multiplied()]
            for number, gate in fitted.gates.items():
                fit = gate.fit
                numbers = {"incline": fit.incline, "intercept": fit.intercept, "follows": gate.follows}
                numbers["mirrored"] = gate.mirrored
                choices[number] = Choice(GATE, fitted.margin, numbers=numbers)
                signs = (1.0, -1.0) if gate.mirrored else (1.0,)
                columns[number] = [GateHead(sign * fit.slope, fit.offset) for sign in signs]
            for number, option in fitted.circuits.items():
                margin = possible_margin(self.target, self.ranges, number, fitted.margin)
                choices[number] = replace(option.choice, margin=margin)
            for table, nodes in fitted.fits:
                slope = np.stack([table.alpha] if table.beta is None else [table.alpha, table.beta], axis=1)
                for column, number in enumerate(nodes):
                    choices[number] = Choice(TABLE, fitted.margin)
                    columns[number] = [Table(slope, table.offset, table.values[:, column])]
        assembly = assemble(self.target, choices)
        tables = {
            (place, component): table
            for number, each in columns.items()
            for place, table in zip(expressions_of(assembly, number), each, strict=True)
            for component in range(self.target.nodes[number].size)
        }
        try:
            approximation = approximate(self.target, self.ranges, assembly, choices, tables, self.request.progress)
        except CertificateError as refusal:
            raise UnfittableError(str(refusal), next(iter(columns), 0)) from refusal
        return gained(self.target, choices, assembly, approximation, tables)
