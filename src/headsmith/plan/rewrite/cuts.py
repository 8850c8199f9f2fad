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
from headsmith.language.builder import Builder, moved
from headsmith.language.evaluation import node_values
from headsmith.language.graph import Affine, Graph, Input, Product, Relu, arguments, needed

MOST_GATES, MOST_VALUES = 4096, 3
CLOSE = 0.05
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
    found = _found(network, wanted, ours, _candidates(wanted, theirs), fine)
    if not any(found.values()):
        return None
    for whole in (False, True):
        writing = _Writing(network, found, whole)
        output = writing.rows(network.output, range(network.nodes[network.output].size))
        cut = Cut(writing.builder.graph(output), wanted, (*writing.pairs, (output, wanted.output)))
        if cut.network.gates <= network.gates:
            break
    return cut


def _found(
    network: Graph, wanted: Graph, ours: Sequence[Array], candidates: Sequence[tuple[int, Array]], fine: bool
) -> dict[int, list[Values]]:
    """For every sum, the values between that it reads."""
    gates, bases, found = 0, network.input.size, dict[int, list[Values]]()
    seen = [[(0, 1 << place) for place in range(bases)]]  # by component: gates since the last cut, and what they read
    for number, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node, Relu):
            seen.append([(mask | 1 << gates + place, base) for place, (mask, base) in enumerate(seen[node.argument])])
            gates += node.size
            continue
        assert isinstance(node, Affine)
        columns, W = _read(node)
        masks = [seen[source][j] for source, j in columns]
        read = np.stack([ours[source][:, j] for source, j in columns], axis=1) if columns else np.zeros((1, 0))
        found[number] = _values(W, masks, read, candidates, fine)
        if number == network.output and node.size == 1:
            # The output itself is no value between.
            functions = [function for each in found[number] for function in each.functions]
            found[number] = [] if wanted.output in functions or len(functions) == 1 else found[number]
        kept = np.ones(len(columns), dtype=bool)
        reading = [0] * node.size
        for each in found[number]:
            kept[each.columns] = False
            for weights in each.weights.T:
                reading = [old | (1 << bases if weight else 0) for old, weight in zip(reading, weights, strict=True)]
                bases += 1
        left = [[masks[column] for column in np.flatnonzero(kept & (row != 0.0))] for row in W]
        seen.append(
            [
                (_union(m for m, _ in row), _union(b for _, b in row) | more)
                for row, more in zip(left, reading, strict=True)
            ]
        )
    return found


class _Writing:
    """The network again, with the values between; of every node those rows that are read, or with `whole` all."""

    def __init__(self, network: Graph, found: dict[int, list[Values]], whole: bool) -> None:
        self.network, self.found, self.whole = network, found, whole
        self.builder, self.pairs = Builder(network.input.names), list[tuple[int, int]]()
        self.places: dict[tuple[int, tuple[int, ...]], int] = {}
        self.values: dict[tuple[int, int], list[int]] = {}

    def rows(self, number: int, rows: Iterable[int]) -> int:
        """A node with some of its components."""
        node = self.network.nodes[number]
        key = number, tuple(range(node.size)) if self.whole or isinstance(node, Input) else tuple(sorted({*rows}))
        if key not in self.places:
            self.places[key] = self._written(number, key[1])
        return self.places[key]

    def _written(self, number: int, rows: tuple[int, ...]) -> int:
        node = self.network.nodes[number]
        if isinstance(node, Input):
            return self.builder.input
        if isinstance(node, Relu):
            return self.builder.relu(self.rows(node.argument, rows))
        assert isinstance(node, Affine)
        columns, W = _read(node)
        W, bias, kept = W[list(rows)], node.bias[list(rows)], np.ones(len(columns), dtype=bool)
        terms = list[tuple[int, Array]]()
        for place, each in enumerate(self.found.get(number, ())):
            kept[each.columns] = False
            weights = each.weights[list(rows)]
            if not weights.any():
                continue
            bias = bias - weights @ each.offsets
            if (number, place) not in self.values:
                self.values[number, place] = self._between(each, columns)
            pairs = zip(self.values[number, place], weights.T, strict=True)
            terms += [(value, column[:, None]) for value, column in pairs if column.any()]
        left = np.flatnonzero(kept & W.any(axis=0))
        return self.builder.affine([*self._terms([columns[each] for each in left], W[:, left]), *terms], bias)

    def _between(self, values: Values, columns: Sequence[tuple[int, int]]) -> list[int]:
        mine, found = [columns[each] for each in values.columns], list[int]()
        for row, offset, function in zip(values.rows, values.offsets, values.functions, strict=True):
            found.append(self.builder.affine(self._terms(mine, row[None]), [offset]))
            self.pairs.append((found[-1], function))
        return found

    def _terms(self, columns: Sequence[tuple[int, int]], weights: Array) -> list[tuple[int, Array]]:
        """These columns as terms of a sum."""
        found = list[tuple[int, Array]]()
        for source in dict.fromkeys(source for source, _ in columns):
            mine = [(j, column) for (each, j), column in zip(columns, weights.T, strict=True) if each == source]
            place = self.rows(source, [j for j, _ in mine])
            whole = self.whole or source == 0
            order = {
                j: at
                for at, j in enumerate(range(self.network.nodes[source].size) if whole else sorted(j for j, _ in mine))
            }
            matrix = np.zeros((len(weights), len(order)))
            for j, column in mine:
                matrix[:, order[j]] = column
            found.append((place, matrix))
        return found


