"""What a token takes from the others, for functions given to `compile_sequence`; exported as `hs.tokens`.

Every function takes a traced value (at every token a number: x[:, 0], or anything computed from it), or the whole
table x, of which it then takes every column. Beside each: the heads and layers that it costs, and the lengths m of
sequences that a program for n tokens then takes.

    mean, max, min     one head, one layer                           1 <= m <= n
    sum                as a mean                                     m = n; causal: see cumulative_sum
    variance           two means and a square, three layers          1 <= m <= n
    softmax            exp, a mean, a quotient: three layers         m = n; causal: 1 <= m <= n
    shift(v, k)        one move head, one layer                      k >= 0: 1 <= m <= n; k < 0: m = n
    at(v, i)           one move head, one layer                      i < m <= n
    moving_average     window - 1 move heads, one layer              1 <= m <= n
    cumulative_sum     a move head a layer, log2 n layers            1 <= m <= n
    sort               see sequence/sorting.py                       m = n
    gather(v, places)  one move head, one layer                      where no token fetches from a missing one
    attend(q, k, v)    one head, one layer                           1 <= m <= n
    position, length   constants; one head                           1 <= m <= n

In a causal program means, sums, maxima and minima are those of the tokens so far.

Memory of a run is linear in n, measured on one sequence of 256, 1024, 4096 tokens: 0.08, 0.4, 1.4 MB for means and
bidirectional maxima; all other kinds hold their n x n scores chunk by chunk, at most 9 MB more. Patterns are n x n by
nature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.columns import Columns
from headsmith.language.expression import Value, combine, constant, scale
from headsmith.language.graph import PoolKind
from headsmith.language.trace import Traced, outputs_of, where
from headsmith.sequence.recorder import NOTHING, SequenceRecorder, shifted
from headsmith.sequence.sorting import sorted_tokens

__all__ = [
    "at",
    "attend",
    "constants",
    "cumulative_sum",
    "gather",
    "length",
    "max",
    "mean",
    "min",
    "moving_average",
    "position",
    "shift",
    "softmax",
    "sort",
    "sum",
    "variance",
]


def __dir__() -> list[str]:
    return __all__


Fill = float | Literal["edge"]

LARGEST_EXPONENT = 12.0
"""Exponents within this of each other need no maximum subtracted."""


def mean(v: Any) -> Any:
    """The mean over the tokens; in a causal program, over the tokens so far."""
    return _pooled("mean", v)


def max(v: Any) -> Any:
    """The largest value over the tokens; in a causal program, over the tokens so far."""
    return _pooled("max", v)


def min(v: Any) -> Any:
    """The smallest value over the tokens; in a causal program, over the tokens so far."""
    return _pooled("min", v)


def sum(v: Any) -> Any:
    """The sum over the tokens. A causal program sums the tokens so far; any other takes full sequences only, since
    attention averages, and only then is it known what to multiply by."""

    def total(recorder: SequenceRecorder, value: Value) -> Value:
        if recorder.causal:
            return _cumulated(recorder, value)
        recorder.full_length = recorder.full_length or recorder.tokens > 1
        return scale(Fraction(recorder.tokens), recorder.pool("mean", value))

    return _each("sum", v, total)


def variance(v: Any) -> Any:
    """The mean squared distance from the mean, over the tokens (so far)."""

    def spread(recorder: SequenceRecorder, value: Value) -> Value:
        centre = recorder.pool("mean", value)
        if recorder.causal:
            square = recorder.pool("mean", recorder.multiply(value, value))
            return combine(square, Fraction(-1), recorder.multiply(centre, centre))
        distance = combine(value, Fraction(-1), centre)
        return recorder.pool("mean", recorder.multiply(distance, distance))

    return _each("variance", v, spread)


def softmax(v: Any) -> Any:
    """exp(v_i) over the sum of the exp(v_j), all tokens j (so far)."""

    def weights(recorder: SequenceRecorder, value: Value) -> Value:
        low, high = recorder.range(value)
        centre = constant((low + high) / 2.0)
        if recorder.causal is False and high - low > LARGEST_EXPONENT:
            centre = recorder.pool("max", value)
        weight = recorder.function("exp", combine(value, Fraction(-1), centre))
        share = recorder.divide(weight, recorder.pool("mean", weight))
        if recorder.causal:
            return recorder.multiply(share, recorder.positional([Fraction(1, i + 1) for i in range(recorder.tokens)]))
        recorder.full_length = recorder.full_length or recorder.tokens > 1
        return scale(Fraction(1, recorder.tokens), share)

    return _each("softmax", v, weights)


def shift(v: Any, k: int = 1, fill: Fill = 0.0) -> Any:
    """At token i the value at token i - k: values move on by k places, and a negative k looks ahead (as the offset of
    hs.heads.move does). Beyond the ends `fill`, or the first or last value for fill="edge"."""
    return _each("shift", v, lambda recorder, value: _shifted(recorder, value, _integer("shift", k), fill))


def at(v: Any, i: int) -> Any:
    """At every token the value at token i; a negative i counts from the end of a full sequence."""

    def fetched(recorder: SequenceRecorder, value: Value) -> Value:
        n, index = recorder.tokens, _integer("at", i)
        if not -n <= index < n:
            raise TargetError(f"there is no token {index}: the program is for {n} tokens{where()}")
        index = index % n
        if recorder.causal and index > 0:
            # Nothing so far says what the tokens before it should hold.
            raise TargetError(f"the tokens before token {index} cannot see it in a causal program{where()}")
        return recorder.move(value, [index] * n)

    return _each("at", v, fetched)


def gather(v: Any, places: Sequence[int]) -> Any:
    """At token i the value at token places[i]: a permutation, a reversal, any table of one place for each token."""

    def gathered(recorder: SequenceRecorder, value: Value) -> Value:
        n, wanted = recorder.tokens, [_integer("gather", place) for place in places]
        if len(wanted) != n or not all(0 <= place < n for place in wanted):
            raise TargetError(f"gather needs {n} places from 0 to {n - 1}, one for each token{where()}; got {wanted}")
        return recorder.move(value, wanted)

    return _each("gather", v, gathered)


def attend(queries: Any, keys: Any, values: Any) -> Any:
    """Softmax attention: at token i, the mean over the tokens j (causal: so far) of the values of token j, with weights
    exp(query_i . key_j). A query and a key are lists of as many numbers of the token, or one number each; `values` is
    one value, a list or a table. No scale is applied: divide queries by the square root of their length if you want
    it. One head for all values."""

    def attended(recorder: SequenceRecorder, value: Value) -> Value:
        sides = (list(side.values) if isinstance(side, Columns) else side for side in (queries, keys))
        query, key = ([number.value for number in outputs_of(side, recorder)] for side in sides)
        if len(query) != len(key):
            raise TargetError(f"queries of {len(query)} numbers and keys of {len(key)}{where()}: they must be as many")
        return recorder.attend(query, key, value)

    return _each("attend", values, attended)


def moving_average(v: Any, window: int, fill: Fill = "edge") -> Any:
    """The mean of the last `window` tokens, one's own included; before the first token `fill`, or its value."""

    def average(recorder: SequenceRecorder, value: Value) -> Value:
        if _integer("moving_average", window) < 1:
            raise TargetError(f"a moving average of {window} tokens{where()}; the window must be 1 or more")
        total = value
        for k in range(1, window):
            total = combine(total, Fraction(1), _shifted(recorder, value, k, fill))
        return scale(Fraction(1, window), total)

    return _each("moving_average", v, average)


