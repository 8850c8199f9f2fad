"""The least error of one table head with so many tokens: starts, Gauss-Newton, then a minimax polish.

    g(t) = sum_k softmax_k(slope_k . t + offset_k) values_k + incline . t + intercept,      t in [-1, 1]^d

The incline is free in the residual stream: inputs are there. A head without it is `pure`. What is minimised is the
largest error at sampled points, under limits of the size of values, slopes and incline; it is an estimate, measured on
many more points afterwards.

Starts.  Keys by differential evolution, values by least squares (evolve.py), in several runs; heads with a token less,
    and one added, take part in every other run.
Polish.  The error is linearised in all numbers of the head, and the step that makes the largest linearised error
    smallest is a linear program (linear.py) in a box, which grows after a step that wins and shrinks after one that
    does not. At the end the errors of as many points as there are numbers are equal: nothing can move any more.

It is a search: it finds no proof that there is nothing better. Proofs of that are lower bounds (bounds.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lab.enough.evolve import LEAST_RIDGE, Landscape, evolved, fitted
from headsmith.lab.enough.linear import smallest
from headsmith.plan.fit.points import with_ones
from headsmith.plan.fit.search import additions
from headsmith.plan.fit.solve import softmax_weights

FEW, SAMPLES, DENSE = {1: 61, 2: 13}, {1: 241, 2: 25}, {1: 20001, 2: 161}
"""Points along each axis: of starts, of the polish, and to measure."""
RUNS = 4
KEPT = 2
"""How many heads of one run go on."""
MOST_ADDED = 60
STAGES = ((8, 10), (4, 30), (2, 150))
"""How many heads go on, and for how many linear programs each."""
SETTLED = 1e-4
"""A polish ends where so many steps in a row (STALLED) win less than this part of the error."""
STALLED = 8


@dataclass(frozen=True)
class Room:
    """Limits of a head's numbers in its own units: half the range of values, the largest slope, the largest incline."""

    values: float = np.inf
    slopes: float = np.inf
    inclines: float = np.inf


