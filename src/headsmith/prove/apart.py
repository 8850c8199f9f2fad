"""A network with the function that it was made for: how far it is from that, and how much of the error that leaves.

    |model - function| <= |model - network| + |network - function|

The second part is found on cells (plan/evidence/approximates.py), and the kernel proves it from them. The model then
gets what is left of the asked error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, UnreachableError
from headsmith.core.intervals import Box
from headsmith.language.graph import Graph
from headsmith.language.stored import Proof
from headsmith.plan.analysis.ranges import linear_ranges, ranges
from headsmith.plan.compositions import Compared, compare
from headsmith.plan.request import Met, Request
from headsmith.plan.smallest import rounded_up
from headsmith.prove.prove import proved_again, refusals

LEAST = 1e-6
"""The least share of the error that a model is looked for with."""


@dataclass(frozen=True, eq=False)
class Distance:
    """What a network approximates, the cells that show how well, and the bound that they give."""

    wanted: Graph
    compared: Compared


def apart(request: Request, wanted: Graph) -> tuple[Request, Distance]:
    """How far the target of a request, a network, is from what it approximates; and the request, of the network with
    its values between as nodes of their own, where it is compared piece by piece."""
    with refusals():
        compared = compare(request.graph, wanted, request.box, request.error, request.tell)
    network = compared.network
    if network is not request.graph:
        known = linear_ranges(network, request.box, ranges(network, request.box))
        request = replace(request, graph=network, ranges=known)
    return request, Distance(wanted, compared)


def meet_apart(request: Request, distance: Distance, meet: Callable[[Request], Met]) -> Met:
    """A model within the error of what the network approximates. Raises UnreachableError where the network itself is
    too far from that, or what it leaves of the error is too little."""
    bound, error = distance.compared.bound, request.error
    if not math.isfinite(bound):
        raise CertificateError(
            "no bound was found of how far the network is from what it approximates: that may be undefined, or "
            "unbounded, somewhere on the domain; shrink the domain"
        )
    left = (error - bound * (1.0 + 1e-8)) * (1.0 - 1e-8)
    if left < LEAST * error:
        raise _refused(request, distance, meet)
    try:
        met = meet(replace(request, error=left))
    except UnreachableError as problem:
        smallest = rounded_up((problem.smallest + bound) * (1.0 + 1e-6))
        raise UnreachableError(
            f"the network is within {bound:.3g} of what it approximates, which leaves {left:.3g} of {error:.3g}: "
            f"{problem}",
            part=problem.part,
            smallest=smallest,
        ) from None
    proof = Proof({**met.proof.stored, **distance.compared.stored}, {**met.proof.tensors, **distance.compared.tensors})
    parts = request.graph, request.box, met.transformer, proof
    return replace(met, proof=proof, certificate=proved_again(*parts, distance.wanted))


def _refused(request: Request, distance: Distance, meet: Callable[[Request], Met]) -> UnreachableError:
    """Why the network cannot be within the error: how far it is off, where, and what can be asked for."""
    compared, smallest = distance.compared, math.inf
    try:
        meet(replace(request, error=compared.bound))
        smallest = rounded_up(2.01 * compared.bound)
    except UnreachableError as problem:
        smallest = rounded_up((problem.smallest + compared.bound) * (1.0 + 1e-6))
    return UnreachableError(
        f"the network is {compared.largest:.3g} away from what it approximates at "
        f"{_place(request.box, compared.place)} (an estimate), and proven to be within {compared.bound:.3g} "
        f"everywhere: that leaves nothing of {request.error:.3g} for the attention. Ask for {smallest:.3g}, or take a "
        "better network",
        part="approximation",
        smallest=smallest,
    )


def _place(box: Box, point: Array) -> str:
    shown = [f"{name} = {value:.6g}" for name, value in zip(box.names, point.tolist(), strict=True)]
    return ", ".join(shown[:4] + ["..."] * (len(shown) > 4))
