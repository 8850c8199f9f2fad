"""Table head: any smooth functions of one or two linear forms, by a softmax over a grid of constant reference tokens.

Reference token k scores  slope[k] . s + offset[k]  for a data token whose reads are s (one or two numbers), and
holds the constants values[k]. The head returns

    g(s) = sum_k w_k values[k],        w = softmax_k(slope[k] . s + offset[k]),

one number for each column of `values`: all functions of the same linear form share a head. How well g stands for
them is proved from the stored numbers themselves (`kernel/table.py`).

Tokens that hold no value (data tokens, and the sink) are silent: they score -gain. With n of them,

Leak lemma.  the total weight of silent tokens is at most  n e^{-gain - m},  m = max_k (slope[k] . s + offset[k]),
    and since their value is zero the output shrinks by at most that factor.

Rounding lemma.  If every score is off by at most d, the output moves by at most (max v - min v) d / 2, see
    heads.softmax. A score is a sum of two or three products (slopes, offset); that of a silent token is -gain, exactly.

The features of query and key, and the value; `grid` is the one-hot register of the reference tokens:

    slope a     read_a . x                        slope[:, a] . grid
    offset      data                              offset . grid - gain (data + reference)
    value       values . grid

Where the model has a sink token too, reference tokens must not be written: their queries go to it,

    keep        keep_gain / KEY (reference + sum grid)    KEY * reference

The grid may instead be the data tokens themselves: `grid` then names a positional register that is one-hot over
them. Every data token sees every other (no causal mask, no shorter sequence), and the silent ones that the leak counts
are the reference tokens, not the data tokens: they have the key -gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import FLOAT64, Precision, upper
from headsmith.heads.bank import HeadBank
from headsmith.heads.softmax import exp_disturbance, moved_mean, summation_rounding
from headsmith.heads.stream import DATA, GRID, REFERENCE


@dataclass(frozen=True, eq=False)
class TableBank(HeadBank):
    """All table heads of one layer. Output (head h, column m) is number h * columns + m: it computes component
    `component` of circuit node `node` there, or nothing (node -1).

    `read` has heads * arguments rows: row h * arguments + a is argument a of head h. `slope` is (heads, tokens,
    arguments), `offset` (heads, tokens), `values` (heads, tokens, columns). `grid` is the register that tells the
    grid's tokens apart: that of the reference tokens, or a positional one.
    """

    kind: ClassVar[str] = "table"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset", "values")

    slope: Array
    offset: Array
    values: Array
    gain: float
    keep_gain: float
    grid: str = GRID

    @property
    def heads(self) -> int:
        return len(self.offset)

    @property
    def arguments(self) -> int:
        return int(self.slope.shape[2])

    @property
    def columns(self) -> int:
        return int(self.values.shape[2])

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads."""
        return self.heads * self.arguments

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns."""
        return self.heads * self.columns


def silent_registers(bank: TableBank, grid_tokens: int) -> tuple[str, ...]:
    """The registers that are one on exactly the tokens that hold no value: all but the grid's."""
    if bank.grid == GRID:
        return (DATA, REFERENCE)
    return (REFERENCE, GRID) if grid_tokens else (REFERENCE,)


def score_sizes(bank: TableBank, sizes: Array) -> Array:
    """For each head and reference token a bound of sum |slope| |s| + |offset|; `sizes` is (heads, arguments)."""
    linear = np.einsum("hka,ha->hk", np.abs(bank.slope), sizes)
    return np.asarray(upper(linear + np.abs(bank.offset), bank.arguments + 4))


def score_disturbance(bank: TableBank, sizes: Array, reads: Array, precision: Precision) -> Array:
    """For each head, a bound of how far rounding moves any score, exp included.

    `reads` (heads, arguments) bounds the rounding of the reads themselves. A score is a sum of products, one for each
    argument, one for the offset and two that are zero; subtracting the largest score rounds a difference of two.
    """
    scores = score_sizes(bank, sizes).max(axis=1)
    steep = np.abs(bank.slope).max(axis=1)
    moved = (steep * reads).sum(axis=1) + precision.gamma(bank.arguments + 4) * scores
    moved = moved + 2.0 * precision.unit_roundoff * scores + (bank.arguments + 4) * precision.smallest_normal
    return np.asarray(upper(moved + exp_disturbance(precision), bank.arguments + 10))


def silent_disturbance(bank: TableBank, disturbance: Array, lowest_top: Array, precision: Precision) -> Array:
    """The same for the score of a silent token: a product, and a difference with the largest score, of size `gain`."""
    return np.asarray(upper(disturbance + precision.gamma(4) * (abs(bank.gain) + np.abs(lowest_top)), 4))


def output_rounding(bank: TableBank, disturbance: Array, precision: Precision, tokens: int) -> Array:
    """Bound of what rounding adds to each output (heads, columns): moved weights, normalisation, weighted sum.

    `tokens` counts the silent tokens. Guarantee: (max v - min v) d / 2 and the sum's rounding (heads.softmax); no more
    than the spread of the values where d is large or not a number.
    """
    # Silent tokens hold zero: they count as a value, too.
    high, low = np.maximum(bank.values.max(axis=1), 0.0), np.minimum(bank.values.min(axis=1), 0.0)
    moved = moved_mean(upper(high - low, 1), np.where(np.isnan(disturbance), np.inf, disturbance)[:, None])
    size = np.maximum(high, -low)
    return np.asarray(upper(moved + summation_rounding(size, bank.offset.shape[1] + tokens, precision), 2))


def leak(bank: TableBank, lowest_top: Array, disturbance: Array, tokens: int) -> Array:
    """Bound of the leak of each output (heads, columns). `lowest_top` bounds max_k score from below, gain not counted;
    `disturbance` is that of silent tokens.

    `tokens` counts every silent token: the data tokens, and the sink where there is one
    (where the data tokens are the grid: the reference tokens).
    """
    # The exponent is a difference of numbers as large as the gain: widen it by their rounding. Below -700 exp
    # underflows.
    size = np.abs(lowest_top) + abs(bank.gain) + 2.0 * disturbance
    exponent = 2.0 * disturbance - bank.gain - lowest_top + 8.0 * FLOAT64.unit_roundoff * size
    with np.errstate(over="ignore"):
        weight = tokens * np.exp(np.maximum(exponent, -700.0)) * (1.0 + 1e-9)
    return np.asarray(upper(weight[:, None] * np.abs(bank.values).max(axis=1), 4))


def lowest_top(bank: TableBank, low: Array, high: Array) -> Array:
    """For each head, a lower bound over low <= s <= high (heads, arguments) of the largest score, gain not counted.

    On each of a few cells of the box, the largest over k of the least score of token k there.
    """
    cells = {1: 64, 2: 12}[bank.arguments]
    steps = np.linspace(0.0, 1.0, cells + 1)
    edges = low[..., None] + (high - low)[..., None] * steps
    edges[..., -1] = high
    ends = bank.slope[..., None] * edges[:, None]
    least = np.minimum(ends[..., :-1], ends[..., 1:])
    size = np.abs(ends).max(axis=3).sum(axis=2) + np.abs(bank.offset)
    total = least[:, :, 0] + bank.offset[:, :, None]
    if bank.arguments == 2:
        total = (total[..., :, None] + least[:, :, 1, None, :]).reshape(*bank.offset.shape, -1)
    # Few roundings of terms that are no larger than `size`.
    safe = total - (16.0 * FLOAT64.unit_roundoff * size)[:, :, None]
    return np.asarray(safe.max(axis=1).min(axis=1))
