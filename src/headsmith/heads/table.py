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
    kernel/softmax.py. A score is a sum of two or three products (slopes, offset); that of a silent token is -gain,
    exactly.

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
from headsmith.core.rounding import upper
from headsmith.heads.bank import HeadBank
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
