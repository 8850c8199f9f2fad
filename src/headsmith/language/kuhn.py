"""Interpolation on a Kuhn triangulation, as a graph of minima and gates: one gate for each grid node, and few more.

Grid coordinates t put the nodes of a box at the integer points. Kuhn's (Freudenthal's) triangulation cuts every cell
along t_i = t_j (mod 1); its linear interpolant is the continuous function that is affine on each simplex.

Derivation. For a set A of coordinates and a point k of integers, m^A_k = relu(min over i in A of t_i - k_i) is affine
on every simplex: it bends only where some t_i is an integer or some t_i - t_j is. At a node p it counts the j >= 1
with p_i >= k_i + j for all i in A. So m^A_{q-1} - m^A_q, with 1 taken from every coordinate in A, interpolates the
indicator of {p : p_i >= q_i for i in A}. The value at a node is the sum over all q below it of the mixed differences

    D_q = sum over B in A of (-1)^|B| y(q - 1_B),        A = {i : q_i >= 1}

hence y(0) + sum over A and k of (D_{k+1} - D_k) m^A_k interpolates y, where D_k is 0 if some k_i is 0. There are as
many m^A_k as nodes other than 0. The minimum over i in A of t_i - k_i is the same, up to a constant, for all k on one
diagonal, so there are about |A| n^(|A|-1) minima for n^|A| gates; and they are built from one another.
In one dimension this is the sum of hinges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations, product

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.language.cpwl import Place, gather
from headsmith.language.graph import Graph

BLOCK = 128
"""Minima in one node: weights are dense, and a block reads little of what is there."""


@dataclass(frozen=True, eq=False)
class Grid:
    """A rectangular grid on a box: t = scale * x + offset takes the box into [0, counts], nodes to integers.

    `knots` are the nodes' coordinates, doubles; `drift` bounds |t_i - k| at them, which rounding makes more than 0.
    """

    box: Box
    counts: tuple[int, ...]
    knots: tuple[Array, ...]
    scale: Array
    offset: Array
    drift: Array

    @property
    def nodes(self) -> int:
        return math.prod(count + 1 for count in self.counts)

    @property
    def steps(self) -> Array:
        """The largest distance of neighbouring nodes, for each coordinate, rounded up."""
        return np.array(
            [float(np.nextafter(np.diff(k).max(initial=0.0), np.inf)) if len(k) > 1 else 0.0 for k in self.knots]
        )

    @property
    def points(self) -> Array:
        """All nodes (nodes, inputs), the last coordinate fastest."""
        return np.stack(np.meshgrid(*self.knots, indexing="ij"), axis=-1).reshape(-1, len(self.knots))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(count + 1 for count in self.counts)


def grid_on(box: Box, counts: Sequence[int]) -> Grid:
    """A grid with counts[i] equal steps along coordinate i; 0 steps where the box has no width."""
    columns = [_axis(*item) for item in zip(box.names, box.low.tolist(), box.high.tolist(), counts, strict=True)]
    knots, scale, offset, drift = zip(*columns, strict=True)
    return Grid(box, tuple(counts), tuple(knots), frozen(scale), frozen(offset), frozen(drift))


def _axis(name: str, low: float, high: float, count: int) -> tuple[Array, float, float, float]:
    if count == 0:
        return frozen([low]), 0.0, 0.0, 0.0
    knots = np.linspace(low, high, count + 1)
    if not (np.diff(knots) > 0.0).all():
        raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin for {count} steps in doubles")
    start, end = Fraction(low), Fraction(high)
    # The box must not leave [0, count] by a rounding error: shrink until it does not.
    for exponent in range(50, 8, -1):
        scale = float(count / (end - start)) * (1.0 - 2.0**-exponent)
        offset = float(-Fraction(scale) * start)
        if Fraction(scale) * start + Fraction(offset) < 0:
            offset = math.nextafter(offset, math.inf)
        place = [Fraction(scale) * Fraction(float(knot)) + Fraction(offset) for knot in knots]
        if place[0] >= 0 and place[-1] <= count:
            drift = max(abs(at - index) for index, at in enumerate(place))
            return frozen(knots), scale, offset, math.nextafter(float(drift), math.inf)
    raise DomainError(f"the domain of {name}, [{low!r}, {high!r}], is too thin for {count} steps in doubles")


def interpolant(grid: Grid, values: Array, spare: float = 0.0) -> tuple[Graph, float]:
    """The interpolant of `values` (nodes, outputs) on the grid as a graph, and a bound of what it was moved by.

    Rounding moves it; so does leaving out terms that together are at most `spare`, which saves their gates.
    Guarantee: the graph's exact value differs by at most that bound, anywhere on the box, from the linear interpolant
    on the triangulation whose nodes are exactly grid.knots.
    """
    table = values.reshape(*grid.shape, values.shape[-1])
    active = [axis for axis, count in enumerate(grid.counts) if count]
    subsets = list(chain.from_iterable(combinations(active, size) for size in range(1, len(active) + 1)))
    found = [_coefficients(table, axes) for axes in subsets]
    sizes = [_sizes(grid, axes, each) for axes, each in zip(subsets, found, strict=True)]
    limit, dropped = _smallest(np.concatenate([np.zeros(0), *(size.max(axis=1) for size in sizes)]), spare)
    build = _KuhnConstruction(grid)
    moved = np.full(values.shape[-1], dropped)
    for axes, coefficients, size in zip(subsets, found, sizes, strict=True):
        kept = size.max(axis=1) > limit
        places = np.argwhere(kept.reshape(coefficients.shape[:-1]))
        build.add(axes, [tuple(place) for place in places.tolist()], coefficients[tuple(places.T)])
        # Each coefficient is rounded once.
        moved += 2.0**-53 * size.sum(axis=0)
    for axis in active:
        # A place that is off by `drift` in t moves the interpolant by at most that times its steepest edge.
        moved += grid.drift[axis] * np.abs(np.diff(table, axis=axis)).reshape(-1, values.shape[-1]).max(axis=0)
    graph = build.graph(table[(0,) * len(grid.counts)])
    return graph, float(moved.max()) * (1.0 + 1e-9)


def _sizes(grid: Grid, axes: Sequence[int], coefficients: Array) -> Array:
    """How large each summand c m^A_k gets, (corners, outputs): m^A_k is at most the smallest n_i - k_i."""
    heights = np.indices(coefficients.shape[:-1]).reshape(len(axes), -1)
    tallest = (np.array([grid.counts[axis] for axis in axes])[:, None] - heights).min(axis=0)
    return np.asarray(np.abs(coefficients.reshape(len(tallest), -1)) * tallest[:, None])


def _smallest(sizes: Array, spare: float) -> tuple[float, float]:
    """A limit such that all sizes up to it add up to at most `spare`, and their sum."""
    ordered = np.sort(sizes)
    sums = np.cumsum(ordered)
    count = int(np.searchsorted(sums, spare * (1.0 - 1e-9), side="right"))
    # Equal sizes stay or go together.
    while 0 < count < len(ordered) and ordered[count] == ordered[count - 1]:
        count -= 1
    return (float(ordered[count - 1]), float(sums[count - 1])) if count else (0.0, 0.0)


def _coefficients(table: Array, axes: Sequence[int]) -> Array:
    """D_{k+1} - D_k for every k, correctly rounded; the array has the given axes, then the outputs."""
    index = tuple(slice(None) if axis in axes else 0 for axis in range(table.ndim - 1))
    inner = table[index]
    shape = tuple(size - 1 for size in inner.shape[:-1])
    terms = []
    for corner in product((0, 1), repeat=len(axes)):
        sign = (-1.0) ** (len(axes) - sum(corner))
        cells = tuple(slice(bit, bit + size) for bit, size in zip(corner, shape, strict=True))
        terms.append(sign * inner[cells])
        # The same difference one diagonal step below, where there is one.
        below = np.zeros_like(terms[-1])
        below[tuple(slice(1, None) for _ in axes)] = terms[-1][tuple(slice(0, -1) for _ in axes)]
        terms.append(-below)
    rows = np.stack(terms, axis=-1).reshape(-1, len(terms)).tolist()
    return np.array([math.fsum(row) for row in rows]).reshape(*shape, table.shape[-1])


Corner = tuple[int, ...]


@dataclass
class _KuhnConstruction:
    """Grows the graph: `minima` has the place of min over `axes` of t_i - corner_i, for corners with smallest entry
    0."""

    grid: Grid
    minima: dict[tuple[Corner, Corner], Place] = field(default_factory=dict)
    summands: list[tuple[int, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.builder = Builder(self.grid.box.names)
        self.scaled = self.builder.affine([(self.builder.input, self.grid.scale)], self.grid.offset)

    def add(self, axes: Corner, corners: Sequence[Corner], coefficients: Array) -> None:
        """Add coefficient * relu(min over axes of t_i - k_i) for every corner k."""
        diagonals: dict[Corner, list[int]] = {}
        for number, corner in enumerate(corners):
            least = min(corner)
            diagonals.setdefault(tuple(k - least for k in corner), []).append(number)
        classes = list(diagonals)
        for start in range(0, len(classes), BLOCK):
            block = classes[start : start + BLOCK]
            self._minima(axes, block)
            members = [(which, number) for which in block for number in diagonals[which]]
            # t >= 0, so the minimum of the t_i themselves needs no gate.
            plain = [(which, number) for which, number in members if not any(corners[number])]
            gated = [(which, number) for which, number in members if any(corners[number])]
            for chosen, gate in ((plain, False), (gated, True)):
                if chosen:
                    places = [self.minima[axes, which] for which, _ in chosen]
                    shifts = np.array([-float(min(corners[number])) for _, number in chosen])
                    node = gather(self.builder, places, shifts)
                    node = self.builder.relu(node) if gate else node
                    self.summands.append((node, coefficients[[number for _, number in chosen]].T))

    def _minima(self, axes: Corner, corners: Sequence[Corner]) -> None:
        """Make the minima that are not there yet, from those of the two halves of the axes."""
        missing = [corner for corner in corners if (axes, corner) not in self.minima]
        if len(axes) == 1:
            self.minima[axes, (0,)] = (self.scaled, axes[0])
            return
        for start in range(0, len(missing), BLOCK):
            block = missing[start : start + BLOCK]
            middle = (len(axes) + 1) // 2
            sides = []
            for half in (slice(0, middle), slice(middle, None)):
                shifts = [min(corner[half]) for corner in block]
                parts = [tuple(k - shift for k in corner[half]) for corner, shift in zip(block, shifts, strict=True)]
                self._minima(axes[half], list(dict.fromkeys(parts)))
                places = [self.minima[axes[half], part] for part in parts]
                sides.append(gather(self.builder, places, -np.array(shifts, dtype=np.float64)))
            node = self.builder.minimum(sides)
            self.minima.update({(axes, corner): (node, row) for row, corner in enumerate(block)})

    def graph(self, constant: Array) -> Graph:
        return self.builder.graph(self.builder.affine(self.summands, constant))
