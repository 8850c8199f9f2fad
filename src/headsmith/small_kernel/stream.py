"""The stream is an affine form of the nodes that heads computed, up to eps.

Theorem. At every time a register of a data token holds

    sum over nodes n of M_n v_n  +  constant  +  e  +  (what additions rounded),        |e| <= eps,

v_n being what was really computed at n. A layer maps this form to itself plus what its heads write; a copying head
writes what it read, and so clears a register by writing it with the opposite sign: I + B R = 0, no rule of its own.
Matrices are doubles; what their own sums and products round is in eps, because gamma_k times the sizes bounds it.

Rounding. A register is the sum of `count` terms, products of a weight and a value, in any order: two roundings a
product, one for each addition. An addition is off by u of what it returns, the sum of some of the terms, which is at
most `most`; what was rounded before is of second order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headsmith.small_kernel.bounds import FLOOR, Array, Span, carried, gamma
from headsmith.small_kernel.file import Link, written


def powers(weights: Array) -> Array:
    """Where weights are zero, or powers of two that are not extreme: products with them are exact."""
    size = np.abs(weights)
    return np.asarray((weights == 0) | ((np.frexp(size)[0] == 0.5) & (size >= 2.0**-20) & (size <= 2.0**20)))


def composed(a: Array, b: Array) -> Array:
    """The matrix a b; diagonals are vectors."""
    return np.asarray(a @ b if a.ndim == b.ndim == 2 else a[:, None] * b if a.ndim == 1 and b.ndim == 2 else a * b)


@dataclass(frozen=True, eq=False)
class Form:
    """sum of matrices times nodes + constant, up to eps; `size` bounds the sum of absolute values of its terms."""

    terms: dict[int, Array]
    constant: Array
    eps: Array
    size: Array

    def mapped(self, weights: Array) -> Form:
        """weights @ form. A dot product of k terms is off by gamma_k of the sizes; one of a power of two is exact."""
        entries = np.count_nonzero(weights, axis=1).max(initial=0) if weights.ndim == 2 else 1
        selected = not self.constant.any() and all(m.ndim == 1 and powers(m).all() for m in self.terms.values())
        rounds = 0 if selected or (entries <= 1 and powers(weights).all()) else weights.shape[-1] + 2
        size = carried(weights, self.size)
        constant = composed(weights, self.constant[:, None])[:, 0]
        eps = carried(weights, self.eps) + gamma(rounds) * size + FLOOR * rounds
        return Form({n: composed(weights, m) for n, m in self.terms.items()}, constant, eps, size)

    def plus(self, other: Form) -> Form:
        terms, met = dict(self.terms), (self.constant * other.constant).any()
        for n, m in other.terms.items():
            mine = terms.get(n, np.zeros(m.shape))
            a, b = (mine, m) if mine.ndim == m.ndim else (written(mine), written(m))
            terms[n], met = a + b, met or ((a != 0) & (b != 0)).any()
        eps, size = self.eps + other.eps, self.size + other.size
        return Form(terms, self.constant + other.constant, eps + gamma(2) * size if met else eps, size)

    def rows(self, rows: Array) -> Form:
        if np.array_equal(rows, np.arange(len(self.constant))):
            return self
        return Form(
            {n: written(m)[rows] for n, m in self.terms.items()}, self.constant[rows], self.eps[rows], self.size[rows]
        )

    def among(self, at: slice, places: int) -> Form:
        """These rows at some places, and zero at all others."""
        if at == slice(0, places):
            return self

        def placed(a: Array) -> Array:
            result = np.zeros((places, *a.shape[1:]))
            result[at] = a
            return result

        terms = {n: placed(written(m)) for n, m in self.terms.items()}
        return Form(terms, placed(self.constant), placed(self.eps), placed(self.size))

    def away(self, other: Form, sizes: dict[int, Array]) -> Array:
        """How far two forms are from each other, whatever the nodes hold within their sizes."""
        total = self.eps + other.eps + np.abs(self.constant - other.constant)
        for n in self.terms.keys() | other.terms.keys():
            a, b = (form.terms.get(n, np.zeros(1)) for form in (self, other))
            a, b = (a, b) if a.ndim == b.ndim else (written(a), written(b)) if len(a) == len(b) else (a, b)
            total = total + carried(a - b, sizes[n])
        return np.asarray(total)


def nothing(size: int) -> Form:
    return Form({}, *np.zeros((3, size)))


@dataclass(eq=False)
class Register:
    """What a register holds on data tokens, and at most on reference tokens: the drift. Column by column."""

    form: Form
    magnitude: Array  # bounds the sum of absolute values of the terms
    most: Array  # and the sum of any of them
    count: Array
    drift: Array

    def add(self, weights: Array, form: Form, below: Array, above: Array, spilled: Array) -> None:
        """weights @ (values within [-below, above], which are that form) are written."""
        positive, negative = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
        high = carried(positive, above) + carried(negative, below)
        low = carried(positive, below) + carried(negative, above)
        self.form = self.form.plus(form.mapped(weights))
        self.magnitude = self.magnitude + carried(weights, np.maximum(below, above))
        self.most = self.most + np.maximum(low, high)
        self.count = self.count + (written(weights) != 0).sum(axis=1)
        self.drift = self.drift + carried(weights, spilled)

    def rounded(self, u: float, tiny: float) -> Array:
        """How far the stored sum is from the exact one."""
        second = gamma(self.count + 2, u) ** 2 * self.magnitude
        return np.asarray(
            np.maximum(self.count - 1, 0) * u * self.most + 2 * u * self.magnitude + second + (self.count + 1) * tiny
        )


@dataclass(frozen=True, eq=False)
class Reads:
    """What forms read: the value that each should be, how far it is from that, and why; and what reference tokens
    read."""

    exact: Span
    arriving: Array
    deviation: Array
    stored: Array
    read: Array
    drift: Array
    columns: int

    @property
    def wrong(self) -> Array:
        return self.deviation + self.stored + self.read

    @property
    def off(self) -> Array:
        return self.arriving + self.wrong

    @property
    def size(self) -> Array:
        return self.exact.size + self.off


@dataclass(frozen=True, eq=False)
class Held:
    """What links read: a form, what its registers rounded, what reading rounds, its size, and the drift."""

    form: Form
    stored: Array
    read: Array
    size: Array
    drift: Array
    columns: int


def held(links: Iterable[Link], registers: dict[str, Register], places: int, u: float, tiny: float) -> Held:
    """A read of n weights is n products and n - 1 additions, a weight itself a rounded product: gamma_(n + 2) of
    the sizes; nothing but underflow of one weight that is a power of two."""
    form, columns, count, plain = nothing(places), 0, np.zeros(places), np.ones(places, dtype=bool)
    stored, size, drift = np.zeros((3, places))
    for link in links:
        register, w = registers[link.register], link.weights
        off = register.rounded(u, tiny)
        silent = register.drift + np.where(
            register.drift == 0, 0.0, gamma(register.count + 2, u) * register.drift + register.count * tiny
        )
        form = form.plus(register.form.mapped(w).among(link.at, places))
        for total, part in ((stored, off), (size, register.magnitude + off), (drift, silent)):
            total[link.at] += carried(w, part)
        count[link.at] += (written(w) != 0).sum(axis=1)
        plain[link.at] &= powers(written(w)).all(axis=1)
        columns += w.shape[-1]
    read = gamma(np.where(plain & (count <= 1), 0, count + 2), u) * size + (columns + 1) * tiny
    return Held(form, stored, read, size, drift + gamma(count + 2, u) * drift, columns)
