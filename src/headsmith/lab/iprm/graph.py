"""The program: T steps of operation formation, composition and execution, as attention between tokens.

Step t, with the memory M of the steps before (a result at every memory token) and the clock c, both shared by all
slots. All constructions are ours.

    clock           c <- the code that follows the mean over the tokens of c
    formation       Z = attention of (seat, c) on the operations' (for_seat, for_step): a slot's operation; nothing for
                    all other tokens
    composition     for each part, A = attention of Z's source (slot, age) on the memory's (slot, age), values M
    execution       w = what Z asks for + what the parts A ask for; R = attention of w on the objects' features
                    (a result), and C = that of w on objects and null, which weighs as n objects, value 1 on objects:
                    c / (c + n), if c objects are found
    remembering     M <- (R, C) where operations are executed; older memory tokens take M of the age before theirs,
                    which is one more attention

Attention that finds nothing looks at the null token, which holds zeros. No feed-forward block, no gate, no reference
token. Weights of all steps are the same: the step is in the clock, and the first one has nothing to compose.

Output: at every token its result (R, C) and, by one attention over all memory tokens whose results are compared, the
tag of the largest count, a code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lab.iprm.decode import Scales
from headsmith.lab.iprm.layout import Module
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph


@dataclass(frozen=True, eq=False)
class Reasoning:
    """The program as a source graph. `steps` names the attentions of each step by their nodes, `pooling` is that of
    the output, or None."""

    graph: Graph
    steps: tuple[Mapping[str, int], ...]
    pooling: int | None


class _Columns:
    """Matrices that pick columns of a node by their names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self._place = tuple(names), {name: place for place, name in enumerate(names)}

    def pick(self, wanted: Sequence[str], factor: float = 1.0, rows: int = 0) -> Array:
        """A row for each wanted column, times `factor`; then zeros, up to `rows`."""
        found = np.zeros((max(rows, len(wanted)), len(self.names)))
        for row, name in enumerate(wanted):
            found[row, self._place[name]] = factor
        return found


@lru_cache(maxsize=16)
def reasoning(module: Module, scales: Scales) -> Reasoning:
    """The program of a module."""
    words, inputs, fields = module.vocabulary, _Columns(module.names), _Columns(module.fields)
    features, results = len(words.features), words.results
    digits, null, coded = module.digits, module.names[0], module.coded
    both = 2 * digits + 1
    last = np.eye(both)[-1]
    build = Builder(module.names)

    def read(*names: str) -> int:
        return build.affine([(build.input, inputs.pick(names))], np.zeros(len(names)))

    clock = build.affine([(build.input, np.zeros((digits, len(module.names))))], module.code(0))
    clock_rows = np.zeros((both, digits))
    clock_rows[digits:-1] = scales.code * np.eye(digits)
    for_keys, for_values = read(*coded("for_seat", "for_step"), null), read(*module.fields)
    memory_keys, object_keys = read(*coded("slot", "age"), null), read(*module.shown[:features], null)
    held = [
        f"{'gives' if group == words.gives else 'is'} {group.name} {word}"
        for group in words.held
        for word in group.words
    ]
    object_values = read(*held) if results else None
    counted = build.affine([(build.input, -inputs.pick([null]))], [1.0])
    own_queries = build.affine(
        [(build.input, inputs.pick(coded("slot", "before"), scales.code, rows=both))], scales.null_code * last
    )

    columns = results + (2 + digits if words.counts else 0)
    steps: list[Mapping[str, int]] = []
    memory: int | None = None
    for step in range(module.steps):
        if step:
            clock = build.affine([(build.pool("mean", clock), module.next_code)], np.zeros(digits))
        seats = inputs.pick(coded("seat"), scales.code, rows=both)
        queries = build.affine([(build.input, seats), (clock, clock_rows)], scales.null_code * last)
        operation = build.attend(queries, for_keys, for_values)
        named = {"formation": operation}
        asked = fields.pick([name for name in module.fields if name.startswith("ask ")], scales.word, features + 1)
        asked[features] = fields.pick(["spare"], -scales.word * module.demands)[0]
        terms: list[tuple[int, Array]] = [(operation, asked)]
        older: int | None = None
        if memory is not None and module.composition:
            for part in words.parts:
                sources = fields.pick(coded(f"{part.name} / slot", f"{part.name} / age"), scales.code, rows=both)
                taken = np.eye(columns)[words.columns(part.group)]
                size = len(taken)
                found = build.attend(
                    build.affine([(operation, sources)], scales.null_code * last),
                    memory_keys,
                    build.affine([(memory, taken)], np.zeros(size)),
                )
                named[f"composition: {part.name}"] = found
                terms.append((found, scales.word * np.eye(features + 1)[:, part.asks : part.asks + size]))
            if module.window:
                older = named["remembering"] = build.attend(own_queries, memory_keys, memory)
        top = np.eye(features + 1)[features] * scales.word
        kept: list[tuple[int, Array]] = []
        if object_values is not None:
            # One word below what is found: null counts for nothing, but where no operation was formed.
            queries = build.affine(terms, top * (module.demands - 1))
            named["execution"] = result = build.attend(queries, object_keys, object_values)
            kept.append((result, np.eye(columns)[:, :results]))
        if words.counts:
            queries = build.affine(terms, top * module.demands + np.eye(features + 1)[features] * scales.heavy)
            named["counting"] = count = build.attend(queries, object_keys, counted)
            kept.append((count, np.eye(columns)[:, results : results + 1]))
            tags = fields.pick(["compare", *coded("tag")])
            kept.append((operation, np.vstack([np.zeros((results + 1, tags.shape[1])), tags])))
        if older is not None:
            kept.append((older, np.eye(columns)))
        memory = build.affine(kept, np.zeros(columns))
        steps.append(named)
    assert memory is not None
    return _with_output(build, memory, results, columns, scales, steps, words.counts)


def _with_output(
    build: Builder,
    memory: int,
    results: int,
    columns: int,
    scales: Scales,
    steps: list[Mapping[str, int]],
    counts: bool,
) -> Reasoning:
    if not counts:
        return Reasoning(build.graph(memory), tuple(steps), None)
    each = np.eye(columns)
    keys = build.affine([(memory, scales.compare * each[[results + 1]] + scales.count * each[[results]])], [0.0])
    always = build.affine([(build.input, np.zeros((1, build.size(build.input))))], [1.0])
    pooled = build.attend(always, keys, build.affine([(memory, each[results + 2 :])], np.zeros(columns - results - 2)))
    # All but the mark of what is compared.
    others = np.delete(each, results + 1, axis=0)
    own = np.where(np.arange(columns - 1)[:, None] <= results, others, 0.0)
    output = build.affine([(memory, own), (pooled, others[:, results + 2 :])], np.zeros(columns - 1))
    return Reasoning(build.graph(output), tuple(steps), pooled)
