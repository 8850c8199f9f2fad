"""A softmax over tokens whose scores are affine functions of one or two numbers, on cells that cover where these lie.

    p = softmax over k of s_k,      s_k = slope_k . x + offset_k,      and values v_k

Rounding counts by weights: a token that weighs little may have a score that is far off. Let the computed power of token
k be e^(s_k + m_k), up to a factor that all share. Then the mean of the values moves by exactly

    sum_k p_k (e^(m_k) - 1) (v_k - mean) / sum_k p_k e^(m_k),

and with |m_k| <= d_k <= 1, |e^(m_k) - 1| <= d_k + d_k^2 = g_k, |v_k - mean| <= sum_j p_j |v_k - v_j|, by at most

    sum_k p_k g_k sum_j p_j |v_k - v_j| / (1 - sum_k p_k g_k),      if that sum is below 1.

A weight is at most the largest power of its token on a cell, divided by the sum of the least powers of all.

Scores.  Of every token d_k = relative (|slope_k| . |x| + |offset_k|) + u top + absolute, where `top` is at least the
    largest score, and at least 0: relative counts the roundings of the sum, and one for the subtraction of the largest
    computed score m, because |s_k - m| <= |s_k| + top, if all tokens that are not among these have scores of at most 0.
    What m itself is off by is part of `absolute`.

The edges of cells need not be exact: they begin and end with the domain, so every x lies between two in a row.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, smallest

CELLS = {1: 64, 2: 12}  # along each argument, by how many there are; more arguments have one cell,
MOST_CUT = 1 << 13  # and so have grids of so many tokens
MOST_PAIRS = 1 << 22  # pairs of tokens of a head on its cells: of more, nothing is weighed
HELD = 1 << 22  # numbers to hold at once


def cut(slope: Array, offset: Array, domain: Interval, more: int = 1) -> Iterator[tuple[Any, Interval, Upper]]:
    """Some heads at a time: which, the range of their scores and a bound of the sizes of all terms of these, both
    (heads, tokens, cells), for arguments in `domain` (heads, arguments); `more` numbers are held for each score."""
    heads, tokens, arguments = slope.shape
    steps = np.linspace(0.0, 1.0, (CELLS.get(arguments, 1) if tokens < MOST_CUT else 1) + 1)
    edges = domain.low[..., None] + (domain.high - domain.low)[..., None] * steps
    edges[..., -1] = domain.high
    cells = Interval(edges[..., :-1], edges[..., 1:])
    for rows in np.array_split(np.arange(heads), min(heads, 1 + slope.size * more * len(steps) ** arguments // HELD)):
        scores, sizes = interval(offset[rows, :, None]), Upper(np.abs(offset[rows, :, None]))
        for place in range(arguments):
            term = cells[rows, None, place] * slope[rows, :, place, None]
            scores, sizes = scores[..., None] + term[..., None, :], sizes[..., None] + term.magnitude[..., None, :]
            shape = len(rows), tokens, -1
            scores, sizes = Interval(scores.low.reshape(shape), scores.high.reshape(shape)), sizes.reshape(*shape)
        yield rows, scores, sizes


def lowest_top(slope: Array, offset: Array, domain: Interval) -> Array:
    """For each head a lower bound of its largest score: on each cell, the largest of the least scores of tokens."""
    return np.concatenate([scores.low.max(axis=1).min(axis=1) for _, scores, _ in cut(slope, offset, domain)])


def weighed_move(
    slope: Array, offset: Array, values: Array, domain: Interval, relative: Upper, unit: float, absolute: Upper
) -> tuple[Upper, Upper]:
    """How far the means of values (heads, tokens, columns) move, and bounds of the means of their sizes: both
    (heads, columns). `absolute` is (heads,)."""
    heads, tokens, columns = values.shape
    found = np.full((2, heads, columns), np.inf)
    if tokens * tokens * CELLS.get(slope.shape[2], 1) ** slope.shape[2] > MOST_PAIRS:
        return Upper(found[0]), Upper(found[1])
    for rows, scores, sizes in cut(slope, offset, domain, tokens):
        shift, top = scores.low.max(axis=1, keepdims=True), np.maximum(scores.high.max(axis=1, keepdims=True), 0.0)
        # Quotients and sums of fewer than 2^11 terms are off by less than a share of 2^-40.
        least = (1.0 / (Upper(shift) - scores.low).exp().value).sum(axis=1, keepdims=True) * (1.0 - 2.0**-40)
        weights = smallest((Upper(scores.high) - shift).exp() / least, 1.0)
        off = sizes * relative + Upper(top) * unit + absolute[rows][:, None, None]
        grown = weights * Upper(np.where(off.value <= 1.0, (off + off * off).value, np.inf))
        left = (interval(1.0) - interval(grown.sum(axis=1).value)).low
        for column in range(columns):
            mine = values[rows, :, column]
            gaps = (interval(mine[:, :, None]) - mine[:, None, :]).magnitude[..., None]
            moved = (grown * (gaps * weights[:, None]).sum(axis=2)).sum(axis=1) / left
            sized = (weights * np.abs(mine)[..., None]).sum(axis=1)
            found[:, rows, column] = moved.value.max(axis=1), sized.value.max(axis=1)
    return Upper(found[0]), Upper(found[1])
