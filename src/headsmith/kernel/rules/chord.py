"""Rule Chord: how far a region, a piecewise linear circuit of one variable, is from the function that it stands for.

Every component of the region's argument has a circuit of its own inside. What a row of an inside node depends on is
followed through the weights: a row that depends on two components of the argument is refused. So all components may be
given the same value t, and the inside is one circuit of one variable. The interval of t is cut at `ends`, which the
proof carries: wrong ends cost tightness, not truth. On a cell [l, r] every node v is described by its two values v(l),
v(r), and its deviation from the chord between them (ranges.chords). With e = v - f at the ends, and
s = (t - l) / (r - l), Lagrange's remainder of the chord of f gives

    v(t) - f(t) = e(l) + (e(r) - e(l)) s + f''(some point) / 2 (r - l)^2 s (1 - s) + deviation.

For q >= f''/2 (r - l)^2, e + d s + q s (1 - s) = e + (d + q) s - q s^2 is a quadratic function, whose maximum is known.
From below it is the same with all signs turned round. Where f'' is not bounded (the square root at 0), v lies between
its two values up to the deviation, and f in its range.

Perspectives.  A region may have two arguments s and V, V > 0, and stand for f = s^2 / V, with an inside that has no
constants. f is homogeneous, f(c s, c V) = c f(s, V) for c > 0. As relu(V t) = V relu(t), the inside is
homogeneous too: it is V times what it is at t = s / V and 1, and f(s, V) = V f(t, 1). Both are compared over the range
of s / V; the difference is V times that.

Norms.  A region may have two arguments x and y of any signs and stand for f = sqrt(x^2 + y^2), with an inside that has
no constants. Both are homogeneous. With r = max(|x|, |y|), the point (x, y) is r times one of (t, 1), (t, -1), (1, t),
(-1, t) with -1 <= t <= 1, where f is r sqrt(1 + t^2): the four are compared, and the difference is r times the worst.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from ..core.arithmetic import Array, Interval, Upper, interval, largest
from ..core.errors import Refused, refuse
from ..core.functions import Program, enclose
from ..core.graph import HYPOTENUSE, Node, dense
from ..core.proof import Proof, Region
from ..core.ranges import between, chords
from ..core.table import quadratic_top

MOST_ENDS, AT_ONCE, MOST_ENTRIES = 1 << 18, 1 << 18, 1 << 24
PERSPECTIVE = Program(2, (("times", 0, 0), ("over", 2, 1)))  # s^2 / V


@dataclass(frozen=True, eq=False)
class Curve:
    """A circuit of one variable: nodes by number, in order, the last of which is compared with a program. They read
    arguments that are the variable t, `size` times the same (None), or are held at a number."""

    nodes: Mapping[int, Node]
    arguments: Mapping[int, float | None]
    size: int
    program: Program
    low: float
    high: float


def check_region(proof: Proof, region: Region, ranges: list[Interval]) -> tuple[Interval, dict[int, Interval]]:
    """Bounds of the output minus what it stands for, and the ranges of the inside, for arguments in their ranges."""
    curves, scale = curves_of(proof, region, [each.widened(region.margin or 0.0) for each in ranges])
    errors, insides = zip(*(check_curve(curve, region.ends) for curve in curves), strict=True)
    inside = {number: reduce(Interval.hull, (each[number] for each in insides)) for number in insides[0]}
    # Rows of inside nodes are all multiples of the scale: of the hull of its components.
    return reduce(Interval.hull, errors) * scale, {number: each * scale.over(0) for number, each in inside.items()}


def curves_of(proof: Proof, region: Region, wide: list[Interval]) -> tuple[list[Curve], Interval]:
    """The inside of a region as circuits of one variable, on the hull of the components of its argument; and what their
    differences from the function are to be multiplied by, for each component."""
    program, size = proof.circuit.nodes[region.stands_for].program, proof.circuit.nodes[region.arguments[0]].size
    refuse(program.variables != len(wide), f"node {region.output} stands for no function of one variable, or of two")
    nodes = {number: proof.circuit.nodes[number] for number in sorted(region.inside)}
    owners = dict.fromkeys(region.arguments, np.eye(size))  # which component of the argument each row depends on
    for number, node in nodes.items():
        if node.kind not in ("affine", "relu") or node.size * size > MOST_ENTRIES:
            raise Refused(f"node {number} is no part of a circuit of one variable")
        weights = node.weights or (np.ones(node.size),)
        owned = sum(((dense(w) != 0.0) @ owners[read] for w, read in zip(weights, node.arguments, strict=False)), 0.0)
        owners[number] = np.asarray(np.zeros((node.size, size)) + owned > 0.0, dtype=np.float64)
        if np.any(owners[number].sum(axis=1) > 1.0) or (len(wide) > 1 and node.constants.any()):
            raise Refused(f"node {number} mixes components of the argument of a region, or V with constants")
    refuse(np.any(owners[region.output] > np.eye(size)), f"a component of node {region.output} stands for another one")
    if len(wide) == 1:
        place, scale, held = wide[0], interval(np.ones(size)), [dict[int, float]()]
    elif program == HYPOTENUSE:
        most = largest(wide[0].magnitude, wide[1].magnitude)
        place, scale = interval(np.array([-1.0, 1.0])), Interval(np.zeros(size), most.value)
        held = [{argument: side} for argument in region.arguments for side in (-1.0, 1.0)]
    elif np.all(wide[1].low > 0.0) and program == PERSPECTIVE:
        place, scale, held = wide[0] / wide[1], wide[1], [{region.arguments[1]: 1.0}]
    else:
        raise Refused(f"node {region.output} stands for what is no perspective, or whose scale may not be positive")
    if len(wide) > 1:
        # f(t, 1): variable 1 becomes a first step that is the constant 1.
        program = Program(1, (("linear", (), Fraction(1)), *program.steps))
    low, high = float(place.low.min()), float(place.high.max())
    arguments = [{argument: each.get(argument) for argument in region.arguments} for each in held]
    return [Curve(nodes, each, size, program, low, high) for each in arguments], scale


def check_curve(curve: Curve, ends: Array | None) -> tuple[Interval, dict[int, Interval]]:
    """Bounds of circuit - f for each of its entries, and the ranges of the nodes.

    Guarantee: for every real t in the interval, every entry of the output minus f(t) lies in its interval, and every
    node in its range, in exact arithmetic on the circuit's weights. Raises Refused where it finds no finite bounds.
    """
    if ends is None or ends.ndim != 1 or not 2 <= len(ends) <= MOST_ENDS or np.any(ends[:-1] > ends[1:]):
        raise Refused("the ends of the cells of a circuit are not in order")
    if ends[0] != curve.low or ends[-1] != curve.high:
        raise Refused(f"the cells of a circuit do not begin at {curve.low:.6g} and end at {curve.high:.6g}")
    batch = max(AT_ONCE // max(node.size for node in curve.nodes.values()), 1)
    parts: list[list[Interval]] = []
    for start in range(0, len(ends) - 1, batch):
        error, values, deviations = on_cells(curve, ends[start : start + batch + 1])
        ranges = [between(values[number]).widened(deviations[number]) for number in curve.nodes]
        parts.append([each.over(1) for each in (error, *ranges)])
    found = [reduce(Interval.hull, each) for each in zip(*parts, strict=True)]
    if not all(each.finite() for each in found) or len(found[0].low) != curve.size:
        raise Refused("no finite bound of a circuit against its function, on the cells of the proof")
    return found[0], dict(zip(curve.nodes, found[1:], strict=True))


def on_cells(curve: Curve, ends: Array) -> tuple[Interval, dict[int, Interval], dict[int, Upper]]:
    """Bounds of v - f on each cell (entries, cells); the values at the ends and the deviations of all nodes."""
    places = {number: ends if held is None else held for number, held in curve.arguments.items()}
    values = {number: interval(np.zeros((curve.size, len(ends))) + place) for number, place in places.items()}
    deviations = chords(curve.nodes, curve.nodes, values)
    value, left, right = values[max(curve.nodes)], ends[:-1], ends[1:]
    bend, width = enclose(curve.program, Interval(left, right), 2, halvings=2), interval(right) - left
    half, error = Upper((width * width).high) * 0.5, value - enclose(curve.program, interval(ends))
    with np.errstate(all="ignore"):
        above = _highest(error.high, half * np.maximum(bend.high, 0.0))
        below = -_highest(-error.low, half * np.maximum(-bend.low, 0.0))
    unknown = ~(np.isfinite(bend.low) & np.isfinite(bend.high))
    if unknown.any():
        plain = between(value)[:, unknown] - enclose(curve.program, Interval(left, right)[unknown])
        below[:, unknown], above[:, unknown] = plain.low, plain.high
    return Interval(below, above).widened(deviations[max(curve.nodes)]), values, deviations


def _highest(error: Array, bulge: Upper) -> Array:
    """At least e + (d + q) s - q s^2 for 0 <= s <= 1, with e and e + d the errors at both ends and q = bulge."""
    start = error[:, :-1]
    slope = Upper(((interval(error[:, 1:]) - start) + bulge.value).relu().high)
    return (interval(start) + quadratic_top(slope, -bulge.value)).high
