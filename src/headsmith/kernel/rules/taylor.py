"""Taylor models: a function on a cell as a polynomial, and how far it may be from it.

On the cell x = c + r t, |t_i| <= 1, a quantity is q(t) = Q(t) + e with |e| <= rest: Q a polynomial of degree at most
the order m, with doubles for coefficients. Coefficients are data, whoever computed them and however they were rounded:
what an operation rounds away goes into `rest`, which rounds itself upwards. ||Q|| is the sum of absolute coefficients,
||Q_i|| that of degree i; |Q| <= ||Q|| on the cell, and ||Q R|| <= ||Q|| ||R||.

    W q + b     rest  |W| rest + gamma (|W| ||Q|| + |b|)
    q q'        rest  sum over i + j > m of ||Q_i|| ||Q'_j||, and ||Q|| rest' + ||Q'|| rest + rest rest', and rounding
    f(q)        with g a double near Q(0) and z = q - g:  sum over i <= m of f^(i)(g)/i! z^i, by Horner's rule, and
                Lagrange's rest, sup |f^(m+1)|/(m+1)! |z|^(m+1), the supremum over all that lies between g and q

Derivatives come from Arb, at points of a grid and over the parts between neighbours. Where an operation has no
finite rest, or a larger one, the quantity is a number in the middle of its range.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, pairwise
from math import comb
from typing import Any

import numpy as np
from flint import arb

from ..core.arithmetic import FLOAT64, TINY, Array, Interval, Upper, interval
from ..core.errors import refuse, spend
from ..core.functions import BITS, ends, named, program_series, working

MOST_MONOMIALS, MOST_PARTS = 1 << 10, 1 << 13
FINE, FARTHEST = 16, 1 << 9  # of the grid of functions: parts of a unit or of an octave; where it ends


@dataclass(frozen=True, eq=False)
class Basis:
    """The monomials of degree at most `order`, by degree: their exponents (monomials, variables); `starts` has the
    first of each degree; `times` for each monomial the places of its products with the monomials before starts[...]."""

    order: int
    exponents: Any
    starts: tuple[int, ...]
    times: tuple[Any, ...]

    def degree(self, monomials: int) -> int:
        """The degree of polynomials with so many coefficients."""
        return self.starts.index(monomials) - 1

    @property
    def degrees(self) -> list[slice]:
        """The monomials of each degree."""
        return [slice(*pair) for pair in pairwise(self.starts)]


@lru_cache(maxsize=64)
def basis_of(variables: int, order: int) -> Basis:
    """All monomials of so many variables up to a degree."""
    starts = tuple(comb(variables + n - 1, variables) for n in range(order + 2))
    refuse(starts[-1] > MOST_MONOMIALS, f"polynomials of degree {order} in {variables} variables have too many terms")
    every = [each for n in range(order + 1) for each in combinations_with_replacement(range(variables), n)]
    places = {each: place for place, each in enumerate(every)}
    times = tuple(
        np.array([places[tuple(sorted((*each, *other)))] for other in every[: starts[order - len(each) + 1]]])
        for each in every
    )
    exponents = np.array([np.bincount(np.array(each, dtype=int), minlength=variables) for each in every])
    return Basis(order, exponents.reshape(len(every), variables), starts, times)


@dataclass(frozen=True, eq=False)
class Form:
    """Quantities on cells: coefficients (..., monomials, cells) of the first monomials of a basis, and `rest`
    (..., cells)."""

    basis: Basis
    coefficients: Array
    rest: Upper

    @property
    def sizes(self) -> list[Upper]:
        """||Q_i|| for each degree."""
        count = self.coefficients.shape[-2]
        parts = [np.abs(self.coefficients[..., part, :]) for part in self.basis.degrees if part.start < count]
        return [Upper(part).sum(axis=-2) for part in parts]

    @property
    def size(self) -> Upper:
        """||Q||."""
        return Upper(np.abs(self.coefficients)).sum(axis=-2)

    @property
    def bends(self) -> Upper:
        """||Q - Q(0)||."""
        return Upper(np.abs(self.coefficients[..., 1:, :])).sum(axis=-2)

    @property
    def reach(self) -> Interval:
        """Where the quantities lie on the cells."""
        return interval(self.coefficients[..., 0, :]).widened(self.bends + self.rest)

    def reshaped(self, *lead: int) -> "Form":
        """The same quantities in another shape."""
        shape = self.coefficients.shape[-2:]
        return Form(self.basis, self.coefficients.reshape(*lead, *shape), self.rest.reshape(*lead, shape[-1]))

    def __getitem__(self, index: Any) -> "Form":
        return Form(self.basis, self.coefficients[index], self.rest[index])

    def grown(self, monomials: int) -> Array:
        """The coefficients, and zeros up to so many."""
        more = monomials - self.coefficients.shape[-2]
        return np.pad(self.coefficients, [(0, 0)] * (self.coefficients.ndim - 2) + [(0, more), (0, 0)])

    def kept(self, other: "Form", where: Any) -> "Form":
        """This one where that is true, and the other one elsewhere."""
        count = max(self.coefficients.shape[-2], other.coefficients.shape[-2])
        found = np.where(where[..., None, :], self.grown(count), other.grown(count))
        return Form(self.basis, found, Upper(np.where(where, self.rest.value, other.rest.value)))

    def plus(self, other: "Form", factor: Any = 1.0) -> "Form":
        """This plus a factor (..., cells), a double, times the other."""
        count, scale = max(self.coefficients.shape[-2], other.coefficients.shape[-2]), np.atleast_1d(factor)
        found = self.grown(count) + scale[..., None, :] * other.grown(count)
        slack = FLOAT64.gamma(3) * (self.size + other.size * np.abs(scale)) + count * TINY
        return Form(self.basis, found, self.rest + other.rest * np.abs(scale) + slack)


def constant(basis: Basis, values: Interval) -> Form:
    """Numbers that lie in these intervals (..., cells)."""
    middle = 0.5 * values.low + 0.5 * values.high
    middle = np.where(np.isfinite(middle), middle, 0.0)
    return Form(basis, middle[..., None, :], (values + -middle).magnitude)


def affine(weights: Sequence[Array], read: Sequence[Form], bias: Array, like: Form) -> Form:
    """The sum of weights @ forms, plus the bias."""
    basis, cells = like.basis, like.rest.value.shape[-1]
    count = max([1, *(form.coefficients.shape[-2] for form in read)])
    found, rest, total, terms = np.zeros((len(bias), count, cells)), Upper(np.zeros((len(bias), cells))), Upper(0.0), 2
    for matrix, form in zip(weights, read, strict=True):
        held = form.coefficients.shape[-2]
        found[:, :held] += (matrix @ form.coefficients.reshape(matrix.shape[1], -1)).reshape(len(bias), held, cells)
        rest, total = rest + matrix @ form.rest, total + matrix @ form.size
        terms += 1 + int(np.count_nonzero(matrix, axis=1).max(initial=0))
        spend(4.0 * matrix.size * held * cells)
    found[:, 0] += bias[:, None]
    slack = FLOAT64.gamma(terms) * (total + np.abs(bias)[:, None]) + terms * count * TINY
    return Form(basis, found, rest + slack)


def times(basis: Basis, left: Array, right: Array) -> Array:
    """The product of two polynomials up to the order, in doubles."""
    held, other = left.shape[-2], right.shape[-2]
    degree = min(basis.degree(held) + basis.degree(other), basis.order)
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    found = np.zeros((*shape, basis.starts[degree + 1], left.shape[-1]))
    for place in range(held):
        reached = basis.times[place][:other]
        found[..., reached, :] += left[..., place, None, :] * right[..., : len(reached), :]
    spend(4.0 * held * found.size)
    return found


def beyond(basis: Basis, left: Sequence[Upper], right: Sequence[Upper]) -> Upper:
    """The sum of products of sizes of degrees that are together above the order."""
    tails, total = [Upper(0.0)], Upper(0.0)
    for size in reversed(right):
        tails.insert(0, tails[0] + size)
    for degree, size in enumerate(left):
        total = total + size * tails[min(basis.order + 1 - degree, len(right))]
    return total


def product(left: Form, right: Form) -> Form:
    """left * right, entry by entry."""
    return settled(_multiplied(left, right), left.reach * right.reach)


def _multiplied(left: Form, right: Form) -> Form:
    basis, sizes = left.basis, (left.sizes, right.sizes)
    found = times(basis, left.coefficients, right.coefficients)
    mine, other = (sum(each, start=Upper(0.0)) for each in sizes)
    terms = min(left.coefficients.shape[-2], right.coefficients.shape[-2])
    rest = beyond(basis, *sizes) + mine * right.rest + other * left.rest + left.rest * right.rest
    rest = rest + FLOAT64.gamma(terms + 2) * (mine * other) + found.shape[-2] * (terms + 1) * TINY
    return Form(basis, found, rest)


def settled(found: Form, reach: Interval) -> Form:
    """The form, or a number in the middle of the range where that is closer."""
    plain = constant(found.basis, reach)
    return found.kept(plain, found.rest.value <= plain.rest.value)


# Functions ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def grid() -> Array:
    """Points between which functions are looked at: finer near zero, where many of them have a pole."""
    octaves = np.ldexp(1.0 + np.arange(FINE) / FINE, np.arange(-24, 0)[:, None]).ravel()
    positive = np.concatenate([octaves, np.arange(FINE, FARTHEST) / FINE])
    return np.concatenate([-positive[::-1], [0.0], positive])


@lru_cache(maxsize=1 << 15)
def expansion(name: str, parameter: float | None, order: int, place: int) -> tuple[tuple[float, float], ...]:
    """At a point of the grid, the ends of f^(i)/i! for i = 0, ..., order; then those of f, of f' and of
    f^(order+1)/(order+1)! from there to the next point."""
    program, points = named(name, parameter), grid()
    with working(BITS, order + 2):
        here = program_series(program, [(arb(points[place]), 1)], order + 1)
        between = arb(points[place]).union(arb(points[min(place + 1, len(points) - 1)]))
        along = program_series(program, [(between, 1)], order + 2)
        return tuple(map(ends, (*here, along[0], along[1], along[order + 1])))


@dataclass(frozen=True, eq=False)
class Parts:
    """A function near numbers that lie in intervals: a point of the grid for each, its Taylor coefficients there
    (..., order + 1), and bounds of f, f' and |f^(order+1)|/(order+1)! from the point to all of the interval."""

    points: Array
    taylor: Interval
    value: Interval
    slope: Interval
    top: Upper


