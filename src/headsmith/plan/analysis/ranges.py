"""Interval propagation: where each node's exact value can lie when the inputs range over the domain box.

Term by term, intervals forget that x * x - x + 1 reads the same x three times. Three things remember it:
  columns    column 0 of every range is the whole box, the others are cells that cover it; the hull of the cells trims
             column 0, and column 0 trims the cells (it holds for each of them, so that is sound)
  rounding   results that are doubles are not widened (core.intervals), so a range that touches 0 still touches it
  sharing    sums of gates, maxima and minima of one argument are bounded as functions of it (analysis.piecewise), sums
             of a value and its pools over the tokens by their order (analysis.order)

Networks of gates are also bounded by linear functions (plan/evidence/linear.py), where these are better than intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never
from weakref import WeakKeyDictionary

import numpy as np

from headsmith.core.errors import DomainError, TargetError
from headsmith.core.functions import FUNCTIONS, missing
from headsmith.core.intervals import (
    Box,
    Interval,
    added_outwards,
    divided,
    first_columns,
    intersected,
    linear_image,
    multiplied,
    point,
    squared,
)
from headsmith.core.program import program_range
from headsmith.kernel.core import arithmetic
from headsmith.kernel.core.arithmetic import Interval as Known
from headsmith.kernel.core.flow import norm
from headsmith.kernel.core.proof import Proof
from headsmith.kernel.rules.steps import entries, length
from headsmith.language.describe import describe, number
from headsmith.language.graph import (
    Affine,
    Approximated,
    Attend,
    Average,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
    average_shape,
)
from headsmith.plan.analysis.flow import NOTHING, exchanges, kernel_graph, known_of_target
from headsmith.plan.analysis.order import order_range
from headsmith.plan.analysis.piecewise import Forms, affine_range, is_layered, quotient_range, stacked
from headsmith.plan.evidence.linear import find_linear

COARSE_HALVINGS, FINE_HALVINGS = 9, 13
PIECES = 512
"""How often the box is cut in two: at first, and where that does not show that a formula is defined everywhere."""
MOST_ENTRIES = 1 << 17
"""So many components of all nodes on all cells are looked at, at first: to cut a few of many inputs helps little."""


def ranges(graph: Graph, box: Box) -> tuple[Interval, ...]:
    """One interval vector for each node.

    Guarantee: for every input in `box`, each component of each node's exact value lies in its interval. Raises
    DomainError, naming the expression and its interval, where a value may not be defined or not be a finite double.
    """
    known = _KNOWN.setdefault(graph, {})
    key = box.low.tobytes() + box.high.tobytes()
    if key not in known:
        known[key] = _ranges(graph, box)
    return known[key]


_KNOWN: WeakKeyDictionary[Graph, dict[bytes, tuple[Interval, ...]]] = WeakKeyDictionary()
"""Graphs never change: what is known of one is found once."""


def _ranges(graph: Graph, box: Box) -> tuple[Interval, ...]:
    if is_layered(graph) or _is_maxout(graph):
        return _chain_ranges(graph, box)
    if not any(isinstance(node, Approximated) for node in graph.nodes) or _known(graph).powers:
        return _Propagation(graph, box, 0).result()
    few = int(np.log2(max(MOST_ENTRIES / sum(node.size for node in graph.nodes), 1.0)))
    try:
        return _Propagation(graph, box, min(COARSE_HALVINGS, few)).result()
    except DomainError:
        return _Propagation(graph, box, FINE_HALVINGS).result()


def _known(graph: Graph) -> Proof:
    """The steps and powers of a graph in which tokens meet."""
    return known_of_target(graph) if any(isinstance(node, Pool) for node in graph.nodes) else NOTHING


def _is_maxout(graph: Graph) -> bool:
    """Whether the graph has layers of several units, each an affine image of the input or of the maxima of the layer
    before: then no sum reads two things that share an argument. Single maxima, as in formulas, are looked at closer."""
    layers = Input | Maximum | Minimum
    return all(
        isinstance(graph.nodes[node.terms[0].node], layers)
        if isinstance(node, Affine) and len(node.terms) == 1
        else isinstance(node, Input) or (isinstance(node, layers) and node.size > 1)
        for node in graph.nodes
    )


def _chain_ranges(graph: Graph, box: Box) -> tuple[Interval, ...]:
    """Plain propagation, for layered networks of any width: no sum reads an argument twice, all is defined."""
    found: list[Interval] = []
    for node in graph.nodes:
        match node:
            case Input():
                found.append(box.interval)
            case Affine():
                found.append(_plain_affine(node, {term.node: found[term.node] for term in node.terms}))
            case Relu():
                found.append(found[node.argument].relu())
            case Maximum() | Minimum():
                found.append(_extremum(node, found))
            case _:
                raise AssertionError(f"a chain has no {type(node).__name__}")
    return tuple(found)


def _plain_affine(node: Affine, found: Mapping[int, Interval]) -> Interval:
    """Term by term; ranges are vectors, or matrices with columns."""
    columns = [1] * (max((found[term.node].low.ndim for term in node.terms), default=1) - 1)
    total = point(node.bias.reshape(-1, *columns))
    for term in node.terms:
        total = added_outwards(total, linear_image(term.weights, found[term.node]))
    return total


def _extremum(node: Maximum | Minimum, found: list[Interval]) -> Interval:
    pick = np.maximum if isinstance(node, Maximum) else np.minimum
    lows, highs = ([getattr(found[a], end) for a in node.arguments] for end in ("low", "high"))
    return Interval(pick.reduce(lows), pick.reduce(highs))


class _Propagation:
    """Ranges (size, columns) of every node in turn."""

    def __init__(self, graph: Graph, box: Box, halvings: int) -> None:
        self.graph = graph
        self.inputs = _columns(box, halvings)
        self.found: list[Interval] = []
        self.known, self.exchanges = _known(graph), exchanges(graph)
        # What is known of an exchange or of a power as a whole is not known of the sum that it is.
        self.forms = Forms(graph, {*self.exchanges, *self.known.powers})
        self.whole: list[arithmetic.Interval] = []
        self.lengths: dict[int, arithmetic.Upper] = {}

    def result(self) -> tuple[Interval, ...]:
        for place, node in enumerate(self.graph.nodes):
            with np.errstate(over="ignore", invalid="ignore"):
                range_ = _trimmed(self._range(place, node))
                if place in self.exchanges:
                    # It lies where its source does, at this token or another.
                    range_ = intersected(_anywhere(self.found[self.exchanges[place][0]]), range_)
                if self.known.steps or self.known.powers:
                    self.whole.append(arithmetic.Interval(range_.low[:, 0], range_.high[:, 0]))
                if place in self.known.steps or place in self.known.powers:
                    range_ = intersected(range_, self._by_norms(place))
            finite = np.isfinite(range_.low[:, 0]) & np.isfinite(range_.high[:, 0])
            if not finite.all():
                self._refuse_overflow(place, int(np.argmin(finite)))
            self.found.append(range_)
        return first_columns(self.found)

    def _by_norms(self, place: int) -> Interval:
        """What the kernel knows of the result of a step, or of a power (kernel/rules/steps.py)."""
        if place in self.known.powers:
            found = entries(self.known.powers[place], self.whole)
        else:
            step, known = self.known.steps[place], self.whole
            before = self.lengths.get(step.source, norm(known[step.source].magnitude))
            most = arithmetic.smallest(length(step, self.known.circuit, known, before), norm(known[place].magnitude))
            self.lengths[place], ends = most, np.full(len(known[place].low), most.value)
            found = arithmetic.Interval(-ends, ends)
        self.whole[place] = self.whole[place].meet(found)
        return Interval(found.low[:, None], found.high[:, None])

    def _range(self, place: int, node: Node) -> Interval:
        found = self.found
        match node:
            case Input():
                return self.inputs
            case Affine():
                return self._affine(place, node)
            case Relu():
                return found[node.argument].relu()
            case Maximum() | Minimum():
                return _extremum(node, found)
            case Product():
                left, right = found[node.left], found[node.right]
                return squared(left) if node.left == node.right else multiplied(left, right)
            case Quotient():
                self._refuse_zero(node)
                result = divided(found[node.numerator], found[node.denominator])
                rows = [quotient_range(self.forms, node, row, found) for row in range(node.size)]
                return intersected(stacked(rows), result)
            case Hypotenuse():
                return _hypotenuse(found[node.left], found[node.right])
            case Function():
                return self._function(place, node)
            case Expression():
                return self._expression(node)
            case Positional():
                low, high = node.values.min(axis=0), node.values.max(axis=0)
                return Interval(*(np.repeat(end[:, None], self.inputs.low.shape[1], axis=1) for end in (low, high)))
            case Pool():
                return _anywhere(found[node.argument])
            case Move():
                moved = _anywhere(found[node.argument])
                if -1 in node.targets:
                    moved = Interval(np.minimum(moved.low, 0.0), np.maximum(moved.high, 0.0))
                return moved
            case Attend():
                return _anywhere(found[node.values])
            case Average():
                return _averaged(node, found[node.scores].low.shape[0], found[node.values])
            case Sampled():
                raise TargetError("a sampled function is compiled by hs.universal alone")
            case _:
                assert_never(node)

    def _affine(self, place: int, node: Affine) -> Interval:
        if self.forms.small(node) and self.forms.expanded(place):
            return stacked([self._affine_row(place, row) for row in range(node.size)])
        cells = _plain_affine(node, {term.node: self.found[term.node] for term in node.terms})
        whole = _plain_affine(node, {term.node: self.found[term.node][:, 0] for term in node.terms})
        low = np.concatenate([whole.low[:, None], cells.low[:, 1:]], axis=1)
        return Interval(low, np.concatenate([whole.high[:, None], cells.high[:, 1:]], axis=1))

    def _affine_row(self, place: int, row: int) -> Interval:
        result = affine_range(self.forms, self.graph, place, row, self.found)
        if self.known is NOTHING:
            return result  # no pools
        ordered = order_range(self.forms, self.graph, self.forms.of(place, row), self.found)
        return result if ordered is None else intersected(ordered, result)

    def _function(self, place: int, node: Function) -> Interval:
        if node.name not in FUNCTIONS:
            raise DomainError(f"{describe(self.graph, place)}: {missing(node.name)}")
        function, argument = FUNCTIONS[node.name], self.found[node.argument]
        domain = function.domain(node.parameter)
        inside = domain.covers(argument.low[:, 0], argument.high[:, 0])
        if not inside.all():
            component = int(np.argmin(inside))
            what, part = {
                "reciprocal": ("division", "denominator"),
                "power": (f"x**{number(node.parameter or 0.0)}", "base"),
            }.get(node.name, (node.name, "argument"))
            interval, text = _interval_text(argument, component), describe(self.graph, place, component)
            raise DomainError(f"{text}: its {part} ranges over {interval}, but {what} needs {domain.needs}")
        return Interval(*function.enclose(argument.low, argument.high, 0, node.parameter))

    def _expression(self, node: Expression) -> Interval:
        """Cell by cell; the whole box by the hull of the cells, and of pieces of the argument where there is one."""
        found = [self.found[argument] for argument in node.arguments]
        rows = []
        for row in range(node.size):
            lows, highs = (np.stack([getattr(each, end)[row] for each in found]) for end in ("low", "high"))
            low, high = program_range(node.program, lows, highs)
            if len(found) == 1:
                knots = np.linspace(lows[0, 0], highs[0, 0], PIECES + 1)
                pieces = program_range(node.program, knots[None, :-1], knots[None, 1:])
                low[0], high[0] = max(low[0], pieces[0].min()), min(high[0], pieces[1].max())
            rows.append(Interval(low, high))
        return stacked(rows)

    def _refuse_zero(self, node: Quotient) -> None:
        denominator = self.found[node.denominator]
        zero = (denominator.low[:, 0] <= 0.0) & (denominator.high[:, 0] >= 0.0)
        if zero.any():
            component = int(np.argmax(zero))
            text = describe(self.graph, len(self.found), component)
            interval = _interval_text(denominator, component)
            raise DomainError(
                f"{text}: its denominator ranges over {interval}, but division needs numbers other than 0"
            )

    def _refuse_overflow(self, place: int, component: int) -> None:
        text = describe(self.graph, place, component)
        raise DomainError(f"{text}: its values overflow double precision on this domain; choose a smaller domain")


def _anywhere(range_: Interval) -> Interval:
    """Another token may be in another cell: the range over the whole box, in every column."""
    columns = range_.low.shape[1]
    return Interval(*(np.repeat(end[:, :1], columns, axis=1) for end in (range_.low, range_.high)))


def _averaged(node: Average, scores: int, values: Interval) -> Interval:
    """Every mean lies between the values of its owner."""
    groups, width = average_shape(node, scores)
    low, high = (end.reshape(-1, node.keys, width, end.shape[-1]) for end in (values.low, values.high))
    owned = groups // len(low)
    ends = (np.repeat(end, owned, axis=0).reshape(node.size, -1) for end in (low.min(axis=1), high.max(axis=1)))
    return Interval(*ends)


def _hypotenuse(left: Interval, right: Interval) -> Interval:
    """Growing in both |left| and |right|; numpy's hypot is good to a unit in the last place, four are taken."""
    smallest = [
        np.where((each.low <= 0.0) & (each.high >= 0.0), 0.0, np.minimum(abs(each.low), abs(each.high)))
        for each in (left, right)
    ]
    low, high = np.hypot(*smallest), np.hypot(left.magnitude, right.magnitude)
    margin = 4.0 * np.finfo(np.float64).eps
    return Interval(np.maximum(low * (1.0 - margin), 0.0), high * (1.0 + margin))


