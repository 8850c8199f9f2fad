"""The cells on which a network is compared with what it approximates: a tree of halvings, finer where it must be.

The kernel bounds the difference on every cell; where a bound is well above the largest difference that was found by
trying points, the cell is cut in two, along the input in which the difference bends most. How many cells that takes
grows with one over the excess, once for every two inputs. So for several inputs a first search leaves an excess that
costs little, a share of what the network leaves of the error; closer ones follow where few cells do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.graph import Graph, dense
from headsmith.kernel.core.table import MARKS
from headsmith.kernel.rules.approximates import batch_of, boxes_of, check_approximation, ends_of, middle_of, on_cells
from headsmith.kernel.rules.composed import cut, turned

Array = npt.NDArray[np.float64]
Difference = Callable[[Array], Array]

CLOSER = ((1e-2, 1 << 15), (1e-3, 1 << 12), (1e-5, 1 << 11), (1e-9, 1 << 11), (1e-12, 1 << 11))
"""How close to the largest difference found, and with how many cells at most."""
SHARE, FEW = 0.15, 1 << 10
"""For several inputs: the share of what is left of the error that may be lost; and the cells that more than this may
take."""
ROUNDING = 5e-13
"""What rounding may add, of numbers of size 1."""
FREE = 1e-3
"""The share of the asked error that is not worth a search."""
DEEPEST = 50
POINTS, NEAR = 1 << 12, 1.3
"""How many points are tried where coordinates are turned; and how near to the largest difference found there a bound is
good enough for others not to be tried."""
ASKEW = ((0.0, 1.0), (0.29, 0.83))
"""Where cells are tried along each axis, beside their middle."""
THIN = 16.0
"""No side of a cell is longer than another by more, each as a share of the domain's."""
EXACT = 2.0**20
"""Ways back are multiples of one over this."""


@dataclass(frozen=True, eq=False)
class Found:
    """The cells as a text, a bound of the difference, the largest difference found, and where."""

    cells: str
    bound: float
    largest: float
    place: Array
    turn: dict[str, list[list[float]]] | None = None
    """Other coordinates that the cells are about, if they are (kernel/rules/composed.py)."""

    @property
    def stored(self) -> dict[str, Any]:
        """What a proof carries of a piece (kernel/rules/composed.py)."""
        return {"approximation": self.cells, **({} if self.turn is None else {"turned": self.turn})}


def search_cells(network: Graph, wanted: Graph, low: Array, high: Array, difference: Difference, error: float) -> Found:
    """Cells that show how close a network is. `difference` is that of both at points (n, inputs), in floating point;
    what is small beside `error` is not looked at more closely. Where the first gates read as many linear forms as there
    are inputs, as those of a product of two numbers do, cells are first tried in these coordinates."""
    turn, best = turn_of(network), None
    if turn is not None:
        M = np.array(turn["M"])

        def anywhere(points: Array) -> Array:
            # The box of the other coordinates reaches beyond the domain, and so do cells.
            with np.errstate(all="ignore"):
                return difference(points @ M.T)

        _, box = turned(Interval(low, high), turn)
        ours, theirs = (cut(graph, graph.output, [0], M) for graph in (network, wanted))
        found = _found(ours, theirs, box, anywhere, error)
        points = np.random.default_rng(0).uniform(low, high, (POINTS, len(low)))
        points = np.concatenate([np.clip(M @ found.place, low, high)[None], points])
        sizes = np.nan_to_num(np.abs(difference(points)).max(axis=1), nan=0.0, posinf=0.0)
        worst = int(np.argmax(sizes))
        best = replace(found, place=points[worst], largest=float(sizes[worst]), turn=turn)
        if best.bound <= max(NEAR * best.largest, best.largest + SHARE * (error - best.largest)):
            return best
    plain = _found(network, wanted, Interval(low, high), difference, error)
    return plain if best is None or not best.bound < plain.bound else best


