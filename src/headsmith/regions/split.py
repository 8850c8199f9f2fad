"""Split cells by a level: in rounds, each cell by the first form that still cuts it.

The signs of all forms of the level at all vertices decide everything. They are found once, when the level begins: by
float64 where its error bound decides, otherwise by the oracle. After that a new vertex lies inside an edge, so its sign
is that of the edge's ends unless they are strictly opposite; only then it is computed.

A unit of more than two pieces that are possible on a cell is first fanned out: one copy of the cell for each of them,
which is cut down to where that piece wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.cells import LEVEL_STRIDE, Cells, Cut, Fresh, Mask, Pattern, Signs, compact, join, take
from headsmith.regions.cut import cut_edges, halves
from headsmith.regions.exact import Oracle
from headsmith.regions.forms import (
    Filter,
    Forms,
    apply,
    centres,
    crossing,
    difference,
    normalised,
    prepared,
    selected,
    stacked,
)
from headsmith.regions.pairs import Pairs
from headsmith.regions.signs import Packed, between, joined, packed, unpacked

FREE = -1
"""The forced piece of a cell that was not fanned out."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Cells, the activation pattern of each home on the levels before, and the state as forms on each home."""

    cells: Cells
    pattern: Pattern
    state: Forms


@dataclass(frozen=True, eq=False)
class Task:
    """What a level asks of a batch: its forms, ready to be evaluated, and the oracle."""

    stage: int
    pairs: Pairs
    filter: Filter
    pattern: Pattern
    oracle: Oracle


@dataclass(frozen=True, eq=False)
class Open:
    """Cells in work: the signs of the forms at their vertices, and the piece that each is forced to, or FREE."""

    cells: Cells
    signs: Packed
    forced: Indices

    def taken(self, chosen: Mask) -> Open:
        return Open(take(self.cells, chosen), self.signs.rows(chosen[self.cells.cell]), self.forced[chosen])


@dataclass(frozen=True, eq=False)
class Choice:
    """The next step of every cell: it is done, or split by a form, or fanned out (or dropped). `keep` (2, cells) says
    whether the positive and the negative side are kept; None: both, everywhere."""

    done: Mask
    split: Mask
    form: Indices
    keep: Mask | None
    fans: list[Open]


def split(batch: Batch, stage: int, oracle: Oracle, floor: float, size: int) -> Iterator[Batch]:
    """The batch's cells cut along the borders of a level, in batches of about `size` cells."""
    level = oracle.levels.levels[stage]
    rows = apply(level.weights, level.bias, batch.state)
    pairs = oracle.pairs(stage)
    forms = rows if level.is_relu else difference(rows, pairs.high_row, pairs.low_row)
    task = Task(stage, pairs, prepared(forms, floor), batch.pattern, oracle)
    finished: list[tuple[Cells, Indices]] = []
    stack = [Open(batch.cells, packed(_first_signs(task, batch.cells)), np.full(len(batch.cells), FREE))]
    while stack:
        work = stack.pop()
        if len(work.cells) > 2 * size:
            half = np.arange(len(work.cells)) < len(work.cells) // 2
            stack += [work.taken(~half), work.taken(half)]
            continue
        done, rest = _round(task, work)
        finished += done
        stack += rest
        if finished and (not stack or sum(len(cells) for cells, _ in finished) >= size):
            yield _advanced(batch, rows, pairs, finished)
            finished = []


def _advanced(batch: Batch, rows: Forms, pairs: Pairs, finished: list[tuple[Cells, Indices]]) -> Batch:
    """Finished cells as a batch for the next level: each is its own home."""
    cells = compact(join([cells for cells, _ in finished]))
    winners = np.concatenate([winners for _, winners in finished])
    carried = batch.state.chosen(pairs.level.carry)
    units = selected(rows.taken(cells.home), pairs.level, winners)
    return Batch(
        # Cells count alike from here on: those cut often so far need not be those cut often by the next level.
        replace(cells, home=np.arange(len(cells)), weight=np.full(len(cells), cells.weight.mean())),
        np.concatenate([batch.pattern[cells.home], winners.astype(np.uint16)], axis=1),
        stacked(carried.taken(cells.home), units),
    )


def _first_signs(task: Task, cells: Cells) -> Signs:
    """The signs of all forms at all vertices: where a box round the cell does not decide, vertex by vertex."""
    around, doubt = task.filter.signs_round(*centres(cells))
    signs = around[cells.cell]
    cell, form = np.nonzero(doubt)
    start = cells.start
    count = np.diff(start, append=len(cells.cell))[cell]
    vertex = np.repeat(start[cell] - np.cumsum(count) + count, count) + np.arange(count.sum())
    form = np.repeat(form, count)
    signs[vertex, form] = _signs_at(task, form, cells.cell[vertex], cells.point, cells.radius, cells.code, vertex)
    return signs


def _signs_at(
    task: Task, form: Indices, home: Indices, point: Array, radius: Array, code: Indices, vertex: Indices
) -> Signs:
    """The signs of forms on homes at vertices, exactly."""
    signs, doubt = task.filter.signs(form, home, point[vertex], radius[vertex])
    if doubt.any():
        which = np.flatnonzero(doubt)
        signs[which] = task.oracle.signs(task.stage, task.pattern[home[which]], code[vertex[which]], form[which])
    return signs


