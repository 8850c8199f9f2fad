"""Cut a complex by affine forms, one after the other, from the vertices up to the cells.

All that is used are the signs of the forms at the vertices, which are exact. A face has two machine words: which of the
(at most 64) forms are positive at one of its vertices, and which are negative at one. A form with both cuts the face:

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
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.complex import FIRST, HOME, PLANES, SECOND, Complex, Mask, Words, ragged
from headsmith.regions.forms import GUARD, TINY, UNIT

Doubtful = Callable[[Indices, Indices, Indices], Any]
"""The exact signs of forms (columns) at vertices with these rows of planes, on these homes."""
LIMIT = 2.0**-20


def bits(signs: Mask) -> Words:
    """A mask (n, at most 64) as words, its first column the lowest bit."""
    rows, columns = signs.shape
    found = np.zeros((rows, 8), dtype=np.uint8)
    found[:, : -(-columns // 8)] = np.packbits(signs, axis=1, bitorder="little")
    return found.view("<u8").astype(np.uint64, copy=False)[:, 0]


def unpacked(words: Words, columns: int) -> Mask:
    """Words as a mask (n, columns)."""
    found = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(found, axis=1, count=columns, bitorder="little").view(np.bool_)


class Tables:
    """Arrays that grow together at their end."""

    def __init__(self, arrays: list[Any]) -> None:
        self.count = len(arrays[0])
        self.arrays = [_roomy(array, self.count) for array in arrays]

    def room(self, extra: int) -> list[Any]:
        """The arrays, with room for more rows."""
        if self.count + extra > len(self.arrays[0]):
            self.arrays = [_roomy(array[: self.count], self.count + extra) for array in self.arrays]
        return self.arrays


def _roomy(array: Any, least: int) -> Any:
    found = np.empty((max(64, 2 * least), *array.shape[1:]), dtype=array.dtype)
    found[: len(array)] = array
    return found


class Cutting:
    """A complex in work. `value` and `error` are those of the forms at the vertices, (vertices, forms), `positive` and
    `negative` their signs there. Form f on home h is plane number `base` + h * forms + f."""

    def __init__(
        self,
        complex: Complex,
        value: Array,
        error: Array,
        positive: Words,
        negative: Words,
        doubtful: Doubtful,
    ) -> None:
        self.complex, self.dimension = complex, complex.dimension
        self.doubtful = doubtful
        self.forms = value.shape[1]
        self.base = len(complex.planes.code)
        self.vertices = Tables([positive, negative, value, error, complex.face[0]])
        self.faces: list[Tables] = [self.vertices]
        self.lists = [Tables([each]) for each in complex.list]
        self.everything = np.uint64(2**self.forms - 1)
        seen = positive | negative
        self.touched = int(np.bitwise_or.reduce(~seen & self.everything)) if len(seen) else 0
        # Columns of every other dimension: positive, negative, both, the rows, and the negative part in this step.
        for k in range(1, self.dimension + 1):
            face = complex.face[k]
            if k == 1:
                ends = face[:, FIRST], face[:, SECOND]
                positive, negative = (each[ends[0]] | each[ends[1]] for each in (positive, negative))
            else:
                place = self._whole(face, complex.list[k])
                positive, negative = (
                    np.bitwise_or.reduceat(each[place[0]], place[1]) if len(face) else each[:0]
                    for each in (positive, negative)
                )
            minus = np.full(len(face), -1)
            self.faces.append(Tables([positive, negative, positive & negative, face, minus]))

    @staticmethod
    def _whole(face: Indices, entries: Indices) -> tuple[Indices, Indices]:
        """The lists of all faces one after the other, and where each begins."""
        length = face[:, SECOND]
        _, place = ragged(face[:, FIRST], length)
        return entries[place], length.cumsum() - length

    def cutting(self) -> list[int]:
        """The forms that cut some cell."""
        top = self.faces[-1]
        both = int(np.bitwise_or.reduce(top.arrays[2][: top.count])) if top.count else 0
        return [form for form in range(self.forms) if both >> form & 1]

    def cut(self, form: int, last: bool = False) -> None:
        """Cut everything by a form. After the `last` one no signs are needed at the vertices that it adds."""
        bit = np.uint64(1 << form)
        cut = [np.zeros(0, dtype=np.int64)]
        cut += [(each.arrays[2][: each.count] & bit).nonzero()[0] for each in self.faces[1:]]
        # What takes the number of a negative part to that of the new face between the parts.
        shift = self.vertices.count - self.faces[1].count
        if len(cut[1]):
            self._cut_edges(form, bit, cut[1], last)
        for k in range(2, self.dimension + 1):
            between = self.faces[k - 1].count - self.faces[k].count
            if len(cut[k]):
                self._cut_faces(form, bit, k, cut[k], shift)
            shift = between
        for each, rows in zip(self.faces[1:-1], cut[1:-1], strict=True):
            each.arrays[4][rows] = -1

    def _cut_edges(self, form: int, bit: np.uint64, edges: Indices, last: bool) -> None:
        count, table = len(edges), self.faces[1]
        positive, negative, both, face, minus = table.room(count)
        rows, open = face[edges], both[edges]
        u, v = rows[:, FIRST], rows[:, SECOND]
        known = positive[edges] & ~open, negative[edges] & ~open
        new = self.vertices.count + np.arange(count)
        self._add_vertices(form, bit, rows, open ^ bit, known, last)
        up, down = self.vertices.arrays[:2]
        above = (up[u] & bit) != 0
        high, low = np.where(above, u, v), np.where(above, v, u)
        added = slice(table.count, table.count + count)
        for where, end in ((edges, high), (added, low)):
            positive[where] = p = up[end] | up[new]
            negative[where] = n = down[end] | down[new]
            both[where] = p & n
        rows[:, FIRST], rows[:, SECOND] = low, new
        face[added] = rows
        face[edges, FIRST], face[edges, SECOND] = high, new
        minus[edges] = table.count + np.arange(count)
        minus[added] = -1
        table.count += count

    def _add_vertices(
        self, form: int, bit: np.uint64, edges: Indices, open: Words, known: tuple[Words, Words], last: bool
    ) -> None:
        """New vertices on edges (rows of them); `open` are the forms whose signs at the ends are strictly opposite.

        Guarantee, for a form with values A, B at the ends that is zero at the share t = A / (A - B) of the way: with a,
        b within e of A, B, and 2 e <= LIMIT |a - b|, a / (a - b) is within e / |a - b| (1 + LIMIT)^2 of t. A second
        form with values s, r at the ends, within E, is within E + |r - s| e / |a - b| (...) of s + a / (a - b) (r - s).
        """
        count, table = len(edges), self.vertices
        positive, negative, value, error, face = table.room(count)
        added = slice(table.count, table.count + count)
        rows = np.empty((count, face.shape[1]), dtype=np.int64)
        rows[:, :PLANES] = edges[:, :PLANES]
        rows[:, PLANES:-1] = edges[:, PLANES:]
        rows[:, -1] = self.base + edges[:, HOME] * self.forms + form
        face[added] = rows
        table.count += count
        up, down = known
        if not last:
            start, end = edges[:, FIRST], edges[:, SECOND]
            s, r, first, second = value[start], value[end], error[start], error[end]
            a, span = s[:, form], s[:, form] - r[:, form]
            spread = np.abs(span)
            wrong = np.maximum(first[:, form], second[:, form])
            poor = ~(2.0 * wrong <= LIMIT * spread)
            r -= s
            s_size = np.abs(s)
            found = s + (a / span)[:, None] * r
            np.abs(r, out=r)
            r *= (GUARD * wrong / spread + 16.0 * UNIT)[:, None]
            np.maximum(first, second, out=first)
            first += r
            s_size *= 4.0 * UNIT
            first += s_size
            first *= GUARD
            first += TINY
            if poor.any():
                found[poor] = np.nan
            value[added], error[added] = found, first
            if open.any():
                sure = found - found  # zero, or nan where nothing is known
                first += sure
                above, below = bits(found > first) & open, bits(found < -first) & open
                doubt = open & ~above & ~below
                up, down = up | above, down | below
                if doubt.any():
                    which, column = unpacked(doubt, self.forms).nonzero()
                    signs = self.doubtful(column, rows[which, PLANES:], rows[which, HOME])
                    one = np.left_shift(np.uint64(1), column.astype(np.uint64))
                    np.bitwise_or.at(up, which[signs > 0], one[signs > 0])
                    np.bitwise_or.at(down, which[signs < 0], one[signs < 0])
                    self.touched |= int(np.bitwise_or.reduce(one[signs == 0], initial=np.uint64(0)))
        positive[added], negative[added] = up, down

    def _cut_faces(self, form: int, bit: np.uint64, k: int, cut: Indices, shift: int) -> None:
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        positive, negative, both, face, minus = table.room(count)
        rows = face[cut]
        owner, place = ragged(rows[:, FIRST], rows[:, SECOND])
        member = self.lists[k].arrays[0][place]
        up, down, _, _, parts = under.arrays
        other = parts[member]
        divided = other >= 0
        # The new faces that bound the new face, and those of the plane that were there already.
        flat, line = other[divided] + shift, owner[divided]
        if self.touched & int(bit):
            whole = ~divided
            flat, line = self._in_plane(bit, k, flat, line, member[whole], owner[whole])
        new = under.count + np.arange(count)
        self._add_faces(form, k - 1, rows, flat, line)
        up, down = under.arrays[:2]
        above = (up[member] & bit) != 0
        below = divided | ((down[member] & bit) != 0)
        entries = np.concatenate([member[above], np.where(divided, other, member)[below]])
        side = np.concatenate([owner[above], owner[below] + count])
        length = np.bincount(side, minlength=2 * count) + 1
        stop = length.cumsum()
        written = np.empty(len(entries) + 2 * count, dtype=np.int64)
        written[np.arange(len(entries)) + side] = entries
        written[stop - 1] = np.concatenate([new, new])
        start = stop - length
        p, n = np.bitwise_or.reduceat(up[written], start), np.bitwise_or.reduceat(down[written], start)
        start += self._write(k, written)
        added = slice(table.count, table.count + count)
        for where, half in ((cut, slice(count)), (added, slice(count, None))):
            positive[where], negative[where], both[where] = p[half], n[half], p[half] & n[half]
            rows[:, FIRST], rows[:, SECOND] = start[half], length[half]
            face[where] = rows
        minus[cut] = table.count + np.arange(count)
        minus[added] = -1
        table.count += count

    def _add_faces(self, form: int, k: int, cut: Indices, flat: Indices, line: Indices) -> None:
        """The faces of dimension k along which those of dimension k + 1 (rows) are cut, bounded by `flat`."""
        count, table, under = len(cut), self.faces[k], self.faces[k - 1]
        positive, negative, both, face, minus = table.room(count)
        added = slice(table.count, table.count + count)
        rows = np.empty((count, face.shape[1]), dtype=np.int64)
        rows[:, :PLANES] = cut[:, :PLANES]
        rows[:, PLANES:-1] = cut[:, PLANES:]
        rows[:, -1] = self.base + cut[:, HOME] * self.forms + form
        up, down = under.arrays[:2]
        if k == 1:
            u, v = flat[0::2], flat[1::2]
            rows[:, FIRST], rows[:, SECOND] = u, v
            p, n = up[u] | up[v], down[u] | down[v]
        else:
            length = np.bincount(line, minlength=count)
            start = length.cumsum() - length
            p, n = np.bitwise_or.reduceat(up[flat], start), np.bitwise_or.reduceat(down[flat], start)
            rows[:, FIRST], rows[:, SECOND] = start + self._write(k, flat), length
        face[added], positive[added], negative[added], both[added], minus[added] = rows, p, n, p & n, -1
        table.count += count

    def _write(self, k: int, entries: Indices) -> int:
        """Entries written behind the lists of dimension k, and where."""
        table = self.lists[k]
        start = table.count
        table.room(len(entries))[0][start : start + len(entries)] = entries
        table.count += len(entries)
        return start

    def _in_plane(
        self, bit: np.uint64, k: int, flat: Indices, line: Indices, whole: Indices, owner: Indices
    ) -> tuple[Indices, Indices]:
        """Add the faces of dimension k - 2 of the faces that are not cut that lie in the plane: two share each."""
        face = self.faces[k - 1].arrays[-2][whole]
        if k == 2:
            found, which = face[:, FIRST : SECOND + 1].ravel(), owner.repeat(2)
        else:
            inner, place = ragged(face[:, FIRST], face[:, SECOND])
            found, which = self.lists[k - 1].arrays[0][place], owner[inner]
        positive, negative = self.faces[k - 2].arrays[:2]
        within = ((positive[found] | negative[found]) & bit) == 0
        pairs = np.unique(np.stack([which[within], found[within]], axis=1), axis=0)
        line, flat = np.concatenate([line, pairs[:, 0]]), np.concatenate([flat, pairs[:, 1]])
        order = line.argsort(kind="stable")
        return flat[order], line[order]

    def finished(self) -> Complex:
        """The faces as they are now; vertices that were added have no place yet."""
        face = tuple(each.arrays[-1 if k == 0 else 3][: each.count] for k, each in enumerate(self.faces))
        lists = tuple(each.arrays[0][: each.count] for each in self.lists)
        return replace(self.complex, face=face, list=lists)

    def signs(self, k: int) -> tuple[Words, Words]:
        """Which forms are positive, and which negative, at some vertex of each face of dimension k."""
        table = self.faces[k]
        return table.arrays[0][: table.count], table.arrays[1][: table.count]
