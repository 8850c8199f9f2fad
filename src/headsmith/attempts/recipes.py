"""Which recipe makes the cheapest model: ReLU circuits, or table heads with the target fused more or less.

The variants of a target are known before anything is fitted: how many layers and heads each would take. They are tried
from the cheapest on, and the first that is certified wins, unless a ReLU circuit could be cheaper still (where affine
functions are good enough).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from headsmith.attempts.meet import (
    Met,
    Request,
    meet_with_gates,
    meet_with_pieces,
    meet_with_products,
    meet_with_ramps,
    meet_with_tables,
)
from headsmith.attempts.smallest import REFUSALS, Way, refused, size_of_outputs, smallest_met
from headsmith.core.errors import HeadsmithError, TargetError, UnreachableError
from headsmith.core.intervals import Interval
from headsmith.kernel.core.same import MOST_WORK
from headsmith.language.builder import is_product, program_of, taken_apart
from headsmith.language.graph import (
    Affine,
    Approximated,
    Attend,
    Expression,
    Graph,
    Input,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    Positional,
    Quotient,
    Relu,
    Sampled,
)
from headsmith.plan.analysis.flow import known_steps
from headsmith.plan.choose import analytic, candidates, target_gains
from headsmith.plan.native_fits import FINEST, UnfittableError
from headsmith.plan.rewrite.fuse import Fusion, fuse, fused_nodes
from headsmith.transformer.bill import Bill, bill

COSTS = ("layers", "heads", "reference_tokens", "max_weight")
"""What a model costs, in the default order: less of an earlier one is worth any amount of a later one. Data tokens
count as reference tokens do."""


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
            # Of models that cost the same but for tokens, those of one data token come first.
            tokens = float(billed.reference_tokens + billed.data_tokens)
            return float(billed.layers), float(billed.heads), tokens, float(billed.max_weight)
        return (sum(weight * float(getattr(billed, name)) for name, weight in self.weights),)


def as_cost(weights: Mapping[str, float] | None) -> Cost:
    """A `Cost` from the user's weights; TargetError for names that are not costs."""
    for name, weight in (weights or {}).items():
        if name not in (*COSTS, "data_tokens", "parameters", "nonzeros", "d_model", "max_score"):
            raise TargetError(f"there is no cost named {name!r}; choose among {', '.join(COSTS)}, parameters, nonzeros")
        if not (math.isfinite(weight) and weight >= 0.0):
            raise TargetError(f"the weight of {name} is {weight!r}; it must be a finite number, not negative")
    return Cost(tuple((weights or {}).items()))


def meet(request: Request, recipe: str = "auto", cost: Cost | None = None) -> Met:
    """The cheapest certified model of a recipe, or UnreachableError with the smallest error that can be met.

    Where the usual search fails, models that spend tokens on accuracy come next, and ReLU circuits after them.
    """
    request = replace(request, neurons=recipe == "swiglu")
    cost, tables, others = cost or Cost(), _tables(request, recipe), _others(request, recipe)
    best, refusal = _cheapest(request, recipe, cost, tables)
    if best is not None:
        return best
    smallest = smallest_met(request, [way for way, _ in tables])
    if smallest is not None and smallest.certificate.error <= request.error:
        return smallest
    for way in others if tables or recipe != "auto" else []:
        # Errors of half the smallest, or less, are asked for below.
        near = smallest is not None and request.error >= 0.5 * smallest.certificate.error
        if smallest is None or (near and request.error >= FINEST * size_of_outputs(request)):
            try:
                met = way.run(request)
            except REFUSALS as problem:
                refusal = refusal or problem
            else:
                if _shallow(request, met):
                    return met
    smallest = smallest_met(request, others, smallest)
    if smallest is not None and smallest.certificate.error <= request.error:
        return smallest
    if smallest is None and refusal is not None and not isinstance(refusal, UnreachableError | UnfittableError):
        raise refusal  # not the error, but the target
    raise refused(request, smallest, refusal or _nothing(request))


