"""Plan, lower, certify, and again until the certificate is within the asked error.

The approximation part is fixed by the circuits, and fewer gates want a large share of the error for it. What rounding
and leak take is only known once a model is certified. So: design with a share, choose scales for what is left, certify;
if that does not fit, leave more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.certificate import Certificate
from headsmith.core.errors import (
    CertificateError,
    HeadsmithError,
    MissingHeadError,
    TargetError,
    ThinMarginError,
    UnreachableError,
)
from headsmith.core.intervals import Box, Interval
from headsmith.core.rounding import PRECISIONS, Dtype
from headsmith.kernel.core.walk import Facts
from headsmith.language.graph import Attend, Graph, Pool, Relu
from headsmith.language.labels import Labels
from headsmith.language.stored import Proof
from headsmith.lower.lower import lower
from headsmith.lower.scales import NONE, demand_of, in_larger_units, relief_of, with_softmax_budget
from headsmith.plan.analysis.flow import flow_of, known_of, ranges_in_blocks
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Design
from headsmith.plan.circuits.assemble import Assembly, with_own_output
from headsmith.plan.circuits.pieces import Arrangement, Pieces, lay_out, tokens_for
from headsmith.plan.design import design_circuits
from headsmith.plan.evidence.norms import ANY_WIDTH, USUAL, Effort
from headsmith.plan.native import native_design
from headsmith.plan.native_fits import Failed
from headsmith.plan.product_design import product_design
from headsmith.plan.ramp_design import FEW_TOKENS, MOST_TOKENS, with_ramps
from headsmith.plan.rewrite.fuse import Fusion, fuse
from headsmith.plan.tables import GateHead, Progress
from headsmith.prove.prove import Draft, certified, drafted
from headsmith.transformer.heads.attentions import WITHOUT_SINK, AttentionKind
from headsmith.transformer.ir import Transformer
from headsmith.transformer.stored import numbered

ATTEMPTS = (
    (0.998, 8.0, 1.0),
    (0.998, 8.0, 64.0),
    (0.998, 8.0, math.inf),
    (0.998, 128.0, math.inf),
    (0.9, 128.0, math.inf),
    (0.5, 128.0, math.inf),
)
"""How much of the error the approximation part may take, how much room the margins leave, and how many times the
rounding of multiplying gates is taken (see `native_design`), tried in this order."""

ACCURATE_ATTEMPTS = ((0.9, 128.0, math.inf),)

TINY = 1e-300

PARTS = (2, 4)
"""In how many parts long sums are tried, where they round too much."""


@dataclass(frozen=True, eq=False)
class Met:
    """A certified model, with its proof, and what the nodes of the proof's circuit mean."""

    transformer: Transformer
    certificate: Certificate
    proof: Proof
    labels: Labels


@dataclass(eq=False)
class Seen:
    """The best of all models that a search has certified, whether or not they were good enough."""

    best: Met | None = None
    max_layers: int | None = None

    def add(self, met: Met) -> None:
        fits = self.max_layers is None or len(met.transformer.layers) <= self.max_layers
        if fits and (self.best is None or met.certificate.error < self.best.certificate.error):
            self.best = met


@dataclass(frozen=True, eq=False)
class Request:
    """What is wanted of a model: target and domain, the ranges of all nodes, the error, and limits.

    `attention` is the kind of all heads, and with `alone` data tokens see themselves and reference tokens alone. With
    `neurons`, gates and products are those of SwiGLU blocks.
    An `accurate` search spends as many heads and tokens as small errors take. `seen` keeps
    the best model that was certified on the way, `failed` what no table was found for (`native.Failed`).
    """

    graph: Graph
    box: Box
    found: Sequence[Interval]
    error: float
    tokens: int
    dtype: Dtype
    max_layers: int | None = None
    value_limit: float = math.inf
    progress: Progress | None = None
    accurate: bool = False
    attention: AttentionKind = "softmax"
    alone: bool = False
    neurons: bool = False
    seen: Seen = field(default_factory=Seen)
    failed: Failed = field(default_factory=Failed)

    def tell(self, text: str, fraction: float = 0.0) -> None:
        """Report what is being done, and how much of it is done, from 0 to 1."""
        if self.progress is not None:
            self.progress(text, fraction)

    @property
    def inputs(self) -> Array:
        """How far the inputs are rounded."""
        rounding = 0.0 if self.dtype == "float64" else PRECISIONS[self.dtype].unit_roundoff
        return np.asarray(self.found[0].magnitude * rounding)