def cumulative_sum(v: Any) -> Any:
    """The sum of the tokens so far, one's own included: each layer doubles how far a token has summed."""
    return _each("cumulative_sum", v, _cumulated)


def sort(v: Any) -> Any:
    """The values in rising order, the smallest at token 0."""

    def ordered(recorder: SequenceRecorder, value: Value) -> Value:
        if recorder.causal:
            raise TargetError(f"a causal program cannot sort{where()}: token 0 would have to see all tokens")
        return sorted_tokens(recorder, value)

    return _each("sort", v, ordered)


def position(x: Any) -> Any:
    """0 at the first token, 1 at the second, ...; `x` is any traced value of the program."""
    recorder = _recorder(_first(x))
    return Traced(recorder, recorder.positional(range(recorder.tokens)))


def length(x: Any) -> Any:
    """How many tokens there are; in a causal program, so far."""
    return max(position(x)) + 1


def constants(x: Any, values: Sequence[float]) -> Any:
    """One given number for each token; `x` is any traced value of the program."""
    recorder = _recorder(_first(x))
    return Traced(recorder, recorder.positional([float(value) for value in values]))


# ---- how ------------------------------------------------------------------------------------------------------------


def over_tokens(name: str, value: Traced, argument: Any) -> Traced:
    """What the table x calls for x.mean(axis=0), x[3, 0] and the like."""
    found = OPERATIONS[name](value) if argument is None else OPERATIONS[name](value, argument)
    assert isinstance(found, Traced)
    return found


