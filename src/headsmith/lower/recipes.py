"""Which recipe makes the cheapest model: ReLU circuits, or table heads with the target fused more or less.

The variants of a target are known before anything is fitted: how many layers and heads each would take. They are tried
from the cheapest on, and the first that is certified wins, unless a ReLU circuit could be cheaper still (where affine
functions are good enough).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.errors import DomainError, HeadsmithError, TargetError, UnreachableError
from headsmith.core.intervals import Interval
from headsmith.lower.candidates import candidates
from headsmith.lower.choose import target_gains
from headsmith.lower.meet import Met, Request, meet_with_gates, meet_with_pieces, meet_with_ramps, meet_with_tables
from headsmith.lower.native import UnfittableError, analytic
from headsmith.source.contraction import contractions
from headsmith.source.doubling import iterates
from headsmith.source.fuse import Fusion, fuse, fused_nodes
from headsmith.source.graph import (
    Affine,
    Approximated,
    Attend,
    Expression,
    Graph,
    Input,
    Maximum,
    Minimum,
    Move,
    Pool,
    Positional,
    Quotient,
    Relu,
    arguments,
    needed,
)
from headsmith.source.views import program_of, taken_apart
from headsmith.transformer.bill import Bill, bill

COSTS = ("layers", "heads", "reference_tokens", "max_weight")
"""What a model costs, in the default order: less of an earlier one is worth any amount of a later one."""


@dataclass(frozen=True)
class Cost:
    """How models are compared: by the weighted sum of what they cost, or in the default order."""

    weights: tuple[tuple[str, float], ...] = ()

    def of(self, met: Met) -> tuple[float, ...]:
        """What a model costs; smaller is better."""
        return self.of_bill(bill(met.transformer, met.certificate.max_score))

    def of_bill(self, billed: Bill) -> tuple[float, ...]:
        """The same, from its bill."""
        if not self.weights:
            return tuple(float(getattr(billed, name)) for name in COSTS)
        return (sum(weight * float(getattr(billed, name)) for name, weight in self.weights),)


def as_cost(weights: Mapping[str, float] | None) -> Cost:
    """A `Cost` from the user's weights; TargetError for names that are not costs."""
    for name, weight in (weights or {}).items():
        if name not in (*COSTS, "parameters", "nonzeros", "d_model", "max_score"):
            raise TargetError(f"there is no cost named {name!r}; choose among {', '.join(COSTS)}, parameters, nonzeros")
        if not (math.isfinite(weight) and weight >= 0.0):
            raise TargetError(f"the weight of {name} is {weight!r}; it must be a finite number, not negative")
    return Cost(tuple((weights or {}).items()))


def meet(request: Request, recipe: str = "auto", cost: Cost | None = None) -> Met:
    """The cheapest certified model of a recipe, or UnreachableError."""
    cost = cost or Cost()
    if recipe == "maxout":
        return meet_with_pieces(request)
    if recipe == "ramp":
        return meet_with_ramps(request)
    if recipe == "relu" or not any(isinstance(node, Approximated) for node in request.graph.nodes):
        return meet_with_gates(request)
    best: Met | None = None
    refusal: HeadsmithError | None = None
    for fusion, (layers, heads) in variants(request.graph, request.found):
        if request.max_layers is not None and layers > request.max_layers:
            continue
        if best is not None and not cost.weights and (layers, heads) >= cost.of(best)[:2]:
            break
        try:
            met = _with_exits(request, fusion)
        except (UnfittableError, UnreachableError, TargetError, DomainError) as problem:
            refusal = problem
            continue
        if request.max_layers is not None and len(met.transformer.layers) > request.max_layers:
            continue
        best = met if best is None or cost.of(met) < cost.of(best) else best
    if recipe == "auto" and (best is None or cost.weights or _gates_may_win(request, best)):
        try:
            gates = meet_with_gates(request)
        except UnreachableError as problem:
            if best is None:
                raise problem from refusal
        else:
            best = gates if best is None or cost.of(gates) <= cost.of(best) else best
    if best is None:
        raise UnreachableError(
            f"no table heads were found within {request.error:.3g} ({refusal}): recipe 'auto' also tries ReLU circuits",
            part="approximation",
            smallest=math.inf,
        ) from refusal
    return best


