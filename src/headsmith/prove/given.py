"""The search for cells on which a given network is close to a function: the proof of rule Given.

Nothing here is trusted: the kernel's own rule is called forwards, on all cells of a generation at once. A cell whose
bound is above the limit is cut in two, along the variable that has the largest share in what the bound loses. The
limit is a ratio times the largest difference that is known to be attained; the centres of the worst cells are tried on
the way, so that it rises where the first search for points was too low.

The shares of a variable: what is not linear in it in the difference; and for each softmax the tokens that may count
on the cell (not those that do at its centre), each with how far its value is from the mean, times how much of its
score bends with the variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import factorial
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from headsmith.kernel.core.arithmetic import PRECISIONS, Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph
from headsmith.kernel.core.table import DEEPEST
from headsmith.kernel.rules.approximates import MOST_CELLS, ends_of
from headsmith.kernel.rules.averages import weighed
from headsmith.kernel.rules.given import MOST_CLOSER, batch_of, difference, forms_of, inputs_on, rounding_on
from headsmith.kernel.rules.taylor import Form

Array = npt.NDArray[np.float64]
Attained = Callable[[Array], Array]
"""The largest difference at points (n, inputs), in floating point."""

WORST = 16
"""How many of the worst cells of a generation are tried as points."""
ROUNDS = 40
"""Steps of an ascent from such a point."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A network and a function on a box, and the difference at points."""

    network: Graph
    wanted: Graph
    box: Interval
    attained: Attained


