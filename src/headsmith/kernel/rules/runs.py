"""How far a run of a given network in floating point is from exact arithmetic.

Every node has a bound e of how far the computed numbers are from the exact ones, whose sizes are |x|. A format returns
the exact result times 1 + d, |d| <= u, and loses at most its smallest normal number where it underflows:

    sums of W x + b     |W| e + gamma (|W| (|x| + e) + |b|), gamma that of the number of terms and EXTRA more; a row
                        that copies a number, perhaps with the other sign, rounds nothing
    products            |a| e_b + |b| e_a + e_a e_b + gamma (|a| + e_a) (|b| + e_b)
    f(x)                sup |f'| e + u LIBRARY (|f| + (1 + sup |f'|) (|x| + e)), the suprema over all that is within e
    softmax means       R d / 2 + gamma |v| + the largest e_v

For the last one: with d the largest of what logarithms of weights are off - scores, their differences from the largest
one, powers of e - the mean moves by at most R tanh(d / 2), R the largest spread of the values; and shares and their
sums round. What the EXTRA operations stand for: weights that are rounded to the format, scores that are scaled before
or after, in one step or in two, or summed block by block.

These bounds forget that errors cancel, as they do in a norm, which takes their mean off. So they only say how far from
exact numbers computed ones may lie. A run is the network with r more at every node, r what rounds there alone. By the
mean value theorem its outputs are off by at most the sum over nodes of |J| r, J the slopes of the outputs by the node:
intervals that hold them wherever computed numbers may lie, carried backwards, node by node. A proof may name nodes
where that is done on the way.
"""

from collections.abc import Collection
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from ..core.arithmetic import Array, Interval, Precision, Upper, interval, joined, largest, rational, smallest
from ..core.functions import run
from ..core.graph import Graph, Node, dense
from .averages import against
from .taylor import Form, parts_of

EXTRA, LIBRARY = 4.0, 8.0  # operations; and how exact named functions are, in unit roundoffs


Number = tuple[Interval, Upper]  # where the exact one lies, and how far the computed one is from it


def rounding_of(graph: Graph, known: dict[int, Form], precision: Precision, closer: Collection[int]) -> Upper:
    """Bounds of how far the outputs of a run are from exact ones, (outputs, cells); infinite where numbers may leave
    the format. The inputs are numbers of the format."""
    off: dict[int, Upper] = {}
    alone: dict[int, Upper] = {}
    near: dict[int, Interval] = {}
    for number, form in sorted(known.items()):
        node, reach, nothing = graph.nodes[number], form.reach, Upper(np.zeros(form.rest.value.shape))
        read = [(known[each].reach, off[each]) for each in node.arguments]
        off[number] = _node(node, read, precision) if node.kind != "input" else nothing
        sound = (reach.magnitude + off[number]).value < precision.largest
        off[number] = Upper(np.where(sound, off[number].value, np.inf))
        exact = [(near[each], off[each] * 0.0) for each in node.arguments]
        alone[number] = _node(node, exact, precision) if node.kind != "input" else nothing
        near[number] = reach.widened(off[number])
        if number in closer or number == graph.output:
            off[number] = smallest(off[number], _carried(graph, number, near, alone))
            near[number] = reach.widened(off[number])
    return off[graph.output]


def _carried(graph: Graph, output: int, near: dict[int, Interval], alone: dict[int, Upper]) -> Upper:
    """The sum over nodes of |J| r, with J (outputs, size, cells) the slopes of a node."""
    size, cells = near[output].low.shape
    slopes = {output: interval(np.repeat(np.eye(size)[:, :, None], cells, axis=2))}
    total = Upper(np.zeros((size, cells)))
    for number in sorted(near, reverse=True):
        if number in slopes:
            node, mine = graph.nodes[number], slopes.pop(number)
            total = total + (mine.magnitude * alone[number]).sum(axis=1)
            for read, found in zip(node.arguments, _backwards(node, mine, near, number), strict=True):
                slopes[read] = slopes[read] + found if read in slopes else found
    return total


