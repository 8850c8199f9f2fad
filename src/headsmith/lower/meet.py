"""Plan, lower, certify, and again until the certificate is within the asked error.

The approximation part is fixed by the circuits, and fewer gates want a large share of the error for it. What rounding
and leak take is only known once a model is certified. So: plan with a share, choose scales for what is left, certify;
if that does not fit, leave more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headsmith.certify.certificate import Certificate
from headsmith.certify.kernel import certify
from headsmith.core.errors import CertificateError, HeadsmithError, ThinMarginError, UnreachableError
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import PRECISIONS, Dtype
from headsmith.lower.budget import softmax_part, with_softmax_budget
from headsmith.lower.lower import lower
from headsmith.lower.plan import Planned, plan
from headsmith.source.graph import Graph
from headsmith.transformer.ir import Transformer

ATTEMPTS = ((0.998, 8.0), (0.998, 128.0), (0.9, 128.0), (0.5, 128.0))
"""How much of the error the approximation part may take, and how much room the margins leave, tried in this order."""


def meet(
    graph: Graph,
    box: Box,
    found: Sequence[Interval],
    error: float,
    tokens: int,
    dtype: Dtype,
    max_layers: int | None,
) -> tuple[Planned, Transformer, Certificate]:
    """The model with the fewest gates that is certified within `error`, or UnreachableError."""
    refusal: HeadsmithError | None = None
    inputs = found[0].magnitude * (0.0 if dtype == "float64" else PRECISIONS[dtype].unit_roundoff)
    for share, room in ATTEMPTS:
        planned = plan(graph, found, error, share, inputs, room, max_layers)
        skeleton = lower(planned.circuit, planned.ranges, tokens=tokens, dtype=dtype)
        try:
            return planned, *_scaled(graph, box, planned, skeleton, error, last=(share, room) == ATTEMPTS[-1])
        except (UnreachableError, ThinMarginError) as problem:
            refusal = problem
        if planned.approximation == 0.0:
            break
    assert refusal is not None
    if isinstance(refusal, ThinMarginError):
        raise UnreachableError(f"error {error:.3g} cannot be certified: {refusal}", part="rounding", smallest=math.inf)
    raise refusal


def _scaled(
    graph: Graph, box: Box, planned: Planned, skeleton: Transformer, error: float, last: bool
) -> tuple[Transformer, Certificate]:
    """Spend on softmax what the other parts leave over: measure them once, then choose the scales.

    Raises UnreachableError; the `last` time, and for exact circuits, with the smallest error that can be met.
    """
    refusals: list[CertificateError] = []

    def attempt(budget: float) -> tuple[Transformer, Certificate] | None:
        try:
            transformer = with_softmax_budget(skeleton, planned.gains, budget, leak=1e-6 * budget)
            return transformer, certify(graph, planned.choices, box, transformer)
        except ThinMarginError:
            raise
        except CertificateError as refusal:
            refusals.append(refusal)
            return None

    budget = error - planned.approximation
    for _ in range(4):
        found = attempt(budget)
        if found is None:
            break
        if found[1].error <= error:
            return found
        rest = found[1].error - found[1].parts["softmax"]
        left = (error - rest) * (1.0 - 1e-9) - 1e-6 * rest
        if not 0.0 < left < budget:
            break
        budget = left
    if not last and planned.approximation > 0.0:
        raise UnreachableError(
            f"error {error:.3g} cannot be met with these circuits", part="rounding", smallest=math.inf
        )
    # Larger scales make the softmax part smaller and the scores' rounding larger: look for the best of both.
    unit = softmax_part(skeleton, planned.gains)
    tries = [found for exponent in range(0, 20, 2) if (found := attempt(unit * 10.0**-exponent)) is not None]
    if not tries:
        raise UnreachableError(
            f"error {error:.3g} cannot be certified: {refusals[-1]}", part="rounding", smallest=math.inf
        )
    best = min(tries, key=lambda found: found[1].error)
    if best[1].error <= error:
        return best
    part = max(("approximation", "leak", "rounding"), key=lambda name: best[1].parts[name])
    smallest = best[1].error * (1.0 + 1e-6)
    raise UnreachableError(
        f"error {error:.3g} cannot be certified in {skeleton.dtype}: the {part} part blocks it. The smallest error "
        f"that can be met is {smallest:.3g}: ask for that, shrink the domain, or rescale the weights",
        part=part,
        smallest=smallest,
    )
