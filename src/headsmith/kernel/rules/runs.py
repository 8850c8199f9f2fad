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
"""

from functools import partial
from typing import Any

import numpy as np

from ..core.arithmetic import Interval, Precision, Upper, largest, rational
from ..core.functions import run
from ..core.graph import Graph, Node, dense
from .taylor import Form, parts_of

EXTRA, LIBRARY = 4.0, 8.0  # operations; and how exact named functions are, in unit roundoffs


Number = tuple[Interval, Upper]  # where the exact one lies, and how far the computed one is from it


def rounding_of(graph: Graph, known: dict[int, Form], precision: Precision) -> Upper:
    """Bounds of how far the outputs of a run are from exact ones, (outputs, cells); infinite where numbers may leave
    the format. The inputs are numbers of the format."""
    off: dict[int, Upper] = {}
    for number, form in sorted(known.items()):
        node, reach = graph.nodes[number], form.reach
        read = [(known[each].reach, off[each]) for each in node.arguments]
        off[number] = _node(node, read, reach, precision) if node.kind != "input" else Upper(np.zeros(reach.low.shape))
        sound = (reach.magnitude + off[number]).value < precision.largest
        off[number] = Upper(np.where(sound, off[number].value, np.inf))
    return off[graph.output]


def _node(node: Node, read: list[Number], reach: Interval, precision: Precision) -> Upper:
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
