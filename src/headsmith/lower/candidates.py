"""What could stand in for one non-linear node of the target: circuits at an asked error, cheapest first, or a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headsmith.circuits.assemble import Choice
from headsmith.circuits.options import options
from headsmith.circuits.radix import cells_of, radices
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval
from headsmith.core.program import Call
from headsmith.source.graph import Approximated, Expression, Function, Graph, Hypotenuse, Product, Quotient
from headsmith.source.node_programs import program_of

MARGIN = 0.994
"""The proof of a fragment is a little looser than its estimate: ask the catalogue for that much less."""


MOST_PIECES = 1 << 19
"""Circuits of more pieces are not compared with their function: the kernel refuses them."""


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
        Option(Choice(each.family, each.parameters), each.gates * size, each.depth, each.error / MARGIN)
        for each in found
    ]


def _power_of_two(value: float) -> float:
    return float(2.0 ** round(math.log2(value))) if value > 0.0 and math.isfinite(value) else 1.0


def _square(interval: tuple[float, float], split: tuple[int, ...]) -> dict[str, Any]:
    return {"low": interval[0], "high": interval[1], "radices": list(split)}


def _products(left: Interval, right: Interval, error: float, max_depth: int | None, size: int) -> list[Option]:
    """Two squares of width w = c w_x + w_y, each off by at most (w / N)^2 / 8: in all w^2 / (16 c N^2)."""
    spans = [float(np.max(side.high) - np.min(side.low)) for side in (left, right)]
    balance = _power_of_two(spans[1] / spans[0]) if min(spans) > 0.0 else 1.0
    ends = {}
    for part, sign in (("plus", 1.0), ("minus", -1.0)):
        other = (right.low, right.high) if sign > 0.0 else (-right.high, -right.low)
        ends[part] = (
            float(np.min(balance * left.low + other[0])),
            float(np.max(balance * left.high + other[1])),
        )
    width = max(high - low for low, high in ends.values())
    found = []
    for split in radices(width / (4.0 * math.sqrt(max(balance * MARGIN * error, 1e-300))), max_depth):
        cells = cells_of(split)
        if cells > MOST_PIECES:
            continue
        parameters = {"balance": balance, **{part: _square(interval, split) for part, interval in ends.items()}}
        gates = 2 * size * sum(radix - 1 for radix in split)
        achieved = (width / cells) ** 2 / (16.0 * balance) / MARGIN
        found.append(Option(Choice("product", parameters), gates, len(split), achieved))
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
    for part, move in (("plus", shift), ("minus", -shift)):
        corners = [(x + move) / y for x in top for y in ends]
        ratios[part] = (float(np.min(corners)), float(np.max(corners)))
    largest = float(np.max(ends[1]))
    spread = sum((high - low) ** 2 for low, high in ratios.values())
    found = []
    for split in radices(math.sqrt(largest * spread / (32.0 * shift * MARGIN * error)), max_depth):
        cells = cells_of(split)
        if cells > MOST_PIECES:
            continue
        squares = {part: _square(interval, split) for part, interval in ratios.items()}
        gates = 2 * size * sum(radix - 1 for radix in split)
        achieved = largest * spread / (32.0 * shift * cells**2) / MARGIN
        found.append(Option(Choice("quotient", {"sign": sign, "shift": shift, **squares}), gates, len(split), achieved))
    return found
