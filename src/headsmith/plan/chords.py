"""A rigorous bound for any piecewise linear circuit of one variable against the function that it stands for.

The circuit's own weights are used, no closed form is believed. On a cell [l, r] every node is described by its chord
and a deviation:

    |v(t) - chord through (l, v_l), (r, v_r)| <= deviation         for all t in the cell.

Affine nodes keep that form: their deviation is the sum of |W| times the deviations that they read, and the rounding of
the values at the ends. A gate whose chord keeps its sign by more than the deviation is the chord, or zero. Every other
gate adds at most min(|v_l|, |v_r|) to the deviation, which is tiny where the cell ends at the kink. The ends of cells
are found by following the kinks in floating point; if an end is a little off, the bound is wider, and still true.

Against f:  chord_f - f = f''(xi)/2 (t - l)(r - t), so circuit - f lies between two parabolas whose extremes are known.
            Where f'' is not bounded (sqrt at 0), the ranges of both on the cell are compared instead.

Cells are halved until the bound is within `TIGHTNESS`
of an error that is attained.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, TooManyPiecesError
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval
from headsmith.core.rounding import FLOAT64, upper
from headsmith.language.graph import Affine, Graph, Input, Relu

TIGHTNESS = 1.002
ROUNDS = 60
MOST_CELLS = 1 << 19

WIDE = np.longdouble
"""Values at cell ends are computed in extended precision where the machine has it."""

WIDE_ROUNDOFF = float(np.finfo(WIDE).eps) / 2.0


@dataclass(frozen=True, eq=False)
class Checked:
    """circuit - f lies in [low, high] on the interval; `ranges` encloses every node of the circuit there; `ends` are
    those of cells on which that is seen."""

    low: float
    high: float
    ranges: tuple[Interval, ...]
    ends: Array


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells as arrays: both ends, the circuit's values there, its deviation from the chord, and bounds of f at the
    ends."""

    left: Array
    right: Array
    value_left: Array
    value_right: Array
    deviation: Array
    f_left: tuple[Array, Array]
    f_right: tuple[Array, Array]

    def __getitem__(self, which: Any) -> Cells:
        return Cells(
            self.left[which],
            self.right[which],
            self.value_left[which],
            self.value_right[which],
            self.deviation[which],
            (self.f_left[0][which], self.f_left[1][which]),
            (self.f_right[0][which], self.f_right[1][which]),
        )


@lru_cache(maxsize=4096)
def check_circuit(graph: Graph, low: float, high: float, name: str, parameter: float | None = None) -> Checked:
    """Enclose circuit - f over [low, high].

    Guarantee: for every real t in [low, high], circuit(t) - f(t) lies in [result.low, result.high] (exact arithmetic on
    the circuit's stored weights).
    """
    ends = _kinks(graph, low, high)
    values, deviations = _chords(graph, ends)
    bounds, cells = _compare(ends, values[graph.output][:, 0], deviations[graph.output][:, 0], name, parameter)
    if not np.isfinite(bounds).all():
        raise CertificateError(f"no finite bound for {name} on [{low}, {high}]")
    found = []
    for value, deviation in zip(values, deviations, strict=True):
        low_end, high_end = value.min(axis=0).astype(np.float64), value.max(axis=0).astype(np.float64)
        found.append(
            Interval(np.nextafter(low_end, -np.inf), np.nextafter(high_end, np.inf)).inflated(deviation.max(axis=0))
        )
    return Checked(float(bounds[0]), float(bounds[1]), tuple(found), cells)


# The circuit, cell by cell --------------------------------------------------------------------------------------------


def _kinks(graph: Graph, low: float, high: float) -> Array:
    """Where the circuit changes slope, as far as floating point can tell; with both ends of the interval."""
    points = np.unique(np.array([low, high], dtype=np.float64))
    values: list[Any] = []
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Relu):
            fresh = np.setdiff1d(_crossings(points, values[node.argument]), points)
            if len(fresh):
                points, values = _merged(graph, number, points, values, fresh)
            if len(points) > MOST_CELLS:
                raise TooManyPiecesError(f"the circuit has more than {MOST_CELLS} pieces on [{low}, {high}]")
        values.append(_value(node, points, values))
    return points


def _crossings(points: Array, argument: Any) -> Array:
    """The zeros, strictly inside cells, of nodes that are linear on each cell."""
    left, right = argument[:-1], argument[1:]
    cell, column = np.nonzero(np.sign(left) * np.sign(right) < 0.0)
    before, after = left[cell, column], right[cell, column]
    start, end = points[cell], points[cell + 1]
    fresh = start + (end - start) * (before / (before - after))
    return np.asarray(fresh[(fresh > start) & (fresh < end)])


