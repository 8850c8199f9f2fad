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
from headsmith.lab.regions.complex import Mask, Pattern, Planes
from headsmith.lab.regions.levels import Level, Levels

UNIT = 2.0**-53
GUARD = 1.0 + 2.0**-6
TINY = 2.0**-900
SMALL_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS stays on one thread."""
IN_CACHE = 2**13
"""Numbers that are worked on at a time where several arrays of as many are needed."""


@dataclass(frozen=True, eq=False)
class CellForms:
    """Affine forms of the coordinates, on each home, with bounds of their errors."""

    value: Array
    error: Array

    def taken(self, homes: Indices) -> CellForms:
        """The forms on some homes, in this order."""
        return CellForms(self.value.take(homes, axis=1), self.error.take(homes, axis=1))

    def chosen(self, forms: Indices) -> CellForms:
        """Some of the forms, in this order."""
        return CellForms(self.value.take(forms, axis=2), self.error.take(forms, axis=2))

    def planes(self, form: Indices, home: Indices) -> tuple[Array, Array]:
        """One form on one home each, as rows (slopes, constant) with their two bounds."""
        return self.value[:, home, form].T, self.error[:, home, form].T


def coordinates(placement: Array, homes: int) -> CellForms:
    """The inputs as forms of the coordinates, on homes of which nothing is known: exact."""
    value = np.repeat(placement.T[:, None, :], homes, axis=1)
    return CellForms(value, np.zeros((2, homes, len(placement))))


def apply(weights: Array, bias: Array, state: CellForms) -> CellForms:
    """weights @ state + bias.

    Guarantee: exact forms F, G with |F - state.value| <= state.error and G = weights F + bias lie within the error
    returned: |G - value| <= |weights| error + (n + 2) u (|weights| |value| + |bias|).
    """
    count = state.value.shape[2]
    same = _same(state)
    value = _shared_product(state.value, weights, same)
    value[-1] += bias
    rounding = 1.01 * (count + 2) * UNIT
    size = np.empty_like(state.error)
    size[0] = _largest(state.value)
    np.abs(state.value[-1], out=size[1])
    size *= rounding
    size += state.error
    error = _shared_product(size, np.abs(weights), same)
    error[1] += rounding * np.abs(bias)
    error *= GUARD
    return CellForms(value, error)


def _same(state: CellForms) -> Mask:
    """Which forms are the same on all homes: they need to be multiplied only once. None, where that does not pay."""
    _, homes, count = state.value.shape
    same = np.ones(count, dtype=np.bool_)
    for each in (*state.value[::-1], *state.error):
        if homes < 64 or 4 * np.count_nonzero(same) < count:
            return np.zeros(count, dtype=np.bool_)
        same &= (each == each[0]).all(axis=0)
    return same


def _shared_product(forms: Array, weights: Array, same: Mask) -> Array:
    """forms (k, homes, n) times weights (m, n); `same` are the forms that are the same on all homes."""
    columns, homes, count = forms.shape
    if not same.any():
        return _product(forms.reshape(-1, count), weights).reshape(columns, homes, len(weights))
    rest = np.flatnonzero(~same)
    rows = forms.take(rest, axis=2).reshape(columns * homes, len(rest))
    found = _product(rows, weights[:, rest]).reshape(columns, homes, len(weights))
    found += (forms[:, 0, same] @ weights[:, same].T)[:, None]
    return found


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


def gap(rows: CellForms, homes: Indices | None, high: Indices, low: Indices) -> CellForms:
    """Row high[i] less row low[i], where -1 is the row that is zero: on every home form i, or (with `homes`) on home
    number homes[i] the only form."""
    up, down = _picked(rows, homes, high), _picked(rows, homes, low)
    value = up.value - down.value
    error = up.error + down.error
    error[0] += UNIT * _largest(value)
    error[1] += UNIT * np.abs(value[-1])
    return CellForms(value, GUARD * error)


def _picked(rows: CellForms, homes: Indices | None, chosen: Indices) -> CellForms:
    zero = chosen < 0
    if homes is None:
        value, error = rows.value[:, :, chosen], rows.error[:, :, chosen]
        value[:, :, zero], error[:, :, zero] = 0.0, 0.0
        return CellForms(value, error)
    value, error = rows.value[:, homes, chosen], rows.error[:, homes, chosen]
    value[:, zero], error[:, zero] = 0.0, 0.0
    return CellForms(value[..., None], error[..., None])


def selected(rows: CellForms, level: Level, winners: Indices) -> CellForms:
    """The units of a level: on home h unit i is the piece winners[h, i] of its pieces. `rows` is used up."""
    if level.is_relu:
        mask = winners.astype(np.float64)
        return CellForms(np.multiply(rows.value, mask, out=rows.value), np.multiply(rows.error, mask, out=rows.error))
    row = level.row[level.first + winners]
    value, error = (np.take_along_axis(each, row[None], axis=2) for each in (rows.value, rows.error))
    zero = row == -1
    return CellForms(np.where(zero, 0.0, value), np.where(zero, 0.0, error))


def readout(levels: Levels, placement: Array, pattern: Pattern) -> CellForms:
    """The outputs as forms of the coordinates on cells with these activation patterns."""
    state, end = coordinates(placement, len(pattern)), 0
    for level in levels.levels:
        winners = pattern[:, end : end + level.units].astype(np.int64)
        units = selected(apply(level.weights, level.bias, state), level, winners)
        state, end = stacked(state.chosen(level.carry), units), end + level.units
    return apply(levels.weights, levels.bias, state)


def stacked(first: CellForms, second: CellForms) -> CellForms:
    """Forms of two lists, on the same homes."""
    if not first.value.shape[2]:
        return second
    return CellForms(
        np.concatenate([first.value, second.value], axis=2), np.concatenate([first.error, second.error], axis=2)
    )


def values_at(forms: CellForms, point: Array, radius: Array, home: Indices, floor: float) -> tuple[Array, Array]:
    """The values of all forms at points that are known to within `radius`, on these homes, and bounds of their errors.

    Guarantee: with s the sum of the slopes' sizes, c the constant, e and f the bounds of their errors, and X no less
    than any coordinate, |form(x) - value| <= radius (s + d e) + X (d e + (d + 4) u s) + f + (d + 4) u |c|. To this
    `floor` is added: what underflow may hide.
    """
    count, d = point.shape
    slope = np.abs(forms.value[0])
    for axis in range(1, d):
        slope += np.abs(forms.value[axis])
    wobble, rounding = d * forms.error[0], (d + 4) * UNIT
    largest = np.abs(point).max(initial=0.0)
    near = GUARD * (slope + wobble)
    fixed = GUARD * (largest * (wobble + rounding * slope) + forms.error[1] + rounding * np.abs(forms.value[-1]))
    fixed += floor
    value, bound = np.empty((2, count, slope.shape[1]))
    block = 1 + IN_CACHE // max(1, slope.shape[1])
    for start in range(0, count, block):
        rows = slice(start, start + block)
        at = home[rows]
        found = forms.value[-1].take(at, axis=0)
        for each, x in zip(forms.value, point[rows].T, strict=False):
            term = each.take(at, axis=0)
            term *= x[:, None]
            found += term
        wrong = near.take(at, axis=0)
        wrong *= radius[rows, None]
        wrong += fixed.take(at, axis=0)
        # Infinity and nan decide nothing.
        wrong += 0.0 * found
        value[rows], bound[rows] = found, wrong
    return value, bound


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
    which of them are not known well, with bounds that do not hold."""
    d = rows.shape[1]
    if d > 3:
        relative, loose = planes.slack[rows].sum(axis=1).T
        return _solved(planes.plane[rows], relative, loose)
    # By Cramer's rule: with rho_r the slack of the slopes of row r and c_r its constant, the determinant is within
    # d! (sum rho + 8u) of the exact one, a numerator within (d-1)! sum_r (|c_r| (sum rho + 8u) + slack of c_r), to
    # first order; GUARD covers the rest while sum rho is below 2^-10.
    entries = [planes.plane.take(each, axis=0).T for each in rows.T]
    relative, loose = sum(planes.slack.take(each, axis=0) for each in rows.T).T
    relative = relative + 8.0 * UNIT
    determinant, numerators = _cramer(entries)
    point = [each / determinant for each in numerators]
    constants, size = np.abs(entries[0][-1]), np.abs(point[0])
    for row, each in zip(entries[1:], point[1:], strict=True):
        constants += np.abs(row[-1])
        np.maximum(size, np.abs(each), out=size)
    top = (GUARD * (1, 1, 2)[d - 1]) * (constants * relative + loose)
    bottom = (GUARD * (1, 2, 6)[d - 1]) * relative
    room = np.abs(determinant) - bottom
    radius = GUARD * ((top + size * bottom) / room + (4.0 * UNIT) * size)
    poor = ~((radius <= 2.0**-30 * (1.0 + size)) & (room > bottom) & (relative < 2.0**-10))
    return np.stack(point, axis=1), radius, poor


