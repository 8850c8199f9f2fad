"""Cut polygons: the case d = 2, where a cell's vertices stand in the order of its loop and edge i leaves vertex i.

Going round, write down every vertex and, after it, the new vertex where its edge is cut, if it is. The positive part is
what is not negative of this list, in the same order, and the negative part what is not positive. Each part leaves its
own side at one vertex: the edge from there is the cut, all others keep their lines.
"""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.cells import Cells, Cut


def halves_in_plane(cells: Cells, cut: Cut, weight: Array) -> tuple[Cells, Indices]:
    """The positive parts of the cells that are cut, in order, then the negative parts; and where each vertex was."""
    old, fresh, signs = len(cells.cell), cut.fresh, cut.signs
    following = signs[cells.head]
    zero, cuts = signs == 0, signs * following < 0
    # Two slots for each vertex: itself, and the cut of its edge.
    source = np.empty((old, 2), dtype=np.int64)
    source[:, 0] = np.arange(old)
    source[fresh.edge, 1] = old + np.arange(len(fresh.edge))
    kept, leaves = np.empty((2, old, 2), dtype=np.bool_), np.empty((2, old, 2), dtype=np.bool_)
    kept[:, :, 1] = cuts
    touched = zero & cut.chosen[cells.cell]
    for place, (own, after) in enumerate(((signs > 0, following < 0), (signs < 0, following > 0))):
        kept[place, :, 0] = own | touched
        leaves[place, :, 0] = zero & after
        leaves[place, :, 1] = own
    part, vertex, slot = kept.nonzero()
    origin = source[vertex, slot]
    number = cut.chosen.cumsum() - 1
    of_cut = number[cells.cell[vertex]]
    cell = of_cut + part * len(cut.plane)
    side = np.where(leaves[part, vertex, slot], cut.plane[of_cut], cells.side[vertex, 0])
    last = np.append((cell[1:] != cell[:-1]).nonzero()[0], len(cell) - 1)
    head = np.arange(1, len(cell) + 1)
    head[last] = np.append(0, last[:-1] + 1)
    home = cells.home[cut.chosen]
    parts = Cells(
        home=np.concatenate([home, home]),
        weight=np.concatenate([weight, weight]),
        cell=cell,
        point=np.concatenate([cells.point, fresh.point])[origin],
        radius=np.concatenate([cells.radius, fresh.radius])[origin],
        code=np.concatenate([cells.code, fresh.code])[origin],
        tail=np.arange(len(cell)),
        head=head,
        side=side[:, None],
        face=cells.face,
        planes=cells.planes,
    )
    return parts, origin