def _merged(graph: Graph, upto: int, points: Array, values: list[Any], fresh: Array) -> tuple[Array, list[Any]]:
    new: list[Any] = []
    for node in graph.nodes[:upto]:
        new.append(_value(node, fresh, new))
    order = np.argsort(np.concatenate([points, fresh]), kind="stable")
    merged = [np.concatenate([old, extra])[order] for old, extra in zip(values, new, strict=True)]
    return np.concatenate([points, fresh])[order], merged


def _value(node: Any, points: Any, values: list[Any]) -> Any:
    match node:
        case Input():
            return points[:, None]
        case Relu():
            return np.maximum(values[node.argument], 0.0)
        case Affine():
            total = np.broadcast_to(node.bias.astype(points.dtype), (len(points), node.size))
            for term in node.terms:
                total = total + _times(values[term.node], term.weights)
            return total
    raise CertificateError("a circuit has affine and relu nodes only")


def _times(values: Any, weights: Array) -> Any:
    weights = weights.astype(values.dtype)
    return values * weights if weights.ndim == 1 else values @ weights.T


def _chords(graph: Graph, ends: Array) -> tuple[list[Any], list[Array]]:
    """Values at the ends and deviations on the cells, of every node."""
    values: list[Any] = []
    deviations: list[Array] = []
    for node in graph.nodes:
        match node:
            case Affine():
                deviation = _affine_deviation(node, values, deviations)
            case Relu():
                deviation = _gate_deviation(values[node.argument], deviations[node.argument])
            case _:
                deviation = np.zeros((max(len(ends) - 1, 1), node.size))
        values.append(_value(node, ends.astype(WIDE), values))
        deviations.append(deviation)
    return values, deviations


def _affine_deviation(node: Affine, values: list[Any], deviations: list[Array]) -> Array:
    cells = len(deviations[0])
    total = np.zeros((cells, node.size))
    size = np.broadcast_to(np.abs(node.bias), (len(values[0]), node.size))
    count = 3
    for term in node.terms:
        weights = np.abs(term.weights)
        total = total + _times(deviations[term.node], weights)
        size = size + _times(np.abs(values[term.node]).astype(np.float64), weights)
        count += term.weights.shape[-1] + 1
    rounding = 1.01 * count * WIDE_ROUNDOFF * np.maximum(*_both_ends(size))
    return np.asarray(upper(total + rounding, 2 * count + 4))


def _gate_deviation(argument: Any, deviation: Array) -> Array:
    left, right = _both_ends(argument)
    active = np.minimum(left, right) >= deviation
    dead = np.maximum(left, right) <= -deviation
    opposite = np.sign(left) * np.sign(right) < 0.0
    crossing = np.where(opposite, np.minimum(np.abs(left), np.abs(right)), 0.0).astype(np.float64)
    mixed = upper(deviation + crossing, 3)
    return np.asarray(np.where(active, deviation, np.where(dead, 0.0, mixed)))


def _both_ends(values: Any) -> tuple[Any, Any]:
    return (values[:-1], values[1:]) if len(values) > 1 else (values, values)


# Against the function -------------------------------------------------------------------------------------------------


def _compare(
    ends: Array, wide_values: Any, deviation: Array, name: str, parameter: float | None
) -> tuple[Array, Array]:
    """[min, max] of circuit - f over all cells, halving the cells that decide until the answer is tight; and the ends
    of all cells."""
    every = [ends]
    values = wide_values.astype(np.float64)
    f_low, f_high = FUNCTIONS[name].enclose(ends, ends, 0, parameter)
    (low_left, low_right), (high_left, high_right) = _both_ends(f_low), _both_ends(f_high)
    deviation = upper(deviation + FLOAT64.unit_roundoff * np.maximum(*_both_ends(np.abs(values))), 2)
    cells = Cells(*_both_ends(ends), *_both_ends(values), deviation, (low_left, high_left), (low_right, high_right))
    # An error that is attained, up to the deviation: from the ends of cells.
    seen = (float(np.min(values - f_high)), float(np.max(values - f_low)))
    done = (np.inf, -np.inf)
    for _ in range(ROUNDS):
        below, above = _cell_bounds(cells, name, parameter)
        slack = (TIGHTNESS - 1.0) * max(abs(seen[0]), abs(seen[1])) + 2.1 * cells.deviation
        wide = cells.right - cells.left > 8.0 * np.spacing(np.maximum(np.abs(cells.left), np.abs(cells.right)))
        unclear = wide & ((below < seen[0] - slack) | (above > seen[1] + slack))
        if not unclear.any() or np.count_nonzero(unclear) > MOST_CELLS:
            break
        done = _union(done, below[~unclear], above[~unclear])
        cells, seen = _halved(cells[unclear], seen, name, parameter)
        every.append(np.union1d(cells.left, cells.right))
        below, above = _cell_bounds(cells, name, parameter)
    done = _union(done, below, above)
    bounds = np.array([np.nextafter(done[0], -np.inf), np.nextafter(done[1], np.inf)])
    return bounds, ends if len(every) == 1 else np.unique(np.concatenate(every))


