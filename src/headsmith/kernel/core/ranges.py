"""Rule Range: where the exact value of every circuit node lies, for all inputs in the domain.

The domain is cut into cells (the wide inputs are halved in turn), and every node is one interval operation on the
ranges of its arguments, cell by cell; the hull over all cells is its range. Other tokens lie in any of the cells. The
range of a region's output is that of what it stands for; inside of a region with a margin, the arguments are wider by
the margin, and where its circuit was compared with a function cell by cell, ranges come from there.

Rule Linear: a range by linear bounds, which know that the gates of a layer read the same inputs.

What is wanted is the least value of every component of a node, and of its negative: of linear forms  a . v + c  of the
values v of nodes. A form is rewritten towards the inputs, from the last node that it reads to the first:

    affine    v = W w + b:                      a . v = (a W) . w + a . b
    gate      v = relu(w), w in [l, h]:         s w <= v <= t w + m      for any s in [0, 1], any t, and m the larger of
              relu(w) - t w at both ends (it is convex). So  a v >= (a s) w  where a > 0, and  a v >= (a t) w + a m
              where a < 0. With t = (relu(h) - relu(l)) / (h - l), m is as small as it can be
    other     a . v is at least what intervals say, for v in its range; so it is for the input

The proof carries the slopes s, for the two sides apart: any are right, some are good. Coefficients are rounded; a form
whose coefficients are off by d is off by at most d . |w|, which is subtracted from c.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from .arithmetic import FLOAT64, TINY, Array, Interval, Upper, interval, rational, smallest
from .errors import Refused, refuse, spend
from .flow import norm
from .functions import Program, enclose, named, run
from .graph import Graph, Node, needed
from .proof import Proof, Region

MOST_ENTRIES = 1 << 24


def cells_of(graph: Graph, low: Array, high: Array, halvings: int) -> Interval:
    """Cells that cover the box, one in each column: the wide inputs are cut in two in turn, `halvings` times in all.
    Raises Refused where all nodes of the graph on all cells are too many."""
    if sum(node.size for node in graph.nodes) << halvings > MOST_ENTRIES:
        raise Refused("the ranges of all nodes on all cells of the domain are more than this kernel looks at")
    wide = np.flatnonzero(high > low)
    cuts = np.bincount(wide[np.arange(halvings if len(wide) else 0) % max(len(wide), 1)], minlength=len(low))
    count = 2 ** int(cuts.sum())
    lows, highs = (np.repeat(end[:, None], count, axis=1) for end in (low, high))
    cells = np.arange(count)
    for coordinate in np.flatnonzero(cuts):
        pieces = 2 ** int(cuts[coordinate])
        knots = np.linspace(low[coordinate], high[coordinate], pieces + 1)
        lows[coordinate], highs[coordinate] = knots[cells % pieces], knots[cells % pieces + 1]
        cells = cells // pieces
    return Interval(lows, highs)


def node_range(node: Node, arguments: list[Interval], blocks: int = 0) -> Interval:
    """The range of a node that is no input, from those of its arguments; all are (size, cells). In blocks, columns are
    tokens: all have the same inputs, so the largest of their values lies between the largest ends."""
    match node.kind:
        case "positional":
            table = interval(node.constants.T)
            return table if blocks else table.over(1, keepdims=True)
        case "affine":
            total = interval(node.constants[:, None])
            for weights, argument in zip(node.weights, arguments, strict=True):
                total = total + weights @ argument
            return total
        case "relu":
            return arguments[0].relu()
        case "maximum" | "minimum":
            pick = np.maximum if node.kind == "maximum" else np.minimum
            return reduce(lambda a, b: Interval(pick(a.low, b.low), pick(a.high, b.high)), arguments)
        case "expression":
            return program_range(node.program, arguments)
        case "sampled":
            from ..rules.sampled import sampled_range

            return sampled_range(node)
        case "pool" if blocks and node.name == "max" and not node.causal:
            return Interval(*(end.max(axis=1, keepdims=True) for end in (arguments[0].low, arguments[0].high)))
        case "move" if blocks:
            ends = (np.broadcast_to(end, (node.size, blocks)) for end in (arguments[0].low, arguments[0].high))
            return Interval(*(np.where(np.array(node.targets) >= 0, end[:, node.targets], 0.0) for end in ends))
        case "pool" | "attend" if not blocks:
            return arguments[-1].over(1, keepdims=True)
        case "move":
            moved = arguments[0].over(1, keepdims=True)
            return moved.hull(interval(np.zeros_like(moved.low))) if -1 in node.targets else moved
        case "exchange" if not blocks:
            if -1 in node.targets or not all(np.all(each.low >= 0.0) for each in arguments[1:]):
                raise Refused("an exchange fetches from no token, or has constants that may be negative")
            return arguments[0].over(1, keepdims=True)
    raise Refused(f"there is no rule for the range of {node.kind}")


def program_range(program: Program, arguments: list[Interval]) -> Interval:
    """The range of a program, step by step."""

    def linear(terms: list[tuple[Fraction, Interval]], constant: Fraction) -> Interval:
        zero = interval(np.zeros_like(arguments[0].low))
        return sum((_times(x, rational(c)) for c, x in terms), start=rational(constant) + zero)

    found: Interval = run(program, arguments, linear, lambda *call: enclose(named(*call[:2]), call[2]), _times)
    return found


def _times(left: Interval, right: Interval) -> Interval:
    """The product; what may be undefined stays so, whatever it is multiplied by."""
    product = enclose(named("square"), left) if left is right else left * right
    return product.where(np.isfinite(left.width.value + right.width.value))


def refuse_undefined(target: Graph, box: Interval, proof: Proof, known: Sequence[Interval]) -> None:
    """Raise Refused unless every function and quotient of the target is defined, and bounded, on the whole domain;
    `known` are the ranges of the circuit."""
    if not any(node.kind == "expression" for node in target.nodes):
        return
    found = [cells_of(target, box.low, box.high, proof.halvings)]
    for number, node in enumerate(target.nodes[1:], start=1):
        found.append(node_range(node, [found[argument] for argument in node.arguments]))
        # Equal functions are equal where both are defined: what a node is alike says nothing about that.
        if node.kind == "expression" and not found[-1].finite():
            raise Refused(f"node {number} of the target, {node.program.steps[-1][:2]}, may not be defined everywhere")
        if number in proof.alike:
            found[-1] = found[-1].meet(known[proof.alike[number]][:, None])


def chords(nodes: Any, numbers: Iterable[int], values: dict[int, Interval]) -> dict[int, Upper]:
    """Affine nodes and gates along a variable that is cut at ends: enters their values at the ends (entries, ends) into
    `values`, which hold those of what they read, and returns their deviations d (entries, cells), those being linear,

        |v(t) - (v(l) (r - t) + v(r) (t - l)) / (r - l)| <= d           for all t in the cell [l, r].

    The chord of a sum is the sum of the chords, and deviations add with |W|.
    """
    deviations = {number: Upper(np.zeros_like(value.low[:, 1:])) for number, value in values.items()}
    for number in numbers:
        node = nodes[number]
        refuse(node.kind not in ("affine", "relu"), f"node {number}, {node.kind}, is not piecewise linear")
        zero = np.zeros((node.size, next(iter(values.values())).low.shape[1]))
        values[number] = node_range(node, [values[argument] for argument in node.arguments]) + zero
        deviations[number] = Upper(zero[:, 1:])
        for argument, weights in zip(node.arguments, node.weights, strict=False):
            deviations[number] = deviations[number] + weights @ deviations[argument]
        if node.kind == "relu":
            deviations[number] = _bend(values[node.arguments[0]], deviations[node.arguments[0]])
    return deviations


def _bend(value: Interval, deviation: Upper) -> Upper:
    """The deviation of a gate. The gate of a node that stays on one side of 0, because both values do by at least the
    deviation, is that node, or 0. Otherwise it moves the deviation by at most itself; and where the chord crosses 0,
    relu of it is below the chord of relu(v(l)), relu(v(r)) by at most |v(l)| |v(r)| / (|v(l)| + |v(r)|) <=
    min(|v(l)|, |v(r)|), which is tiny if the cell ends at the kink."""
    both, sizes = between(value), value.magnitude.value
    crosses = ~((both.low >= 0.0) | (both.high <= 0.0))
    bent = deviation + np.where(crosses, np.minimum(sizes[:, :-1], sizes[:, 1:]), 0.0)
    active, dead = both.low >= deviation.value, both.high <= -deviation.value
    return Upper(np.where(dead, 0.0, np.where(active, deviation.value, bent.value)))


def between(value: Interval) -> Interval:
    """The values at both ends of each cell, and all between."""
    return value[:, :-1].hull(value[:, 1:])


def _bent(proof: Proof, number: int, around: Interval) -> Interval:
    """The range of a node that is a piecewise linear function of another one, a single number."""
    nodes, (argument, kinks) = proof.circuit.nodes, proof.bends[number]
    places = [place for place in needed(proof.circuit, [number], [argument]) if place != argument]
    if nodes[argument].size > 1 or not proof.regions.keys().isdisjoint(places):
        raise Refused(f"node {number} is no piecewise linear function of node {argument}")
    ends = np.sort(np.clip([*around.low, *kinks, *around.high], around.low, around.high))
    values = {argument: interval(ends[None])}
    deviations = chords(nodes, places, values)
    return between(values[number]).widened(deviations[number]).over(1, keepdims=True)


def _is_gap(circuit: Graph, node: Node) -> bool:
    """Whether a node is a difference that is never negative: of a value and its pools over the tokens, min <= mean <=
    max and min <= own <= max."""
    signs = [np.ones(node.size), -np.ones(node.size)]
    if node.kind != "affine" or len(node.weights) != 2 or not all(map(np.array_equal, node.weights, signs)):
        return False
    (upper, lower), nodes = node.arguments, circuit.nodes
    for pool, other, name in ((nodes[upper], lower, "max"), (nodes[lower], upper, "min")):
        alike = nodes[other].kind == "pool" and nodes[other].causal == pool.causal
        same = pool.arguments == (other,) or (alike and nodes[other].arguments == pool.arguments)
        if pool.kind == "pool" and pool.name == name and same:
            return not node.constants.any()
    return False


def linear_range(circuit: Graph, number: int, slopes: Array, found: Sequence[Interval], whole: Set[int]) -> Interval:
    """The range of a node, from those of all before it (size,); those in `whole` are not rewritten. `slopes` (2, gates)
    are those of all gates that are met, in the order of their nodes."""
    size, left = circuit.nodes[number].size, slopes.shape[-1]
    if slopes.ndim != 2 or len(slopes) != 2 or not np.all((slopes >= 0.0) & (slopes <= 1.0)):
        raise Refused(f"the slopes of linear bounds of node {number} are not two rows of numbers from 0 to 1")
    forms, least = {number: np.stack([np.eye(size), -np.eye(size)])}, interval(np.zeros(2 * size))
    for place in range(number, -1, -1):
        if place not in forms:
            continue
        node, form = circuit.nodes[place], forms.pop(place)
        rows, parts = form.reshape(2 * size, -1), list[tuple[int, Array, Upper]]()
        if node.kind == "affine" and place not in whole:
            least = least + rows @ interval(node.constants)
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                spend(0.2 * len(rows) * weights.size)
                rounded = FLOAT64.gamma(node.size + 2) * (rows @ (weights @ found[argument].magnitude))
                parts.append((argument, form @ weights if weights.ndim == 2 else form * weights, rounded))
        elif node.kind == "relu" and place not in whole:
            around, left = found[node.arguments[0]], left - node.size
            refuse(left < 0, f"linear bounds of node {number} meet more gates than have slopes")
            ends = np.stack([around.low, around.high])
            above = np.diff(np.maximum(ends, 0.0), axis=0)[0] / np.maximum(np.diff(ends, axis=0)[0], TINY)
            most = (interval(np.maximum(ends, 0.0)) - interval(ends) * interval(above)).high.max(axis=0)
            least = least + np.minimum(rows, 0.0) @ interval(most)
            bent = form * np.where(form > 0.0, slopes[:, None, left : left + node.size], above)
            parts.append((node.arguments[0], bent, _size(bent, around) * FLOAT64.unit_roundoff))
        else:
            least = least + rows @ found[place]
        for argument, part, rounded in parts:
            forms[argument] = forms[argument] + part if argument in forms else part
            added = _size(forms[argument], found[argument]) * FLOAT64.unit_roundoff
            underflow = found[argument].magnitude.sum() * (node.size * TINY)
            least = least + Interval(-(rounded + added + underflow).value, np.zeros(2 * size))
    return Interval(least.low[:size], -least.low[size:])


def _size(form: Array, values: Interval) -> Upper:
    """How large the sum of the sizes of a form's terms can be."""
    size: Upper = form.reshape(-1, form.shape[-1]) @ values.magnitude
    return size


