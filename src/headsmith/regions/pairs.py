"""Which forms decide a level: the differences of every two pieces of the same unit, and who wins by their signs.

For pieces low < high of a unit the form is high - low. On a cell, from the signs of the form at the vertices: low is
beaten if the form is nowhere negative and somewhere positive, high if it is nowhere positive. So equal pieces are
resolved to the lowest number; for a ReLU, whose piece 0 is zero, a neuron that vanishes on a whole cell is inactive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headsmith.core.arrays import Indices
from headsmith.regions.cells import Mask
from headsmith.regions.levels import Level
from headsmith.regions.signs import Packed


@dataclass(frozen=True, eq=False)
class Pairs:
    """The forms of a level: form i is piece high[i] - piece low[i], whose rows are high_row[i] and low_row[i].

    `simple`: every unit has two pieces, and one form. Otherwise `of_low` and `of_high` (forms, pieces) are 1 for the
    piece low[i], high[i].
    """

    level: Level
    low: Indices
    high: Indices
    low_row: Indices
    high_row: Indices
    simple: bool
    of_low: npt.NDArray[np.float32]
    of_high: npt.NDArray[np.float32]

    def beaten(self, found: Packed) -> Mask:
        """The pieces (cells, pieces) that lose to another one on the whole cell.

        `found` has for each cell and form whether it is positive, and whether it is negative, at some vertex.
        """
        positive, negative = found.some_positive, found.some_negative
        low = (positive & ~negative).astype(np.float32)
        high = (~positive).astype(np.float32)
        return np.asarray(low @ self.of_low + high @ self.of_high > 0.0)

    def winners(self, found: Packed) -> Indices:
        """The piece (its number within the unit) that each unit (cells, units) takes, where only one is left."""
        if self.simple:
            return found.some_positive.astype(np.int64)
        pieces = len(self.level.row)
        place = np.where(self.beaten(found), pieces, np.arange(pieces))
        return np.asarray(np.minimum.reduceat(place, self.level.first, axis=1) - self.level.first)


def pairs_of(level: Level) -> Pairs:
    """All pairs of pieces of each unit, in order."""
    ranks = np.bincount(level.unit, minlength=1)
    simple = bool(np.all(ranks == 2))
    if simple:
        low, high = level.first, level.first + 1
        of_low = of_high = np.zeros((0, 0), dtype=np.float32)
    else:
        found = [
            (first + i, first + j)
            for first, rank in zip(level.first.tolist(), ranks.tolist(), strict=True)
            for i in range(rank)
            for j in range(i + 1, rank)
        ]
        low, high = np.array(found, dtype=np.int64).reshape(-1, 2).T
        of_low, of_high = (np.eye(len(level.row), dtype=np.float32)[pieces] for pieces in (low, high))
    return Pairs(level, low, high, level.row[low], level.row[high], simple, of_low, of_high)
