"""Gradient descent on the examples of a context, as a source graph over tokens, and in plain arithmetic.

Token i holds an example (x_i, y_i) and a query q_i of its own. All tokens share the weights w, which start at 0:

    r = w . x - y   (squared)     r = sigmoid(w . x) - y   (logistic)     token by token
    G = mean of r x over the tokens that are there                        one head
    w <- (1 - rate decay) w - rate G                                      a linear map
    w <- sign(w) max(|w| - rate threshold, 0)                             two gates a weight, if threshold > 0

A step takes three layers (products, products, mean; logistic: a fourth for the sigmoid, thresholds: one for the gates),
and the prediction w . q one more. It minimises mean loss(w . x_i, y_i) + decay/2 |w|^2 + threshold |w|_1, whose smooth
part has a Hessian between 0 and

    L = c max|x|^2 + decay,      c = 1 (squared) or 1/4 (logistic),

so that a step of a rate of at most 2/L does not move two weights further apart: errors add up, they do not multiply.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Graph, Pool, Relu, Term

Loss = Literal["squared", "logistic"]
LOSSES: tuple[Loss, ...] = ("squared", "logistic")
CURVATURE = {"squared": 1.0, "logistic": 0.25}


@dataclass(frozen=True)
class Descent:
    """What is run. `kept` (1 - rate decay) and `cut` (rate threshold) are the doubles that graph and arithmetic
    share."""

    loss: Loss
    steps: int
    features: int
    rate: float
    kept: float = 1.0
    cut: float = 0.0

    def predicted(self, X: Any, y: Any, queries: Any, dtype: Any = np.longdouble) -> Any:
        """w . q at every query, in plain arithmetic of `dtype`."""
        return np.asarray(queries, dtype=dtype) @ descended(self, X, y, dtype)


def smoothness(loss: Loss, largest: Array, decay: float = 0.0) -> float:
    """L: the largest curvature of the loss if |x_k| <= largest_k."""
    return CURVATURE[loss] * float(np.sum(np.square(largest))) + decay


def largest_rate(loss: Loss, largest: Array, decay: float = 0.0) -> float:
    """The largest rate whose steps do not expand distances on the domain: 2/L, and 1/decay, less some rounding."""
    steepest = smoothness(loss, largest, decay)
    limit = 2.0 / steepest if steepest > 0.0 else np.inf
    return float(min(limit, 1.0 / decay if decay > 0.0 else np.inf)) * (1.0 - 1e-12)


def checked_rate(loss: Loss, rate: float | None, largest: Array, decay: float) -> float:
    """The rate, 1/L if it is None; TargetError if its steps may expand distances on the domain."""
    steepest, limit = smoothness(loss, largest, decay), largest_rate(loss, largest, decay)
    if rate is None:
        return min(1.0 / steepest, limit) if steepest > 0.0 else 1.0
    if not (isinstance(rate, numbers.Real) and 0.0 < rate < math.inf):
        raise TargetError(
            f"rate is {rate!r}; it must be a positive finite number, or None for 1/L = {1 / steepest:.6g}"
        )
    if rate > limit * (1.0 + 4e-12):
        raise TargetError(
            f"a rate of {rate:.6g} may expand distances: on this domain the curvature of the {loss} loss is up to L = "
            f"{steepest:.6g}, and the rate must be at most {limit:.6g} (2/L, and 1/decay); take a smaller rate, or a "
            "smaller domain"
        )
    return min(float(rate), limit)


def input_names(features: int) -> list[str]:
    """The inputs of a token: its example's features and label, and its query."""
    return [*(f"x{k}" for k in range(features)), "y", *(f"q{k}" for k in range(features))]


def descent_graph(run: Descent, weights: bool = False) -> Graph:
    """The whole run as a source graph: at every token, its prediction w . q, and w itself if `weights`."""
    size = run.features
    build = Builder(input_names(size))
    features, labels, queries = token_parts(build, size)
    current: int | None = None
    for _ in range(run.steps):
        residual = _residual(build, run, current, features, labels)
        mean = build.pool("mean", build.product(residual, features))
        terms = [(mean, np.full(size, -run.rate))]
        if current is not None:
            terms.insert(0, (current, np.full(size, run.kept)))
        current = build.affine(terms, np.zeros(size))
        if run.cut > 0.0:
            current = _soft_threshold(build, current, run.cut)
    assert current is not None
    return predicting_graph(build, current, queries, weights)


def token_parts(build: Builder, size: int) -> tuple[int, int, int]:
    """The features, the label and the query of a token."""
    x, y, q = (
        build.affine([(build.input, rows)], np.zeros(len(rows)))
        for rows in np.split(np.eye(2 * size + 1), [size, size + 1])
    )
    return x, y, q


