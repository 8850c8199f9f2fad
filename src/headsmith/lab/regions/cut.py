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
from headsmith.lab.regions.complex import FIRST, HOME, PLANES, SECOND, Complex, Mask, Words, ragged
from headsmith.lab.regions.forms import GUARD, UNIT

COLUMNS = 32
"""Forms that cut at a time, at most: bits of half a machine word."""
HALF = np.uint64(COLUMNS)
TWICE = np.uint64(2**COLUMNS + 1)
"""Times this, a lower half is in both halves."""
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
    signs[:, 1, :columns] = negative
    return _packed(signs)


def signs_of(value: Array, near: Array, first: int) -> Words:
    """The words of forms, number `first` and following, with these values (n, forms) to within `near` (n, 1)."""
    rows, columns = value.shape
    signs = np.zeros((rows, 2, COLUMNS), dtype=np.bool_)
    np.greater(value, near, out=signs[:, 0, first : first + columns])
    np.less(value, -near, out=signs[:, 1, first : first + columns])
    return _packed(signs)


def _packed(signs: Mask) -> Words:
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
    """A complex in work, its faces at `homes` (one array for each dimension). `value` (vertices, forms) are the forms
    at the vertices, scaled to at most 1, to within `error` (vertices), `signs` the words of the vertices. The plane of
    form f on home h is number `base` + h * forms + f. The complex itself stays as it is."""

    def __init__(
        self, complex: Complex, homes: list[Indices], value: Array, error: Array, signs: Words, doubtful: Doubtful
    ) -> None:
        self.complex, self.dimension, self.doubtful = complex, complex.dimension, doubtful
        self.forms, self.base = value.shape[1], len(complex.planes.code)
        self.lists = [Tables(each) for each in complex.list]
        everything = np.uint64(2**self.forms - 1)
        touched = np.bitwise_or.reduce(~(signs | signs >> HALF) & everything, initial=np.uint64(0))
        # The forms that are zero at some vertex that they did not make.
        self.touched = int(touched)
        # Of every face: its word, its row, and (in a cut) the number of its negative part.
        self.vertices = Tables(signs, complex.face[0], value, error)
        self.faces: list[Tables] = [self.vertices]
        for k, face in enumerate(complex.face[1:], 1):
            if k == 1:
                signs = signs.take(face[:, FIRST]) | signs.take(face[:, SECOND])
            else:
                length = face[:, SECOND]
                _, place = ragged(face[:, FIRST], length)
                signs = np.bitwise_or.reduceat(signs.take(complex.list[k].take(place)), length.cumsum() - length)
            self.faces.append(Tables(signs, face, np.arange(len(face))))
        for table, home in zip(self.faces, homes, strict=True):
            table.arrays[1][: table.count, HOME] = home
        every = int(np.bitwise_or.reduce(signs & signs >> HALF))
        # The forms that cut some cell and have not done so yet.
        self.todo = [form for form in range(self.forms) if every >> form & 1]

    @property
    def cells(self) -> int:
        return self.faces[-1].count

    def next_forms(self) -> list[int]:
        """The first form that is to do, and others, if there are few cells: forms that cut no cell in common, and so no
        face in common. Each of them is done then."""
        found, top = self.todo[:1], self.faces[-1]
        if top.count <= FEW and len(self.todo) > 1:
            words = top.arrays[0][: top.count]
            cuts = words & words >> HALF
            found, beside = [], 0
            for form in self.todo:
                if not beside >> form & 1:
                    found.append(form)
                    beside |= int(np.bitwise_or.reduce(cuts[(cuts & np.uint64(1 << form)).astype(np.bool_)]))
        self.todo = [form for form in self.todo if form not in found]
        return found

    def cut(self, forms: list[int]) -> None:
        """Cut everything by forms that have no face in common."""
        mask = np.uint64(sum(1 << form for form in forms))
        single = forms[0] if len(forms) == 1 else None
        cut = [self._cut_by(each, mask, single) for each in self.faces[1:]]
        # What takes the number of a negative part to that of the new face between the parts.
        shift = self.vertices.count - self.faces[1].count
        rows, by = cut[0]
        if len(rows):
            self._cut_edges(by, rows)
        for k, (rows, by) in enumerate(cut[1:], 2):
            between = self.faces[k - 1].count - self.faces[k].count
            if len(rows):
                self._cut_faces(by, k, rows, shift)
            shift = between
        for each, (rows, _) in zip(self.faces[1:-1], cut, strict=False):
            each.arrays[2][rows] = rows

    @staticmethod
    def _cut_by(table: Tables, mask: np.uint64, single: int | None) -> tuple[Indices, By]:
        """The faces of a dimension that are cut, and what by: the only form of the mask, or each by one of several."""
        words = table.arrays[0][: table.count]
        if single is not None:
            both = mask | mask << HALF
            return ((words & both) == both).nonzero()[0], By(mask, single)
        bit = words & words >> HALF
        bit &= mask
        rows = bit.nonzero()[0]
        bit = bit.take(rows)
        return rows, By(bit, np.frexp(bit.astype(np.float64))[1].astype(np.int64) - 1)

    def _cut_edges(self, by: By, edges: Indices) -> None:
        count, table = len(edges), self.faces[1]
        word, face, minus = table.room(count)
        rows, signs = face.take(edges, axis=0), word.take(edges)
        u, v = rows[:, FIRST], rows[:, SECOND]
        new = np.arange(self.vertices.count, self.vertices.count + count)
        divided = signs & signs >> HALF
        middle = self._add_vertices(by.form, rows, divided ^ by.bit, signs ^ divided * TWICE)
        ends = self.vertices.arrays[0]
        above = (ends.take(u) & by.bit).astype(np.bool_)
        high, low = np.where(above, u, v), np.where(above, v, u)
        start, stop = table.count, table.count + count
        word[edges], word[start:stop] = ends.take(high) | middle, ends.take(low) | middle
        face[edges, FIRST] = high
        face[edges, SECOND] = new
        rows[:, FIRST], rows[:, SECOND] = low, new
        face[start:stop] = rows
        minus[edges] = minus[start:stop] = np.arange(start, stop)
        table.count = stop

    def _add_vertices(self, form: Any, edges: Indices, open: Words, known: Words) -> Words:
        """New vertices on edges (rows of them), and their words; `open` are the forms whose signs at the ends are
        strictly opposite.

        Guarantee, for a form with values A, B at the ends that is zero at the share t = A / (A - B) of the way: with a,
        b within e of A, B, and e <= LIMIT |a - b|, a / (a - b) is within (1 + 3 LIMIT)^2 e / |a - b| + 3u of t. So a
        second form with values s, r, at most 1, to within e, too, is s + a / (a - b) (r - s) to within e, and
        |r - s| times that, and 6u for the rounding.
        """
        count, table = len(edges), self.vertices
        word, face, value, error = table.room(count)
        start, stop = table.count, table.count + count
        rows = face[start:stop]
        rows[:, :-1] = edges
        rows[:, -1] = edges[:, HOME] * self.forms + (self.base + form)
        table.count = stop
        if not self.todo:
            word[start:stop] = known
            return known
        left = self.todo[0]
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
        share *= GUARD
        share += 16.0 * UNIT
        wrong += reach * share
        near = GUARD * wrong
        near += 17.0 * UNIT
        # Where nothing is known well (or at all), no sign is decided.
        if not share.max() <= LIMIT:
            near[~(share <= LIMIT)] = np.inf
        value[start:stop, left:], error[start:stop] = found, near
        if open.any():
            known = self._decided(left, found, near[:, None], open, known, rows)
        word[start:stop] = known
        return known

    def _decided(self, first: int, value: Array, near: Array, open: Words, known: Words, rows: Indices) -> Words:
        """The words of new vertices with the open forms decided; `value` are the forms from number `first` on."""
        known = known | signs_of(value, near, first) & open * TWICE
        doubt = open & ~(known | known >> HALF)
        if doubt.any():
            which, column = lower_half(doubt, self.forms).nonzero()
            exact = self.doubtful(column, rows[which, PLANES:], rows[which, HOME])
            bit = np.left_shift(np.uint64(1), column.astype(np.uint64))
            np.bitwise_or.at(known, which[exact > 0], bit[exact > 0])
            np.bitwise_or.at(known, which[exact < 0], bit[exact < 0] << HALF)
            self.touched |= int(np.bitwise_or.reduce(bit[exact == 0], initial=np.uint64(0)))
        return known

    def _cut_faces(self, by: By, k: int, cut: Indices, shift: int) -> None:
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        rows = table.arrays[1].take(cut, axis=0)
        new = np.arange(under.count, under.count + count)
        under.room(count)[2][under.count : under.count + count] = new
        # The entries of the lists, and at the end of each list one more, for the new face.
        length = rows[:, SECOND] + 1
        last = length.cumsum()
        last -= 1
        owner = np.arange(count).repeat(length)
        place = np.arange(len(owner))
        place += (rows[:, FIRST] + rows[:, SECOND] - last).take(owner)
        member = self.lists[k].room(1)[0].take(place)
        member[last] = new
        signs, other = under.arrays[0].take(member), under.arrays[2].take(member)
        divided = other != member
        both_parts = divided.nonzero()[0]
        # The new faces that bound the new face, and those of the plane that were there already.
        flat, line = other.take(both_parts) + shift, owner.take(both_parts)
        above = (signs & by.bits(owner)).astype(np.bool_)
        if self.touched:
            whole = ~divided
            whole[last] = False
            flat, line = self._in_plane(by, k, flat, line, member[whole], owner[whole])
        self._add_faces(by.form, k - 1, rows, flat, line)
        # A bounding face that is not above and not cut is below. The new face is on both sides.
        below = divided | ~above
        above[last] = below[last] = True
        up, down = above.nonzero()[0], below.nonzero()[0]
        written = np.concatenate([member.take(up), other.take(down)])
        length = np.concatenate([np.bincount(owner.take(each), minlength=count) for each in (up, down)])
        begin = length.cumsum()
        begin -= length
        signs = np.bitwise_or.reduceat(under.arrays[0].take(written), begin)
        begin += self._write(k, written)
        word, face, minus = table.room(count)
        start, stop = table.count, table.count + count
        word[cut], word[start:stop] = signs[:count], signs[count:]
        face[cut, FIRST] = begin[:count]
        face[cut, SECOND] = length[:count]
        rows[:, FIRST], rows[:, SECOND] = begin[count:], length[count:]
        face[start:stop] = rows
        if k < self.dimension:
            minus[cut] = minus[start:stop] = np.arange(start, stop)
        table.count = stop

    def _add_faces(self, form: Any, k: int, cut: Indices, flat: Indices, line: Indices) -> None:
        """The faces of dimension k along which those of dimension k + 1 (rows) are cut, bounded by `flat`."""
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        word, face, _ = table.arrays
        start, stop = table.count, table.count + count
        rows = face[start:stop]
        rows[:, :-1] = cut
        rows[:, -1] = cut[:, HOME] * self.forms + (self.base + form)
        signs = under.arrays[0].take(flat)
        if k == 1:
            rows[:, FIRST], rows[:, SECOND] = flat[0::2], flat[1::2]
            word[start:stop] = signs[0::2] | signs[1::2]
        else:
            length = np.bincount(line, minlength=count)
            begin = length.cumsum() - length
            word[start:stop] = np.bitwise_or.reduceat(signs, begin)
            rows[:, FIRST], rows[:, SECOND] = begin + self._write(k, flat), length
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
        face = self.faces[k - 1].arrays[1][whole]
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
        face = tuple(each.arrays[1][: each.count] for each in self.faces)
        lists = tuple(each.arrays[0][: each.count] for each in self.lists)
        return replace(self.complex, face=face, list=lists)

    def positive(self, k: int) -> Words:
        """Which forms are positive at some vertex of each face of dimension k."""
        table = self.faces[k]
        return np.asarray(table.arrays[0][: table.count] & np.uint64(2**32 - 1))
