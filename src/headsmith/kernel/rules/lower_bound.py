"""Lower bounds: below what error no softmax head of p tokens can be, whatever its numbers are.

    g(s) = N(s) / D(s),     N = sum_k w_k v_k e^(a_k s),     D = sum_k w_k e^(a_k s),     all w_k > 0,     k = 1 ... p

A head is g, pure; or g + b s, affine. A file claims that every such head is off by L or more somewhere on [low, high]
from a function f; of affine heads, perhaps only of those with |b| <= B. It holds points s_0 < s_1 < ... and a reference
r, and the differences f - r at the points must alternate in sign, and be of size L or more. Suppose that some head h is
off by less than L everywhere. Then h - r = (f - r) - (f - h) alternates in sign too, so it has a zero between any two
neighbours. But a sum of q terms c e^(a s) with q different exponents has at most q - 1 zeros, or is zero everywhere;
one of terms c s^j e^(a s), j < m_a, has at most (sum of m_a) - 1 (Polya and Szego, part V, 75). So:

Rule Heads.  r = N_0 / D_0 is a head of m tokens, h is pure. (h - r) D D_0 = N D_0 - N_0 D has at most p m different
    exponents. With p m + 1 points it would have p m zeros: it is zero, h is r, and f - h is not below L. Contradiction.
Rule Limit.  r = c + u e^(b s), b not zero, which a head of two tokens comes near but never is; h is pure. (h - r) D has
    the exponents a_k and a_k + b, at most 2 p; the last of them if b > 0, and the first if b < 0, has the coefficient
    -u w_k, so it is not zero everywhere. With 2 p points all of its zeros lie between them. So at the last point, or
    at the first, it has the sign of -u: a contradiction where f - r has the sign of u there.
Rule Line.  r is a line, h is affine. (h - r) D has the terms e^(a_k s) and s e^(a_k s): at most 2 p. With 2 p + 1
    points it is zero: h is r.
Rule Cover.  h is affine with b in a cell, |b - c| <= t, and r is as for pure heads. With x = s - (low + high) / 2,
    f - h is (f - c s - (b - c) x) - (g + a constant), and g + a constant is a pure head. So the rules above say: L or
    more, if f - c s - r alternates with L + t |x|. Cells that cover [-B, B] prove it for all |b| <= B.

Everything is computed in balls: what a comparison says holds for the numbers in the file, exactly.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb

from ..core.arithmetic import Array
from ..core.check import DAMAGE
from ..core.errors import WORK, Refused, limited, refuse, spend
from ..core.fields import refuse_unknown
from ..core.functions import BITS, Program, program_series, read_program, working
from ..core.reading import Tensors, field, flag, numbers, real, whole

CLAIM = dict.fromkeys(("program", "low", "high", "tokens", "affine", "incline", "value"))
CELLS = dict.fromkeys(("lines", "points", "slopes", "offsets", "values", "kinds", "edges"))
HEAD, LIMIT, CONSTANT = 0.0, 1.0, 2.0  # a constant is a head of one token
FILE = {"version": None, "lower_bound": CLAIM, "cells": CELLS}
MOST_TOKENS, MOST_POINTS, MOST_CELLS = 16, 257, 1 << 14


@dataclass(frozen=True)
class Bound:
    """Every head of so many tokens is off by `value` or more from the program somewhere on [low, high]: pure heads, or
    affine ones, of which the incline is at most `incline` in size where that is not None."""

    program: Program
    low: float
    high: float
    tokens: int
    affine: bool
    incline: float | None
    value: float
    cells: int


def check_bound(header: Any, tensors: Tensors) -> Bound:
    """What a file claims of all heads of a kind, if its cells prove it. Raises Refused otherwise."""
    try:
        with limited(WORK), np.errstate(all="ignore"), working(BITS, 1):
            return _checked(header, tensors)
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def _checked(header: Any, tensors: Tensors) -> Bound:
    refuse_unknown(header, FILE)
    claim, cells = field(header, "lower_bound"), field(header, "cells")
    program = read_program(field(claim, "program"))
    tokens, affine = whole(field(claim, "tokens"), 1, MOST_TOKENS), flag(field(claim, "affine"))
    low, high, value = (real(field(claim, name)) for name in ("low", "high", "value"))
    incline = None if field(claim, "incline") is None else real(field(claim, "incline"))
    wrong = program.variables != 1 or not low < high or not value >= 0.0 or (incline is not None and not affine)
    refuse(wrong, "this is no lower bound of heads of a kind for a function of one variable on an interval")

    lines, points = (numbers(tensors, field(cells, name), 2) for name in ("lines", "points"))
    parts = tuple(numbers(tensors, field(cells, name), 2) for name in ("slopes", "offsets", "values"))
    count, references = len(points), parts[0].shape[1]
    kinds = numbers(tensors, field(cells, "kinds"), 1)
    fits = {each.shape for each in parts} == {(count, references)} and lines.shape == (*kinds.shape, 2) == (count, 2)
    known = np.isin(kinds, (HEAD, LIMIT, CONSTANT) if references else (HEAD,)).all()
    refuse(not fits or not known or not 0 < count <= MOST_CELLS, "the cells of a lower bound do not fit together")
    refuse(references > MOST_TOKENS or points.shape[1] > MOST_POINTS, "the cells of a lower bound are too large")
    edges = numbers(tensors, field(cells, "edges"), 1) if affine and incline is not None else None
    reaches = _reaches(lines, affine, references, incline, edges)
    for cell in range(count):
        needed = 1 + {HEAD: tokens * references or 2 * tokens, LIMIT: 2 * tokens - 1, CONSTANT: tokens}[kinds[cell]]
        used = points[cell, :needed]
        few = len(used) < needed or not np.all(np.diff(used) > 0.0) or not low <= used[0] <= used[-1] <= high
        refuse(few, f"cell {cell} has too few points that are in order and in the domain: {needed} are needed")
        stored = (*(each[cell].tolist() for each in (*parts, lines)), used.tolist(), kinds[cell], reaches[cell])
        found = _signs(program, (arb(low) + arb(high)) / 2, stored, value)
        refuse(0 in found or any(a == b for a, b in pairwise(found)), f"cell {cell} proves less")
        if kinds[cell] == LIMIT:
            slope, u = parts[0][cell, 0], parts[2][cell, 0]
            refuse(slope == 0.0 or found[-1 if slope > 0.0 else 0] * u <= 0.0, f"cell {cell} has the wrong signs")
    return Bound(program, low, high, tokens, affine, incline, value, count)


def _reaches(lines: Array, affine: bool, references: int, incline: float | None, edges: Any) -> list[Any]:
    """For each cell the two ends of the inclines that it is about, after the rule that it has to be used by."""
    if incline is None:
        other = len(lines) != 1 or (references > 0) == affine or (not affine and lines[0, 0] != 0.0)
        refuse(other, "heads of any incline take one reference, a line; pure heads take one, a pure head")
        return [(float(lines[0, 0]),) * 2]
    rises = references and len(edges) == len(lines) + 1 and np.all(np.diff(edges) > 0.0)
    refuse(not rises or not edges[0] <= -incline <= incline <= edges[-1], "the cells do not cover all inclines")
    return [*pairwise(edges.tolist())]


def _signs(program: Program, middle: Any, cell: tuple[Any, ...], value: float) -> list[int]:
    """The sign of f - c s - r at each point, and 0 where it may be smaller than the claim, and what the inclines b of
    the cell, within t of c, make of it."""
    slopes, offsets, values, (centre, constant), points, kind, reach = cell
    spend(1e4 * len(points) * (len(slopes) + 1))
    below, above = (abs(arb(end) - arb(centre)).abs_upper() for end in reach)
    t, signs, tokens = below if below >= above else above, [], {HEAD: len(slopes), LIMIT: 1, CONSTANT: 0}[kind]
    for s in map(arb, points):
        powers = [(arb(a) * s + arb(b)).exp() for a, b in zip(slopes[:tokens], offsets, strict=False)]
        r = sum((arb(v) * w for v, w in zip(values, powers, strict=False)), arb(0))
        r = r / sum(powers, arb(0)) if kind == HEAD and powers else r
        left, most = program_series(program, [(s, arb(0))], 1)[0] - arb(centre) * s - arb(constant) - r, arb(value)
        most += t * abs(s - middle)
        # A sign is needed too where the claim is zero.
        signs.append(1 if left >= most and left > 0 else -1 if left <= -most and left < 0 else 0)
    return signs
