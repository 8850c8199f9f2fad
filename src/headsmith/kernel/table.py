"""The rule for table heads: how far softmax over affine scores is from the functions that its values stand for.

    g_j(s) = sum_k p_k(s) v_kj,     p = softmax over k of (slope_k . s + offset_k),     s in a box, one or two variables

The box is cut into cells, which the proof carries. On the cell s = c + r x, |x_i| <= 1, with w = p(c), any common shift
m of the slopes and b_k = r (slope_k - m), the head is a quotient of two sums of exponentials,

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

        |g - G| <= (sum_k W_k |v_k| B_k^M / M! + sum_(d < M) |G_d| A_(M-d)) / D,
        W_k = w_k e^(B_k),     A_n = sum_k W_k B_k^n / n!.

    A constant y that is taken from all values is taken from g and G too: |v_k| may be |v_k - y|, and |G_0| may be
    |G_0 - y|, for y near g(c). Jensen: D >= e^(sum_k w_k b_k . x) >= 1 - sum_i |sum_k w_k b_ki|, which is nearly 1 for
    a shift m near the mean sum_k w_k slope_k.
4.  The slope of g by x_i differs from that of G by ((N - G D)_i - (g - G) D_i) / D; indices stand for derivatives.
    N_i, G D_i and G_i D are bounded from the degree M - 1 on as before: with A^i_n = sum_k W_k |b_ki| B_k^n / n!,

        |(N - G D)_i| <= sum_k W_k |v_k| |b_ki| B_k^(M-1) / (M-1)! + sum_(d < M) |G_d| A^i_(M-1-d)
                         + sum_(d < M-1) |(G_i)_d| A_(M-1-d),           |D_i| <= A^i_0.

The coefficients of N and D along a line x = t h are moments, sum_k w_k v_k (b_k . h)^d / d!. The shift cancels in
N / D, so those of G may be computed with another one, the same for all cells. In two variables G is computed along the
lines h = (1, z) for M nodes z: its degree d is a polynomial in z of degree d, whose coefficients are those of G. So is
F. Both are computed on a cell as large as the box, and scaled by powers of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, inf, pi
from typing import Any

import numpy as np
from flint import arb, arb_mat, arb_series, fmpq, fmpq_mat

from .arithmetic import Array, Interval, Upper, interval
from .errors import Refused
from .functions import Program, enclosed, program_series, working

ORDERS = {1: 14, 2: 8}
BITS, MOST_BITS = 256, 1280
MOST_CELLS, DEEPEST = 1 << 14, 60
MOST_AT_ONCE, MOST_PRODUCTS = 1 << 13, 1 << 19
"""Work that is done at once, and in all. A cell costs a product for each token and column, and 16 for each step."""

Cell = tuple[tuple[int, int], ...]
"""For each variable (i, l): the place i of 2^l equal parts of the box."""
Balls = np.ndarray[Any, np.dtype[np.object_]]


@dataclass(frozen=True, eq=False)
class Table:
    """A head and what its columns stand for: slopes (tokens, variables), offsets, values (tokens, columns), programs
    (one a column), and the box (variables, 2)."""

    slopes: Array
    offsets: Array
    values: Array
    programs: Sequence[Program]
    box: Array


def check_table(
    slopes: Array, offsets: Array, values: Array, programs: Sequence[Program], box: Array, cells: str
) -> tuple[Array, Array, Array, Array]:
    """(low, high, slope_low, slope_high): bounds of g_j - f_j (columns), and of the slopes of g_j (columns, variables).

    Guarantee: low_j <= g_j(s) - f_j(s) <= high_j and slope_low_ji <= dg_j/ds_i <= slope_high_ji for every real s in the
    box, in exact arithmetic on the numbers given. Raises Refused where it finds no finite bounds.
    """
    tokens, variables = slopes.shape if slopes.ndim == 2 else (0, 0)
    shapes = offsets.shape == (tokens,) and values.shape == (tokens, len(programs)) and box.shape == (variables, 2)
    if not shapes or variables not in ORDERS or any(program.variables != variables for program in programs):
        raise Refused("the keys, the values, the functions and the box of a table head do not fit together")
    if not all(np.isfinite(each).all() for each in (slopes, offsets, values, box)) or np.any(box[:, 0] > box[:, 1]):
        raise Refused("a table head holds what is no finite number, or its box is no box")
    table, leaves = Table(slopes, offsets, values, programs, box), read_cells(cells, variables)
    products = products_of(table)
    if values.size == 0 or products > MOST_AT_ONCE or products * len(leaves) > MOST_PRODUCTS:
        raise Refused(f"a table of {tokens} tokens on {len(leaves)} cells is more than is looked at, or nothing")
    batch = MOST_AT_ONCE // products
    found = [bound(table, expand(table, leaves[start : start + batch])) for start in range(0, len(leaves), batch)]
    low = np.min([bounds.low.min(axis=0) for bounds in found], axis=0)
    high = np.max([bounds.high.max(axis=0) for bounds in found], axis=0)
    if not Interval(low, high).finite():
        raise Refused("no finite bound of a table head against its function, on the cells of the proof")
    return low[:, 0], high[:, 0], low[:, 1:], high[:, 1:]


def products_of(table: Table) -> int:
    """What a cell costs."""
    return table.values.size + len(table.offsets) + 16 * sum(len(program.steps) for program in table.programs)


def read_cells(text: str, variables: int) -> list[Cell]:
    """The cells: a binary tree in pre-order, 0 for a cell and i for a cut into two halves along variable i."""
    todo: list[Cell] = [((0, 0),) * variables]
    leaves: list[Cell] = []
    for mark in text[: 2 * MOST_CELLS]:
        if not todo or mark not in "012"[: variables + 1]:
            raise Refused("the cells of a table are no tree")
        cell = todo.pop()
        if mark == "0":
            leaves.append(cell)
        else:
            todo += halves(cell, int(mark) - 1)[::-1]
    if todo:
        raise Refused(f"the cells of a table are no tree of at most {MOST_CELLS} cells")
    return leaves


def halves(cell: Cell, axis: int) -> list[Cell]:
    """Both halves of a cell along a variable."""
    place, level = cell[axis]
    if level >= DEEPEST:
        raise Refused(f"a cell of a table is cut more than {DEEPEST} times")
    return [(*cell[:axis], (2 * place + side, level + 1), *cell[axis + 1 :]) for side in (0, 1)]


@dataclass(frozen=True, eq=False)
class Expansion:
    """What balls say of n cells: the exponents of the monomials; the radii r, and a shift m near the mean of the slopes
    (n, variables); y near g(c) (n, columns); bounds of the weights w at the centre (n, tokens), of the mean less m, and
    of |f - F| (n, columns); the coefficients of G - y and of G - F on the unit box (n, columns, monomials)."""

    exponents: Any
    radius: Interval
    shift: Array
    near: Array
    weights: Upper
    drift: Upper
    rest: Upper
    head: Interval
    difference: Interval


# In balls -----------------------------------------------------------------------------------------------------------


def expand(table: Table, cells: Sequence[Cell]) -> Expansion:
    """The Taylor polynomials of a head and of its functions at the centres of cells."""
    variables, (low, high) = len(table.box), table.box.T
    margin = np.where(low == high, 2.0**-30 * np.where(low == 0.0, 1.0, np.abs(low)), 0.0)
    low, high = low - margin, high + margin  # a point becomes a short interval round it
    part = np.array([[0.5 ** (level + 1) for _, level in cell] for cell in cells])
    odd = np.array([[2 * place + 1 for place, _ in cell] for cell in cells], dtype=object)
    order, radius = ORDERS[variables], (interval(high) - low) * part
    pairs = [(d - b, b) for d in range(order) for b in range(d + 1 if variables == 2 else 1)]
    exponents = np.array(pairs)[:, :variables]
    steepest = float(np.nan_to_num(np.max(np.ptp(table.slopes, axis=0) * radius.high)))
    nodes, inverse = _interpolation(order if variables == 2 else 1)
    with working(int(BITS + min(4.0 * steepest, MOST_BITS - BITS)), order + 1):
        size = _exact(high) - _exact(low)
        radii = size * part
        centres = _exact(low) + radii * odd
        lines = np.array([[1, node][:variables] for node in nodes], dtype=object) * size
        weights = _weights(table, centres)
        means = weights @ _exact(table.slopes)
        head = _coefficients(inverse, _head_series(table, weights, lines, order), exponents)
        target = _coefficients(inverse, _target_series(table, centres, lines, order), exponents)
        shift, near = _nearest(means), _nearest(head[..., 0])
        difference = head - target
        head[..., 0] -= _exact(near)
        scale = np.prod(part[:, None] ** exponents, axis=-1)[:, None]
        balls = weights, means - _exact(shift), _rests(table, centres, radii, order)
        weight, drift, rest = (enclosed(each).magnitude for each in balls)
        head, difference = enclosed(head) * scale, enclosed(difference) * scale
        return Expansion(exponents, radius, shift, near, weight, drift, rest, head, difference)


def _exact(array: Array) -> Balls:
    return _each(arb, array)


def _each(function: Any, array: Any) -> Balls:
    return np.asarray(np.frompyfunc(function, 1, 1)(array), dtype=object)


def _nearest(balls: Balls) -> Array:
    return _each(float, balls).astype(np.float64)


def _target_series(table: Table, centres: Balls, lines: Balls, order: int) -> Balls:
    """The coefficients of t -> f(c + t h) for each cell, column and line h."""
    places = [[list(zip(centre, line, strict=True)) for line in lines] for centre in centres]
    found = [[[program_series(f, line, order) for line in place] for f in table.programs] for place in places]
    return np.array(found, dtype=object)


def _rests(table: Table, centres: Balls, radii: Balls, order: int) -> Balls:
    """|f - F| for each cell and column, by one run over the whole cell."""
    anywhere = arb(0, 1)
    wide, steps = centres + radii * anywhere, radii if radii.shape[1] == 1 else radii * anywhere
    places = [list(zip(*pair, strict=True)) for pair in zip(wide, steps, strict=True)]
    found = [[program_series(f, place, order + 1)[order] for f in table.programs] for place in places]
    return np.array(found, dtype=object)


def _weights(table: Table, centres: Balls) -> Balls:
    """Softmax at the centres: (cells, tokens)."""
    scores = centres @ _exact(table.slopes.T) + _exact(table.offsets)
    # A double near the largest score is subtracted first, exactly: exponentials keep a size that balls can divide by.
    powers = _each(arb.exp, scores - _exact(_each(float, scores).max(axis=1, keepdims=True)))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _head_series(table: Table, weights: Balls, lines: Balls, order: int) -> Balls:
    """The coefficients of t -> g(c + t h), as N / D, for each cell, column and line h."""
    middle = 0.5 * (table.slopes.max(axis=0) + table.slopes.min(axis=0))
    along = (_exact(table.slopes) - _exact(middle)) @ lines.T
    powers = [along * 0 + 1]
    for degree in range(1, order):
        powers.append(powers[-1] * along / degree)
    columns = np.vstack([np.ones(len(table.offsets)), table.values.T])
    rows = weights[:, None] * _exact(columns)
    moments = _product(rows.reshape(-1, len(along)), np.stack(powers, axis=-1).reshape(len(along), -1))
    moments = moments.reshape(len(weights), len(columns), len(lines), order)
    moments[:, 0, :, 0] = arb(1)  # the weights sum to 1
    found = moments[:, 1:].copy()
    for cell, column, line in np.ndindex(found.shape[:3]):
        numerator, denominator = (arb_series(moments[cell, j, line].tolist(), order) for j in (column + 1, 0))
        quotient = numerator / denominator
        found[cell, column, line] = [quotient[i] for i in range(order)]
    return found


def _product(left: Balls, right: Balls) -> Balls:
    product = arb_mat(left.tolist()) * arb_mat(right.tolist())
    return np.array(product.entries(), dtype=object).reshape(len(left), -1)


@lru_cache(maxsize=4)
def _interpolation(count: int) -> tuple[list[fmpq], fmpq_mat]:
    """Nodes in [-1, 1], near those of Chebyshev, and what makes coefficients of the values there."""
    nodes = [fmpq(round(64 * cos(pi * (2 * j + 1) / (2 * count))), 64) for j in range(count)]
    return nodes, fmpq_mat(count, count, [node**b for node in nodes for b in range(count)]).inv()


def _coefficients(inverse: fmpq_mat, series: Balls, exponents: Any) -> Balls:
    """From series along lines (cells, columns, lines, order) to coefficients (cells, columns, monomials)."""
    cells, columns, lines, order = series.shape
    matrix = np.array(arb_mat(inverse).entries(), dtype=object).reshape(lines, lines)
    found = _product(matrix, np.moveaxis(series, 2, 0).reshape(lines, -1)).reshape(lines, cells, columns, order)
    return np.stack([found[sum(powers[1:]), ..., sum(powers)] for powers in exponents], axis=-1)


# In doubles that round themselves -----------------------------------------------------------------------------------


def bound(table: Table, known: Expansion) -> Interval:
    """Bounds over each cell of g_j - f_j and of the slopes of g_j by each variable: (cells, j, 1 + variables)."""
    exponents, radius, head = known.exponents, known.radius, known.head
    degrees = exponents.sum(axis=1)
    order, below = degrees[-1] + 1, exponents[degrees < degrees[-1]]
    with np.errstate(all="ignore"):
        spread = ((interval(table.slopes) - known.shift[:, None]) * radius[:, None]).magnitude  # |b_ki|
        every = spread.sum(axis=2)
        terms = [known.weights * every.exp()]  # W_k B_k^n / n!
        for n in range(1, order + 1):
            terms.append(terms[-1] * every / n)
        sums = [term.sum(axis=1)[:, None] for term in terms]  # A_n
        least = (interval(1.0) - (known.drift * radius.high).sum(axis=1)[:, None].value).low  # of D
        sizes = (interval(table.values) - known.near[:, None]).magnitude  # |v_k - y|
        by_degree = _by_degree(head, degrees)
        error = (terms[order][..., None] * sizes).sum(axis=1)
        error = sum((size * sums[order - d] for d, size in enumerate(by_degree)), start=error) / least
        found = [polynomial_range(known.difference, exponents).widened(error + known.rest)]
        for variable, step in enumerate(np.eye(exponents.shape[1], dtype=int)):
            pull = spread[..., variable]
            pulled = [(term * pull).sum(axis=1)[:, None] for term in terms[:order]]  # A^i_n
            raised = [int(np.flatnonzero((exponents == each).all(axis=1))[0]) for each in below + step]
            slope = head[..., raised] * exponents[raised, variable].astype(np.float64)  # G_i
            wrong = (terms[order - 1][..., None] * pull[..., None] * sizes).sum(axis=1) + error * pulled[0]
            wrong = sum((size * pulled[order - 1 - d] for d, size in enumerate(by_degree)), start=wrong)
            inclined = _by_degree(slope, degrees[: len(below)])
            wrong = sum((size * sums[order - 1 - d] for d, size in enumerate(inclined)), start=wrong) / least
            found.append(polynomial_range(slope, below).widened(wrong) / radius[:, variable][:, None])
    low, high = (np.stack([getattr(each, end) for each in found], axis=-1) for end in ("low", "high"))
    # What is not a number bounds nothing.
    return Interval(np.where(np.isnan(low), -inf, low), np.where(np.isnan(high), inf, high))


def _by_degree(polynomial: Interval, degrees: Any) -> list[Upper]:
    """The sum of the absolute coefficients of each degree."""
    return [polynomial[..., degrees == d].magnitude.sum() for d in range(degrees[-1] + 1)]


def polynomial_range(polynomial: Interval, exponents: Any) -> Interval:
    """The range over the unit box: of a x + b x^2 exactly for each variable, of all other terms by their sizes."""
    degrees = exponents.sum(axis=1)
    alone = (exponents.max(axis=1) == degrees) & (degrees <= 2)
    total = polynomial[..., 0].widened(polynomial[..., ~alone].magnitude.sum())
    for powers in exponents.T:
        first, second = (polynomial[..., int(np.flatnonzero(alone & (powers == n))[0])] for n in (1, 2))
        slope = first.magnitude
        total = total + Interval(-_top(slope, -second.low), _top(slope, second.high))
    return total


def _top(slope: Upper, bend: Array) -> Array:
    """max of slope u + bend u^2 over 0 <= u <= 1: at u = slope / (-2 bend) if that is below 1, else at 1."""
    return np.where(slope.value < -2.0 * bend, (slope * slope / (-4.0 * bend)).value, (slope + bend).value)
