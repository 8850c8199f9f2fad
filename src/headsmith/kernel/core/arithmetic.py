"""Numbers that round themselves: nobody who uses them counts operations.

    Upper       an array of upper bounds. Sums, products, quotients and powers of e are rounded upwards.
    Interval    an array of closed intervals [low, high]. Results are rounded outwards, and not at all where the exact
                result is a double: the error of a floating-point sum or product is itself a double (Knuth, Dekker), and
                its sign tells on which side of the computed number the exact one lies.

A plain number or array that meets one of these is taken as exact. What is not a number stays so, and nobody accepts it.
What is assumed of the machine: IEEE double precision, rounding to nearest, gradual underflow; numpy's exp correct to
`EXP_ULPS` units in the last place; a product of matrices that adds its terms in some order, fused or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import spend
from .sparse import MOST_PAIRS, Sparse, entrywise, sparse_of

Array = npt.NDArray[np.float64]
Weights = Any  # a matrix (to, from), as an array or by its entries (sparse.py); or a vector, for a diagonal one

EXP_ULPS = 4  # exp is assumed correct to this many units in the last place, here and in the model's runtime

TINY = 2.0**-1022
SPLIT = 134217729.0  # 2^27 + 1: splits a double into two halves
SAFE = 2.0**-960  # the error of a smaller product may underflow
OVERHEAD = 8000.0  # what an operation on arrays costs, however small they are (errors.spend)
FEW = 32  # sums of at most so many terms that are not zero are added one by one, exactly where that is possible


@dataclass(frozen=True)
class Precision:
    """A floating-point format: every operation returns the exact result times 1 + d, |d| <= unit_roundoff, and loses at
    most `smallest_normal` where it underflows. Products with powers of two are `exact`, unless the format says
    otherwise.

    Formats of 16 bits compute in float32, and hold numbers of their own: weights and inputs; and what embedding,
    queries, keys, values, means of heads, output maps, sums of the stream and read-out return is rounded once more, to
    a number times 1 + d, |d| <= held. Scores, powers of e and weights of tokens are never held. (float16 underflows
    gradually, and so loses half of its smallest number.) Scores may be off by `loose` besides, in any way."""

    name: str
    unit_roundoff: float
    smallest_normal: float
    largest: float
    exact: bool = True
    held: float = 0.0
    loose: float = 0.0

    @property
    def normal(self) -> float:
        """From here on numbers are rounded relatively."""
        return self.smallest_normal / (self.held or 1.0)

    def gamma(self, operations: Any, held: Any = 4.0) -> Upper:
        """k u / (1 - k u): a sum of k products, added in any order, is off by at most that share of the sum of sizes.
        Infinite from k u = 1/2 on. So many results on the way may be `held`, and count for more: of a score, no more
        than a weight that is stored as a product, the query and the key; of a head, its mean besides."""
        # k is a whole number below 2^52, so k u and 1 - k u are doubles; and so they are with 2^-8 or 2^-11 more.
        share = np.asarray(operations, dtype=np.float64) * self.unit_roundoff + held * self.held
        return Upper(np.where(share < 0.5, _up(share / (1.0 - np.minimum(share, 0.5)), share == 0.0), np.inf))


FLOAT64 = Precision("float64", 2.0**-53, 2.0**-1022, float(np.finfo(np.float64).max))
FLOAT32 = Precision("float32", 2.0**-24, 2.0**-126, float(np.finfo(np.float32).max))
BFLOAT16 = Precision("bfloat16", 2.0**-24, 2.0**-126, (2.0 - 2.0**-7) * 2.0**127, held=2.0**-8)
FLOAT16 = Precision("float16", 2.0**-24, 2.0**-25, 65504.0, held=2.0**-11)
PRECISIONS = {each.name: each for each in (FLOAT64, FLOAT32, BFLOAT16, FLOAT16)}


def _up(value: Any, exact: Any) -> Array:
    return np.asarray(np.where(exact, value, np.nextafter(value, np.inf)))


class Upper:
    """Upper bounds of numbers. Products and quotients are for numbers that are not negative."""

    __slots__ = ("value",)
    __array_ufunc__ = None  # so that array + Upper comes here

    def __init__(self, value: Any) -> None:
        self.value: Array = np.asarray(value, dtype=np.float64)
        spend(OVERHEAD + 8.0 * self.value.size, self.value.size)

    def __add__(self, other: Any) -> Upper:
        right = bound(other)
        return Upper(_up(self.value + right, (self.value == 0.0) | (right == 0.0)))

    def __mul__(self, other: Any) -> Upper:
        """What is zero stays so, whatever it is multiplied with: nothing is known of a number that is at most infinity,
        but that it is one."""
        right = bound(other)
        zero = (self.value == 0.0) | (right == 0.0)
        with np.errstate(invalid="ignore"):
            return Upper(np.where(zero, 0.0, np.nextafter(self.value * right, np.inf)))

    def __rmatmul__(self, matrix: Weights) -> Upper:
        """|matrix| @ bounds; a vector stands for a diagonal matrix. What is not known need not matter: 0 times infinity
        is 0 here."""
        spend(matrix.size * max(self.value.size // max(len(self.value), 1), 1))
        if not self.value.any():
            return Upper(np.zeros((len(matrix), *self.value.shape[1:])))
        sizes, known = entrywise(matrix, np.abs), np.isfinite(self.value)
        if not known.all():
            rest: Upper = sizes @ Upper(np.where(known, self.value, 0.0))
            return rest + np.where(applied(sizes, ~known) > 0.0, np.inf, 0.0)
        if matrix.ndim == 1:
            return Upper((Upper(self.value.T) * sizes).value.T)
        terms, total = getattr(matrix, "most", matrix.shape[1]), Upper(sizes @ self.value)
        slack = FLOAT64.gamma(terms + 1) * total + terms * TINY
        zero = total.value == 0.0
        if zero.any():
            # A sum without any term is exactly zero; one of terms that underflowed is not.
            zero &= applied(sizes, self.value != 0.0) == 0.0
        return Upper(np.where(zero, 0.0, (total + slack + slack).value))

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other: Any) -> Upper:
        """A plain number less: an exact one, or a lower bound."""
        return Upper(_up(self.value - other, np.equal(other, 0.0)))

    def __truediv__(self, other: Any) -> Upper:
        """Divided by plain positive numbers: exact ones, or lower bounds."""
        right = np.asarray(other, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            result = _up(self.value / right, self.value == 0.0)
        return Upper(np.where(right > 0.0, result, np.inf))

    def __getitem__(self, index: Any) -> Upper:
        return Upper(self.value[index])

    def exp(self) -> Upper:
        """e to the power of the bounded number; never less than the smallest normal number."""
        with np.errstate(over="ignore"):
            power = np.exp(np.maximum(self.value, -708.0))
        return Upper(power) * (1.0 + 4.0 * EXP_ULPS * FLOAT64.unit_roundoff)

    def sqrt(self) -> Upper:
        """The square root: correctly rounded, so one step is enough."""
        return Upper(_up(np.sqrt(self.value), self.value == 0.0))

    def sum(self, axis: int = -1) -> Upper:
        """The sum along an axis."""
        return _added(self.value.sum(axis=axis), self.value.shape[axis])

    def running(self) -> Upper:
        """The sums of the first one, two, ... along the last axis, of numbers that are not negative."""
        return _added(np.cumsum(self.value, axis=-1), self.value.shape[-1])

    def max(self, axis: int | None = None) -> Upper:
        """The largest, along an axis or of all; 0 of nothing."""
        return Upper(np.max(self.value, axis=axis, initial=0.0))

    def reshape(self, *shape: int) -> Upper:
        """The same numbers in another shape."""
        return Upper(self.value.reshape(*shape))


def _added(sums: Any, terms: int) -> Upper:
    """Upper bounds of sums of so many terms, none of which is negative."""
    total = Upper(sums)
    slack = FLOAT64.gamma(terms) * total
    return total + slack + slack


def applied(matrix: Any, values: Any) -> Array:
    """How many entries of each row that are not zero (or no number) meet values that are true."""
    counted, numbers = entrywise(matrix, lambda each: each != 0.0), values.astype(np.float64)
    return np.asarray(counted @ numbers if matrix.ndim == 2 else (numbers.T * counted).T)


def bound(number: Any) -> Array:
    """The bounds of an Upper, or a plain number as it is."""
    return number.value if isinstance(number, Upper) else np.asarray(number, dtype=np.float64)


def largest(*bounds: Any) -> Upper:
    """The larger of several bounds, entry by entry."""
    return Upper(reduce(np.maximum, map(bound, bounds)))


def smallest(*bounds: Any) -> Upper:
    """The best of several bounds of the same numbers, entry by entry; nan is no bound."""
    return Upper(reduce(np.fmin, map(bound, bounds)))


class Interval:
    """Closed intervals, one for each entry of two arrays."""

    __slots__ = ("high", "low")
    __array_ufunc__ = None

    def __init__(self, low: Any, high: Any) -> None:
        self.low: Array = np.asarray(low, dtype=np.float64)
        self.high: Array = np.asarray(high, dtype=np.float64)
        spend(OVERHEAD + 32.0 * self.low.size, self.low.size)

    @property
    def magnitude(self) -> Upper:
        """The largest absolute value of each."""
        return Upper(np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def width(self) -> Upper:
        """The length of each."""
        return Upper(self.high) - self.low

    def __add__(self, other: Any) -> Interval:
        right = interval(other)
        return Interval(rounded_sum(self.low, right.low, -np.inf), rounded_sum(self.high, right.high, np.inf))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Any) -> Interval:
        return self + -interval(other)

    def __mul__(self, other: Any) -> Interval:
        """The products; one for each end where the other factor is a point."""
        low, high, right = self.low, self.high, interval(other)
        if right.low is right.high:
            first, second = (np.where(right.low >= 0.0, *ends) for ends in ((low, high), (high, low)))
            return Interval(_product(first, right.low, -np.inf), _product(second, right.low, np.inf))
        return self._of_ends(right, _product)

    def __truediv__(self, other: Any) -> Interval:
        """The quotients; all numbers where a denominator may be zero."""
        right = interval(other)
        return self._of_ends(right, rounded_quotient).where((right.low > 0.0) | (right.high < 0.0))

    def _of_ends(self, right: Interval, operation: Callable[[Array, Array, float], Array]) -> Interval:
        pairs = [(a, b) for a in (self.low, self.high) for b in (right.low, right.high)]
        low = np.minimum.reduce([operation(a, b, -np.inf) for a, b in pairs])
        return Interval(low, np.maximum.reduce([operation(a, b, np.inf) for a, b in pairs]))

    __radd__, __rmul__ = __add__, __mul__

    def __rmatmul__(self, matrix: Weights) -> Interval:
        """matrix @ x; a vector stands for a diagonal matrix.

        Few terms are added one by one. Of many: if x is within r of m, W x is within |W| r of W m, and |W| |x| bounds
        what the sums round; and a sum of products that are not negative is not negative either.
        """
        if matrix.ndim == 1:
            return self.__mul__(matrix if self.low.ndim == 1 else matrix[:, None])
        spend(4.0 * matrix.size * max(self.low.size // max(len(self.low), 1), 1))
        terms = matrix.most if isinstance(matrix, Sparse) else int(np.count_nonzero(matrix, axis=1).max(initial=0))
        if terms <= FEW:
            return _one_by_one(sparse_of(matrix), self)
        middle = 0.5 * self.low + 0.5 * self.high
        radius = np.maximum(rounded_sum(self.high, -middle, np.inf), rounded_sum(middle, -self.low, np.inf))
        slack = FLOAT64.gamma(terms + 2) * (matrix @ self.magnitude) + terms * TINY
        return _signed(matrix, self, interval(matrix @ middle).widened(matrix @ Upper(radius) + slack), slack.value)

    def mapped(self, change: Callable[[Array], Array]) -> Interval:
        """Both ends changed alike, by what keeps their order; a point stays one."""
        low = change(self.low)
        return Interval(low, low if self.high is self.low else change(self.high))

    def __getitem__(self, index: Any) -> Interval:
        return self.mapped(lambda end: np.asarray(end[index]))

    def relu(self) -> Interval:
        """max(x, 0): exact."""
        return Interval(np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))

    def widened(self, margin: Any) -> Interval:
        """Every interval with `margin` more on both sides."""
        more = bound(margin)
        return self + Interval(-more, more) if more.any() else self

    def meet(self, other: Interval) -> Interval:
        """What both allow, of two enclosures of the same numbers; nan is no bound."""
        return Interval(np.fmax(self.low, other.low), np.fmin(self.high, other.high))

    def hull(self, other: Interval) -> Interval:
        """The smallest interval round both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def where(self, known: Any) -> Interval:
        """The same where that is known, and all numbers elsewhere."""
        return Interval(np.where(known, self.low, -np.inf), np.where(known, self.high, np.inf))

    def over(self, axis: int, keepdims: bool = False) -> Interval:
        """The hull of all intervals along an axis."""
        return Interval(self.low.min(axis=axis, keepdims=keepdims), self.high.max(axis=axis, keepdims=keepdims))

    def finite(self) -> bool:
        """Whether all ends are numbers, in order."""
        return bool(np.all(np.isfinite(self.low) & np.isfinite(self.high) & (self.low <= self.high)))