def _tables(request: Request, recipe: str) -> list[tuple[Way, tuple[int, int]]]:
    """The ways with table heads, each with the layers and heads that it would take, the cheapest first."""
    if recipe not in ("auto", "native", "swiglu") or not _approximated(request.graph):
        return []
    request.tell("looking for sub-expressions that one head can stand for")
    graph = request.graph
    plain = without_tables(graph, request.found)
    smooth = [number not in plain for number in graph.used if isinstance(graph.nodes[number], Approximated)]
    if not any(smooth) and recipe == "auto":
        return []  # circuits for all nodes, which others have
    found = with_neurons(graph, plain) if request.neurons else variants(graph, plain)
    found = [item for item in found if request.max_layers is None or item[1][0] <= request.max_layers]
    circuits = not all(smooth)
    return [(Way(partial(_with_exits, fusion=fusion), circuits), cost) for fusion, cost in found]


def _others(request: Request, recipe: str) -> list[Way]:
    """All other ways of a recipe."""
    circuits = _approximated(request.graph)
    pieces, gates = Way(meet_with_pieces, False), Way(meet_with_gates, circuits)
    if request.attention == "linear":
        return [Way(meet_with_products, False)]
    match recipe:
        case "maxout":
            return [pieces]
        case "ramp":
            return [Way(meet_with_ramps, True)]
        case "native" | "swiglu" if circuits:
            return []
    return [gates, pieces] if recipe == "auto" and pieces_may_win(request) else [gates]


def _cheapest(
    request: Request, recipe: str, cost: Cost, tables: list[tuple[Way, tuple[int, int]]]
) -> tuple[Met | None, HeadsmithError | None]:
    """The cheapest model of a recipe, where tables are possible or several recipes compete; else why not."""
    best: Met | None = None
    refusal: HeadsmithError | None = None

    def consider(way: Way, wins_ties: bool = False) -> None:
        nonlocal best, refusal
        try:
            met = way.run(request)
        except REFUSALS as problem:
            refusal = refusal or problem
            return
        if not _shallow(request, met):
            return
        if best is None or cost.of(met) < cost.of(best) or (wins_ties and cost.of(met) == cost.of(best)):
            best = met

    for way, estimate in tables:
        if best is not None and not cost.weights and estimate >= cost.of(best)[:2]:
            break
        consider(way)
    if recipe != "auto":
        return best, refusal
    if not tables or (best is not None and (cost.weights or _gates_may_win(request, best))):
        consider(Way(meet_with_gates, True), wins_ties=True)
    if pieces_may_win(request):
        consider(Way(meet_with_pieces, False))
    if ramps_may_win(cost):
        consider(Way(meet_with_ramps, True))
    return best, refusal


def _shallow(request: Request, met: Met) -> bool:
    return request.max_layers is None or len(met.transformer.layers) <= request.max_layers


def _nothing(request: Request) -> UnreachableError:
    limit = "" if request.max_layers is None else f" and {request.max_layers} layers"
    return UnreachableError(
        f"no heads were found within {request.error:.3g}{limit}: ask for a larger error, a smaller domain, or "
        "more layers",
        part="approximation",
        smallest=math.inf,
    )


def _approximated(graph: Graph) -> bool:
    return any(isinstance(node, Approximated) for node in graph.nodes)


def pieces_may_win(request: Request) -> bool:
    """Whether one token for each piece could save layers or heads. A gate takes the larger of two values in one layer,
    as pieces do, and its result is at once in the place where it is read: only maxima of three values or more gain.
    Sums that are too large for the kernel to write out are not recognised when their inputs are laid out over tokens.
    """
    nodes = [request.graph.nodes[number] for number in request.graph.used]
    simple = all(isinstance(node, Input | Affine | Relu | Maximum | Minimum) for node in nodes)
    wide = any(isinstance(node, Maximum | Minimum) and len(node.arguments) > 2 for node in nodes)
    return simple and wide and request.tokens == 1 and all(map(_written_out, nodes))


