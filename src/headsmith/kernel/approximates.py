"""Rule Approximates: how far a network is from the function that it was made for.

A file may say that its target, a network N, `approximates` a function F, and carry the cells of a tree of halvings on
which the two are compared. On a cell with the centre c and the half-widths r, t = x - c, every node is

    s(t) + e,     s(t) = s(0) + s'(0) . t + t . s''(somewhere) t / 2,     e in its slack, which holds 0,

with intervals for s(0), s'(0), for s' and s'' over the whole cell, and for e; and its value lies in `around`. Sums,
products and functions follow the rules of derivatives. What has no derivatives, or reads what has slack, is a number in
the middle of its range, and slack. A gate that keeps its sign on the cell is its argument, or 0. One that does not cuts
the cell: once the gate is taken to be open, and once to be shut. That z >= 0 where it is open is used by multipliers:
for every m >= 0 the largest value of D on that side is at most that of D + m z on the whole cell, and m is chosen so
that this is small. After MOST_CUTS cuts, and where hardly anything would be cut off, a gate of an argument in
[low, high] is p z + e with p = high / (high - low) and e in [0, -p low].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Upper, interval, joined, rational
from .errors import Refused
from .functions import Program, enclose, named, run
from .graph import Graph, dense
from .table import Cell, quadratic_top, read_cells

MOST_CUTS, FINE, MOST_CELLS, AT_ONCE = 4, 2.0**-30, 1 << 17, 1 << 20
KINDS = {"input", "affine", "relu", "maximum", "minimum", "expression"}
VALUE, SLACK, AROUND, SLOPE = 0, 1, 2, 3  # where the parts of a node are; then its slopes over the cell, and bends


def check_approximation(network: Graph, wanted: Graph, box: Interval, cells: str) -> Upper:
    """Bounds of |N - F| on the box, one for each output. Raises Refused where there are none."""
    boxes, texts = boxes_of(network, wanted, box), cells.split(" ")
    if len(texts) != len(boxes):
        raise Refused(f"a network is a sum of {len(boxes)} functions of other inputs each, and has {len(texts)} trees")
    total = on_cells(network, wanted, interval(middle_of(box)[:, None]))[:, 0] * (1.0 - len(boxes))
    for mine, text in zip(boxes, texts, strict=True):
        wide = int(np.sum(mine.high > mine.low))
        ends, batch = ends_of(mine, read_cells(text, wide, MOST_CELLS)), batch_of(network, wanted, wide)
        found = [on_cells(network, wanted, ends[:, at : at + batch]) for at in range(0, ends.low.shape[1], batch)]
        total = total + reduce(Interval.hull, [each.over(1) for each in found])
    if not total.finite():
        raise Refused("no finite bound of the network against what it approximates, on the cells of the proof")
    return total.magnitude


def boxes_of(network: Graph, wanted: Graph, box: Interval) -> list[Interval]:
    """The boxes on which N - F is compared. If no gate and no expression of either reads inputs of two groups, then
    N - F is a sum of functions of one group each: with p the middle of the box,

        (N - F)(x) = sum over groups of (N - F)(x in the group, p elsewhere)  -  (groups - 1) (N - F)(p).
    """
    refuse_others(network, wanted)
    together = np.eye(network.nodes[0].size)
    for graph in (network, wanted):
        reads = [np.eye(len(together))]
        for node in graph.nodes[1:]:
            weights = [dense(each) for each in node.weights] or [np.eye(node.size)] * len(node.arguments)
            found = np.zeros((node.size, len(together)))
            for matrix, argument in zip(weights, node.arguments, strict=True):
                found = found + (matrix != 0.0) @ reads[argument]
            reads.append(np.minimum(found, 1.0))
            if node.kind != "affine":
                together = np.minimum(together + reads[-1].T @ reads[-1], 1.0)
    for _ in range(len(together).bit_length()):
        together = np.minimum(together @ together, 1.0)
    middle = middle_of(box)
    groups = [group > 0.0 for group in np.unique(together, axis=0) if np.any((box.high > box.low)[group > 0.0])]
    if len(groups) < 2:
        return [box]
    return [Interval(np.where(each, box.low, middle), np.where(each, box.high, middle)) for each in groups]


def ends_of(box: Interval, cells: Sequence[Cell]) -> Interval:
    """The ends of cells, one in each column; inputs that are known are not cut."""
    wide = np.flatnonzero(box.high > box.low)
    leaves = np.reshape(np.array(cells, dtype=np.float64), (len(cells), len(wide), 2))
    lows, highs = (np.repeat(end[:, None], len(cells), axis=1) for end in (box.low, box.high))
    for variable, (places, levels) in zip(wide, leaves.transpose(1, 2, 0), strict=True):
        low, high = box.low[variable], box.high[variable]
        for end, first in ((lows, places), (highs, places + 1.0)):
            share = np.ldexp(first, -levels.astype(int))
            end[variable] = np.where(share == 1.0, high, np.clip(low + (high - low) * share, low, high))
    return Interval(lows, highs)


def middle_of(box: Interval) -> Array:
    """A point of the box."""
    return np.clip(box.low + (box.high - box.low) / 2.0, box.low, box.high)


def refuse_others(network: Graph, wanted: Graph) -> None:
    """Raise Refused unless both are functions of the same inputs, token by token."""
    names = [graph.nodes[0].names for graph in (network, wanted)]
    sizes = [graph.nodes[graph.output].size for graph in (network, wanted)]
    if not {node.kind for graph in (network, wanted) for node in graph.nodes} <= KINDS:
        raise Refused("a network and what it approximates are functions of one token, of sums, gates and expressions")
    if names[0] != names[1] or sizes[0] != sizes[1]:
        raise Refused("a network does not have the inputs and outputs of what it approximates")


def batch_of(network: Graph, wanted: Graph, wide: int) -> int:
    """How many cells are looked at at once."""
    largest = max(node.size for graph in (network, wanted) for node in graph.nodes)
    return max(AT_ONCE // (largest * (2 + wide) ** 2), 1)


def on_cells(network: Graph, wanted: Graph, ends: Interval) -> Interval:
    """Bounds of N - F on each cell: (outputs, cells).

    Guarantee: they hold for all real numbers in the cell, in exact arithmetic; infinite where F may not be defined.
    """
    with np.errstate(all="ignore"):
        cells = _Cells(ends)
        cells.evaluate(wanted, 0)
        cells.evaluate(network, len(wanted.nodes))
        theirs, ours = (cells.parts[number] for number in (wanted.output, len(wanted.nodes) + network.output))
        gap = ours - theirs
        sides = [np.fmin(cells.top(each), each.high[:, AROUND]) for each in (-gap, gap)]
        bounds = np.full((2, len(gap.low), ends.low.shape[1]), -np.inf)
        for bound, side in zip(bounds, sides, strict=True):
            side = np.where(cells.unknown | np.isnan(side), np.inf, side)
            np.maximum.at(bound.T, cells.owner, side.T)
    return Interval(-bounds[0], bounds[1])


class _Cells:
    """All nodes on some cells, as parts (size, parts, columns): a column for each side of the cuts of a cell. `limits`
    are the parts of what is not negative on that side, and `owner` is the cell."""

    def __init__(self, ends: Interval) -> None:
        middle = middle_of(ends)
        radius = (interval(ends.high) - middle).hull(interval(middle) - ends.low).high
        wide = np.flatnonzero((radius > 0.0).any(axis=1))
        self.radius, self.wide, (size, count) = radius[wide], len(wide), middle.shape
        slopes = np.repeat(np.eye(size)[:, [*wide, *wide], None], count, axis=2)
        bends, point = np.zeros((size, len(wide) ** 2, count)), middle[:, None]
        both = [np.concatenate([point, 0.0 * point, end[:, None], slopes, bends], 1) for end in (ends.low, ends.high)]
        self.parts = {0: Interval(*both)}
        self.owner, self.cuts, self.unknown = np.arange(count), np.zeros(count, dtype=int), np.zeros(count, dtype=bool)
        self.limits: list[Interval] = []

    def evaluate(self, graph: Graph, first: int) -> None:
        """Enter all nodes of a graph; its numbers begin at `first`, but that of the input is 0."""
        for place, node in enumerate(graph.nodes[1:], start=1):
            number, arguments = first + place, [each and first + each for each in node.arguments]
            match node.kind:
                case "affine":
                    total = self._constant(interval(node.constants[:, None]))
                    for weights, argument in zip(node.weights, arguments, strict=True):
                        total = total + self._applied(weights, self.parts[argument])
                    self.parts[number] = self._tight(total)
                case "relu":
                    self.parts[number] = self._gate(arguments[0])
                case "expression":
                    known = [self.parts[argument] for argument in arguments]
                    value = run(node.program, known, self._linear, self._call, self._times)
                    self.parts[number] = self._tight(value + np.zeros((node.size, 1, 1)))
                case _:
                    # max(a, b) = b + relu(a - b), and min(a, b) = b - relu(b - a).
                    sign = 1.0 if node.kind == "maximum" else -1.0
                    self.parts[number] = self.parts[arguments[0]]
                    for other in arguments[1:]:
                        self.parts[-1] = self._tight((self.parts[number] - self.parts[other]) * sign)
                        gate = self._gate(-1) * sign
                        self.parts[number] = self._tight(self.parts[other] + gate)

    # What is smooth --------------------------------------------------------------------------------------------------

    def _constant(self, value: Interval) -> Interval:
        """The parts of numbers (size, columns) that do not depend on the inputs."""
        zero = np.zeros((len(value.low), SLOPE + 2 * self.wide + self.wide**2, len(self.owner)))
        held = np.zeros(zero.shape[1])[:, None]
        held[[VALUE, AROUND]] = 1.0
        return value[:, None] * held + zero

    def _applied(self, weights: Array, parts: Interval) -> Interval:
        flat = weights @ parts.mapped(lambda end: end.reshape(len(end), -1))
        return flat.mapped(lambda end: end.reshape(len(end), *parts.low.shape[1:]))

    def _split(self, parts: Interval) -> tuple[Interval, Interval, Interval]:
        """The slopes at the centre and over the cell, and the bends (size, wide, wide, columns)."""
        slope, tilt = (parts[:, SLOPE + k * self.wide : SLOPE + (k + 1) * self.wide] for k in (0, 1))
        square = len(parts.low), self.wide, self.wide, parts.low.shape[2]
        return slope, tilt, parts[:, SLOPE + 2 * self.wide :].mapped(lambda end: end.reshape(square))

    def _whole(self, read: Sequence[Interval], around: Interval, value: Interval, *derivatives: Interval) -> Interval:
        """The parts of what has these; where it reads slack, or is not smooth, a number and slack."""
        zero = interval(np.zeros_like(value.low))
        flat = [each.mapped(lambda end: end.reshape(len(end), -1, end.shape[-1])) for each in derivatives]
        parts = joined(
            [value[:, None], zero[:, None], around[:, None], *flat], lambda ends: np.concatenate(ends, axis=1)
        )
        self.unknown |= ~np.isfinite(around.low + around.high).all(axis=0)
        smooth = np.all(np.isfinite(parts.low + parts.high), axis=1)
        for each in read:
            smooth = smooth & (each.low[:, SLACK] == 0.0) & (each.high[:, SLACK] == 0.0)
        middle = around.low + (around.high - around.low) / 2.0
        rough, slack = self._constant(interval(middle)), (around - middle).hull(zero)
        for mine, end, more in ((rough.low, around.low, slack.low), (rough.high, around.high, slack.high)):
            mine[:, AROUND], mine[:, SLACK] = end, more
        keep = np.asarray(smooth)[:, None]
        return Interval(np.where(keep, parts.low, rough.low), np.where(keep, parts.high, rough.high))

    def _reach(self, parts: Interval) -> Interval:
        """The range of s over the cell."""
        return parts[:, VALUE].widened((self._split(parts)[1].magnitude * self.radius).sum(axis=1))

    def _tight(self, parts: Interval) -> Interval:
        """The values lie where s + e does, too."""
        around = parts[:, AROUND].meet(self._reach(parts) + parts[:, SLACK])
        parts.low[:, AROUND], parts.high[:, AROUND] = around.low, around.high
        return parts

    def _linear(self, terms: list[tuple[Any, Interval]], constant: Any) -> Interval:
        start = self._constant(rational(constant) + np.zeros((1, 1)))
        return sum((x * rational(c) for c, x in terms), start=start)

    def _call(self, name: str, parameter: float | None, x: Interval) -> Interval:
        program, reach, (slope, tilt, bend) = named(name, parameter), self._reach(x), self._split(x)
        value, at = (_enclosed(program, x[:, VALUE], order) for order in (0, 1))
        first, second = (_enclosed(program, reach, order)[:, None] for order in (1, 2))
        square = tilt[:, :, None] * tilt[:, None]
        least = np.where(np.eye(self.wide)[:, :, None] > 0.0, 0.0, -np.inf)
        bent = Interval(np.maximum(square.low, least), square.high) * second[:, None] + bend * first[:, None]
        return self._whole([x], _enclosed(program, x[:, AROUND], 0), value, slope * at[:, None], tilt * first, bent)

    def _times(self, x: Interval, y: Interval) -> Interval:
        if x is y:
            return self._call("square", None, x)
        (slope, tilt, bend), (other, leaning, bent) = self._split(x), self._split(y)
        a, b = (self._reach(each)[:, None] for each in (x, y))
        cross = tilt[:, :, None] * leaning[:, None]
        bends = bend * b[:, None] + bent * a[:, None] + cross + cross.mapped(lambda end: end.transpose(0, 2, 1, 3))
        slopes = slope * y[:, [VALUE]] + other * x[:, [VALUE]]
        value, around = x[:, VALUE] * y[:, VALUE], x[:, AROUND] * y[:, AROUND]
        return self._whole([x, y], around, value, slopes, tilt * b + leaning * a, bends)

    # What is not -----------------------------------------------------------------------------------------------------

    def top(self, parts: Interval) -> Array:
        """At least the values of s + e, on the side of the cuts that a column is about: (size, columns)."""
        for limit in self.limits:
            parts = parts + limit * _multiplier(parts, limit, self.radius, self.wide)[:, None]
        slope, _, bend = self._split(parts)
        found = parts[:, VALUE] + parts[:, SLACK]
        for i, radius in enumerate(self.radius):
            curve = (bend[:, i, i] * radius * radius * 0.5).high
            found = found + quadratic_top(slope[:, i].magnitude * radius, curve)
            for j in range(i):
                found = found + (bend[:, i, j].magnitude * radius * self.radius[j]).value
        return found.high

    def _gate(self, number: int) -> Interval:
        """relu of a node; cuts cells where its sign changes."""
        parts = self.parts[number]
        signs = np.zeros((len(parts.low), len(self.owner)))
        for row in np.flatnonzero(((parts.low[:, AROUND] < 0.0) & (parts.high[:, AROUND] > 0.0)).any(axis=1)):
            low, high = self._span(self.parts[number][[row]])
            cut = (np.minimum(-low, high) > FINE * (high - low)) & (self.cuts < MOST_CUTS)
            index = np.concatenate([np.arange(len(self.owner)), np.flatnonzero(cut[0])])
            if len(index) > len(self.owner):
                signs, sign = signs[:, index], np.where(cut[0], 1.0, 0.0)[index]
                sign[len(self.owner) :] = -1.0
                signs[row] = sign
                self._take(index)
                self._limit(self.parts[number][[row]] * sign, sign != 0.0)
        low, high = self._span(self.parts[number])
        on, off = (low >= 0.0) | (signs > 0.0), (high <= 0.0) | (signs < 0.0)
        share = np.where(off, 0.0, np.where(on, 1.0, high / (high - low)))
        more = np.maximum((interval(-low) * share).high, ((interval(1.0) - share) * high).high)
        result, around = self.parts[number] * share[:, None], self.parts[number][:, AROUND].relu()
        result.high[:, SLACK] = (interval(result.high[:, SLACK]) + np.where(on | off, 0.0, more)).high
        result.low[:, AROUND], result.high[:, AROUND] = (np.where(off, 0.0, end) for end in (around.low, around.high))
        return result

    def _span(self, parts: Interval) -> tuple[Array, Array]:
        """The range of the values, on the side of the cuts that a column is about."""
        low, high = parts.low[:, AROUND].copy(), parts.high[:, AROUND].copy()
        rows = np.flatnonzero(((low < 0.0) & (high > 0.0)).any(axis=1))
        if self.limits and len(rows):
            low[rows] = np.fmax(low[rows], -self.top(-parts[rows]))
            high[rows] = np.fmin(high[rows], self.top(parts[rows]))
        return low, high

    def _limit(self, parts: Interval, chosen: Any) -> None:
        """What is not negative, in the columns that are chosen: the next limit of each."""
        for place in range(MOST_CUTS):
            mine = chosen & (self.cuts == place)
            if mine.any():
                before = self.limits[place] if place < len(self.limits) else interval(np.zeros_like(parts.low))
                pairs = ((parts.low, before.low), (parts.high, before.high))
                self.limits[place : place + 1] = [Interval(*(np.where(mine, *pair) for pair in pairs))]
        self.cuts += chosen

    def _take(self, index: Any) -> None:
        """Columns by number, some of them twice."""
        self.radius, self.owner = self.radius[:, index], self.owner[index]
        self.cuts, self.unknown = self.cuts[index], self.unknown[index]
        self.parts = {number: parts[:, :, index] for number, parts in self.parts.items()}
        self.limits = [limit[:, :, index] for limit in self.limits]


def _enclosed(program: Program, x: Interval, order: int) -> Interval:
    """Bounds of a derivative; infinite where those of x are."""
    known = np.isfinite(x.low) & np.isfinite(x.high) & (x.low <= x.high)
    found = enclose(program, Interval(x.low[known], x.high[known]), order, halvings=2)
    low, high = np.full((2, *x.low.shape), -np.inf)
    low[known], high[~known], high[known] = found.low, np.inf, found.high
    return Interval(low, high)


def _multiplier(parts: Interval, limit: Interval, radius: Array, wide: int) -> Array:
    """Numbers m >= 0, one for each row and column, with which parts + m limit is small: where a slope vanishes."""
    slopes, h = (each.low[:, SLOPE : SLOPE + wide] for each in (parts, limit))
    choices = -slopes / h
    choices = np.where(np.isfinite(choices) & (choices > 0.0), choices, 0.0)
    best, least = np.zeros_like(slopes[:, 0]), (np.abs(slopes) * radius).sum(axis=1)
    for m in choices.transpose(1, 0, 2):
        size = m * (limit.high[:, VALUE] + limit.high[:, SLACK])
        size = size + (np.abs(slopes + m[:, None] * h) * radius).sum(axis=1)
        best, least = np.where(size < least, m, best), np.fmin(size, least)
    return best
