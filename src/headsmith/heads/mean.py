"""Mean head: one head that averages any number of linear forms over the data tokens.

Every data token scores `gain` on every data token (under a causal mask: up to itself) and zero on reference tokens:

    out_i = sum_j v_j / m      over the m data tokens in sight,      v = read . x,

up to the reference tokens. A model without reference tokens needs no gain.

Leak lemma.  r reference tokens, which hold at most `drift`, weigh at most r e^{-gain} / m, and move a mean of
    values in [-V, V] by at most (r / m) e^{-gain} (V + drift). Without reference tokens the mean is exact.

Rounding lemma.  Scores that are off by at most d move the mean by at most V d; the normalisation and the sum of T
    tokens by gamma_{2T+6} V more (heads/softmax.py).

The features of query and key, and the value:

    gain        gain / KEY * data                           KEY * data
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
    value       read . x, one number for each output
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import Precision, upper
from headsmith.heads.bank import HeadBank
from headsmith.heads.softmax import exp_disturbance, moved_mean, outside_weight, summation_rounding


@dataclass(frozen=True, eq=False)
class MeanBank(HeadBank):
    """One mean head. Output k is the mean of row k of `read`: component `component[k]` of node `node[k]`."""

    kind: ClassVar[str] = "mean"

    gain: float
    keep_gain: float


def feature_count(sink: int) -> int:
    """The width of queries and keys."""
    return 1 + sink


def score_disturbance(bank: MeanBank, precision: Precision) -> float:
    """Bound of how far rounding moves a score, exp included: a score is one product of size `gain`."""
    return float(upper(precision.gamma(6) * abs(bank.gain) + exp_disturbance(precision), 3))


def leak(bank: MeanBank, size: Array, drift: Array, disturbance: float, references: int, tokens: int = 1) -> Array:
    """Bound of what reference tokens do to each output: values on data tokens within +-size, on them within +-drift.

    `tokens` is the smallest number of data tokens in sight; a causal mask leaves one.
    Guarantee: (references / tokens) e^{2 disturbance - gain} (size + drift), rounded up.
    """
    if references == 0:
        return np.zeros_like(size)
    return np.asarray(upper(outside_weight(references / tokens, bank.gain, disturbance) * (size + drift), 4))


def output_rounding(size: Array, disturbance: float, precision: Precision, tokens: int) -> Array:
    """Bound of what rounding adds to each output; `tokens` counts data and reference tokens.

    Guarantee: size disturbance + gamma_{2 tokens + 6} size (+ underflow), rounded up.
    """
    return np.asarray(upper(moved_mean(2.0 * size, disturbance) + summation_rounding(size, tokens, precision), 1))
