"""Large maps that are mostly zeros, cut into bands: nodes of neighbouring components with small matrices between them.

A convolution of an image reads few of its numbers for each that it writes. Written out as one matrix it would be nearly
all zeros: 32 channels of 28 x 28 pixels have 25,088 numbers, and a matrix of 629 million entries, of which 1% matter.
Here every such node is cut into bands, stretches of neighbouring pixels with all their channels. A band of the result
reads the few bands around it, and only these matrices are stored. Bands are ordinary nodes: ranges, lowering, files,
the kernel and all runtimes know nothing of where they come from.

What is near is found from the graph: the place of an input is its number, and the place of anything else the mean place
of what it reads. Nodes that are tied component by component (a gate to its argument, the terms of a maximum) are cut
alike. A node that reads nearly everything (a linear layer) stays whole, as do the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.source.builder import Builder
from headsmith.source.graph import Affine, Graph, Input, Node, Scattered, arguments
from headsmith.source.node_programs import moved

WIDTH = 256
"""About how many components a band has."""
MOST_BANDS = 48
DENSE = 0.25
"""A matrix of which a larger share is not zero is not cut into bands of rows."""


def banded(graph: Graph) -> Graph:
    """The same function, exactly, with all scattered terms written out, band by band. A graph without any stays as it
    is."""
    if not any(isinstance(node, Affine) and node.scattered for node in graph.nodes):
        return graph
    cuts = _cuts(graph)
    builder = Builder(graph.input.names)
    places: list[list[int]] = []
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            places.append([builder.input])
        elif isinstance(node, Affine):
            terms = [_blocks(term, cuts[number], cuts[term.node]) for term in _entries(node)]
            places.append([_band(builder, node, terms, band, rows, places) for band, rows in enumerate(cuts[number])])
        else:
            places.append(
                [
                    builder.add(_resized(node, {each: places[each][band] for each in arguments(node)}, len(rows)))
                    for band, rows in enumerate(cuts[number])
                ]
            )
    output = graph.output
    if len(places[output]) == 1 and np.array_equal(cuts[output][0], np.arange(graph.nodes[output].size)):
        return builder.graph(places[output][0])
    whole = np.eye(graph.nodes[output].size)
    parts = [(place, whole[:, rows]) for place, rows in zip(places[output], cuts[output], strict=True)]
    return builder.graph(builder.affine(parts, np.zeros(len(whole))))


def _resized(node: Node, places: dict[int, int], size: int) -> Node:
    """A node that acts component by component, on a band."""
    assert not isinstance(node, Input | Affine)
    return replace(moved(node, places), size=size)  # type: ignore[arg-type]


# Which components belong together -----------------------------------------------------------------------------------


def _cuts(graph: Graph) -> list[list[Indices]]:
    """For every node, its components band by band; all bands together are all components."""
    tied = _tied(graph)
    near = _near(graph)
    whole = {tied[0]} | {tied[number] for number, node in enumerate(graph.nodes) if _reads_all(node)}
    found: dict[int, list[Indices]] = {}
    for group in set(tied):
        members = [number for number, other in enumerate(tied) if other == group]
        size = graph.nodes[members[0]].size
        bands = 1 if group in whole else min(max(size // WIDTH, 1), MOST_BANDS)
        mean = np.mean([near[number] for number in members], axis=0)
        found[group] = _stretches(mean, bands)
    return [found[group] for group in tied]


def _stretches(near: Array, bands: int) -> list[Indices]:
    """Components with neighbouring places together, and those with the same place never apart."""
    if bands == 1:
        return [np.arange(len(near))]
    different, place = np.unique(np.round(near, 6), return_inverse=True)
    band = place * bands // len(different)
    return [np.flatnonzero(band == each) for each in np.unique(band)]


def _tied(graph: Graph) -> list[int]:
    """For every node the first of those that it is tied to, component by component."""
    first = list(range(len(graph.nodes)))

    def find(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for number, node in enumerate(graph.nodes):
        read = [term.node for term in node.terms if term.diagonal] if isinstance(node, Affine) else arguments(node)
        for argument in read:
            low, high = sorted((find(number), find(argument)))
            first[high] = low
    return [find(number) for number in range(len(graph.nodes))]


def _reads_all(node: Node) -> bool:
    """Whether an affine node has a matrix that is not sparse."""
    terms = node.terms if isinstance(node, Affine) else ()
    return any(not term.diagonal and np.count_nonzero(term.weights) >= DENSE * term.weights.size for term in terms)


def _near(graph: Graph) -> list[Array]:
    """Where the components of every node are: inputs at their numbers, all else at the mean of what it reads."""
    near: list[Array] = []
    for node in graph.nodes:
        if isinstance(node, Input) or not arguments(node):
            near.append(np.arange(node.size, dtype=np.float64))
        elif isinstance(node, Affine):
            sums, counts = np.zeros(node.size), np.zeros(node.size)
            for term in _entries(node):
                sums += np.bincount(term.rows, weights=near[term.node][term.columns], minlength=node.size)
                counts += np.bincount(term.rows, minlength=node.size)
            near.append(sums / np.maximum(counts, 1.0))
        else:
            near.append(np.mean([near[argument] for argument in arguments(node)], axis=0))
    return near


# Matrices between bands ---------------------------------------------------------------------------------------------


def _entries(node: Affine) -> list[Scattered]:
    """The terms by their entries, one for each node that is read."""
    found = list(node.scattered)
    for term in node.terms:
        columns = term.weights.shape[-1]
        if term.diagonal:
            places = np.arange(columns)
            found.append(Scattered(term.node, places, places, term.weights, (columns, columns)))
        else:
            rows, read = np.nonzero(term.weights)
            found.append(Scattered(term.node, rows, read, term.weights[rows, read], (node.size, columns)))
    joined = []
    for number in sorted({term.node for term in found}):
        same = [term for term in found if term.node == number]
        rows, read, values = (
            np.concatenate([getattr(term, name) for term in same]) for name in ("rows", "columns", "values")
        )
        joined.append(Scattered(number, rows, read, values, same[0].shape))
    return joined


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The matrices of a term, by band of the result and band of what is read."""

    node: int
    weights: dict[tuple[int, int], Array]