def _backwards(node: Node, mine: Interval, near: dict[int, Interval], number: int) -> list[Interval]:
    """The slopes of the outputs by what a node reads, from those by the node."""
    read = [near[each] for each in node.arguments]
    match node.kind:
        case "affine":
            rows = mine.low.shape[0]
            every = [(dense(weights).T, [mine[row] for row in range(rows)]) for weights in node.weights]
            return [joined([matrix @ each for each in several], np.stack) for matrix, several in every]
        case "expression":
            size = len(read)
            ones = [(each, tuple(interval(float(k == place)) for k in range(size))) for place, each in enumerate(read)]
            _, found = run(node.program, ones, partial(_linear_slope, size), _call_slope, _times_slope)
            return [mine * each for each in found]
        case "average":
            return _mean_slopes(node, mine, read[0], read[1], near[number])
        case "relu":
            return [mine * Interval(read[0].low > 0.0, ~(read[0].high <= 0.0))]
        case _:
            return [mine * Interval(0.0, 1.0)] * len(
                read
            )  # of a maximum or a minimum, or an input, which reads nothing


Slope = tuple[Interval, tuple[Interval, ...]]  # a number, and its slopes by what a program reads


def _linear_slope(size: int, terms: list[tuple[Any, Slope]], constant: Any) -> Slope:
    found, slopes = rational(constant), [interval(0.0)] * size
    for coefficient, (value, each) in terms:
        factor = rational(coefficient)
        found, slopes = found + value * factor, [a + b * factor for a, b in zip(slopes, each, strict=True)]
    return found, tuple(slopes)


def _call_slope(name: str, parameter: float | None, x: Slope) -> Slope:
    if name == "square":
        return _times_slope(x, x)
    known = parts_of(name, parameter, 1, x[0], x[0].low)
    return known.value, tuple(each * known.slope for each in x[1])


def _times_slope(left: Slope, right: Slope) -> Slope:
    (a, a_slopes), (b, b_slopes) = left, right
    return a * b, tuple(b * x + a * y for x, y in zip(a_slopes, b_slopes, strict=True))