def interval(number: Any) -> Interval:
    """An interval as it is, or the point of a plain number."""
    return number if isinstance(number, Interval) else Interval(number, number)


def joined(parts: Sequence[Interval], join: Callable[[list[Array]], Array] = np.concatenate) -> Interval:
    """Several arrays of intervals as one."""
    return Interval(join([part.low for part in parts]), join([part.high for part in parts]))


def rational(value: Fraction) -> Interval:
    """The doubles next to an exact number."""
    try:
        nearest = float(value)
    except OverflowError:
        return Interval(-np.inf, np.inf)
    low = nearest if Fraction(nearest) <= value else np.nextafter(nearest, -np.inf)
    return Interval(low, nearest if Fraction(nearest) >= value else np.nextafter(nearest, np.inf))


def _one_by_one(matrix: Sparse, x: Interval) -> Interval:
    """All products, and then their sums: upper ends with the other sign, so that both ends round downwards."""
    if matrix.size * x.low[:1].size > MOST_PAIRS and len(matrix) > 1:
        return joined([_one_by_one(matrix[part], x) for part in np.array_split(np.arange(len(matrix)), 2)])
    terms = x[matrix.columns] * matrix.values.reshape(-1, *[1] * (x.low.ndim - 1))
    ends, total = np.stack([terms.low, -terms.high]), np.zeros((2, len(matrix), *x.low.shape[1:]))
    for rows, entries in matrix.layers():
        total[:, rows] = rounded_sum(total[:, rows], ends[:, entries], -np.inf)
    return Interval(total[0], -total[1])


