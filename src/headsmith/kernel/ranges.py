"""Rule Range: where the exact value of every circuit node lies, for all inputs in the domain.

The domain is cut into cells (the wide inputs are halved in turn), and every node is one interval operation on the
ranges of its arguments, cell by cell; the hull over all cells is its range. Other tokens lie in any of the cells. The
range of a region's output is that of what it stands for; inside of a region with a margin, the arguments are wider by
the margin, and where its circuit was compared with a function cell by cell, ranges come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .arithmetic import Array, Interval, interval, rational
from .errors import Refused
from .functions import Program, enclose, run
from .graph import Graph, Node, needed
from .proof import Exchange, Proof, Region


def cells_of(low: Array, high: Array, halvings: int) -> Interval:
    """Cells that cover the box, one in each column: the wide inputs are cut in two in turn, `halvings` times in all."""
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


def blocks_of(low: Array, high: Array, blocks: int) -> Interval:
    """Inputs in blocks, one token in each column: token j holds them in block j, and zeros in the others."""
    shape = np.eye(blocks)
    return Interval(np.kron(shape, low[:, None]), np.kron(shape, high[:, None]))


def _in_blocks(node: Node, arguments: list[Interval], blocks: int) -> Interval | None:
    """The range, one token in each column, of nodes that look at tokens; None for all others. All tokens have the same
    inputs, so the largest of their values lies between the largest ends."""
    if node.kind == "positional" and node.constants is not None:
        return interval(node.constants.T)
    if node.kind not in ("pool", "move", "attend"):
        return None
    low, high = (np.broadcast_to(end(arguments[0]), (node.size, blocks)) for end in (_low, _high))
    if node.kind == "pool" and node.name == "max" and not node.causal:
        return Interval(*(end.max(axis=1, keepdims=True) for end in (low, high)))
    if node.kind != "move":
        raise Refused(f"there is no rule for {node.kind} in blocks")
    there = np.array(node.targets) >= 0
    return Interval(*(np.where(there, end[:, node.targets], 0.0) for end in (low, high)))


def node_range(node: Node, arguments: list[Interval]) -> Interval:
    """The range of a node that is no input, from those of its arguments; all are (size, cells)."""
    match node.kind:
        case "positional" if node.constants is not None:
            ends = node.constants.min(axis=0), node.constants.max(axis=0)
            return Interval(*(end[:, None] for end in ends))
        case "affine" if node.constants is not None:
            total = interval(node.constants[:, None])
            for weights, argument in zip(node.weights, arguments, strict=True):
                total = total + weights @ argument
            return total
        case "relu":
            return arguments[0].relu()
        case "maximum" | "minimum":
            pick = np.maximum if node.kind == "maximum" else np.minimum
            low, high = (np.broadcast_arrays(*(end(each) for each in arguments)) for end in (_low, _high))
            return Interval(pick.reduce(low), pick.reduce(high))
        case "product" if node.arguments[0] == node.arguments[1]:
            return enclose("square", None, arguments[0].low, arguments[0].high, 0)
        case "product":
            return arguments[0] * arguments[1]
        case "quotient":
            return arguments[0] / arguments[1]
        case "hypotenuse":
            squares = [enclose("square", None, each.low, each.high, 0) for each in arguments]
            total = squares[0] + squares[1]
            return enclose("sqrt", None, np.maximum(total.low, 0.0), total.high, 0)
        case "function":
            return enclose(node.name, node.parameter, arguments[0].low, arguments[0].high, 0)
        case "expression" if node.program is not None:
            return program_range(node.program, arguments)
        case "pool" | "attend":
            return _anywhere(arguments[-1])
        case "move":
            moved = _anywhere(arguments[0])
            return moved.hull(interval(np.zeros_like(moved.low))) if -1 in node.targets else moved
    raise Refused(f"there is no rule for the range of {node.kind}")


def _low(x: Interval) -> Array:
    return x.low


def _high(x: Interval) -> Array:
    return x.high


def program_range(program: Program, arguments: list[Interval]) -> Interval:
    """The range of a program, step by step."""
    zero = interval(np.zeros_like(arguments[0].low))
    found: Interval = run(
        program,
        arguments,
        linear=lambda terms, constant: sum((x * rational(c) for c, x in terms), start=rational(constant) + zero),
        call=lambda name, parameter, x: enclose(name, parameter, x.low, x.high),
        times=lambda a, b: enclose("square", None, a.low, a.high) if a is b else a * b,
    )
    return found


def _anywhere(argument: Interval) -> Interval:
    """The hull over all cells: another token may lie in any of them."""
    return Interval(argument.low.min(axis=1, keepdims=True), argument.high.max(axis=1, keepdims=True))


MOST_ENTRIES = 1 << 24
PARTIAL = ("function", "quotient", "hypotenuse", "expression")


def refuse_undefined(target: Graph, box: Interval, halvings: int) -> None:
    """Raise Refused unless every function and quotient of the target is defined, and bounded, on the whole domain."""
    if not any(node.kind in PARTIAL for node in target.nodes):
        return
    found = [cells_of(box.low, box.high, halvings)]
    for number, node in enumerate(target.nodes[1:], start=1):
        found.append(node_range(node, [found[argument] for argument in node.arguments]))
        if node.kind in PARTIAL and not found[-1].finite():
            raise Refused(
                f"node {number} of the target, {node.kind} {node.name}, may not be defined on the whole domain"
            )


Comparison = Callable[[Proof, Region, list[Interval]], tuple[Interval, Mapping[int, Interval]]]


def ranges(proof: Proof, box: Interval, compare: Comparison) -> tuple[list[Interval], dict[int, Interval]]:
    """The range (size,) of every node; and, for the output of every region whose circuit is compared with a function
    cell by cell, the difference of the two, which `compare` finds with the ranges of the inside."""
    margins = proof.margins_of_reads
    if sum(node.size for node in proof.circuit.nodes) << proof.halvings > MOST_ENTRIES:
        raise Refused("the ranges of all nodes on all cells of the domain are more than this kernel looks at")
    found: list[Interval] = []
    errors: dict[int, Interval] = {}
    for number, node in enumerate(proof.circuit.nodes):
        region = proof.regions.get(number)
        if region is not None:
            found.append(found[region.stands_for])
            if region.ends is not None:
                errors[number], inside = compare(
                    proof, region, [_hull(found[argument]) for argument in region.arguments]
                )
                for inner, range_ in inside.items():
                    # The output is what it stands for; the circuit in its place is another matter.
                    if inner != number:
                        found[inner] = Interval(range_.low[:, None], range_.high[:, None])
        elif number in proof.exchanges:
            found.append(_exchanged(proof, proof.exchanges[number], found))
        elif node.kind == "input":
            blocks = proof.blocks
            found.append(
                blocks_of(box.low, box.high, blocks) if blocks else cells_of(box.low, box.high, proof.halvings)
            )
        else:
            arguments = [found[argument] for argument in node.arguments]
            for place, argument in enumerate(node.arguments):
                if (number, argument) in margins:
                    arguments[place] = arguments[place].widened(margins[number, argument])
            laid = _in_blocks(node, arguments, proof.blocks) if proof.blocks else None
            result = node_range(node, arguments) if laid is None else laid
            for view in proof.views.get(number, ()):
                result = result.meet(found[view])
            found.append(result)
    for number, each in enumerate(found):
        if not each.finite():
            raise Refused(f"the range of node {number}, {proof.circuit.nodes[number].kind}, is not known to be bounded")
    return [_hull(each) for each in found], errors


def _exchanged(proof: Proof, exchange: Exchange, found: list[Interval]) -> Interval:
    """The output of an exchange lies where x does at some token."""
    constants = needed(proof.circuit, (exchange.above, exchange.below))
    if any(proof.circuit.nodes[number].kind not in ("positional", "affine") for number in constants):
        raise Refused(f"the exchange at node {exchange.output} has constants that are none")
    if any(np.any(found[each].low < 0.0) for each in (exchange.above, exchange.below)):
        raise Refused(f"the constants of the exchange at node {exchange.output} may be negative")
    if -1 in proof.circuit.nodes[exchange.moved].targets:
        raise Refused(f"the exchange at node {exchange.output} fetches from no token")
    return _anywhere(found[exchange.value])


def _hull(range_: Interval) -> Interval:
    return Interval(range_.low.min(axis=1), range_.high.max(axis=1))
