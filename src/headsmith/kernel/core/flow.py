"""How errors travel through a circuit: rules Arrive (forwards) and Gain (backwards).

Let D be the difference between what is computed at a node and the exact value that it stands for. Then

    D at a node  =  sum over its arguments of (slope) (D at the argument)  +  what the node commits itself,

with slopes that are the weights of an affine node; in [0, 1] for a gate (a chord of the ReLU), exactly 1 or 0 for one
that cannot cross zero; bounds of the derivatives for a table head and for what a region stands for. Forwards this gives
a bound of |D| for every node. Backwards it gives the gain of every node: how much an error there moves the output.

Tokens have errors of their own. Where nodes read other tokens the output at token i moves by

    here e_i  +  sum_j g_j e_j,          e_j the node's error at token j (j = i among them),

`here` along the paths that never leave the token, the g_j along the others. Slopes differ from token to token, so the
two must not be added up before they meet the errors. Of the g_j three sums are known, for each component and output:

    rising >= sum max(g_j, 0),     falling >= sum max(-g_j, 0),     size >= sum |g_j|.

Folds.  A node may reach later nodes both directly and through gates. A fold z' = z - 2 relu(z - t) does not amplify,
its slope is 1 or -1; but z and the gate apart would give 1 + 2 = 3 for each fold, and 3^20 for a deep circuit. So the
coefficients with which z enters later affine nodes are collected,

    d z'/d z  =  (weights of z)  +  sum over gates of s_g (weights of the gate) (d argument of the gate / d z),

and since that is linear in the slopes s_g, its extremes are at extreme slopes. Gates that read z alone, at different
thresholds, are a piecewise linear function of z, and a chord of such a function is a mean of its slopes: so only the
slope on each of its pieces counts, one more than there are gates. Any other gate has a slope of its own in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .arithmetic import Array, Interval, Upper, Weights, interval, joined, largest, smallest
from .errors import spend
from .graph import Graph, Node, dense
from .norms import Norms
from .sparse import Sparse, entrywise, multiplied, sparse_of

Slope = Weights | Interval
# An argument; the slopes: weights (a matrix, or a vector for a diagonal one), an interval for each component, or an
# interval matrix (to, from) that is symmetric about zero; and whether the argument is read at other tokens: the slope
# is then that of the sum over all of them.
Edge = tuple[int, Slope, bool]
Edges = Mapping[int, Sequence[Edge]]
Sizes = Mapping[int, Upper]
Readers = Mapping[int, Sequence[tuple[int, Slope]]]

MOST_ROWS, MOST_NUMBERS = 4096, 1 << 22  # combinations of slopes looked at together; numbers, for all of a node
MOST_ENTRIES = 1 << 16  # larger nodes are treated without collecting


# Up to a node, which reads another one through nodes inside alone, the 2-norm of an error grows by at most a factor: of
# a power, of any error (components count `often`); of a descent, of an error that all tokens share.
Growth = tuple[int, Upper, Set[int]]


@dataclass(frozen=True, eq=False)
class Steps:
    """All steps (steps.py) by their results; the slopes of thresholds; the nodes whose exact value is the same at all
    tokens; how often components of powers count; and how errors grow, by the node that has them."""

    of: Mapping[int, Any]
    slopes: Mapping[int, Interval]
    shared: Set[int]
    often: Mapping[int, Array]
    growth: Mapping[int, Sequence[Growth]]


def norm(values: Upper) -> Upper:
    """The 2-norms of columns, or of one vector."""
    return (values * values).sum(axis=0).sqrt()


def arrive(edges: Edges, number: int, size: int, known: Mapping[int, Upper]) -> Upper:
    """A bound of what arrives at a node, from bounds of how far its arguments are off."""
    total = Upper(np.zeros(size))
    for argument, slope, _ in edges.get(number, ()):
        total = total + (sizes_of(slope) if isinstance(slope, Interval) else slope) @ known[argument]
    return total


@dataclass(frozen=True, eq=False)
class Far:
    """What errors of any tokens do: bounds (size, outputs) of the sums above."""

    rising: Upper
    falling: Upper
    size: Upper

    def plus(self, other: Far | None) -> Far:
        """Both together."""
        if other is None:
            return self
        return Far(self.rising + other.rising, self.falling + other.falling, self.size + other.size)

    def through(self, slopes: Interval) -> Far:
        """What it is for an argument: `slopes` (argument, node) of the node, or one for each component."""
        positive, negative = np.maximum(slopes.high, 0.0), np.maximum(-slopes.low, 0.0)
        rising = positive @ self.rising + negative @ self.falling
        return Far(rising, positive @ self.falling + negative @ self.rising, slopes.magnitude.value @ self.size)


@dataclass(frozen=True, eq=False)
class Via:
    """Errors arrive at another node multiplied by at most `sizes` (components there, here), where their norm, in which
    components count `often`, moves the outputs by at most `most` times as much."""

    sizes: Weights
    often: Array
    most: Upper

    def before(self, slope: Slope) -> Via:
        """The same for an argument, of which the node is all that matters."""
        sizes = sizes_of(slope)
        if isinstance(sizes, Sparse) or isinstance(self.sizes, Sparse):
            product = multiplied(sparse_of(self.sizes).changed(interval), sparse_of(sizes), joined)
            return replace(self, sizes=product.changed(lambda values: values.high))
        found: Upper = self.sizes @ Upper(sizes) if sizes.ndim == 2 else Upper(self.sizes) * sizes
        return replace(self, sizes=found.value)

    def carried(self, size: Upper) -> Upper:
        """How far errors of at most `size` move the outputs."""
        arrived: Upper = self.sizes @ size
        return (arrived * arrived * self.often).sum().sqrt() * self.most


@dataclass(frozen=True, eq=False)
class Gain:
    """How a node's errors move the outputs: at its own token (an interval matrix), and from any tokens; and, of a mean
    over all tokens, how an error that is the same at all of them does, of 2-norm 1."""

    here: Interval
    far: Far | None = None
    common: Upper | None = None
    via: Via | None = None

    @property
    def anywhere(self) -> Far:
        """The same as seen by a node that may read any token."""
        rising, falling = Upper(np.maximum(self.here.high, 0.0)), Upper(np.maximum(-self.here.low, 0.0))
        return Far(rising, falling, self.here.magnitude).plus(self.far)

    def pushes(self, error: Interval) -> tuple[Upper, Upper]:
        """How far errors (size) push the outputs down and up."""
        column = Interval(error.low[:, None], error.high[:, None])
        own = self.here * column
        down, up = Upper(np.maximum(-own.low, 0.0)), Upper(np.maximum(own.high, 0.0))
        if self.far is not None:
            below, above = Upper(np.maximum(-column.low, 0.0)), Upper(np.maximum(column.high, 0.0))
            most = self.far.size * largest(below, above)
            down = down + smallest(self.far.rising * below + self.far.falling * above, most)
            up = up + smallest(self.far.rising * above + self.far.falling * below, most)
        limit = np.inf if self.via is None else self.via.carried(error.magnitude)
        return smallest(down.sum(axis=0), limit), smallest(up.sum(axis=0), limit)

    @property
    def alike(self) -> Far:
        """The same for errors that are the same at all tokens."""
        far, most = self.anywhere, np.inf if self.common is None else self.common
        return Far(*(smallest(each, most) for each in (far.rising, far.falling, far.size)))

    def carried(self, size: Upper, alike: Upper | None = None) -> Upper:
        """How far errors of at most `size`, of either sign, move the outputs; a part of them may be the same at all
        tokens."""
        if self.common is None or alike is None:
            plain = self.anywhere.size.value.T @ size
            return plain if self.via is None else smallest(plain, self.via.carried(size))
        return self.anywhere.size.value.T @ (size - alike.value) + self.alike.size.value.T @ alike


def within(circuit: Graph, edges: Edges, output: int, steps: Steps) -> tuple[dict[int, Interval], dict[int, Upper]]:
    """For every node that reaches the output without leaving the token, an interval matrix (size, outputs) that holds d
    output / d node, whatever the slopes within their bounds are; and for powers, how far an error of norm 1 moves each
    output."""
    outputs = circuit.nodes[output].size
    readers: dict[int, list[tuple[int, Slope]]] = {output: []}
    for number in range(output, -1, -1):
        for argument, slope, elsewhere in edges.get(number, ()) if number in readers else ():
            if not elsewhere:
                readers.setdefault(argument, []).append((number, slope))
    found, norms = dict[int, Interval](), dict[int, Upper]()
    spend(0.0, outputs * sum(circuit.nodes[each].size for each in readers) / 8.0)  # all are kept
    for number in sorted(readers, reverse=True):
        total = interval(np.eye(outputs) if number == output else np.zeros((circuit.nodes[number].size, outputs)))
        collected, others = collect(circuit, readers, number, found, output)
        for reader, slope in others:
            total = total + _pulled(slope, found[reader])
        found[number] = total if collected is None else total + collected
        if number in steps.often:
            mine, share = [(reader, slope, False) for reader, slope in readers[number]], np.sqrt(steps.often[number])
            sizes = {each: found[each].magnitude for each in (number, *(reader for reader, _ in readers[number]))}
            norms[number] = _by_norm(number, mine, sizes, norms, steps, share[:, None] / (1.0 + 2.0**-50))
            most = (Upper(share[:, None] * (1.0 + 2.0**-50)) * norms[number]).value
            found[number] = found[number].meet(Interval(-most, most))
    return found, norms


def _by_norm(
    number: int, readers: Sequence[Edge], sizes: Sizes, known: Sizes, steps: Steps, share: Array | None = None
) -> Upper:
    """How far an error of 2-norm 1 moves the outputs: through powers, or steps, by the norms of their results, else
    component by component. With `share`, errors are those of powers, whose components count for so much. Else they are
    the same at all tokens: through weights or slopes that are the same for all tokens they stay so. `sizes` are
    the gains of components."""
    own, skipped = sizes[number], set[int]()
    total, rest = norm(own) * 0.0, own * 0.0
    for output, factor, inside in steps.growth.get(number, ()):
        if output in known and (output in steps.often) == (share is not None):
            total, skipped = total + factor * known[output], skipped | inside
    for reader, slope, elsewhere in (each for each in readers if each[0] not in skipped):
        steep, same = sizes_of(slope), not isinstance(slope, Interval) or reader in steps.shared
        if share is None and steep.ndim == 1 and not elsewhere and same:
            total = total + known[reader] * float(steep.max())
        else:
            rest = rest + steep.T @ sizes[reader]
    counted = 1.0 if share is None else share
    plain = norm(own / counted)
    return smallest(plain, total + norm(rest / counted)) if readers else plain  # nobody reads the output


def sizes_of(slope: Slope) -> Weights:
    """Bounds of the absolute values of slopes."""
    return slope.magnitude.value if isinstance(slope, Interval) else entrywise(slope, np.abs)


def _pulled(slope: Slope, gain: Interval) -> Interval:
    """The transposed slopes times a gain (size, outputs)."""
    if not isinstance(slope, Interval):
        return gain.__rmatmul__(slope.T)
    if slope.low.ndim == 1:
        return gain * Interval(slope.low[:, None], slope.high[:, None])
    size = (slope.magnitude.value.T @ gain.magnitude).value
    return Interval(-size, size)


def gains(circuit: Graph, edges: Edges, output: int, steps: Steps, known: Norms) -> dict[int, Gain]:
    """For every node that matters, how its errors move the output."""
    edges = _through_thresholds(edges, steps, output)
    here, norms = within(circuit, edges, output, steps)
    via, sizes = dict[int, Via](), dict[int, Upper]()
    parts, far, found, common = {output: here}, dict[int, Far](), dict[int, Gain](), dict[int, Upper]()
    outputs, readers = circuit.nodes[output].size, dict[int, list[tuple[int, Slope, bool]]]()
    for number in range(output, -1, -1):
        if number not in here and number not in far:
            continue
        zero = interval(np.zeros((circuit.nodes[number].size, outputs)))
        if number in norms and number not in far:
            via[number] = Via(np.eye(circuit.nodes[number].size), steps.often[number], norms[number])
        elif number in known.weights and output in known.heights and number < output:
            via[number] = Via(np.ones(circuit.nodes[number].size), known.weights[number], known.heights[output])
        elif len(only := readers.get(number, [])) == 1 and only[0][0] in via and number != output:
            via[number] = via[only[0][0]].before(only[0][1])
        found[number] = Gain(here.get(number, zero), far.get(number), via=via.get(number))
        if steps.of:
            sizes[number] = found[number].anywhere.size
            common[number] = _by_norm(number, readers.get(number, ()), sizes, common, steps)
            if circuit.nodes[number].name == "mean" and not circuit.nodes[number].causal:
                found[number] = replace(found[number], common=common[number])
        for argument, slope, elsewhere in edges.get(number, ()):
            readers.setdefault(argument, []).append((number, slope, elsewhere))
            if not elsewhere:
                continue
            assert isinstance(slope, Interval)
            moved = found[number].alike.through(Interval(slope.low.T, slope.high.T))
            if argument not in parts:
                parts[argument], _ = within(circuit, edges, argument, steps)
            for inner, slopes in parts[argument].items():
                far[inner] = moved.through(slopes).plus(far.get(inner))
    return found


def _through_thresholds(edges: Edges, steps: Steps, output: int) -> Edges:
    """The same, but what arrives at a soft threshold passes it as a whole. Its own gates are not asked for."""
    changed = dict(edges)
    for number, slopes in steps.slopes.items():
        if number <= output and edges[number]:
            step = steps.of[number]
            changed |= dict.fromkeys(step.inside - {number, *step.gates}, ())
            changed[number] = [*edges[number], (step.source, slopes, False)]
    return changed


# Folds ----------------------------------------------------------------------------------------------------------------


def collect(
    circuit: Graph, readers: Readers, number: int, found: Mapping[int, Interval], output: int
) -> tuple[Interval | None, Sequence[tuple[int, Slope]]]:
    """What a node's readers that feed back add to its gain, together, and the readers that are left."""
    paths, size = _paths(circuit, readers, number, output), circuit.nodes[number].size
    through = {reader for _, _, reader in paths}
    # A reader that leads to gates by its weights may read the node by interval slopes, too: these stay.
    gated = {reader for reader in through if circuit.nodes[reader].kind == "relu"}
    bounded = [each for each in readers[number] if isinstance(each[1], Interval) and each[0] not in gated]
    affine = [each for each in readers[number] if not isinstance(each[1], Interval) and each[0] not in through]
    reached, behind = {reader for reader, _ in affine}, {reader for gate, _, _ in paths for reader, _ in readers[gate]}
    several = size == 1 and any(len(weights) > 1 for _, weights, _ in paths)
    few = size * sum(circuit.nodes[gate].size for gate, _, _ in paths) <= MOST_ENTRIES
    if not paths or not few or not (several or reached & behind):
        return None, readers[number]
    paths, later = [(gate, dense(weights), reader) for gate, weights, reader in paths], sorted(reached | behind)
    gains = joined([found[reader] for reader in later])
    ends = np.cumsum([circuit.nodes[reader].size for reader in later]).tolist()
    if ends[-1] * max(len(weights) for _, weights, _ in paths) > 16 * MOST_NUMBERS:
        return None, readers[number]
    places = {reader: slice(end - circuit.nodes[reader].size, end) for reader, end in zip(later, ends, strict=True)}

    def onto(edges: Sequence[tuple[int, Slope]], rows: int) -> Interval:
        """With which weights the later nodes read a node, (its size, all their sizes)."""
        total = interval(np.zeros((rows, ends[-1])))
        for reader, slope in edges:
            more = np.zeros((rows, ends[-1]))
            more[:, places[reader]] = dense(slope).T
            total = total + interval(more)
        return total

    base, adds = onto(affine, size), {gate: onto(readers[gate], circuit.nodes[gate].size) for gate, _, _ in paths}
    rows = []
    for component in range(size):
        groups = [group for path in paths for group in _groups(circuit, readers, path, component, adds[path[0]])]
        rows.append(_hull(base[component], groups, gains, size))
    return joined(rows, np.stack), bounded


