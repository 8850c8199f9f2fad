"""Predictions from the nearest examples, as a source graph over tokens, and in plain arithmetic.

Token j holds an example (x_j, y_j), and a query q_j of its own. Softmax attention is a Gaussian kernel mean (Nadaraya
and Watson's regression): since q^2 shifts all scores of a query alike,

    sum_j y_j exp(-s |q - x_j|^2) / sum_j exp(-s |q - x_j|^2)  =  attention with scores  2 s q . x_j - s |x_j|^2.

One layer squares the features, a second one attends. With a large s only the nearest example counts:

Nearest neighbour.  Let x_1 be nearer to q than the m - 1 others by at least g in squared distance, and let labels lie
    in an interval of length R. The others weigh at most (m - 1) e^{-s g}, so the mean is within R (m - 1) e^{-s g} of
    y_1.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.rounding import upper
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, Attend, Graph
from headsmith.sequence.descent import input_names, same_graph

LARGEST = 1e12
"""Scores are of the size of the scale; beyond this, doubles resolve none of them."""


@dataclass(frozen=True)
class Neighbours:
    """A kernel mean: weights exp(-scale |q - x|^2)."""

    steps: ClassVar[int] = 1

    features: int
    scale: float

    def predicted(self, X: Any, y: Any, queries: Any, dtype: Any = np.longdouble) -> Any:
        """The kernel mean at every query, in plain arithmetic of `dtype`."""
        X, y, queries = (np.asarray(each, dtype=dtype) for each in (X, y, queries))
        scores = [-self.scale * np.square(query - X).sum(axis=1) for query in queries]
        weights = [np.exp(score - score.max()) for score in scores]
        return np.array([weight @ y / weight.sum() for weight in weights], dtype=dtype)


def neighbours_graph(run: Neighbours) -> Graph:
    """The kernel mean as a source graph: at every token, that of its query."""
    size = run.features
    build = Builder(input_names(size))
    each = np.eye(2 * size + 1)
    features = build.affine([(build.input, each[:size])], np.zeros(size))
    labels = build.affine([(build.input, each[size : size + 1])], np.zeros(1))
    last = np.eye(size + 1)[-1]
    queries = build.affine([(build.input, np.vstack([each[size + 1 :], 0.0 * each[:1]]))], last)
    squares = build.function("square", features)
    slopes = np.vstack([2.0 * run.scale * np.eye(size), np.zeros((1, size))])
    keys = build.affine([(features, slopes), (squares, np.outer(last, np.full(size, -run.scale)))], 0.0 * last)
    return build.graph(build.attend(queries, keys, labels))


def neighbours_of(graph: Graph) -> Neighbours | None:
    """What a graph of `neighbours_graph` computes, read off its nodes; None for any other graph."""
    features, last = (graph.input.size - 1) // 2, graph.nodes[graph.output]
    keys = graph.nodes[last.keys] if isinstance(last, Attend) else None
    if features < 1 or list(graph.input.names) != input_names(features) or not isinstance(keys, Affine):
        return None
    if not keys.terms:
        return None
    run = Neighbours(features, -float(keys.terms[-1].weights.flat[-1]))
    return run if run.scale > 0.0 and same_graph(graph, neighbours_graph(run)) else None


def scale_of(bandwidth: float) -> float:
    """s of the kernel exp(-|q - x|^2 / (2 bandwidth^2))."""
    if not (isinstance(bandwidth, numbers.Real) and math.isfinite(bandwidth) and bandwidth > 0.0):
        raise TargetError(f"bandwidth is {bandwidth!r}; it must be a positive finite number")
    scale = 0.5 / (float(bandwidth) * float(bandwidth)) if bandwidth > 1e-150 else math.inf
    if not 0.0 < scale < LARGEST:
        raise TargetError(f"a bandwidth of {bandwidth!r} makes scores of {scale:.3g} and more: scale the data")
    return scale


def scale_for(gap: float, examples: int, spread: float, error: float) -> float:
    """The smallest s with spread (examples - 1) e^{-s gap} <= error, slightly more."""
    if not (isinstance(gap, numbers.Real) and math.isfinite(gap) and gap > 0.0):
        raise TargetError(f"gap is {gap!r}; it must be a positive finite number, a difference of squared distances")
    weight = math.log(max(examples - 1, 1)) + math.log(max(spread, 1e-300)) - math.log(error)
    scale = max(weight, 1.0) * (1.0 + 1e-9) / gap
    if not scale < LARGEST:
        raise TargetError(
            f"a gap of {gap!r} needs scores of {scale:.3g} and more: scale the data, or take a larger gap"
        )
    return scale


def neighbour_error(scale: float, gap: float, examples: int, spread: float) -> float:
    """Bound of |kernel mean - the nearest example's label|, if it is nearer than the others by `gap` in squared
    distance.

    Guarantee: spread (examples - 1) e^{-scale gap}, rounded up.
    """
    exponent = -scale * gap * (1.0 - 1e-15)
    return float(upper(spread * (examples - 1) * math.exp(max(exponent, -700.0)) * (1.0 + 1e-9), 4))
