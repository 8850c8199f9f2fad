"""Plan, lower, certify, and again until the certificate is within the asked error.

The approximation part is fixed by the circuits, and fewer gates want a large share of the error for it. What rounding
and leak take is only known once a model is certified. So: plan with a share, choose scales for what is left, certify;
if that does not fit, leave more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from headsmith.certify.certificate import Certificate
from headsmith.certify.kernel import Arrangement, certify
from headsmith.certify.pieces import PieceFlow, approximate_pieces
from headsmith.certify.table_bounds import Progress
from headsmith.circuits.assemble import Choice
from headsmith.circuits.pieces import Pieces, tokens_for
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, HeadsmithError, TargetError, ThinMarginError, UnreachableError
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import PRECISIONS, Dtype
from headsmith.lower.budget import softmax_part, with_softmax_budget
from headsmith.lower.lower import lower
from headsmith.lower.native import native_plan
from headsmith.lower.plan import Planned, plan
from headsmith.lower.ramp_plan import with_ramps
from headsmith.source.fuse import Fusion, fuse
from headsmith.source.graph import Attend, Graph, Pool
from headsmith.source.ranges import ranges
from headsmith.source.sensitivity import slopes_on
from headsmith.transformer.ir import Transformer

ATTEMPTS = ((0.998, 8.0), (0.998, 128.0), (0.9, 128.0), (0.5, 128.0))
"""How much of the error the approximation part may take, and how much room the margins leave, tried in this order."""


@dataclass(frozen=True, eq=False)
class Met:
    """A certified model, with what rebuilds its circuit: how the target was fused, and the choices for its nodes."""

    fusion: Arrangement
    choices: Mapping[int, Choice]
    transformer: Transformer
    certificate: Certificate


@dataclass(frozen=True, eq=False)
class Request:
    """What is wanted of a model: target and domain, the ranges of all nodes, the error, and limits."""

    graph: Graph
    box: Box
    found: Sequence[Interval]
    error: float
    tokens: int
    dtype: Dtype
    max_layers: int | None = None
    value_limit: float = math.inf
    progress: Progress | None = None

    @property
    def inputs(self) -> Array:
        """How far the inputs are rounded."""
        rounding = 0.0 if self.dtype == "float64" else PRECISIONS[self.dtype].unit_roundoff
        return np.asarray(self.found[0].magnitude * rounding)


def meet_with_gates(request: Request) -> Met:
    """Every non-linear node a ReLU circuit, with as few gates as the search finds; or UnreachableError."""

    def planned(share: float, room: float) -> Planned:
        return plan(request.graph, request.found, request.error, share, request.inputs, room, request.max_layers)

    return _attempts(request, None, planned)


def meet_with_ramps(request: Request) -> Met:
    """ReLU circuits whose gates are ramp heads: half of the error for the circuits, and half for the interpolation."""

    def planned(share: float, room: float) -> Planned:
        found = plan(request.graph, request.found, request.error, 0.5 * share, request.inputs, room, request.max_layers)
        return with_ramps(found, share * request.error - found.approximation)

    return _attempts(request, None, planned)


def meet_with_pieces(request: Request) -> Met:
    """One token for each affine piece of a network of maxima: attention takes the maximum, nothing is approximated."""

    def planned(share: float, room: float) -> Planned:
        laid, circuit, approximation = approximate_pieces(request.graph, request.box)
        slopes = slopes_on(circuit, approximation.ranges)
        gains = PieceFlow(circuit, slopes, approximation.shortcuts, laid).gains()
        return Planned({}, circuit, approximation.ranges, gains, 0.0, 0)

    tokens = tokens_for(request.graph)
    if request.tokens not in (1, tokens):
        raise TargetError(f"recipe 'maxout' has one token for each piece, {tokens} here; leave tokens out")
    return _attempts(replace(request, tokens=tokens), Pieces(), planned)


def meet_with_tables(request: Request, fusion: Fusion | None) -> Met:
    """Table heads for the non-linear nodes of the fused target. Raises UnfittableError where there are none."""
    fused = request.graph if fusion is None else fuse(request.graph, fusion)
    found = request.found if fusion is None else ranges(fused, request.box)
    precision = PRECISIONS[request.dtype]

    def planned(share: float, room: float) -> Planned:
        limit = share * request.error
        return native_plan(
            fused, found, limit, request.inputs, room, precision, request.value_limit, progress=request.progress
        )

    return _attempts(request, fusion, planned)


def _attempts(request: Request, fusion: Arrangement, planner: Callable[[float, float], Planned]) -> Met:
    """The first attempt whose certificate is within the error."""
    error = request.error
    refusal: HeadsmithError | None = None
    for share, room in ATTEMPTS:
        planned = planner(share, room)
        skeleton = lower(
            planned.circuit, planned.ranges, tokens=request.tokens, dtype=request.dtype, tables=planned.tables
        )
        try:
            found = _scaled(request, fusion, planned, skeleton, last=(share, room) == ATTEMPTS[-1])
            return Met(fusion, planned.choices, *found)
        except (UnreachableError, ThinMarginError) as problem:
            refusal = problem
        if planned.approximation == 0.0 and not planned.tables:
            break
    assert refusal is not None
    if isinstance(refusal, ThinMarginError):
        raise UnreachableError(f"error {error:.3g} cannot be certified: {refusal}", part="rounding", smallest=math.inf)
    raise refusal


def _sizes(planned: Planned) -> dict[int, float]:
    """What is read where maxima are taken over tokens, and the scores of attention, with some room."""
    found = {}
    for number, node in enumerate(planned.circuit.nodes):
        if isinstance(node, Pool):
            found[number] = 1.05 * float(np.max(planned.ranges[node.argument].magnitude, initial=0.0))
        elif isinstance(node, Attend):
            found[number] = 1.05 * float(planned.ranges[node.queries].magnitude @ planned.ranges[node.keys].magnitude)
    return found


def _scaled(
    request: Request, fusion: Arrangement, planned: Planned, skeleton: Transformer, last: bool
) -> tuple[Transformer, Certificate]:
    """Spend on softmax what the other parts leave over: measure them once, then choose the scales.

    Raises UnreachableError; the `last` time, and for exact circuits, with the smallest error that can be met.
    """
    error = request.error
    sizes = _sizes(planned)
    refusals: list[CertificateError] = []

    def attempt(budget: float) -> tuple[Transformer, Certificate] | None:
        try:
            transformer = with_softmax_budget(skeleton, planned.gains, budget, 1e-6 * budget, sizes)
            proof = certify(
                request.graph, planned.choices, request.box, transformer, fusion=fusion, progress=request.progress
            )
            return transformer, proof
        except ThinMarginError:
            raise
        except CertificateError as refusal:
            refusals.append(refusal)
            return None

    budget = error - planned.approximation
    soft = softmax_part(skeleton, planned.gains) > 0.0
    for turn in range(6):
        try:
            found = attempt(budget)
        except ThinMarginError:
            # Margins do not foresee all that soft gates and maxima do before: make them harder.
            if not soft or turn >= 4:
                raise
            budget /= 8.0
            continue
        if found is None:
            break
        if found[1].error <= error:
            return found
        rest = found[1].error - found[1].parts["softmax"]
        # Rounded scores make a maximum over tokens err a little more than its budget.
        strain = max(found[1].parts["softmax"] / budget, 1.0)
        left = (error - rest) / strain * (1.0 - 1e-9) - 1e-6 * rest
        if not 0.0 < left < budget:
            break
        budget = left
    if not last and planned.approximation > 0.0:
        raise UnreachableError(
            f"error {error:.3g} cannot be met with these circuits", part="rounding", smallest=math.inf
        )
    # Larger scales make the softmax part smaller and the scores' rounding larger: look for the best of both.
    unit = softmax_part(skeleton, planned.gains) or error
    tries = []
    for exponent in range(0, 20, 2):
        with suppress(ThinMarginError):
            found = attempt(unit * 10.0**-exponent)
            tries += [found] if found is not None else []
    if not tries:
        why = refusals[-1] if refusals else "errors before a head exceed the margin of its proof"
        raise UnreachableError(f"error {error:.3g} cannot be certified: {why}", part="rounding", smallest=math.inf)
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
