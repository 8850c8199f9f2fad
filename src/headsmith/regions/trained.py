"""Trained against constructed: how many regions gradient descent finds where a construction has P^L.

A small ReLU network in numpy: Adam on the mean squared error at points of [0, 1]. Its error and its number of regions
are figures of runs with stated seeds, not properties of training in general.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headsmith.core.arrays import Array
from headsmith.regions.enumeration import regions
from headsmith.regions.zigzag import composed, feed_forward_block
from headsmith.source.network import Network

BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Comparison:
    """One shape, built and trained on the same target."""

    pieces: int
    depth: int
    width: int
    constructed_regions: int
    trained_regions: int
    trained_error: float


def compare(pieces: int, depth: int, width: int, *, steps: int = 1500, seed: int = 0) -> Comparison:
    """The zigzag of `pieces` pieces composed `depth` times, against a network of `depth` layers of this width that was
    trained on it; `width` >= `pieces`, so that the network could be the construction."""
    target = composed([feed_forward_block(pieces)] * depth)
    points = np.linspace(0.0, 1.0, 257)[:, None]
    network = train([1, *[width] * depth, 1], points, target(points), steps=steps, seed=seed)
    return Comparison(
        pieces,
        depth,
        width,
        regions(target, (0.0, 1.0)).count("linear"),
        regions(network, (0.0, 1.0)).count("linear"),
        float(np.sqrt(np.mean((network(points) - target(points)) ** 2))),
    )


def train(
    widths: Sequence[int], inputs: Array, outputs: Array, *, steps: int, seed: int, rate: float = 3e-3
) -> Network:
    """Fit a ReLU network by Adam with a rate that falls to zero, from He's initialisation."""
    random = np.random.default_rng(seed)
    weights: list[Array] = []
    for before, after in pairwise(widths):
        weights += [random.normal(size=(after, before)) * np.sqrt(2.0 / before), random.uniform(-0.5, 0.5, after)]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, steps + 1):
        for w, gradient, m, v in zip(weights, _gradient(weights, inputs, outputs), first, second, strict=True):
            m += (1.0 - BETAS[0]) * (gradient - m)
            v += (1.0 - BETAS[1]) * (gradient**2 - v)
            move = (m / (1.0 - BETAS[0] ** step)) / (np.sqrt(v / (1.0 - BETAS[1] ** step)) + 1e-8)
            w -= rate * (1.0 - step / (steps + 1.0)) * move
    return Network(zip(weights[0::2], weights[1::2], strict=True))


def _gradient(weights: Sequence[Array], inputs: Array, outputs: Array) -> list[Array]:
    """Of half the mean squared error, by back-propagation."""
    states = [inputs]
    for place in range(0, len(weights), 2):
        z = states[-1] @ weights[place].T + weights[place + 1]
        states.append(np.maximum(z, 0.0) if place + 2 < len(weights) else z)
    flow = (states[-1] - outputs) / len(inputs)
    found: list[Array] = []
    for place in range(len(weights) - 2, -1, -2):
        state = states[place // 2]
        found = [flow.T @ state, flow.sum(axis=0), *found]
        flow = (flow @ weights[place]) * (state > 0.0)
    return found