def turn_of(network: Graph) -> dict[str, list[list[float]]] | None:
    """The linear forms of the inputs that gates read, and inputs besides, where these are coordinates, not the inputs
    themselves, and doubles hold the way back exactly."""
    size = network.nodes[0].size
    forms, rows = {0: np.eye(size)}, list[Array]()
    for number, node in enumerate(network.nodes):
        if node.kind == "affine" and forms.keys() >= {*node.arguments}:
            pairs = zip(node.weights, node.arguments, strict=True)
            forms[number] = sum((dense(W) @ forms[each] for W, each in pairs), start=np.zeros((node.size, size)))
        elif number:
            rows += [row for each in node.arguments for row in forms.get(each, ()) if row.any()]
    # One row for each direction: its first entry that is not zero becomes positive, its largest one.
    scaled = [row / (np.abs(row).max() * np.sign(row[np.flatnonzero(row)[0]])) for row in rows]
    found = np.unique(np.round(scaled, 12), axis=0)[::-1] if rows else np.zeros((0, size))
    if np.linalg.matrix_rank(found) < len(found) or np.all(np.count_nonzero(found, axis=1) == 1):
        return None
    for other in sorted(np.eye(size), key=lambda unit: float(np.abs(found @ unit).sum())):
        more = np.vstack([found, other])
        found = more if np.linalg.matrix_rank(more) == len(more) else found
    back = np.linalg.inv(found)
    back = np.round(back * EXACT) / EXACT
    return {"M": back.tolist(), "K": found.tolist()} if np.array_equal(back @ found, np.eye(size)) else None


def _found(network: Graph, wanted: Graph, box: Interval, difference: Difference, error: float) -> Found:
    low, high = box.low, box.high
    found = [_searched(network, wanted, each, difference, error) for each in boxes_of(network, wanted, box)]
    text, places = " ".join(each.text() for each in found), [each.place for each in found]
    for side in (0, 1):
        # Of a sum, the worst points of its terms together: each differs from the middle in inputs of its own.
        moved = sum(each.ends[side] - middle_of(box) for each in found) if len(found) > 1 else 0.0
        places.append(np.clip(middle_of(box) + moved, low, high))
    with np.errstate(all="ignore"):
        sizes = np.nan_to_num(np.abs(difference(np.array(places))).max(axis=1), nan=0.0, posinf=0.0)
    worst = int(np.argmax(sizes))
    bound = max(each.bound for each in found)
    if len(found) > 1 and np.isfinite(bound):
        bound = float(np.max(check_approximation(network, wanted, box, text)[0].value))
    return Found(text, bound, float(sizes[worst]), places[worst])


def _searched(network: Graph, wanted: Graph, box: Interval, difference: Difference, error: float) -> _Search:
    search = _Search(network, wanted, box.low, box.high, difference)
    search.enter([((0, 0),) * len(search.wide)])
    several = len(search.wide) > 1
    while several and search.refine(CLOSER[0][0], error, CLOSER[0][1], SHARE):
        pass
    for place, (tolerance, cells) in enumerate(CLOSER):
        most = (cells >> 3 if place else FEW) if several else cells
        while search.refine(tolerance, error, most):
            pass
        if search.largest > error or len(search.leaves) >= most:
            break
    return search