def _read(node: Affine) -> tuple[list[tuple[int, int]], Array]:
    """The components that a sum reads, and their weights."""
    columns, weights = list[tuple[int, int]](), [np.zeros((node.size, 0))]
    for term in node.terms:
        matrix = np.diag(term.weights) if term.diagonal else term.weights
        used = np.flatnonzero(matrix.any(axis=0))
        columns += [(term.node, j) for j in used.tolist()]
        weights.append(matrix[:, used])
    return columns, np.concatenate(weights, axis=1)


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


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


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
    W: Array, masks: Sequence[tuple[int, int]], read: Array, candidates: Sequence[tuple[int, Array]], fine: bool
) -> list[Values]:
    """Blocks of columns that come from gates of their own, and whose values are close to nodes of the function. What
    another block is made of, which is no such value, is left alone: it is not known by these values."""
    found, others = list[tuple[Values, int]](), 0
    for together in _blocks(W, masks, fine):
        columns, base = np.array(together), _union(masks[column][1] for column in together)
        rows, pivots = _echelon(W[:, columns])
        few = len(pivots) <= MOST_VALUES
        matched = _matched(read[:, columns] @ rows.T, candidates) if few else None
        if matched is None:
            others |= base
        else:
            turn, offsets, functions = matched
            weights = W[:, columns[pivots]] @ np.linalg.inv(turn)
            found.append((Values(columns, turn @ rows, offsets, weights, functions), base))
    while any(base & others for _, base in found):
        others |= _union(base for _, base in found if base & others)
        found = [each for each in found if not each[1] & others]
    return [values for values, _ in found]


def _blocks(W: Array, masks: Sequence[tuple[int, int]], fine: bool) -> list[list[int]]:
    """Columns that share gates below; and those that rows of the echelon form read together, unless `fine`."""
    own = [column for column, (mask, _) in enumerate(masks) if mask]
    blocks = [([column], masks[column][0]) for column in own]
    if not fine:
        rows, _ = _echelon(W[:, own])
        for row in rows:
            together = [own[place] for place in np.flatnonzero(row)]
            blocks.append((together, _union(masks[column][0] for column in together)))
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


def _matched(values: Array, candidates: Sequence[tuple[int, Array]]) -> tuple[Array, Array, tuple[int, ...]] | None:
    """T, o and nodes of the function that T values + o are close to; T is square, and can be inverted."""
    count, basis = values.shape[1], np.column_stack([values, np.ones(len(values))])
    fits = []
    for place, (number, wanted) in enumerate(candidates):
        solution = np.linalg.lstsq(basis, wanted, rcond=None)[0].astype(np.float64)
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
