"""Where a model errs most: beside the zeros of its gates' arguments, found by walking through the domain.

A sink head of scale b errs most where its argument is (1 + W(1/e))/b away from zero: its offset. Between the zeros,
arguments are affine functions of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.balls import gate_constant
from headsmith.language.evaluation import node_values
from headsmith.language.graph import Affine, Graph, Relu
from headsmith.model import Compiled
from headsmith.transformer.heads.attentions import PEAKS
from headsmith.transformer.heads.sink import SinkBank

HELD = 4_000_000
"""How many arguments are held at once."""


@dataclass(frozen=True, eq=False)
class Kinks:
    """The gates of a model that have a sink head: the circuit, where each stands among its gates, and its offset."""

    circuit: Graph
    places: Indices
    offsets: Array

    def __len__(self) -> int:
        return len(self.offsets)

    def arguments(self, points: Array) -> Array:
        """The gates' arguments at `points` (..., inputs), shape (..., kinks)."""
        values = node_values(self.circuit, points)
        found = [values[node.argument] for node in self.circuit.nodes if isinstance(node, Relu)]
        return np.asarray(np.concatenate(found, axis=-1)[..., self.places])

    def pulls(self, points: Array, outputs: Array) -> Array:
        """How much the gates' values move a combination of outputs, `outputs` (points, outputs), at each of the points:
        (points, kinks). What is neither affine nor a gate is taken not to move."""
        nodes, values = self.circuit.nodes, node_values(self.circuit, points)
        pulled = [np.zeros((len(points), node.size)) for node in nodes]
        pulled[self.circuit.output] = outputs
        for number in range(self.circuit.output, -1, -1):
            match nodes[number]:
                case Affine(terms=terms):
                    for term in terms:
                        own = pulled[number]
                        pulled[term.node] = pulled[term.node] + (
                            own * term.weights if term.diagonal else own @ term.weights
                        )
                case Relu(argument=argument):
                    pulled[argument] = pulled[argument] + pulled[number] * (values[argument] > 0.0)
        found = [each for each, node in zip(pulled, nodes, strict=True) if isinstance(node, Relu)]
        return np.asarray(np.concatenate(found, axis=-1)[..., self.places])


def kinks_of(compiled: Compiled) -> Kinks:
    """The kinks of a model, with the offsets that its scales give them."""
    circuit, names = compiled.computed.graph, compiled.computed.places
    first, count = {}, 0
    for number, node in enumerate(circuit.nodes):
        if isinstance(node, Relu):
            first[number] = count
            count += node.size
    places, offsets = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for layer in compiled.transformer.layers:
        for bank in layer.banks:
            if isinstance(bank, SinkBank):
                places.append(np.array([first[names[number]] for number in bank.node.tolist()]) + bank.component)
                peak = PEAKS.get(compiled.transformer.attention, 1.0 + gate_constant())
                offsets.append(peak / (bank.query_scale * bank.key_scale))
    return Kinks(circuit, np.concatenate(places), np.concatenate(offsets))