def meet_with_gates(request: Request) -> Met:
    """Every non-linear node a ReLU circuit, with as few gates as the search finds; or UnreachableError."""

    def design(share: float, room: float, _caution: float) -> Design:
        request.tell("choosing ReLU circuits")
        return _circuits(request, share, room)

    return _attempts(request, None, design)


def meet_with_ramps(request: Request, most_tokens: int = MOST_TOKENS) -> Met:
    """ReLU circuits whose gates are ramp heads: half of the error for the circuits, and half for the interpolation."""

    def design(share: float, room: float, _caution: float) -> Design:
        request.tell("choosing ReLU circuits for ramp heads")
        found = _circuits(request, 0.5 * share, room)
        most = FEW_TOKENS if request.accurate else most_tokens
        return with_ramps(found, share * request.error - found.approximation, most)

    return _attempts(request, None, design)


def _circuits(request: Request, share: float, room: float) -> Design:
    return design_circuits(
        request.graph,
        request.found,
        request.error,
        share,
        request.inputs,
        room,
        request.max_layers,
        quick=request.accurate,
    )


def meet_with_products(request: Request) -> Met:
    """Linear attention: every product a head. Raises TargetError where the target is no polynomial."""

    def design(share: float, room: float, _caution: float) -> Design:
        unit = PRECISIONS[request.dtype].unit_roundoff
        return product_design(request.graph, request.found, request.box, request.error, unit)

    return _attempts(request, None, design)


def meet_with_pieces(request: Request) -> Met:
    """One token for each affine piece of a network of maxima: attention takes the maximum, nothing is approximated."""

    def design(share: float, room: float, _caution: float) -> Design:
        circuit = with_own_output(lay_out(request.graph).graph)
        known = replace(known_of(circuit, {}), blocks=tokens)
        found = ranges_in_blocks(known, request.box)
        return Design({}, Assembly(circuit, {}, (), (), {}), found, flow_of(known, found, {}).gains, 0.0)

    tokens = tokens_for(request.graph)
    if request.tokens not in (1, tokens):
        raise TargetError(f"recipe 'maxout' has one token for each piece, {tokens} here; leave tokens out")
    return _attempts(replace(request, tokens=tokens), Pieces(), design)


def meet_with_tables(request: Request, fusion: Fusion | None) -> Met:
    """Table heads for the non-linear nodes of the fused target. Raises UnfittableError where there are none."""
    fused = request.graph if fusion is None else fuse(request.graph, fusion)
    found = request.found if fused is request.graph else ranges(fused, request.box)
    precision = PRECISIONS[request.dtype]

    def design(share: float, room: float, caution: float) -> Design:
        limit = share * request.error
        return native_design(
            fused,
            found,
            limit,
            request.inputs,
            room,
            precision,
            request.value_limit,
            progress=request.progress,
            failed=request.failed,
            accurate=request.accurate,
            caution=caution,
            neurons=request.neurons,
        )

    return _attempts(request, fusion, design)


