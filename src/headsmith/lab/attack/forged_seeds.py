"""Small circuits to start from, one for each rule by which errors travel: what rewrites.py then changes.

They are written node by node, with coarse heads, so that errors are large, and checked in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headsmith.kernel.core.functions import named
from headsmith.kernel.core.graph import PRODUCT, Node
from headsmith.lab.attack.drafts import DraftHead, FileDraft, sink
from headsmith.lab.attack.rewrites import token_node

Random = np.random.Generator


class Sketch:
    """A draft that grows node by node."""

    def __init__(self, rng: Random, inputs: int, tokens: int, low: float = -1.0, high: float = 1.0) -> None:
        first = Node("input", inputs, names=tuple(f"x{i}" for i in range(inputs)))
        lists: dict[str, Any] = {name: [] for name in ("regions", "tables", "views", "norms", "linear", "bends")}
        domain = {"low": [low] * inputs, "high": [high] * inputs}
        self.rng = rng
        self.draft = FileDraft([first], 0, {}, lists, [], [], int(rng.integers(0, 4)), tokens, "float64", domain)

    def add(self, node: Node) -> int:
        self.draft.nodes.append(node)
        return len(self.draft.nodes) - 1

    def size(self, number: int) -> int:
        return self.draft.nodes[number].size

    def sum(self, terms: Sequence[tuple[int, Any]], bias: Any = 0.0, size: int | None = None) -> int:
        size = size or len(terms[0][1])
        weights = tuple(np.asarray(each, dtype=np.float64) for _, each in terms)
        return self.add(Node("affine", size, tuple(n for n, _ in terms), weights, np.zeros(size) + bias))

    def scaled(self, *terms: tuple[int, float], bias: Any = 0.0) -> int:
        """A sum of multiples of nodes of one size."""
        return self.sum([(number, np.full(self.size(number), weight)) for number, weight in terms], bias)

    def gate(self, argument: int, scale: float | None = None) -> int:
        number = self.add(Node("relu", self.size(argument), (argument,)))
        self.draft.heads[number] = sink(range(self.size(argument)), scale or float(2.0 ** self.rng.integers(3, 12)))
        return number

    def pool(self, argument: int) -> int:
        size = self.size(argument)
        number = self.add(Node("pool", size, (argument,), name="mean"))
        self.draft.heads[number] = DraftHead("mean", np.arange(size), {}, {"gain": 200.0, "keep_gain": 800.0})
        return number

    def moved(self, argument: int, targets: tuple[int, ...]) -> int:
        size = self.size(argument)
        number = self.add(Node("move", size, (argument,), targets=targets))
        self.draft.heads[number] = DraftHead("move", np.arange(size), {}, {"gain": 200.0, "keep_gain": 800.0})
        return number

    def product(self, left: int, right: int, margin: float) -> int:
        """A product by neurons, as a region."""
        size = self.size(left)
        reference, inner = (self.add(Node("expression", size, (left, right), program=PRODUCT)) for _ in range(2))
        self.draft.heads[inner] = DraftHead("swiglu", np.arange(size), {}, {})
        self.draft.lists["tables"].append({"node": inner, "margin": margin, "cells": ""})
        output = self.scaled((inner, 1.0))
        self.draft.lists["regions"].append({"output": output, "stands_for": reference, "margin": margin})
        return output

    def sigmoid(self, argument: int, margin: float) -> int:
        """1 / (1 + e^-x), which is a softmax of the scores x and 0, by a table."""
        number = self.add(Node("expression", 1, (argument,), program=named("sigmoid")))
        arrays = {"slope": [[[1.0], [0.0]]], "offset": [[0.0, 0.0]], "values": [[[1.0], [0.0]]]}
        held = {name: np.array(values) for name, values in arrays.items()}
        self.draft.heads[number] = DraftHead("table", np.arange(1), held, {"gain": 400.0, "keep_gain": 800.0})
        self.draft.lists["tables"].append({"node": number, "margin": margin, "cells": "111001001100100"})
        self.draft.grid = 2
        return number

    def noisy(self, argument: int) -> int:
        """The identity by two heads that are both off: relu(z) - relu(-z)."""
        above, below = self.gate(argument), self.gate(self.scaled((argument, -1.0)))
        return self.scaled((above, 1.0), (below, -1.0))

    def done(self, output: int) -> FileDraft:
        self.draft.output = output
        return self.draft


def gates(rng: Random) -> FileDraft:
    """Layers of gates, with nodes that look at other tokens between them; norms and linear bounds."""
    sketch = Sketch(rng, int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3])))
    here = 0
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.integers(1, 4))
        weights = rng.choice([1.0, -1.0, 0.5, 2.0, 0.0], (size, sketch.size(here)))
        z = sketch.sum([(here, weights)], rng.choice([0.0, 0.25, -0.5, 4.0, -4.0], size))
        here = sketch.gate(z)
        if rng.random() < 0.3:
            sketch.draft.lists["norms"].append({"node": here, "diagonal": np.full(size, 1.0), "flat": False})
        if sketch.draft.tokens > 1 and rng.random() < 0.4:
            node, head = token_node(sketch.draft, rng, size, here)
            here = sketch.add(node)
            sketch.draft.heads[here] = head
    return sketch.done(sketch.sum([(here, rng.choice([1.0, -1.0, 0.5], (1, sketch.size(here))))]))


def folds(rng: Random) -> FileDraft:
    """z - 2 relu(z - t), again and again; or many gates at different thresholds."""
    sketch, size = Sketch(rng, 1, 1, -1.0, 2.0), 1
    here = sketch.gate(sketch.sum([(0, np.ones((1, 1)))], [0.1]))
    for _ in range(int(rng.integers(1, 5))):
        if rng.random() < 0.5:
            count = int(rng.integers(2, 5))
            read = rng.choice([1.0, -1.0, 2.0], (count, size))
            inner = sketch.gate(sketch.sum([(here, read)], rng.choice([-0.5, 0.25, 0.5, -1.0, 1.0], count)))
            weights = rng.choice([1.0, -1.0, 2.0, -2.0], (1, count))
            here = sketch.sum([(here, np.ones((1, 1)) * rng.choice([0.0, 1.0, 1.0])), (inner, weights)])
        else:
            gate = sketch.gate(sketch.scaled((here, 1.0), bias=-float(rng.choice([0.5, 1.0]))))
            here = sketch.scaled((here, 1.0), (gate, -2.0))
    return sketch.done(here)


def descent(rng: Random) -> FileDraft:
    """Steps of gradient descent, with soft thresholds or without."""
    features, tokens, margin = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3])), float(rng.choice([0.05, 0.5, 1.0]))
    sketch = Sketch(rng, features + 1, tokens)
    x = sketch.sum([(0, np.eye(features, features + 1))])
    y = sketch.sum([(0, np.eye(features + 1)[features:])])
    y = sketch.noisy(y) if rng.random() < 0.7 else y
    rate, kept = float(rng.choice([0.25, 0.5, 1.0])) / features, float(rng.choice([1.0, 1.0, 0.5]))
    ones = np.ones((features, 1))
    first = sketch.product(sketch.sum([(y, ones)]), x, margin)
    w = sketch.scaled((sketch.pool(first), rate))
    w = sketch.noisy(w) if rng.random() < 0.5 else w
    for _ in range(int(rng.integers(1, 4))):
        inner = sketch.product(w, x, margin)
        if rng.random() < 0.3:
            curve = sketch.sigmoid(sketch.sum([(inner, np.ones((1, features)))]), margin)
            residual = sketch.sum([(curve, ones), (y, -ones)])
        else:
            residual = sketch.sum([(inner, np.ones((features, features))), (y, -ones)])
        gradient = sketch.product(residual, x, margin)
        w = sketch.scaled((w, kept), (sketch.pool(gradient), -rate))
        sketch.draft.steps.append(w)
        if rng.random() < 0.5:
            bias = -float(rng.choice([0.0, 0.0625, 0.25]))
            above = sketch.gate(sketch.scaled((w, 1.0), bias=bias))
            below = sketch.gate(sketch.scaled((w, -1.0), bias=bias))
            w = sketch.scaled((above, 1.0), (below, -1.0))
            sketch.draft.steps.append(w)
    return sketch.done(sketch.sum([(w, rng.choice([1.0, -1.0], (1, features)))]) if rng.random() < 0.5 else w)


def newton(rng: Random) -> FileDraft:
    """Powers of a matrix, and what they add up to."""
    features, tokens, margin = int(rng.integers(1, 3)), int(rng.choice([1, 2])), float(rng.choice([0.05, 0.25]))
    sketch = Sketch(rng, features + 1, tokens)
    rows, columns = np.triu_indices(features)
    place = np.zeros((features, features), dtype=int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    x = sketch.sum([(0, np.eye(features, features + 1))])
    x = sketch.noisy(x) if rng.random() < 0.5 else x
    y = sketch.sum([(0, np.eye(features + 1)[features:])])
    y = sketch.noisy(y) if rng.random() < 0.5 else y
    rate, eye = 0.5 / features, np.eye(features)
    left, right = sketch.sum([(x, eye[columns])]), sketch.sum([(x, eye[rows])])
    matrix = sketch.scaled((sketch.pool(sketch.product(left, right, margin)), -rate), bias=(rows == columns) * 1.0)
    spread = sketch.sum([(y, np.ones((features, 1)))])
    vector = sketch.scaled((sketch.pool(sketch.product(x, spread, margin)), rate))
    sketch.draft.powers += [matrix, vector]
    for _ in range(int(rng.integers(1, 4))):
        entries, units = np.eye(len(rows)), np.eye(features)
        i, m = (each.ravel() for each in np.indices((features, features)))
        both = sketch.sum([(matrix, entries[place[i, m]])]), sketch.sum([(vector, units[m])])
        inner = sketch.product(*both, margin)
        after = sketch.sum([(vector, units), (inner, units[i].T)])
        i, m = (each.ravel() for each in np.indices((len(rows), features)))
        both = sketch.sum([(matrix, entries[place[rows[i], m]])]), sketch.sum([(matrix, entries[place[m, columns[i]]])])
        inner = sketch.product(*both, margin)
        matrix, vector = sketch.sum([(inner, entries[i].T)]), after
        sketch.draft.powers += [vector, matrix]
    sketch.draft.powers.sort()
    return sketch.done(vector if rng.random() < 0.7 else matrix)


def exchanges(rng: Random) -> FileDraft:
    """Values that tokens exchange, as in sorting."""
    tokens = int(rng.integers(2, 4))
    sketch = Sketch(rng, 1, tokens)
    here, big, size = sketch.gate(sketch.scaled((0, 1.0), bias=0.25)), 4.0, 1
    for _ in range(int(rng.integers(1, 4))):
        order = np.arange(tokens)
        i, j = sorted(rng.permutation(tokens)[:2].tolist())
        order[[i, j]] = order[[j, i]]
        constants = np.full((tokens, 2), big)
        constants[i, 0] = constants[j, 1] = 0.0
        table = sketch.add(Node("positional", 2, constants=constants))
        above, below = (sketch.sum([(table, np.eye(2)[[k]])]) for k in (0, 1))
        targets = tuple(order.tolist())
        reference = sketch.add(Node("exchange", size, (here, above, below), targets=targets))
        other = sketch.moved(here, targets)
        falls = sketch.gate(sketch.sum([(here, [[1.0]]), (other, [[-1.0]]), (above, [[-1.0]])]))
        rises = sketch.gate(sketch.sum([(here, [[-1.0]]), (other, [[1.0]]), (below, [[-1.0]])]))
        here = sketch.scaled((here, 1.0), (falls, -1.0), (rises, 1.0))
        sketch.draft.lists["regions"].append({"output": here, "stands_for": reference, "margin": 1.0})
    return sketch.done(here)


def blocks(rng: Random) -> FileDraft:
    """Moves that keep what some tokens hold, added up with weights."""
    tokens = int(rng.integers(2, 4))
    sketch = Sketch(rng, 2, tokens)
    here = sketch.gate(sketch.sum([(0, rng.choice([1.0, -1.0, 0.5], (2, 2)))]))
    owner = rng.integers(0, 2, tokens)
    kept = [sketch.moved(here, tuple(t if owner[t] == k else -1 for t in range(tokens))) for k in (0, 1)]
    z = sketch.sum([(each, rng.choice([1.0, -1.0, 2.0, 0.0], (2, 2))) for each in kept])
    return sketch.done(sketch.gate(z) if rng.random() < 0.5 else z)


def maxima(rng: Random) -> FileDraft:
    """Regions that stand for maxima, one after the other."""
    sketch = Sketch(rng, 2, 1)
    here = [sketch.gate(sketch.sum([(0, rng.choice([1.0, -1.0, 0.5], (1, 2)))])) for _ in range(2)]
    for _ in range(int(rng.integers(1, 4))):
        first, second = (here[int(k)] for k in rng.permutation(len(here))[:2])
        reference = sketch.add(Node("maximum", 1, (first, second)))
        gate = sketch.gate(sketch.scaled((first, 1.0), (second, -1.0)))
        output = sketch.scaled((second, 1.0), (gate, 1.0))
        margin = float(rng.choice([0.05, 0.5, 1.0]))
        sketch.draft.lists["regions"].append({"output": output, "stands_for": reference, "margin": margin})
        here.append(output)
    return sketch.done(here[-1])


def attention(rng: Random) -> FileDraft:
    """Attention whose queries, keys and values are off."""
    sketch, width = Sketch(rng, 2, int(rng.integers(1, 4))), int(rng.integers(1, 3))
    queries, keys, values = (
        sketch.noisy(sketch.sum([(0, rng.choice([1.0, -1.0, 0.5, 0.0], (size, 2)))])) for size in (width, width, 1)
    )
    number = sketch.add(Node("attend", 1, (queries, keys, values)))
    sketch.draft.heads[number] = DraftHead("attend", np.arange(1), {}, {"gain": 200.0, "keep_gain": 800.0})
    sketch.draft.lists["tables"].append({"node": number, "margin": float(rng.choice([0.05, 0.2])), "cells": ""})
    return sketch.done(sketch.gate(number) if rng.random() < 0.5 else number)


SEEDS: dict[str, Callable[[Random], FileDraft]] = {
    "gates": gates,
    "folds": folds,
    "descent": descent,
    "newton": newton,
    "exchanges": exchanges,
    "blocks": blocks,
    "maxima": maxima,
    "attention": attention,
}