def _written_out(node: Node) -> bool:
    """Whether the kernel writes out what a node sums."""
    terms = node.terms if isinstance(node, Affine) else ()
    return sum(int(np.count_nonzero(term.entries)) for term in terms) <= MOST_WORK


def ramps_may_win(cost: Cost) -> bool:
    """Ramp heads stand for the same gates as sink heads, with more reference tokens and smaller weights: they win only
    where weights or scores count."""
    return any(name in ("max_weight", "max_score") and weight > 0.0 for name, weight in cost.weights)


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


def without_tables(graph: Graph, found: Sequence[Interval]) -> frozenset[int]:
    """The nodes for which no table could stand."""
    numbers = [number for number, node in enumerate(graph.nodes) if isinstance(node, Approximated)]
    return frozenset(number for number in numbers if not analytic(graph, found, number))


def variants(graph: Graph, plain: frozenset[int]) -> list[tuple[Fusion | None, tuple[int, int]]]:
    """How a target may be fused, with the layers and heads of each, the cheapest first; nodes in `plain` stay as they
    are."""
    items: dict[tuple[object, ...], tuple[Fusion | None, tuple[int, int]]] = {}
    fusions: list[Fusion | None] = [Fusion(2, plain=plain), Fusion(1, plain=plain), None]
    with suppress(TargetError):
        if fuse(graph, Fusion(2, plain=plain)) is graph:
            fusions = fusions[:1]  # there is nothing to fuse: the others are the same
    if any(isinstance(graph.nodes[number], Quotient) for number in graph.used):
        places = taken_apart(graph)[1]
        fusions.append(Fusion(1, plain=frozenset(places[number] for number in plain), apart=True))
    for fusion in fusions:
        try:
            fused = graph if fusion is None else fuse(graph, fusion)
        except TargetError:
            continue
        if fused is not graph and known_steps(fused) < known_steps(graph):
            # What is known of a step as a whole is worth more than fewer heads.
            continue
        programs = tuple(program_of(node) for node in fused.nodes if isinstance(node, Approximated))
        if programs not in items:
            items[programs] = fusion, shape(fused)
    return sorted(items.values(), key=lambda item: item[1])


def with_neurons(graph: Graph, plain: frozenset[int]) -> list[tuple[Fusion | None, tuple[int, int]]]:
    """The same where neurons multiply: functions of one form are fused, but for products and nodes in `plain`, and a
    quotient is a product with a reciprocal."""
    apart, places = taken_apart(graph)
    products = {number for number, node in enumerate(apart.nodes) if is_product(node)}
    fusion = Fusion(1, plain=frozenset(products | {places[each] for each in plain}), apart=True)
    return [(fusion, shape(fuse(graph, fusion)))]


def shape(graph: Graph) -> tuple[int, int]:
    """Layers and heads, if every approximated node is a column of one table head."""
    levels: dict[int, int] = {}
    heads: dict[tuple[int, ...], int] = {}
    gates = 0
    for number in graph.used:
        node = graph.nodes[number]
        below = max((levels[argument] for argument in graph.reads[number]), default=0)
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
            case Sampled():
                levels[number], gates = below + 1, gates + 1
            case _:
                levels[number] = below + 1
                heads[program_of(node)[1]] = node.size
    return levels[graph.output], gates + sum(heads.values())


def _gates_may_win(request: Request, best: Met) -> bool:
    """Whether circuits with the whole error to each node take fewer heads than the model: they cannot take fewer."""
    graph, found = request.graph, request.found
    order = graph.used
    gains = target_gains(graph, found, order)
    total, heads = graph.gates, best.transformer.heads
    for number in order:
        node = graph.nodes[number]
        if isinstance(node, Approximated) and not isinstance(node, Expression):
            gain = float(np.max(gains[number]))
            allowed = request.error / gain if gain > 0.0 else math.inf
            options = candidates(graph, node, found, min(allowed, 1e6), len(best.transformer.layers))
            if not options:
                return False
            total += options[0].gates
        if total > heads:
            return False
    return True
