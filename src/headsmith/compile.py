"""The compiler, on one page: target -> source graph -> transformer -> certificate -> bill.

    read      what is wanted, exactly: a graph, a domain, where every node can lie    plan/reading.py, language/
    search    table heads (plan/native.py), ReLU circuits (plan/design.py, plan/circuits/),
              ramps or pieces for all non-linear nodes; of the recipes the cheapest   attempts/recipes.py
    lower     registers and heads, then scales                                        lower/lower.py, lower/scales.py
    prove     why the model is right, step by step                                    prove/prove.py, plan/evidence/
    check     what the kernel finds the proof to prove: the certificate               kernel/
    apart     how far a network is from what it approximates, where that is said      attempts/approximates.py
    bill      what the model costs                                                    transformer/bill.py

Only the kernel is trusted, and it knows nothing of all the others. `attempts/meet.py` repeats search, lower, prove and
check until the certificate is within the asked error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.attempts.approximates import apart, meet_apart
from headsmith.attempts.meet import Met, Request
from headsmith.attempts.recipes import as_cost, meet
from headsmith.core.errors import TargetError
from headsmith.core.progress import Shown, shown
from headsmith.core.rounding import HALVES, Dtype
from headsmith.language.builder import masks
from headsmith.language.graph import Attend, Graph, Move, Pool
from headsmith.model import Compiled
from headsmith.plan.reading import Target, multiplied, paired, read
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.attentions import (
    ATTENTIONS,
    BANKS,
    MASKS,
    NO_MIXING,
    NOT_AMONG,
    ONE_TOKEN,
    AttentionKind,
    MaskKind,
)

RECIPES = ("auto", "native", "relu", "ramp", "maxout", "swiglu")


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
    if recipe not in RECIPES:
        raise TargetError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    if recipe == "swiglu" and dtype in HALVES:
        raise TargetError(f"nothing is proven of neurons in {dtype}: recipe 'swiglu' is for float32 and float64")
    order, alone = as_cost(cost), asked_alone(attention, mask, tokens, recipe)
    with shown(progress) as report, np.errstate(over="ignore", invalid="ignore"):
        network, wanted, box = (target, None, domain) if approximates is None else paired(target, approximates, domain)
        request = read(network, box, error, 1 if alone else tokens, dtype, max_layers, report)
        refuse_mixing(attention, request.graph)
        request = replace(request, attention=attention, alone=alone and not (mask is None and masks(request.graph)))
        request = multiplied(request) if recipe == "swiglu" or attention == "linear" else request
        heads = recipe if attention == "softmax" else "relu"
        if wanted is None:
            met = meet(request, heads, order)
        else:
            request, known = apart(request, wanted)
            met = meet_apart(request, known, lambda asked: meet(asked, heads, order))
    if mask is not None and mask not in met.certificate.masks:
        proven = " and ".join(met.certificate.masks)
        raise TargetError(f"nothing can be proven of this model under a {mask} mask: it is proven under {proven}")
    return replace(compiled_of(request, met), approximates=wanted)


def asked_alone(attention: str, mask: str | None, tokens: int, recipe: str) -> bool:
    """Whether data tokens are to see themselves and reference tokens alone. TargetError where the options do not go
    together."""
    if attention not in ATTENTIONS or (mask is not None and mask not in MASKS):
        wrong, known = ("attention", ATTENTIONS) if attention not in ATTENTIONS else ("mask", MASKS)
        given = attention if wrong == "attention" else mask
        raise TargetError(f"unknown {wrong} {given!r}; choose one of {', '.join(known)}")
    if attention == "softmax":
        if mask == "self+prefix" and recipe == "maxout":
            raise TargetError("recipe 'maxout' has a token for each piece, which must see the others")
        return mask == "self+prefix"
    if recipe not in ("auto", "relu", "native" if attention == "linear" else "relu"):
        raise TargetError(f"recipe {recipe!r} is for softmax attention; under {attention} attention leave it out")
    if tokens > 1 and mask != "self+prefix" and attention in ONE_TOKEN:
        raise TargetError(
            f"{attention} attention is certified for data tokens that see themselves and the prefix alone "
            f"({NOT_AMONG[attention]}): with tokens={tokens}, ask hs.compile for mask='self+prefix'"
        )
    return tokens == 1 or mask == "self+prefix"


def refuse_mixing(attention: str, graph: Graph) -> None:
    """Raise TargetError where tokens take from each other what this attention does not give them."""
    known = BANKS.get(attention, {*NO_MIXING})
    for node in graph.nodes:
        wanted = [name for name, kind in (("attend", Attend), ("mean", Pool), ("move", Move)) if isinstance(node, kind)]
        if not known >= {*wanted}:
            raise TargetError(f"there is no head for what tokens take from each other here: {NO_MIXING[wanted[0]]}")


def compiled_of(request: Request, met: Met) -> Compiled:
    """The certified model with its target and its bill."""
    billed = bill(met.transformer, met.certificate.max_score)
    return Compiled(request.graph, request.box, met.transformer, met.certificate, billed, met.proof, labels=met.labels)
