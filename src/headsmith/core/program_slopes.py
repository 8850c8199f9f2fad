"""The ranges of the partial derivatives of a program over a box, over Arb.

On a cell the derivative by the variable i is enclosed twice: by a run with balls for the variables, and from its value
at the centre and its own derivatives over the cell (mean value form). Where these keep their sign, only a face counts.
The cell that makes the range widest is halved, until what is attained at centres and corners is near, or cells run out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import product
from math import inf
from typing import Any

from flint import arb

from headsmith.core.balls import PRECISION_BITS, Ball, lower_float, precision, upper_float
from headsmith.core.program import Program, kernel_program
from headsmith.kernel.core.functions import Program as KernelProgram
from headsmith.kernel.core.functions import program_series, working

MOST_CELLS, MOST_SINGULAR = 400, 80
SLACK = 0.02
"""The range may exceed what is attained by this part of the largest slope."""

Ranges = tuple[tuple[float, float], ...]


def program_slopes(program: Program, box: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(low, high) for each variable: bounds of the partial derivative over the box.

    Guarantee: low <= df/ds_i <= high for all s of the box; (-inf, inf) where no finite bound was found.
    """
    return list(_slopes(program, tuple((float(low), float(high)) for low, high in box)))


@lru_cache(maxsize=1024)
def _slopes(program: Program, box: Ranges) -> Ranges:
    with precision(PRECISION_BITS):
        return tuple(_slope(program, box, axis) for axis in range(program.variables))


def _slope(program: Program, box: Ranges, axis: int) -> tuple[float, float]:
    """Best first, for the high end and for the low end: the cell whose bound is worst is halved."""
    ends = [_mirrored(program, box, axis, sign) for sign in (-1, 1)]
    low, high = -ends[0], ends[1]
    return (low, high) if -inf < low <= high < inf else (-inf, inf)


def _mirrored(program: Program, box: Ranges, axis: int, sign: int) -> float:
    """An upper bound of sign * df/ds_axis."""
    corners = [_at(program, [arb(end) for end in corner], axis) * sign for corner in product(*box)]
    seen = max(lower_float(corner) if corner.is_finite() else -inf for corner in corners)
    cells: list[tuple[float, int, Ranges, int]] = []
    count = 0
    pending = [box]
    while True:
        for cell in pending:
            bound, attained, face, widest = _bound(program, cell, axis, sign)
            seen = max(seen, attained)
            heappush(cells, (-bound, count, face, widest))
            count += 1
        worst = -cells[0][0]
        if count >= (MOST_SINGULAR if worst == inf else MOST_CELLS) or worst <= seen + SLACK * abs(seen) + 1e-300:
            return worst
        _, _, cell, widest = heappop(cells)
        pending = _halves(cell, widest)
        if not pending:
            return worst


def _bound(program: Program, cell: Ranges, axis: int, sign: int) -> tuple[float, float, Ranges, int]:
    """An upper bound on the cell, the value at the centre of the face that counts, that face, what to halve."""
    whole = [arb(low).union(arb(high)) for low, high in cell]
    centre = [(arb(low) + arb(high)) / 2 for low, high in cell]
    offsets = [ball - middle for ball, middle in zip(whole, centre, strict=True)]
    middle = _at(program, centre, axis) * sign
    direct, bends = _second(program, whole, axis)
    face = tuple(_face(*ends, bend * sign) for ends, bend in zip(cell, bends, strict=True))
    if face != cell:
        return _bound(program, face, axis, sign)
    moves = [bend * offset * sign for bend, offset in zip(bends, offsets, strict=True)]
    bounds = [ball for ball in (direct * sign, middle + sum(moves)) if ball.is_finite()]
    attained = lower_float(middle) if middle.is_finite() else -inf
    sizes = [upper_float(abs(move)) for move in moves]
    widest = max(range(len(cell)), key=lambda i: (sizes[i], cell[i][1] - cell[i][0]))
    return min(map(upper_float, bounds), default=inf), attained, cell, widest


def _face(low: float, high: float, rise: Ball) -> tuple[float, float]:
    """Where the derivative is largest along one variable: an end, if it is monotone."""
    return (high, high) if rise >= 0 else (low, low) if rise <= 0 else (low, high)


def _at(program: Program, place: Sequence[Ball], axis: int) -> Ball:
    return _series(program, [(s, arb(number == axis)) for number, s in enumerate(place)], 2)[1]


def _series(program: Program, lines: Sequence[tuple[Ball, Ball]], length: int) -> list[Ball]:
    with working(PRECISION_BITS, length):
        return program_series(_with_squares(program), lines, length)


@lru_cache(maxsize=1024)
def _with_squares(program: Program) -> KernelProgram:
    """x x as the square of x: what is multiplied with itself has no second range."""
    known = kernel_program(program)
    steps = (("call", "square", s[1], None) if s[0] == "times" and s[1] == s[2] else s for s in known.steps)
    return KernelProgram(known.variables, tuple(steps))


def _second(program: Program, place: Sequence[Ball], axis: int) -> tuple[Ball, list[Ball]]:
    """df/ds_axis and its derivatives. With f(s + t h) = f + t p_1(h) + t^2 p_2(h) + ... and steps i, j along the axes:
    d2f/di^2 = 2 p_2(i), and d2f/di dj = p_2(i + j) - p_2(i) - p_2(j).
    """

    def along(*axes: int) -> list[Ball]:
        return _series(program, [(s, arb(number in axes)) for number, s in enumerate(place)], 3)

    _, slope, square = along(axis)
    bends: list[Any] = [2 * square] * len(place)
    for other in range(len(place)):
        if other != axis:
            bends[other] = along(axis, other)[2] - square - along(other)[2]
    return slope, bends


def _halves(cell: Ranges, axis: int) -> list[Ranges]:
    low, high = cell[axis]
    middle = low / 2.0 + high / 2.0
    if not low < middle < high:
        return []
    return [(*cell[:axis], part, *cell[axis + 1 :]) for part in ((low, middle), (middle, high))]