def _round(task: Task, work: Open) -> tuple[list[tuple[Cells, Indices]], list[Open]]:
    """Every cell one step on: finished cells with their winners, and the cells still in work."""
    if not task.filter.near.shape[1]:
        winners = np.zeros((len(work.cells), task.pairs.level.units), dtype=np.int64)
        return [(work.cells, winners)], []
    found = work.signs.over(work.cells.start)
    if task.pairs.simple:
        cuts = found.both
        split = np.asarray(cuts.any(axis=1))
        choice = Choice(~split, split, unpacked(cuts, found.forms).argmax(axis=1), None, [])
    else:
        choice = _choices(task, work, found)
    finished = []
    if choice.done.any():
        winners = task.pairs.winners(found.rows(choice.done))
        finished.append((take(work.cells, choice.done), winners))
    if not choice.split.any():
        return finished, choice.fans
    return finished, [_joined([_cut(task, work, choice.split, choice.form, choice.keep), *choice.fans])]


def _choices(task: Task, work: Open, found: Packed) -> Choice:
    """The steps for units of any number of pieces."""
    pairs, first = task.pairs, task.pairs.level.first
    beaten, cuts = pairs.beaten(found), unpacked(found.both, found.forms)
    forced, everyone = work.forced, np.arange(len(work.forced))
    bound = forced != FREE
    own = ((pairs.low == forced[:, None]) | (pairs.high == forced[:, None])) & cuts
    lost = bound & beaten[everyone, forced]
    trimmed = bound & ~lost & own.any(axis=1)
    free = ~lost & ~trimmed
    left = np.add.reduceat(~beaten, first, axis=1, dtype=np.int64)
    contested = left > 1
    done = free & ~contested.any(axis=1)
    unit = np.argmax(contested, axis=1)
    # Of two pieces that are left the form between them is the one that cuts the cell and beats neither.
    alive = cuts & ~beaten[:, pairs.low] & ~beaten[:, pairs.high] & (pairs.level.unit[pairs.low] == unit[:, None])
    paired = free & ~done & (left[everyone, unit] == 2)
    form = np.where(trimmed, np.argmax(own, axis=1), np.argmax(alive, axis=1))
    keep = np.stack([~trimmed | (pairs.high[form] == forced), ~trimmed | (pairs.low[form] == forced)])
    fan = free & ~done & ~paired
    return Choice(done, trimmed | paired, form, keep, _fans(work, fan, beaten, first[unit], pairs.level.unit))


def _fans(work: Open, fan: Mask, beaten: Mask, first: Indices, unit: Indices) -> list[Open]:
    """One copy of a cell for each piece that is possible, forced to it; the weight is shared."""
    found = []
    rank = int(np.bincount(unit).max())
    for place in range(rank if fan.any() else 0):
        piece = np.minimum(first + place, len(unit) - 1)
        here = fan & (unit[piece] == unit[first]) & (first + place < len(unit))
        here &= ~beaten[np.arange(len(fan)), piece]
        if here.any():
            copy = work.taken(here)
            found.append(replace(copy, forced=piece[here], cells=replace(copy.cells, weight=copy.cells.weight / rank)))
    return [_joined(found)] if found else []


def _joined(works: list[Open]) -> Open:
    if len(works) == 1:
        return works[0]
    return Open(
        join([work.cells for work in works]),
        joined([work.signs for work in works]),
        np.concatenate([work.forced for work in works]),
    )


def _cut(task: Task, work: Open, chosen: Mask, form: Indices, keep: Mask | None) -> Open:
    """The chosen cells, each cut by its form; the sides that are kept, positive ones first."""
    cells = work.cells
    by, home = form[chosen], cells.home[chosen]
    value, error = task.filter.forms.planes(by, home)
    plane = len(cells.planes.code) + np.arange(len(by))
    cells = replace(cells, planes=cells.planes.plus(*normalised(value, error), task.stage * LEVEL_STRIDE + by))
    own = work.signs.at(form[cells.cell]) * chosen[cells.cell]
    edge = cut_edges(cells, own)
    cell = cells.cell[cells.tail[edge]]
    fresh = _fresh(task, cells, edge, plane[(chosen.cumsum() - 1)[cell]])
    signs = joined([work.signs, _fresh_signs(task, work, fresh, form[cell], cells.home[cell])])
    parts, origin = halves(cells, Cut(chosen, plane, own, fresh), 0.5 * cells.weight[chosen])
    found = Open(parts, signs.rows(origin), np.concatenate([work.forced[chosen]] * 2))
    return found if keep is None else found.taken(keep[:, chosen].ravel())


def _fresh(task: Task, cells: Cells, edge: Indices, plane: Indices) -> Fresh:
    """The new vertices where planes cut edges; where float64 knows a place too poorly, rounded from the exact one."""
    rows = np.concatenate([cells.side_planes(edge), plane[:, None]], axis=1)
    point, radius, poor = crossing(cells.planes, rows)
    code = cells.planes.code[rows]
    if poor.any():
        home = cells.home[cells.cell[cells.tail[edge[poor]]]]
        point[poor], radius[poor] = task.oracle.doubles(task.pattern[home], code[poor])
    return Fresh(edge, point, radius, code)


def _fresh_signs(task: Task, work: Open, fresh: Fresh, form: Indices, home: Indices) -> Packed:
    """The signs at new vertices: those of the edge's ends, computed where these are strictly opposite."""
    tails, heads = work.signs.rows(work.cells.tail[fresh.edge]), work.signs.rows(work.cells.head[fresh.edge])
    known, opposite = between(tails, heads)
    opposite[np.arange(len(form)), form] = False
    vertex, which = np.nonzero(opposite)
    if not len(vertex):
        return known
    signs = np.zeros(opposite.shape, dtype=np.int8)
    signs[vertex, which] = _signs_at(task, which, home[vertex], fresh.point, fresh.radius, fresh.code, vertex)
    return Packed(known.words | packed(signs).words, known.forms)