Comparison = Callable[[Proof, Region, list[Interval]], tuple[Interval, Mapping[int, Interval]]]


def ranges(proof: Proof, box: Interval, compare: Comparison) -> tuple[list[Interval], dict[int, Interval]]:
    """The range (size,) of every node; and, for the output of every region whose circuit is compared with a function
    cell by cell, the difference of the two, which `compare` finds with the ranges of the inside."""
    errors, lengths = dict[int, Interval](), dict[int, Upper]()
    cut, tokens = proof.margins_of_reads, proof.blocks or (box.low.shape[1] if box.low.ndim > 1 else 0)
    found = [box if box.low.ndim > 1 else cells_of(proof.circuit, box.low, box.high, proof.halvings)]
    size = tokens * sum(node.size for node in proof.circuit.nodes)
    refuse(size > MOST_ENTRIES, "the ranges of all nodes at all tokens are more than this kernel looks at")
    if proof.blocks:
        # Token j, in column j, holds the inputs in block j, and zeros in the others.
        found = [Interval(*(np.kron(np.eye(proof.blocks), end[:, None]) for end in (box.low, box.high)))]
    for number, node in enumerate(proof.circuit.nodes[1:], start=1):
        region = proof.regions.get(number)
        if region is not None:
            # The output is what it stands for; the circuit in its place is another matter.
            found.append(found[region.stands_for])
            if region.ends is not None:
                around = [found[argument].over(1) for argument in region.arguments]
                errors[number], inside = compare(proof, region, around)
                for inner in inside.keys() - {number}:
                    found[inner] = inside[inner][:, None]
            continue
        margins = [cut.get(number, {}).get(argument, 0.0) for argument in node.arguments]
        seen = [found[argument].widened(margin) for argument, margin in zip(node.arguments, margins, strict=True)]
        found.append(node_range(node, seen, tokens))
        if not any(margins) and _is_gap(proof.circuit, node):
            found[-1] = Interval(np.maximum(found[-1].low, 0.0), found[-1].high)
        for view in proof.views.get(number, ()):
            found[-1] = found[-1].meet(found[view])
        if number in proof.powers:
            from ..rules.steps import entries

            found[-1] = found[-1].meet(entries(proof.powers[number], [each.over(1) for each in found])[:, None])
        if number in proof.steps:
            from ..rules.steps import length

            step, hulls = proof.steps[number], [each.over(1) for each in found]
            before = lengths.get(step.source, norm(hulls[step.source].magnitude))
            lengths[number] = smallest(length(step, proof.circuit, hulls, before), norm(hulls[-1].magnitude))
            most = lengths[number].value
            found[-1] = found[-1].meet(Interval(-most, most))
        if number in proof.linear:
            hulls, whole = [each.over(1) for each in found], proof.regions.keys() | cut.keys()
            found[-1] = found[-1].meet(linear_range(proof.circuit, number, proof.linear[number], hulls, whole)[:, None])
        if number in proof.bends:
            found[-1] = found[-1].meet(_bent(proof, number, found[proof.bends[number][0]].over(1)))
    for number, (each, node) in enumerate(zip(found, proof.circuit.nodes, strict=True)):
        refuse(not each.finite(), f"the range of node {number}, {node.kind}, is not known to be bounded")
    return [each.over(1) for each in found], errors
