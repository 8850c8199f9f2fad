"""Mean head: one head that averages any number of linear forms over the data tokens.

Every data token scores `gain` on every data token (under a causal mask: up to itself) and zero on reference tokens:

    out_i = sum_j v_j / m      over the m data tokens in sight,      v = read . x,

up to the reference tokens. A model without reference tokens needs no gain.

Leak lemma.  r reference tokens, which hold at most `drift`, weigh at most r e^{-gain} / m, and move a mean of
    values in [-V, V] by at most (r / m) e^{-gain} (V + drift). Without reference tokens the mean is exact.

Rounding lemma.  Scores that are off by at most d move the mean by at most V d; the normalisation and the sum of T
    tokens by gamma_{2T+6} V more (kernel/softmax.py).

The features of query and key, and the value:

    gain        gain / KEY * data                           KEY * data
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
    value       read . x, one number for each output
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headsmith.heads.bank import HeadBank


@dataclass(frozen=True, eq=False)
class MeanBank(HeadBank):
    """One mean head. Output k is the mean of row k of `read`: component `component[k]` of node `node[k]`. With `split`,
    that many heads of the same scores return the same number of outputs each."""

    kind: ClassVar[str] = "mean"

    gain: float
    keep_gain: float
    split: int = 1

    @property
    def heads(self) -> int:
        return self.split


def feature_count(sink: int) -> int:
    """The width of queries and keys."""
    return 1 + sink
