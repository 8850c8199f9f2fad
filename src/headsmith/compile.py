"""The compiler, on one page: target -> source graph -> transformer -> certificate -> bill.

    read        what is wanted, exactly: a graph, a domain, where every node can lie    plan/reading.py
    recipes     table heads, ReLU circuits, ramps, pieces: which ways there are         plan/recipes.py
    design      what stands for each node, with its share of the error                  plan/native.py, design.py ...
    lower       registers and banks of heads, then the scales of their scores           lower/lower.py, lower/scales.py
    prove       why the model is right, step by step                                    prove/prove.py
    check       what the kernel finds the proof to prove: the certificate               kernel/
    bill        what the model costs                                                    transformer/bill.py

`compile` reads the target and hands it to `best_model`, where recipes compete. For one recipe, `attempted` goes through
the POLICIES: each leaves more of the error to rounding than the one before. A design is laid out (`laid_out`), and its
scales are chosen (`scaled`) until the certificate is within the error. Every step returns a value; only the kernel is
trusted, and it knows nothing of all the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.errors import (
    REFUSALS,
    CertificateError,
    MissingHeadError,
    ThinMarginError,
    UnfittableError,
    UnreachableError,
)
from headsmith.core.progress import Shown, shown
from headsmith.core.rounding import Dtype
from headsmith.language.builder import masks
from headsmith.lower.lower import Setting, lower
from headsmith.lower.scales import (
    NONE,
    Demand,
    Relief,
    demand_of,
    enlarged,
    in_other_units,
    relief_of,
    sizes_read,
    with_softmax_budget,
)
from headsmith.lower.split import less_rounded
from headsmith.model import Compiled
from headsmith.plan.approximation import Design
from headsmith.plan.evidence.norms import ANY_WIDTH, USUAL, Effort
from headsmith.plan.native_fits import FINEST
from headsmith.plan.reading import Target, multiplied, paired, read, refuse_mask, sees_itself_alone, with_attention
from headsmith.plan.recipes import (
    Recipe,
    designed,
    may_win,
    other_exits,
    other_recipes,
    prepared,
    rivals,
    table_recipes,
)
from headsmith.plan.request import Met, Outcome, Policy, Request, nearer
from headsmith.plan.smallest import nothing_found, refused, size_of_outputs, smallest_met, with_remedy
from headsmith.plan.tables import GateHead
from headsmith.prove.apart import apart, meet_apart
from headsmith.prove.prove import Draft, Wanted, certified, drafted
from headsmith.transformer.bill import Cost, as_cost
from headsmith.transformer.heads.attentions import WITHOUT_SINK, AttentionKind, MaskKind
from headsmith.transformer.ir import Transformer
from headsmith.transformer.stored import numbered

POLICIES = (
    Policy(share=0.998, room=8.0, caution=1.0),
    Policy(share=0.998, room=8.0, caution=64.0),
    Policy(share=0.998, room=8.0, caution=math.inf),
    Policy(share=0.998, room=128.0, caution=math.inf),
    Policy(share=0.9, room=128.0, caution=math.inf),
    Policy(share=0.5, room=128.0, caution=math.inf),
)
"""How the error is shared out, tried in this order: softmax scales and margins cost no heads, so they live on little at
first; what rounding and leak take is only known once a model is certified."""

ACCURATE = (Policy(share=0.9, room=128.0, caution=math.inf),)
"""What an accurate search tries."""

MOST_EXITS = 4
"""How often a recipe is tried anew without an expression that no head was found for."""

TURNS, THIN_TURNS = 6, 4
"""How often the scales of a model are chosen anew; in how many of these turns harder gates may mend thin margins."""


def compile(
    target: Target,
    domain: Any = None,
    error: float = 1e-6,
    *,
    recipe: str = "auto",
    tokens: int = 1,
    dtype: Dtype = "float64",
    max_layers: int | None = None,
    cost: Mapping[str, float] | None = None,
    approximates: Target | None = None,
    attention: AttentionKind = "softmax",
    mask: MaskKind | None = None,
    progress: Shown = None,
) -> Compiled:
    """Compile `target` into a softmax transformer that is provably within `error` of it everywhere on `domain`.

    `target` is a formula ("x*y + sin(z)"), a list of formulas (several outputs), a Python function of traced
    values, or a Network. `recipe` "relu" makes every operation a ReLU circuit and every gate a head, "native" takes
    table heads, "ramp" and "maxout" their own kinds of heads, "auto" the cheapest of all these; "swiglu" is no longer
    attention alone: products and gates are neurons of SwiGLU blocks, as a Llama has them;
    `cost` weighs layers, heads, reference_tokens, max_weight (default: in that order). `max_layers` limits the depth.
    `domain` is (low, high) for every input, a sequence of such pairs, or {"name": (low, high), ...}. `tokens` is how
    many data tokens one sequence may hold. With `approximates`, the target is a network that was made to be close to
    that function, and the certificate is about the function: its part `approximation` holds how far the network is from
    it, which is proven as well, and the model gets the rest of the error.

    `attention` is the kind of all heads (heads/attentions.py). Under "hardmax", "sparsemax", "sigmoid", "relu" and
    "elu+1" every operation becomes a ReLU circuit, under "linear" polynomials are products. Under the last two, data
    tokens see themselves and the reference tokens alone, which is the mask "self+prefix". `mask` says under which mask
    the model must run, "full", "causal" or "self+prefix"; under the last one sequences may be of any length, and leak
    nothing.

    `progress` is True for a bar on standard error, False for none, None (the default) for a bar where standard error is
    a terminal, or a function that is called with what is being done (a text) and how much of that is done (0 to 1).

    Raises UnreachableError where the error cannot be met: its `smallest` is an error that compiles when asked for, and
    `part` the part of the certificate that blocks.
    """
    order, alone = as_cost(cost), sees_itself_alone(recipe, dtype, attention, mask, tokens)
    with shown(progress) as report, np.errstate(over="ignore", invalid="ignore"):
        network, wanted, box = (target, None, domain) if approximates is None else paired(target, approximates, domain)
        request = read(network, box, error, 1 if alone else tokens, dtype, max_layers, report)
        request = with_attention(request, attention, alone and not (mask is None and masks(request.graph)))
        request = multiplied(request) if recipe == "swiglu" or attention == "linear" else request
        heads = recipe if attention == "softmax" else "relu"
        if wanted is None:
            met = best_model(request, heads, order)
        else:
            request, distance = apart(request, wanted)
            met = meet_apart(request, distance, lambda rest: best_model(rest, heads, order))
    refuse_mask(mask, met.certificate.masks)
    return replace(compiled_of(request, met), approximates=wanted)


def compiled_of(request: Request, met: Met) -> Compiled:
    """The certified model with its target and its bill."""
    parts = (request.graph, request.box, met.transformer, met.certificate, met.bill, met.proof)
    return Compiled(*parts, labels=met.labels)


# Recipes compete ------------------------------------------------------------------------------------------------------


def best_model(request: Request, recipe: str = "auto", cost: Cost | None = None) -> Met:
    """The cheapest certified model of a recipe, or UnreachableError with the smallest error that can be met.

    Where the usual search fails, models that spend tokens on accuracy come next, and ReLU circuits after them.
    """
    request = replace(request, neurons=recipe == "swiglu")
    tables, others = table_recipes(request, recipe), other_recipes(request, recipe)
    competing = [*tables, *(rivals(request, cost or Cost()) if recipe == "auto" else ())]
    cheapest = cheapest_of(request, competing, cost or Cost())
    if cheapest.met is not None:
        return cheapest.met
    refusal, nearest = cheapest.refusal, smallest_met(request, tables, met_by)
    if nearest is not None and nearest.certificate.error <= request.error:
        return nearest
    for other in others if tables or recipe != "auto" else ():
        # Errors of half the nearest, or less, are asked for below.
        near = nearest is not None and request.error >= 0.5 * nearest.certificate.error
        if nearest is None or (near and request.error >= FINEST * size_of_outputs(request)):
            outcome = met_by(request, other)
            if outcome.met is not None and request.allows(outcome.met.transformer):
                return outcome.met
            refusal = refusal or outcome.refusal
    nearest = smallest_met(request, others, met_by, nearest)
    if nearest is not None and nearest.certificate.error <= request.error:
        return nearest
    if nearest is None and refusal is not None and not isinstance(refusal, UnreachableError | UnfittableError):
        raise refusal  # not the error, but the target
    raise refused(request, nearest, refusal or nothing_found(request))


def cheapest_of(request: Request, recipes: Sequence[Recipe], cost: Cost) -> Outcome:
    """The cheapest model of these recipes, tried in their order: a circuit wins where it costs the same as a table."""
    best, refusal = None, None
    tables = any(recipe.name == "native" for recipe in recipes)
    for recipe in recipes:
        if not may_win(request, recipe, cost, best, tables):
            continue
        outcome = met_by(request, recipe)
        refusal = refusal or outcome.refusal
        if outcome.met is None or not request.allows(outcome.met.transformer):
            continue
        known, found = (math.inf,) if best is None else cost.of(best.bill), cost.of(outcome.met.bill)
        if found < known or (found == known and recipe.name == "relu"):
            best = outcome.met
    return Outcome(met=best, refusal=refusal)


def met_by(request: Request, recipe: Recipe) -> Outcome:
    """A model of one recipe within the error; where no head is found for an expression, that is taken apart again."""
    outcome = attempted(request, recipe)
    for _ in range(MOST_EXITS):
        other = other_exits(request, recipe, outcome.refusal)
        if other is None:
            break
        recipe, outcome = other, attempted(request, other).after(outcome)
    return outcome


# One recipe: design, lower, prove, check, and again ------------------------------------------------------------------


def attempted(request: Request, recipe: Recipe) -> Outcome:
    """The model of the first policy whose certificate is within the error."""
    outcome, earlier, gated = Outcome(), None, True
    try:
        request = prepared(request, recipe)
        for policy in ACCURATE if request.accurate else POLICIES:
            if earlier is not None and not gated and policy == replace(earlier, caution=policy.caution):
                continue  # caution is about multiplying heads alone
            design = designed(request, recipe, policy)
            earlier, gated = policy, any(isinstance(head, GateHead) for head in design.tables.values())
            request.tell("laying out heads and proving the model")
            outcome = laid_out(request, recipe, design).after(outcome)
            if outcome.met is not None:
                return outcome
            if design.approximation == 0.0 and not design.tables:
                break
    except REFUSALS as problem:
        return replace(outcome, refusal=problem)
    return replace(outcome, refusal=with_remedy(request, outcome.refusal))


def laid_out(request: Request, recipe: Recipe, design: Design) -> Outcome:
    """A design as a model; with a head for every gate, where the kernel knows less of some range than the search."""
    outcome = in_registers(request, recipe, design)
    if isinstance(outcome.refusal, MissingHeadError):
        outcome = in_registers(request, recipe, design.undecided).after(outcome)
        if isinstance(outcome.refusal, MissingHeadError):
            raise outcome.refusal
    return outcome


def in_registers(request: Request, recipe: Recipe, design: Design) -> Outcome:
    """A design as a model, laid out so that it rounds less where rounding is what blocks."""
    setting = Setting(request.tokens, request.dtype, request.attention, request.alone, request.neurons)
    skeleton = lower(design.circuit, design.ranges, design.tables, setting)
    outcome = scaled(Laid(request, recipe, design, skeleton))
    if isinstance(outcome.refusal, UnreachableError):
        # Registers that are cleared round more, and so do long sums.
        for options in less_rounded(skeleton):
            other = lower(design.circuit, design.ranges, design.tables, setting, **options)
            if len(other.registers) > len(skeleton.registers) or other.sizes != skeleton.sizes:
                outcome = replace(scaled(Laid(request, recipe, design, other)).after(outcome), refusal=outcome.refusal)
                if outcome.met is not None:
                    break
    return outcome


@dataclass(frozen=True, eq=False)
class Laid:
    """A design whose heads and registers are laid out in a `skeleton`: all but the scales of scores. `effort` is what
    the proof of wide layers may cost (plan/evidence/norms.py)."""

    request: Request
    recipe: Recipe
    design: Design
    skeleton: Transformer
    effort: Effort = USUAL

    @cached_property
    def demand(self) -> Demand:
        """What the model asks of its scales."""
        return demand_of(self.skeleton, self.design.gains)


@dataclass(frozen=True, eq=False)
class Attempt:
    """Where the search for scales stands: what softmax may cost (`budget`); what the kernel has taught of `sizes` and
    `relief`, and its `draft` of the proof, which does for all scales; the model that was certified, or the `refusal`;
    and the `nearest` of all models so far."""

    budget: float
    sizes: Mapping[int, float]
    relief: Relief = NONE
    draft: Draft | None = None
    met: Met | None = None
    refusal: CertificateError | None = None
    nearest: Met | None = None

    @property
    def error(self) -> float:
        """The certified error; infinite where nothing was certified."""
        return math.inf if self.met is None else self.met.certificate.error


def scaled(laid: Laid) -> Outcome:
    """Spend on softmax what the other parts leave over: measure them once, then choose the scales.

    An accurate search also looks for the scales that leave the smallest error of all. Very wide layers do without norms
    unless the error cannot be met so.
    """
    request, attempt = laid.request, first_attempt(laid)
    for turn in range(TURNS):
        attempt = proven(laid, attempt)
        if attempt.error <= request.error:
            return Outcome(met=lightest(laid, attempt))
        budget = next_budget(laid, attempt, turn)
        if budget is None:
            break
        attempt = replace(attempt, budget=budget)
    if attempt.met is None and isinstance(attempt.refusal, ThinMarginError | MissingHeadError):
        return Outcome(nearest=attempt.nearest, refusal=attempt.refusal)
    if request.accurate and laid.demand.softmax > 0.0:
        attempt = best_of_many(laid, attempt)
        if attempt.error <= request.error:
            return Outcome(met=lightest(laid, attempt))
    if any(layer.heads > laid.effort.widest for layer in laid.skeleton.layers) and laid.effort != ANY_WIDTH:
        return scaled(replace(laid, effort=ANY_WIDTH)).after(Outcome(nearest=attempt.nearest))
    why = attempt.refusal or f"the other parts leave nothing of {request.error:.3g}"
    text = f"error {request.error:.3g} cannot be certified: {why}"
    return Outcome(nearest=attempt.nearest, refusal=UnreachableError(text, part="rounding", smallest=math.inf))


def first_attempt(laid: Laid) -> Attempt:
    """What is planned is proven, up to rounding: a millionth is left for that. An accurate search may ask for less than
    its heads can do: no reason for scales without end."""
    error, approximation = laid.request.error, laid.design.approximation
    soft_gates = laid.request.attention in WITHOUT_SINK and laid.request.tokens > 1
    return Attempt(
        max((1.0 - 1e-6) * (error - approximation), 0.01 * approximation), sizes_read(laid.design, soft_gates)
    )


def proven(laid: Laid, attempt: Attempt) -> Attempt:
    """The attempt with scales for its budget, and what the kernel says of them: a certified model, or why it refuses.
    The proof is written once; where it teaches better scales, these are taken at once."""
    request, design = laid.request, laid.design
    try:
        transformer, draft = with_scales(laid, attempt), attempt.draft
        if draft is not None:
            transformer = numbered(transformer, draft.places)
            certificate = certified(draft, transformer)
        else:
            model = request.graph, design.choices, laid.recipe.arrangement, transformer
            draft = drafted(Wanted(*model, request.error, laid.effort, design.assembly), request.box)
            before, attempt = attempt, taught(laid, attempt, draft)
            if attempt.relief is NONE and attempt.sizes == before.sizes:
                transformer, certificate = numbered(transformer, draft.places), certified(draft)
            else:
                draft = draft.without_weights()
                transformer = numbered(with_scales(laid, attempt), draft.places)
                certificate = certified(draft, transformer)
    except CertificateError as refusal:
        return replace(attempt, met=None, refusal=refusal)
    met = Met(transformer, certificate, draft.proof, draft.labels)
    nearest = nearer(attempt.nearest, met) if request.allows(transformer) else attempt.nearest
    return replace(attempt, met=met, nearest=nearest)


def taught(laid: Laid, attempt: Attempt, draft: Draft) -> Attempt:
    """The attempt with its draft, and with what that teaches of the scales of the same model."""
    relief, sizes = relief_of(draft.facts, laid.skeleton), enlarged(attempt.sizes, draft.facts, laid.skeleton)
    return replace(attempt, relief=relief, sizes=sizes, draft=draft.without_weights())


def with_scales(laid: Laid, attempt: Attempt) -> Transformer:
    """The model whose softmax part is within the budget of the attempt, and whose leak is next to nothing."""
    leak = 1e-6 * attempt.budget
    return with_softmax_budget(laid.skeleton, laid.demand, attempt.budget, leak, attempt.sizes, attempt.relief)


def next_budget(laid: Laid, attempt: Attempt, turn: int) -> float | None:
    """What softmax may cost in the next turn: what the other parts left over in this one; None if that is nothing."""
    if attempt.met is None:
        # Margins do not foresee all that soft gates and maxima do before: make them harder.
        thin = isinstance(attempt.refusal, ThinMarginError) and laid.demand.softmax > 0.0 and turn < THIN_TURNS
        return attempt.budget / 8.0 if thin else None
    softmax = attempt.met.certificate.parts["softmax"]
    rest = attempt.error - softmax
    # Rounded scores make a maximum over tokens err a little more than its budget. And scales are numbers of the format:
    # a budget that is hardly smaller may lead to the same ones, so each turn leaves more room.
    strain = max(softmax / attempt.budget, 1.0)
    left = (laid.request.error - rest) / strain * (1.0 - 1e-9 * 16.0**turn) - 1e-6 * rest
    return left if 0.0 < left < attempt.budget else None


def best_of_many(laid: Laid, attempt: Attempt) -> Attempt:
    """The attempt with the smallest error of many scales. Larger ones make the softmax part smaller and the rounding of
    scores larger, so the errors fall at first and then rise: look in large steps until they do, and in smaller ones
    round the best."""
    tried: dict[float, Attempt] = {}
    for exponent in map(float, range(0, 20, 2)):
        attempt = tried[exponent] = at_scale(laid, attempt, exponent)
        smallest = min(each.error for each in tried.values())
        if math.isfinite(smallest) and not attempt.error <= 4.0 * smallest:
            break
    for step in (1.0, 0.5):
        middle = min(tried, key=lambda exponent: tried[exponent].error)
        for exponent in (middle - step, middle + step):
            if exponent not in tried:
                attempt = tried[exponent] = at_scale(laid, attempt, exponent)
    best = min(tried.values(), key=lambda each: each.error)
    return replace(attempt, met=best.met)


def at_scale(laid: Laid, attempt: Attempt, exponent: float) -> Attempt:
    """The attempt at scales that are 10^exponent times those at which softmax could cost 1."""
    return proven(laid, replace(attempt, budget=laid.demand.softmax * 10.0**-exponent))


def lightest(laid: Laid, attempt: Attempt) -> Met:
    """The model that was certified, with smaller weights where these are proven as well."""
    assert attempt.met is not None
    assert attempt.draft is not None
    lighter = in_other_units(attempt.met.transformer)
    if lighter is not None:
        with suppress(CertificateError):
            certificate = certified(attempt.draft, lighter)
            if certificate.error <= laid.request.error:
                return replace(attempt.met, transformer=lighter, certificate=certificate)
    return attempt.met
