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

from headsmith.heads.bank import HeadBank


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