@dataclass(frozen=True, eq=False)
class Moment:
    """Where a search stands after a generation: cells so far, open ones, the largest bound of a leaf, and the largest
    difference found."""

    order: int
    generation: int
    cells: int
    open: int
    bound: float
    found: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """The cells as a text, the bound on them, the largest difference found and where; the leaves (low, high) with their
    bounds, for pictures; whether no cell is open; and the moments of the search."""

    order: int
    text: str
    bound: float
    found: float
    place: Array
    leaves: Interval
    bounds: Array
    closed: bool
    moments: tuple[Moment, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Limits:
    """A cell is closed at ratio times the largest difference found, or at `within` if that is given, less `rounding`.
    The search ends at `deadline` (monotonic), or with so many cells."""

    ratio: float
    within: float | None
    deadline: float
    cells: int = MOST_CELLS
    rounding: float = 0.0

    def limit(self, found: float) -> float:
        """At which bound a cell is closed."""
        return (self.ratio * found if self.within is None else self.within) - self.rounding


@dataclass(eq=False)
class Tree:
    """Cells as they are cut: for each its places (variables, 2), the variable that it is cut along (0: a leaf), where
    its first half stands (the second one follows), and its bound."""

    cells: Any
    cut: Any
    half: Any
    bound: Array

    @staticmethod
    def whole(variables: int) -> Tree:
        """One cell, of which nothing is known."""
        return Tree(np.zeros((1, variables, 2), np.int64), np.zeros(1, int), np.zeros(1, int), np.full(1, np.inf))

    def halved(self, which: Any, axes: Any) -> Any:
        """Cut these cells along these variables; where their halves stand."""
        first = len(self.cut) + 2 * np.arange(len(which))
        self.cut[which], self.half[which] = axes + 1, first
        halves = np.repeat(self.cells[which], 2, axis=0)
        rows, along = np.arange(len(halves)), np.repeat(axes, 2)
        halves[rows, along, 0] = 2 * halves[rows, along, 0] + rows % 2
        halves[rows, along, 1] += 1
        self.cells = np.concatenate([self.cells, halves])
        self.cut, self.half = (np.concatenate([each, np.zeros(len(halves), int)]) for each in (self.cut, self.half))
        self.bound = np.concatenate([self.bound, np.full(len(halves), np.inf)])
        return first[0] + np.arange(len(halves))

    def undone(self, unseen: Any) -> None:
        """Cells of which a half was not looked at are whole again."""
        cut = np.flatnonzero(self.cut)
        open_ = np.zeros(len(self.cut), bool)
        open_[unseen] = True
        self.cut[cut[open_[self.half[cut]] | open_[self.half[cut] + 1]]] = 0

    def walked(self) -> tuple[str, Any]:
        """The tree in pre-order, as the kernel reads it, and the leaves."""
        marks, leaves, stack = list[str](), list[int](), [0]
        while stack:
            place = stack.pop()
            marks.append(str(self.cut[place]))
            if self.cut[place]:
                stack += [int(self.half[place]) + 1, int(self.half[place])]
            else:
                leaves.append(place)
        return "".join(marks), np.array(leaves)


def searched(
    asked: Comparison, order: int, start: tuple[float, Array], limits: Limits, tell: Callable[[Moment], None]
) -> Outcome:
    """Cells of Taylor models of an order. `start` is the largest difference known so far, and where."""
    began, (found, place) = monotonic(), start
    wide = np.flatnonzero(asked.box.high > asked.box.low)
    tree, todo, moments = Tree.whole(len(wide)), np.zeros(1, int), list[Moment]()
    while True:
        axes, seen = np.zeros(len(todo), int), len(todo)
        batch = batch_of(asked.network, asked.wanted, asked.box, order)
        for at in range(0, len(todo), batch):
            part = todo[at : at + batch]
            tree.bound[part], axes[at : at + batch] = _looked_at(asked, order, ends_of(asked.box, tree.cells[part]))
            if monotonic() > limits.deadline and at + batch < len(todo):
                seen = at + batch
                break
        tree.undone(todo[seen:])
        todo, axes = todo[:seen], axes[:seen]
        worst = todo[np.argsort(-np.nan_to_num(tree.bound[todo], nan=np.inf))[:WORST]]
        found, place = _climbed(asked, ends_of(asked.box, tree.cells[worst]), (found, place))
        still = ~(tree.bound[todo] <= limits.limit(found))
        deep = tree.cells[todo, axes, 1] >= DEEPEST if len(wide) else np.ones(len(todo), bool)
        leaf = tree.cut == 0
        moment = Moment(
            order,
            len(moments),
            len(tree.cut),
            int(still.sum()),
            float(tree.bound[leaf].max()),
            found,
            monotonic() - began,
        )
        moments.append(moment)
        tell(moment)
        halved = still & ~deep
        full = leaf.sum() + halved.sum() > limits.cells
        if not halved.any() or full or monotonic() > limits.deadline:
            text, kept = tree.walked()
            leaves, bounds = ends_of(asked.box, tree.cells[kept]), tree.bound[kept]
            closed = bool(np.all(bounds <= limits.limit(found)))
            return Outcome(
                order,
                text,
                float(bounds.max()),
                found,
                place,
                leaves,
                bounds,
                closed,
                tuple(moments),
                monotonic() - began,
            )
        todo = tree.halved(todo[halved], axes[halved])


TRIED = 400
"""Cells that are spent on each order before one is chosen."""


def best_order(
    asked: Comparison,
    orders: Sequence[int],
    start: tuple[float, Array],
    limits: Limits,
    tell: Callable[[Moment], None],
) -> Outcome:
    """The search with the order that has least left to do after a few cells; the first one that is done with these is
    taken at once."""
    tried = list[Outcome]()
    for order in orders if len(orders) > 1 else ():
        now = monotonic()
        short = min(limits.deadline, now + 0.1 * max(limits.deadline - now, 0.0))
        outcome = searched(asked, order, start, replace(limits, cells=min(TRIED, limits.cells), deadline=short), tell)
        if outcome.closed:
            return outcome
        start = max(start, (outcome.found, outcome.place), key=lambda each: each[0])
        tried.append(outcome)
    order = min(tried, key=lambda each: left_to_do(each, limits)).order if tried else orders[0]
    tried.append(searched(asked, order, start, limits, tell))
    return tried[-1] if tried[-1].closed else min(reversed(tried), key=lambda each: each.bound)


def left_to_do(outcome: Outcome, limits: Limits) -> float:
    """An estimate of the seconds that a search would still take: what a cell of width r has in excess of the largest
    difference falls like r to the order plus 1."""
    limit = max(limits.limit(outcome.found), 0.0)
    room = max(limit - outcome.found, 1e-300)
    excess = np.clip((outcome.bounds - outcome.found) / room, 1.0, 1e12)
    variables = int(np.sum(outcome.leaves.high[:, 0] > outcome.leaves.low[:, 0]))
    cells = excess[~(outcome.bounds <= limit)] ** (variables / (outcome.order + 1.0))
    return float(cells.sum()) * outcome.seconds / outcome.moments[-1].cells


def forecast(outcome: Outcome, limits: Limits) -> tuple[str, ...]:
    """What it would take to close the cells that are open, from how their number grew; an estimate."""
    limit = limits.limit(outcome.found)
    if limit <= outcome.found:
        return (f"{limit:.3g} is not above the largest difference found, {outcome.found:.3g}: no cells can prove it",)
    last = [moment for moment in outcome.moments if moment.open]
    if len(last) < 4:
        return ()
    # The share of looked-at cells that stays open, and the excess, over the last generations.
    before, after = last[-4], last[-1]
    grown = (after.open / max(before.open, 1)) ** (1.0 / 3.0)
    falls = ((after.bound - outcome.found) / max(before.bound - outcome.found, 1e-300)) ** (1.0 / 3.0)
    over = (after.bound - outcome.found) / (limit - outcome.found)
    if not 0.0 < falls < 0.98 or not np.isfinite(over):
        return ("how many cells it would take cannot be told yet: the bound hardly falls",)
    generations = max(np.log(max(over, 1.0)) / -np.log(falls), 1.0)
    cells = after.cells + after.open * sum(2.0 * min(grown, 2.0) ** k for k in range(int(min(generations, 60))))
    seconds = outcome.seconds * cells / after.cells
    return (f"closing all cells would take about {cells:.1g} of them and {seconds:.2g} s (an estimate)",)


def _looked_at(asked: Comparison, order: int, ends: Interval) -> tuple[Array, Any]:
    """The bounds of cells, and along which variable each would be cut."""
    inputs = inputs_on(ends, order)
    with np.errstate(all="ignore"):
        try:
            ours = forms_of(asked.network, inputs)
            found = difference(asked.network, asked.wanted, inputs, ours).magnitude.value.max(axis=0)
            shares = _shares(asked, inputs, ours)
        except Refused:
            return np.full(ends.low.shape[1], np.inf), np.zeros(ends.low.shape[1], int)
    # Wide cells first where nothing is known.
    width = (ends.high - ends.low)[asked.box.high > asked.box.low]
    base = (asked.box.high - asked.box.low)[asked.box.high > asked.box.low, None]
    if not len(base):
        return np.where(np.isnan(found), np.inf, found), np.zeros(len(found), int)
    known = np.isfinite(shares).all(axis=0) & (shares.max(axis=0, initial=0.0) > 0.0)
    return np.where(np.isnan(found), np.inf, found), np.where(known[None], shares, width / base).argmax(axis=0)


def _shares(asked: Comparison, inputs: Form, ours: dict[int, Form]) -> Array:
    """How much of what is lost each variable accounts for, (variables, cells)."""
    basis = inputs.basis
    out = ours[asked.network.output]
    curved = out.coefficients[:, basis.starts[2] :]
    powers = basis.exponents.T.astype(np.float64)
    total: Array = np.einsum("vm,omc->vc", powers[:, basis.starts[2] : out.coefficients.shape[1]], np.abs(curved))
    for number, node in enumerate(asked.network.nodes):
        if node.kind == "average" and number in ours:
            total += _of_average(node, *(ours[each] for each in node.arguments))
    return total


def _of_average(node: Any, scores: Form, values: Form) -> Array:
    basis, keys = scores.basis, node.keys
    groups = len(scores.coefficients) // keys
    width = node.size // groups
    held = values.reshaped(-1, 1, keys, width)
    known = weighed(scores.reshaped(len(held.coefficients), -1, keys))
    middle = (known.w[:, :, :, None] * held.coefficients[..., 0, :]).sum(axis=2, keepdims=True)
    apart = (np.abs(held.coefficients[..., 0, :] - middle) + held.bends.value).max(axis=3)
    bend = np.maximum(known.bend.value, 1e-300)
    lost = np.minimum(bend ** (basis.order + 1) / factorial(basis.order + 1), 1.0)
    weight = known.most.value * apart * lost / bend
    powers = basis.exponents[: known.b.shape[-2]].T.astype(np.float64)
    return np.asarray(np.einsum("vm,xykmc,xykc->vc", powers, np.abs(known.b), weight))


def _climbed(asked: Comparison, ends: Interval, start: tuple[float, Array]) -> tuple[float, Array]:
    """The largest difference near the centres of cells, or the one that was known."""
    centres = (0.5 * ends.low + 0.5 * ends.high).T
    found, place = start
    sizes = attained(asked, centres)
    best = int(np.argmax(sizes))
    if sizes[best] <= found:
        return found, place
    point, size = climbed(asked, centres[[best]], sizes[[best]], ROUNDS, np.random.default_rng(len(centres)))
    return float(size[0]), point[0]


def attained(asked: Comparison, points: Array) -> Array:
    """The largest difference at points; what is no number counts as nothing found."""
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(asked.attained(points), nan=0.0, posinf=0.0))


