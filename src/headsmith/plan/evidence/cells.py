"""Cells that make the kernel's bounds tight: of table heads, and of circuits of one variable.

Nothing here is trusted. Both searches call the kernel's own rule forwards: cells whose bound is not within a factor of
an error that is attained are halved, and the tree (or the sorted list of ends) is what a proof carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import comb
from typing import Any

import numpy as np

from headsmith.kernel.core.arithmetic import Array, Interval, interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.functions import enclose
from headsmith.kernel.core.table import (
    MOST_CELLS,
    MOST_PRODUCTS,
    Cell,
    Expansion,
    Table,
    bound,
    expand,
    halves,
    polynomial_range,
)
from headsmith.kernel.rules.chord import MOST_ENDS, Curve, on_cells

TIGHTNESS, SLOPE_TIGHTNESS = 1.01, 1.05
FLOOR = 1e-25
SLOPE_FLOOR = 1e-9
SLOPE_SHARE = 0.01
UNIT_ROUNDOFF = 2.0**-53

Tree = dict[Cell, int]
"""Which variable each cell is cut along, counted from 1; 0 for those that are not cut."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a table head for kernel.table.check_table, as a tree in pre-order, and the bounds that it finds on
    them: of the error of each column, and of its slope by each variable (columns, 1 + variables)."""

    text: str
    bounds: Interval


def table_cells(
    table: Table, *, tightness: float = TIGHTNESS, floor: float | None = None, margin: float = np.inf
) -> Cells:
    """Cells on which bounds of errors are within `tightness` of what is attained, and those of slopes within
    SLOPE_TIGHTNESS; or below `floor`: by default a thousandth of what rounding the values costs, since errors below
    need no proof of their own. What the head reads is off by at most `margin`: slopes that are wrong by less than a
    small part of the error over it do not matter."""
    if floor is None:
        floor = max(FLOOR, 1e-3 * UNIT_ROUNDOFF * float(np.max(np.abs(table.values))))
    return _remembered(_Key(table), tightness, floor, margin)


class _Key:
    """A table that is equal to others of the same numbers and programs on about the same box. Cells are parts of a box,
    and the kernel computes bounds on them anew: boxes that were rounded in different ways share them."""

    def __init__(self, table: Table) -> None:
        low, width = table.box[:, 0], np.float32(table.box[:, 1] - table.box[:, 0])
        places = np.where(width > 0.0, np.round(low / np.where(width > 0.0, width, 1.0) * 2.0**20), low)
        arrays = (table.slopes, table.offsets, table.values, width, places)
        self.table, self.key = table, (tuple(table.programs), *((array.shape, array.tobytes()) for array in arrays))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1024)
def _remembered(key: _Key, tightness: float, floor: float, margin: float) -> Cells:
    """Planning and proving ask for the same tables."""
    table = key.table
    lowest = np.full((len(table.programs), 1 + len(table.box)), floor)
    sizes = np.max(np.abs(table.values), axis=0)
    lowest[:, 1:] += SLOPE_FLOOR * sizes[:, None] * np.max(np.abs(table.slopes), axis=0)
    return _refined(table, lowest, tightness, margin)


def _refined(table: Table, floor: Array, tightness: float, margin: float) -> Cells:
    tree: Tree = {}
    lowest, highest = np.full_like(floor, np.inf), np.full_like(floor, -np.inf)
    level: list[Cell] = [((0, 0),) * len(table.box)]
    seen_low, seen_high = np.full_like(floor, np.inf), np.full_like(floor, -np.inf)
    factor = 0.98 * (np.array([tightness] + [SLOPE_TIGHTNESS] * len(table.box)) - 1.0)
    most = min(MOST_CELLS, MOST_PRODUCTS // (4 * table.products))
    while level:
        if sum(axis == 0 for axis in tree.values()) + len(level) > most:
            raise Refused(
                "no bound of a table head is near its error: what it computes may be singular at the edge of its "
                "range, or nearly so. Ask for another recipe, or for a smaller domain"
            )
        known = expand(table, level)
        found = bound(table, known)
        low, high = _attained(known, found)
        seen_low, seen_high = np.minimum(seen_low, low), np.maximum(seen_high, high)
        slack = factor * np.maximum(np.maximum(-seen_low, seen_high), 0.0)
        low, high = np.minimum(seen_low - slack, -floor), np.maximum(seen_high + slack, floor)
        room = SLOPE_SHARE * np.maximum(-low, high)[:, :1] / margin if margin > 0.0 else np.inf
        low[:, 1:], high[:, 1:] = low[:, 1:] - room, high[:, 1:] + room
        wide = np.maximum(found.high - high, low - found.low)
        axes = np.where(np.all(wide <= 0.0, axis=(1, 2)), 0, 1 + _axis(table, known, found, wide, high - low))
        tree.update(zip(level, axes.tolist(), strict=True))
        lowest = np.minimum(lowest, found.low[axes == 0].min(axis=0, initial=np.inf))
        highest = np.maximum(highest, found.high[axes == 0].max(axis=0, initial=-np.inf))
        level = [
            half for cell, axis in zip(level, axes.tolist(), strict=True) if axis for half in halves(cell, axis - 1)
        ]
    return Cells(written(tree, len(table.box)), Interval(lowest, highest))


def _polynomials(known: Expansion) -> tuple[list[Array], list[Any]]:
    """G - F, and the slopes of G by each variable in the unit box: coefficients and exponents, nearly."""
    exponents = known.exponents
    found, powers = [known.difference.low], [exponents]
    for variable, step in enumerate(np.eye(exponents.shape[1], dtype=int)):
        which = exponents[:, variable] > 0
        found.append(known.head.low[..., which] * exponents[which, variable])
        powers.append(exponents[which] - step)
    return found, powers


def _attained(known: Expansion, found: Interval) -> tuple[Array, Array]:
    """Values that are attained: those of the polynomials at corners and centres, less what was cut off."""
    variables = known.exponents.shape[1]
    points = np.array(list(product((-1.0, 0.0, 1.0), repeat=variables)))
    low, high = [], []
    for number, (polynomial, exponents) in enumerate(zip(*_polynomials(known), strict=True)):
        scale = known.radius.low[:, number - 1][:, None] if number else np.ones((len(found.low), 1))
        values = polynomial @ np.prod(points[:, None] ** exponents, axis=2).T / scale[..., None]
        whole = polynomial_range(Interval(polynomial, polynomial), exponents)
        cut = 0.5 * ((found.high - found.low)[..., number] - (whole.high - whole.low) / scale)
        low.append(np.min(np.nan_to_num(values.min(axis=-1) + cut, nan=np.inf), axis=0))
        high.append(np.max(np.nan_to_num(values.max(axis=-1) - cut, nan=-np.inf), axis=0))
    return np.stack(low, axis=-1), np.stack(high, axis=-1)


def _axis(table: Table, known: Expansion, found: Interval, wide: Array, allowed: Array) -> Any:
    """Which variable to cut along: the one whose halves promise the best bounds of errors, or that moves slopes most.

    The polynomials are moved to the halves. What was cut off from the function is charged to variables by the powers of
    the highest degree, and what was cut off from the head by the slopes of the tokens that make it.
    """
    exponents = known.exponents
    if exponents.shape[1] == 1:
        return np.zeros(len(wide), dtype=int)
    degrees = exponents.sum(axis=1)
    order = degrees[-1] + 1
    with np.errstate(all="ignore"):
        of_function = np.abs(known.head.low[..., degrees == degrees[-1]]) @ exponents[degrees == degrees[-1]]
        spread = np.abs(table.slopes - known.mean.low[:, None]) * known.radius.high[:, None]
        every = spread.sum(axis=2)
        heavy = known.weights.value * np.exp(every) * every ** (order - 1)
        of_head = np.einsum("nk,nki->ni", heavy, spread)[:, None]
        whole = polynomial_range(known.difference, exponents)
        rest = known.rest.value
        cut = 0.5 * ((found.high - found.low)[..., 0] - (whole.high - whole.low)) - rest
        excess = []
        for axis in range(exponents.shape[1]):
            left = cut * 0.5 ** (order * _share(of_head, axis)) + rest * 0.5 ** (order * _share(of_function, axis))
            moved = [polynomial_range(_moved(known.difference, exponents, axis, side), exponents) for side in (-1, 1)]
            width = np.max([each.high - each.low for each in moved], axis=0) + 2.0 * left
            excess.append(np.max(width / allowed[:, 0], axis=1))
        # Where only slopes are too wide: the variable that moves the worst of them most.
        worst = np.argmax(np.max(wide / allowed, axis=1)[:, 1:], axis=1)
        moves = [
            np.max(np.abs(each), axis=1) @ powers for each, powers in list(zip(*_polynomials(known), strict=True))[1:]
        ]
        by_slope = np.argmax(np.nan_to_num(np.stack(moves)[worst, np.arange(len(worst))]), axis=-1)
    by_error = np.argmin(np.nan_to_num(excess, nan=1e100, posinf=1e100), axis=0)
    # Where nothing is known of either half: the wider of the two.
    by_error = np.where(np.isfinite(excess).any(axis=0), by_error, np.argmax(known.radius.high, axis=1))
    return np.where(np.any(wide[..., 0] > 0.0, axis=1), by_error, by_slope)


def _share(parts: Array, axis: int) -> Array:
    return np.asarray(parts[..., axis] / parts.sum(axis=-1))


def _moved(polynomial: Interval, exponents: Any, axis: int, side: int) -> Interval:
    """The polynomial on a half of the unit box: x -> (side + x) / 2. Nearly."""
    matrix = np.zeros((len(exponents), len(exponents)))
    for number, powers in enumerate(exponents):
        for n in range(powers[axis] + 1):
            to = powers - (powers[axis] - n) * np.eye(len(powers), dtype=int)[axis]
            place = int(np.flatnonzero((exponents == to).all(axis=1))[0])
            matrix[number, place] = comb(powers[axis], n) * side ** int(powers[axis] - n) * 0.5 ** powers[axis]
    moved = polynomial.low @ matrix
    return Interval(moved, moved)


def written(tree: Tree, variables: int) -> str:
    """A tree in pre-order: 0 for a cell, i for a cut along variable i."""
    text, stack = [], [((0, 0),) * variables]
    while stack:
        cell = stack.pop()
        text.append(str(tree[cell]))
        if tree[cell]:
            stack += halves(cell, tree[cell] - 1)[::-1]
    return "".join(text)


# Circuits of one variable -------------------------------------------------------------------------------------------

CHORD_TIGHTNESS = 1.002
ROUNDS = 60


def chord_ends(curve: Curve) -> Array:
    """The ends of cells for kernel.chord.check_curve: where the circuit has kinks, and halves where the bound is not
    yet within CHORD_TIGHTNESS of an error that is attained."""
    ends = _kinks(curve)
    for _ in range(ROUNDS):
        found, values, deviations = on_cells(curve, ends)
        last = max(curve.nodes)
        error = values[last] - enclose(curve.program, interval(ends))
        seen = np.array([error.high.min(), error.low.max()])
        slack = (CHORD_TIGHTNESS - 1.0) * np.max(np.abs(seen)) + 2.1 * deviations[last].value
        # What is not known better at the ends of a cell is not known better inside.
        low = np.minimum(seen[0], np.minimum(error.low[:, :-1], error.low[:, 1:])) - slack
        high = np.maximum(seen[1], np.maximum(error.high[:, :-1], error.high[:, 1:])) + slack
        unclear = np.any((found.low < low) | (found.high > high), axis=0)
        width, spacing = np.diff(ends), np.spacing(np.maximum(np.abs(ends[:-1]), np.abs(ends[1:])))
        unclear &= width > 8.0 * spacing
        if not unclear.any() or len(ends) + np.count_nonzero(unclear) > MOST_ENDS:
            break
        ends = np.unique(np.concatenate([ends, (ends[:-1] + 0.5 * width)[unclear]]))
    return ends


def _kinks(curve: Curve) -> Array:
    """Where the circuit changes slope, as far as floating point can tell; with both ends of the interval."""
    low, high = curve.low, curve.high
    points = np.unique(np.array([low, high], dtype=np.float64)) if low < high else np.array([low, high])
    for number, node in curve.nodes.items():
        if node.kind == "relu":
            argument = _values(curve, points, number)[node.arguments[0]]
            left, right = argument[:, :-1], argument[:, 1:]
            row, cell = np.nonzero(np.sign(left) * np.sign(right) < 0.0)
            start, end, before, after = points[cell], points[cell + 1], left[row, cell], right[row, cell]
            fresh = (start + (end - start) * (before / (before - after))).astype(np.float64)
            points = np.unique(np.concatenate([points, fresh[(fresh > start) & (fresh < end)]]))
            if len(points) > MOST_ENDS:
                raise Refused(f"the circuit has more than {MOST_ENDS} pieces on [{low}, {high}]")
    return points


def _values(curve: Curve, points: Array, before: int) -> dict[int, Any]:
    """All nodes before one at points, in the machine's widest floating point."""
    zero, wide_points = np.zeros((curve.size, len(points)), np.longdouble), points.astype(np.longdouble)
    known = {each: zero + (wide_points if held is None else held) for each, held in curve.arguments.items()}
    for number, node in ((number, node) for number, node in curve.nodes.items() if number < before):
        if node.kind == "relu":
            known[number] = np.maximum(known[node.arguments[0]], 0.0)
            continue
        total = np.repeat(node.constants.astype(np.longdouble)[:, None], len(points), axis=1)
        for source, weights in zip(node.arguments, node.weights, strict=True):
            wide = weights.astype(np.longdouble)
            total = total + (wide[:, None] * known[source] if wide.ndim == 1 else wide @ known[source])
        known[number] = total
    return known
