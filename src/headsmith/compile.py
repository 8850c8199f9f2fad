"""The compiler, on one page: target -> source graph -> transformer -> certificate -> bill.

    read      what is wanted, exactly: a graph, a domain, where every node can lie    reading.py, source/
    search    table heads (lower/native.py), ReLU circuits (lower/plan.py, circuits/),
              ramps or pieces for all non-linear nodes; of the recipes the cheapest   lower/recipes.py
    lower     registers and heads, then scales                                        lower/lower.py, lower/budget.py
    prove     why the model is right, step by step                                    lower/prove.py, search/
    check     what the kernel finds the proof to prove: the certificate               kernel/
    apart     how far a network is from what it approximates, where that is said      lower/approximates.py
    bill      what the model costs                                                    transformer/bill.py

Only the kernel is trusted, and it knows nothing of all the others. `lower/meet.py` repeats search, lower, prove and
check until the certificate is within the asked error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.rounding import Dtype
from headsmith.lower.approximates import apart, meet_apart
from headsmith.lower.meet import Met, Request
from headsmith.lower.recipes import as_cost, meet
from headsmith.model import Compiled
from headsmith.progress import Shown, shown
from headsmith.reading import Target, paired, read
from headsmith.transformer.bill import bill

RECIPES = ("auto", "native", "relu", "ramp", "maxout")


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
    progress: Shown = None,
) -> Compiled:
    """Compile `target` into a softmax transformer that is provably within `error` of it everywhere on `domain`.

    `target` is a formula ("x*y + sin(z)"), a list of formulas (several outputs), a Python function of traced
    values, or a Network. `recipe` "relu" makes every operation a ReLU circuit and every gate a head, "native" takes
    table heads, "ramp" and "maxout" their own kinds of heads, "auto" the cheapest of all;
    `cost` weighs layers, heads, reference_tokens, max_weight (default: in that order). `max_layers` limits the depth.
    `domain` is (low, high) for every input, a sequence of such pairs, or {"name": (low, high), ...}. `tokens` is how
    many data tokens one sequence may hold. With `approximates`, the target is a network that was made to be close to
    that function, and the certificate is about the function: its part `approximation` holds how far the network is from
    it, which is proven as well, and the model gets the rest of the error. `progress` is True for a bar on standard
    error, False for none, None (the default) for a bar where standard error is a terminal, or a function that is called
    with what is being done (a text) and how much of that is done (from 0 to 1).

    Raises UnreachableError where the error cannot be met: its `smallest` is an error that compiles when asked for, and
    `part` the part of the certificate that blocks.
    """
    if recipe not in RECIPES:
        raise TargetError(f"unknown recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    order = as_cost(cost)
    with shown(progress) as report, np.errstate(over="ignore", invalid="ignore"):
        if approximates is None:
            request = read(target, domain, error, tokens, dtype, max_layers, report)
            return compiled_of(request, meet(request, recipe, order))
        network, wanted, box = paired(target, approximates, domain)
        request = read(network, box, error, tokens, dtype, max_layers, report)
        met = meet_apart(request, apart(request, wanted), lambda asked: meet(asked, recipe, order))
    return replace(compiled_of(request, met), approximates=wanted)


def compiled_of(request: Request, met: Met) -> Compiled:
    """The certified model with its target and its bill."""
    billed = bill(met.transformer, met.certificate.max_score)
    parts = (request.graph, met.choices, request.box, met.transformer, met.certificate, billed, met.fusion)
    return Compiled(*parts, met.proof)