def predicting_graph(build: Builder, fitted: int, queries: int, weights: bool) -> Graph:
    """The graph that returns w . q, and w itself if `weights`."""
    size = build.size(fitted)
    prediction = build.product(fitted, queries)
    if not weights:
        return build.graph(build.affine([(prediction, np.ones((1, size)))], np.zeros(1)))
    rows = np.vstack([np.ones((1, size)), np.zeros((size, size))])
    both = [(prediction, rows), (fitted, np.vstack([np.zeros((1, size)), np.eye(size)]))]
    return build.graph(build.affine(both, np.zeros(size + 1)))


def _residual(build: Builder, run: Descent, weights: int | None, features: int, labels: int) -> int:
    """loss'(w . x, y), once for each feature; with w = 0 it is -y, or 1/2 - y."""
    size = run.features
    repeated = np.ones((size, 1))
    if weights is None:
        return build.affine([(labels, -repeated)], np.full(size, 0.0 if run.loss == "squared" else 0.5))
    product = build.product(weights, features)
    if run.loss == "squared":
        return build.affine([(product, np.ones((size, size))), (labels, -repeated)], np.zeros(size))
    chance = build.function("sigmoid", build.affine([(product, repeated.T)], np.zeros(1)))
    return build.affine([(chance, repeated), (labels, -repeated)], np.zeros(size))


def _soft_threshold(build: Builder, weights: int, cut: float) -> int:
    """relu(w - cut) - relu(-w - cut)."""
    size = build.size(weights)
    one, bias = np.ones(size), np.full(size, -cut)
    above = build.relu(build.affine([(weights, one)], bias))
    below = build.relu(build.affine([(weights, -one)], bias))
    return build.affine([(above, one), (below, -one)], np.zeros(size))


def descended(run: Descent, X: Any, y: Any, dtype: Any = np.longdouble) -> Any:
    """The weights after all steps, in plain arithmetic of `dtype` (dtype object takes fractions, for the squared
    loss)."""
    X, y = np.asarray(X, dtype=dtype), np.asarray(y, dtype=dtype)
    number: Any = Fraction if dtype is object else np.dtype(dtype).type
    rate, kept, cut = number(run.rate), number(run.kept), number(run.cut)
    w = np.zeros(run.features, dtype=dtype)
    for _ in range(run.steps):
        score = X @ w
        residual = (score if run.loss == "squared" else _sigmoid(score)) - y
        w = kept * w - rate * ((residual @ X) / len(X))
        if run.cut > 0.0:
            w = np.maximum(w - cut, 0) - np.maximum(-w - cut, 0)
    return w


def _sigmoid(score: Any) -> Any:
    """1 / (1 + exp(-score)), without overflow."""
    small = np.exp(-np.abs(score))
    return np.where(score >= 0, 1, small) / (1 + small)


def descent_of(graph: Graph) -> Descent:
    """What a graph of `descent_graph` runs, read off its nodes. TargetError for any other graph."""
    features = (graph.input.size - 1) // 2
    updates = [node for node in graph.nodes if isinstance(node, Affine) and _pools(graph, node)]
    if not features or list(graph.input.names) != input_names(features) or not updates:
        raise TargetError("this model does not learn in context: it has no examples, queries and gradient steps")
    rate = -float(_pools(graph, updates[0])[0].weights.flat[0])
    kept = float(updates[1].terms[0].weights.flat[0]) if len(updates) > 1 else 1.0
    gates = [graph.nodes[node.argument] for node in graph.nodes if isinstance(node, Relu)]
    cut = -float(gates[0].bias[0]) if gates and isinstance(gates[0], Affine) else 0.0
    for loss in LOSSES:
        run = Descent(loss, len(updates), features, rate, kept, cut)
        if same_graph(graph, descent_graph(run, weights=graph.nodes[graph.output].size > 1)):
            return run
    raise TargetError("this model learns in context by other steps than those of gradient descent")


def _pools(graph: Graph, node: Affine) -> list[Term]:
    return [term for term in node.terms if isinstance(graph.nodes[term.node], Pool)]


def same_graph(first: Graph, second: Graph) -> bool:
    """Whether two graphs compute the same, bit for bit, on a few tokens."""
    if len(first.nodes) != len(second.nodes) or first.nodes[first.output].size != second.nodes[second.output].size:
        return False
    tokens = np.random.default_rng(0).uniform(-1.0, 1.0, (3, first.input.size))
    return bool(np.array_equal(evaluate(first, tokens), evaluate(second, tokens)))
