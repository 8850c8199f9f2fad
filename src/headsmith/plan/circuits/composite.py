"""sigmoid, tanh, softplus and the gaussian: exp with something before or behind it, as one fragment.

Errors that point one way are centred once, at the end, and not stage by stage. With B = exp's circuit, not centred,
the error B - e^-z is in e^-z [least, most] (exponential.py), and in [0, tail] beyond the clip:

  sigmoid   1/y at y = 1 + B. The slope is -1/y^2, and e^-z / (1 + e^-z)^2 <= 1/4: the error is in -[least, most]/4
            (or -tail at the clip) plus the error of 1/y. The sign is turned by the gated choice of mirror.py.
            tanh x = 2 sigmoid(2 x) - 1.
  softplus  max(x, 0) + ln(1 + B). The slope is 1/y, and e^-z / (1 + e^-z) <= 1/2: the error is in [least, most]/2
            (or the tail) plus the error of ln.
  gaussian  y = x^2 / 2 from the square, not centred, too large by at most D: the error is in [least - D, most].

For a domain that keeps away from 0, z >= start > 0, all of this is smaller by about e^-start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headsmith.core.functions import FUNCTIONS
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.plan.circuits.exponential import deviation, exponential
from headsmith.plan.circuits.fragment import Fragment, embed, scalar
from headsmith.plan.circuits.logarithm import logarithm
from headsmith.plan.circuits.mirror import signed
from headsmith.plan.circuits.radix import cells_of
from headsmith.plan.circuits.reciprocal import reciprocal
from headsmith.plan.circuits.square import square

STEEP = 1.01
COARSE = 0.1
Split = tuple[int, ...]


@dataclass(frozen=True)
class Decay:
    """How e^-z is computed for z in [start, stop]: levels of halving, clip at start + reach, radices of the bubble."""

    start: float
    stop: float
    levels: int
    reach: float
    split: Split

    @property
    def clipped(self) -> int:
        return int(self.reach < self.stop - self.start)

    @property
    def gates(self) -> int:
        return 2 * self.levels + sum(self.split) - len(self.split) + self.clipped

    @property
    def depth(self) -> int:
        return 2 * self.levels + len(self.split) + self.clipped

    @property
    def cell(self) -> float:
        return min(self.reach, self.stop - self.start) / 2.0**self.levels

    @property
    def deviation(self) -> tuple[float, float, float]:
        """least and most of the error over e^-z, and the tail."""
        tail = math.exp(-self.start - self.reach) if self.clipped else 0.0
        return (*deviation(self.cell, cells_of(self.split)), tail)

    def place(self, builder: Builder, argument: int) -> int:
        """B as a node, from a node that holds -z."""
        circuit = exponential(-self.stop, -self.start, self.levels, self.reach, self.split, centred=False)
        return embed(builder, circuit.graph, argument)


def slope_peak(name: str, start: float, cell: float = 0.0) -> float:
    """How much of an error of B on its first cell reaches 1/(1 + e^-z) or ln(1 + e^-z), z >= start, as a share of it.

    The error counts from e^-start and is largest about the middle of the cell, where the slope is 1/y^2 or 1/y.
    """
    small = math.exp(-start)
    y = 1.0 + small * math.exp(-0.5 * cell)
    return small / y if name == "softplus" else small / y**2


def logistic(name: str, low: float, high: float, decay: Decay, split: Split) -> Fragment:
    """sigmoid or tanh on [low, high] from e^-z, z = |x| or 2|x|, and 1/y with the given radices.

    Guarantee: |out - f| <= gain ((max(most/4, tail) - least/4) / 2 + R^2 y_2 / (8 N^2)), to first order in the error of
    e^-z; gain = 1 or 2, R = 1/y_1 - 1/y_2 on y in [y_1, y_2].
    """
    gain, offset, speed = (1.0, 0.5, 1.0) if name == "sigmoid" else (2.0, 0.0, 2.0)
    builder = Builder(["x"])
    right, argument = _minus_size(builder, low, high, speed)
    falling = decay.place(builder, argument)
    inverse = reciprocal(1.0 + math.exp(-decay.stop), 1.0 + math.exp(-decay.start), split)
    y = scalar(builder, [(falling, 1.0)], 1.0)
    least, most, tail = decay.deviation
    # The error of 1/y is in -[peak least, max(peak most, tail)] and the reciprocal's own: move up by half of it.
    peak = slope_peak(name, decay.start, decay.cell)
    below, above = max(peak * most, tail), -peak * least
    value = scalar(builder, [(embed(builder, inverse.graph, y), gain)], gain * (0.5 * (below - above) - 0.5))
    if right is not None:
        output = signed(builder, value, right, STEEP * gain * speed * 0.25, offset)
    else:
        output = scalar(builder, [(value, 1.0 if high > 0.0 else -1.0)], offset)
    error = gain * (0.5 * (below + above) + inverse.error)
    return _fragment(name, low, high, decay, builder, output, error)


def softplus(low: float, high: float, decay: Decay, levels: int, split: Split) -> Fragment:
    """ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|) on [low, high].

    Guarantee: |out - f| <= (max(most/2, tail) - least/2) / 2 + the error of ln on [1 + e^-stop, 1 + e^-start].
    """
    builder = Builder(["x"])
    right, argument = _minus_size(builder, low, high, 1.0)
    falling = decay.place(builder, argument)
    log = logarithm(1.0 + math.exp(-decay.stop), 1.0 + math.exp(-decay.start), levels, split)
    value = embed(builder, log.graph, scalar(builder, [(falling, 1.0)], 1.0))
    least, most, tail = decay.deviation
    peak = slope_peak("softplus", decay.start, decay.cell)
    above, below = max(peak * most, tail), -peak * least
    terms: list[tuple[int, float]] = []
    if right is not None:
        terms = [(right, 1.0)]
    elif high > 0.0:
        terms = [(builder.input, 1.0)]
    moved = scalar(builder, terms, 0.5 * (below - above))
    output = scalar(builder, [(value, 1.0), (moved, 1.0)])
    error = 0.5 * (above + below) + log.error
    return _fragment("softplus", low, high, decay, builder, output, error)


def gaussian(low: float, high: float, decay: Decay, clip: float, split: Split) -> Fragment:
    """exp(-x^2 / 2) on [low, high], x cut to [-clip, clip] first where the domain is wider.

    Guarantee: |out - f| <= (max(most, tail) - least + D) / 2, D = w^2 / (8 N^2), w the width of the cut domain.
    """
    builder = Builder(["x"])
    argument, left, width = builder.input, max(low, -clip), min(high, clip) - max(low, -clip)
    if low < -clip or high > clip:
        argument = _cut(builder, low, high, clip)
    circuit = square(left, left + width, split, centred=False)
    y = scalar(builder, [(embed(builder, circuit.graph, argument), -0.5)])
    falling = decay.place(builder, y)
    least, most, _ = decay.deviation
    excess = 0.5 * circuit.error
    tail = math.exp(-decay.stop) if low < -clip or high > clip else 0.0
    top = math.exp(-decay.start)
    above, below = max(top * most, tail), top * (excess - least)
    output = scalar(builder, [(falling, 1.0)], 0.5 * (below - above))
    return _fragment("gaussian", low, high, decay, builder, output, 0.5 * (above + below))


def _cut(builder: Builder, low: float, high: float, clip: float) -> int:
    """x cut to [-clip, clip], with a gate only where the domain goes beyond."""
    if low >= -clip:
        over = builder.relu(scalar(builder, [(builder.input, 1.0)], -clip))
        return scalar(builder, [(builder.input, 1.0), (over, -1.0)])
    from_left = builder.relu(scalar(builder, [(builder.input, 1.0)], clip))
    if high <= clip:
        return scalar(builder, [(from_left, 1.0)], -clip)
    over = builder.relu(scalar(builder, [(builder.input, 1.0)], -clip))
    return scalar(builder, [(from_left, 1.0), (over, -1.0)], -clip)


def _minus_size(builder: Builder, low: float, high: float, speed: float) -> tuple[int | None, int]:
    """The gate max(x, 0) where x has both signs, and the node -speed |x|."""
    if low < 0.0 < high:
        right = builder.relu(scalar(builder, [(builder.input, 1.0)]))
        return right, scalar(builder, [(builder.input, speed), (right, -2.0 * speed)])
    return None, scalar(builder, [(builder.input, -speed if high > 0.0 else speed)])


def _fragment(
    name: str, low: float, high: float, decay: Decay, builder: Builder, output: int, error: float
) -> Fragment:
    graph = builder.graph(output)
    # Where cells are coarse the estimate, which is of first order, may fall short.
    if decay.cell > COARSE:
        error = max(error, 1.03 * _measured(name, graph, low, high, decay))
    return Fragment(name, graph, low, high, error)


def _measured(name: str, graph: Graph, low: float, high: float, decay: Decay) -> float:
    """The largest error at many places of the span of exp, on both sides, and at the ends."""
    z = np.linspace(decay.start, decay.start + 1.2 * min(decay.reach, decay.stop - decay.start), 1501)
    size = np.sqrt(2.0 * z) if name == "gaussian" else 0.5 * z if name == "tanh" else z
    x = np.concatenate([size, -size, [low, high]])
    x = x[(x >= low) & (x <= high)]
    return float(np.abs(evaluate(graph, x[:, None])[:, 0] - FUNCTIONS[name].value(x)).max())