def _attempts(request: Request, fusion: Arrangement, designed: Callable[[float, float, float], Design]) -> Met:
    """The first attempt whose certificate is within the error."""
    error = request.error
    refusal: HeadsmithError | None = None
    before: tuple[float, float] | None = None
    gates = True
    for share, room, caution in ACCURATE_ATTEMPTS if request.accurate else ATTEMPTS:
        if (share, room) == before and not gates:
            continue  # the attempts differ in their gates alone
        design = designed(share, room, caution)
        before, gates = (share, room), any(isinstance(each, GateHead) for each in design.tables.values())
        request.tell("laying out heads and proving the model")

        def scaled(ranges: Sequence[Interval], design: Design = design) -> Met:
            kind: dict[str, Any] = {"attention": request.attention, "alone": request.alone, "neurons": request.neurons}
            laid = partial(lower, design.circuit, ranges, tokens=request.tokens, dtype=request.dtype, **kind)
            skeleton = laid(tables=design.tables)
            try:
                return _scaled(request, fusion, design, skeleton)
            except UnreachableError as problem:
                # Registers that are cleared round more, and so do long sums.
                others = [laid(tables=design.tables, **options) for options in _less_rounded(request, skeleton)]
                for other in others:
                    if len(other.registers) > len(skeleton.registers) or other.sizes != skeleton.sizes:
                        with suppress(UnreachableError):
                            return _scaled(request, fusion, design, other)
                raise problem

        try:
            try:
                return scaled(design.ranges)
            except MissingHeadError:
                # The kernel knows less of some range: every gate gets a head.
                return scaled(_undecided(design))
        except (UnreachableError, ThinMarginError) as problem:
            refusal = problem
        if design.approximation == 0.0 and not design.tables:
            break
    assert refusal is not None
    if isinstance(refusal, ThinMarginError):
        remedy = "another recipe or a smaller domain" + (", or dtype='float64'" if request.dtype != "float64" else "")
        why = f"error {error:.3g} cannot be certified: {refusal}. Ask for {remedy}"
        raise UnreachableError(why, part="rounding", smallest=math.inf)
    raise refusal


def _less_rounded(request: Request, skeleton: Transformer) -> Iterator[dict[str, Any]]:
    """How to lay out a model so that it rounds less, and has more columns."""
    if any(bank.cleared for layer in skeleton.layers for bank in layer.banks):
        yield {"reuse": False}
    if request.dtype == "float32":
        yield from ({"reuse": False, "parts": parts} for parts in PARTS)


def _undecided(design: Design) -> list[Interval]:
    """The ranges, as if the argument of every gate might cross zero."""
    read = {node.argument for node in design.circuit.nodes if isinstance(node, Relu)}
    return [
        Interval(np.minimum(each.low, -TINY), np.maximum(each.high, TINY)) if number in read else each
        for number, each in enumerate(design.ranges)
    ]


def _sizes(design: Design, gates: bool) -> dict[int, float]:
    """What is read where maxima are taken over tokens, and by `gates` if that is asked for, and the scores of
    attention, with some room."""
    found = {}
    for number, node in enumerate(design.circuit.nodes):
        if isinstance(node, Pool) or (gates and isinstance(node, Relu)):
            found[number] = 1.05 * float(np.max(design.ranges[node.argument].magnitude, initial=0.0))
        elif isinstance(node, Attend):
            found[number] = 1.05 * float(design.ranges[node.queries].magnitude @ design.ranges[node.keys].magnitude)
    return found


def _enlarge(sizes: dict[int, float], facts: Facts, skeleton: Transformer) -> None:
    """Make room for what the kernel knows of the same values, which may be less: its ranges may be wider."""
    if not sizes:
        return
    for stored, layer in zip(facts.model.layers, skeleton.layers, strict=True):
        for known, bank in zip(stored, layer.banks, strict=True):
            pairs = set() if known.copies else {*zip(known.node.tolist(), bank.node.tolist(), strict=True)}
            for number, name in pairs:
                node = facts.circuit.nodes[number]
                read = [float(np.max(facts.ranges[each].magnitude.value)) for each in node.arguments]
                if name in sizes and node.kind in ("pool", "relu"):
                    sizes[name] = max(sizes[name], 1.05 * read[0])