@dataclass(frozen=True, eq=False)
class Wanted:
    """A function on [-1, 1]^variables, of any floating point, and the room that a head has for it."""

    function: Callable[[Any], Any]
    variables: int
    affine: bool
    room: Room

    @cached_property
    def points(self) -> Array:
        return _points(self.variables, SAMPLES)

    @cached_property
    def targets(self) -> Array:
        return np.asarray(self.function(self.points), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Found:
    """A head's numbers, keys (tokens, variables + 1), values centred round zero, and its largest error: an estimate."""

    keys: Array
    values: Array
    incline: Array
    intercept: float
    error: float

    @property
    def tokens(self) -> int:
        return len(self.values)

    @property
    def size(self) -> float:
        """The largest value."""
        return float(np.max(np.abs(self.values)))

    def outputs(self, points: Any) -> Any:
        """What the head returns, in the floating point of the points."""
        weights = softmax_weights(with_ones(*points.T), self.keys.astype(points.dtype))
        return weights @ self.values + points @ self.incline + self.intercept


def _points(variables: int, counts: dict[int, int]) -> Array:
    """Chebyshev points along each axis, ends included."""
    along = np.cos(np.linspace(0.0, np.pi, counts[variables]))
    sides = np.meshgrid(*[along] * variables, indexing="ij")
    return np.stack([side.ravel() for side in sides], axis=1)


def best_head(wanted: Wanted, tokens: int, fewer: Sequence[Found] = ()) -> Found:
    """The head with the smallest error that is found; `fewer` are heads with one token less to start from."""
    if tokens == 1:
        return measured(wanted, _polished(wanted, _straight(wanted)))
    heads = sorted(_started(wanted, tokens, fewer), key=_error)
    for survivors, programs in STAGES:
        heads = sorted((_polished(wanted, head, programs) for head in heads[:survivors]), key=_error)
    return measured(wanted, heads[0])


def _error(head: Found) -> float:
    return head.error


def measured(wanted: Wanted, head: Found) -> Found:
    """The head with its error on many points, in extended precision, and values centred round zero."""
    middle = (float(np.max(head.values)) + float(np.min(head.values))) / 2.0
    head = replace(head, values=head.values - middle, intercept=head.intercept + middle)
    points = _points(wanted.variables, DENSE).astype(np.longdouble)
    return replace(head, error=float(np.max(np.abs(head.outputs(points) - wanted.function(points)))))


def _straight(wanted: Wanted) -> Found:
    """One token: a constant, and the incline."""
    keys, none = np.zeros((1, wanted.variables + 1)), np.zeros(wanted.variables)
    return _assessed(wanted, Found(keys, np.zeros(1), none, float(np.mean(wanted.targets)), np.inf))


def _assessed(wanted: Wanted, head: Found) -> Found:
    return replace(head, error=float(np.max(np.abs(head.outputs(wanted.points) - wanted.targets))))


# Starts ---------------------------------------------------------------------------------------------------------------


def _started(wanted: Wanted, tokens: int, fewer: Sequence[Found]) -> Iterator[Found]:
    """The best heads of several runs of differential evolution."""
    points = _points(wanted.variables, FEW)
    targets = np.asarray(wanted.function(points), dtype=np.float64)
    room = wanted.room
    landscape = Landscape(points, targets, wanted.affine, room.values, room.slopes)
    added = [keys for head in fewer for keys in additions(head.keys)]
    for seed in range(RUNS):
        keys = evolved(landscape, tokens, seed, np.array(added[:MOST_ADDED]) if added and seed % 2 else None)[:KEPT]
        size = float(np.ptp(targets))
        solutions, _, narrow = fitted(landscape, keys, LEAST_RIDGE * size)
        for numbers, key in zip(solutions, narrow, strict=True):
            values, incline = numbers[:tokens], np.zeros(wanted.variables)
            if wanted.affine:
                incline = np.clip(numbers[tokens:-1], -room.inclines, room.inclines)
            yield _assessed(wanted, Found(key, values, incline, float(numbers[-1]), np.inf))


# Polish ---------------------------------------------------------------------------------------------------------------


def _polished(wanted: Wanted, head: Found, programs: int = STAGES[-1][1]) -> Found:
    """The head after linear programs in boxes, for as long as they win, by turns in both kinds of coordinates."""
    radii, held, history = [0.1, 0.1], True, [head.error]
    for _ in range(programs):
        moved = _stepped(wanted, head, radii[held], held)
        if moved.error < head.error:
            head, radii[held] = moved, min(2.0 * radii[held], 4.0)
            history.append(head.error)
            if len(history) > STALLED and history[-1] > (1.0 - SETTLED) * history[-1 - STALLED]:
                break
        else:
            radii[held] /= 3.0
            if max(radii) < 1e-7:
                break
        held = not held if radii[not held] > 1e-7 else held
    return head


def _stepped(wanted: Wanted, head: Found, radius: float, held: bool) -> Found:
    """The head whose largest linearised error is smallest, no number further away than the radius times its size.

    With u_k = e^(offset_k) v_k, g is sum_k u_k e^(slope_k t) over sum_k e^(slope_k t + offset_k): what a value that is
    large where its weight is small does to g is in u, and a step of the offset leaves that alone. With the weights w,

        d g / d slope_k = w_k (v_k - g) t,      d g / d offset_k = -w_k g,      e^(offset_k) d g / d u_k = w_k.

    With u held while offsets move this is one kind of coordinates; with v held, and w_k (v_k - g) in place of -w_k g,
    it is another. What is a narrow bent valley in one of them is often a straight one in the other.
    """
    tokens, variables, room = head.tokens, wanted.variables, wanted.room
    weights = softmax_weights(with_ones(*wanted.points.T), head.keys)
    mean = weights @ head.values
    slopes = (weights * (head.values - mean[:, None]))[:, 1:, None] * wanted.points[:, None, :]
    offsets = weights[:, 1:] * ((0.0 if held else head.values[1:]) - mean[:, None])
    lines = wanted.points if wanted.affine else wanted.points[:, :0]
    columns = [slopes.reshape(len(mean), -1), offsets, weights, lines, np.ones((len(mean), 1))]
    left = wanted.targets - mean - wanted.points @ head.incline - head.intercept

    size = max(float(np.max(np.abs(left))), float(np.ptp(wanted.targets)))
    key, incline = head.keys[1:, :variables].ravel(), head.incline[: lines.shape[1]]
    scales = [1.0 + np.abs(key), np.full(tokens - 1, 2.0), np.abs(head.values) + size / np.max(weights, axis=0)]
    radii = radius * np.concatenate([*scales, np.abs(incline) + size, [size]])
    middle = head.keys[0, :variables]
    most = [
        2.0 * room.slopes + 0.0 * key,
        np.full(2 * tokens - 1, np.inf),
        room.inclines + 0.0 * incline,
        np.full(1, np.inf),
    ]
    at = np.concatenate([key - np.tile(middle, tokens - 1), np.zeros(2 * tokens - 1), incline, np.zeros(1)])
    up, down = (np.minimum(radii, np.maximum(np.concatenate(most) - side, 0.0)) for side in (at, -at))
    step = _least_worst(np.concatenate(columns, axis=1), left, up, down, _within(head, room, len(key), len(at), held))
    if step is None:
        return replace(head, error=np.inf)
    by_slope, by_offset, by_value, by_incline, (shift,) = np.split(step, np.cumsum([c.shape[1] for c in columns])[:-1])
    by_offset = np.append(0.0, by_offset)
    by_slope = np.concatenate([np.zeros((1, variables)), by_slope.reshape(-1, variables)])
    values = np.clip((head.values + by_value) * np.exp(-by_offset * held), -room.values, room.values)
    keys = head.keys + np.column_stack([by_slope, by_offset])
    moved = head.incline + by_incline if wanted.affine else head.incline
    return _assessed(wanted, Found(keys, values, moved, head.intercept + float(shift), np.inf))


def _within(head: Found, room: Room, before: int, count: int, held: bool) -> tuple[Array, Array]:
    """Rows that keep values within the room: v + d <= V e^(step of the offset), nearly V (1 + that)."""
    tokens = head.tokens
    if not np.isfinite(room.values):
        return np.zeros((0, count)), np.zeros(0)
    rows = np.zeros((2, tokens, count))
    for sign, side in zip((1.0, -1.0), rows, strict=True):
        side[:, before + tokens - 1 : before + 2 * tokens - 1] = sign * np.eye(tokens)
        side[1:, before : before + tokens - 1] = -room.values * held * np.eye(tokens - 1)
    limits = room.values - np.stack([head.values, -head.values])
    return rows.reshape(-1, count), np.maximum(limits.ravel(), 0.0)


def _least_worst(matrix: Array, left: Array, up: Array, down: Array, within: tuple[Array, Array]) -> Array | None:
    """The step d with -down <= d <= up, and within rows, that makes the largest |left - matrix d| smallest."""
    units = np.maximum(up + down, 1e-300)
    size = float(np.max(np.abs(left))) or 1.0
    scaled, count = matrix * units / size, matrix.shape[1]
    ones, none = np.ones((len(left), 1)), np.zeros((2 * count + len(within[1]), 1))
    box = np.concatenate([np.eye(count), -np.eye(count), within[0] * units])
    rows = np.block([[scaled, -ones], [-scaled, -ones], [box, none]])
    limits = np.concatenate([left / size, -left / size, up / units, down / units, within[1]])
    found = smallest(np.append(np.zeros(count), 1.0), rows, limits)
    return np.clip(found.values[:-1] * units, -down, up) if found.solved else None