def crossings(
    kinks: Kinks, starts: Array, ends: Array, count: int, random: np.random.Generator, multiple: float = 1.0
) -> Array:
    """At most `count` points beside zeros of gate arguments on the segments from `starts` to `ends`.

    They lie on both sides of each zero, where the argument is `multiple` offsets.
    """
    grid = np.linspace(0.0, 1.0, 33)
    batch = max(1, min(len(starts), HELD // (len(kinks) * len(grid)), count // 16))
    starts, spans = starts[:batch], (ends - starts)[:batch]
    values = kinks.arguments(starts[:, None] + grid[:, None] * spans[:, None])
    segment, cell, kink = np.nonzero((values[:, :-1] < 0.0) != (values[:, 1:] < 0.0))
    chosen = random.permutation(len(segment))[: count // 2]
    segment, cell, kink = segment[chosen], cell[chosen], kink[chosen]
    origin, span, each = starts[segment], spans[segment], np.arange(len(segment))

    def value(place: Array) -> Array:
        return np.asarray(kinks.arguments(origin + place[:, None] * span)[each, kink])

    place, slope = _zeros(value, grid[cell], grid[cell + 1])
    shift = multiple * kinks.offsets[kink] / np.where(slope == 0.0, np.inf, slope)
    places = np.clip(np.concatenate([place - shift, place + shift]), 0.0, 1.0)
    return np.asarray(np.tile(origin, (2, 1)) + places[:, None] * np.tile(span, (2, 1)))


def _zeros(value: Callable[[Array], Array], left: Array, right: Array) -> tuple[Array, Array]:
    """Zeros of piecewise linear functions that change sign in [left, right], and their slopes there.

    Bisection until the bracket holds, almost surely, one linear piece; its secant then has the zero and the slope.
    """
    at_left, at_right = value(left), value(right)
    for _ in range(20):
        middle = 0.5 * (left + right)
        found = value(middle)
        same = (found < 0.0) == (at_left < 0.0)
        left, at_left = np.where(same, middle, left), np.where(same, found, at_left)
        right, at_right = np.where(same, right, middle), np.where(same, at_right, found)
    slope = (at_right - at_left) / (right - left)
    return left - at_left / np.where(slope == 0.0, np.inf, slope), slope


def vertices(
    kinks: Kinks, starts: Array, low: Array, high: Array, random: np.random.Generator, steps: int = 3
) -> Array:
    """From each start, a point of the box where several gate arguments are one offset from zero.

    As many as there are inputs, or fewer: Newton's method on the arguments that seem nearest to zero, each on the side
    that a coin says.
    """
    points = starts[: max(1, HELD // ((len(low) + 1) * len(kinks)))]
    most = min(len(low), len(kinks))
    value, slope = _linearised(kinks, points, low, high)
    distance = np.abs(value) / np.maximum(np.linalg.norm(slope * (high - low), axis=-1), 1e-200)
    blurred = distance * np.exp(random.standard_normal(distance.shape))
    chosen = np.argpartition(blurred, most - 1, axis=1)[:, :most]
    wanted = kinks.offsets[chosen] * random.choice([-1.0, 1.0], chosen.shape)
    # One start asks for a single kink, the next for two, and so on.
    asked = np.arange(most) <= random.integers(0, most, (len(points), 1))
    for step in range(steps):
        if step:
            value, slope = _linearised(kinks, points, low, high)
        rows = np.take_along_axis(slope, chosen[..., None], axis=1) * asked[..., None]
        missing = (wanted - np.take_along_axis(value, chosen, axis=1)) * asked
        points = np.clip(points + _shortest_steps(rows, missing), low, high)
    return np.asarray(points)


def aimed(
    kinks: Kinks, starts: Array, low: Array, high: Array, outputs: int, random: np.random.Generator, steps: int = 8
) -> Array:
    """From each start, a point of the box where many gates are one offset from zero that move an output the same way.

    A sink head is never above its gate: what heads of gates do to an output adds up if these move it the same way. Each
    start has an output and a sign. The gates that are worth most there for how far away they are get Newton's method;
    twice on the way they are chosen again.
    """
    points, most = starts[: max(1, HELD // ((len(low) + 1) * len(kinks)))], min(len(low), len(kinks))
    wanted = np.eye(outputs)[random.integers(0, outputs, len(points))] * random.choice([-1.0, 1.0], (len(points), 1))
    share, shape = random.uniform(0.3, 1.0, (len(points), 1)), (len(points), len(kinks))
    for step in range(steps):
        value, slope = _linearised(kinks, points, low, high)
        if step in (0, 2, 4):
            worth = np.maximum(kinks.pulls(points, wanted) * kinks.offsets, 0.0)
            distance = np.abs(value) / np.maximum(np.linalg.norm(slope * (high - low), axis=-1), 1e-200)
            score = worth * np.exp(0.5 * random.standard_normal(shape)) / (distance + (0.005 if step else 0.02))
            chosen = np.argsort(-score, axis=1)[:, :most]
            asked = (np.arange(most) < share * most) & (np.take_along_axis(worth, chosen, axis=1) > 0.0)
        held = np.take_along_axis(value, chosen, axis=1)
        rows = np.take_along_axis(slope, chosen[..., None], axis=1) * asked[..., None]
        missing = (np.where(held >= 0.0, 1.0, -1.0) * kinks.offsets[chosen] - held) * asked
        points = _moved(points, rows, missing, low, high)
    return np.asarray(points)


def _moved(points: Array, rows: Array, missing: Array, low: Array, high: Array, turns: int = 4) -> Array:
    """Points of the box that are d further, rows d = missing, as nearly as can be: coordinates that would leave the box
    stay at its side, and the others make up for them."""
    moved, free = points, np.ones_like(points)
    for _ in range(turns):
        left = missing - (rows @ (moved - points)[..., None])[..., 0]
        moved = moved + _shortest_steps(rows * free[:, None], left) * free
        outside = (moved < low) | (moved > high)
        moved, free = np.clip(moved, low, high), np.where(outside, 0.0, free)
        if not outside.any():
            break
    return np.asarray(moved)


def _shortest_steps(rows: Array, missing: Array) -> Array:
    """For each point the shortest d with rows d = missing, or nearly so where rows depend on each other.

    d = R^T (R R^T + l)^-1 m with a slight damping l: always solvable, unlike the pseudo-inverse of LAPACK.
    """
    square = rows @ rows.transpose(0, 2, 1)
    largest = np.max(np.abs(square), axis=(1, 2), keepdims=True)
    damped = square + np.where(largest > 0.0, 1e-12 * largest, 1.0) * np.eye(square.shape[1])
    return np.asarray((rows.transpose(0, 2, 1) @ np.linalg.solve(damped, missing[..., None]))[..., 0])


def _linearised(kinks: Kinks, points: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Values (points, kinks) and slopes (points, kinks, inputs) of the arguments; exact on a linear piece."""
    inputs = points.shape[1]
    step = 1e-7 * (high - low)
    step = np.where(points + step > high, -step, step)
    around = np.concatenate([points[:, None], points[:, None] + step[:, None] * np.eye(inputs)], axis=1)
    values = kinks.arguments(around)
    difference = (values[:, 1:] - values[:, :1]).transpose(0, 2, 1)
    return values[:, 0], np.asarray(difference / np.where(step == 0.0, np.inf, step)[:, None])
