"""The table head of the smallest error, rounding included, whatever number of tokens it takes.

For given keys, values v of least squares with a ridge minimise misfit^2 + ridge^2 v^2. Execution adds about u (30 +
scores) |v|, u the unit roundoff: with a ridge of that size the sum of both is nearly as small as these keys allow. Keys
are those of grids: with tokens to spare, moving them gains little. All errors here are ESTIMATES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.program import Program, defined_on, program_values
from headsmith.core.rounding import Precision
from headsmith.plan.fit.curve import ROUNDINGS, USUAL_SCORE, Curves, Fit, finished
from headsmith.plan.fit.exact import exact_table
from headsmith.plan.fit.grid import NODES, tensor
from headsmith.plan.fit.points import with_ones
from headsmith.plan.fit.search import grids
from headsmith.plan.fit.solve import Meter, Problem, TableHead, descend, problem_of, project
from headsmith.plan.fit.surface import Patch

TOKENS = (1, 2, 3, 4, 5, 6, 8, 11, 16, 22, 32, 45, 64, 90)
OSCILLATING_TOKENS = (128, 160)
ALONG = (1, 2, 3, 4, 5, 6, 8, 10, 12)
RIDGES = (1.0, 0.1)
"""In units of what rounding makes of a value."""
MANY, FEW = 22, 6
"""From so many tokens on only those few grids are tried that were the best before."""
WORTH = 1.25
"""More tokens must gain so much."""
POLISH = 0.3
"""How long keys are moved, in seconds of a usual processor."""

Box = tuple[tuple[float, float], ...]


def fit_accurate(
    programs: Sequence[Program], box: Sequence[tuple[float, float]], precision: Precision, max_tokens: int = 160
) -> Fit | None:
    """One head for all programs on the box, of nearly the smallest error that execution in this precision allows; None
    where a program may not be defined there, or is not finite."""
    return _fit(tuple(programs), tuple((float(low), float(high)) for low, high in box), precision, max_tokens)


def attained(found: Fit, precision: Precision) -> Array:
    """What each program is off by, rounding included: an estimate."""
    return np.asarray(found.error + found.rounding(precision))


@lru_cache(maxsize=1024)
def _fit(programs: tuple[Program, ...], box: Box, precision: Precision, max_tokens: int) -> Fit | None:
    if not all(defined_on(program, box) for program in programs):
        return None
    with np.errstate(all="ignore"):
        found = list(_of_one(programs, box[0], precision) if len(box) == 1 else _of_two(programs, box, precision))
    fits = [fit for fit in found if fit.tokens <= max_tokens and np.all(np.isfinite(fit.error))]
    best: Fit | None = None
    for fit in sorted(fits, key=lambda each: each.tokens):
        if best is None or WORTH * _relative(fit, precision) < _relative(best, precision):
            best = fit
    return best


def _relative(found: Fit, precision: Precision) -> float:
    """The largest error of all columns, each in units of its values."""
    sizes = np.maximum(np.max(np.abs(found.values), axis=0), 1e-300)
    units = np.ones(1) if len(sizes) == 1 else sizes
    return float(np.max(attained(found, precision) / units))


def _units(sizes: Array, precision: Precision) -> Array:
    """What rounding makes of functions of these sizes: the unit of all errors here."""
    known = np.where(np.isfinite(sizes) & (sizes > 0.0), sizes, 1.0)
    return np.asarray(precision.inside * (ROUNDINGS + USUAL_SCORE) * known)


# One variable -------------------------------------------------------------------------------------------------------


def _of_one(programs: tuple[Program, ...], interval: tuple[float, float], precision: Precision) -> Iterator[Fit]:
    def evaluate(points: Any) -> Any:
        return np.stack([program_values(program, points) for program in programs], axis=1)

    sizes = Curves(evaluate, *interval, np.ones(len(programs))).sizes
    if not np.all(np.isfinite(sizes)):
        return
    curves = Curves(evaluate, *interval, _units(sizes, precision), Meter(POLISH))
    exact = exact_table(programs)
    if exact is not None:
        yield curves.measured(*exact)
    stretch = np.array([1.0 + 2.0 * abs(curves.middle) / curves.half, 1.0])
    counts = (*TOKENS, *OSCILLATING_TOKENS) if len(curves.edges) > 32 else TOKENS
    heads: list[TableHead] = []
    places: list[int] | None = None
    for tokens in counts:
        head, ranked = _best(curves.problem, tokens, stretch, precision, places)
        heads.append(head)
        # Where no grid is near yet, the order of grids says nothing.
        near = head.worst < 0.1 * float(np.max(np.abs(head.problem.targets)))
        places = ranked if tokens >= MANY and near else None
    for head in heads:
        yield finished(curves, head, precision)
    least = min(heads, key=lambda head: _total(head, stretch, precision))
    yield finished(curves, descend(least, 100), precision)


def _best(
    problems: Callable[[int, float], Problem],
    tokens: int,
    stretch: Array,
    precision: Precision,
    places: Sequence[int] | None = None,
) -> tuple[TableHead, list[int]]:
    """The best head on all grids, or on those in these places, and the places of the best few."""
    unit = precision.inside * (ROUNDINGS + USUAL_SCORE)
    tasks = [(problem, keys) for problem in (problems(tokens, r * unit) for r in RIDGES) for keys in grids(tokens)]
    chosen = range(len(tasks)) if places is None else [place for place in places if place < len(tasks)]
    heads = {place: project(*tasks[place]) for place in chosen}
    ranked = sorted(heads, key=lambda place: _total(heads[place], stretch, precision))
    return heads[ranked[0]], ranked[:FEW]


def _total(head: TableHead, stretch: Array, precision: Precision) -> float:
    """Misfit and rounding, in units of the errors."""
    score = float(np.max(np.abs(head.keys), axis=0) @ stretch)
    total = head.worst + precision.inside * (ROUNDINGS + score) * float(np.max(np.abs(head.values)))
    return total if np.isfinite(total) else float("inf")


# Two variables ------------------------------------------------------------------------------------------------------


def _of_two(programs: tuple[Program, ...], box: Box, precision: Precision) -> Iterator[Fit]:
    surfaces = tuple(lambda x, y, program=program: program_values(program, x, y) for program in programs)
    if any(low == high for low, high in box):
        return
    whole = Patch(surfaces, box[0], box[1], np.ones(len(programs)), precision=precision)
    x, y = whole.axes(NODES)
    values = np.asarray(whole.function(x[:, None], y[None, :]), dtype=np.float64)
    units = _units(np.max(np.abs(values), axis=(0, 1)), precision)
    if not np.all(np.isfinite(values)):
        return
    patch = Patch(surfaces, box[0], box[1], units, precision=precision)
    targets = values / units
    inputs = with_ones(np.cos(np.linspace(0.0, np.pi, NODES)))
    stretches = [np.array([1.0 + 2.0 * abs(m) / h, 1.0]) for m, h in zip(patch.middles, patch.halves, strict=True)]
    columns = (targets.reshape(NODES, -1), targets.transpose(1, 0, 2).reshape(NODES, -1))
    for tokens in ALONG:
        on_x, on_y = (
            _best(partial(_problem, inputs, each), tokens, stretch, precision)[0]
            for each, stretch in zip(columns, stretches, strict=True)
        )
        yield tensor(patch, on_x, on_y)


def _problem(inputs: Array, targets: Array, tokens: int, ridge: float) -> Problem:
    return problem_of(inputs, targets, ridge)
