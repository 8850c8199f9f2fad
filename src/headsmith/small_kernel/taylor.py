"""How far a softmax over affine scores is from a function, and its slopes, on a box of one or two variables.

On a cell s = c + r x, |x_i| <= 1, with w the weights at c, m = sum w_k slope_k and b_k = r (slope_k - m),

    g = N / D,      D = sum_k w_k e^(b_k . x),      N = sum_k w_k v_k e^(b_k . x).

G and F are the Taylor polynomials of g and f at c of all degrees below M, and g - f = (G - F) + (g - G) - (f - F):

1.  G - F is computed in balls with so many bits that what cancels has cancelled before it becomes a double.
2.  |f - F| is at most the coefficient of degree M along all directions, over the whole cell (Lagrange's remainder).
3.  With B_k = |b_k|_1 the degrees n and more of e^(b_k . x) sum to at most B_k^n / n! e^(B_k). N - G D has no degree
    below M. So with W_k = w_k e^(B_k), A_n = sum_k W_k B_k^n / n!, and D >= 1 by Jensen,

        |g - G| <= e = sum_k W_k |v_k - g(c)| B_k^M / M!  +  sum_(0 < d < M) |G_d| A_(M - d).
4.  g_i - G_i = ((N - G D)_i - (g - G) D_i) / D, and a derivative of degree n is at most n times the sum of sizes: the
    slope is that of G, widened by e (M + A_1).

In two variables coefficients are found along eight lines h = (1, z): degree d is a polynomial of degree d in z.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx, fmpq, fmpq_mat

from headsmith.small_kernel.bounds import Array, require
from headsmith.small_kernel.functions import Program, ball, ends, run

Bounds = tuple[float, float]
ORDERS = {1: 14, 2: 8}
PLACES = [fmpq(z, 64) for z in (63, 53, 36, 12, -12, -36, -53, -63)]


def cells_of(text: str, low: Array, high: Array) -> list[tuple[Array, Array]]:
    """A binary tree in pre-order: 0 a cell, 1 or 2 a cut into halves along that variable, the lower half first."""
    todo, cells = [(low, high)], []
    for character in text:
        a, b = todo.pop()
        if character == "0":
            cells.append((a, b))
        else:
            i = "12"[: len(low)].index(character)
            left, right = b.copy(), a.copy()
            left[i] = right[i] = a[i] + (b[i] - a[i]) / 2
            todo += [(right, b), (a, left)]
    require(not todo and len(cells) <= 2**14, "cells of a table are no tree, or too many")
    return cells


def compared(
    slope: Array, offset: Array, values: Array, program: Program, low: Array, high: Array, cells: str
) -> list[Bounds]:
    """Bounds of g - f, and of the slopes of g, over a box; a box that is a point is widened."""
    slack = np.where(low == high, np.where(low == 0, 2.0**-30, 2.0**-30 * np.abs(low)), 0.0)
    parts = cells_of(cells, low - slack, high + slack)
    require((len(values) + 16 * (1 + len(program[1]))) * len(parts) <= 2**19, "a table has too many tokens times cells")
    steepness = max(float(((b - a) / 2 * (slope.max(axis=0) - slope.min(axis=0))).max()) for a, b in parts)
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = 256 + int(min(4 * steepness, 1024.0)), ORDERS[len(low)] + 1
    try:
        results = [on_cell(slope, offset, values, program, a, b) for a, b in parts]
    finally:
        ctx.prec, ctx.cap = before
    return [(min(low for low, _ in each), max(high for _, high in each)) for each in zip(*results, strict=True)]


def total(values: Any) -> Any:
    return sum(values, arb(0))


def on_cell(slope: Array, offset: Array, values: Array, program: Program, low: Array, high: Array) -> list[Bounds]:
    n, order, bits = len(low), ORDERS[len(low)], ctx.prec
    c = [arb(x) for x in (low + (high - low) / 2).tolist()]
    r = [
        arb(max(b - m, m - a)) * (1 + arb(2) ** -50)
        for a, b, m in zip(low.tolist(), high.tolist(), (low + (high - low) / 2).tolist(), strict=True)
    ]
    tilt, v = [[arb(x) for x in row] for row in slope.tolist()], [arb(x) for x in values.tolist()]
    powers = [
        (total(t * m for t, m in zip(row, c, strict=True)) + arb(o)).exp()
        for row, o in zip(tilt, offset.tolist(), strict=True)
    ]
    w = [p / total(powers) for p in powers]
    mean = [total(x * row[i] for x, row in zip(w, tilt, strict=True)) for i in range(n)]
    b = [[r[i] * (row[i] - mean[i]) for i in range(n)] for row in tilt]
    directions = [[arb(1)]] if n == 1 else [[arb(1), arb(z)] for z in PLACES]
    g = polynomial(
        [quotient(w, v, [total(x * d for x, d in zip(row, h, strict=True)) for row in b], order) for h in directions]
    )
    f = polynomial(
        [run(program, [[m, x * d] for m, x, d in zip(c, r, h, strict=True)], order, bits) for h in directions]
    )
    way = [x if n == 1 else ball(-1.0, 1.0) * x for x in r]
    beyond_f = run(
        program,
        [[ball(*e), x] for e, x in zip(zip(low.tolist(), high.tolist(), strict=True), way, strict=True)],
        order + 1,
        bits,
    )[order]
    reach = [total(abs(x) for x in row) for row in b]
    term, a = [x * y.exp() for x, y in zip(w, reach, strict=True)], []
    for k in range(order + 1):
        a.append(total(term))
        last, term = term, [t * y / (k + 1) for t, y in zip(term, reach, strict=True)]
    beyond_g = total(t * abs(x - g[(0,) * n]) for t, x in zip(last, v, strict=True))
    beyond_g += total(abs(x) * a[order - sum(key)] for key, x in g.items() if any(key))
    results = [around({k: g[k] - f[k] for k in g}, n, beyond_g + abs(beyond_f))]
    for i in range(n):
        rest = {tuple(e - (j == i) for j, e in enumerate(k)): x * k[i] for k, x in g.items() if k[i]}
        results.append(around(rest, n, beyond_g * (order + a[1])) / r[i])
    return [ends(x) for x in results]


def quotient(w: list[Any], v: list[Any], rates: list[Any], order: int) -> list[Any]:
    """Coefficients of g along a line through the middle: sum of v_k e^(score_k) over that of e^(score_k)."""
    above, below, term = [], [], list(w)
    for k in range(order):
        below.append(total(term))
        above.append(total(t * x for t, x in zip(term, v, strict=True)))
        term = [t * rate / (k + 1) for t, rate in zip(term, rates, strict=True)]
    series = arb_series(above, prec=order) / arb_series(below, prec=order)
    return [series[k] for k in range(order)]


@cache
def inverse() -> list[list[Any]]:
    """Exact inverse of the Vandermonde matrix of the places: values at z become coefficients."""
    matrix = fmpq_mat(8, 8, [z**i for z in PLACES for i in range(8)]).inv()
    return [[matrix[i, k] for k in range(8)] for i in range(8)]


def polynomial(along: list[list[Any]]) -> dict[tuple[int, ...], Any]:
    """From coefficients along lines to coefficients in the variables."""
    if len(along) == 1:
        return {(d,): x for d, x in enumerate(along[0])}
    pairs = [(d, i) for d in range(len(along[0])) for i in range(d + 1)]
    return {(d - i, i): total(arb(x) * line[d] for x, line in zip(inverse()[i], along, strict=True)) for d, i in pairs}


def around(p: dict[tuple[int, ...], Any], n: int, slack: Any) -> Any:
    """The range of a polynomial over the unit box: a x + b x^2 for each variable, and the sizes of all other
    terms."""
    rest, whole = dict(p), rest_of(p, (0,) * n)
    rest.pop((0,) * n, None)
    for i in range(n):
        first, second = (tuple(k * (j == i) for j in range(n)) for k in (1, 2))
        a, b = abs(rest.pop(first, arb(0))).upper(), rest.pop(second, arb(0))
        whole += (-peak(a, (-b).upper())).union(peak(a, b.upper()))
    return whole + ball(-1.0, 1.0) * (total(abs(x) for x in rest.values()) + slack).upper()


def rest_of(p: dict[tuple[int, ...], Any], key: tuple[int, ...]) -> Any:
    return p.get(key, arb(0))


def peak(a: Any, b: Any) -> Any:
    """The largest value of a x + b x^2, a >= 0, for x in [-1, 1]."""
    return a * a / (-4 * b) if a < -2 * b else a + b
