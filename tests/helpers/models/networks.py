"""Networks to try things on: random ones of any shape, ones trained on real data, and nasty ones."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import headsmith as hs
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph


def random_network(
    widths: Sequence[int], seed: int = 0, *, weight: float = 1.0, bias: float = 0.5, density: float = 1.0
) -> hs.Network:
    """Gaussian weights of size weight / sqrt(inputs), so that activations stay of the order of one."""
    rng = np.random.default_rng([seed, *widths])
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        W = rng.normal(size=(outputs, inputs)) * weight / np.sqrt(inputs)
        W *= rng.random(W.shape) < density
        layers.append((W, bias * rng.normal(size=outputs)))
    return hs.Network(layers)


def shifted_network(widths: Sequence[int], seed: int, low: float, high: float, kinds: Sequence[str]) -> hs.Network:
    """A random network whose gates are made `active`, `dead` or left `free` by shifting biases, kinds in turn."""
    rng = np.random.default_rng([seed, *widths])
    below, above = np.full(widths[0], low), np.full(widths[0], high)
    layers = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
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
    """A random circuit: skip connections, diagonal terms, several terms for each affine node, gates of gates and of
    the input."""
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
        if rng.random() < 0.2:
            nodes.append(builder.relu(int(rng.choice(nodes))))
    return builder.graph(nodes[-1])


def folding_circuit(seed: int) -> Graph:
    """Scalars that fold, z <- a z + b relu(c z + d), with banks of parallel gates on them and running sums beside
    them."""
    rng = np.random.default_rng(seed)
    builder = Builder(["x"])
    z = builder.affine([(builder.input, rng.normal(size=1))], rng.normal(size=1))
    y = z
    for _ in range(int(rng.integers(1, 5))):
        size = int(rng.choice([1, 1, 3]))
        reads = rng.choice([-1.0, 1.0], (size, 1)) * rng.uniform(0.5, 2.0, (size, 1))
        gate = builder.relu(builder.affine([(z, reads)], rng.normal(size=size)))
        if rng.random() < 0.3:
            gate = builder.relu(gate)
        fold = builder.affine(
            [(z, rng.uniform(-1.5, 1.5, 1)), (gate, rng.normal(size=(1, size)))], 0.1 * rng.normal(size=1)
        )
        y = builder.affine([(y, np.ones(1)), (gate, rng.normal(size=(1, size)))], np.zeros(1))
        z = builder.relu(fold) if rng.random() < 0.3 else fold
    return builder.graph(builder.affine([(z, np.ones((2, 1))), (y, rng.normal(size=(2, 1)))], np.zeros(2)))


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


def square_network(gates: int) -> hs.Network:
    """Yarotsky's network for x^2 on [0, 1]: chords on 2^gates equal cells, 4^-(gates + 1) above the square at most."""
    tooth = np.array([2.0, -4.0, 0.0])
    layers = [(np.ones((3, 1)), np.array([0.0, -0.5, 0.0]))]
    for level in range(1, gates + 1):
        total = np.array([0.0, 0.0, 1.0]) - tooth / 4.0**level
        last = level == gates
        layers.append((total[None], np.zeros(1)) if last else (np.array([tooth, tooth, total]), layers[0][1]))
    return hs.Network(layers, names=["x"], transposed=False)


def product_network(gates: int) -> hs.Network:
    """x y = ((x + y)/2)^2 - ((x - y)/2)^2 on [-1, 1]^2, by two networks for squares side by side."""
    halves = np.array([[0.5, 0.5], [-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5]])
    layers, square = [(halves, np.zeros(4))], square_network(gates).layers
    for place, (weights, bias) in enumerate(square):
        W, b = np.kron(np.eye(2), weights), np.tile(bias, 2)
        W = W @ np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]) if place == 0 else W
        layers.append((np.array([[1.0, -1.0]]) @ W, np.zeros(1)) if place == len(square) - 1 else (W, b))
    return hs.Network(layers, names=["x", "y"], transposed=False)


def square_of_squares(gates: int) -> hs.Network:
    """((x^2 + y^2) / 2)^2 on [0, 1]^2, each square by a network of its own."""
    (first, bias), *rest = square_network(gates).layers
    *squares, (total, _) = [(np.kron(np.eye(2), W), np.tile(b, 2)) for W, b in square_network(gates).layers]
    mean = np.array([[0.5, 0.5]]) @ total
    return hs.Network([*squares, (first @ mean, bias), *rest], names=["x", "y"], transposed=False)


def product_chain(gates: int, names: Sequence[str]) -> hs.Network:
    """((x y) z) w ... on [-1, 1], each product by two networks for squares; what waits is carried by pairs of gates."""
    square, count = square_network(gates).layers, len(names)
    halves = np.array([[0.5, 0.5], [-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5]])
    sizes = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    layers, held = [], np.eye(count)  # what the factors are, of what the last layer returns
    for waiting in range(count - 2, -1, -1):
        pairs = np.kron(np.eye(waiting), [[1.0], [-1.0]])
        layers.append((_beside(halves, pairs) @ held, np.zeros(4 + 2 * waiting)))
        for place, (weights, bias) in enumerate(square):
            W = np.kron(np.eye(2), weights)
            W = W @ sizes if place == 0 else W
            if place == len(square) - 1:
                held = _beside(np.array([[1.0, -1.0]]) @ W, pairs.T)
            else:
                layers.append((_beside(W, np.eye(2 * waiting)), np.append(np.tile(bias, 2), np.zeros(2 * waiting))))
    return hs.Network([*layers, (held, np.zeros(1))], names=list(names), transposed=False)


def _beside(one: Any, other: Any) -> Any:
    """Two matrices as blocks of a diagonal."""
    (rows, columns), (more, further) = one.shape, other.shape
    whole = np.zeros((rows + more, columns + further))
    whole[:rows, :columns], whole[rows:, columns:] = one, other
    return whole