def climbed(asked: Comparison, points: Array, sizes: Array, rounds: int, random: Any) -> tuple[Array, Array]:
    """Points moved to where the difference is larger, by steps at random that become smaller where they do not help."""
    low, high = asked.box.low, asked.box.high
    step = np.full(len(points), 0.1)
    points, sizes = points.copy(), sizes.copy()
    for _ in range(rounds):
        tries = points[:, None] + step[:, None, None] * (high - low) * random.normal(size=(len(points), 8, len(low)))
        tries = np.clip(tries, low, high)
        found = attained(asked, tries.reshape(-1, len(low))).reshape(len(points), -1)
        best = found.argmax(axis=1)
        rows = np.arange(len(points))
        better = found[rows, best] > sizes
        points[better], sizes[better] = tries[rows, best][better], found[rows, best][better]
        step = np.where(better, step * 1.5, step * 0.6)
    return points, sizes


def starting(asked: Comparison, count: int, seed: int = 0) -> tuple[float, Array]:
    """The largest difference that a search for points finds: random ones, a third on faces of the box, corners, and
    ascents from the best. An estimate, from below."""
    random, (low, high) = np.random.default_rng(seed), (asked.box.low, asked.box.high)
    points = random.uniform(low, high, (count, len(low)))
    face = random.random(points.shape) < 0.5
    side = np.where(random.random(points.shape) < 0.5, low, high)
    points[: count // 3] = np.where(face, side, points)[: count // 3]
    corners = np.array(list(_corners(low, high)))
    points = np.concatenate([points, corners, 0.5 * (low + high)[None]])
    sizes = np.concatenate([attained(asked, part) for part in np.array_split(points, max(len(points) // 8192, 1))])
    top = np.argsort(-sizes)[:64]
    points, sizes = climbed(asked, points[top], sizes[top], 60, random)
    best = int(np.argmax(sizes))
    return float(sizes[best]), points[best]


def _corners(low: Array, high: Array) -> Iterator[Array]:
    count = len(low)
    for number in range(1 << min(count, 10)):
        yield np.array([high[i] if i < 10 and number >> i & 1 else low[i] for i in range(count)])


POLES = ("power", "reciprocal", "sqrt", "log")
RUNS, SHARE = 1 << 10, 0.005
"""Cells on which rounding is bounded, at most; and the share of a difference that it may be without more of them."""


def closer_at(network: Graph) -> list[int]:
    """The nodes where the rounding of a run is looked at closer: what functions with a pole read."""
    found = set[int]()
    for node in network.nodes:
        if any(step[0] == "over" or (step[0] == "call" and step[1] in POLES) for step in node.program.steps):
            found |= {*node.arguments}
    return sorted(found)[:MOST_CLOSER]


def run_cells(asked: Comparison, dtype: str, found: float) -> str:
    """Equal cells on which the rounding of a run is bounded well enough: a tree in pre-order."""
    variables = int(np.sum(asked.box.high > asked.box.low))
    best, text = np.inf, "0"
    for level in range(1, 9):
        if 1 << (level * variables) > RUNS and level > 1:
            break
        tree = Tree.whole(variables)
        todo = np.zeros(1, int)
        for variable in range(level * variables):
            todo = tree.halved(todo, np.full(len(todo), variable % variables))
        with np.errstate(all="ignore"):
            ends = ends_of(asked.box, tree.cells[tree.cut == 0])
            rounding = float(
                rounding_on(asked.network, asked.box, ends, PRECISIONS[dtype], closer_at(asked.network)).value.max()
            )
        helped = rounding < 0.9 * best or not np.isfinite(best)
        best, text = (rounding, tree.walked()[0]) if rounding < best else (best, text)
        if not helped or best <= SHARE * found:
            break
    return text