def _mean_slopes(node: Node, mine: Interval, scores: Interval, values: Interval, found: Interval) -> list[Interval]:
    """p_k by a value, p_k (v_k - mean) by a score, with bounds of p_k from those of differences of scores."""
    keys, (outputs, _, cells) = node.keys, mine.low.shape
    groups = len(scores.low) // keys
    owners, width = len(values.low) * groups // (keys * node.size), node.size // groups
    s = scores.mapped(lambda end: end.reshape(groups, keys, cells))
    v = values.mapped(lambda end: np.repeat(end.reshape(owners, keys, width, cells), groups // owners, axis=0))
    rows = mine.mapped(lambda end: end.reshape(outputs, groups, 1, width, cells))
    shares = _shares(s)[:, :, None]
    by_value = rows * shares
    by_score = by_value * (v - found.mapped(lambda end: end.reshape(groups, 1, width, cells)))
    first = _added(by_score.mapped(lambda end: np.moveaxis(end, 3, 0))).mapped(
        lambda end: end.reshape(outputs, -1, cells)
    )
    parted = by_value.mapped(lambda end: np.moveaxis(end.reshape(outputs, owners, -1, keys, width, cells), 2, 0))
    return [first, _added(parted).mapped(lambda end: end.reshape(outputs, -1, cells))]


def _shares(scores: Interval) -> Interval:
    """Bounds of softmax weights, (groups, keys, cells)."""
    keys, most, least = scores.low.shape[1], list[Array](), list[Array]()
    for key in range(keys):
        others = [each for each in range(keys) if each != key]
        above = Upper(scores.high[:, others]) - scores.low[:, [key]]
        below = Upper(scores.high[:, [key]]) - scores.low[:, others]
        for held, found in zip((most, least), against(above, below, 1), strict=True):
            held.append(found)
    return Interval(np.stack(least, axis=1), np.stack(most, axis=1))


def _added(rows: Interval) -> Interval:
    """The sum along the first axis."""
    return reduce(add, [rows[place] for place in range(len(rows.low))])


def _node(node: Node, read: list[Number], precision: Precision) -> Upper:
    match node.kind:
        case "affine":
            return _sum(node, read, precision)
        case "expression":
            return _program(node, read, precision)
        case "average":
            return _mean(node, read[0], read[1], precision)
        case _:  # relu, maximum, minimum
            return largest(*(off for _, off in read))


def _sum(node: Node, read: list[Number], precision: Precision) -> Upper:
    sizes = Upper(np.abs(node.constants)[:, None])
    carried, terms = Upper(np.zeros(sizes.value.shape)), np.zeros(node.size)
    copied = node.constants == 0.0
    for weights, (reach, off) in zip(map(dense, node.weights), read, strict=True):
        carried, sizes = carried + weights @ off, sizes + weights @ (reach.magnitude + off)
        terms = terms + np.count_nonzero(weights, axis=1)
        copied &= np.all((weights == 0.0) | (np.abs(weights) == 1.0), axis=1)
    terms = np.where(copied & (terms <= 1.0), 0.0, terms + len(read) + EXTRA)[:, None]
    return carried + precision.gamma(terms) * sizes + terms * precision.smallest_normal


def _program(node: Node, read: list[Number], precision: Precision) -> Upper:
    """A program, step by step."""
    found: Number = run(
        node.program, read, partial(_linear, precision), partial(_call, precision), partial(_times, precision)
    )
    return found[1] + np.zeros((node.size, 1))


def _linear(precision: Precision, terms: list[tuple[Any, Number]], constant: Any) -> Number:
    reach, off = rational(constant) + np.zeros((1, 1)), Upper(np.zeros((1, 1)))
    sizes = reach.magnitude
    for coefficient, (mine, error) in terms:
        factor = rational(coefficient)
        reach, off = reach + mine * factor, off + error * factor.magnitude
        sizes = sizes + (mine.magnitude + error) * factor.magnitude
    terms_count = EXTRA + 2.0 * len(terms)
    return reach, off + precision.gamma(terms_count) * sizes + terms_count * precision.smallest_normal


def _times(precision: Precision, left: Number, right: Number) -> Number:
    (a, e), (b, f) = left, right
    sizes = (a.magnitude + e) * (b.magnitude + f)
    rounded = precision.gamma(EXTRA) * sizes + precision.smallest_normal
    return a * b, a.magnitude * f + b.magnitude * e + e * f + rounded


def _call(precision: Precision, name: str, parameter: float | None, x: Number) -> Number:
    if name == "square":
        return _times(precision, x, x)
    reach, off = x
    wide = reach.widened(off)
    known, exact = (parts_of(name, parameter, 1, each, each.low) for each in (wide, reach))
    slope = known.slope.magnitude
    sizes = known.value.magnitude + (slope + 1.0) * wide.magnitude
    rounded = sizes * (LIBRARY * precision.unit_roundoff) + 2.0 * precision.smallest_normal
    return exact.value, slope * off + rounded


def _mean(node: Node, scores: Number, values: Number, precision: Precision) -> Upper:
    keys, cells = node.keys, scores[0].low.shape[-1]
    groups = len(scores[0].low) // keys
    width = node.size // groups
    s = scores[0].mapped(lambda end: end.reshape(groups, keys, cells))
    v = values[0].mapped(lambda end: end.reshape(-1, keys, width, cells))
    e, f = scores[1].reshape(groups, keys, cells).max(axis=1), values[1].reshape(-1, keys, width, cells).max(axis=1)
    size = s.magnitude.max(axis=1) + e
    d = e + precision.gamma(EXTRA) * size * 2.0 + LIBRARY * precision.unit_roundoff
    d = d + precision.gamma(keys + EXTRA)
    hull = v.over(1)
    spread, sizes = hull.width, hull.magnitude + f
    repeats = groups // len(sizes.value)
    spread, sizes, f = (Upper(np.repeat(each.value, repeats, axis=0)) for each in (spread, sizes, f))
    rest = precision.gamma(2.0 * keys + EXTRA) * sizes + f + (4.0 * keys * precision.smallest_normal) * (sizes + 1.0)
    return (spread * d[:, None] * 0.5 + rest).reshape(node.size, cells)
