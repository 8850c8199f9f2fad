"""The smallest error that can be met, and the model that meets it.

A search for a model within an error does not tell how far off it was. So look for the error itself: from far below the
rounding of the outputs upwards until a model is certified, then by halves for as long as models are. Nothing here
depends on the error that was asked for: whoever asks for the error that is found gets this very model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.attempts.meet import Met, Request, Seen
from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.core.rounding import PRECISIONS
from headsmith.plan.native_fits import FINEST, Failed, UnfittableError

START = 4.0
"""In units of the rounding of the largest output: no smaller error is tried."""
COARSEST, STRIDE, ROUNDS = 1e-2, 30.0, 12
LARGE = 0.25
"""In units of the largest output: what is tried where the smallest errors lead to no model at all."""


@dataclass(frozen=True)
class Way:
    """One way to a model: a recipe, or one variant of it. `run` raises one of REFUSALS where it finds none. With
    `circuits`, some nodes become ReLU circuits, whose size depends on the error; else all heads are as accurate as
    rounding lets them be, whatever the error."""

    run: Callable[[Request], Met]
    circuits: bool


REFUSALS = (UnfittableError, UnreachableError, TargetError, DomainError)


def smallest_met(request: Request, ways: Sequence[Way], best: Met | None = None) -> Met | None:
    """The model of the smallest error that these ways find, to a factor of two, or `best`; None if there is none.

    Circuits are only tried for errors of FINEST and more.
    """
    for way in ways:
        best = _with_circuits(request, way, best) if way.circuits else _without(request, way, best)
    return best


def size_of_outputs(request: Request) -> float:
    """The largest output."""
    return float(np.max(request.found[request.graph.output].magnitude)) or 1.0


def _without(request: Request, way: Way, best: Met | None) -> Met | None:
    """All heads as accurate as can be: one model is as good as any. Where their scores are beyond what a format holds,
    the model is the one of a large error."""
    size = size_of_outputs(request)
    for error in (START * PRECISIONS[request.dtype].unit_roundoff * size, LARGE * size):
        met, seen = _tried(request, way, error)
        best = _better(best, met or seen)
        if best is not None:
            break
    return best


def _with_circuits(request: Request, way: Way, best: Met | None) -> Met | None:
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
        met, seen = _tried(request, way, error)
        best = _better(best, met or seen)
        met_one = math.inf if best is None else best.certificate.error
        refused_one = error if met is None else refused_one
        if refused_one > size:
            break
    return best


def _tried(request: Request, way: Way, error: float) -> tuple[Met | None, Met | None]:
    """What this way finds within the error, and the best that it certified whatever its error."""
    asked = replace(request, error=error, accurate=True, seen=Seen(max_layers=request.max_layers), failed=Failed())
    asked.tell("looking for the smallest error that can be met")
    try:
        met = way.run(asked)
    except REFUSALS:
        return None, asked.seen.best
    if request.max_layers is not None and len(met.transformer.layers) > request.max_layers:
        return None, asked.seen.best
    return met, asked.seen.best


def _better(one: Met | None, other: Met | None) -> Met | None:
    return min((met for met in (one, other) if met is not None), key=lambda met: met.certificate.error, default=None)


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
