"""Cut every cell of a batch in two, each by a plane of its own.

All that is used are the signs of the vertices, +, 0 or -, which are exact. A cell has vertices of both strict signs, so
both parts have an interior. Directed loops make the rest a matter of looking:

    d = 1   an edge from + to - (or back) is cut at a new vertex
    d = 2   so is every such edge; going round, the loop leaves the positive side at one vertex (new, or of sign 0)
            and comes back at another one: the cut is the edge between them (plane.py)
    d = 3   the same for the loop of every face that is cut; and an edge that lies in the plane separates the new
            face from the one face beside it that is on the same side
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.cells import Cells, Cut, Fresh, Mask, Signs, places
from headsmith.regions.plane import halves_in_plane

AnyArray = TypeVar("AnyArray", Array, Indices)

Edges = tuple[Indices, Indices, Indices]
"""Tails, heads and sides of edges."""


def cut_edges(cells: Cells, signs: Signs) -> Indices:
    """The edges whose ends have opposite signs."""
    return places(signs[cells.tail] * signs[cells.head] < 0)


def halves(cells: Cells, cut: Cut, weight: Array) -> tuple[Cells, Indices]:
    """The positive parts of the cells that are cut, in order, then the negative parts.

    Also which vertex (old, then fresh) each of their vertices was.
    """
    if cells.dimension == 2:
        return halves_in_plane(cells, cut, weight)
    number, count, old = cut.chosen.cumsum() - 1, len(cut.plane), len(cells.cell)
    signs, fresh = cut.signs, cut.fresh
    touched = (signs == 0) & cut.chosen[cells.cell]
    new = old + np.arange(len(fresh.edge))
    positive, negative = places((signs > 0) | touched), places((signs < 0) | touched)
    cell_of_new = number[cells.cell[cells.tail[fresh.edge]]]
    origin = np.concatenate([positive, new, negative, new])
    cell = np.concatenate(
        [number[cells.cell[positive]], cell_of_new, count + number[cells.cell[negative]], count + cell_of_new]
    )
    order = np.argsort(cell, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    # Where each old and fresh vertex went, in the positive and in the negative parts.
    went = np.empty((2, old + len(new)), dtype=np.int64)
    went[0, origin[: len(positive) + len(new)]] = place[: len(positive) + len(new)]
    went[1, origin[len(positive) + len(new) :]] = place[len(positive) + len(new) :]
    origin = origin[order]
    tail, head, side, face = _sides(cells, cut, number, went)
    parts = Cells(
        home=_twice(cells.home[cut.chosen]),
        weight=_twice(weight),
        cell=cell[order],
        point=np.concatenate([cells.point, fresh.point])[origin],
        radius=np.concatenate([cells.radius, fresh.radius])[origin],
        code=np.concatenate([cells.code, fresh.code])[origin],
        tail=tail,
        head=head,
        side=side,
        face=face,
        planes=cells.planes,
    )
    return parts, origin


def _twice(values: AnyArray) -> AnyArray:
    return np.concatenate([values, values])


def _sides(cells: Cells, cut: Cut, number: Indices, went: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """Tails, heads, sides of the edges of all parts, and the planes of the faces."""
    if cells.dimension == 3:
        return _sides_in_space(cells, cut, number, went)
    tails, heads, sides = [], [], []
    for part, signs in enumerate((cut.signs, -cut.signs)):
        tail, head, side = _kept(cells, signs, cut.fresh)
        tails.append(went[part][tail])
        heads.append(went[part][head])
        sides.append(side)
    return np.concatenate(tails), np.concatenate(heads), np.concatenate(sides), cells.face


def _kept(cells: Cells, signs: Signs, fresh: Fresh) -> Edges:
    """Whole edges that are not negative and not in the plane, and the positive ends of those that are cut."""
    a, b = signs[cells.tail], signs[cells.head]
    whole = places((a + b > 0) & (a * b >= 0))
    new = len(cells.cell) + np.arange(len(fresh.edge))
    leaving = a[fresh.edge] > 0
    edges = np.concatenate([whole, fresh.edge])
    tails, heads = cells.tail[edges], cells.head[edges]
    tails[len(whole) :][~leaving] = new[~leaving]
    heads[len(whole) :][leaving] = new[leaving]
    return tails, heads, cells.side[edges]


def _caps(cells: Cells, cut: Cut) -> Edges:
    """The edges that the cuts add on the faces that they cut, running along the boundary of the positive part.

    Their side is (face, cell): the new face, one for each cell, has no number yet.
    """
    signs, edge = cut.signs, cut.fresh.edge
    new = len(cells.cell) + np.arange(len(edge))
    tails, heads = np.concatenate([cells.tail, cells.head]), np.concatenate([cells.head, cells.tail])
    loop = cells.side.T.ravel()
    edges = np.concatenate([edge, edge + len(cells.tail)])
    leave, enter = _passages(signs, tails, heads, loop, edges, _twice(new), len(cells.face))
    split = places(_has(cells, signs, 1) & _has(cells, signs, -1))
    cell_of_face = np.empty(len(cells.face), dtype=np.int64)
    cell_of_face[loop] = cells.cell[tails]
    return leave[split], enter[split], np.stack([split, cell_of_face[split]], axis=1)


def _passages(
    signs: Signs, tails: Indices, heads: Indices, loop: Indices, edge: Indices, new: Indices, loops: int
) -> tuple[Indices, Indices]:
    """For each loop the vertex where it leaves the positive side, and the one where it comes back to it."""
    a, b = signs[tails], signs[heads]
    leave, enter = np.zeros(loops, dtype=np.int64), np.zeros(loops, dtype=np.int64)
    touching_out, touching_in = places((a > 0) & (b == 0)), places((a == 0) & (b > 0))
    leave[loop[touching_out]] = heads[touching_out]
    enter[loop[touching_in]] = tails[touching_in]
    out = a[edge] > 0
    leave[loop[edge[out]]] = new[out]
    enter[loop[edge[~out]]] = new[~out]
    return leave, enter


def _has(cells: Cells, signs: Signs, sign: int) -> Mask:
    """Which faces have vertices of this sign."""
    has = np.zeros(len(cells.face), dtype=np.bool_)
    has[cells.side[(signs[cells.tail] == sign) | (signs[cells.head] == sign)]] = True
    return has


def _sides_in_space(
    cells: Cells, cut: Cut, number: Indices, went: Indices
) -> tuple[Indices, Indices, Indices, Indices]:
    """Faces are numbered anew: of each part those with vertices on its side, then a cap for each cell."""
    leave, enter, split = _caps(cells, cut)
    within = (cut.signs[cells.tail] == 0) & (cut.signs[cells.head] == 0) & cut.chosen[cells.cell[cells.tail]]
    within = places(within)
    left, right = cells.side[within].T
    tails, heads, sides, faces, before = [], [], [], [], 0
    for part, signs in enumerate((cut.signs, -cut.signs)):
        here = _has(cells, signs, 1)
        name = before + np.cumsum(here) - 1
        cap = before + int(here.sum()) + number
        tail, head, side = _kept(cells, signs, cut.fresh)
        # Of the two faces of an edge in the plane one is on this side: were both, the plane would not cut the cell.
        own, flat = here[left], cap[cells.cell[cells.tail[within]]]
        beside = np.stack([np.where(own, name[left], flat), np.where(own, flat, name[right])], axis=1)
        tails += [went[part][each] for each in (tail, enter if part else leave, cells.tail[within])]
        heads += [went[part][each] for each in (head, leave if part else enter, cells.head[within])]
        sides += [name[side], np.stack([name[split[:, 0]], cap[split[:, 1]]], axis=1), beside]
        faces += [cells.face[here], cut.plane]
        before += int(here.sum()) + len(cut.plane)
    return np.concatenate(tails), np.concatenate(heads), np.concatenate(sides), np.concatenate(faces)