def _signed(matrix: Weights, x: Interval, found: Interval, slack: Array) -> Interval:
    """Undo the rounding of sums that have no term of the other sign: they cannot cross zero."""
    close = ((found.low < 0.0) & (found.low >= -8.0 * slack)) | ((found.high > 0.0) & (found.high <= 8.0 * slack))
    if not close.any():
        return found
    up, down = entrywise(matrix, lambda each: each > 0.0), entrywise(matrix, lambda each: each < 0.0)
    falls = applied(up, x.low < 0.0) + applied(down, x.high > 0.0)
    rises = applied(up, x.high > 0.0) + applied(down, x.low < 0.0)
    low = np.where(falls == 0.0, np.maximum(found.low, 0.0), found.low)
    return Interval(low, np.where(rises == 0.0, np.minimum(found.high, 0.0), found.high))


def rounded_sum(a: Array, b: Array, direction: float) -> Array:
    """a + b, one step in the direction where the exact sum lies beyond the computed one."""
    with np.errstate(all="ignore"):
        total = a + b
        spend(10000.0 + 10.0 * np.size(total), np.size(total))
        part = total - a
        return stepped(total, (a - (total - part)) + (b - part), direction)


def _product(a: Array, b: Array, direction: float) -> Array:
    with np.errstate(all="ignore"):
        zero = (a == 0.0) | (b == 0.0)
        result = np.where(zero, 0.0, a * b)
        # Of a product that is small, or underflowed, the error is not known.
        error = np.where(np.abs(result) < SAFE, np.where(zero, 0.0, np.nan), product_rest(a, b, result))
        return stepped(result, error, direction)


def product_rest(a: Array, b: Array, result: Array) -> Array:
    """a b - result, exactly (Dekker); not a number where the splitting overflows."""
    spend(30000.0 + 40.0 * np.size(result), np.size(result))
    head_a, head_b = a * SPLIT, b * SPLIT
    head_a, head_b = head_a - (head_a - a), head_b - (head_b - b)
    tail_a, tail_b = a - head_a, b - head_b
    return np.asarray(tail_a * tail_b - (((result - head_a * head_b) - tail_a * head_b) - head_a * tail_b))


def rounded_quotient(a: Array, b: Array, direction: float) -> Array:
    """a / b, one step in the direction where it is not exact."""
    with np.errstate(all="ignore"):
        result = a / b
        back = result * b
        exact = (a == 0.0) | ((back == a) & (product_rest(result, b, back) == 0.0) & (np.abs(a) >= SAFE))
        return np.where(exact, result, np.nextafter(result, direction))


def stepped(result: Array, error: Array, direction: float) -> Array:
    """`result` if the exact number, result + error, lies on its inner side; one step outwards otherwise."""
    inner = error >= 0.0 if direction < 0.0 else error <= 0.0
    return np.where(inner & np.isfinite(result), result, np.nextafter(result, direction))
