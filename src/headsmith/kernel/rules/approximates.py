"""Rule Approximates: how far a network is from the function that it was made for.

A file may say that its target, a network N, `approximates` a function F, and carry the cells of a tree of halvings on
which the two are compared. On a cell with the centre c and the half-widths r, t = x - c, every node is

    s(t) + e,     s(t) = s(0) + s'(0) . t + t . s''(somewhere) t / 2,     e in its slack, which holds 0,

with intervals for s(0), s'(0), for s'' over the whole cell, and for e; and its value lies in `around`. Sums,
products and functions follow the rules of derivatives. What has no derivatives, or reads what has slack, is a number in
the middle of its range, and slack. A gate of an argument z in [low, high] is p z + e with p = 1 if low >= 0, p = 0 if
high <= 0 and p = high / (high - low) otherwise, and e from 0 to the larger of -p low and (1 - p) high.
"""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ..core.arithmetic import Array, Interval, Upper, applied, interval, joined, rational
from ..core.errors import Refused, refuse, spend
from ..core.functions import enclose, named, run
from ..core.graph import Graph
from ..core.table import Cell, quadratic_top, read_cells

MOST_CELLS, AT_ONCE, MOST_ENTRIES = 1 << 17, 1 << 22, 1 << 24
KINDS = {"input", "affine", "relu", "maximum", "minimum", "expression"}
VALUE, SLACK, AROUND, SLOPE = 0, 1, 2, 3  # where the parts of a node are; its bends come last


def check_approximation(network: Graph, wanted: Graph, box: Interval, cells: str) -> tuple[Upper, Interval, Interval]:
    """Bounds of |N - F| on the box, one for each output, and where N and F lie. Raises Refused where there are none."""
    boxes, texts = boxes_of(network, wanted, box), cells.split(" ")
    refuse(len(texts) != len(boxes), f"a sum of {len(boxes)} functions of other inputs each has {len(texts)} trees")
    total = on_cells(network, wanted, interval(middle_of(box)[:, None]))[:, 0] * (1.0 - len(boxes))
    for mine, text in zip(boxes, texts, strict=True):
        wide = int(np.sum(mine.high > mine.low))
        ends, batch = ends_of(mine, read_cells(text, wide, MOST_CELLS)), batch_of(network, wanted, wide)
        found = [on_cells(network, wanted, ends[:, at : at + batch]) for at in range(0, ends.low.shape[1], batch)]
        total = total + reduce(Interval.hull, [each.over(1) for each in found])
    refuse(not total.finite(), "no finite bound of the network against what it approximates, on the cells of the proof")
    gap, ours, theirs = (total[start::3] for start in range(3))
    return gap.magnitude, ours, theirs


def boxes_of(network: Graph, wanted: Graph, box: Interval) -> list[Interval]:
    """The boxes on which N - F is compared. If no gate and no expression of either reads inputs of two groups, then
    N - F is a sum of functions of one group each: with p the middle of the box,

        (N - F)(x) = sum over groups of (N - F)(x in the group, p elsewhere)  -  (groups - 1) (N - F)(p).

    Groups that no output and no expression, which may not be defined, reads do not count.
    """
    refuse_others(network, wanted)
    spend(2.0 * float(network.nodes[0].size) ** 3)
    # An output that is the input node reads all inputs.
    together, used = np.eye(network.nodes[0].size), (box.high > box.low) & (0 in (network.output, wanted.output))
    for graph in (network, wanted):
        reads, forms = [np.eye(len(together))], {0: interval(np.eye(len(together)))}
        for number, node in enumerate(graph.nodes[1:], start=1):
            weights = node.weights or (np.ones(node.size),) * len(node.arguments)
            pairs, nothing = list(zip(weights, node.arguments, strict=True)), np.zeros((node.size, len(together)))
            spend((len(together) + 2000.0) * nothing.size + len(together) * sum(each.size for each in weights))
            found = sum((applied(matrix, reads[argument]) for matrix, argument in pairs), start=nothing)
            if node.kind == "affine" and forms.keys() >= {*node.arguments}:
                # A form of the inputs, (x + y) + (x - y), may read less than its parts do.
                forms[number] = sum([matrix @ forms[argument] for matrix, argument in pairs], start=interval(nothing))
                found = found * (forms[number].magnitude.value != 0.0)
            reads.append(np.minimum(found, 1.0))
            if node.kind != "affine":
                together = np.minimum(together + reads[-1].T @ reads[-1], 1.0)
            if node.kind == "expression" or number == graph.output:
                used = used | (reads[-1].any(axis=0) & (box.high > box.low))
    for _ in range(len(together).bit_length()):
        together = np.minimum(together @ together, 1.0)
    middle = middle_of(box)
    groups = [group > 0.0 for group in np.unique(together, axis=0) if np.any(used[group > 0.0])]
    return [Interval(np.where(each, box.low, middle), np.where(each, box.high, middle)) for each in groups] or [box]


