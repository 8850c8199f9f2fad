"""One table head for programs of the same one or two variables.

One variable: exactly, where softmax is the programs (plan/fit/exact.py); by moving all keys (plan/fit/curve.py); on an
even grid, where the programs oscillate (plan/fit/grid.py). Two variables: pairs of tokens, and scattered ones where
they save many (plan/fit/surface.py). Effort is limited, so that what cannot be done is known soon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.program import Call, Linear, Over, Program, Step, Times, defined_on, fault_of, program_values
from headsmith.core.rounding import FLOAT64, Precision
from headsmith.plan.fit.curve import Curves, Fit, fit_curves
from headsmith.plan.fit.exact import exact_table
from headsmith.plan.fit.grid import MOST, fit_grid, fit_tensor
from headsmith.plan.fit.points import MOST_CELLS
from headsmith.plan.fit.solve import Meter
from headsmith.plan.fit.surface import Patch, Products, fit_pairs, fit_scattered, products_of

EFFORT, PAIRS_EFFORT, AGAIN_EFFORT, SCATTERED_EFFORT = 1.7, 0.8, 0.2, 0.7  # in seconds of a usual processor
FEW_EXACT = 4  # tokens of an exact head that are not worth a search for fewer
MOST_MOVED = 64  # tokens whose keys are moved
OSCILLATING = 8  # cells of the functions
GRID_GAIN = 4  # a grid has about so many times the tokens of a head whose keys are moved
FEW_PRODUCTS = 4  # with so few, pairs of tokens are tried even where no grid does
SCATTERED_FROM = 9  # tokens of a separable head that are worth a search for fewer

Box = tuple[tuple[float, float], ...]


def fit_program(
    programs: Sequence[Program],
    box: Sequence[tuple[float, float]],
    errors: Sequence[float],
    *,
    max_tokens: int = 64,
    value_limit: float = math.inf,
    precision: Precision = FLOAT64,
    known: tuple[int, ...] = (),
) -> Fit | None:
    """One head for all `programs` on the box, each with its error, with the fewest tokens that were found.

    An estimate: error + rounding <= 0.97 of what was asked. None: a program may not be defined on the box, or no head
    with so few tokens and so small values was found. `known` are the sides of a head with larger values: keys along one
    axis that did with fewer tokens have been looked for already.
    """
    ranges = tuple((float(low), float(high)) for low, high in box)
    for low, high in ranges:
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(f"cannot fit on [{low}, {high}]: the interval must be finite, its low end first")
    if len(errors) != len(programs) or not all(error > 0.0 for error in errors):
        raise ValueError(f"cannot fit {len(programs)} programs to the errors {list(errors)}: each must be positive")
    for program in programs:
        fault = fault_of(program)
        if fault is not None or program.variables != len(ranges):
            raise ValueError(fault or f"a program of {program.variables} variables has no values on {ranges}")
    return _fit(tuple(programs), ranges, tuple(map(float, errors)), max_tokens, value_limit, precision, known)


@lru_cache(maxsize=1024)
def _fit(
    programs: tuple[Program, ...],
    box: Box,
    errors: tuple[float, ...],
    max_tokens: int,
    value_limit: float,
    precision: Precision,
    known: tuple[int, ...],
) -> Fit | None:
    if not all(defined_on(program, box) for program in programs):
        return None
    if len(box) == 1:
        return _of_one(programs, box[0], errors, max_tokens, value_limit, precision, known)
    for axis, (low, high) in enumerate(box):
        if low == high:
            thin = tuple(_restricted(program, axis, low) for program in programs)
            found = _of_one(thin, box[1 - axis], errors, max_tokens, value_limit, precision, known)
            return None if found is None else _with_axis(found, axis)
    effort = Meter(AGAIN_EFFORT if known else PAIRS_EFFORT)
    patch = Patch(_surfaces(programs), box[0], box[1], np.array(errors), value_limit, precision, effort)
    return _of_two(programs, patch, max_tokens, known)


# One variable -------------------------------------------------------------------------------------------------------


def _of_one(
    programs: tuple[Program, ...],
    interval: tuple[float, float],
    errors: tuple[float, ...],
    max_tokens: int,
    value_limit: float,
    precision: Precision,
    known: tuple[int, ...],
) -> Fit | None:
    def evaluate(points: Any) -> Any:
        return np.stack([program_values(program, points) for program in programs], axis=1)

    curves = Curves(evaluate, *interval, np.array(errors), Meter(EFFORT))
    limits = np.full(len(errors), value_limit)
    best = _exact(programs, curves, max_tokens, value_limit, precision)
    if best is not None and best.tokens <= FEW_EXACT:
        return best
    fewer = max_tokens if best is None else best.tokens - 1
    least = 1
    if _oscillating(curves):
        grid = fit_grid(curves, MOST, limits, precision)
        if grid is None and len(curves.edges) > MOST_CELLS:
            return best
        if grid is not None and grid.tokens <= fewer:
            best, fewer = grid, grid.tokens - 1
        least = 1 if grid is None else max(1, grid.tokens // GRID_GAIN)
        if least > MOST_MOVED:
            return best
    return fit_curves(curves, min(fewer, MOST_MOVED), limits, precision, least, *known) or best


def _oscillating(curves: Curves) -> bool:
    """Whether the functions need many cells, all of about one size."""
    if not np.all(np.isfinite(curves.sizes)) or len(curves.edges) <= OSCILLATING:
        return False
    widths = np.diff(curves.edges)
    return bool(np.max(widths) <= 8.0 * np.min(widths))


def _exact(
    programs: tuple[Program, ...], curves: Curves, max_tokens: int, value_limit: float, precision: Precision
) -> Fit | None:
    table = exact_table(programs)
    if table is None or len(table[0]) > max_tokens:
        return None
    found = curves.measured(*table)
    return found if found.largest_value <= value_limit and curves.met_by(found, precision) else None


# Two variables ------------------------------------------------------------------------------------------------------


def _surfaces(programs: tuple[Program, ...]) -> tuple[Any, ...]:
    return tuple(lambda x, y, program=program: program_values(program, x, y) for program in programs)


def _of_two(programs: tuple[Program, ...], patch: Patch, max_tokens: int, known: tuple[int, ...]) -> Fit | None:
    given = _known_products(programs, patch)
    grid = fit_tensor(patch, GRID_GAIN * max_tokens) if given is None else None
    products = (given or products_of(patch)) if len(known) != 1 else None  # pairs had more tokens than what is known
    best = grid if grid is not None and grid.tokens <= max_tokens else None
    if products is not None and (grid is not None or len(products.owners) <= FEW_PRODUCTS):
        fewer = max_tokens if best is None else best.tokens - 1
        least = (1, 1) if grid is None else (_distinct(grid.alpha) // GRID_GAIN, _distinct(grid.beta) // GRID_GAIN)
        best = fit_pairs(patch, products, fewer, least, known if len(known) == 2 else (1, 1)) or best
    if best is not None and best.tokens < SCATTERED_FROM:
        return best
    fewer = max_tokens if best is None else best.tokens - 1
    return fit_scattered(replace(patch, meter=Meter(SCATTERED_EFFORT)), None, fewer) or best


def _distinct(keys: Array | None) -> int:
    return len(np.unique(keys)) if keys is not None else 1


def _known_products(programs: tuple[Program, ...], patch: Patch) -> Products | None:
    """x y and x / y are products of a function of x and a function of y as they stand."""
    match programs:
        case (Program(2, (Times(0, 1) | Times(1, 0),)),):
            right = _identity
        case (Program(2, (Over(0, 1),)),):
            right = _reciprocal
        case _:
            return None
    (x_low, x_high), (y_low, y_high) = patch.x_range, patch.y_range
    left_size = np.array([max(abs(x_low), abs(x_high))])
    ends = np.abs(right(np.array([y_low, y_high])))
    return Products(_identity, right, left_size, np.max(ends, axis=0), np.zeros(1, dtype=np.int64))


def _identity(points: Any) -> Any:
    return points[:, None]


def _reciprocal(points: Any) -> Any:
    return 1 / points[:, None]


def _restricted(program: Program, axis: int, value: float) -> Program:
    """The program of the other variable alone: a first step makes the constant, in the place of the second variable."""

    def moved(operand: int) -> int:
        return 1 - operand if axis == 0 and operand < 2 else operand

    def step_of(step: Step) -> Step:
        match step:
            case Linear():
                return Linear(tuple((share, moved(operand)) for share, operand in step.terms), step.constant)
            case Call():
                return Call(step.name, moved(step.operand), step.parameter)
            case Times():
                return Times(moved(step.left), moved(step.right))
            case Over():
                return Over(moved(step.numerator), moved(step.denominator))

    return Program(1, (Linear((), Fraction(value)), *map(step_of, program.steps)))


def _with_axis(found: Fit, axis: int) -> Fit:
    """A head of one variable as a head of two that ignores `axis`."""
    flat = frozen(np.zeros(found.tokens))
    return replace(found, alpha=found.alpha if axis == 1 else flat, beta=flat if axis == 1 else found.alpha)