class _Search:
    def __init__(self, network: Graph, wanted: Graph, low: Array, high: Array, difference: Difference) -> None:
        self.graphs, self.difference, self.low, self.high = (network, wanted), difference, low, high
        self.wide = np.flatnonzero(high > low)
        self.batch = batch_of(network, wanted, len(self.wide))
        self.cells: list[tuple[tuple[int, int], ...]] = []
        self.bounds: Array = np.zeros(0)
        self.axes: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.halves: dict[int, int] = {}
        self.largest, self.place = 0.0, low
        self.extreme, self.ends = [-np.inf, -np.inf], [middle_of(Interval(low, high))] * 2

    @property
    def leaves(self) -> npt.NDArray[np.int64]:
        """The cells that are not cut."""
        found = np.ones(len(self.cells), dtype=bool)
        found[list(self.halves)] = False
        return np.flatnonzero(found)

    @property
    def bound(self) -> float:
        return float(self.bounds[self.leaves].max())

    def enter(self, cells: list[tuple[tuple[int, int], ...]]) -> None:
        """Bound the difference on new cells, and try points in them."""
        ends, bounds = ends_of(Interval(self.low, self.high), cells), []
        for at in range(0, len(cells), self.batch):
            found = on_cells(*self.graphs, ends[:, at : at + self.batch])
            bounds.append(np.maximum(-found.low, found.high)[::3].max(axis=0))
        self.cells += cells
        self.bounds = np.concatenate([self.bounds, *bounds])
        self.axes = np.concatenate([self.axes, self._try(ends.low.T, ends.high.T)])

    def _try(self, low: Array, high: Array) -> Any:
        """Try the middle of each cell and of its faces, and points between; the axis along which the difference bends
        most. Kinks are often where cells are cut, so that ends and middle alone would see no bend."""
        wide = self.wide[: len(MARKS)]
        middle, bends = low + (high - low) / 2.0, np.zeros((len(low), len(wide)))
        centre = self._at(middle)
        for column, variable in enumerate(wide):
            for share in ASKEW:
                sides = []
                for part in share:
                    point = middle.copy()
                    point[:, variable] = low[:, variable] + part * (high - low)[:, variable]
                    sides.append(self._at(np.clip(point, low, high)))
                slope = (0.5 - share[0]) / (share[1] - share[0])
                bend = np.abs(sides[0] * (1.0 - slope) + sides[1] * slope - centre).max(axis=1)
                # What is not known there may bend as much as it likes.
                bends[:, column] = np.maximum(bends[:, column], np.nan_to_num(bend, nan=1e9, posinf=0.0))
        relative = (high - low)[:, wide] / (self.high - self.low)[wide]
        found = np.argmax(bends + (1e-300 + 0.1 * bends.max(axis=1, keepdims=True)) * relative, axis=1)
        longest = np.argmax(relative, axis=1)
        thin = relative[np.arange(len(found)), longest] > THIN * relative[np.arange(len(found)), found]
        return np.where(thin, longest, found)

    def _at(self, points: Array) -> Array:
        found = self.difference(points)
        sizes = np.nan_to_num(np.abs(found).max(axis=1), nan=0.0, posinf=0.0)
        worst = int(np.argmax(sizes))
        if sizes[worst] > self.largest:
            self.largest, self.place = float(sizes[worst]), points[worst]
        for side, sign in enumerate((-1.0, 1.0)):
            values = np.nan_to_num(sign * found[:, 0], nan=-np.inf)
            best = int(np.argmax(values))
            if values[best] > self.extreme[side]:
                self.extreme[side], self.ends[side] = float(values[best]), points[best]
        return found

    def refine(self, tolerance: float, error: float, most: int, share: float = FREE) -> bool:
        """Cut the cells with bounds above the largest difference found, the worst first if they are too many; whether
        there were any. A network that is too far from the function is not looked at closely."""
        near = 1.0 + (tolerance if self.largest <= error else max(tolerance, 0.1))
        free = self.largest + share * (error - self.largest) if share > FREE else FREE * error
        goal, leaves = max(self.largest * near + ROUNDING, free), self.leaves
        above = leaves[~(self.bounds[leaves] <= goal)]
        above = above[np.argsort(-np.nan_to_num(self.bounds[above], nan=np.inf), kind="stable")]
        above = above[: max(most - len(leaves), 0)][: max(len(leaves), 64)]
        cut = [int(each) for each in above if self.cells[each][self.axes[each]][1] < DEEPEST]
        new: list[tuple[tuple[int, int], ...]] = []
        for number in cut:
            cell, axis = self.cells[number], int(self.axes[number])
            place, level = cell[axis]
            self.halves[number] = len(self.cells) + len(new)
            new += [(*cell[:axis], (2 * place + side, level + 1), *cell[axis + 1 :]) for side in (0, 1)]
        if new:
            self.enter(new)
        return bool(new)

    def text(self) -> str:
        """The tree, as the kernel reads it."""
        parts, stack = [], [0]
        while stack:
            number = stack.pop()
            parts.append(MARKS[self.axes[number]] if number in self.halves else "0")
            if number in self.halves:
                first = self.halves[number]
                stack += [first + 1, first]
        return "".join(parts)
