"""sin and cos by folding: the point (C, S) = (cos z, sin z) on the circle, z in [0, W], W <= 2 pi.

First reflections that cost one gate each: cos is even about every multiple of pi, so |x - c|, and then folds at
multiples of pi, bring a wide domain down to [0, pi]. Then halving (halving.py). With n = (sin p, -cos p), reflection
at p is the mirror M = 1 - 2 n n':

    s = n . (C, S) = sin(p - z') >= 0, at most t = p - z'.       Where t > 0:   (C, S) <- M (C, S) = (C, S) - 2 s n.
    With v = max(s - K t, 0), K = 1:    (C, S) <- M (C, S) + 2 v n.

M is not diagonal. So the running sums R are kept in the frame of the last cell: (C, S) = T R with T orthogonal,
T <- M T, and R <- R + 2 v T^-1 n is in place.

On the last cell: chords plus bubbles, exact at both ends and in the middle. The error of the vector is at most
w^3 / (72 sqrt 3) along the circle, and w^2 / (8 N^2) inwards; scaling by 1 + w^2 / (16 N^2) centres the second. They
are orthogonal (nearly): the norm is the root of the sum of squares. Without the bubble N = 1, and there is no cubic
term: scaling by 2 / (1 + cos(w/2)) leaves tan^2(w/4).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, gates, scalar
from headsmith.plan.circuits.halving import SLACK, bubble, halve, interpolated_bubble, joined
from headsmith.plan.circuits.proposal import Proposal, smallest
from headsmith.plan.circuits.radix import cells_of, fold_signs, radices

DEEPEST = 24


def circular(
    name: str,
    low: float,
    high: float,
    centre: float | None,
    periods: tuple[int, ...],
    levels: int,
    split: tuple[int, ...],
) -> Fragment:
    """sin or cos on [low, high]; with `centre`, a place where it is even, |x - centre| is folded into [0, pi] by
    `periods` first.

    Guarantee: |out - f| <= sqrt((w^3 / (72 sqrt 3))^2 + (w^2 / (16 N^2))^2) (1 + w^2) with the last cell's width w;
    tan^2(w/4) where the split is empty.
    """
    builder = Builder(["x"])
    if centre is None:
        width = high - low
        start = scalar(builder, [(builder.input, 1.0)], -low)
        outer = np.array([math.cos(low), -math.sin(low)] if name == "cos" else [math.sin(low), math.cos(low)])
    else:
        start, width = _reflected(builder, low, high, centre, periods)
        outer = np.array([math.cos(centre) if name == "cos" else math.sin(centre), 0.0])
    z, done = halve(builder, start, width, levels)
    cell = width / 2.0**levels
    slopes, curves = _cell(cell)
    bump = bubble(builder, z, cell, split)
    frame = np.eye(2)
    first, second = (joined(builder, slopes[i], z, curves[i], bump, 1.0 - i) for i in range(2))
    for level in reversed(done):
        sine, cosine = math.sin(level.place), math.cos(level.place)
        read = np.array([sine, -cosine]) @ frame
        inner = scalar(builder, [(first, read[0]), (second, read[1]), (level.moved, -SLACK)])
        gate = builder.relu(inner)
        mirror = np.eye(2) - 2.0 * np.outer([sine, -cosine], [sine, -cosine])
        frame = mirror @ frame
        write = 2.0 * frame.T @ np.array([sine, -cosine])
        first = scalar(builder, [(first, 1.0), (gate, write[0])])
        second = scalar(builder, [(second, 1.0), (gate, write[1])])
    scale, error = _deviation(cell, cells_of(split))
    read = scale * outer @ frame
    output = scalar(builder, [(first, read[0]), (second, read[1])])
    return Fragment(name, builder.graph(output), low, high, error)


def _reflected(builder: Builder, low: float, high: float, centre: float, periods: tuple[int, ...]) -> tuple[int, float]:
    """|x - centre|, folded at multiples of pi; the node and the width of where it lies."""
    right = builder.relu(scalar(builder, [(builder.input, 1.0)], -centre))
    running = scalar(builder, [(builder.input, -1.0), (right, 2.0)], centre)
    width = max(high - centre, centre - low)
    period = float(cells_of(periods))
    for radix in periods:
        period /= radix
        places = [i * period * math.pi for i in range(1, radix) if i * period * math.pi < width]
        gate = gates(builder, [(running, 1.0)], [-place for place in places])
        running = scalar(builder, [(running, 1.0), (gate, fold_signs(radix)[: len(places)])])
        width = period * math.pi
    return running, width


def _cell(cell: float) -> tuple[Array, Array]:
    """The slopes of the chords and the factors of the bubbles, for cos and for sin, on [0, cell]."""
    # cos: 1 - cos w = 2 sin(w/2)^2. Middles: f(w/2) - (f(0) + f(w))/2 = f(w/2) (1 - cos(w/2)) for both functions.
    slopes = np.array([-2.0 * math.sin(0.5 * cell) ** 2, math.sin(cell)]) / cell
    middle = np.array([math.cos(0.5 * cell), math.sin(0.5 * cell)])
    return slopes, middle * (2.0 * math.sin(0.25 * cell) ** 2) * 4.0 / cell**2


@lru_cache(maxsize=4096)
def _deviation(cell: float, cells: int) -> tuple[float, float]:
    """The scale that centres the radial error on the last cell, and the largest error of the scaled vector."""
    slopes, curves = _cell(cell)
    z, bump = interpolated_bubble(cell, cells)
    point = np.exp(1j * z)
    found = 1.0 + slopes[0] * z + curves[0] * bump + 1j * (slopes[1] * z + curves[1] * bump)
    error = found * point.conj() - 1.0
    inwards = -float(error.real.min())
    scale = 1.0 / (1.0 - 0.5 * inwards)
    return scale, float(np.abs(scale * (1.0 + error) - 1.0).max())


def circular_proposals(name: str, low: float, high: float, error: float) -> list[Proposal]:
    """All sensible (centre, periods, levels, radices) within `error`."""
    found: list[Proposal] = []
    for centre, periods, width, spent, deep in _starts(name, low, high):
        for levels in range(DEEPEST):
            cell = width / 2.0**levels
            cells = _needed_cells(cell, error) if cell <= math.pi else None
            for split in radices(cells) if cells is not None else []:
                make = partial(circular, name, low, high, centre, periods, levels, split)
                gates_used = spent + 2 * levels + sum(split) - len(split)
                found.append(Proposal(gates_used, deep + 2 * levels + len(split), make))
            if cells == 1:
                break
    return found


def _starts(name: str, low: float, high: float) -> list[tuple[float | None, tuple[int, ...], float, int, int]]:
    """Ways to bring the domain to [0, width], width <= 2 pi: (centre, periods, width, gates, depth)."""
    found: list[tuple[float | None, tuple[int, ...], float, int, int]] = []
    if high - low <= 2.0 * math.pi:
        found.append((None, (), high - low, 0, 0))
    phase = 0.0 if name == "cos" else 0.5 * math.pi
    centre = phase + math.pi * round((0.5 * (low + high) - phase) / math.pi)
    if not low < centre < high:
        return found
    half = max(high - centre, centre - low)
    if half <= 2.0 * math.pi:
        found.append((centre, (), half, 1, 1))
    if half > math.pi:
        for periods in radices(half / math.pi - 1e-12):
            used = _period_gates(periods, half)
            found.append((centre, periods, math.pi, 1 + used, 1 + len(periods)))
    return found


def _period_gates(periods: tuple[int, ...], half: float) -> int:
    total, period, width = 0, float(cells_of(periods)), half
    for radix in periods:
        period /= radix
        total += sum(i * period * math.pi < width for i in range(1, radix))
        width = period * math.pi
    return total


def _needed_cells(cell: float, error: float) -> int | None:
    def passes(cells: int) -> bool:
        return _deviation(cell, cells)[1] <= error

    if passes(1):
        return 1
    along = _deviation(cell, 1 << 30)[1]
    if along >= error:
        return None
    return smallest(passes, cell / 4.0 / (error**2 - along**2) ** 0.25)