def _cramer(rows: Sequence[Array]) -> tuple[Array, list[Array]]:
    """The determinants of d planes, each (slopes and constant, n), and the numerators of where they meet."""
    if len(rows) == 1:
        ((a, b),) = rows
        return a, [-b]
    if len(rows) == 2:
        (a, b, c), (p, q, r) = rows
        return a * q - b * p, [b * r - c * q, c * p - a * r]
    (a, b, c, k), (p, q, r, m), (x, y, z, n) = rows
    first = q * z - r * y, r * x - p * z, p * y - q * x
    second = y * c - z * b, z * a - x * c, x * b - y * a
    third = b * r - c * q, c * p - a * r, a * q - b * p
    numerators = [-(k * u + m * v + n * w) for u, v, w in zip(first, second, third, strict=True)]
    return a * first[0] + b * first[1] + c * first[2], numerators


def _solved(plane: Array, relative: Array, loose: Array) -> tuple[Array, Array, Mask]:
    """The same in any dimension d. With an approximate inverse R of the normals A and x = -R c, every exact A', c'
    within the slacks has A' x' = -c' with |x' - x| <= |R (A x + c)| + ... <= b / (1 - q) in the maximum norm, where
    q bounds |I - R A'| and b bounds |R (A' x + c')|."""
    d = plane.shape[1]
    normal, constant = plane[..., :d], plane[..., d]
    inverse = np.empty_like(normal)
    try:
        inverse[:] = np.linalg.inv(normal)
    except np.linalg.LinAlgError:
        for i, each in enumerate(normal):
            inverse[i] = np.linalg.pinv(each) if np.isfinite(each).all() else np.nan
    point = -(inverse @ constant[..., None])[..., 0]
    rounding = (d + 3) * UNIT
    size = np.abs(point).max(axis=1)
    # Entries of A are at most 1, so |A| |x| <= d size; slopes are off by `relative` at most, constants by `loose`.
    residual = np.abs((normal @ point[..., None])[..., 0] + constant)
    residual += (d * size * (relative + rounding))[:, None] + rounding * np.abs(constant) + loose[:, None]
    weights = np.abs(inverse)
    b = (weights @ residual[..., None])[..., 0].max(axis=1)
    defect = np.abs(np.eye(d) - inverse @ normal).sum(axis=2).max(axis=1)
    q = defect + weights.sum(axis=2).max(axis=1) * d * (relative + 2.0 * rounding) + rounding
    radius = GUARD * (b / (1.0 - q) + 4.0 * UNIT * size) + TINY
    return point, radius, ~((radius <= 2.0**-30 * (1.0 + size)) & (q < 0.25))


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
