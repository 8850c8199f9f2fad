"""Where a student is trained, chosen and judged: three sets of inputs that share no point by design.

    train         a Chebyshev product grid (one or two inputs), random points and corners beyond; for sequences random
                  sequences; full batch always
    validation    random points: what chooses among rates' and stages' results
    test          a dense grid: what is reported. An estimate from below of the largest error

A target with kinks needs more. Errors of a sharp head live in a strip of width 1/scale beside a kink, between the
points of any grid, and training puts them there. So each set has points beside kinks too: a random segment of the box
is cut where a gate of the target changes sign (bisection), and points lie on both sides, at distances that are
log-uniform down to 1e-9 of the segment: whatever scale training chooses, some of them are in its strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.evaluation import evaluate, node_values
from headsmith.language.graph import Graph, Maximum, Minimum, Relu

NEAREST = 1e-9
"""The distances from a kink, as shares of a segment, are log-uniform from here to 1."""
GRID = {1: 20_001, 2: 301, 3: 57}
"""Points along each side of the test grid."""
SCATTERED, BESIDE = 50_000, 20_000
"""Random test points where there is no grid; test points beside kinks."""


@dataclass(frozen=True, eq=False)
class Points:
    """Inputs (N, m, inputs) with what is wanted there (N, m, outputs)."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, eq=False)
class Field:
    """A target on a box, for sequences of `tokens` (one: token by token)."""

    graph: Graph
    low: Array
    high: Array
    tokens: int = 1

    def at(self, x: Array) -> Points:
        """These inputs, with the target's values in extended precision, rounded to float64."""
        return Points(x, np.asarray(evaluate(self.graph, x, np.longdouble), dtype=np.float64))

    def train(self, count: int, seed: int = 0) -> Points:
        """`count` points, and half as many beside kinks if there are any."""
        inputs = len(self.low)
        if self.tokens > 1 or inputs > 2:
            return self.at(np.concatenate([self._random(count, seed), self.beside_kinks(count, seed)]))
        side = count if inputs == 1 else round(count**0.5)
        nodes = -np.cos(np.pi * (np.arange(side) + 0.5) / side)
        grid = self._scaled(np.stack(np.meshgrid(*[nodes] * inputs, indexing="ij"), -1).reshape(-1, 1, inputs))
        return self.at(np.concatenate([grid, self.beside_kinks(count // 2, seed)]))

    def even(self, count: int = 2048) -> Points:
        """Random points, none of them beside kinks by design: what averages over inputs are about."""
        return self.at(self._random(count, 4))

    def validation(self, count: int = 2048, seed: int = 1) -> Points:
        """Random points and corners, and half as many beside kinks if there are any."""
        return self.at(np.concatenate([self._random(count, seed), self.beside_kinks(count // 2, seed)]))

    def test(self, seed: int = 2) -> Points:
        """A dense grid, or random points where that would be too many; and points beside kinks if there are any."""
        inputs = len(self.low)
        if self.tokens > 1 or inputs not in GRID:
            return self.at(np.concatenate([self._random(SCATTERED, seed), self.beside_kinks(BESIDE, seed)]))
        nodes = np.linspace(-1.0, 1.0, GRID[inputs])
        grid = self._scaled(np.stack(np.meshgrid(*[nodes] * inputs, indexing="ij"), -1).reshape(-1, 1, inputs))
        return self.at(np.concatenate([grid, self.beside_kinks(BESIDE, seed)]))

    def beside_kinks(self, count: int, seed: int) -> Array:
        """At most `count` points beside zeros of the target's gates, on random segments; none for a smooth target."""
        random, inputs = np.random.default_rng([seed, 7]), len(self.low)
        empty = np.empty((0, self.tokens, inputs))
        if self.tokens > 1 or not switches(self.graph, 0.5 * (self.low + self.high)[None]).size:
            return empty
        starts, ends = (self._random(4 * count, [seed, each])[:, 0] for each in (8, 9))
        values = [switches(self.graph, each) for each in (starts, ends)]
        crossed = (values[0] < 0.0) != (values[1] < 0.0)
        segment = np.flatnonzero(crossed.any(axis=1))[: count // 2]
        if not len(segment):
            return empty
        # One of the gates that change sign on the segment, at random.
        gate = np.argmax(crossed[segment] * random.random((len(segment), crossed.shape[1])), axis=1)
        start, span, each = starts[segment], (ends - starts)[segment], np.arange(len(segment))
        left, right = np.zeros(len(segment)), np.ones(len(segment))
        below = values[0][segment, gate] < 0.0
        for _ in range(60):
            middle = 0.5 * (left + right)
            same = (switches(self.graph, start + middle[:, None] * span)[each, gate] < 0.0) == below
            left, right = np.where(same, middle, left), np.where(same, right, middle)
        away = NEAREST ** random.random((2, len(segment)))
        places = np.clip(np.concatenate([left - away[0], right + away[1]]), 0.0, 1.0)
        found = np.tile(start, (2, 1)) + places[:, None] * np.tile(span, (2, 1))
        return np.asarray(np.clip(found, self.low, self.high)[:, None])

    def _random(self, count: int, seed: int | list[int]) -> Array:
        """Uniform points; an eighth of them have coordinates moved to sides of the box."""
        random = np.random.default_rng(seed)
        share = random.uniform(-1.0, 1.0, (count, self.tokens, len(self.low)))
        moved = (np.arange(count) % 8 == 0)[:, None, None] & (random.random(share.shape) < 0.7)
        return self._scaled(np.where(moved, np.sign(share), share))

    def _scaled(self, share: Array) -> Array:
        """From [-1, 1] to the box."""
        middle, half = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        return np.asarray(np.clip(middle + half * share, self.low, self.high))


def switches(graph: Graph, points: Array) -> Array:
    """Values that change sign where the target has a kink: arguments of gates, differences of arguments of maxima and
    minima, (points, kinks)."""
    values, found = node_values(graph, points), [np.empty((len(points), 0))]
    for node in graph.nodes:
        match node:
            case Relu(argument=argument):
                found.append(values[argument])
            case Maximum(arguments=arguments) | Minimum(arguments=arguments):
                pairs = [(one, two) for place, one in enumerate(arguments) for two in arguments[place + 1 :]]
                found += [values[one] - values[two] for one, two in pairs]
            case _:
                pass
    return np.concatenate(found, axis=1)
