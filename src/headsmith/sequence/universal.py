"""Any function of a short sequence with a stated Lipschitz bound, by attention alone: gather, then look up.

    grid       as few cells as the stated bound allows for the error           sequence/gaussian_grid.py
    answers    the callable's values at the cells' centres
    model      two attention layers, or one and a softmax, as matrices         sequence/universal_model.py

A callable cannot be proven anything about from samples. What is proven and what is assumed is kept apart, as in
approximate.py. The cost is p^D answers for D = tokens * features: this is for small D.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.core.intervals import Box
from headsmith.heads.ramp import WIDTH
from headsmith.sequence.gaussian_grid import BEYOND, NARROWEST, WIDEST, fewest_cells, kernel_bound
from headsmith.sequence.universal_inputs import box_of, points_of, run_inside, sample
from headsmith.sequence.universal_model import (
    Architecture,
    Attention,
    Lookup,
    answer_error,
    bill,
    build,
    gathered_error,
    query_error,
    score_size,
)
from headsmith.source.kuhn import Grid
from headsmith.source.refute import refute
from headsmith.source.smoothness import Lipschitz, as_smoothness
from headsmith.transformer.bill import Bill

SHARE = 0.999
"""How much of the error the kernel may take: leak and rounding are small."""


@dataclass(frozen=True, eq=False)
class Universal:
    """An attention-only model of a callable. For every X (tokens, features) in the domain |model(X) - f(X)| <= error,
    in every output, where

        error = approximation + evaluation + leak + rounding

    `leak` and `rounding` bound the run against the exact kernel mean of the answers at a point near X, and are proven;
    `approximation` bounds that mean against f, if `lipschitz`, which the user stated, is true of f; `evaluation` is how
    far the callable's floating-point results are assumed to be from f.
    """

    model: Attention
    lookup: Lookup
    box: Box
    counts: tuple[int, ...]
    lipschitz: Lipschitz
    architecture: Architecture
    parts: Mapping[str, float]

    @property
    def error(self) -> float:
        return math.nextafter(math.fsum(self.parts.values()), math.inf)

    @property
    def tokens(self) -> int:
        return self.model.tokens

    @property
    def bill(self) -> Bill:
        return bill(self.model, score_size(self.lookup))

    @property
    def proven(self) -> str:
        """What holds whatever the callable is."""
        return (
            f"the model is within {self.parts['leak'] + self.parts['rounding']:.6g} of the exact Gaussian mean (c = "
            f"{self.lookup.width:g}) of the {len(self.lookup.nodes)} sampled answers, at a point within {BEYOND:g} "
            f"grid steps of the input"
        )

    @property
    def assumed(self) -> str:
        """What the user vouches for, and what follows from it."""
        evaluation = self.parts["evaluation"]
        return (
            f"{self.lipschitz} for every output, and the callable's results are within {evaluation:.3g} of f; then "
            f"that mean is within {self.parts['approximation'] + evaluation:.6g} of f"
        )

    def __call__(self, array: Any) -> Array:
        """(..., tokens, features) -> (..., tokens, outputs); DomainError outside the domain."""
        return run_inside(self.model, self.box, array)


def universal(
    function: Callable[[Array], Any],
    tokens: int,
    features: int = 1,
    outputs: int = 1,
    domain: Any = None,
    error: float | None = None,
    *,
    grid: int | Sequence[int] | None = None,
    lipschitz: Any = None,
    norm: Any = 2,
    evaluation: float | None = None,
    width: float = WIDTH,
    architecture: Architecture = "two layers",
    max_nodes: int = 100_000,
) -> Universal:
    """An attention-only model within `error` of a callable f: (tokens, features) -> (tokens, outputs), or one with
    `grid` cells along every coordinate, if the callable is as smooth as is stated.

    `domain`: a pair for all numbers, one for each feature, or an array (tokens, features, 2). `lipschitz`: L with
    |f(X) - f(Y)| <= L |X - Y| for every output number, in the `norm` 1, 2 or infinity of the flattened difference; or
    an array (tokens, features) for sum L_ij |X_ij - Y_ij|. `evaluation`: how far results may be from f; 8 units in the
    last place of the largest one, unless given. `width` is c: the guarantee wants it large, smooth targets about 2.7.
    Raises TargetError, with the points, where samples contradict what is stated, and UnreachableError where the grid
    would have more than `max_nodes` nodes, or rounding takes more than the error.
    """
    if architecture not in get_args(Architecture):
        raise TargetError(f"architecture is {architecture!r}; choose one of {', '.join(get_args(Architecture))}")
    if not WIDEST <= width <= NARROWEST:
        raise TargetError(f"width is {width!r}; it must lie between {WIDEST} and {NARROWEST}")
    if evaluation is not None and not (math.isfinite(evaluation) and evaluation >= 0.0):
        raise TargetError(f"evaluation is {evaluation!r}; it must be a finite number, not negative")
    box = box_of(domain, tokens, features)
    if 3**box.size > max_nodes:
        raise TargetError(
            f"{tokens} tokens of {features} features are {box.size} numbers; a grid in so many dimensions has more "
            f"than {max_nodes} nodes (max_nodes)"
        )
    numbers = np.asarray(lipschitz, dtype=np.float64) if np.ndim(lipschitz) == 2 else None
    if numbers is not None and numbers.shape != (tokens, features):
        raise TargetError(
            f"lipschitz has shape {numbers.shape}; it needs one number, or ({tokens}, {features}) of them"
        )
    stated = as_smoothness(numbers.reshape(-1) if numbers is not None else lipschitz, None, norm, box.size)
    assert isinstance(stated, Lipschitz)
    counts = _counts(box, stated, error, grid, width, max_nodes, evaluation or 0.0)
    axes = [_axis(*item) for item in zip(box.names, box.low.tolist(), box.high.tolist(), counts, strict=True)]
    knots, steps, scale, middle, drift = (list(column) for column in zip(*axes, strict=True))
    nodes: list[Array] = [np.arange(float(count)) - (count - 1) / 2.0 for count in counts]
    answers = sample(function, points_of(knots), tokens, outputs)
    slack = float(evaluation) if evaluation is not None else 2.0**-50 * float(np.abs(answers).max())
    _refute(function, box, knots, stated, answers, slack)
    lookup = Lookup(frozen(scale), frozen(middle), frozen(points_of(nodes)), frozen(answers), float(width))
    model = build(lookup, architecture)
    moved = _moved(model, lookup, box) + np.array(drift)
    mean = kernel_bound(stated, np.array(steps), counts, width) + float(stated.distance(moved)) * (1.0 + 1e-9)
    leak, rounding = answer_error(lookup, model)
    parts = {"approximation": math.nextafter(mean, math.inf), "evaluation": slack, "leak": leak, "rounding": rounding}
    made = Universal(model, lookup, box, counts, stated, architecture, parts)
    if error is not None and made.error > error:
        blocks = max(("evaluation", "leak", "rounding"), key=lambda name: parts[name])
        smallest = (evaluation or 0.0) + 1100.0 * (made.error - mean - (evaluation or 0.0))
        raise UnreachableError(
            f"{blocks} takes {parts[blocks]:.3g} of the error {error:.3g}, and a grid of {counts} cells {mean:.3g}: "
            f"ask for {smallest:.3g} or more, or for a wider kernel (width)",
            part=blocks,
            smallest=smallest,
        )
    return made


# The grid -----------------------------------------------------------------------------------------------------------


def _counts(
    box: Box,
    stated: Lipschitz,
    error: float | None,
    grid: int | Sequence[int] | None,
    width: float,
    most: int,
    evaluation: float,
) -> tuple[int, ...]:
    """How many cells each coordinate has."""
    if (error is None) == (grid is None):
        raise TargetError("give either the error or the number of cells along every coordinate (grid)")
    wide = np.where(box.high > box.low, np.nextafter(box.high - box.low, np.inf) * (1.0 + 1e-12), 0.0)
    if error is not None:
        if not (isinstance(error, int | float) and math.isfinite(error) and error > 0.0):
            raise TargetError(f"error is {error!r}; it must be a positive finite number")
        if error <= evaluation:
            raise UnreachableError(
                f"the callable's results are assumed to be within {evaluation:.3g} of the target, which is all of the "
                f"error {error:.3g}: ask for more than that",
                part="evaluation",
                smallest=2.0 * evaluation,
            )
        return fewest_cells(stated, wide, SHARE * (error - evaluation), width, most)
    given = np.asarray(grid)
    if given.dtype.kind not in "iu" or given.ndim > 2 or (given.ndim and given.size != box.size) or given.min() < 1:
        raise TargetError(f"grid is {grid!r}; it must be a positive integer, or {box.size} of them")
    counts = np.where(wide > 0.0, np.broadcast_to(given.reshape(-1), box.size), 1)
    if math.prod(counts.tolist()) > most:
        raise TargetError(
            f"grid is {grid!r}: {math.prod(counts.tolist())} nodes, and at most {most} (max_nodes) are allowed"
        )
    return tuple(counts.tolist())


def _axis(name: str, low: float, high: float, count: int) -> tuple[Array, float, float, float, float]:
    """(knots, step, scale, middle, drift): t = scale * (s - middle); `drift` bounds what rounding moves knots by."""
    if low == high:
        return frozen([low]), 0.0, 0.0, low, 0.0
    start, end = Fraction(low), Fraction(high)
    scale = float(count / (end - start))
    middle = float((start + end) / 2)
    nodes = [Fraction(2 * k - count + 1, 2) for k in range(count)]
    if not (math.isfinite(scale) and scale > 0.0):
        raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin or too wide for {count} cells")
    exact = [Fraction(middle) + node / Fraction(scale) for node in nodes]
    knots = np.array([float(min(max(knot, start), end)) for knot in exact])
    drift = max(abs(Fraction(float(knot)) - at) for knot, at in zip(knots, exact, strict=True))
    beyond = max(abs(Fraction(scale) * (at - Fraction(middle))) - Fraction(count, 2) for at in (start, end))
    if not (np.diff(knots) > 0.0).all() or beyond > BEYOND / 4.0:
        raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin for {count} cells in doubles")
    step = math.nextafter(float(1 / Fraction(scale)), math.inf)
    return frozen(knots), step, scale, middle, math.nextafter(float(drift), math.inf)


def _moved(model: Attention, lookup: Lookup, box: Box) -> Array:
    """Bound of how far, in each coordinate, the point that is looked up is from the input."""
    gathered = gathered_error(model, lookup, box.low, box.high)
    query = query_error(lookup, np.maximum(box.high - lookup.middle, lookup.middle - box.low) + gathered)
    steps = lookup.scale * gathered + query
    if not (steps <= BEYOND / 4.0).all():
        worst = int(np.argmax(steps))
        raise DomainError(
            f"rounding moves the input {box.names[worst]} by {float(steps[worst]):.3g} grid steps: its domain is too "
            f"thin, or too far from 0, for so many cells"
        )
    inverse = np.divide(1.0, lookup.scale, out=np.zeros_like(lookup.scale), where=lookup.scale > 0.0)
    return np.asarray((gathered + query * inverse) * (1.0 + 1e-12))


def _refute(
    function: Callable[[Array], Any], box: Box, knots: list[Array], stated: Lipschitz, answers: Array, slack: float
) -> None:
    """TargetError where the answers, points between them, or the domain's ends contradict what is stated."""
    _, tokens, outputs = answers.shape

    def flat(points: Array) -> Array:
        return sample(function, points, tokens, outputs).reshape(len(points), -1)

    ends = [frozen([a, a / 2.0 + b / 2.0, b] if a < b else [a]) for a, b in zip(box.low, box.high, strict=True)]
    zeros = frozen(np.zeros(box.size))
    for axes, values in ((knots, answers.reshape(len(answers), -1)), (ends, flat(points_of(ends)))):
        grid = Grid(box, tuple(len(axis) - 1 for axis in axes), tuple(axes), zeros, zeros, zeros)
        refute(stated, grid, values, slack, flat)