def _trimmed(range_: Interval) -> Interval:
    """Column 0 (the whole box) cut down to the hull of the others, and the others cut down to column 0."""
    if range_.low.shape[1] == 1:
        return range_
    whole = Interval(range_.low[:, :1], range_.high[:, :1])
    cells = Interval(range_.low[:, 1:].min(axis=1, keepdims=True), range_.high[:, 1:].max(axis=1, keepdims=True))
    whole = intersected(cells, whole)
    return intersected(Interval(range_.low, range_.high), whole)


def _columns(box: Box, halvings: int) -> Interval:
    """The box, and cells that cover it: the wide inputs are cut in two in turn, `halvings` times in all."""
    wide = np.flatnonzero(box.high > box.low)
    halvings = halvings if len(wide) else 0
    cuts = np.bincount(wide[np.arange(halvings) % max(len(wide), 1)], minlength=box.size)
    low, high = (np.repeat(end[:, None], 1 + 2**halvings, axis=1) for end in (box.low, box.high))
    cells = np.arange(2**halvings)
    for coordinate in np.flatnonzero(cuts):
        count = 2 ** int(cuts[coordinate])
        knots = np.linspace(box.low[coordinate], box.high[coordinate], count + 1)
        low[coordinate, 1:], high[coordinate, 1:] = knots[cells % count], knots[cells % count + 1]
        cells = cells // count
    return Interval(low, high)


def _interval_text(range_: Interval, component: int) -> str:
    low, high = float(range_.low[component, 0]), float(range_.high[component, 0])
    return f"[{low:.6g}, {high:.6g}]"


ROOM = 1e-9
"""Ranges are wider by that share of their sizes: the kernel bounds another graph of the same function."""


def linear_ranges(graph: Graph, box: Box, found: Sequence[Interval]) -> tuple[Interval, ...]:
    """The ranges of all nodes, smaller where linear bounds are."""
    if not all(isinstance(node, Input | Affine | Relu) for node in graph.nodes):
        return tuple(found)
    better = find_linear(kernel_graph(graph), Known(box.low, box.high))
    if not better.slopes or better.ranges is None:
        return tuple(found)
    return tuple(_met(before, after) for before, after in zip(found, better.ranges, strict=True))


def _met(before: Interval, after: Known) -> Interval:
    room = ROOM * after.magnitude.value
    return Interval(np.maximum(before.low, after.low - room), np.minimum(before.high, after.high + room))
