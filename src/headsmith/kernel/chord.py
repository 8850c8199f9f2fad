"""The rule for circuits of one variable: how far a piecewise linear circuit is from the function that it stands for.

    circuit ::= node*      ("affine", ((node, weights), ...), bias)  |  ("relu", node)

Nodes are vectors, counted from 1. Node 0 is the variable t, as often as there are copies of the circuit: all entries of
it are t, and each entry of the last node, the output, is compared with f(t). Weights are a matrix, or a vector for a
diagonal one. The interval [low, high] is cut at `ends`, which the proof carries: wrong ends cost tightness, not truth.
On a cell [l, r] every node v is described by enclosures of its two values v(l), v(r), and a deviation from its chord:

    |v(t) - (v(l) (r - t) + v(r) (t - l)) / (r - l)| <= deviation           for all t in the cell.

1.  affine: the chord of a sum is the sum of the chords, and deviations add with |W|.
2.  relu of a node that stays on one side of 0, because both values do by at least the deviation, is that node, or 0.
    Otherwise relu moves the deviation by at most itself; and where the chord crosses 0, relu of it is below the chord
    of relu(v(l)), relu(v(r)) by at most |v(l)| |v(r)| / (|v(l)| + |v(r)|) <= min(|v(l)|, |v(r)|), which is tiny if the
    cell ends at the kink.
3.  Against f. With e = v - f at the ends, and s = (t - l) / (r - l), Lagrange's remainder of the chord of f gives

        v(t) - f(t) = e(l) + (e(r) - e(l)) s + f''(some point) / 2 (r - l)^2 s (1 - s) + deviation.

    For q >= f''/2 (r - l)^2 and q > 0, e + d s + q s (1 - s) is at most e + (d + q)^2 / (4 q) anywhere, and at most
    max(e, e + d) on [0, 1] if |d| >= q or q = 0. From below it is the same with all signs turned round.
4.  Where f'' is not bounded (the square root at 0), v lies between its two values up to the deviation, and f in its
    range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arithmetic import FLOAT64, TINY, Array, Interval, Precision, Upper, interval
from .errors import Refused
from .functions import Program, enclose

MOST_ENDS, AT_ONCE = 1 << 18, 1 << 18

WIDE: Any = np.longdouble if np.finfo(np.longdouble).nmant in (63, 112) else np.float64
"""The widest IEEE format of the machine: deep circuits magnify what rounding their values costs."""
ROUNDING = Precision("wide", float(np.finfo(WIDE).eps) / 2.0, FLOAT64.smallest_normal, FLOAT64.largest)


def check_chord(
    size: int,
    circuit: Sequence[tuple[Any, ...]],
    low: float,
    high: float,
    function: str | Program,
    parameter: float | None,
    ends: Array,
) -> tuple[Interval, list[Interval]]:
    """Bounds of circuit - f for each of `size` copies, and the ranges of the nodes from 1 on.

    Guarantee: for every real t in [low, high], every entry of the output minus f(t) lies in its interval, and every
    node in its range, in exact arithmetic on the circuit's weights. Raises Refused where it finds no finite bounds.
    """
    if ends.ndim != 1 or not 2 <= len(ends) <= MOST_ENDS or ends[0] != low or ends[-1] != high:
        raise Refused(f"the cells of a circuit do not begin at {low:.6g} and end at {high:.6g}")
    if not (np.isfinite(ends).all() and np.all(ends[:-1] <= ends[1:])):
        raise Refused("the ends of the cells of a circuit are not in order")
    widest = max(size, *(len(node[2]) for node in circuit if node[0] == "affine"), 1)
    batch = max(AT_ONCE // widest, 1)
    parts: list[list[Interval]] = []
    for start in range(0, len(ends) - 1, batch):
        some = ends[start : start + batch + 1]
        values, deviations = chords(size, circuit, some)
        error = compare(values[-1], deviations[-1], function, parameter, some)
        over = [_between(value).widened(more) for value, more in zip(values[1:], deviations[1:], strict=True)]
        parts.append([Interval(each.low.min(axis=1), each.high.max(axis=1)) for each in (error, *over)])
    found = parts[0]
    for part in parts[1:]:
        found = [one.hull(other) for one, other in zip(found, part, strict=True)]
    if not all(each.finite() for each in found) or len(found[0].low) != size:
        raise Refused("no finite bound of a circuit against its function, on the cells of the proof")
    return found[0], found[1:]


def chords(size: int, circuit: Sequence[tuple[Any, ...]], ends: Array) -> tuple[list[Interval], list[Upper]]:
    """Values at the ends (entries, ends) and deviations on the cells (entries, cells), of every node."""
    wide: list[Any] = [np.repeat(ends.astype(WIDE)[None], size, axis=0)]
    radii, deviations = [Upper(np.zeros((size, len(ends))))], [Upper(np.zeros((size, len(ends) - 1)))]
    values = [interval(np.repeat(ends[None], size, axis=0))]
    for node in circuit:
        match node:
            case ("affine", terms, bias):
                value, radius, deviation = _affine(terms, np.asarray(bias)[:, None], wide, radii, deviations)
            case ("relu", source):
                value, radius = np.maximum(wide[source], 0.0), radii[source]
                deviation = _gate(values[source], deviations[source])
            case _:
                raise Refused("a circuit of one variable has affine and relu nodes only")
        nearest = value.astype(np.float64)
        step = np.where(nearest == value, 0.0, np.spacing(np.abs(nearest)))
        wide.append(value)
        radii.append(radius)
        deviations.append(deviation)
        values.append(interval(nearest).widened(radius + step))
    return values, deviations


def _affine(
    terms: Any, bias: Array, wide: Sequence[Any], radii: Sequence[Upper], deviations: Sequence[Upper]
) -> tuple[Any, Upper, Upper]:
    """The sum of a bias and of W @ v in wide numbers, how far that is from the exact sum, and the deviation.

    Radii and deviations add with |W|. A sum of n products, in any order, rounds by at most gamma(n) of the sum of their
    sizes, and by what underflows.
    """
    count = sum(weights.shape[-1] for _, weights in terms) + len(terms) + 2
    total: Any = np.repeat(bias.astype(WIDE), wide[0].shape[1], axis=1)
    sizes, radius, deviation = Upper(np.abs(bias)), Upper(np.zeros_like(bias)), Upper(np.zeros_like(bias))
    for source, weights in terms:
        matrix, above = weights.astype(WIDE), np.nextafter(np.abs(wide[source]).astype(np.float64), np.inf)
        total = total + (matrix[:, None] * wide[source] if matrix.ndim == 1 else matrix @ wide[source])
        sizes, radius = sizes + weights @ Upper(above), radius + weights @ radii[source]
        deviation = deviation + weights @ deviations[source]
    return total, radius + ROUNDING.gamma(count) * sizes + count * TINY, deviation


def _gate(value: Interval, deviation: Upper) -> Upper:
    left, right = value[:, :-1], value[:, 1:]
    least, most = np.minimum(left.low, right.low), np.maximum(left.high, right.high)
    smaller = np.minimum(left.magnitude.value, right.magnitude.value)
    crossing = deviation + np.where((least >= 0.0) | (most <= 0.0), 0.0, smaller)
    active, dead = least >= deviation.value, most <= -deviation.value
    return Upper(np.where(dead, 0.0, np.where(active, deviation.value, crossing.value)))


def _between(value: Interval) -> Interval:
    """The values at both ends of each cell, and all between."""
    return value[:, :-1].hull(value[:, 1:])


def compare(
    value: Interval, deviation: Upper, function: str | Program, parameter: float | None, ends: Array
) -> Interval:
    """Bounds of v - f on each cell: (entries, cells)."""
    left, right = ends[:-1], ends[1:]
    bend = enclose(function, parameter, left, right, 2, halvings=2)
    width = interval(right) - left
    half = Upper((width * width).high) * 0.5
    error = value - enclose(function, parameter, ends, ends)
    with np.errstate(all="ignore"):
        above = _top(error.high, (half * np.maximum(bend.high, 0.0)).value)
        below = -_top(-error.low, (half * np.maximum(-bend.low, 0.0)).value)
    unknown = ~(np.isfinite(bend.low) & np.isfinite(bend.high))
    if unknown.any():
        plain = _between(value)[:, unknown] - enclose(function, parameter, left[unknown], right[unknown])
        below[:, unknown], above[:, unknown] = plain.low, plain.high
    return Interval(below, above).widened(deviation)


def _top(error: Array, bulge: Array) -> Array:
    """At least e + d s + q s (1 - s) for 0 <= s <= 1, with e and e + d the errors at both ends and q = bulge >= 0."""
    start, rise = error[:, :-1], interval(error[:, 1:]) - error[:, :-1]
    reach = rise + bulge
    inside = (start + reach * reach / (4.0 * bulge)).high
    at_ends = (rise.low >= bulge) | (rise.high <= -bulge)
    return np.where(at_ends | (bulge == 0.0), np.maximum(start, error[:, 1:]), inside)
