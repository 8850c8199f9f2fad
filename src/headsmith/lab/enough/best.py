"""The most accurate certified model that is found within limits of its cost.

    model = hs.best("1/x", {"x": (0.1, 1)}, heads=1, reference_tokens=3)
    model.certificate.error, model.binds, model.limits

`hs.compile` is asked for an error and looks for the lowest cost; here it is the other way round. Two kinds of routes
lead to models:

    one table head      the numbers of the head itself are searched (heads.py), for as many tokens as there may be, and
                        the best head is certified: no error is asked for
    anything else       an error is asked for, and halved as long as what comes out is within the limits: from one tenth
                        to the next first, then by bisection, starting again from what was attained

It is a search, and finds no proof that nothing is better: `hs.lower_bound` proves such things. The limit that binds is
the one of which one step more lowers the error most, as far as the same search finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from headsmith.compile import compiled_of, met_by
from headsmith.core.errors import HeadsmithError, TargetError, UnreachableError
from headsmith.core.progress import Shown, shown
from headsmith.core.rounding import Dtype
from headsmith.lab.enough.gates import met_with_gate
from headsmith.lab.enough.heads import Found, best_head
from headsmith.lab.enough.limits import Limits, checked
from headsmith.lab.enough.tables import Task, met_with, task_of
from headsmith.language.graph import Approximated, Expression
from headsmith.model import Compiled
from headsmith.plan.choose import candidates
from headsmith.plan.circuits.pieces import Pieces
from headsmith.plan.reading import Target, read
from headsmith.plan.recipes import Recipe, other_recipes, pieces_may_win, table_recipes
from headsmith.plan.request import Met, Outcome, Request, nearer

SMALLEST = 1e-13
"""Errors, relative to the size of the outputs, below which none is asked for."""
FAR = 1e3
"""No node's error may be so many times that of the output: with more gates than for that there is no circuit."""
CLOSE = 1.02
"""Bisection ends where what was met and what was refused are so near."""
MOST_TOKENS = 10
"""Reference tokens of one table head, where they are not limited."""
SIZES = (1e3, 30.0)
"""How many times the range of a function the values of its table may be, where weights are not limited. The last two
per cent of an error can cost a factor of a thousand."""
SHRINK = 0.5
"""A head that is too heavy is searched again with values of so many times the size."""
SHRINKS = 8
MOST_GATE = 5
"""Reference tokens of a gate, the sink included."""

NO_LIMITS = Limits()

RECIPES = ("auto", "native", "relu", "ramp", "maxout")

Attempt = Callable[[float], Outcome]


@dataclass(frozen=True, eq=False)
class Best(Compiled):
    """The most accurate model that was found within its limits: a compiled model."""

    within: Limits = NO_LIMITS
    again: Callable[[Limits], Compiled] | None = None

    @cached_property
    def limits(self) -> dict[str, float]:
        """For each limit, how many times smaller the error is that the same search finds with one step more of it: one
        more, or twice the largest weight or score, or a quarter more parameters."""
        found = {}
        for name, relaxed in self.within.relaxed():
            slack = getattr(self.bill, name) < getattr(self.within, name) * (0.5 if "max_" in name else 0.79)
            found[name] = 1.0
            if self.again is not None and not (slack and name in ("parameters", "max_weight", "max_score")):
                try:
                    other = self.again(relaxed).certificate.error
                except HeadsmithError:
                    continue
                found[name] = max(self.certificate.error / other, 1.0) if other > 0.0 else math.inf
        return found

    @property
    def binds(self) -> str | None:
        """The limit of which one step more lowers the error most; None where no step lowers it by more than what the
        search may miss, two per cent."""
        name = max(self.limits, key=self.limits.__getitem__)
        return name if self.limits[name] > CLOSE else None


