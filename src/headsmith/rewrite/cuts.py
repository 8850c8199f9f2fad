"""Where a network is a composition: its values between, as nodes of their own, beside those of its function.

A network for x y z multiplies x and y, and then that with z. Between the two, everything that later gates read of the
first gates is one number, close to x y. In the weights this is a block of low rank: with m what the gates return,

    W m = A (B m),      B of as few rows as there are such numbers, and A the columns of W at the pivots of B,

where B is the reduced row echelon form. So the network gets nodes p = s B m + o, with s and o such that p is closest to
a node of the function, at points that are tried, and reads those. What was found may be off by rounding: the network
with these nodes is the one that is compiled. Nothing here is believed: a wrong pair is far off, and the proof says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.source.evaluation import node_values
from headsmith.source.graph import Affine, Builder, Graph, Input, Product, Relu, Term, arguments, needed
from headsmith.source.node_programs import moved

MOST_GATES, MOST_VALUES = 4096, 3
CLOSE = 0.1
"""How far a value may be from a node of the function, as a share of that node's spread."""
NOTHING = 1e-9
"""What is smaller, beside the largest of a matrix, is zero."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A network and a function, and pairs of a node of each, close to each other, in order; the outputs come last."""

    network: Graph
    wanted: Graph
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers p = rows m + offsets of columns of a sum, and what the sum reads of them: weights p."""

    columns: Array
    rows: Array
    offsets: Array
    weights: Array
    functions: tuple[int, ...]


def uncut(network: Graph, wanted: Graph) -> Cut:
    """One piece."""
    return Cut(network, wanted, ((network.output, wanted.output),))


def by_squares(wanted: Graph, *, apart: bool) -> Graph | None:
    """Products as squares: a b = ((a + b)/2)^2 - ((a - b)/2)^2, or with a^2 and b^2 `apart`, 2 ((a + b)/2)^2 - a^2/2 -
    b^2/2. None where there are none."""
    if not any(isinstance(node, Product) for node in wanted.nodes):
        return None
    builder, places = Builder(wanted.input.names), dict[int, int]()
    for number, node in enumerate(wanted.nodes):
        if isinstance(node, Input):
            places[number] = builder.input
        elif isinstance(node, Product) and node.left != node.right:
            a, b, one, nothing = places[node.left], places[node.right], np.eye(node.size), np.zeros(node.size)
            read = [builder.affine([(a, 0.5 * one), (b, 0.5 * one)], nothing)]
            read += [a, b] if apart else [builder.affine([(a, 0.5 * one), (b, -0.5 * one)], nothing)]
            squares = [builder.function("square", each) for each in read]
            shares = (2.0, -0.5, -0.5) if apart else (1.0, -1.0)
            pairs = zip(squares, shares, strict=True)
            places[number] = builder.affine([(square, share * one) for square, share in pairs], nothing)
        else:
            places[number] = builder.add(moved(node, places))
    return builder.graph(places[wanted.output])


def composed(network: Graph, wanted: Graph, points: Array, *, fine: bool) -> Cut | None:
    """The network with nodes for its values between, and the pairs; None where there are none. With `fine`, what comes
    from different gates is kept apart."""
    if network.gates > MOST_GATES or not all(isinstance(node, Input | Affine | Relu) for node in network.nodes):
        return None
    with np.errstate(all="ignore"):
        ours, theirs = node_values(network, points), node_values(wanted, points)
    wanted_values = _candidates(wanted, theirs)
    builder, places, pairs = Builder(network.input.names), {0: 0}, list[tuple[int, int]]()
    gates, seen = 0, [[0] * network.input.size]  # for every component, the gates since the last cut, as bits
    for number, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node, Relu):
            seen.append([mask | 1 << gates + place for place, mask in enumerate(seen[node.argument])])
            gates += node.size
        if not isinstance(node, Affine) or not node.terms:
            places[number] = builder.add(moved(node, places))
            seen += [] if isinstance(node, Relu) else [[0] * node.size]
            continue
        columns = [(term.node, j) for term in node.terms for j in np.flatnonzero(_matrix(term).any(axis=0)).tolist()]
        W = np.concatenate([_matrix(term)[:, _matrix(term).any(axis=0)] for term in node.terms], axis=1)
        masks = [seen[source][j] for source, j in columns]
        read = np.stack([ours[source][:, j] for source, j in columns], axis=1) if columns else np.zeros((1, 0))
        alone = number == network.output and node.size == 1
        found = [] if alone and not fine else _values(W, masks, read, wanted_values, fine)
        if alone and any(len({*each.functions} & {wanted.output}) for each in found):
            found = []
        bias, kept, terms = node.bias, np.ones(len(columns), dtype=bool), list[tuple[int, Array]]()
        for each in found:
            kept[each.columns] = False
            bias = bias - each.weights @ each.offsets
            for row, offset, weights, function in zip(
                each.rows, each.offsets, each.weights.T, each.functions, strict=True
            ):
                mine = [columns[column] for column in each.columns]
                place = builder.affine(_terms(network, places, mine, row[None]), [offset])
                pairs.append((place, function))
                terms.append((place, weights[:, None]))
        left = np.flatnonzero(kept)
        rest = _terms(network, places, [columns[column] for column in left], W[:, left])
        places[number] = builder.affine([*rest, *terms], bias)
        seen.append([_union(masks[column] for column in left if row[column]) for row in W])
    if not pairs:
        return None
    return Cut(builder.graph(places[network.output]), wanted, (*pairs, (places[network.output], wanted.output)))


def piece(graph: Graph, output: int, stops: Sequence[int]) -> Graph:
    """A node as a function of the components of others, one after the other."""
    sizes = [graph.nodes[stop].size for stop in stops]
    builder, every, start, places = Builder([str(i) for i in range(sum(sizes))]), np.eye(sum(sizes)), 0, {}
    for stop, size in zip(stops, sizes, strict=True):
        places[stop] = builder.affine([(builder.input, every[start : start + size])], np.zeros(size))
        start += size
    for number in needed(graph, output, stops):
        if number not in places:
            places[number] = builder.add(moved(graph.nodes[number], places))
    return builder.graph(places[output])


def _matrix(term: Term) -> Array:
    return np.diag(term.weights) if term.diagonal else term.weights


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _terms(
    network: Graph, places: dict[int, int], columns: Sequence[tuple[int, int]], weights: Array
) -> list[tuple[int, Array]]:
    """These columns as terms of a sum."""
    found: dict[int, Array] = {}
    for (source, j), column in zip(columns, weights.T, strict=True):
        matrix = found.setdefault(source, np.zeros((len(weights), network.nodes[source].size)))
        matrix[:, j] = column
    return [(places[source], matrix) for source, matrix in found.items()]


def _candidates(wanted: Graph, values: Sequence[Array]) -> list[tuple[int, Array]]:
    """Nodes of the function that are one number, those first that others than sums read."""
    read = {each for node in wanted.nodes if not isinstance(node, Affine) for each in arguments(node)}
    numbers = [number for number, node in enumerate(wanted.nodes) if node.size == 1 and number]
    numbers.sort(key=lambda number: (number not in read, number))
    return [
        (number, values[number][:, 0])
        for number in numbers
        if np.isfinite(values[number]).all() and np.ptp(values[number]) > 0.0
    ]


def _values(
    W: Array, masks: Sequence[int], read: Array, candidates: Sequence[tuple[int, Array]], fine: bool
) -> list[Values]:
    """Blocks of columns that come from gates of their own, and whose values are close to nodes of the function."""
    found = list[Values]()
    for together in _blocks(W, masks, fine):
        columns = np.array(together)
        rows, pivots = _echelon(W[:, columns])
        if len(pivots) <= MOST_VALUES:
            matched = _matched(read[:, columns] @ rows.T, candidates)
            if matched is not None:
                turn, offsets, functions = matched
                weights = W[:, columns[pivots]] @ np.linalg.inv(turn)
                found.append(Values(columns, turn @ rows, offsets, weights, functions))
    return found


def _blocks(W: Array, masks: Sequence[int], fine: bool) -> list[list[int]]:
    """Columns that share gates below; and those that rows of the echelon form read together, unless `fine`."""
    own = [column for column, mask in enumerate(masks) if mask]
    blocks = [([column], masks[column]) for column in own]
    if not fine:
        rows, _ = _echelon(W[:, own])
        for row in rows:
            together = [own[place] for place in np.flatnonzero(row)]
            blocks.append((together, _union(masks[column] for column in together)))
    merged: list[tuple[set[int], int]] = []
    for columns, mask in blocks:
        meeting = [each for each in merged if each[1] & mask or not each[0].isdisjoint(columns)]
        merged = [each for each in merged if not any(each is other for other in meeting)]
        union = {*columns}.union(*(each[0] for each in meeting))
        merged.append((union, mask | _union(each[1] for each in meeting)))
    return [sorted(columns) for columns, _ in merged]


def _echelon(W: Array) -> tuple[Array, list[int]]:
    """The reduced row echelon form, without rows of zeros, and its pivots."""
    rows, pivots = W.astype(np.float64), list[int]()
    small = NOTHING * np.abs(W).max(initial=0.0)
    for column in range(W.shape[1]):
        top = len(pivots)
        if top == len(rows):
            break
        best = top + int(np.argmax(np.abs(rows[top:, column])))
        if np.abs(rows[best, column]) <= small:
            rows[top:, column] = 0.0
            continue
        rows[[top, best]] = rows[[best, top]]
        rows[top] = rows[top] / rows[top, column]
        others = np.arange(len(rows)) != top
        rows[others] -= np.outer(rows[others, column], rows[top])
        pivots.append(column)
    rows = rows[: len(pivots)]
    return np.where(np.abs(rows) <= NOTHING * np.abs(rows).max(initial=0.0), 0.0, rows), pivots


def _matched(
    values: Array, candidates: Sequence[tuple[int, Array]]
) -> tuple[Array, Array, tuple[int, ...]] | None:
    """T, o and nodes of the function that T values + o are close to; T is square, and can be inverted."""
    count, basis = values.shape[1], np.column_stack([values, np.ones(len(values))])
    fits = []
    for place, (number, wanted) in enumerate(candidates):
        solution = np.linalg.lstsq(basis, wanted, rcond=None)[0]
        off, spread = np.abs(basis @ solution - wanted).max(), np.ptp(wanted)
        if off <= CLOSE * spread:
            fits.append((max(off / spread, 1e-12), place, number, solution, off))
    turn, offsets, functions = np.zeros((0, count)), list[float](), list[int]()
    best = min((fit[0] for fit in fits), default=0.0)
    for _, _, number, solution, off in sorted(fits, key=lambda fit: (fit[0] > 1.5 * best, *fit[:2])):
        more = np.vstack([turn, _plain(solution[:-1])])
        if len(turn) < count and np.linalg.matrix_rank(more, tol=1e-6 * np.abs(more).max()) == len(more):
            turn = more
            offset = float(np.mean(basis[:, :-1] @ (solution[:-1] - more[-1])) + solution[-1])
            offsets.append(0.0 if abs(offset) <= 2.0 * off else offset)
            functions.append(number)
    return (turn, np.array(offsets), tuple(functions)) if len(turn) == count else None


def _plain(weights: Array) -> Array:
    """Weights that are nearly zero, or a power of two, are."""
    sizes = np.abs(weights)
    powers = np.exp2(np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0))))
    near = np.where(np.abs(sizes / powers - 1.0) < CLOSE, np.sign(weights) * powers, weights)
    return np.where(sizes <= 1e-6 * sizes.max(), 0.0, near)
