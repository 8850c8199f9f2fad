"""Split the cells of a complex by a level.

A unit of two pieces is decided by the sign of their difference, an affine form on every cell. First the signs of all
forms are found at all vertices. A form that is positive at all of them, or at none, is decided. The others cut the
cells, at most 32 of them at a time (cut.py). A sign is found by float64 where its error bound decides, otherwise by
rationals.

A unit of more pieces is built up piece by piece. Where the next piece is larger than the largest so far, it wins, and
the cells that it takes over become one (merge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.lab.regions.complex import (
    CARRIER,
    HOME,
    PLANES,
    Complex,
    Mask,
    Pattern,
    Planes,
    first_vertices,
    homes_of,
    plane_code,
    plane_name,
    taken,
)
from headsmith.lab.regions.cut import COLUMNS, Cutting, lower_half, words_of
from headsmith.lab.regions.exact import Name, Oracle, Vertex
from headsmith.lab.regions.forms import TINY, CellForms, apply, crossing, gap, normalised, selected, stacked, values_at
from headsmith.lab.regions.levels import Level
from headsmith.lab.regions.merge import carried, merged


@dataclass(frozen=True, eq=False)
class Batch:
    """Cells before a level, and what makes the state as forms on each of them: their homes in that level. `weight` is
    the share of all the work that they stand for."""

    complex: Complex
    weight: float
    state: Callable[[], CellForms]


@dataclass(frozen=True, eq=False)
class Unfinished:
    """Cells in a level. Of its homes, the cells that the level began with: the row of the activation pattern, the forms
    that live on, and those of the level's rows. Of each cell: its home, and the pieces that win so far. And what is
    left to do: units of two pieces, or (unit, piece)."""

    stage: int
    key: Indices
    carried: CellForms
    rows: CellForms
    complex: Complex
    home: Indices
    winners: Pattern
    todo: tuple[Indices | tuple[int, int], ...]
    weight: float

    def __len__(self) -> int:
        return len(self.complex)


@dataclass(frozen=True, eq=False)
class CuttingForms:
    """Forms that cut together: on each home, with the codes of their planes, (homes or 1, forms), and the row of the
    pattern that each home stands for."""

    forms: CellForms
    code: Indices
    key: Indices

    def chosen(self, columns: Indices) -> CuttingForms:
        return CuttingForms(self.forms.chosen(columns), self.code.take(columns, axis=1), self.key)


@dataclass(frozen=True, eq=False)
class Signs:
    """Forms at vertices, (vertices, forms): values, bounds of their errors, and where they are positive or negative."""

    value: Array
    error: Array
    positive: Mask
    negative: Mask

    def chosen(self, columns: Indices) -> Signs:
        return Signs(*(each.take(columns, axis=1) for each in vars(self).values()))


def begun(batch: Batch, stage: int, level: Level) -> Unfinished:
    """A level before its first cut."""
    ranks = np.diff(level.first, append=len(level.row))
    pairs = np.flatnonzero(ranks == 2)
    todo: list[Any] = [pairs] if len(pairs) else []
    todo += [(int(unit), piece) for unit in np.flatnonzero(ranks > 2) for piece in range(1, int(ranks[unit]))]
    state, homes = batch.state(), np.arange(len(batch.complex))
    return Unfinished(
        stage,
        homes,
        state.chosen(level.carry),
        apply(level.weights, level.bias, state),
        batch.complex,
        homes,
        np.zeros((len(homes), level.units), dtype=np.uint16),
        tuple(todo),
        batch.weight,
    )


def advanced(work: Unfinished, level: Level, last: bool) -> Batch:
    """A level after its last cut, as a batch for the next one. After the `last` one nothing needs to be tidy."""
    home, complex = work.home, work.complex

    def state() -> CellForms:
        units = selected(work.rows.taken(home), level, work.winners.astype(np.int64))
        return stacked(work.carried.taken(home), units)

    pattern = np.concatenate([complex.patterns[-1].take(work.key[home], axis=0), work.winners], axis=1)
    complex = complex if last else taken(complex, np.arange(len(work)))
    return Batch(replace(complex, patterns=(*complex.patterns, pattern)), work.weight, state)


def parts(work: Unfinished) -> list[Unfinished]:
    """A work as two of half as many cells each, apart in space."""
    where = work.complex.point[first_vertices(work.complex)]
    axis = int(np.argmax(where.max(axis=0) - where.min(axis=0)))
    order = np.argsort(where[:, axis], kind="stable")
    half = len(order) // 2
    return [_some(work, np.sort(rows)) for rows in (order[:half], order[half:])]


def _some(work: Unfinished, rows: Indices) -> Unfinished:
    homes, home = np.unique(work.home[rows], return_inverse=True)
    return replace(
        work,
        key=work.key[homes],
        carried=work.carried.taken(homes),
        rows=work.rows.taken(homes),
        complex=taken(work.complex, rows),
        home=home.reshape(-1),
        winners=work.winners[rows],
        weight=work.weight * len(rows) / len(work),
    )


def step(work: Unfinished, oracle: Oracle, floor: float, size: int) -> Unfinished:
    """Cut by the next forms that are to do; not by all of them, if there are more than `size` cells before."""
    first, *rest = work.todo
    if isinstance(first, tuple):
        return _next_piece(work, *first, oracle, floor)
    level = oracle.levels.levels[work.stage]
    low, high = level.row[level.first[first]], level.row[level.first[first] + 1]
    rows = work.rows
    if np.all(low < 0) and np.all(high >= 0):
        forms = rows if np.array_equal(high, np.arange(rows.value.shape[2])) else rows.chosen(high)
    else:
        forms = gap(rows, None, high, low)
    columns = CuttingForms(forms, plane_code(work.stage, high, low)[None], work.key)
    homes = homes_of(work.complex, work.home)
    signs = _signs(work.complex, homes[0], columns, oracle, floor)
    some, every = np.any(signs.positive, axis=0), np.asarray(np.all(signs.positive, axis=0))
    changes = np.asarray(some & ~every)
    winners = work.winners.copy()
    winners[:, first[~changes]] = every[~changes]
    changing = np.flatnonzero(changes)
    chosen = changing[:COLUMNS]
    if len(chosen) < len(changes):
        columns, signs = columns.chosen(chosen), signs.chosen(chosen)
    cutting = _cutting(work.complex, homes, columns, signs, oracle)
    cutting.faces[-1].arrays[1][: len(work), CARRIER] = np.arange(len(work))
    while cutting.todo and cutting.cells <= size:
        cutting.cut(cutting.next_forms())
    complex = _settled(cutting, columns, oracle)
    top = complex.face[-1]
    winners = winners.take(top[:, CARRIER], axis=0)
    decided = np.delete(np.arange(len(chosen)), cutting.todo)
    winners[:, first[chosen[decided]]] = lower_half(cutting.positive(-1), len(chosen))[:, decided]
    left = [chosen[cutting.todo], *(changing[i : i + COLUMNS] for i in range(COLUMNS, len(changing), COLUMNS))]
    todo = (*(first[each] for each in left if len(each)), *rest)
    return replace(work, complex=complex, home=top[:, HOME].copy(), winners=winners, todo=todo)


def _next_piece(work: Unfinished, unit: int, piece: int, oracle: Oracle, floor: float) -> Unfinished:
    """Cut by the next piece of a unit less the largest so far, which is affine on every cell."""
    level = oracle.levels.levels[work.stage]
    row = level.row[level.first[unit] :]
    low = row[work.winners[:, unit]]
    high = np.full(len(work), row[piece])
    forms = gap(work.rows, work.home, high, low)
    columns = CuttingForms(forms, plane_code(work.stage, high, low)[:, None], work.key[work.home])
    complex = carried(work.complex) if piece == 1 else work.complex
    homes = homes_of(complex, np.arange(len(work)))
    cutting = _cutting(complex, homes, columns, _signs(complex, homes[0], columns, oracle, floor), oracle)
    while cutting.todo:
        cutting.cut(cutting.next_forms())
    complex = _settled(cutting, columns, oracle)
    before = complex.face[-1][:, HOME]
    home, winners = work.home[before], work.winners[before]
    winners[:, unit] = np.where(cutting.positive(-1) != 0, piece, winners[:, unit])
    if piece > 1:
        positive = [cutting.positive(k) != 0 for k in range(complex.dimension + 1)]
        complex, rows = merged(complex, positive)
        home, winners = home[rows], winners[rows]
    return replace(work, complex=complex, home=home, winners=winners, todo=work.todo[1:])


def _signs(complex: Complex, homes: Indices, columns: CuttingForms, oracle: Oracle, floor: float) -> Signs:
    """The values of forms at all vertices, which are at these homes, with their bounds, and their signs."""
    value, error = values_at(columns.forms, complex.point, complex.radius, homes, floor)
    positive, negative = value > error, value < -error
    doubt = ~(positive | negative)
    # What is zero with a bound of zero is zero.
    doubt &= error != 0.0
    if doubt.any():
        vertex, column = np.nonzero(doubt)
        exact = _exact(oracle, _Names(complex, columns))(column, complex.face[0][vertex, PLANES:], homes[vertex])
        positive[vertex, column], negative[vertex, column] = exact > 0, exact < 0
    return Signs(value, error, positive, negative)


def _exact(oracle: Oracle, names: _Names) -> Any:
    def signs(column: Indices, planes: Indices, home: Indices) -> Any:
        asked = zip(column.tolist(), planes.tolist(), home.tolist(), strict=True)
        return np.array([oracle.sign(names.form(h, c), names.vertex(rows)) for c, rows, h in asked], dtype=np.int64)

    return signs


def _cutting(complex: Complex, homes: list[Indices], columns: CuttingForms, signs: Signs, oracle: Oracle) -> Cutting:
    """Everything ready for cuts by some columns: each divided by a power of two, so that it is at most 1. The signs'
    values are used up."""
    value, error = signs.value, signs.error
    size = np.maximum(value.max(axis=0, initial=0.0), -value.min(axis=0, initial=0.0))
    scale = np.ldexp(1.0, -np.clip(np.frexp(np.where(np.isfinite(size), size, 1.0))[1], -1000, 1000))
    # What underflows here is below TINY.
    value *= scale
    error *= scale
    near = error.max(axis=1, initial=0.0) + TINY
    words = words_of(signs.positive, signs.negative)
    return Cutting(complex, homes, value, near, words, _exact(oracle, _Names(complex, columns)))


class _Names:
    """The names of planes by their rows: of the table, and behind it of the forms that cut now."""

    def __init__(self, complex: Complex, columns: CuttingForms) -> None:
        self.complex, self.columns = complex, columns
        self.base, self.count = len(complex.planes.code), columns.forms.value.shape[2]

    def form(self, home: int, column: int) -> Name:
        code = self.columns.code
        name = int(code[home if len(code) > 1 else 0, column])
        return name, self.complex.patterns[-1][self.columns.key[home]].tobytes()

    def vertex(self, rows: list[int]) -> Vertex:
        count = self.count
        return tuple(
            plane_name(self.complex, row) if row < self.base else self.form(*divmod(row - self.base, count))
            for row in rows
        )


def _settled(cutting: Cutting, columns: CuttingForms, oracle: Oracle) -> Complex:
    """What was cut, with the new planes in the table and the new vertices in their places."""
    complex, base = cutting.finished(), cutting.base
    homes, count = columns.forms.value.shape[1:]
    used = np.zeros(base + homes * count, dtype=np.bool_)
    used[:base] = True
    old = [len(each) for each in cutting.complex.face]
    fresh = [face[first:, PLANES:] for face, first in zip(complex.face[:-1], old, strict=False)]
    for rows in fresh:
        used[rows] = True
    number = used.cumsum() - 1
    for rows in fresh:
        rows[:] = number.take(rows)
    home, form = np.divmod(used[base:].nonzero()[0], count)
    plane, slack = normalised(*columns.forms.planes(form, home))
    code = columns.code[home if len(columns.code) > 1 else 0, form]
    planes = complex.planes.plus(Planes(plane, slack, code, columns.key[home]))
    complex = replace(complex, planes=planes)
    rows = complex.face[0][old[0] :, PLANES:]
    point, radius, poor = crossing(planes, rows)
    if poor.any():
        point[poor], radius[poor] = doubles(complex, rows[poor], oracle)
    return replace(
        complex,
        point=np.concatenate([complex.point, point]),
        radius=np.concatenate([complex.radius, radius]),
    )


def doubles(complex: Complex, rows: Indices, oracle: Oracle) -> tuple[Array, Array]:
    """Vertices, given by the rows of their planes, as the nearest doubles, with bounds of that rounding."""
    vertices = [tuple(plane_name(complex, row) for row in each) for each in rows.tolist()]
    found = np.array([oracle.nearest(vertex) for vertex in vertices])
    return found, np.abs(found).max(axis=1) * 2.0**-52 + 2.0**-1000
