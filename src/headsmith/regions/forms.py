"""Affine forms on cells in float64, each with a bound of its error; signs where the bound decides them.

A `Forms` holds, for n forms on H homes, value (d + 1, H, n), the slopes and then the constant, and error (2, H, n):
every slope is within error[0] of the stored one, the constant within error[1].

With u = 2^-53 a floating-point sum of k products, in any order, is within 1.01 k u times the sum of the absolute
products (k u < 0.01). `GUARD` covers that factor and the roundings in the bounds themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.regions.cells import Cells, Mask, Planes, Signs
from headsmith.regions.levels import Level, Levels

UNIT = 2.0**-53
GUARD = 1.0 + 2.0**-6
TINY = 2.0**-900
SMALL_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS stays on one thread."""


@dataclass(frozen=True, eq=False)
class Forms:
    """Affine forms of the coordinates, on each home, with bounds of their errors."""

    value: Array
    error: Array

    def taken(self, homes: Indices) -> Forms:
        """The forms on some homes, in this order."""
        return Forms(self.value.take(homes, axis=1), self.error.take(homes, axis=1))

    def chosen(self, forms: Indices) -> Forms:
        """Some of the forms, in this order."""
        return Forms(self.value[..., forms], self.error[..., forms])

    def planes(self, form: Indices, home: Indices) -> tuple[Array, Array]:
        """One form on one home each, as rows (slopes, constant) with their two bounds."""
        return self.value[:, home, form].T, self.error[:, home, form].T


def apply(weights: Array, bias: Array, state: Forms) -> Forms:
    """weights @ state + bias.

    Guarantee: exact forms F, G with |F - state.value| <= state.error and G = weights F + bias lie within the error
    returned: |G - value| <= |weights| error + (n + 2) u (|weights| |value| + |bias|).
    """
    columns, homes, count = state.value.shape
    value = _product(state.value.reshape(-1, count), weights).reshape(columns, homes, len(weights))
    value[-1] += bias
    rounding = 1.01 * (count + 2) * UNIT
    size = np.empty_like(state.error)
    size[0] = _largest(state.value)
    np.abs(state.value[-1], out=size[1])
    size *= rounding
    size += state.error
    error = _product(size.reshape(-1, count), np.abs(weights)).reshape(2, homes, len(weights))
    error[1] += rounding * np.abs(bias)
    error *= GUARD
    return Forms(value, error)


def _product(rows: Array, weights: Array) -> Array:
    """rows @ weights.T, in blocks so small that the linear algebra library does not wake a second thread for them.

    A block takes microseconds; waiting for threads takes longer, and on a busy machine many times longer.
    """
    block = SMALL_PRODUCT // max(1, weights.size)
    whole = len(rows) - len(rows) % max(1, block)
    if block < 8 or whole <= block:
        return np.asarray(rows @ weights.T)
    found = np.empty((len(rows), len(weights)))
    blocks = rows[:whole].reshape(-1, block, rows.shape[1])
    np.matmul(blocks, weights.T, out=found[:whole].reshape(-1, block, len(weights)))
    np.matmul(rows[whole:], weights.T, out=found[whole:])
    return found


def _largest(value: Array) -> Array:
    """The largest absolute slope of each form."""
    slopes: Array = np.abs(value[0])
    for axis in range(1, len(value) - 1):
        np.maximum(slopes, np.abs(value[axis]), out=slopes)
    return slopes


def difference(rows: Forms, high: Indices, low: Indices) -> Forms:
    """Row high[i] less row low[i], where -1 is the row that is zero."""
    up, down = _padded(rows, high), _padded(rows, low)
    value = up.value - down.value
    error = up.error + down.error
    error[0] += UNIT * _largest(value)
    error[1] += UNIT * np.abs(value[-1])
    return Forms(value, GUARD * error)


def _padded(rows: Forms, chosen: Indices) -> Forms:
    if np.all(chosen >= 0):
        return rows.chosen(chosen)
    zeros = Forms(np.zeros_like(rows.value, shape=(*rows.value.shape[:2], 1)), np.zeros((*rows.error.shape[:2], 1)))
    return stacked(rows, zeros).chosen(chosen)


def selected(rows: Forms, level: Level, winners: Indices) -> Forms:
    """The units of a level: on home h unit i is the piece winners[h, i] of its pieces. `rows` is used up."""
    if level.is_relu:
        mask = winners.astype(np.float64)
        return Forms(np.multiply(rows.value, mask, out=rows.value), np.multiply(rows.error, mask, out=rows.error))
    row = level.row[level.first + winners]
    value, error = (np.take_along_axis(each, row[None], axis=2) for each in (rows.value, rows.error))
    zero = row == -1
    return Forms(np.where(zero, 0.0, value), np.where(zero, 0.0, error))


def stacked(first: Forms, second: Forms) -> Forms:
    """Forms of two lists, on the same homes."""
    if not first.value.shape[2]:
        return second
    return Forms(
        np.concatenate([first.value, second.value], axis=2), np.concatenate([first.error, second.error], axis=2)
    )


