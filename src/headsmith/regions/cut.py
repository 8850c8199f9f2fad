"""Cut a complex by affine forms, from the vertices up to the cells: one form after the other, or several at a time that
cut no cell in common.

All that is used are the signs of the forms at the vertices, which are exact. A face has a machine word: the lower half
says which of the (at most 32) forms are positive at one of its vertices, the upper half which are negative at one. A
form that is both cuts the face:

    an edge                 at a new vertex, into two edges
    a face of dimension k   along a new face of dimension k - 1, into two. The parts of a bounding face, or the whole
                            of it, go to the side that they are on. The new face is bounded by the new faces of those
                            that are cut, and by the faces of dimension k - 2 that lie in the plane already.

The positive part keeps its number, the negative one is added. A bounding face is never in the plane: the face would be
on one side of it.

At a new vertex a form has the sign that it has at both ends of the edge. Where these are strictly opposite it is
interpolated, with a bound of the error; where the bound does not decide, rationals do (`doubtful`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.complex import FIRST, HOME, PLANES, SECOND, Complex, Mask, Words, ragged
from headsmith.regions.forms import GUARD, UNIT

COLUMNS = 32
"""Forms that cut at a time: bits of half a machine word."""
HALF = np.uint64(COLUMNS)
LIMIT = 2.0**-20
FEW = 2048
"""Cells up to which it is worth while to look for forms that can cut at the same time."""

Doubtful = Callable[[Indices, Indices, Indices], Any]
"""The exact signs of forms (columns) at vertices with these rows of planes, on these homes."""


def words_of(positive: Mask, negative: Mask) -> Words:
    """Signs (n, at most 32) as words, the first column in the lowest bit of each half."""
    rows, columns = positive.shape
    signs = np.zeros((rows, 2, COLUMNS), dtype=np.bool_)
    signs[:, 0, :columns] = positive
    signs[:, 1, : negative.shape[1]] = negative
    return np.packbits(signs, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def lower_half(words: Words, columns: int) -> Mask:
    """The lower halves of words as a mask (n, columns)."""
    found = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(found, axis=1, count=columns, bitorder="little").view(np.bool_)


class Tables:
    """Arrays that grow together at their end."""

    def __init__(self, *arrays: Any) -> None:
        self.count = len(arrays[0])
        self.arrays = [_roomy(array, self.count) for array in arrays]

    def room(self, extra: int) -> list[Any]:
        """The arrays, with room for more rows."""
        if self.count + extra > len(self.arrays[0]):
            self.arrays = [_roomy(array[: self.count], self.count + extra) for array in self.arrays]
        return self.arrays


def _roomy(array: Any, least: int) -> Any:
    found = np.empty((64 + 8 * least, *array.shape[1:]), dtype=array.dtype)
    found[: len(array)] = array
    return found


@dataclass(frozen=True, eq=False)
class By:
    """What faces are cut by: the bit and the number of one form, or of one for each face."""

    bit: Any
    form: Any

    def bits(self, owner: Indices) -> Any:
        """The bit for each entry of lists."""
        return self.bit if isinstance(self.form, int) else self.bit.take(owner)


class Cutting:
    """A complex in work. `value` (vertices, forms) are the forms at the vertices, scaled to at most 1, to within
    `error` (vertices), `signs` the words of the vertices. Form f is column `chosen[f]` of `width`: on home h its plane
    is number `base` + h * width + column."""

    def __init__(
        self,
        complex: Complex,
        value: Array,
        error: Array,
        signs: Words,
        chosen: Indices,
        width: int,
        doubtful: Doubtful,
    ) -> None:
        self.complex, self.dimension, self.doubtful = complex, complex.dimension, doubtful
        self.chosen, self.width = chosen, width
        self.forms, self.base = value.shape[1], len(complex.planes.code)
        self.vertices = Tables(signs, value, error, complex.face[0])
        everything = np.uint64(2**self.forms - 1)
        touched = np.bitwise_or.reduce(~(signs | signs >> HALF) & everything, initial=np.uint64(0))
        # The forms that are zero at some vertex that they did not make.
        self.touched = int(touched)
        self.lists = [Tables(each) for each in complex.list]
        # Of every face: its word, the forms that cut it, its row, and (in a cut) the number of its negative part.
        self.faces: list[Tables] = []
        for k, face in enumerate(complex.face):
            if k == 1:
                signs = signs[face[:, FIRST]] | signs[face[:, SECOND]]
            elif k > 1:
                length = face[:, SECOND]
                _, place = ragged(face[:, FIRST], length)
                signs = np.bitwise_or.reduceat(signs[complex.list[k][place]], length.cumsum() - length)
            if k:
                self.faces.append(Tables(signs, signs & signs >> HALF, face, np.arange(len(face))))
            else:
                self.faces.append(self.vertices)

    def cutting(self) -> list[list[int]]:
        """The forms that cut some cell, those together that have no cell in common (and so no face)."""
        top = self.faces[-1]
        both = top.arrays[1][: top.count]
        every = int(np.bitwise_or.reduce(both))
        active = [form for form in range(self.forms) if every >> form & 1]
        if top.count > FEW:
            return [[form] for form in active]
        cuts = lower_half(both, self.forms).astype(np.float32)
        common = words_of(cuts.T @ cuts > 0.0, np.zeros((self.forms, 0), dtype=np.bool_)).tolist()
        found: dict[int, list[int]] = {}
        for form in active:
            mask = next((mask for mask in found if not mask & common[form]), 0)
            found[mask | 1 << form] = [*found.pop(mask, []), form]
        return list(found.values())

    def cut(self, forms: list[int], left: int) -> None:
        """Cut everything by forms that have no face in common. Forms below number `left` cut nothing any more."""
        mask = np.uint64(sum(1 << form for form in forms))
        cut = [(each.arrays[1][: each.count] & mask).astype(np.bool_).nonzero()[0] for each in self.faces[1:]]
        single = forms[0] if len(forms) == 1 else None
        # What takes the number of a negative part to that of the new face between the parts.
        shift = self.vertices.count - self.faces[1].count
        if len(cut[0]):
            self._cut_edges(self._by(1, cut[0], mask, single), cut[0], left)
        for k in range(2, self.dimension + 1):
            between = self.faces[k - 1].count - self.faces[k].count
            if len(cut[k - 1]):
                self._cut_faces(self._by(k, cut[k - 1], mask, single), k, cut[k - 1], shift)
            shift = between
        for each, rows in zip(self.faces[1:-1], cut, strict=False):
            each.arrays[3][rows] = rows

    def _by(self, k: int, rows: Indices, mask: np.uint64, single: int | None) -> By:
        """What each of some faces of dimension k is cut by: one of the forms of a mask."""
        if single is not None:
            return By(mask, single)
        bit = self.faces[k].arrays[1].take(rows) & mask
        return By(bit, np.frexp(bit.astype(np.float64))[1].astype(np.int64) - 1)

    def _cut_edges(self, by: By, edges: Indices, left: int) -> None:
        count, table = len(edges), self.faces[1]
        word, both, face, minus = table.room(count)
        rows, signs, divided = face.take(edges, axis=0), word.take(edges), both.take(edges)
        u, v = rows[:, FIRST], rows[:, SECOND]
        new = np.arange(self.vertices.count, self.vertices.count + count)
        known = signs & ~(divided | divided << HALF)
        middle = self._add_vertices(by.form, rows, divided ^ by.bit, known, left)
        ends = self.vertices.arrays[0]
        above = (ends.take(u) & by.bit).astype(np.bool_)
        high, low = np.where(above, u, v), np.where(above, v, u)
        upper, lower = ends.take(high) | middle, ends.take(low) | middle
        start, stop = table.count, table.count + count
        word[edges], word[start:stop] = upper, lower
        both[edges], both[start:stop] = upper & upper >> HALF, lower & lower >> HALF
        face[edges, FIRST] = high
        face[edges, SECOND] = new
        rows[:, FIRST], rows[:, SECOND] = low, new
        face[start:stop] = rows
        minus[edges] = minus[start:stop] = np.arange(start, stop)
        table.count = stop

    def _add_vertices(self, form: Any, edges: Indices, open: Words, known: Words, left: int) -> Words:
        """New vertices on edges (rows of them), and their words; `open` are the forms whose signs at the ends are
        strictly opposite.

        Guarantee, for a form with values A, B at the ends that is zero at the share t = A / (A - B) of the way: with a,
        b within e of A, B, and e <= LIMIT |a - b|, a / (a - b) is within (1 + 3 LIMIT)^2 e / |a - b| + 3u of t. So a
        second form with values s, r, at most 1, to within e, too, is s + a / (a - b) (r - s) to within e, and
        |r - s| times that, and 6u for the rounding.
        """
        count, table = len(edges), self.vertices
        word, value, error, face = table.room(count)
        start, stop = table.count, table.count + count
        rows = face[start:stop]
        rows[:, :-1] = edges
        rows[:, -1] = edges[:, HOME] * self.width + (self.base + self.chosen[form])
        table.count = stop
        if left == self.forms:
            word[start:stop] = known
            return known
        u, v = edges[:, FIRST], edges[:, SECOND]
        s, r = value.take(u, axis=0), value.take(v, axis=0)
        each = slice(None) if isinstance(form, int) else np.arange(count)
        a = s[each, form].copy()
        span = a - r[each, form]
        s, r = s[:, left:], r[:, left:]
        wrong = np.maximum(error.take(u), error.take(v))
        share = wrong / np.abs(span)
        r -= s
        found = r * (a / span)[:, None]
        found += s
        reach = np.abs(r, out=r).max(axis=1)
        wrong += reach * (GUARD * share + 16.0 * UNIT)
        wrong += 16.0 * UNIT
        # Where nothing is known well (or at all), no sign is decided.
        near = np.where(share <= LIMIT, GUARD * wrong, np.inf)
        value[start:stop, left:], error[start:stop] = found, near
        if open.any():
            known = self._decided(left, found, near[:, None], open, known, rows)
        word[start:stop] = known
        return known

    def _decided(self, first: int, value: Array, near: Array, open: Words, known: Words, rows: Indices) -> Words:
        """The words of new vertices with the open forms decided; `value` are the forms from number `first` on."""
        signs = words_of(value > near, value < -near) << np.uint64(first)
        known = known | (signs & (open | open << HALF))
        doubt = open & ~(known | known >> HALF)
        if doubt.any():
            which, column = lower_half(doubt, self.forms).nonzero()
            exact = self.doubtful(self.chosen[column], rows[which, PLANES:], rows[which, HOME])
            bit = np.left_shift(np.uint64(1), column.astype(np.uint64))
            np.bitwise_or.at(known, which[exact > 0], bit[exact > 0])
            np.bitwise_or.at(known, which[exact < 0], bit[exact < 0] << HALF)
            self.touched |= int(np.bitwise_or.reduce(bit[exact == 0], initial=np.uint64(0)))
        return known

    def _cut_faces(self, by: By, k: int, cut: Indices, shift: int) -> None:
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        word, both, face, minus = table.room(count)
        rows = face.take(cut, axis=0)
        owner, place = ragged(rows[:, FIRST], rows[:, SECOND])
        member = self.lists[k].arrays[0].take(place)
        signs, other = under.arrays[0].take(member), under.arrays[3].take(member)
        above = (signs & by.bits(owner)).astype(np.bool_)
        divided = other != member
        both_parts = divided.nonzero()[0]
        # The new faces that bound the new face, and those of the plane that were there already.
        flat, line = other.take(both_parts) + shift, owner.take(both_parts)
        if self.touched:
            whole = ~divided
            flat, line = self._in_plane(by, k, flat, line, member[whole], owner[whole])
        new = np.arange(under.count, under.count + count)
        self._add_faces(by.form, k - 1, rows, flat, line)
        # A bounding face that is not above and not cut is below.
        up, down = above.nonzero()[0], (divided | ~above).nonzero()[0]
        entries = np.concatenate([member.take(up), other.take(down)])
        side = np.concatenate([owner.take(up), owner.take(down) + count])
        length = np.bincount(side, minlength=2 * count)
        length += 1
        end = length.cumsum()
        side += np.arange(len(side))
        written = np.empty(len(entries) + 2 * count, dtype=np.int64)
        written[side] = entries
        written[end - 1] = np.concatenate([new, new])
        end -= length
        signs = np.bitwise_or.reduceat(under.arrays[0].take(written), end)
        end += self._write(k, written)
        start, stop = table.count, table.count + count
        divided_by = signs & signs >> HALF
        word[cut], word[start:stop] = signs[:count], signs[count:]
        both[cut], both[start:stop] = divided_by[:count], divided_by[count:]
        face[cut, FIRST] = end[:count]
        face[cut, SECOND] = length[:count]
        rows[:, FIRST], rows[:, SECOND] = end[count:], length[count:]
        face[start:stop] = rows
        if k < self.dimension:
            minus[cut] = minus[start:stop] = np.arange(start, stop)
        table.count = stop

    def _add_faces(self, form: Any, k: int, cut: Indices, flat: Indices, line: Indices) -> None:
        """The faces of dimension k along which those of dimension k + 1 (rows) are cut, bounded by `flat`."""
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        word, both, face, minus = table.room(count)
        start, stop = table.count, table.count + count
        rows = face[start:stop]
        rows[:, :-1] = cut
        rows[:, -1] = cut[:, HOME] * self.width + (self.base + self.chosen[form])
        signs = under.arrays[0].take(flat)
        if k == 1:
            rows[:, FIRST], rows[:, SECOND] = flat[0::2], flat[1::2]
            signs = signs[0::2] | signs[1::2]
        else:
            length = np.bincount(line, minlength=count)
            begin = length.cumsum() - length
            signs = np.bitwise_or.reduceat(signs, begin)
            rows[:, FIRST], rows[:, SECOND] = begin + self._write(k, flat), length
        word[start:stop], both[start:stop] = signs, signs & signs >> HALF
        minus[start:stop] = np.arange(start, stop)
        table.count = stop

    def _write(self, k: int, entries: Indices) -> int:
        """Entries written behind the lists of dimension k, and where."""
        table = self.lists[k]
        start = table.count
        table.room(len(entries))[0][start : start + len(entries)] = entries
        table.count += len(entries)
        return start

    def _in_plane(
        self, by: By, k: int, flat: Indices, line: Indices, whole: Indices, owner: Indices
    ) -> tuple[Indices, Indices]:
        """Add the faces of dimension k - 2 of the faces that are not cut that lie in the plane: two share each."""
        face = self.faces[k - 1].arrays[2][whole]
        if k == 2:
            found, which = face[:, FIRST : SECOND + 1].ravel(), owner.repeat(2)
        else:
            inner, place = ragged(face[:, FIRST], face[:, SECOND])
            found, which = self.lists[k - 1].arrays[0][place], owner[inner]
        signs = self.faces[k - 2].arrays[0][found]
        within = ((signs | signs >> HALF) & by.bits(which)) == 0
        pairs = np.unique(np.stack([which[within], found[within]], axis=1), axis=0)
        line, flat = np.concatenate([line, pairs[:, 0]]), np.concatenate([flat, pairs[:, 1]])
        order = line.argsort(kind="stable")
        return flat[order], line[order]

    def finished(self) -> Complex:
        """The faces as they are now; vertices that were added have no place yet."""
        face = tuple(each.arrays[2 if k else 3][: each.count] for k, each in enumerate(self.faces))
        lists = tuple(each.arrays[0][: each.count] for each in self.lists)
        return replace(self.complex, face=face, list=lists)

    def positive(self, k: int) -> Words:
        """Which forms are positive at some vertex of each face of dimension k."""
        table = self.faces[k]
        return np.asarray(table.arrays[0][: table.count] & np.uint64(2**32 - 1))