def best(
    target: Target,
    domain: Any = None,
    *,
    layers: int | None = None,
    heads: int | None = None,
    reference_tokens: int | None = None,
    parameters: int | None = None,
    d_model: int | None = None,
    d_head: int | None = None,
    max_weight: float | None = None,
    max_score: float | None = None,
    dtype: Dtype = "float64",
    recipe: str = "auto",
    progress: Shown = None,
) -> Best:
    """The certified model of `target` on `domain` with the smallest error that is found within all limits.

    `.certificate.error` is proven, as for every compiled model; that no model within the limits has a smaller one is
    not. `.limits` and `.binds` say which limit to relax. Where layers, heads, parameters and d_model are all free, the
    model has as few layers and heads as table heads take. `recipe` is as in `compile`. Raises UnreachableError where no
    model was found within the limits, and TargetError where there are none.
    """
    if recipe not in RECIPES:
        raise TargetError(f"recipe {recipe!r} is none of {', '.join(RECIPES)}")
    limits = checked(Limits(layers, heads, reference_tokens, parameters, d_model, d_head, max_weight, max_score))
    with shown(progress) as report, np.errstate(over="ignore", invalid="ignore"):
        request = read(target, domain, 1.0, 1, dtype, layers, report)
        met = _best_met(request, limits, recipe)

    def again(other: Limits) -> Best:
        return best(target, domain, **{**vars(other)}, dtype=dtype, recipe=recipe, progress=False)

    model = compiled_of(request, met)
    parts = {name: value for name, value in vars(model).items() if name in Compiled.__dataclass_fields__}
    return Best(**parts, within=limits, again=again)


def _best_met(request: Request, limits: Limits, recipe: str) -> Met:
    found: Met | None = None
    limits = _as_few(request, limits, recipe)
    for route in _routes(request, limits, recipe):
        found = nearer(found, route(found.certificate.error if found is not None else math.inf))
    if found is None:
        asked = ", ".join(f"{name} {limit:g}" for name, limit in limits.asked.items())
        raise UnreachableError(
            f"no model was found within the limits ({asked}): relax one of them, or ask headsmith plan what models of "
            "this target cost",
            part="approximation",
            smallest=math.inf,
        )
    return found


def _as_few(request: Request, limits: Limits, recipe: str) -> Limits:
    """Where neither layers nor heads nor sizes are limited: as few layers and heads as table heads take. Accuracy by
    any number of gates would be no answer to what some tokens or weights can do."""
    tables = table_recipes(request, recipe)
    if recipe != "auto" or not tables or limits.asked.keys() & {"layers", "heads", "parameters", "d_model"}:
        return limits
    layers, heads = tables[0].estimate
    return replace(limits, layers=layers, heads=heads)


Route = Callable[[float], Met | None]


def _routes(request: Request, limits: Limits, recipe: str) -> Iterator[Route]:
    """The ways to a model whose layers and heads may fit; each is told the smallest error so far."""
    for way in table_recipes(request, recipe):
        layers, heads = way.estimate
        if layers <= (limits.layers or layers) and heads <= (limits.heads or heads):
            fusion = way.arrangement
            task = None if isinstance(fusion, Pieces) else task_of(request, fusion)
            if task is None:
                yield partial(_smallest, request, limits, partial(_asked, _within_weights(request, limits), way))
            elif task.gated:
                yield partial(_one_gate, task, limits)
            else:
                yield partial(_one_table, task, limits)
    pieces = [Recipe("maxout", Pieces())] if recipe == "auto" and pieces_may_win(request) else []
    ways = other_recipes(request, recipe)
    for way in [*ways, *(each for each in pieces if each not in ways)]:
        yield partial(
            _smallest,
            request,
            limits,
            partial(_asked, request, way) if way.name != "relu" else (partial(_by_gates, request, limits, way)),
        )


def _asked(request: Request, way: Recipe, error: float) -> Outcome:
    """A model of one recipe within the error."""
    return met_by(replace(request, error=error), way)


def _within_weights(request: Request, limits: Limits) -> Request:
    return request if limits.max_weight is None else replace(request, value_limit=limits.max_weight)