def _scaled(
    request: Request, fusion: Arrangement, design: Design, skeleton: Transformer, effort: Effort = USUAL
) -> Met:
    """Spend on softmax what the other parts leave over: measure them once, then choose the scales.

    An accurate search also looks for the scales that leave the smallest error of all. Very wide layers do without norms
    (plan/evidence/norms.py) unless the error cannot be met so.
    """
    error = request.error
    sizes = _sizes(design, request.attention in WITHOUT_SINK and request.tokens > 1)
    refusals: list[CertificateError] = []
    drafts: list[Draft] = []
    reliefs = [NONE]
    demand = demand_of(skeleton, design.gains)

    def within(budget: float) -> Transformer:
        return with_softmax_budget(skeleton, demand, budget, 1e-6 * budget, sizes, reliefs[-1])

    def first(transformer: Transformer, budget: float) -> tuple[Transformer, Certificate]:
        """The model with what the kernel finds of its proof; of other scales, where the kernel knows better ones."""
        what = request.graph, request.box, design.choices, fusion
        draft = drafted(*what, transformer, error, effort, design.assembly)
        before = dict(sizes)
        reliefs.append(relief_of(draft.facts, skeleton))
        _enlarge(sizes, draft.facts, skeleton)
        drafts.append(draft.without_weights())
        if reliefs[-1] is NONE and sizes == before:
            return numbered(transformer, draft.places), certified(draft)
        del draft
        transformer = numbered(within(budget), drafts[0].places)
        return transformer, certified(drafts[0], transformer)

    def attempt(budget: float) -> Met | None:
        try:
            transformer = within(budget)
            if drafts:
                transformer = numbered(transformer, drafts[0].places)
                proven = certified(drafts[0], transformer)
            else:
                transformer, proven = first(transformer, budget)
        except (ThinMarginError, MissingHeadError):
            raise
        except CertificateError as refusal:
            refusals.append(refusal)
            return None
        met = Met(transformer, proven, drafts[0].proof, drafts[0].labels)
        request.seen.add(met)
        return met

    def lightest(met: Met) -> Met:
        """The same model with smaller weights, where that is proven as well."""
        lighter = in_larger_units(met.transformer)
        if lighter is not None:
            with suppress(CertificateError):
                proven = certified(drafts[0], lighter)
                return replace(met, transformer=lighter, certificate=proven) if proven.error <= error else met
        return met

    # What is planned is proven, up to rounding: a millionth is left for that. An accurate search may ask for less
    # than its heads can do: no reason for gains without end.
    budget = max((1.0 - 1e-6) * (error - design.approximation), 0.01 * design.approximation)
    unit = demand.softmax
    for turn in range(6):
        try:
            found = attempt(budget)
        except ThinMarginError:
            # Margins do not foresee all that soft gates and maxima do before: make them harder.
            if unit == 0.0 or turn >= 4:
                raise
            budget /= 8.0
            continue
        if found is None:
            break
        if found.certificate.error <= error:
            return lightest(found)
        softmax = found.certificate.parts["softmax"]
        rest = found.certificate.error - softmax
        # Rounded scores make a maximum over tokens err a little more than its budget. And scales are numbers of the
        # format: a budget that is hardly smaller may lead to the same ones, so each turn leaves more room.
        strain = max(softmax / budget, 1.0)
        left = (error - rest) / strain * (1.0 - 1e-9 * 16.0**turn) - 1e-6 * rest
        if not 0.0 < left < budget:
            break
        budget = left
    tries = [found for found in _scan(attempt, unit) if found is not None] if request.accurate and unit > 0.0 else []
    best = min(tries, key=lambda met: met.certificate.error, default=None)
    if best is not None and best.certificate.error <= error:
        return lightest(best)
    if any(layer.heads > effort.widest for layer in skeleton.layers) and effort != ANY_WIDTH:
        return _scaled(request, fusion, design, skeleton, ANY_WIDTH)
    why = refusals[-1] if refusals else f"the other parts leave nothing of {error:.3g}"
    raise UnreachableError(f"error {error:.3g} cannot be certified: {why}", part="rounding", smallest=math.inf)


def _scan(attempt: Callable[[float], Met | None], unit: float) -> Iterator[Met | None]:
    """Models of many scales. Larger ones make the softmax part smaller and the rounding of scores larger, so the errors
    fall at first and then rise: look in large steps until they do, and in smaller ones round the best."""
    errors: dict[float, float] = {}

    def at(exponent: float) -> Met | None:
        found = None
        with suppress(ThinMarginError):
            found = attempt(unit * 10.0**-exponent)
        errors[exponent] = math.inf if found is None else found.certificate.error
        return found

    for place in range(0, 20, 2):
        yield at(float(place))
        *_, last = errors.values()
        smallest = min(errors.values())
        if math.isfinite(smallest) and not last <= 4.0 * smallest:
            break
    for step in (1.0, 0.5):
        middle = min(errors, key=errors.__getitem__)
        for exponent in (middle - step, middle + step):
            if exponent not in errors:
                yield at(exponent)