# A gate, the weights with which it reads a node, and the reader of the node that leads to it.
Path = tuple[int, Weights, int]


def _paths(circuit: Graph, readers: Readers, number: int, output: int) -> list[Path]:
    """Gates that read a node directly, or through an affine node that only feeds gates; all are read by affine nodes
    alone."""
    found: list[Path] = []
    for reader, slope in readers[number]:
        node = circuit.nodes[reader]
        if node.kind == "relu":
            found.append((reader, np.ones(node.size), reader))
        elif node.kind == "affine" and not isinstance(slope, Interval) and reader != output:
            gates = [gate for gate, _ in readers[reader]]
            if gates and all(circuit.nodes[gate].kind == "relu" for gate in gates):
                found.extend((gate, slope, reader) for gate in gates)
    read = [(gate, [slope for _, slope in readers[gate]]) for gate, _, _ in found]
    plain = all(gate != output and slopes for gate, slopes in read)
    return found if plain and not any(isinstance(each, Interval) for _, slopes in read for each in slopes) else []


def _groups(circuit: Graph, readers: Readers, path: Path, component: int, adds: Interval) -> list[Interval]:
    """For gates that switch together, what they may add: one row for each vertex."""
    gate, weights, reader = path
    gates = np.flatnonzero(weights[:, component])
    read = weights[gates, component]
    slopes = next(slope for each, slope in readers[circuit.nodes[gate].arguments[0]] if each == gate)
    assert isinstance(slopes, Interval)
    low, high = (adds[gates] * read[:, None] * end[gates, None] for end in (slopes.low, slopes.high))
    order = None if reader == gate else _thresholds(circuit.nodes[reader], gates, read)
    if order is None:
        return [joined([low[k], high[k]], np.stack) for k in range(len(gates))]
    # Left of all thresholds the falling gates are open, and right of all the rising ones.
    rows = [sum((high[k] if read[k] < 0.0 else low[k] for k in order), interval(np.zeros(adds.low.shape[1])))]
    for k in order:
        swing = high[k] - low[k]
        rows.append(rows[-1] + swing if read[k] > 0.0 else rows[-1] - swing)
    return [joined(rows, np.stack)]