def _with_exits(request: Request, fusion: Fusion | None) -> Met:
    """Table heads for a fused target; an expression that none can do is taken apart again."""
    for _ in range(4):
        try:
            return meet_with_tables(request, fusion)
        except UnfittableError as problem:
            members = {} if fusion is None else fused_nodes(request.graph, fusion)
            if fusion is None or problem.node not in members or members[problem.node] <= fusion.exits:
                raise
            fusion = replace(fusion, exits=fusion.exits | members[problem.node])
    return meet_with_tables(request, fusion)


def variants(graph: Graph, found: Sequence[Interval]) -> list[tuple[Fusion | None, tuple[int, int]]]:
    """How a target may be fused, with the layers and heads of each, the cheapest first."""
    plain = frozenset(
        number
        for number, node in enumerate(graph.nodes)
        if isinstance(node, Approximated) and not analytic(graph, found, number)
    )
    items: dict[tuple[object, ...], tuple[Fusion | None, tuple[int, int]]] = {}
    fusions: list[Fusion | None] = [Fusion(2, plain=plain), Fusion(1, plain=plain), None]
    if any(isinstance(graph.nodes[number], Quotient) for number in needed(graph, graph.output)):
        places = taken_apart(graph)[1]
        fusions.append(Fusion(1, plain=frozenset(places[number] for number in plain), apart=True))
    for fusion in fusions:
        try:
            fused = graph if fusion is None else fuse(graph, fusion)
        except TargetError:
            continue
        if len(contractions(fused)) < len(contractions(graph)) or len(iterates(fused)) < len(iterates(graph)):
            # What is known of a step as a whole is worth more than fewer heads.
            continue
        programs = tuple(program_of(node) for node in fused.nodes if isinstance(node, Approximated))
        items.setdefault(programs, (fusion, shape(fused)))
    return sorted(items.values(), key=lambda item: item[1])


def shape(graph: Graph) -> tuple[int, int]:
    """Layers and heads, if every approximated node is a column of one table head."""
    levels: dict[int, int] = {}
    heads: dict[tuple[int, ...], int] = {}
    gates = 0
    for number in needed(graph, graph.output):
        node = graph.nodes[number]
        below = max((levels[argument] for argument in arguments(node)), default=0)
        match node:
            case Input() | Affine() | Positional():
                levels[number] = below
            case Pool() | Move() | Attend():
                levels[number], gates = below + 1, gates + 1
            case Relu():
                levels[number], gates = below + 1, gates + node.size
            case Maximum() | Minimum():
                count = len(node.arguments)
                levels[number], gates = below + math.ceil(math.log2(count)), gates + (count - 1) * node.size
            case _:
                levels[number] = below + 1
                heads[program_of(node)[1]] = node.size
    return levels[graph.output], gates + sum(heads.values())


def _gates_may_win(request: Request, best: Met) -> bool:
    """Whether circuits with the whole error to each node take fewer heads than the model: they cannot take fewer."""
    graph, found = request.graph, request.found
    gains = target_gains(graph, found)
    total = sum(node.size for node in graph.nodes if isinstance(node, Relu))
    for number in needed(graph, graph.output):
        node = graph.nodes[number]
        if isinstance(node, Approximated) and not isinstance(node, Expression):
            gain = float(np.max(gains[number].sum(axis=0)))
            allowed = request.error / gain if gain > 0.0 else math.inf
            options = candidates(graph, node, found, min(allowed, 1e6), len(best.transformer.layers))
            if not options:
                return False
            total += options[0].gates
        if total > sum(layer.heads for layer in best.transformer.layers):
            return False
    return True
