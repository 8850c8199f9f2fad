"""Functions that are even or odd, up to a linear part: approximate them on one side only.

One gate p = max(x, 0) gives |x| = 2 p - x and max(-x, 0) = p - x.

Even:  f(x) = slope x + e(|x|): the inner circuit reads |x|. One more gate.

Odd:   f(x) = offset + o(x), o(-x) = -o(x), o >= 0 for x > 0. With v ~ o(|x|) a gated choice, one gate, turns the sign:
           out = offset + v - 2 min(v, C (p - x)),    C >= sup o(x) / x.
       Let |v - o| <= e. For x < 0 the minimum is v, as soon as v <= C |x|; while C |x| < v, out lies between -v and
       v - 2 o <= -o + e. For x >= 0 the minimum is min(v, 0): if v < 0, out = -v, and 0 <= o <= v + e gives
       |o + v| <= e. So the error is never more than e.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, embed, scalar
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.target import Target

EVEN = {"gaussian": 0.0, "cos": 0.0, "softplus": 0.5, "gelu": 0.5, "cosh": 0.0, "j0": 0.0}
ODD = {
    **dict.fromkeys(("tanh", "erf", "sin", "sinh", "tan", "arctan", "arcsin", "j1"), 0.0),
    "sigmoid": 0.5,
}
POSITIVE_UP_TO = {"sin": 3.0, "j1": 3.8}
"""Odd functions that are positive on a part of the positive line only."""


def even(inner: Fragment, slope: float, low: float, high: float) -> Fragment:
    """slope x + inner(|x|) on [low, high]. Guarantee: the error of `inner`. One more gate, one deeper."""
    builder = Builder(["x"])
    right = builder.relu(scalar(builder, [(builder.input, 1.0)]))
    size = scalar(builder, [(builder.input, -1.0), (right, 2.0)])
    value = embed(builder, inner.graph, size)
    if slope:
        line = scalar(builder, [(builder.input, slope)])
        value = scalar(builder, [(value, 1.0), (line, 1.0)])
    return Fragment("even", builder.graph(value), low, high, inner.error)


def odd(inner: Fragment, offset: float, steep: float, low: float, high: float) -> Fragment:
    """offset + sign(x) inner(|x|) on [low, high]. Guarantee: the error of `inner`. Two more gates, two deeper."""
    builder = Builder(["x"])
    right = builder.relu(scalar(builder, [(builder.input, 1.0)]))
    size = scalar(builder, [(builder.input, -1.0), (right, 2.0)])
    value = embed(builder, inner.graph, size)
    output = signed(builder, value, right, steep, offset)
    return Fragment("odd", builder.graph(output), low, high, inner.error)


def flipped(inner: Fragment, sign: float) -> Fragment:
    """sign inner(-x), for the other side of a function that is even or odd. Guarantee: the error of `inner`."""
    builder = Builder(["x"])
    value = embed(builder, inner.graph, scalar(builder, [(builder.input, -1.0)]))
    output = value if sign > 0.0 else scalar(builder, [(value, -1.0)])
    return Fragment("flipped", builder.graph(output), -inner.high, -inner.low, inner.error)


def signed(builder: Builder, value: int, right: int, steep: float, offset: float) -> int:
    """offset + v - 2 min(v, steep (p - x)), v = `value`, p = `right`: the sign of x given to v."""
    left = scalar(builder, [(builder.input, -steep), (right, steep)])
    gate = builder.relu(scalar(builder, [(left, 1.0), (value, -1.0)]))
    turned = scalar(builder, [(builder.input, 2.0 * steep), (right, -2.0 * steep), (gate, 2.0)], offset)
    return scalar(builder, [(value, 1.0), (turned, 1.0)])


Inner = Callable[[Target, float, float], list[Proposal]]


def mirror_proposals(target: Target, low: float, high: float, inner: Inner) -> list[Proposal]:
    """What `inner(target, 0, size)` proposes for one side, mirrored; nothing where there is no symmetry."""
    name, parameter = target.name, target.parameter
    whole = name == "power" and parameter is not None and float(parameter).is_integer()
    if whole and parameter is not None and high <= 0.0:
        sign = 1.0 if parameter % 2.0 == 0.0 else -1.0
        return [
            Proposal(each.gates, each.depth, partial(_flipped, each, sign))
            for each in inner(Target(name, parameter), -high, -low)
        ]
    if not low < 0.0 < high or (whole and parameter is not None and parameter < 3.0):
        return []
    size = max(-low, high)
    if name in EVEN or (whole and parameter is not None and parameter % 2.0 == 0.0):
        slope = EVEN.get(name, 0.0)
        half = Target(name, parameter, slope, 0.0)
        return [
            Proposal(each.gates + 1, each.depth + 1, partial(_even, each, slope, low, high))
            for each in inner(half, 0.0, size)
        ]
    if name in ODD or whole:
        offset = ODD.get(name, 0.0)
        half = Target(name, parameter, 0.0, offset)
        if size > POSITIVE_UP_TO.get(name, size):
            return []
        steep = _steepest(half, size)
        return [
            Proposal(each.gates + 2, each.depth + 2, partial(_odd, each, offset, steep, low, high))
            for each in inner(half, 0.0, size)
        ]
    return []


def _even(inner: Proposal, slope: float, low: float, high: float) -> Fragment:
    return even(inner.make(), slope, low, high)


def _flipped(inner: Proposal, sign: float) -> Fragment:
    return flipped(inner.make(), sign)


def _odd(inner: Proposal, offset: float, steep: float, low: float, high: float) -> Fragment:
    return odd(inner.make(), offset, steep, low, high)


def _steepest(target: Target, size: float) -> float:
    """C, a little more than sup o(x) / x on (0, size]."""
    x = size * np.concatenate([np.logspace(-6.0, -1.0, 200), np.linspace(0.1, 1.0, 200)])
    return 1.01 * float((target.value(x) / x).max())
