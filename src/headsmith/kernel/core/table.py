"""The rule for table heads: how far softmax over affine scores is from the functions that its values stand for.

    g_j(s) = sum_k p_k(s) v_kj,     p = softmax over k of (slope_k . s + offset_k),     s in a box, one or two variables

The box is cut into cells, which the proof carries. On the cell s = c + r x, |x_i| <= 1, with w = p(c), a common shift m
of the slopes and b_k = r (slope_k - m), the head is a quotient of two sums of exponentials,

    g = N / D,     D(x) = sum_k w_k e^(b_k . x),     N(x) = sum_k w_k v_k e^(b_k . x).

Let G be the Taylor polynomial of g and F that of f at c, of all degrees below the order M. Then

    g - f = (G - F) + (g - G) - (f - F),     and each part is bounded:

1.  G - F is a polynomial. Its coefficients are computed with balls of many bits, so what cancels has cancelled before
    anything is rounded. Its range over the unit box is in its constant, plus for each variable the range of
    a x + b x^2, plus or minus the sum of all other absolute coefficients.
2.  f - F is Lagrange's remainder: the coefficient M of t -> f(c' + t h), for some c' in the cell and the step h from c
    to the point. One run of the program with balls for both bounds it.
3.  g - G = (N - G D) / D, and N - G D has no coefficient below the degree M. With B_k = sum_i |b_ki|, the degrees n and
    more of e^(b_k . x) sum to at most B_k^n / n! e^(B_k). So, with |G_d| the sum of absolute coefficients of degree d,

        |g - G| <= e = sum_k W_k |v_k| B_k^M / M! + sum_(d < M) |G_d| A_(M-d),
        W_k = w_k e^(B_k),     A_n = sum_k W_k B_k^n / n!,

    because D >= e^(sum_k w_k b_k . x) = 1 by Jensen, m being the mean sum_k w_k slope_k. The constant y = G_0 is taken
    from all values, from g and from G: |v_k| may be |v_k - y|, and |G_0| is 0.
4.  The slope of g by x_i differs from that of G by ((N - G D)_i - (g - G) D_i) / D; indices stand for derivatives. The
    derivative of a sum of terms of degree n is at most n times the sum of their sizes. With that, and
    n B^n / n! = B B^(n-1) / (n-1)!, the sums of 3 become M times as large: |(N - G D)_i| <= M e. And |D_i| <= A_1.
    So the slopes differ by at most e (M + A_1).

Along a line x = t h the head is a quotient of sums of power series in t. In two variables G is computed along the lines
h = (1, z) for M nodes z: its degree d is a polynomial in z of degree d, whose coefficients are those of G. So is F.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, pi
from typing import Any

import numpy as np
from flint import arb, arb_mat, arb_series, fmpq, fmpq_mat

from .arithmetic import Array, Interval, Upper, interval
from .errors import Refused, refuse, spend
from .functions import Program, enclosed, program_series, working

ORDERS = {1: 14, 2: 8}
BITS, MOST_BITS = 256, 1280
MOST_CELLS, DEEPEST, MARKS = 1 << 14, 60, tuple("123456789")
# Work that is done at once, and in all. A cell costs a product for each token and column, and 16 for each step.
MOST_AT_ONCE, MOST_PRODUCTS = 1 << 13, 1 << 19

Cell = tuple[tuple[int, int], ...]  # for each variable (i, l): the place i of 2^l equal parts of the box


@dataclass(frozen=True, eq=False)
class Table:
    """A head and what its columns stand for: slopes (tokens, variables), offsets, values (tokens, columns), programs
    (one a column), and the box (variables, 2)."""

    slopes: Array
    offsets: Array
    values: Array
    programs: Sequence[Program]
    box: Array

    @property
    def products(self) -> int:
        """What a cell costs."""
        return self.values.size + len(self.offsets) + 16 * sum(len(program.steps) for program in self.programs)


def check_table(table: Table, cells: str) -> Interval:
    """Bounds (columns, 1 + variables) of g_j - f_j, and of the slopes of g_j by each variable.

    Guarantee: they hold for every real s in the box, in exact arithmetic on the numbers given, which are finite and of
    shapes that fit. Raises Refused where it finds no finite bounds.
    """
    leaves = read_cells(cells, len(table.box))
    if table.products > MOST_AT_ONCE or table.products * len(leaves) > MOST_PRODUCTS:
        raise Refused(f"a table of {len(table.offsets)} tokens on {len(leaves)} cells is more than is looked at")
    spend(2e4 * table.products * len(leaves))
    batch = MOST_AT_ONCE // table.products
    found = [bound(table, expand(table, leaves[start : start + batch])) for start in range(0, len(leaves), batch)]
    low = np.min([bounds.low.min(axis=0) for bounds in found], axis=0)
    whole = Interval(low, np.max([bounds.high.max(axis=0) for bounds in found], axis=0))
    refuse(not whole.finite(), "no finite bound of a table head against its function, on the cells of the proof")
    return whole


def read_cells(text: str, variables: int, most: int = MOST_CELLS) -> list[Cell]:
    """The cells: a binary tree in pre-order, 0 for a cell and i for a cut into two halves along variable i."""
    marks = iter(text)
    leaves = _leaves(marks, ((0, 0),) * variables) if len(text) < 2 * most else []
    refuse(not leaves or next(marks, None) is not None, f"the cells of a table are no tree of at most {most} cells")
    return leaves


def _leaves(marks: Iterator[str], cell: Cell) -> list[Cell]:
    mark = next(marks, "")
    if mark == "0":
        return [cell]
    refuse(mark not in MARKS[: len(cell)], "the cells of a table are no tree")
    return [leaf for half in halves(cell, int(mark) - 1) for leaf in _leaves(marks, half)]


def halves(cell: Cell, axis: int) -> list[Cell]:
    """Both halves of a cell along a variable."""
    place, level = cell[axis]
    refuse(level >= DEEPEST, f"a cell of a table is cut more than {DEEPEST} times")
    return [(*cell[:axis], (2 * place + side, level + 1), *cell[axis + 1 :]) for side in (0, 1)]


@dataclass(frozen=True, eq=False)
class Expansion:
    """What balls say of n cells: the exponents of the monomials; the radii r and the mean m of the slopes
    (n, variables); bounds of the weights w at the centre (n, tokens), and of |f - F| (n, columns); the coefficients of
    G and of G - F on the unit box (n, columns, monomials)."""

    exponents: Any
    radius: Interval
    mean: Interval
    weights: Upper
    rest: Upper
    head: Interval
    difference: Interval


# In balls -----------------------------------------------------------------------------------------------------------


def expand(table: Table, cells: Sequence[Cell]) -> Expansion:
    """The Taylor polynomials of a head and of its functions at the centres of cells."""
    variables, (low, high) = len(table.box), table.box.T
    order, margin = ORDERS[variables], np.where(low == high, 2.0**-30 * np.where(low == 0.0, 1.0, np.abs(low)), 0.0)
    low, high = low - margin, high + margin  # a point becomes a short interval round it
    radius = (interval(high) - low) * np.array([[0.5 ** (level + 1) for _, level in cell] for cell in cells])
    pairs = [(d - b, b) for d in range(order) for b in range(d + 1 if variables == 2 else 1)]
    steepest = float(np.nan_to_num(np.max(np.ptp(table.slopes, axis=0) * radius.high)))
    with working(int(BITS + min(4.0 * steepest, MOST_BITS - BITS)), order + 1):
        exact = [np.frompyfunc(arb, 1, 1)(each) for each in (table.slopes, table.offsets, table.values.T, low, high)]
        nodes, inverse = _interpolation(order if variables == 2 else 1)
        rows = [_taylor(table.programs, exact, cell, pairs, nodes, arb_mat(inverse)) for cell in cells]
        mean, weights, rest, head, difference = (enclosed(np.array(each)) for each in zip(*rows, strict=True))
    return Expansion(np.array(pairs)[:, :variables], radius, mean, weights.magnitude, rest.magnitude, head, difference)


def _taylor(programs: Sequence[Program], exact: Any, cell: Cell, pairs: Any, nodes: Any, inverse: Any) -> Any:
    """On one cell: the mean slopes, the weights, f - F, and the coefficients of G and of G - F."""
    slopes, offsets, values, low, high = exact
    order, anywhere = sum(pairs[-1]) + 1, arb(0, 1)
    radii = (high - low) * np.array([0.5 ** (level + 1) for _, level in cell])
    centre = low + radii * np.array([2 * place + 1 for place, _ in cell], dtype=object)
    scores = slopes @ centre + offsets
    scores = scores - arb(max(map(float, scores)))  # exponentials keep a size that balls can divide by
    power = np.frompyfunc(lambda score, along: arb_series([score, along], order).exp(), 2, 1)
    lines: list[list[Any]] = []
    for node in nodes:
        step = radii * np.array([1, node])[: len(cell)]
        powers = power(scores, slopes @ step)
        total, places = powers.sum(), list(zip(centre, step, strict=True))
        heads = [numerator / total for numerator in values @ powers]
        lines.append([head[i] for head in heads for i in range(order)])
        lines[-1] += [coefficient for f in programs for coefficient in program_series(f, places, order)]
    weights = np.array([power[0] / total[0] for power in powers])
    wide = list(zip(centre + radii * anywhere, radii * anywhere if len(cell) == 2 else radii, strict=True))
    rest = [program_series(f, wide, order + 1)[order] for f in programs]
    # Along the lines (1, z), degree a + b has the coefficients of x^a y^b as those of a polynomial in z.
    found = inverse * arb_mat(lines)
    columns = range(0, found.ncols(), order)
    head, target = np.split(np.array([[found[b, column + a + b] for a, b in pairs] for column in columns]), 2)
    return weights @ slopes, weights, rest, head, head - target


@lru_cache(maxsize=4)
def _interpolation(count: int) -> tuple[list[fmpq], fmpq_mat]:
    """Nodes in [-1, 1], near those of Chebyshev, and what makes coefficients of the values there."""
    nodes = [fmpq(round(64 * cos(pi * (2 * j + 1) / (2 * count))), 64) for j in range(count)]
    return nodes, fmpq_mat(count, count, [node**b for node in nodes for b in range(count)]).inv()


# In doubles that round themselves -----------------------------------------------------------------------------------


def bound(table: Table, known: Expansion) -> Interval:
    """Bounds over each cell of g_j - f_j and of the slopes of g_j by each variable: (cells, j, 1 + variables)."""
    exponents, radius, head = known.exponents, known.radius, known.head
    degrees = exponents.sum(axis=1)
    order = int(degrees[-1]) + 1
    with np.errstate(all="ignore"):
        steep = ((interval(table.slopes) - known.mean[:, None]) * radius[:, None]).magnitude.sum(axis=2)  # B_k
        terms = [known.weights * steep.exp()]  # W_k B_k^n / n!
        for n in range(1, order + 1):
            terms.append(terms[-1] * steep / n)
        sums = [term.sum(axis=1)[:, None] for term in terms]  # A_n
        sizes = (interval(table.values) - head[..., 0][:, None]).magnitude  # |v_k - y|
        error = (terms[order][..., None] * sizes).sum(axis=1)
        for d in range(1, order):
            error = error + head[..., degrees == d].magnitude.sum() * sums[order - d]
        found = [polynomial_range(known.difference, exponents).widened(error + known.rest)]
        for variable, step in enumerate(np.eye(exponents.shape[1], dtype=int)):
            rising = exponents[:, variable] > 0
            slope = head[..., rising] * exponents[rising, variable].astype(np.float64)  # G_i
            inside = polynomial_range(slope, exponents[rising] - step).widened(error * (sums[1] + float(order)))
            found.append(inside / radius[:, variable][:, None])
    return Interval(*(np.stack([getattr(each, end) for each in found], axis=-1) for end in ("low", "high")))


def polynomial_range(polynomial: Interval, exponents: Any) -> Interval:
    """The range over the unit box: of a x + b x^2 exactly for each variable, of all other terms by their sizes."""
    degrees = exponents.sum(axis=1)
    alone = (exponents.max(axis=1) == degrees) & (degrees <= 2)
    total = polynomial[..., 0].widened(polynomial[..., ~alone].magnitude.sum())
    for powers in exponents.T:
        first, second = (polynomial[..., int(np.flatnonzero(alone & (powers == n))[0])] for n in (1, 2))
        slope = first.magnitude
        total = total + Interval(-quadratic_top(slope, -second.low), quadratic_top(slope, second.high))
    return total


def quadratic_top(slope: Upper, bend: Array) -> Array:
    """max of slope u + bend u^2 over 0 <= u <= 1: at u = slope / (-2 bend) if that is below 1, else at 1."""
    return np.where(slope.value < -2.0 * bend, (slope * slope / (-4.0 * bend)).value, (slope + bend).value)