def _by_gates(request: Request, limits: Limits, way: Recipe, error: float) -> Outcome:
    """ReLU circuits within the error; what is sure to have too many gates is not laid out."""
    graph, gates = request.graph, request.graph.gates
    for number in graph.used:
        node = graph.nodes[number]
        if limits.heads is not None and isinstance(node, Approximated) and not isinstance(node, Expression):
            options = candidates(graph, node, request.ranges, FAR * error, limits.layers)
            gates += min((each.gates for each in options), default=0)
    if limits.heads is not None and gates > limits.heads:
        return Outcome()
    return _asked(request, way, error)


# One table head -------------------------------------------------------------------------------------------------------


def _one_table(task: Task, limits: Limits, _known: float) -> Met | None:
    """The best of heads with all tokens that there may be, and with one less: more tokens may lead to worse valleys."""
    most = MOST_TOKENS if limits.reference_tokens is None else limits.reference_tokens
    best: Met | None = None
    fewer: tuple[Found, ...] = ()
    for tokens in range(1 if limits.reference_tokens is None else max(1, most - 2), most + 1):
        task.request.tell(f"searching heads of {tokens} tokens", tokens / (most + 1.0))
        met, head = _heaviest(task, limits, tokens, fewer)
        fewer = () if head is None else (head,)
        better = nearer(best, met)
        if limits.reference_tokens is None and best is not None and better is best:
            break
        best = better
    return best


def _heaviest(task: Task, limits: Limits, tokens: int, fewer: tuple[Found, ...]) -> tuple[Met | None, Found | None]:
    """The head with the largest values that is within the limits, certified."""
    spread = float(np.ptp(task.wanted(False, math.inf, math.inf).targets)) or 1.0
    weight = math.inf if limits.max_weight is None else limits.max_weight
    factors = 3 if task.straight else 1
    largest = [size * spread for size in SIZES] if math.isinf(weight) else [min(weight**factors, SIZES[0] * spread)]
    best: Met | None = None
    found: Found | None = None
    values = largest[0]
    for turn in range(SHRINKS):
        head = best_head(task.wanted(True, values, min(weight, 1e3 / float(np.max(task.halves)))), tokens, fewer)
        found = found or head
        met = met_with(task, head)
        if met is not None and limits.hold(met.bill):
            best = nearer(best, met)
            if not math.isinf(weight) or turn + 1 >= len(largest) or _exact_enough(met):
                break
            values = largest[turn + 1]
        elif math.isinf(weight) and limits.max_score is None and met is not None:
            break  # values do not change what else a bill has
        else:
            values = SHRINK * min(values, head.size)
    return best, found


def _one_gate(task: Task, limits: Limits, known: float) -> Met | None:
    """The best product by a gate: no table multiplies with fewer tokens. Fewer tokens round less."""
    most = MOST_GATE if limits.reference_tokens is None else min(limits.reference_tokens, MOST_GATE)
    best: Met | None = None
    for tokens in range(2, most + 1):
        best = nearer(best, _smallest(task.request, limits, partial(met_with_gate, task, tokens), known))
    return best


def _exact_enough(met: Met) -> bool:
    """Whether rounding is a small part of the error: smaller values would not help."""
    return met.certificate.parts["rounding"] < 0.1 * met.certificate.error


# Anything else --------------------------------------------------------------------------------------------------------


def _smallest(request: Request, limits: Limits, attempt: Attempt, known: float) -> Met | None:
    """The model of the smallest error that an attempt meets within the limits; None where it is above what is known."""
    best: Met | None = None

    def met(error: float) -> bool:
        nonlocal best
        request.tell(f"trying error {error:.2g}")
        found = attempt(error).met
        if found is None or not limits.hold(found.bill):
            return False
        best = nearer(best, found)
        return True

    output = request.ranges[request.graph.output]
    size = float(np.max(output.magnitude)) or 1.0
    asked = min(size, known)
    refused = 0.0
    while asked > SMALLEST * size:
        if not met(asked):
            refused = asked
            break
        assert best is not None
        asked = min(asked, best.certificate.error) / 10.0
    if best is None or refused == 0.0:
        return best
    while best.certificate.error > CLOSE * refused:
        asked = math.sqrt(best.certificate.error * refused)
        if not met(asked):
            refused = asked
    return best