def ends_of(box: Interval, cells: Sequence[Cell]) -> Interval:
    """The ends of cells, one in each column; inputs that are known are not cut."""
    wide = np.flatnonzero(box.high > box.low)
    leaves = np.reshape(np.array(cells, dtype=np.int64), (len(cells), len(wide), 2))
    lows, highs = (np.repeat(end[:, None], len(cells), axis=1) for end in (box.low, box.high))
    for variable, (places, levels) in zip(wide, leaves.transpose(1, 2, 0), strict=True):
        low, high = box.low[variable], box.high[variable]
        for end, first in ((lows, places), (highs, places + 1)):
            # Whole numbers beyond 2^53 are rounded alike for both cells that they are an end of: none is left out.
            share = np.ldexp(first.astype(np.float64), -levels)
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
    refuse(names[0] != names[1] or sizes[0] != sizes[1], "a network lacks the inputs and outputs of its function")


def batch_of(network: Graph, wanted: Graph, wide: int) -> int:
    """How many cells are looked at at once."""
    each = sum(node.size for graph in (network, wanted) for node in graph.nodes) * (2 + wide) ** 2
    refuse(each > MOST_ENTRIES, f"second derivatives by {wide} inputs are too many to be compared")
    return max(AT_ONCE // each, 1)


def on_cells(network: Graph, wanted: Graph, ends: Interval) -> Interval:
    """Bounds of N - F on each cell, of N and of F, for each output: (3 outputs, cells).

    Guarantee: they hold for all real numbers in the cell, in exact arithmetic; infinite where F may not be defined.
    """
    middle = middle_of(ends)
    radius = (interval(ends.high) - middle).hull(interval(middle) - ends.low).high
    wide = np.flatnonzero((radius > 0.0).any(axis=1))
    radius, (size, count) = radius[wide], middle.shape
    slopes = np.repeat(np.eye(size)[:, wide, None], count, axis=2)
    rest = np.concatenate([slopes, np.zeros((size, len(wide) ** 2, count))], axis=1)
    inputs = _joined(interval(middle)[:, None], interval(np.zeros((size, 1, count))), ends[:, None], interval(rest))
    with np.errstate(all="ignore"):
        (ours, known), (theirs, defined) = (_evaluated(graph, inputs, radius) for graph in (network, wanted))
        gap = ours - theirs
        found = Interval(-_top(-gap, radius), _top(gap, radius)).meet(gap[:, AROUND])
        every = _joined(found[:, None], ours[:, [AROUND]], theirs[:, [AROUND]])
        return every.where(known & defined & _finite(every)).mapped(lambda end: end.reshape(-1, count))


def _evaluated(graph: Graph, inputs: Interval, radius: Array) -> tuple[Interval, Any]:
    """The output on each cell, as parts (size, parts, cells), and where every node is known to be defined."""
    known, defined = [inputs], np.ones(inputs.low.shape[2], dtype=bool)
    rules = partial(_linear, inputs), partial(_call, radius), partial(_times, radius)
    for node in graph.nodes[1:]:
        read = [known[argument] for argument in node.arguments]
        match node.kind:
            case "affine":
                found = _constant(interval(node.constants[:, None]), inputs)
                for weights, each in zip(node.weights, read, strict=True):
                    flat = weights @ each.mapped(lambda end: end.reshape(len(end), -1))
                    found = found + flat.mapped(lambda end: end.reshape(len(end), *inputs.low.shape[1:]))
            case "relu":
                found = _gate(read[0])
            case "expression":
                found = run(node.program, read, *rules) + np.zeros((node.size, 1, 1))
            case _:
                # max(a, b) = b + relu(a - b), and min(a, b) = b - relu(b - a).
                sign, found = 1.0 if node.kind == "maximum" else -1.0, read[0]
                for other in read[1:]:
                    found = _tight(other + _gate(_tight((found - other) * sign, radius)) * sign, radius)
        known.append(_tight(found, radius))
        defined &= _finite(known[-1][:, AROUND]).all(axis=0)
    return known[graph.output], defined


def _finite(values: Interval) -> Any:
    return np.isfinite(values.low) & np.isfinite(values.high)


def _joined(*parts: Interval) -> Interval:
    return joined(parts, lambda ends: np.concatenate(ends, axis=1))


def _constant(value: Interval, like: Interval) -> Interval:
    """The parts of numbers (size, 1) that do not depend on the inputs."""
    held = np.zeros(like.low.shape[1:])
    held[[VALUE, AROUND]] = 1.0
    return value[:, None] * held


def _derivatives(parts: Interval, radius: Array) -> tuple[Interval, Interval, Interval]:
    """The slopes at the centre and those over the cell (size, wide, cells), and the bends (size, wide, wide, cells)."""
    slope, bend = parts[:, SLOPE : SLOPE + len(radius)], parts[:, SLOPE + len(radius) :]
    bend = bend.mapped(lambda end: end.reshape(len(end), len(radius), *radius.shape))
    return slope, slope.widened((bend.magnitude * radius).sum(axis=2)), bend


def _reach(parts: Interval, radius: Array) -> Interval:
    """The range of s over the cell."""
    return parts[:, VALUE].widened((_derivatives(parts, radius)[1].magnitude * radius).sum(axis=1))


def _tight(parts: Interval, radius: Array) -> Interval:
    """The values lie where s + e does, too."""
    around = parts[:, AROUND].meet(_reach(parts, radius) + parts[:, SLACK])
    return _joined(parts[:, :AROUND], around[:, None], parts[:, SLOPE:])


def _top(parts: Interval, radius: Array) -> Array:
    """At least the values of s + e: (size, cells)."""
    slope, _, bend = _derivatives(parts, radius)
    found = parts[:, VALUE] + parts[:, SLACK]
    for i, mine in enumerate(radius):
        found = found + quadratic_top(slope[:, i].magnitude * mine, (bend[:, i, i] * mine * mine * 0.5).high)
        for j, other in enumerate(radius[:i]):
            found = found + (bend[:, i, j].magnitude * mine * other).value
    return found.high


def _gate(parts: Interval) -> Interval:
    """relu of what lies in [low, high]: relu(z) - p z is convex and not negative for p in [0, 1]."""
    around = parts[:, AROUND]
    low, high = around.low, around.high
    share = np.where(low >= 0.0, 1.0, np.where(high <= 0.0, 0.0, high / (high - low)))
    most = np.maximum((interval(-low) * share).high, ((interval(1.0) - share) * high).high)
    result = parts * share[:, None]
    slack = result[:, SLACK] + Interval(np.zeros_like(most), most)
    return _joined(result[:, :SLACK], slack[:, None], around.relu()[:, None], result[:, SLOPE:])


def _linear(like: Interval, terms: list[tuple[Any, Interval]], constant: Any) -> Interval:
    start = _constant(rational(constant) + np.zeros((1, 1)), like)
    return _defined(sum((x * rational(c) for c, x in terms), start=start), [x for _, x in terms])


def _call(radius: Array, name: str, parameter: float | None, x: Interval) -> Interval:
    program, reach, (slope, tilt, bend) = named(name, parameter), _reach(x, radius), _derivatives(x, radius)
    value, at = (enclose(program, x[:, VALUE], order, 2) for order in (0, 1))
    first, second = (enclose(program, reach, order, 2)[:, None] for order in (1, 2))
    bends = tilt[:, :, None] * tilt[:, None] * second[:, None] + bend * first[:, None]
    return _settled([x], enclose(program, x[:, AROUND], 0, 2), value, slope * at[:, None], bends)


def _times(radius: Array, x: Interval, y: Interval) -> Interval:
    if x is y:
        return _call(radius, "square", None, x)
    (slope, tilt, bend), (other, leaning, bent) = _derivatives(x, radius), _derivatives(y, radius)
    a, b = (_reach(each, radius)[:, None, None] for each in (x, y))
    cross = tilt[:, :, None] * leaning[:, None]
    bends = bend * b + bent * a + cross + cross.mapped(lambda end: end.transpose(0, 2, 1, 3))
    slopes = slope * y[:, [VALUE]] + other * x[:, [VALUE]]
    return _settled([x, y], x[:, AROUND] * y[:, AROUND], x[:, VALUE] * y[:, VALUE], slopes, bends)


def _settled(read: list[Interval], around: Interval, value: Interval, slopes: Interval, bends: Interval) -> Interval:
    """The parts of what has these; where it reads slack, or is not smooth, a number and slack."""
    zero = interval(np.zeros_like(value.low))[:, None]
    bends = bends.mapped(lambda end: end.reshape(len(end), -1, end.shape[-1]))
    parts = _joined(value[:, None], zero, around[:, None], slopes, bends)
    smooth = _finite(parts).all(axis=1)
    for each in read:
        smooth = smooth & (each.magnitude.value[:, SLACK] == 0.0)
    middle, flat = middle_of(around), interval(np.zeros_like(parts.low[:, SLOPE:]))
    rough = _joined(interval(middle)[:, None], (around - middle)[:, None].hull(zero), around[:, None], flat)
    ends = ((parts.low, rough.low), (parts.high, rough.high))
    return _defined(Interval(*(np.where(smooth[:, None], *pair) for pair in ends)), read)


def _defined(parts: Interval, read: list[Interval]) -> Interval:
    """What reads something that may not be defined is not known, whatever that is multiplied by."""
    for each in read:
        parts = parts.where(_finite(each[:, [AROUND]]))
    return parts
