"""Attend head: data tokens compare what they ask with what the others hold, and average. Textbook attention.

Queries, keys and values are linear forms of the data tokens. Token i scores

    data token j        q_i . k_j           value v_j
    reference token     -gain               value 0

and gets the softmax mean of the v_j, up to the reference tokens.

Scores lemma.  Scores that are off by at most d move the mean by at most R tanh(d/2), R the spread of the values
    (heads/softmax.py). If queries are off by e and keys by f, component by component, scores are off by at most
    sum |q_c| f_c + |k_c| e_c + e_c f_c. What moves all scores of a query alike does not count: for what the query is
    off by, half the spread of k_c over the tokens stands in for |k_c|.

Leak lemma.  Some data token scores at least -S, S = sum |q_c| |k_c|, and r reference tokens score at most -gain + D,
    D = sum |q_c| drift_c for keys that have drifted from zero there: they weigh at most r e^{S + D - gain}.

The features of query and key, and the values:

    c           row c of the read, on both sides: rows of the queries, then of the keys, then of the values
    silent      KEY * data                                  -gain / KEY * (reference + sum grid)
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
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
class AttendBank(HeadBank):
    """One attend head. The first `width` rows of `read` are the query, the next ones the key; the others are values,
    one for each output: component `component[k]` of node `node[k]`."""

    kind: ClassVar[str] = "attend"

    width: int
    gain: float
    keep_gain: float

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: query, key and values."""
        return 2 * self.width + self.outputs

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """The rows of the query, of the key and of the values."""
        return slice(0, self.width), slice(self.width, 2 * self.width), slice(2 * self.width, self.readers)


def feature_count(bank: AttendBank, sink: int, grid: int) -> int:
    """The width of queries and keys."""
    return bank.width + int(sink + grid > 0) + sink


def moved_scores(query: Array, key: Array, query_off: Array, key_off: Array) -> float:
    """Bound of how far scores move: queries within +-query and off by query_off, keys alike.

    Guarantee: sum query key_off + key query_off + query_off key_off, rounded up.
    """
    each = query * key_off + key * query_off + query_off * key_off
    return float(upper(np.sum(each), len(each) + 4))


def largest_score(query: Array, key: Array) -> float:
    """Bound of |q . k|, rounded up."""
    return float(upper(np.sum(query * key), len(query) + 2))


def score_disturbance(query: Array, key: Array, precision: Precision) -> float:
    """Bound of how far the rounding of products and sums moves a score of a data token, exp included: any order."""
    terms = len(query) + 8
    underflow = 4.0 * terms * precision.smallest_normal
    moved = precision.gamma(terms) * largest_score(query, key) + underflow
    return float(upper(moved + exp_disturbance(precision), 4))


def reference_pull(bank: AttendBank, largest: float, precision: Precision) -> float:
    """Bound of how far the scores of a reference token's own query are from `keep_gain` on the sink and zero elsewhere:
    drifted queries and keys add at most `largest`, and all is rounded."""
    return float(upper(largest + precision.gamma(bank.width + 8) * (abs(bank.keep_gain) + largest), 4))


def leak(
    bank: AttendBank,
    largest: float,
    pull: float,
    size: Array,
    drift: Array,
    disturbance: float,
    references: int,
    precision: Precision,
) -> Array:
    """Bound of what reference tokens do to each output. Scores of data tokens are within +-largest, `pull` bounds what
    drifted keys of reference tokens add to theirs; values lie within +-size on data tokens, +-drift on reference ones.

    Guarantee: references e^{2d + largest + pull - gain} (size + drift), rounded up, where d also covers the rounding
    of the reference tokens' own scores.
    """
    if references == 0:
        return np.zeros_like(size)
    own = upper(precision.gamma(bank.width + 8) * (abs(bank.gain) + largest + pull), 4)
    margin = bank.gain - largest - pull - 1e-15 * (abs(bank.gain) + largest + pull)
    return np.asarray(upper(outside_weight(references, margin, disturbance + own) * (size + drift), 4))


def output_rounding(spread: Array, size: Array, disturbance: float, precision: Precision, tokens: int) -> Array:
    """Bound of what scores that are off by `disturbance`, the normalisation and the sum add to each output.

    `tokens` counts data and reference tokens. Guarantee: spread tanh(disturbance/2) + gamma_{2 tokens + 6} size (+
    underflow), rounded up.
    """
    return np.asarray(upper(moved_mean(spread, disturbance) + summation_rounding(size, tokens, precision), 1))
