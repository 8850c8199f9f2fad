"""The recorder of a sequence program: besides what one token computes, what it takes from the others.

    positional   constants of the tokens. What is computed from them alone is folded: sin(position) is a table.
    pool         the mean, maximum or minimum over all tokens; in a causal program, over the tokens so far
    move         the value at another token, or zero
    attend       softmax attention: a mean with weights exp(query . key)

A sequence of a single token has no others: there all of these are folded away.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box
from headsmith.language.expression import ZERO, Operation, Recorder, Value, build, combine, constant, scale
from headsmith.language.graph import PoolKind
from headsmith.plan.analysis.ranges import ranges

NOTHING = -1
"""Stands for a token's index where nothing is fetched."""


class SequenceRecorder(Recorder):
    """The operations of one sequence program for at most `tokens` tokens; `full_length` once one of them needs all."""

    is_sequence: ClassVar[bool] = True

    def __init__(self, tokens: int, causal: bool, box: Box) -> None:
        super().__init__()
        self.tokens, self.causal, self.box = tokens, causal, box
        self.full_length = False
        self._common: list[bool] = []

    def positional(self, rows: Sequence[float | Fraction]) -> Value:
        """Constants of the tokens, one number each."""
        numbers = [constant(row).constant for row in rows]
        if len(numbers) != self.tokens:
            raise TargetError(f"{len(numbers)} constants for {self.tokens} tokens: give one for each")
        if len(set(numbers)) == 1:
            return constant(numbers[0])
        return self._record(Operation("positional", table=tuple(float(number) for number in numbers)))

    def pool(self, kind: PoolKind, value: Value) -> Value:
        """The mean, maximum or minimum over the tokens; a summand that all tokens share stays outside."""
        if self.tokens == 1:
            return value
        if self.causal and (rows := self.rows(value)) is not None:
            return self.positional(_so_far(kind, rows))
        common = Value(tuple(term for term in value.terms if self._is_common(term[0])), value.constant)
        factor, inner = combine(value, Fraction(-1), common).unit
        if inner.is_constant:
            return common
        if factor < 0 and kind != "mean":
            kind = "min" if kind == "max" else "max"
        return combine(common, factor, self._record(Operation("pool", (inner,), kind, causal=self.causal)))

    def _is_common(self, atom: int) -> bool:
        """Whether all tokens hold the same, whatever the input; under a causal mask nothing counts as that."""
        for number in range(len(self._common), atom + 1):
            each = self.operations[number]
            common = (each.kind == "pool" and not each.causal) or (each.kind == "move" and len(set(each.table)) == 1)
            if each.arguments and each.kind not in ("pool", "move", "attend"):
                common = all(self._common[inner] for value in each.arguments for inner, _ in value.terms)
            self._common.append(common and not self.causal)
        return self._common[atom]

    def move(self, value: Value, targets: Sequence[int]) -> Value:
        """At token i the value at token targets[i]; zero where that is NOTHING."""
        ahead = next((i for i, target in enumerate(targets) if target > i), None)
        if self.causal and ahead is not None:
            raise TargetError(
                f"token {ahead} would look ahead at token {targets[ahead]}: a causal program sees the tokens so far"
            )
        if all(target == NOTHING for target in targets) or value == ZERO:
            return ZERO
        rows, everywhere = self.rows(value), NOTHING not in targets
        if rows is not None:
            return self.positional([Fraction(0) if target == NOTHING else rows[target] for target in targets])
        common = ZERO
        if everywhere:
            common = Value(tuple(term for term in value.terms if self._is_common(term[0])), value.constant)
        factor, inner = combine(value, Fraction(-1), common).unit
        if inner.is_constant or list(targets) == list(range(self.tokens)):
            return value
        before = None if inner.atom is None else self.operations[inner.atom]
        if before is not None and before.kind == "move":
            # Fetching what was fetched is one move.
            composed = [NOTHING if target == NOTHING else int(before.table[target]) for target in targets]
            return combine(common, factor, self.move(before.arguments[0], composed))
        moved = self._record(Operation("move", (inner,), table=tuple(float(target) for target in targets)))
        return combine(common, factor, moved)

    def attend(self, queries: Sequence[Value], keys: Sequence[Value], value: Value) -> Value:
        """The mean of the value over the tokens (causal: so far) with weights exp(query . key)."""
        if self.tokens == 1 or value.is_constant:
            return value
        # A number of the key that all tokens share moves all scores alike.
        pairs = [(q, k) for q, k in zip(queries, keys, strict=True) if q != ZERO and not k.is_constant]
        if not pairs:
            return self.pool("mean", value)
        factor, inner = value.unit
        arguments = (*(q for q, _ in pairs), *(k for _, k in pairs), inner)
        return scale(factor, self._record(Operation("attend", arguments, causal=self.causal)))

    def guard(self) -> Value:
        """Zero, by a move from the last token: a program that holds it takes sequences of full length alone."""
        return self._record(Operation("move", (ZERO,), table=(float(self.tokens - 1),) * self.tokens))

    def range(self, value: Value) -> tuple[float, float]:
        """Where the value can lie."""
        graph = build(self, [value], self.box.names)
        found = ranges(graph, self.box)[graph.output]
        return float(found.low[0]), float(found.high[0])

    # ---- folding of constants ----------------------------------------------------------------------------------------

    def rows(self, value: Value) -> list[Fraction] | None:
        """A value at each token, where only constants of tokens make it up."""
        total = [value.constant] * self.tokens
        for atom, coefficient in value.terms:
            operation = self.operations[atom]
            if operation.kind != "positional":
                return None
            total = [sum_ + coefficient * Fraction(row) for sum_, row in zip(total, operation.table, strict=True)]
        return total

    def _folded(self, operation: Callable[..., Value], *values: Value) -> Value | None:
        """The operation token by token, if it is one of constants of tokens."""
        if all(value.is_constant for value in values):
            return None
        tables = [self.rows(value) for value in values]
        if any(table is None for table in tables):
            return None
        rows = zip(*(table for table in tables if table is not None), strict=True)
        found = [operation(*(constant(number) for number in row)) for row in rows]
        return self.positional([value.constant for value in found])

    def relu(self, value: Value) -> Value:
        found = self._folded(super().relu, value)
        return super().relu(value) if found is None else found

    def extremum(self, values: Sequence[Value], largest: bool) -> Value:
        plain = super().extremum
        found = self._folded(lambda *items: plain(items, largest), *values)
        return plain(values, largest) if found is None else found

    def multiply(self, left: Value, right: Value) -> Value:
        found = self._folded(super().multiply, left, right)
        return super().multiply(left, right) if found is None else found

    def divide(self, left: Value, right: Value) -> Value:
        found = self._folded(super().divide, left, right)
        return super().divide(left, right) if found is None else found

    def power(self, base: Value, exponent: Value) -> Value:
        found = self._folded(super().power, base, exponent)
        return super().power(base, exponent) if found is None else found

    def hypotenuse(self, left: Value, right: Value) -> Value:
        if self.rows(left) is not None and self.rows(right) is not None:
            squares = combine(self.multiply(left, left), Fraction(1), self.multiply(right, right))
            return self.function("sqrt", squares)
        return super().hypotenuse(left, right)

    def function(self, name: str, value: Value, parameter: float | None = None) -> Value:
        plain = super().function
        found = self._folded(lambda item: plain(name, item, parameter), value)
        return plain(name, value, parameter) if found is None else found


def shifted(tokens: int, offset: int) -> list[int]:
    """Token i fetches from token i - offset, and nothing where there is none."""
    wanted = np.arange(tokens) - offset
    return [int(target) for target in np.where((wanted >= 0) & (wanted < tokens), wanted, NOTHING)]


def _so_far(kind: PoolKind, rows: Sequence[Fraction]) -> list[Fraction]:
    """The mean, maximum or minimum of the rows up to each."""
    match kind:
        case "mean":
            return [total / count for count, total in enumerate(itertools.accumulate(rows), start=1)]
        case "max":
            return list(itertools.accumulate(rows, max))
        case "min":
            return list(itertools.accumulate(rows, min))