def _thresholds(argument: Node, gates: Any, read: Array) -> list[int] | None:
    """The order in which gates that read one number alone switch, from the left; None for any others."""
    if len(gates) <= 1 or len(argument.weights) != 1 or argument.weights[0].shape[-1] != 1:
        return None
    biases = argument.constants[gates].tolist()
    at = [-Fraction(bias) / Fraction(weight) for bias, weight in zip(biases, read.tolist(), strict=True)]
    return sorted(range(len(gates)), key=at.__getitem__)


def _hull(base: Interval, groups: list[Interval], gains: Interval, size: int) -> Interval:
    """The hull of (base + a row of each group) @ gains over all rows; groups beyond the limit, which all components of
    a node share, are taken apart."""
    rows, rest = base[None, :], sorted(groups, key=lambda group: len(group.low))
    most = min(MOST_ROWS, MOST_NUMBERS // (size * max(len(base.low), 1)))
    while rest and len(rows.low) * len(rest[0].low) <= most:
        rows = (rows[:, None, :] + rest.pop(0)[None, :, :]).mapped(lambda end: end.reshape(-1, len(base.low)))
    total = _extremes(rows, gains)
    for group in rest:
        total = total + _extremes(group, gains)
    return total


def _extremes(rows: Interval, gains: Interval) -> Interval:
    middle = 0.5 * rows.low + 0.5 * rows.high
    radius = np.maximum((Upper(rows.high) - middle).value, (Upper(middle) - rows.low).value)
    return (middle @ gains).widened(radius @ gains.magnitude).over(0)
