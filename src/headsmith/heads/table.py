"""Table head: any smooth functions of one or two linear forms, by a softmax over a grid of constant reference tokens.

Reference token k scores  slope[k] . s + offset[k]  for a data token whose reads are s (one or two numbers), and
holds the constants values[k]. The head returns

    g(s) = sum_k w_k values[k],        w = softmax_k(slope[k] . s + offset[k]),

one number for each column of `values`: all functions of the same linear form share a head. How well g stands for
them is proved from the stored numbers themselves (`certify.tables`).

Data tokens hold no value and score `gain` lower than the grid's constants: with n of them,

Leak lemma.  the total weight of data tokens is at most  n e^{-gain - m},  m = max_k (slope[k] . s + offset[k]),
and since their
    value is zero the output shrinks by at most that factor.

Rounding lemma.  If every score is off by at most d, weights change by factors within e^{+-2d}, so the output
changes by at most
    (e^{2d} - 1) sum_k w_k |v_k| <= (e^{2d} - 1) max|v|.  A score is a sum of three or four products (slopes,
    offset + gain).

The features of query and key, and the value; `grid` is the one-hot register of the reference tokens:

    slope a     read_a . x                        slope[:, a] . grid
    offset      data                              (offset + gain) . grid
    value       values . grid

Where the model has a sink token too, reference tokens must not be written: their queries go to it,

    keep        keep_gain / KEY (reference + sum grid)    KEY * reference
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen, frozen_indices
from headsmith.core.rounding import EXP_ULPS, FLOAT64, Precision, upper
from headsmith.heads.stream import Link


@dataclass(frozen=True, eq=False)
class TableBank:
    """All table heads of one layer. Output (head h, column m) is number h * columns + m: it computes component
    `component` of circuit node `node` there, or nothing (node -1).

    `read` has heads * arguments rows: row h * arguments + a is argument a of head h. `slope` is (heads, tokens,
    arguments), `offset` (heads, tokens), `values` (heads, tokens, columns).
    """

    kind: ClassVar[str] = "table"

    node: Indices
    component: Indices
    read: tuple[Link, ...]
    write: tuple[Link, ...]
    slope: Array
    offset: Array
    values: Array
    gain: float
    keep_gain: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "node", frozen_indices(self.node))
        object.__setattr__(self, "component", frozen_indices(self.component))
        for name in ("slope", "offset", "values"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

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


def score_sizes(bank: TableBank, sizes: Array) -> Array:
    """For each head and reference token a bound of sum |slope| |s| + |offset| + gain; `sizes` is (heads, arguments)."""
    linear = np.einsum("hka,ha->hk", np.abs(bank.slope), sizes)
    return np.asarray(upper(linear + np.abs(bank.offset) + bank.gain, bank.arguments + 4))


def score_disturbance(bank: TableBank, sizes: Array, reads: Array, precision: Precision) -> Array:
    """For each head, a bound of how far rounding moves any score relative to another, exp included.

    `reads` (heads, arguments) bounds the rounding of the reads themselves.
    """
    scores = score_sizes(bank, sizes).max(axis=1)
    steep = np.abs(bank.slope).max(axis=1)
    moved = (steep * reads).sum(axis=1) + precision.gamma(bank.arguments + 6) * scores
    exponential = 4.04 * EXP_ULPS * precision.unit_roundoff + 4.0 * precision.smallest_normal
    return np.asarray(upper(moved + exponential, bank.arguments + 8))


def output_rounding(bank: TableBank, disturbance: Array, precision: Precision, tokens: int) -> Array:
    """Bound of what rounding adds to each output (heads, columns): moved weights, normalisation, weighted sum.

    Guarantee: (e^{2d} - 1) max|v| + gamma max|v| (+ underflow); infinite unless d <= 1/4, where e^{2d} - 1 <= 2.6 d.
    """
    largest = np.abs(bank.values).max(axis=1)
    count = 2 * (bank.offset.shape[1] + tokens) + 8
    factor = np.where(disturbance <= 0.25, 2.6 * disturbance, np.inf) + precision.gamma(count)
    underflow = 4.0 * count * precision.smallest_normal
    return np.asarray(upper(factor[:, None] * largest + underflow * (1.0 + largest), 6))


def leak(bank: TableBank, lowest_top: Array, disturbance: Array, tokens: int) -> Array:
    """Bound of the leak of each output (heads, columns). `lowest_top` bounds max_k score from below, gain not counted.

    `tokens` counts every token that scores zero and holds nothing: the data tokens, and the sink where there is one.
    """
    # The exponent is a difference of numbers as large as the gain: widen it by their rounding. Below -700 exp
    # underflows.
    size = np.abs(lowest_top) + abs(bank.gain) + 2.0 * disturbance
    exponent = 2.0 * disturbance - bank.gain - lowest_top + 8.0 * FLOAT64.unit_roundoff * size
    with np.errstate(over="ignore"):
        weight = tokens * np.exp(np.maximum(exponent, -700.0)) * (1.0 + 1e-9)
    return np.asarray(upper(weight[:, None] * np.abs(bank.values).max(axis=1), 4))