def _blocks(term: Scattered, rows: Sequence[Indices], columns: Sequence[Indices]) -> _Blocks:
    row_band, row_place = _within(rows, term.shape[0])
    column_band, column_place = _within(columns, term.shape[1])
    pair = row_band[term.rows] * len(columns) + column_band[term.columns]
    order = np.argsort(pair, kind="stable")
    ends = np.flatnonzero(np.diff(pair[order], append=-1)) + 1
    weights: dict[tuple[int, int], Array] = {}
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        mine = order[start:end]
        to, source = divmod(int(pair[mine[0]]), len(columns))
        at, values = (row_place[term.rows[mine]], column_place[term.columns[mine]]), term.values[mine]
        if len(rows[to]) == len(columns[source]) and np.array_equal(at[0], at[1]):
            weights[to, source] = np.asarray(
                np.bincount(at[0], weights=values, minlength=len(rows[to])), dtype=np.float64
            )
            continue
        matrix = np.zeros((len(rows[to]), len(columns[source])))
        np.add.at(matrix, at, values)
        weights[to, source] = matrix
    return _Blocks(term.node, weights)


def _within(bands: Sequence[Indices], size: int) -> tuple[Indices, Indices]:
    """For every component its band, and its place in there."""
    band, place = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for number, components in enumerate(bands):
        band[components], place[components] = number, np.arange(len(components))
    return band, place


def _band(
    builder: Builder, node: Affine, terms: Sequence[_Blocks], band: int, rows: Indices, places: Sequence[Sequence[int]]
) -> int:
    """One band of an affine node."""
    read = [
        (places[term.node][source], weights)
        for term in terms
        for (to, source), weights in term.weights.items()
        if to == band
    ]
    return builder.affine(read, node.bias[rows])
