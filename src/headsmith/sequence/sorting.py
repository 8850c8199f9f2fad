"""Sorting over tokens: every token fetches all values, sorts them, and keeps the one of its rank.

    layer 1             n move heads: token k's value on every token
    layers 2 .. d + 1   Batcher's network, token-wise: a comparison is one gate; d = 6, 10, 15, 21 for n = 8, 16, 32, 64
    layer d + 2         n move heads: token k keeps value k of the sorted ones, and nothing of the others

A comparison does not expand distances, so the error of a sorted value is within the sum of the gates' own errors,
which the proof kernel finds by itself; choosing one of n costs a factor n in the bound. Heads grow like
n (log n)^2 / 4: this is for some dozens of tokens.
"""

from __future__ import annotations

from fractions import Fraction

from headsmith.core.errors import TargetError
from headsmith.sequence.recorder import NOTHING, SequenceRecorder
from headsmith.source.expression import ZERO, Value, combine
from headsmith.source.library import comparators

MOST_TOKENS = 128
"""Beyond, a network takes thousands of heads, each n x n."""


def sorted_tokens(recorder: SequenceRecorder, value: Value) -> Value:
    """The values of all tokens in rising order."""
    n = recorder.tokens
    if value.is_constant or n == 1:
        return value
    if n > MOST_TOKENS:
        raise TargetError(f"sorting {n} tokens takes {len(comparators(n))} gates a token; at most {MOST_TOKENS} tokens")
    recorder.full_length = True
    members = [recorder.move(value, [k] * n) for k in range(n)]
    for first, second in comparators(n):
        pair = (members[first], members[second])
        members[first], members[second] = (recorder.extremum(pair, largest) for largest in (False, True))
    total = ZERO
    for k, member in enumerate(members):
        kept = recorder.move(member, [k if i == k else NOTHING for i in range(n)])
        total = combine(total, Fraction(1), kept)
    return total
