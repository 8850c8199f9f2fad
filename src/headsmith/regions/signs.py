"""Signs of many forms at many points, as two bits each: sixty-four forms in a machine word.

A cell is cut by a form if one of its vertices is positive and one negative: an "or" over the words of its vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headsmith.core.arrays import Indices
from headsmith.regions.cells import Mask, Signs

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Packed:
    """The signs of `forms` forms in each row: words (rows, 2, n), whose bit f is set in the first half where form f is
    positive, in the second where it is negative, and in neither where it is zero."""

    words: Words
    forms: int

    def rows(self, chosen: Indices | Mask) -> Packed:
        return Packed(self.words[chosen], self.forms)

    def at(self, form: Indices) -> Signs:
        """The sign of form[i] in row i."""
        bits = self.words.view(np.uint8)[np.arange(len(form)), :, form >> 3] >> (form & 7).astype(np.uint8)[:, None]
        bits &= 1
        signed = bits.view(np.int8)
        return np.asarray(signed[:, 0] - signed[:, 1])

    def over(self, start: Indices) -> Packed:
        """For each group of rows, by its first one, whether some are positive and whether some are negative."""
        return Packed(np.bitwise_or.reduceat(self.words, start, axis=0), self.forms)

    @property
    def some_positive(self) -> Mask:
        return unpacked(self.words[:, 0], self.forms)

    @property
    def some_negative(self) -> Mask:
        return unpacked(self.words[:, 1], self.forms)

    @property
    def both(self) -> Words:
        """Where there are positive and negative ones, as words (rows, n)."""
        return np.asarray(self.words[:, 0] & self.words[:, 1])


def packed(signs: Signs) -> Packed:
    """Signs (rows, forms), packed; the order of the bits is that of the bytes in memory."""
    rows, forms = signs.shape
    found = np.zeros((rows, 2, 8 * max(1, -(-forms // 64))), dtype=np.uint8)
    size = -(-forms // 8)
    found[:, 0, :size] = np.packbits(signs > 0, axis=1, bitorder="little")
    found[:, 1, :size] = np.packbits(signs < 0, axis=1, bitorder="little")
    return Packed(found.view(np.uint64), forms)


def unpacked(words: Words, forms: int) -> Mask:
    """The bits of words (rows, n), as (rows, forms)."""
    if not words.flags.c_contiguous:
        words = words.copy()
    return np.unpackbits(words.view(np.uint8), axis=1, count=forms, bitorder="little").view(np.bool_)


def joined(parts: Sequence[Packed]) -> Packed:
    """Rows one after the other."""
    return Packed(np.concatenate([part.words for part in parts]), parts[0].forms)


def between(before: Packed, after: Packed) -> tuple[Packed, Mask]:
    """The signs inside segments whose ends have these signs, and where the ends are strictly opposite: unknown."""
    crossed = before.words & after.words[:, ::-1]
    opposite = crossed[:, 0] | crossed[:, 1]
    known = (before.words | after.words) & ~opposite[:, None]
    return Packed(known, before.forms), unpacked(opposite, before.forms)
