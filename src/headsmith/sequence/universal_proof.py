"""What is proven of a universal model: from its matrices, whoever wrote them, and what is stated of the target.

Stated are the domain, a Lipschitz bound and `evaluation`. The theorem: if the matrices are exactly those of
universal_model.py for some grid and some answers, then for every f

    with  |f(X) - f(Y)| <= distance(X - Y)  on the domain,  and  |f(knot) - answer| <= evaluation  at every knot,

and every X in the domain, in every output number, in float64 and in any order of summation,

    |model(X) - f(X)| <= approximation + evaluation + leak + rounding.

    leak, rounding   the run against the exact Gaussian mean of the answers at the point that is looked up
    approximation    E distance(nodes - s) at that point s (gaussian_grid.py), and distance(moved + drift): `moved`
                     bounds how far s is from X, `drift` how far the knots, which are doubles, are from the nodes

The triangle inequality in `distance` gives it: |answer - f(X)| <= evaluation + distance(knot - X) for each answer, and
knot - X = (knot - node) + (node - s) + (s - X).

No record of how the model was made is trusted. Scales, middles, nodes and the bonus follow from the domain, the counts
of cells and the width c; the answers are read from the matrices. The model is built again from these and compared with
what is stored, number by number. A changed key, position or weight is refused so. A changed answer is a statement about
another f: it is refused where no f with the stated bound has such answers at two neighbouring knots, and otherwise only
sampling the callable again can tell (`Universal.check`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import CertificateError, DomainError, TargetError
from headsmith.core.intervals import Box
from headsmith.sequence.gaussian_grid import BEYOND, NARROWEST, WIDEST, kernel_bound
from headsmith.sequence.universal_inputs import points_of
from headsmith.sequence.universal_model import (
    Architecture,
    Attention,
    Lookup,
    answer_error,
    build,
    gathered_error,
    layout,
    named,
    query_error,
)
from headsmith.source.refute import compare_neighbours
from headsmith.source.smoothness import Lipschitz

PARTS = ("approximation", "evaluation", "leak", "rounding")
ROOM = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class Stated:
    """What a universal model is said to be: its target's domain, bound and evaluation, and how it is built."""

    box: Box
    counts: tuple[int, ...]
    width: float
    lipschitz: Lipschitz
    evaluation: float
    architecture: Architecture


@dataclass(frozen=True, eq=False)
class Axes:
    """The grid, coordinate by coordinate: t = scale * (s - middle) is a number in steps; `drift` bounds how far knots,
    which are doubles, are from the nodes that they stand for."""

    knots: tuple[Array, ...]
    nodes: tuple[Array, ...]
    steps: Array
    scale: Array
    middle: Array
    drift: Array


def axes_of(box: Box, counts: tuple[int, ...]) -> Axes:
    """The grid with these counts of cells on the box; DomainError where doubles are too coarse or too few for it."""
    found = [_axis(*item) for item in zip(box.names, box.low.tolist(), box.high.tolist(), counts, strict=True)]
    knots, nodes, steps, scale, middle, drift = zip(*found, strict=True)
    return Axes(knots, nodes, frozen(steps), frozen(scale), frozen(middle), frozen(drift))


def lookup_of(axes: Axes, answers: Array, width: float) -> Lookup:
    """What a model on this grid looks up."""
    return Lookup(axes.scale, axes.middle, frozen(points_of(axes.nodes)), frozen(answers), float(width))


def prove(stated: Stated, model: Attention) -> dict[str, float]:
    """The parts of the error. Guarantee: the theorem above. CertificateError where the matrices are others."""
    axes, answers = _consistent(stated, model)
    lookup = lookup_of(axes, answers, stated.width)
    _refuse_difference(model, build(lookup, stated.architecture))
    moved = _moved(model, lookup, stated.box) + axes.drift
    mean = kernel_bound(stated.lipschitz, axes.steps, stated.counts, stated.width)
    mean += float(stated.lipschitz.distance(moved)) * ROOM
    leak, rounding = answer_error(lookup, model)
    approximation = math.nextafter(mean * ROOM, math.inf)
    found = (approximation, float(stated.evaluation), leak, rounding)
    if not all(math.isfinite(part) for part in (*found, error_of(found))):
        raise CertificateError("no finite error can be proven: the answers, the domain or the bound are too large")
    return dict(zip(PARTS, found, strict=True))


def error_of(parts: tuple[float, ...]) -> float:
    """The sum, rounded up."""
    try:
        return math.nextafter(math.fsum(parts), math.inf)
    except OverflowError:
        return math.inf


def verified(stated: Stated, model: Attention, claimed: Mapping[str, float]) -> dict[str, float]:
    """What `prove` finds, or CertificateError: also where it is more than is claimed, or the answers contradict the
    stated bound, so that nothing is said of any f."""
    try:
        parts = prove(stated, model)
        axes, answers = _consistent(stated, model)
        table = answers.reshape(*stated.counts, -1)
        points = points_of(axes.knots).reshape(*stated.counts, -1)
        compare_neighbours(stated.lipschitz, points, table, stated.evaluation)
    except (DomainError, TargetError) as problem:
        raise CertificateError(f"nothing can be proven: {problem}") from None
    for name in PARTS:
        # The last bits depend on the machine's matrix product, as in compile.verify.
        if not parts[name] <= claimed[name] * ROOM:
            raise CertificateError(
                f"the model claims {claimed[name]:.6g} of {name}, but from its matrices only {parts[name]:.6g} can be "
                f"proven"
            )
    return parts


# The matrices -------------------------------------------------------------------------------------------------------


