"""A rigorous bound for a table head against the functions that it stands for, from its stored keys and values.

    g_j(s) = sum_k softmax_k(slopes_k . s + offset_k) values[k, j],     one or two variables s

Cells are enclosed by Taylor polynomials and the bounds of their rests (certify.table_cells), and halved until the bound
is within `tightness` of an error that is attained at some point. Nothing that the fit believed is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from typing import Any

import numpy as np

from headsmith.certify.table_cells import ORDERS, Bounds, bound_cells
from headsmith.core.arrays import Array, frozen
from headsmith.core.balls import PRECISION_BITS, Ball
from headsmith.core.errors import CertificateError
from headsmith.core.expansion import Scores
from headsmith.core.functions import FUNCTIONS
from headsmith.core.jets import target_of
from headsmith.core.program import Call, Over, Program, fault_of
from headsmith.core.series import Target, series_arithmetic

TIGHTNESS = 1.05
FLOOR = 1e-25
MOST_CELLS = 1 << 14
DEEPEST = 48
MOST_SINGULAR, DEEPEST_SINGULAR = 300, {1: 44, 2: 26}
"""Cells on which a function has no series: a curve of singular points makes many of them, a point makes small ones."""
BATCH = 64
STEEPEST = 2000.0
"""Scores cannot change by more on one cell: its weights are known down to 1e-300, and grow from there by e^690."""

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Checked:
    """g_j - f_j lies in [low_j, high_j], and the derivative of g_j by the variable i in [slope_low_ji, slope_high_ji].

    In exact arithmetic, on the stored numbers. `cells` is how many were looked at.
    """

    low: Array
    high: Array
    slope_low: Array
    slope_high: Array
    cells: int

    @property
    def error(self) -> Array:
        """The largest |g_j - f_j|, at most."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def check_program_table(
    slope: Any,
    offset: Any,
    values: Any,
    programs: Sequence[Program],
    box: Sequence[tuple[float, float]],
    *,
    tightness: float = TIGHTNESS,
    floor: float = FLOOR,
    progress: Progress | None = None,
) -> Checked:
    """Enclose sum_k softmax_k(slope_k . s + offset_k) values[k, j] - programs_j(s) over s in the box.

    Guarantee: for every real s in the box, and the programs are analytic there. The larger bound is at most `tightness`
    times an error that is attained in the box, or at most `floor`.
    """
    ranges = _box(box)
    head = _head(slope, offset, values, len(ranges), len(programs))
    for program in programs:
        _require_program(program, ranges)
    return _enclose(head, [target_of(program) for program in programs], ranges, tightness, floor, progress)


def _head(slope: Any, offset: Any, values: Any, variables: int, outputs: int) -> Scores:
    slopes, offsets, table = (np.asarray(array, dtype=np.float64) for array in (slope, offset, values))
    tokens = len(offsets) if offsets.ndim == 1 else 0
    if tokens < 1 or slopes.shape != (tokens, variables) or table.shape != (tokens, outputs):
        raise CertificateError(
            f"slopes {slopes.shape}, offsets {offsets.shape} and values {table.shape} do not make {outputs} outputs of "
            f"one table in {variables} variables"
        )
    if not all(np.isfinite(array).all() for array in (slopes, offsets, table)):
        raise CertificateError("a table head has a key or a value that is not a finite number")
    return Scores(frozen(slopes), frozen(offsets), frozen(table))