@dataclass(frozen=True, eq=False)
class Filter:
    """Forms prepared for the question "which sign at x": |form(x) - computed| <= radius * near + |x| * far + fixed."""

    forms: Forms
    near: Array
    far: Array
    fixed: Array

    def signs(self, form: Indices, home: Indices, point: Array, radius: Array) -> tuple[Signs, Mask]:
        """The signs of forms at points known to within `radius`, and where they are in doubt."""
        *slopes, value = self.forms.value[:, home, form]
        size = np.zeros(len(point))
        for slope, x in zip(slopes, point.T, strict=True):
            value = value + slope * x
            size = np.maximum(size, np.abs(x))
        bound = radius * self.near[home, form] + size * self.far[home, form] + self.fixed[home, form]
        return _decided(value, bound)

    def signs_round(self, centre: Array, radius: Array) -> tuple[Signs, Mask]:
        """For every cell (homes in order) and form the sign that it has throughout |x - centre| <= radius."""
        *slopes, constant = self.forms.value
        value = constant.copy()
        for slope, x in zip(slopes, centre.T, strict=True):
            value += slope * x[:, None]
        bound = self.near * radius[:, None]
        bound += self.far * np.abs(centre).max(axis=1)[:, None]
        bound += self.fixed
        return _decided(value, bound)


def _decided(value: Array, bound: Array) -> tuple[Signs, Mask]:
    """Signs, and a mask of those that the bound does not decide; nan and infinity do not decide."""
    bound = bound + 0.0 * value
    signs = (value > bound).view(np.int8) - (value < -bound).view(np.int8)
    # What is zero with a bound of zero is zero.
    return signs, (signs == 0) & (bound != 0.0)


def prepared(forms: Forms, floor: float) -> Filter:
    """The filter of these forms. `floor` is added to every bound: what underflow may hide."""
    d = len(forms.value) - 1
    slope = np.abs(forms.value[0])
    for axis in range(1, d):
        slope += np.abs(forms.value[axis])
    wobble = d * forms.error[0]
    rounding = (d + 4) * UNIT
    near = GUARD * (slope + wobble)
    far = GUARD * (wobble + rounding * slope)
    fixed = GUARD * (forms.error[1] + rounding * np.abs(forms.value[-1])) + floor
    return Filter(forms, near, far, fixed)


def normalised(plane: Array, slack: Array) -> tuple[Array, Array]:
    """Planes divided by their largest slope, and the bounds of their errors with it."""
    largest = np.abs(plane[:, :-1]).max(axis=1)[:, None]
    # A constant that is not zero has a slack that is not: what underflows here is below TINY.
    floor = TINY * (slack[:, 1] > 0.0)
    plane = plane / largest
    slack = slack / largest
    slack[:, 0] += UNIT
    slack[:, 1] += UNIT * np.abs(plane[:, -1]) + floor
    return plane, GUARD * slack


def crossing(planes: Planes, rows: Indices) -> tuple[Array, Array, Mask]:
    """Where d normalised planes meet (rows of the table, (n, d)): points, bounds of their error in each coordinate, and
    which of them are not known well, with bounds that do not hold.

    By Cramer's rule: with rho_r the slack of the slopes of row r and c_r its constant, the determinant is within
    d! (sum rho + 8u) of the exact one, a numerator within (d-1)! sum_r (|c_r| (sum rho + 8u) + slack of c_r), to first
    order; GUARD covers the rest while sum rho is below 2^-10.
    """
    plane, d = planes.plane[rows], rows.shape[1]
    relative, loose = planes.slack[rows].sum(axis=1).T
    relative = relative + 8.0 * UNIT
    determinant, numerator = _cramer(plane[..., :d], plane[..., d])
    point = numerator / determinant[:, None]
    top = (GUARD * (1, 1, 2)[d - 1]) * (np.abs(plane[..., d]).sum(axis=1) * relative + loose)
    bottom = (GUARD * (1, 2, 6)[d - 1]) * relative
    size, room = np.abs(point).max(axis=1), np.abs(determinant) - bottom
    radius = GUARD * ((top + size * bottom) / room + (4.0 * UNIT) * size)
    return point, radius, ~((radius <= 2.0**-30 * (1.0 + size)) & (room > bottom) & (relative < 2.0**-10))


def _cramer(normal: Array, constant: Array) -> tuple[Array, Array]:
    """The determinants of normals (n, d, d), and the numerators (n, d) of the solutions of normal x = -constant."""
    if normal.shape[1] == 1:
        return normal[:, 0, 0], -constant
    if normal.shape[1] == 2:
        (a, b), (p, q) = normal[:, 0].T, normal[:, 1].T
        c, r = constant.T
        return a * q - b * p, np.stack([b * r - c * q, c * p - a * r], axis=1)
    first, second, third = normal[:, 0], normal[:, 1], normal[:, 2]
    crosses = np.stack([np.cross(second, third), np.cross(third, first), np.cross(first, second)], axis=1)
    return np.einsum("nk,nk->n", first, crosses[:, 0]), -np.einsum("nr,nrk->nk", constant, crosses)


def underflow_floor(levels: Levels, others: Sequence[Array]) -> float:
    """What to add to bounds against underflow: nothing where no product can underflow.

    Every number that is computed is a multiple of the product of the units in the last place of the smallest weight of
    each level; its products with bounds, of that times 2^-53.
    """
    bits = 60.0
    for array in [w for level in levels.levels for w in (level.weights, level.bias)] + list(others):
        sizes = np.abs(array[array != 0.0])
        if len(sizes):
            bits += max(0.0, 53.0 - float(np.log2(sizes.min())))
    return 0.0 if bits < 900.0 else TINY


def centres(cells: Cells) -> tuple[Array, Array]:
    """A box round each cell: its centre, and a radius that reaches every vertex in each coordinate."""
    start = cells.start
    low = np.minimum.reduceat(cells.point, start, axis=0)
    high = np.maximum.reduceat(cells.point, start, axis=0)
    fuzz = np.maximum.reduceat(cells.radius, start)
    centre = 0.5 * (low + high)
    reach = np.maximum(high - centre, centre - low).max(axis=1)
    return centre, GUARD * (reach + fuzz) + 0.0
