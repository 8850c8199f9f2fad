"""The smallest error that can be met, and the model that meets it.

A search for a model within an error does not tell how far off it was. So look for the error itself: from far below the
rounding of the outputs upwards until a model is certified, then by halves for as long as models are. Nothing here
depends on the error that was asked for: whoever asks for the error that is found gets this very model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from headsmith.core.errors import HeadsmithError, ThinMarginError, UnreachableError
from headsmith.plan.native_fits import FINEST
from headsmith.plan.recipes import Recipe
from headsmith.plan.request import Failed, Met, Outcome, Request, nearer

START = 4.0
"""In units of the rounding of the largest output: no smaller error is tried."""
COARSEST, STRIDE, ROUNDS = 1e-2, 30.0, 12
LARGE = 0.25
"""In units of the largest output: what is tried where the smallest errors lead to no model at all."""


Meet = Callable[[Request, Recipe], Outcome]
"""What looks for a model of one recipe within the error of a request."""

Tried = Callable[[float], Outcome]
"""The same for one recipe, by the error."""


def smallest_met(request: Request, recipes: Sequence[Recipe], meet: Meet, best: Met | None = None) -> Met | None:
    """The model of the smallest error that these recipes lead to, to a factor of two, or `best`; None if there is none.

    Circuits are only tried for errors of FINEST and more.
    """
    for recipe in recipes:
        tried = partial(_tried, request, recipe, meet)
        best = _with_circuits(request, tried, best) if recipe.circuits else _without(request, tried, best)
    return best


def size_of_outputs(request: Request) -> float:
    """The largest output."""
    return float(np.max(request.ranges[request.graph.output].magnitude)) or 1.0


def _without(request: Request, tried: Tried, best: Met | None) -> Met | None:
    """All heads as accurate as can be: one model is as good as any. Where their scores are beyond what a format holds,
    the model is the one of a large error."""
    size = size_of_outputs(request)
    for error in (START * request.precision.unit_roundoff * size, LARGE * size):
        outcome = tried(error)
        best = nearer(best, outcome.met or outcome.nearest)
        if best is not None:
            break
    return best


def _with_circuits(request: Request, tried: Tried, best: Met | None) -> Met | None:
    """Smaller and smaller errors until one is refused; then those between that and the smallest that was met."""
    size = size_of_outputs(request)
    met_one, refused_one = (math.inf if best is None else best.certificate.error), 0.0
    known = best is not None
    for _ in range(ROUNDS):
        if met_one == 0.0 or met_one <= 2.0 * max(refused_one, FINEST * size):
            break
        # Where another way has met an error, half of it is the first that matters.
        stride = 2.0 if known else STRIDE
        error = COARSEST * size if math.isinf(met_one) else max(met_one / stride, FINEST * size)
        known = False
        if refused_one > 0.0:
            error = math.sqrt(met_one * refused_one) if math.isfinite(met_one) else STRIDE * refused_one
        outcome = tried(error)
        best = nearer(best, outcome.met or outcome.nearest)
        met_one = math.inf if best is None else best.certificate.error
        refused_one = error if outcome.met is None else refused_one
        if refused_one > size:
            break
    return best


def _tried(request: Request, recipe: Recipe, meet: Meet, error: float) -> Outcome:
    """What a recipe leads to within the error, with as many heads and tokens as small errors take."""
    asked = replace(request, error=error, accurate=True, failed=Failed())
    asked.tell("looking for the smallest error that can be met")
    outcome = meet(asked, recipe)
    deep = outcome.met is not None and not request.allows(outcome.met.transformer)
    return replace(outcome, met=None) if deep else outcome


def refused(request: Request, best: Met | None, why: Exception) -> UnreachableError:
    """The refusal: what blocks, and the smallest error that can be met."""
    dtype, error = request.dtype, request.error
    if best is None:
        return UnreachableError(str(why), part=getattr(why, "part", "approximation"), smallest=math.inf)
    part, smallest = blocking_part(best), rounded_up(best.certificate.error)
    if part in ("approximation", "softmax") and request.max_layers is None:
        return UnreachableError(
            f"error {error:.3g} was not met: the {part} part blocks it. The smallest error that is soon met is "
            f"{smallest:.3g}: ask for that, for another recipe or for a smaller domain. The proof of heads for much "
            "smaller errors takes minutes",
            part=part,
            smallest=smallest,
        )
    remedy = "dtype='float64', a smaller domain or smaller weights" if dtype != "float64" else "a smaller domain"
    if part == "approximation":
        remedy = "a smaller domain" if request.max_layers is None else "a smaller domain or more layers"
    return UnreachableError(
        f"error {error:.3g} cannot be certified in {dtype}: the {part} part blocks it. The smallest error that can be "
        f"met is {smallest:.3g}: ask for that, or help with {remedy}",
        part=part,
        smallest=smallest,
    )


def nothing_found(request: Request) -> UnreachableError:
    """The refusal where no way has led to any model."""
    limit = "" if request.max_layers is None else f" and {request.max_layers} layers"
    return UnreachableError(
        f"no heads were found within {request.error:.3g}{limit}: ask for a larger error, a smaller domain, or "
        "more layers",
        part="approximation",
        smallest=math.inf,
    )


def with_remedy(request: Request, refusal: HeadsmithError | None) -> HeadsmithError | None:
    """A refusal of the kernel that is about margins, as one that says what to ask for; others as they are."""
    if not isinstance(refusal, ThinMarginError):
        return refusal
    remedy = "another recipe or a smaller domain" + (", or dtype='float64'" if request.dtype != "float64" else "")
    why = f"error {request.error:.3g} cannot be certified: {refusal}. Ask for {remedy}"
    return UnreachableError(why, part="rounding", smallest=math.inf)


def blocking_part(best: Met) -> str:
    """What keeps the error from being smaller. Approximations get better with larger values, which round more: where
    rounding is a good part of the error, it is what blocks."""
    parts = best.certificate.parts
    if parts["rounding"] >= 0.1 * best.certificate.error:
        return "rounding"
    return max(("approximation", "softmax", "leak"), key=lambda name: parts[name])


def rounded_up(error: float) -> float:
    """The next number of three digits, so that the error that is printed is the error that is meant."""
    if error == 0.0:
        return 0.0
    exponent = math.floor(math.log10(error)) - 2
    digits = math.ceil(error / 10.0**exponent)
    while float(f"{digits}e{exponent}") < error:
        digits += 1
    return float(f"{digits}e{exponent}")