def parts_of(name: str, parameter: float | None, order: int, reach: Interval, centre: Array) -> Parts:
    """What is known of a function; infinite beyond the grid, and where it may not be defined."""
    points = grid()
    inside = (reach.low >= points[0]) & (reach.high < points[-1])
    low, high = np.where(inside, reach.low, 0.0), np.where(inside, reach.high, 0.0)
    near = np.searchsorted(0.5 * (points[1:] + points[:-1]), np.where(inside, np.clip(centre, low, high), 0.0))
    first = np.minimum(np.searchsorted(points, low, "right") - 1, near)
    last = np.maximum(np.maximum(np.searchsorted(points, high, "left"), near), first + 1)
    marks = np.zeros(len(points) + 1, dtype=int)
    np.add.at(marks, first, 1)
    np.add.at(marks, last, -1)
    used = np.union1d(np.flatnonzero(np.cumsum(marks) > 0), near)
    refuse(len(used) > MOST_PARTS, f"the function {name} is needed on more than {MOST_PARTS} parts of the numbers")
    table = np.array([expansion(name, parameter, order, place) for place in [*used.tolist(), len(points) - 1]])
    pairs = np.searchsorted(used, np.stack([first, last], axis=-1).ravel())

    def over(column: int) -> Interval:
        ends = (pick.reduceat(table[:, column, side], pairs)[::2] for side, pick in enumerate((np.minimum, np.maximum)))
        return Interval(*(end.reshape(low.shape) for end in ends)).where(inside)

    taylor = Interval(*np.moveaxis(table[np.searchsorted(used, near), : order + 1], -1, 0))
    return Parts(points[near], taylor, over(order + 1), over(order + 2), over(order + 3).magnitude)


def function(name: str, parameter: float | None, form: Form) -> Form:
    """A named function of every entry."""
    if name == "square":
        return product(form, form)
    basis, order = form.basis, form.basis.order
    known = parts_of(name, parameter, order, form.reach, form.coefficients[..., 0, :])
    shift = form.plus(constant(basis, interval(-known.points)))
    found = constant(basis, known.taylor[..., order])
    for degree in reversed(range(order)):
        found = _multiplied(found, shift).plus(constant(basis, known.taylor[..., degree]))
    away, lagrange = shift.size + shift.rest, known.top
    for _ in range(order + 1):
        lagrange = lagrange * away
    return settled(Form(basis, found.coefficients, found.rest + lagrange), known.value)