def answers_of(stated: Stated, model: Attention) -> Array:
    """The answers (nodes, tokens, outputs) that the matrices hold; CertificateError if they are of other sizes."""
    tokens, features, outputs = model.tokens, model.features, model.outputs
    nodes = math.prod(stated.counts)
    columns = layout(tokens, features, outputs, stated.architecture)
    rows = model.prefix if model.last is None else model.last.V
    wide = columns["out"].stop if "out" in columns else outputs
    dimensions = {len(stated.counts), len(stated.lipschitz.constants), stated.box.size, tokens * features}
    if len(dimensions) > 1 or rows.shape != (tokens * nodes, wide) or not outputs:
        raise CertificateError(
            f"{tokens} tokens of {features} features and {stated.counts} cells do not go with answers of shape "
            f"{rows.shape} and {stated.box.size} intervals"
        )
    held = rows[:, columns["answer"]] if "answer" in columns else rows
    return frozen(held.reshape(tokens, nodes, outputs).transpose(1, 0, 2))


def _consistent(stated: Stated, model: Attention) -> tuple[Axes, Array]:
    """The grid and the answers, where what is stated makes sense."""
    bounds, norm = stated.lipschitz.constants, stated.lipschitz.norm
    known = stated.architecture in get_args(Architecture) and norm in ("1", "2", "inf")
    known = known and (model.last is None) == (stated.architecture == "two layers")
    sound = bool(
        np.isfinite(bounds).all() and (bounds >= 0.0).all() and (norm == "1" or len(set(bounds.tolist())) == 1)
    )
    sound = sound and math.isfinite(stated.evaluation) and stated.evaluation >= 0.0
    if not (known and sound and WIDEST <= stated.width <= NARROWEST and min(stated.counts, default=0) >= 1):
        raise CertificateError(
            f"what is stated makes no sense: {stated.lipschitz}, evaluation {stated.evaluation!r}, width "
            f"{stated.width!r}, {stated.counts} cells, {stated.architecture!r}"
        )
    # Sizes first: counts that a file names must not make the grid larger than the file.
    answers = answers_of(stated, model)
    return axes_of(stated.box, stated.counts), answers


def _refuse_difference(model: Attention, wanted: Attention) -> None:
    """CertificateError if a matrix is missing, or a number is another one or not finite."""
    stored, right = named(model), named(wanted)
    for name in sorted({*stored, *right}):
        if name not in stored or name not in right or stored[name].shape != right[name].shape:
            raise CertificateError(f"the matrix {name} does not belong to the construction, or is of another shape")
        if stored[name].dtype != np.float64:
            raise CertificateError(f"the matrix {name} is of {stored[name].dtype}; the proof is about float64")
        wrong = ~((stored[name] == right[name]) & np.isfinite(stored[name]))
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            raise CertificateError(
                f"{name}{list(place)} is {float(stored[name][place])!r}; the construction has "
                f"{float(right[name][place])!r} there"
            )


# The grid -----------------------------------------------------------------------------------------------------------


def _axis(name: str, low: float, high: float, count: int) -> tuple[Array, Array, float, float, float, float]:
    """(knots, nodes, step, scale, middle, drift) of one coordinate."""
    if low == high:
        if count != 1:
            raise DomainError(f"the domain of {name} is one number, {low!r}: {count} cells do not fit into it")
        return frozen([low]), frozen([0.0]), 0.0, 0.0, low, 0.0
    start, end = Fraction(low), Fraction(high)
    nodes = [Fraction(2 * k - count + 1, 2) for k in range(count)]
    try:
        scale = float(count / (end - start))
        step = math.nextafter(float(1 / Fraction(scale)), math.inf)
    except (OverflowError, ZeroDivisionError):
        raise DomainError(
            f"the domain of {name}, [{low!r}, {high!r}], is too thin or too wide for {count} cells"
        ) from None
    middle = float((start + end) / 2)
    exact = [Fraction(middle) + node / Fraction(scale) for node in nodes]
    knots = np.array([float(min(max(knot, start), end)) for knot in exact])
    drift = max(abs(Fraction(float(knot)) - at) for knot, at in zip(knots, exact, strict=True))
    beyond = max(abs(Fraction(scale) * (at - Fraction(middle))) - Fraction(count, 2) for at in (start, end))
    if not (np.diff(knots) > 0.0).all() or beyond > BEYOND / 4.0:
        raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin for {count} cells in doubles")
    return frozen(knots), frozen(nodes), step, scale, middle, math.nextafter(float(drift), math.inf)


def _moved(model: Attention, lookup: Lookup, box: Box) -> Array:
    """Bound of how far, in each coordinate, the point that is looked up is from the input."""
    with np.errstate(over="ignore", invalid="ignore"):
        gathered = gathered_error(model, lookup, box.low, box.high)
        query = query_error(lookup, np.maximum(box.high - lookup.middle, lookup.middle - box.low) + gathered)
        steps = lookup.scale * gathered + query
    if not (steps <= BEYOND / 4.0).all():
        worst = int(np.argmax(np.where(steps <= BEYOND / 4.0, 0.0, np.nan_to_num(steps, nan=math.inf))))
        raise DomainError(
            f"rounding moves the input {box.names[worst]} by {float(steps[worst]):.3g} grid steps: its domain is too "
            f"thin, too wide, or too far from 0, for so many cells"
        )
    inverse = np.divide(1.0, lookup.scale, out=np.zeros_like(lookup.scale), where=lookup.scale > 0.0)
    return np.asarray((gathered + query * inverse) * (1.0 + 1e-12))
