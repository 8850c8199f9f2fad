"""Which ways there are from a request to a model: the recipes, as data.

    native    table heads and multiplying heads for the non-linear nodes, with the target fused more or less (swiglu:
              with neurons for products and gates)
    relu      every operation a ReLU circuit, every gate a head
    ramp      ReLU circuits, with gates that are ramps over reference tokens
    maxout    one token for each affine piece; attention takes the maximum
    linear    products and squares, for linear attention

What each would take is known before anything is fitted: how many layers and heads. `table_recipes` and `other_recipes`
list them, the cheapest first; `may_win` says which of them could be cheaper than a model that is there already;
`designed` makes the design of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import numpy as np

from headsmith.core.errors import HeadsmithError, TargetError, UnfittableError
from headsmith.core.intervals import Interval
from headsmith.kernel.core.same import MOST_WORK
from headsmith.language.builder import is_product, program_of, taken_apart
from headsmith.language.graph import (
    GIVEN,
    Affine,
    Approximated,
    Attend,
    Average,
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
from headsmith.plan.approximation import Design
from headsmith.plan.choose import analytic, candidates, target_gains
from headsmith.plan.circuits.pieces import Arrangement, Pieces, tokens_for
from headsmith.plan.design import design_circuits
from headsmith.plan.native import native_design
from headsmith.plan.piece_design import piece_design
from headsmith.plan.product_design import product_design
from headsmith.plan.ramp_design import FEW_TOKENS, MOST_TOKENS, with_ramps
from headsmith.plan.request import Met, Policy, Request
from headsmith.plan.rewrite.fuse import Fusion, fuse, fused_nodes
from headsmith.transformer.bill import Cost

Name = Literal["native", "relu", "ramp", "maxout", "linear"]


@dataclass(frozen=True)
class Recipe:
    """One way to a model. `arrangement` is how the target is rewritten first, `estimate` the layers and heads that
    table heads would take. With `circuits`, some nodes become ReLU circuits, whose size depends on the error; else all
    heads are as accurate as rounding lets them be, whatever the error. Ramps have at most `most_tokens` reference
    tokens."""

    name: Name
    arrangement: Arrangement = None
    circuits: bool = False
    estimate: tuple[int, int] = (0, 0)
    most_tokens: int = MOST_TOKENS


def prepared(request: Request, recipe: Recipe) -> Request:
    """The request as a recipe takes it: with one token for each piece, where that is the recipe."""
    if recipe.name != "maxout":
        return request
    tokens = tokens_for(request.graph)
    if request.tokens not in (1, tokens):
        raise TargetError(f"recipe 'maxout' has one token for each piece, {tokens} here; leave tokens out")
    return replace(request, tokens=tokens)


def designed(request: Request, recipe: Recipe, policy: Policy) -> Design:
    """What stands for each node of the target, with its share of the error."""
    match recipe.name:
        case "native":
            assert not isinstance(recipe.arrangement, Pieces)
            return native_design(request, policy, recipe.arrangement)
        case "relu":
            request.tell("choosing ReLU circuits")
            return design_circuits(request, policy)
        case "ramp":
            request.tell("choosing ReLU circuits for ramp heads")
            circuits = design_circuits(request, replace(policy, share=0.5 * policy.share))
            budget = policy.share * request.error - circuits.approximation
            return with_ramps(circuits, budget, FEW_TOKENS if request.accurate else recipe.most_tokens)
        case "maxout":
            return piece_design(request)
        case "linear":
            return product_design(request)
        case _:
            assert_never(recipe.name)


# Which recipes there are ----------------------------------------------------------------------------------------------


def table_recipes(request: Request, recipe: str) -> list[Recipe]:
    """The recipes with table heads, the cheapest first."""
    if recipe not in ("auto", "native", "swiglu") or not _approximated(request.graph):
        return []
    request.tell("looking for sub-expressions that one head can stand for")
    graph = request.graph
    plain = without_tables(graph, request.ranges)
    smooth = [number not in plain for number in graph.used if isinstance(graph.nodes[number], Approximated)]
    if not any(smooth) and recipe == "auto":
        return []  # circuits for all nodes, which others have
    fusions = with_neurons(graph, plain) if request.neurons else variants(graph, plain)
    recipes = [Recipe("native", fusion, not all(smooth), estimate) for fusion, estimate in fusions]
    return [each for each in recipes if request.max_layers is None or each.estimate[0] <= request.max_layers]


def other_recipes(request: Request, recipe: str) -> list[Recipe]:
    """The recipes without table heads, in the order in which they are tried where nothing else does."""
    if request.attention == "linear":
        return [Recipe("linear")]
    approximated = _approximated(request.graph)
    match recipe:
        case "maxout":
            return [Recipe("maxout", Pieces())]
        case "ramp":
            return [Recipe("ramp", circuits=True)]
        case "native" | "swiglu" if approximated:
            return []
    pieces = [Recipe("maxout", Pieces())] if recipe == "auto" and pieces_may_win(request) else []
    return [Recipe("relu", circuits=approximated), *pieces]


def rivals(request: Request, cost: Cost) -> list[Recipe]:
    """What may be cheaper than table heads, where the recipe is left to the compiler."""
    pieces = [Recipe("maxout", Pieces())] if pieces_may_win(request) else []
    ramps = [Recipe("ramp", circuits=True)] if ramps_may_win(cost) else []
    return [Recipe("relu", circuits=True), *pieces, *ramps]


def may_win(request: Request, recipe: Recipe, cost: Cost, best: Met | None, tables: bool) -> bool:
    """Whether a recipe could be cheaper than the `best` model of those before it; `tables` says whether table heads
    were among these."""
    match recipe.name:
        case "native":
            return best is None or bool(cost.weights) or recipe.estimate < cost.of(best.bill)[:2]
        case "relu":
            return not tables or (best is not None and (bool(cost.weights) or _gates_may_win(request, best)))
        case _:
            return True


def other_exits(request: Request, recipe: Recipe, refusal: HeadsmithError | None) -> Recipe | None:
    """The recipe with one expression less: the one that no head could be found for is taken apart again. None where
    that is not what was refused."""
    fusion = recipe.arrangement
    if not isinstance(refusal, UnfittableError) or not isinstance(fusion, Fusion):
        return None
    members = fused_nodes(request.graph, fusion).get(refusal.node, frozenset())
    return (
        None if members <= fusion.exits else replace(recipe, arrangement=replace(fusion, exits=fusion.exits | members))
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
            case Average():
                raise TargetError(GIVEN)
            case Sampled():
                levels[number], gates = below + 1, gates + 1
            case _:
                levels[number] = below + 1
                heads[program_of(node)[1]] = node.size
    return levels[graph.output], gates + sum(heads.values())


def _gates_may_win(request: Request, best: Met) -> bool:
    """Whether circuits with the whole error to each node take fewer heads than the model: they cannot take fewer."""
    graph, found = request.graph, request.ranges
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
