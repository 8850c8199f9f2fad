"""Continuous piecewise linear functions, from their affine pieces.

    max_min                     max over groups of min over the group's pieces: every such function has this form
    difference_of_max_affine    max of some pieces minus max of others: and this one

Both return graphs, which `compile` takes. A piece is (a, c), the function a . x + c. Pieces are vectors: each round of
a tournament is one Minimum or Maximum node, however many groups there are, and a pair that several groups share is
compared once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.language.maxout import as_pieces

Place = tuple[int, int]
"""A node and a component of it."""

Pieces = Sequence[tuple[Any, Any]]

MOST_PAIRS = 1 << 20
"""Beyond so many candidate pairs in a round, groups no longer look for pairs to share."""


def max_min(groups: Sequence[Pieces], names: Iterable[str] | None = None) -> Graph:
    """max over the groups of min over the group's pieces (a, c), as a graph.

    With distinct pieces in all groups, G groups of sizes s_g cost sum (s_g - 1) + G - 1 gates, in
    ceil(log2 max s_g) + ceil(log2 G) layers. A group that contains another one never decides, and is left out.
    """
    if not len(groups):
        raise TargetError("max_min: there are no groups; give at least one list of pieces (a, c)")
    rows = [as_pieces(group, f"max_min, group {index}") for index, group in enumerate(groups)]
    table, members = _table(rows, "max_min")
    chosen = irredundant(members)
    builder, leaves = _leaves(table, names)
    smallest = tournament(builder, [[leaves[piece] for piece in sorted(group)] for group in chosen], largest=False)
    largest = tournament(builder, [smallest], largest=True)
    return builder.graph(gather(builder, largest))


def difference_of_max_affine(rising: Pieces, falling: Pieces, names: Iterable[str] | None = None) -> Graph:
    """max of the pieces `rising` minus max of the pieces `falling`, as a graph: a difference of two convex functions.

    p and q distinct pieces cost p + q - 2 gates in ceil(log2 max(p, q)) layers.
    """
    rows = [as_pieces(rising, "rising"), as_pieces(falling, "falling")]
    table, members = _table(rows, "difference_of_max_affine")
    builder, leaves = _leaves(table, names)
    tops = tournament(builder, [[leaves[piece] for piece in sorted(group)] for group in members], largest=True)
    return builder.graph(builder.affine([(gather(builder, tops), np.array([[1.0, -1.0]]))], np.zeros(1)))


def irredundant(groups: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """The groups that contain no other one, each once: min over a larger set is never larger."""
    kept: list[frozenset[int]] = []
    for group in sorted(dict.fromkeys(groups), key=len):
        if not any(other <= group for other in kept):
            kept.append(group)
    return kept


def _table(rows: Sequence[tuple[Array, Array]], what: str) -> tuple[Array, list[frozenset[int]]]:
    """The distinct pieces as rows (a, c), and each group as a set of their numbers."""
    inputs = rows[0][0].shape[1]
    for index, (slopes, _) in enumerate(rows):
        if slopes.shape[1] != inputs:
            raise TargetError(f"{what}: group {index} has pieces of {slopes.shape[1]} inputs, group 0 of {inputs}")
    # Adding zero makes -0.0 and 0.0 the same piece.
    stacked = np.concatenate([np.column_stack(pair) for pair in rows]) + 0.0
    table, numbers = np.unique(stacked, axis=0, return_inverse=True)
    ends = np.cumsum([0, *(len(shifts) for _, shifts in rows)])
    flat = numbers.reshape(-1).tolist()
    return table, [frozenset(flat[start:end]) for start, end in pairwise(ends)]


def _leaves(table: Array, names: Iterable[str] | None) -> tuple[Builder, list[Place]]:
    inputs = table.shape[1] - 1
    chosen = tuple(names) if names is not None else tuple(f"x{i}" for i in range(inputs))
    if len(set(chosen)) != inputs or len(chosen) != inputs:
        raise TargetError(f"{len(set(chosen))} different names for {inputs} inputs")
    builder = Builder(chosen)
    node = builder.affine([(builder.input, table[:, :-1])], table[:, -1])
    return builder, [(node, row) for row in range(len(table))]


def gather(builder: Builder, places: Sequence[Place], shifts: Array | None = None) -> int:
    """One node with the values at `places`, plus `shifts`: the node itself where they are all of it, in order."""
    nodes = list(dict.fromkeys(node for node, _ in places))
    whole = len(nodes) == 1 and [row for _, row in places] == list(range(builder.size(nodes[0])))
    if whole and shifts is None:
        return nodes[0]
    terms = []
    for node in nodes:
        weights = np.zeros((len(places), builder.size(node)))
        rows = [row for row, place in enumerate(places) if place[0] == node]
        weights[rows, [places[row][1] for row in rows]] = 1.0
        terms.append((node, np.ones(len(places)) if whole else weights))
    return builder.affine(terms, np.zeros(len(places)) if shifts is None else shifts)


def tournament(builder: Builder, groups: Sequence[Sequence[Place]], *, largest: bool) -> list[Place]:
    """The largest (or smallest) value of each group: in every round all groups halve, and one node does it."""
    current = [list(dict.fromkeys(group)) for group in groups]
    while any(len(group) > 1 for group in current):
        matched = _matching(current)
        pairs = list(dict.fromkeys(pair for chosen, _ in matched for pair in chosen))
        sides = [gather(builder, [pair[side] for pair in pairs]) for side in (0, 1)]
        node = builder.maximum(sides) if largest else builder.minimum(sides)
        winners = {pair: (node, row) for row, pair in enumerate(pairs)}
        current = [[*(winners[pair] for pair in chosen), *rest] for chosen, rest in matched]
    return [group[0] for group in current]


Matched = tuple[list[tuple[Place, Place]], list[Place]]


def _matching(groups: Sequence[Sequence[Place]]) -> list[Matched]:
    """Pairs within every group, and the one that is left over; pairs that many groups have in common come first."""
    if len(groups) == 1 or sum(len(group) ** 2 for group in groups) > 2 * MOST_PAIRS:
        return [_in_order(sorted(group)) for group in groups]
    common = Counter(pair for group in groups for pair in combinations(sorted(group), 2))
    matched = []
    for group in groups:
        members = sorted(group)
        free, chosen = set(members), []
        for left, right in sorted(combinations(members, 2), key=lambda pair: (-common[pair], pair)):
            if left in free and right in free:
                chosen.append((left, right))
                free -= {left, right}
        matched.append((chosen, sorted(free)))
    return matched


def _in_order(members: Sequence[Place]) -> Matched:
    even = len(members) // 2 * 2
    return list(zip(members[:even:2], members[1:even:2], strict=True)), list(members[even:])