def _box(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    box = [(float(low), float(high)) for low, high in ranges]
    for low, high in box:
        if not -inf < low <= high < inf:
            raise CertificateError(f"[{low}, {high}] is not a bounded interval")
    # A point becomes a short interval round it.
    margins = [2.0**-30 * (abs(low) or 1.0) if low == high else 0.0 for low, high in box]
    return [(low - margin, high + margin) for (low, high), margin in zip(box, margins, strict=True)]


def _require_program(program: Program, box: Sequence[tuple[float, float]]) -> None:
    if program.variables != len(box) or len(box) not in ORDERS:
        raise CertificateError(f"a program of {program.variables} variables has no values on a box of {len(box)}")
    fault = fault_of(program)
    if fault is not None:
        raise CertificateError(fault)
    match program.steps:
        case (Call(name, 0, parameter),):
            _require_analytic(name, parameter, *box[0])
        case (Over(0, 1),) if box[1][0] <= 0.0 <= box[1][1]:
            raise CertificateError(f"x / y is unbounded: y lies in [{box[1][0]}, {box[1][1]}], which contains 0")


def _require_analytic(name: str, parameter: float | None, low: float, high: float) -> None:
    function = FUNCTIONS[name]
    domain = function.domain(parameter)
    # A closed end of a built-in domain is a branch point (of sqrt, of arcsin, of powers that are not whole).
    within = domain.contains_neighbourhood if function.program is None else domain.covers
    if not within(low, high):
        raise CertificateError(
            f"{name} is not analytic on [{low}, {high}]: it needs {domain.needs}, away from its singular end"
        )


# ---- the search over cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rule:
    """When a bound is good enough: within `tightness` of what is attained, or below `floor` (output, quantity)."""

    tightness: float
    floor: Array


@dataclass(frozen=True, eq=False)
class Known:
    """So far, for each output and quantity: attained extremes, and bounds over all cells that are decided."""

    seen_low: Array
    seen_high: Array
    low: Array
    high: Array


Cells = dict[tuple[int, ...], list[tuple[tuple[int, ...], Any]]]
"""By level: the places of cells, and which outputs are open there."""


def _enclose(
    head: Scores,
    targets: Sequence[Target],
    box: Sequence[tuple[float, float]],
    tightness: float,
    floor: float,
    progress: Progress | None,
) -> Checked:
    if not (tightness > 1.0 and floor > 0.0):
        raise CertificateError(f"tightness must exceed 1 and floor must be positive, not {tightness} and {floor}")
    rule = _rule(head, tightness, floor)
    changes = np.max(np.abs(head.slopes), axis=0) * [high - low for low, high in box]
    if np.max(changes) > STEEPEST * MOST_CELLS:
        raise CertificateError(f"scores change by {np.max(changes):.3g} over {box}: the keys are too steep")
    with series_arithmetic(_bits(changes, floor), ORDERS[len(box)]):
        known, cells = _explore(rule, head, targets, box, progress)
    if not (np.isfinite(known.low).all() and np.all(known.low <= known.high) and np.isfinite(known.high).all()):
        raise CertificateError(f"no finite bound of the table on {box}")
    low, high = np.nextafter(known.low, -inf), np.nextafter(known.high, inf)
    return Checked(frozen(low[:, 0]), frozen(high[:, 0]), frozen(low[:, 1:]), frozen(high[:, 1:]), cells)


def _bits(changes: Array, floor: float) -> int:
    """Enough for errors near `floor`, and for slopes on boxes across which the scores hardly change."""
    wanted = -log2(floor) - 64.0, *(-log2(change) for change in changes.tolist() if change > 0.0)
    return PRECISION_BITS + int(max(0.0, *wanted))


def _rule(head: Scores, tightness: float, floor: float) -> Rule:
    # Slopes carry errors of arguments: they need no more than 1e-9 of what values and keys could make of them.
    size = np.max(np.abs(head.values), axis=0)[:, None] * np.max(np.abs(head.slopes), axis=0)
    return Rule(tightness, np.hstack([np.full((len(size), 1), floor), floor + 1e-9 * size]))


def _explore(
    rule: Rule, head: Scores, targets: Sequence[Target], box: Sequence[tuple[float, float]], progress: Progress | None
) -> tuple[Known, int]:
    """Decide cells level by level, the coarse ones first."""
    none = np.full_like(rule.floor, inf)
    known, count, singular, fraction = Known(none, -none, none, -none), 0, 0, 0.0
    queue: Cells = {(0,) * len(box): [((0,) * len(box), np.ones(len(targets), dtype=bool))]}
    while queue:
        levels = min(queue, key=lambda key: (sum(key), key))
        cells = queue.pop(levels)
        for batch in (cells[start : start + BATCH] for start in range(0, len(cells), BATCH)):
            centres, radius = _geometry(box, levels, [place for place, _ in batch])
            count += len(batch)
            if count > MOST_CELLS or max(levels) > DEEPEST:
                raise CertificateError(_hopeless(rule, count, centres[0]))
            bounds = bound_cells(head, targets, centres, radius)
            known = _with_seen(known, bounds)
            decided, wanted = _decided(known, rule, bounds), np.array([mask for _, mask in batch])
            known = _with_bounds(known, bounds, wanted & decided)
            still_open = wanted & ~decided
            for (place, _), left, axes in zip(batch, still_open, bounds.axis, strict=True):
                if left.any():
                    _halve(queue, levels, place, left, int(axes[np.argmax(left)]))
            lost = np.argwhere(still_open & ~bounds.known)
            singular += len(lost)
            if singular > MOST_SINGULAR or (len(lost) and max(levels) >= DEEPEST_SINGULAR[len(box)]):
                cell, output = lost[0].tolist()
                raise CertificateError(_singular(targets[output], singular, centres[cell]))
            fraction += 0.5 ** sum(levels) * np.count_nonzero(~still_open.any(axis=1))
            if progress is not None:
                progress(float(fraction))
    return known, count


def _with_seen(known: Known, bounds: Bounds) -> Known:
    seen_low = np.minimum(known.seen_low, np.min(bounds.inner_low, axis=0))
    seen_high = np.maximum(known.seen_high, np.max(bounds.inner_high, axis=0))
    return replace(known, seen_low=seen_low, seen_high=seen_high)


def _decided(known: Known, rule: Rule, bounds: Bounds) -> Any:
    """Which outputs need no smaller cell: (cells, output). Comparisons with nan are false: nan decides nothing."""
    size = np.maximum(np.maximum(-known.seen_low, known.seen_high), 0.0)
    slack = 0.99 * (rule.tightness - 1.0) * size
    low = np.minimum(known.seen_low - slack, -rule.floor)
    high = np.maximum(known.seen_high + slack, rule.floor)
    return np.all((bounds.low >= low) & (bounds.high <= high), axis=2)


def _with_bounds(known: Known, bounds: Bounds, which: Any) -> Known:
    low = np.min(np.where(which[..., None], bounds.low, inf), axis=0)
    high = np.max(np.where(which[..., None], bounds.high, -inf), axis=0)
    return replace(known, low=np.minimum(known.low, low), high=np.maximum(known.high, high))


def _hopeless(rule: Rule, count: int, centre: Sequence[Ball]) -> str:
    place = ", ".join(f"{float(s):.17g}" for s in centre)
    return (
        f"no bound of the table within {rule.tightness} of its error after {count} cells; the search is at {place}: "
        "the function may not be analytic there, or the keys are too steep; a larger floor or tightness may do"
    )


def _singular(target: Target, count: int, centre: Sequence[Ball]) -> str:
    place = ", ".join(f"{float(s):.17g}" for s in centre)
    return (
        f"no Taylor series of {target.label} holds on {count} cells, the last one at {place}: it may not be analytic "
        "in the box (a zero of a denominator, the end of a logarithm or of a root); a smaller box may do"
    )


def _halve(queue: Cells, levels: tuple[int, ...], place: tuple[int, ...], left: Any, axis: int) -> None:
    finer = tuple(level + (number == axis) for number, level in enumerate(levels))
    for side in (0, 1):
        child = tuple(2 * i + side if number == axis else i for number, i in enumerate(place))
        queue.setdefault(finer, []).append((child, left))


def _geometry(
    box: Sequence[tuple[float, float]], levels: tuple[int, ...], places: Sequence[tuple[int, ...]]
) -> tuple[list[list[Ball]], list[Ball]]:
    """Centres and the radius of cells: the place i of level l is low + [i, i + 1] (high - low) / 2^l."""
    radius, starts = [], []
    for (low, high), level in zip(box, levels, strict=True):
        starts.append(Ball(low))
        radius.append((Ball(high) - Ball(low)) / 2 ** (level + 1))
    return [[s + r * (2 * i + 1) for s, r, i in zip(starts, radius, place, strict=True)] for place in places], radius
