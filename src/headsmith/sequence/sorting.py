"""Sorting over tokens: Batcher's network, each stage of it one exchange between pairs of tokens.

    layer 1 of a stage     one move head: every token fetches its partner's value m
    layer 2                two gates: x - relu(x - m - c) + relu(m - x - c') is the smaller of the two at the token that
                           comes first, and the larger one at its partner

c and c' are constants of the tokens, 0 where that gate acts and the width of the range of x where it must stay shut. A
token without a partner fetches its own value, and keeps it.

For 2^k tokens there are d = k (k + 1) / 2 stages: 2 d layers and 3 d heads. That is 12 and 18 for 8 tokens, 42 and 63
for 64, 90 and 135 for 512. An exchange does not expand errors (`analysis.flow`), so the error of a sorted value is
within the sum of what the heads of all stages commit.
"""

from __future__ import annotations

from fractions import Fraction

from headsmith.core.rounding import upper
from headsmith.language.expression import Value, combine, constant
from headsmith.language.library import comparators
from headsmith.sequence.recorder import SequenceRecorder


def sorted_tokens(recorder: SequenceRecorder, value: Value) -> Value:
    """The values of all tokens in rising order."""
    rows = recorder.rows(value)
    if rows is not None:
        return recorder.positional(sorted(rows))
    recorder.full_length = recorder.tokens > 1 or recorder.full_length
    low, high = recorder.range(value)
    width = float(upper(high - low, 1))
    for pairs in stages(recorder.tokens):
        value = exchanged(recorder, value, pairs, width)
    return value


def exchanged(recorder: SequenceRecorder, value: Value, pairs: list[tuple[int, int]], width: float) -> Value:
    """The smaller value of each pair at its first token, the larger one at its second; values lie within `width` of
    each other."""
    partners, shut = list(range(recorder.tokens)), [0.0] * recorder.tokens
    for first, second in pairs:
        partners[first], partners[second] = second, first
        shut[second] = width
    value = recorder.held(value)
    fetched, closed = recorder.move(value, partners), recorder.positional(shut)
    above = combine(value, Fraction(-1), fetched)
    falling = recorder.relu(combine(above, Fraction(-1), closed))
    rising = recorder.relu(combine(combine(closed, Fraction(-1), above), Fraction(-1), constant(width)))
    return combine(combine(value, Fraction(-1), falling), Fraction(1), rising)


def stages(count: int) -> list[list[tuple[int, int]]]:
    """The comparators of Batcher's network, those of each stage together: no token is in two pairs of a stage."""
    found: list[list[tuple[int, int]]] = []
    busy = [0] * count
    for first, second in comparators(count):
        stage = max(busy[first], busy[second])
        busy[first] = busy[second] = stage + 1
        if stage == len(found):
            found.append([])
        found[stage].append((first, second))
    return found