def _union(bounds: tuple[float, float], below: Array, above: Array) -> tuple[float, float]:
    return float(np.min(below, initial=bounds[0])), float(np.max(above, initial=bounds[1]))


def _halved(
    cells: Cells, seen: tuple[float, float], name: str, parameter: float | None
) -> tuple[Cells, tuple[float, float]]:
    """Halve cells; the circuit's value in the middle is its chord's, up to the deviation."""
    middle = cells.left + 0.5 * (cells.right - cells.left)
    share = (middle - cells.left) / (cells.right - cells.left)
    rise = cells.value_right - cells.value_left
    value = cells.value_left + rise * share
    # The share and the value given to the middle are rounded: that moves the chord by a few units in the last place.
    rounding = 8.0 * FLOAT64.unit_roundoff * (np.abs(cells.value_left) + np.abs(cells.value_right) + np.abs(rise))
    deviation = upper(cells.deviation + rounding, 2)
    f_low, f_high = FUNCTIONS[name].enclose(middle, middle, 0, parameter)
    seen = (
        min(seen[0], float(np.min(value + deviation - f_high))),
        max(seen[1], float(np.max(value - deviation - f_low))),
    )

    def both(first: Array, second: Array) -> Array:
        return np.concatenate([first, second])

    halves = Cells(
        both(cells.left, middle),
        both(middle, cells.right),
        both(cells.value_left, value),
        both(value, cells.value_right),
        both(deviation, deviation),
        (both(cells.f_left[0], f_low), both(cells.f_left[1], f_high)),
        (both(f_low, cells.f_right[0]), both(f_high, cells.f_right[1])),
    )
    return halves, seen


def _cell_bounds(cells: Cells, name: str, parameter: float | None) -> tuple[Array, Array]:
    """Bounds of circuit - f on each cell: two parabolas, or plain ranges where those are better."""
    function = FUNCTIONS[name]
    second_low, second_high = function.enclose(cells.left, cells.right, 2, parameter)
    f_low, f_high = function.enclose(cells.left, cells.right, 0, parameter)
    half = upper((cells.right - cells.left) ** 2 * 0.5, 6)
    with np.errstate(invalid="ignore", over="ignore"):
        upwards = np.where(second_high > 0.0, half * second_high, 0.0)
        downwards = np.where(second_low < 0.0, half * -second_low, 0.0)
    above = _top(cells.value_left - cells.f_left[0], cells.value_right - cells.f_right[0], upwards)
    below = -_top(cells.f_left[1] - cells.value_left, cells.f_right[1] - cells.value_right, downwards)
    above = np.minimum(above, np.maximum(cells.value_left, cells.value_right) - f_low)
    below = np.maximum(below, np.minimum(cells.value_left, cells.value_right) - f_high)
    # The few operations above round relatively to the numbers that enter them.
    size = np.abs(cells.value_left) + np.abs(cells.value_right) + np.abs(f_low) + np.abs(f_high)
    rounding = 64.0 * FLOAT64.unit_roundoff * (size + np.abs(above) + np.abs(below))
    margin = upper(cells.deviation + rounding, 3)
    return np.asarray(below - margin), np.asarray(above + margin)


def _top(start: Array, end: Array, bulge: Array) -> Array:
    """max over s in [0, 1] of start + (end - start) s + bulge s (1 - s), for bulge >= 0; infinite where bulge is."""
    rise, ends = end - start, np.maximum(start, end)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # (rise + bulge)^2 / (4 bulge), written so that tiny numbers do not underflow when squared.
        inner = start + 0.25 * (rise + bulge) * ((rise + bulge) / bulge)
    inside = (bulge > 0.0) & (np.abs(rise) < bulge)
    return np.where(np.isinf(bulge), np.inf, np.where(inside, np.maximum(inner, ends), ends))
