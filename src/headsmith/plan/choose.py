"""Splitting the approximation budget over the non-linear nodes of a target, and choosing a circuit for each.

An error e_n at node n moves output o by at most g_on e_n. Find the choices with the fewest gates such that sum_n g_on
e_n <= budget for every output (and the depth stays within `max_layers`). Gates grow with log(1/e_n) or with a power of
1/e_n, in steps. So: give every node the same share, take the cheapest circuit for it, then hand what the steps left
over to the node where it saves most gates, until nothing is saved any more. The gains are the kernel's, for estimates
of slopes; the proven approximation part then corrects the budget (plan/design.py).

`candidates` has what could stand for one node: circuits at an asked error, cheapest first; `analytic` says whether a
table could.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import UnreachableError
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval
from headsmith.core.program import Call
from headsmith.core.program_slopes import program_slopes
from headsmith.kernel.core.arithmetic import Upper
from headsmith.language.builder import program_of
from headsmith.language.describe import describe
from headsmith.language.graph import (
    Affine,
    Approximated,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Mixing,
    Node,
    Pool,
    Product,
    Quotient,
    Relu,
    arguments,
    once_for_graph,
)
from headsmith.plan.analysis.flow import Flow, flow_of, known_of_target
from headsmith.plan.circuits.assemble import HALVES, Choice, Square
from headsmith.plan.circuits.options import options
from headsmith.plan.circuits.radix import cells_of, radices

ROUNDS = 200
LARGEST_ERROR = 1e6

MARGIN = 0.994
"""The proof of a fragment is a little looser than its estimate: ask the catalogue for that much less."""

MOST_PIECES = 1 << 19
"""Circuits of more pieces are not compared with their function: the kernel refuses them."""


# What could stand for one node ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """A choice with its cost and its estimated error."""

    choice: Choice
    gates: int
    depth: int
    error: float


def analytic(target: Graph, found: Sequence[Interval], number: int) -> bool:
    """Whether a table could stand for the node: no singular end of a domain within the range of its argument."""
    node = target.nodes[number]
    if not isinstance(node, Approximated):
        return False
    program, variables = program_of(node)
    low, high = ([float(np.min(found[v].low)) for v in variables], [float(np.max(found[v].high)) for v in variables])
    match program.steps:
        case (Call(name=name, parameter=parameter),):
            function = FUNCTIONS[name]
            return function.domain(parameter).contains_neighbourhood(low[0], high[0])
    if len(variables) == 2 and not isinstance(node, Expression):
        touches = all(a <= 0.0 <= b for a, b in zip(low, high, strict=True))
        return not (isinstance(node, Hypotenuse) and touches)
    return True


def candidates(
    target: Graph, node: Approximated, found: Sequence[Interval], error: float, max_depth: int | None = None
) -> list[Option]:
    """Options within `error`, Pareto-optimal in (gates, depth), fewest gates first; empty where there are none."""
    match node:
        case Function():
            argument = found[node.argument]
            low, high = float(argument.low.min()), float(argument.high.max())
            return _functions(node.name, node.parameter, low, high, _floor(error), max_depth, node.size)
        case Hypotenuse():
            # Three gates besides: two absolute values and one comparison, which take two layers.
            largest = max(float(found[side].magnitude.max()) for side in (node.left, node.right)) or 1.0
            depth = None if max_depth is None else max_depth - 2
            inner = _functions("hypotenuse", None, 0.0, 1.0, _floor(error / largest), depth, node.size)
            return [
                Option(each.choice, each.gates + 3 * node.size, each.depth + 2, each.error * largest) for each in inner
            ]
        case Product():
            return _products(found[node.left], found[node.right], error, max_depth, node.size)
        case Quotient():
            return _quotients(found[node.numerator], found[node.denominator], error, max_depth, node.size)
        case Expression():
            return []


def _floor(error: float) -> float:
    """`error` rounded down to three digits, so that nearly equal questions are asked once."""
    exponent = math.floor(math.log10(error)) - 2
    return float(math.floor(error / 10.0**exponent) * 10.0**exponent)


@lru_cache(maxsize=4096)
def _functions(
    name: str, parameter: float | None, low: float, high: float, error: float, max_depth: int | None, size: int
) -> list[Option]:
    found = options(name, parameter, low, high, MARGIN * error, max_depth=max_depth)
    return [
        Option(Choice(each.family, fragments=(each,)), each.gates * size, each.depth, each.error / MARGIN)
        for each in found
    ]


def _power_of_two(value: float) -> float:
    return float(2.0 ** round(math.log2(value))) if value > 0.0 and math.isfinite(value) else 1.0


def _splits(cells: float, max_depth: int | None) -> list[tuple[int, ...]]:
    """Into how many cells each layer may split those before it; without layers, one cell is all that there is."""
    return [] if max_depth == 0 and cells > 1.0 else radices(cells, max_depth)


def _products(left: Interval, right: Interval, error: float, max_depth: int | None, size: int) -> list[Option]:
    """Two squares of width w = c w_x + w_y, each off by at most (w / N)^2 / 8: in all w^2 / (16 c N^2)."""
    spans = [float(np.max(side.high) - np.min(side.low)) for side in (left, right)]
    balance = _power_of_two(spans[1] / spans[0]) if min(spans) > 0.0 else 1.0
    ends = {}
    for part, sign in zip(HALVES, (1.0, -1.0), strict=True):
        other = (right.low, right.high) if sign > 0.0 else (-right.high, -right.low)
        ends[part] = (
            float(np.min(balance * left.low + other[0])),
            float(np.max(balance * left.high + other[1])),
        )
    width = max(high - low for low, high in ends.values())
    found = []
    for split in _splits(width / (4.0 * math.sqrt(max(balance * MARGIN * error, 1e-300))), max_depth):
        cells = cells_of(split)
        if cells > MOST_PIECES:
            continue
        squares = tuple(Square(*ends[part], split) for part in HALVES)
        gates = 2 * size * sum(radix - 1 for radix in split)
        achieved = (width / cells) ** 2 / (16.0 * balance) / MARGIN
        found.append(Option(Choice("product", None, squares, {"balance": balance}), gates, len(split), achieved))
    return found


def _quotients(
    numerator: Interval, denominator: Interval, error: float, max_depth: int | None, size: int
) -> list[Option]:
    """Two perspectives y q(s / y), s = x +- Z, each off by at most y (w / N)^2 / 8, w the width of the ratio; over 4
    Z."""
    sign = 1.0 if denominator.low.min() > 0.0 else -1.0
    ends = (denominator.low, denominator.high) if sign > 0.0 else (-denominator.high, -denominator.low)
    top = (numerator.low, numerator.high) if sign > 0.0 else (-numerator.high, -numerator.low)
    shift = _power_of_two(float(np.max(numerator.magnitude)))
    ratios = {}
    for part, move in zip(HALVES, (shift, -shift), strict=True):
        corners = [(x + move) / y for x in top for y in ends]
        ratios[part] = (float(np.min(corners)), float(np.max(corners)))
    largest = float(np.max(ends[1]))
    spread = sum((high - low) ** 2 for low, high in ratios.values())
    numbers, found = {"sign": sign, "shift": shift}, list[Option]()
    for split in _splits(math.sqrt(largest * spread / (32.0 * shift * MARGIN * error)), max_depth):
        cells = cells_of(split)
        if cells > MOST_PIECES:
            continue
        squares = tuple(Square(*ratios[part], split) for part in HALVES)
        gates = 2 * size * sum(radix - 1 for radix in split)
        achieved = largest * spread / (32.0 * shift * cells**2) / MARGIN
        found.append(Option(Choice("quotient", None, squares, numbers), gates, len(split), achieved))
    return found


# What stands for all of them ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """The chosen options, by target node."""

    options: Mapping[int, Option]

    @property
    def choices(self) -> dict[int, Choice]:
        return {number: option.choice for number, option in self.options.items()}

    @property
    def gates(self) -> int:
        return sum(option.gates for option in self.options.values())


class Chooser:
    """Chooses circuits for one target, for one budget after another."""

    def __init__(self, target: Graph, found: Sequence[Interval], max_layers: int | None = None) -> None:
        self.target, self.found, self.max_layers = target, found, max_layers
        self.order = target.used
        self.nodes = [n for n in self.order if isinstance(target.nodes[n], Approximated)]
        self.gains = target_gains(target, found, self.nodes)
        self.excluded: dict[int, set[str]] = {number: set() for number in self.nodes}
        self.budget = 0.0
        self.last: Plan | None = None

    def choose(self, budget: float) -> Plan:
        """A circuit for every non-linear node, with estimated total error at most `budget` at every output."""
        self.budget = budget
        caps = dict.fromkeys(self.nodes, self.max_layers)
        picked = self._pick(caps)
        while self.max_layers is not None and self._depth(picked) > self.max_layers:
            caps = self._lower_caps(caps, picked)
            picked = self._pick(caps)
        self.last = Plan(picked)
        return self.last

    def with_margins(self, plan: Plan, inputs: Array, room: float) -> dict[int, Choice]:
        """The choices, each with a margin of `room` times the errors that its arguments are expected to have,
        where that is possible: the softmax and rounding parts come on top of the estimate."""
        off: dict[int, Array] = {}
        own: dict[int, Array] = {}
        norms: dict[int, float] = {}
        choices: dict[int, Choice] = {}
        if not self.nodes:
            return choices
        flow = target_flow(self.target, tuple(self.found))
        for number in self.order:
            node = self.target.nodes[number]
            arrived = flow.arriving(number, off, own, norms)
            own[number] = inputs if isinstance(node, Input) else committed(node, self.found[number])
            if isinstance(node, Relu | Maximum | Minimum | Pool):
                steepest = flow.gains[number].anywhere.size.value if number in flow.gains else np.zeros(1)
                own[number] = own[number] + softmax_share(self.budget, steepest, self.found[number])
            if number in plan.options:
                option = plan.options[number]
                margin = room * max(float(np.max(off[argument])) for argument in arguments(node))
                if margin > 0.0:
                    # Whatever was computed was also rounded.
                    size = max(float(np.max(self.found[argument].magnitude)) for argument in arguments(node))
                    margin += 1e-12 * (1.0 + size)
                choices[number] = replace(
                    option.choice, margin=possible_margin(self.target, self.found, number, margin)
                )
                own[number] = own[number] + option.error
            off[number] = arrived + own[number]
        return choices

    def exclude(self, number: int) -> None:
        """Never again choose the family that was chosen last for this node."""
        assert self.last is not None
        self.excluded[number].add(self.last.options[number].choice.family)

    def _pick(self, caps: Mapping[int, int | None]) -> dict[int, Option]:
        share = self.budget / max(len(self.nodes), 1)
        picked = {}
        for number in self.nodes:
            largest = float(np.max(self.gains[number]))
            allowed = share / largest if largest > 0.0 else self.budget
            picked[number] = self._cheapest(number, allowed, caps[number])
        for _ in range(ROUNDS):
            better = self._improvement(picked, caps)
            if better is None:
                return picked
            picked[better[0]] = better[1]
        return picked

    def _improvement(self, picked: dict[int, Option], caps: Mapping[int, int | None]) -> tuple[int, Option] | None:
        """The node that saves most gates when it receives all that is left over."""
        left = self.budget - sum((self.gains[number] * option.error for number, option in picked.items()), 0.0)
        best: tuple[int, tuple[int, Option]] | None = None
        for number, option in picked.items():
            gain = self.gains[number]
            if not gain.any():
                continue
            with np.errstate(divide="ignore"):
                extra = float(np.min(np.where(gain > 0.0, left / gain, np.inf)))
            if extra <= 1e-3 * option.error:
                continue
            other = self._cheapest(number, option.error + extra, caps[number])
            saved = option.gates - other.gates
            if saved > 0 and (best is None or saved > best[0]):
                best = (saved, (number, other))
        return best[1] if best else None

    def _cheapest(self, number: int, allowed: float, cap: int | None) -> Option:
        node = self._approximated(number)
        # What nothing reads may be off by anything: a number is enough.
        found = candidates(self.target, node, self.found, min(allowed, LARGEST_ERROR), cap)
        found = [option for option in found if option.choice.family not in self.excluded[number]]
        limit = "" if cap is None else f" and {cap} layers"
        return cheapest(found, f"no ReLU circuit for {describe(self.target, number)}", allowed, limit)

    def _approximated(self, number: int) -> Approximated:
        node = self.target.nodes[number]
        assert isinstance(node, Approximated)
        return node

    def _levels(self, picked: Mapping[int, Option]) -> dict[int, int]:
        levels: dict[int, int] = {}
        for number in self.order:
            node = self.target.nodes[number]
            below = max((levels[argument] for argument in self.target.reads[number]), default=0)
            match node:
                case Relu():
                    levels[number] = below + 1
                case Maximum() | Minimum():
                    levels[number] = below + math.ceil(math.log2(len(node.arguments)))
                case Function() | Product() | Quotient() | Hypotenuse() | Expression():
                    levels[number] = below + picked[number].depth
                case Input() | Affine():
                    levels[number] = below
        return levels

    def _depth(self, picked: Mapping[int, Option]) -> int:
        return self._levels(picked)[self.target.output]

    def _lower_caps(self, caps: Mapping[int, int | None], picked: Mapping[int, Option]) -> dict[int, int | None]:
        """Take a level from the deepest circuit on a longest path."""
        levels = self._levels(picked)
        path, number = [], self.target.output
        while self.target.reads[number]:
            if number in picked:
                path.append(number)
            number = max(self.target.reads[number], key=levels.__getitem__)
        deepest = max(path, key=lambda each: picked[each].depth, default=None)
        if deepest is None or picked[deepest].depth <= 1:
            raise UnreachableError(
                f"max_layers={self.max_layers} cannot be met: the target needs at least {self._depth(picked)} layers",
                part="approximation",
                smallest=math.inf,
            )
        return {**caps, deepest: picked[deepest].depth - 1}


def possible_margin(target: Graph, found: Sequence[Interval], number: int, margin: float) -> float | None:
    """The margin of a circuit, if the function is smooth on the widened ranges, and these are not much wider."""
    node = target.nodes[number]
    wide = [found[argument].inflated(np.full(node.size, margin)) for argument in arguments(node)]
    width = min(float(np.min(each.high - each.low)) for each in wide)
    if len(set(arguments(node))) < len(arguments(node)) or margin > 0.02 * width:
        return None
    if isinstance(node, Quotient) and np.any((wide[1].low <= 0.0) & (wide[1].high >= 0.0)):
        return None
    if isinstance(node, Function):
        domain = FUNCTIONS[node.name].domain(node.parameter)
        slope = FUNCTIONS[node.name].enclose(wide[0].low, wide[0].high, 1, node.parameter)
        if not (np.all(domain.covers(wide[0].low, wide[0].high)) and np.isfinite(slope).all()):
            return None
    return margin


@once_for_graph
def target_flow(target: Graph, found: tuple[Interval, ...]) -> Flow:
    """How errors will travel through a target, whatever stands for its nodes: by estimates of their slopes."""
    slopes = {
        number: _slopes(node, found)
        for number, node in enumerate(target.nodes)
        if isinstance(node, Function | Expression)
    }
    return flow_of(known_of_target(target), found, slopes)


def target_gains(target: Graph, found: Sequence[Interval], numbers: Sequence[int]) -> dict[int, Array]:
    """For these nodes, how far an error of 1 in every component moves each output."""
    moved = dict.fromkeys(numbers, np.zeros(target.nodes[target.output].size))
    every = target_flow(target, tuple(found)).gains if moved else {}
    for number in every.keys() & moved.keys():
        moved[number] = every[number].carried(Upper(np.ones(target.nodes[number].size))).value
    return moved


def cheapest(found: Sequence[Option], nothing: str, allowed: float, limit: str = "") -> Option:
    """The first of the options, or UnreachableError that says what there is `nothing` of."""
    if not found:
        raise UnreachableError(
            f"{nothing} within {allowed:.3g}{limit}: ask for a larger error, a smaller domain, or more layers",
            part="approximation",
            smallest=math.inf,
        )
    return found[0]


def committed(node: Node, found: Interval) -> Array:
    """What heads that look at other tokens round."""
    return 1e-11 * (1.0 + found.magnitude) if isinstance(node, Mixing) else np.zeros(node.size)


def softmax_share(budget: float, gain: Array, found: Interval) -> Array:
    """What a node that is exact but for the softmax error of its gates may be off by: some of the budget, as it sees
    that, and no more than what it is itself."""
    share = 0.05 * budget / max(float(np.max(gain)), 1e-100)
    return np.asarray(np.minimum(share, 1.0 + found.magnitude))


def _slopes(node: Function | Expression, found: Sequence[Interval]) -> tuple[Interval, ...]:
    """Estimates of the slopes of a node by each argument; of functions, looking slightly inside where they are infinite
    at an end; of expressions, the same for all components."""
    around = [found[argument] for argument in arguments(node)]
    if isinstance(node, Function):
        (argument,) = around
        for inside in (0.0, 1e-6, 1e-3):
            margin = inside * (argument.high - argument.low)
            ends = argument.low + margin, argument.high - margin
            below, above = FUNCTIONS[node.name].enclose(*ends, 1, node.parameter)
            if np.isfinite(below).all() and np.isfinite(above).all():
                break
        return (_bounded(below, above),)
    box = [(float(each.low.min()), float(each.high.max())) for each in around]
    pairs = program_slopes(node.program, box)
    return tuple(_bounded(np.full(node.size, below), np.full(node.size, above)) for below, above in pairs)


def _bounded(low: Array, high: Array) -> Interval:
    """The slopes, or those of size 1 where none are known."""
    known = np.isfinite(low) & np.isfinite(high)
    return Interval(np.where(known, low, -1.0), np.where(known, high, 1.0))