def _each(name: str, v: Any, operation: Callable[[SequenceRecorder, Value], Value]) -> Any:
    """The operation on a traced value, or on every column of a table, list or array."""
    if isinstance(v, Traced):
        recorder = _recorder(v)
        return Traced(recorder, operation(recorder, v.value))
    if isinstance(v, Columns):
        return v.mapped(lambda item: _each(name, item, operation))
    if isinstance(v, list | tuple):
        return [_each(name, item, operation) for item in v]
    if isinstance(v, np.ndarray) and v.dtype == object:
        result = np.empty_like(v)
        for index in np.ndindex(v.shape):
            result[index] = _each(name, v[index], operation)
        return result
    raise TargetError(
        f"hs.tokens.{name} of {v!r}{where()}: it takes the traced values of a function given to hs.compile_sequence"
    )


def _recorder(v: Any) -> SequenceRecorder:
    if isinstance(v, Traced) and isinstance(v.recorder, SequenceRecorder):
        return v.recorder
    raise TargetError(f"{v!r} is not a value of a sequence program{where()}: hs.compile_sequence traces those")


def _first(x: Any) -> Any:
    return x.feature(0) if isinstance(x, Columns) else x


def _integer(name: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TargetError(f"hs.tokens.{name} counts tokens in whole numbers{where()}, not {number!r}")
    return int(number)


def _pooled(kind: PoolKind, v: Any) -> Any:
    return _each(kind, v, lambda recorder, value: recorder.pool(kind, value))


def _shifted(recorder: SequenceRecorder, value: Value, k: int, fill: Fill) -> Value:
    targets = shifted(recorder.tokens, k)
    if fill == "edge":
        edge = 0 if k > 0 else recorder.tokens - 1
        return recorder.move(value, [edge if target == NOTHING else target for target in targets])
    if isinstance(fill, str):
        raise TargetError(f"fill is {fill!r}; give a number, or 'edge'")
    # What is fetched is the distance to the fill, and nothing is no distance.
    away = constant(float(fill))
    return combine(away, Fraction(1), recorder.move(combine(value, Fraction(-1), away), targets))


def _cumulated(recorder: SequenceRecorder, value: Value) -> Value:
    reach = 1
    while reach < recorder.tokens:
        value = combine(value, Fraction(1), _shifted(recorder, value, reach, 0.0))
        reach *= 2
    return value


OPERATIONS: dict[str, Callable[..., Any]] = {
    "mean": mean,
    "sum": sum,
    "max": max,
    "min": min,
    "sort": sort,
    "at": at,
    "cumulative_sum": cumulative_sum,
}
