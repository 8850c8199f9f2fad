"""A target that one table head stands for, with the numbers of that head given: from a search to a certified model.

The head is searched on [-1, 1] (heads.py), where slopes and inclines have one size whatever the domain is; here its
numbers become those of the inputs. The residual stream carries what is affine, so that the table holds the rest, in
units of a power of two that share its size out among W_V, W_O and W_U.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headsmith.compile import laid_out
from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.core.intervals import Interval
from headsmith.core.program import Program, program_values
from headsmith.core.rounding import Precision, held
from headsmith.lab.enough.heads import Found, Room, Wanted
from headsmith.language.builder import program_of
from headsmith.language.graph import Affine, Approximated, Expression, Graph, Input, Product
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Design, approximate, gained
from headsmith.plan.choose import analytic
from headsmith.plan.circuits.assemble import TABLE, Choice, assemble, expressions_of
from headsmith.plan.recipes import Recipe
from headsmith.plan.request import Met, Outcome, Request, nearer
from headsmith.plan.rewrite.fuse import Fusion, fuse
from headsmith.plan.tables import Table

SPENT = (1.01, 1.1, 2.0, 10.0)
"""How many times the error of a head a certificate may be: what is left is for rounding and leak; tried in turn."""
FACTORS = 3.0
"""In how many matrices the size of a value can be: W_V, W_O, W_U."""
ROUNDINGS, FEW_ROUNDINGS = 1e4, 12.0
"""Margins of arguments, in units of their rounding: in float64, and in formats that have less to spare."""


@dataclass(frozen=True, eq=False)
class Task:
    """A request whose fused target has one node that is not affine, a function of one or two numbers."""

    request: Request
    fusion: Fusion | None
    fused: Graph
    found: tuple[Interval, ...]
    number: int

    @property
    def node(self) -> Approximated:
        """The node that the head stands for."""
        node = self.fused.nodes[self.number]
        assert isinstance(node, Approximated)
        return node

    @property
    def gated(self) -> bool:
        """Whether a gate head multiplies too: a product of two values."""
        return isinstance(self.node, Product) and self.node.left != self.node.right

    @property
    def straight(self) -> bool:
        """Whether the stream can carry a part of it: the kernel knows the slopes of what the rest is a part of."""
        return not isinstance(self.node, Expression) or self.program.variables == 1

    @property
    def program(self) -> Program:
        """What the head computes, of its arguments."""
        return program_of(self.node)[0]

    @cached_property
    def box(self) -> Array:
        """The range of each argument (arguments, 2)."""
        _, variables = program_of(self.node)
        return np.array([[float(np.min(self.found[v].low)), float(np.max(self.found[v].high))] for v in variables])

    @cached_property
    def halves(self) -> Array:
        """Half the width of each range."""
        return np.asarray((self.box[:, 1] - self.box[:, 0]) / 2.0)

    @property
    def precision(self) -> Precision:
        """The model's format."""
        return self.request.precision

    def function(self, points: Array) -> Array:
        """The function of the scaled arguments."""
        middles = (self.box[:, 1] + self.box[:, 0]) / 2.0
        at = np.clip(middles + self.halves * points, self.box[:, 0], self.box[:, 1])
        return np.asarray(program_values(self.program, *at.T))

    def wanted(self, affine: bool, values: float, slopes: float) -> Wanted:
        """What a search is asked for: limits of slopes and inclines are those of the arguments themselves."""
        half = float(np.min(self.halves))
        return Wanted(
            self.function, len(self.halves), affine and self.straight, Room(values, slopes * half, slopes * half)
        )


def task_of(request: Request, fusion: Fusion | None) -> Task | None:
    """The request as one table head, or None where it is not one."""
    fused = request.graph if fusion is None else fuse(request.graph, fusion)
    nodes = [number for number in fused.used if isinstance(fused.nodes[number], Approximated)]
    others = (fused.nodes[number] for number in fused.used if number not in nodes)
    if len(nodes) != 1 or fused.nodes[nodes[0]].size != 1 or not all(isinstance(n, Input | Affine) for n in others):
        return None
    found = request.ranges if fused is request.graph else ranges(fused, request.box)
    task = Task(request, fusion, fused, tuple(found), nodes[0])
    fits = analytic(fused, found, nodes[0]) and np.all(task.halves > 0.0)
    return task if fits and np.all(np.isfinite(task.function(np.zeros((1, len(task.halves)))))) else None


def met_with(task: Task, head: Found) -> Met | None:
    """The head as a certified model, or None where nothing is proved."""
    design = _design(task, head)
    if design is None:
        return None
    nearest: Met | None = None
    for spent in SPENT:
        request = replace(task.request, error=spent * design.approximation)
        outcome = lowered(task, request, design)
        nearest = nearer(nearest, outcome.met or outcome.nearest)
        if outcome.met is not None:
            break
    return nearest


def lowered(task: Task, request: Request, design: Design) -> Outcome:
    """A design of the task as a certified model within the request's error, or why there is none."""
    try:
        return laid_out(request, Recipe("native", task.fusion), design)
    except HeadsmithError as refusal:
        return Outcome(refusal=refusal)


def _design(task: Task, head: Found) -> Design | None:
    """Numbers of the scaled arguments as numbers of the arguments, in the model's format; and what is proved of them.

    slope . t = (slope / half) . (x - middle); what all scores share changes nothing.
    """
    precision, middles = task.precision, (task.box[:, 1] + task.box[:, 0]) / 2.0

    def rounded(numbers: Array) -> Array:
        return np.asarray(held(np.asarray(numbers), precision.name), dtype=np.float64)

    slopes = rounded(head.keys[:, :-1] / task.halves)
    slopes = rounded(slopes - (slopes.max(axis=0) + slopes.min(axis=0)) / 2.0)
    offsets = head.keys[:, -1] - slopes @ middles
    corners = np.array(np.meshgrid(*task.box, indexing="ij")).reshape(len(task.box), -1)
    scores = slopes @ corners + offsets[:, None]
    offsets = rounded(offsets - (float(scores.max()) + float(scores.min())) / 2.0)
    incline = rounded(head.incline / task.halves)
    # A bias stands in one matrix: what is more of it than such a share of the values is part of the values.
    constant = head.intercept - float(incline @ middles)
    share = max(head.size, 1.0) ** (1.0 / FACTORS) if task.straight else 0.0
    intercept = float(rounded(np.clip(constant, -share, share)))
    values = head.values + (constant - intercept)
    size = max(float(np.max(np.abs(values))), 1.0)
    unit = 2.0 ** round(math.log2(size) * (1.0 - 1.0 / FACTORS)) if task.straight else 1.0
    straight = {f"incline {place}": each for place, each in enumerate(incline.tolist())}
    straight |= {"intercept": intercept, "unit": unit}
    choice = Choice(TABLE, margin_of(task), numbers=straight if task.straight else {})
    assembly = assemble(task.fused, {task.number: choice})
    table = Table(slopes, offsets, rounded(values / unit))
    tables = {(place, 0): table for place in expressions_of(assembly, task.number)}
    try:
        bounds = approximate(task.fused, task.found, assembly, {task.number: choice}, tables, task.request.progress)
    except HeadsmithError:
        return None
    return gained(task.fused, {task.number: choice}, assembly, bounds, tables)


def margin_of(task: Task) -> float:
    """Room for the rounding of the arguments."""
    size = float(np.max(np.abs(task.box)))
    many = ROUNDINGS if task.request.dtype == "float64" else FEW_ROUNDINGS
    return many * task.precision.unit_roundoff * (1e-3 + size)
