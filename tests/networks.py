"""Networks to try things on: random ones of any shape, ones trained on real data, and nasty ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import headsmith as hs
from headsmith.source.graph import Builder, Graph


def random_network(
    widths: Sequence[int], seed: int = 0, *, weight: float = 1.0, bias: float = 0.5, density: float = 1.0
) -> hs.Network:
    """Gaussian weights of size weight / sqrt(inputs), so that activations stay of the order of one."""
    rng = np.random.default_rng([seed, *widths])
    layers = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        W = rng.normal(size=(outputs, inputs)) * weight / np.sqrt(inputs)
        W *= rng.random(W.shape) < density
        layers.append((W, bias * rng.normal(size=outputs)))
    return hs.Network(layers)


def shifted_network(widths: Sequence[int], seed: int, low: float, high: float, kinds: Sequence[str]) -> hs.Network:
    """A random network whose gates are made `active`, `dead` or left `free` by shifting biases, kinds in turn."""
    rng = np.random.default_rng([seed, *widths])
    below, above = np.full(widths[0], low), np.full(widths[0], high)
    layers = []
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        W = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
        least = np.minimum(W * below, W * above).sum(axis=1)
        most = np.maximum(W * below, W * above).sum(axis=1)
        bias = -(least + most) / 2.0
        if index < len(widths) - 2:
            for gate in range(outputs):
                match kinds[gate % len(kinds)]:
                    case "active":
                        bias[gate] = 0.1 - least[gate]
                    case "dead":
                        bias[gate] = -0.1 - most[gate]
        layers.append((W, bias))
        below, above = np.maximum(least + bias, 0.0), np.maximum(most + bias, 0.0)
    return hs.Network(layers)


def random_circuit(seed: int) -> Graph:
    """A random circuit with skip connections, diagonal terms and several terms for each affine node."""
    rng = np.random.default_rng(seed)
    builder = Builder([f"x{i}" for i in range(int(rng.integers(1, 4)))])
    nodes = [builder.input]
    for _ in range(int(rng.integers(2, 7))):
        size = int(rng.integers(1, 5))
        terms = []
        for node in rng.choice(nodes, size=int(rng.integers(1, 4))):
            width = builder.size(int(node))
            diagonal = width == size and rng.random() < 0.5
            terms.append((int(node), rng.normal(size=width if diagonal else (size, width))))
        nodes.append(builder.affine(terms, rng.normal(size=size)))
        if rng.random() < 0.7:
            nodes.append(builder.relu(nodes[-1]))
    return builder.graph(nodes[-1])


@functools.cache
def trained(name: str) -> tuple[hs.Network, Any, Any]:
    """(network, data, domain): a scikit-learn MLP fitted for a few epochs to a real data set."""
    from sklearn import datasets
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    data, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "digits":
        data = data / 16.0
    elif name == "iris":
        data = data - data.mean(axis=0)
    regression = name == "diabetes"
    kind = MLPRegressor if regression else MLPClassifier
    hidden = {"diabetes": (30, 20), "iris": (12, 8, 6), "digits": (64, 32)}[name]
    estimator = kind(hidden_layer_sizes=hidden, max_iter=12, random_state=0, batch_size=64, learning_rate_init=3e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(data, target / target.std() if regression else target)
    network = hs.Network([(W.T, b) for W, b in zip(estimator.coefs_, estimator.intercepts_, strict=True)])
    return network, data, np.stack([data.min(axis=0), data.max(axis=0)], axis=1)
