"""Learners in context: transformers that fit a model to the examples they are shown, with weights that nobody trained.

    learner = hs.in_context.ridge(decay=2.0, steps=20, features=10, examples=64)
    learner.predict(X, y, queries)       # X (m, 10), y (m,), m <= 64; queries (k, 10): k predictions
    learner.certificate.error            # proven: this close to the same steps in exact arithmetic, always
    hs.in_context.newton(decay=0.05, doublings=9, features=10, examples=64)        # 512 such steps in 12 layers

A context is the tokens (x_i, y_i), each with a query of its own. Penalties are those of the mean of the losses:

    mean loss(w . x_i, y_i) + decay/2 |w|^2 + threshold |w|_1,       squared loss 1/2 (w . x - y)^2

so that `decay` is scikit-learn's Ridge alpha / m and 1 / (C m) of its LogisticRegression, and `threshold` its Lasso
alpha. There is no intercept: centre the data, or give a constant feature.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box, as_box
from headsmith.core.progress import Shown
from headsmith.core.rounding import Dtype
from headsmith.language.graph import Graph
from headsmith.model import Compiled, parts_of
from headsmith.plan.reading import check_counts, check_error
from headsmith.sequence.descent import (
    LOSSES,
    Descent,
    Loss,
    checked_rate,
    descent_graph,
    descent_of,
    input_names,
    largest_rate,
)
from headsmith.sequence.learner import Learner, Rule
from headsmith.sequence.neighbours import (
    Neighbours,
    neighbour_error,
    neighbours_graph,
    neighbours_of,
    scale_for,
    scale_of,
)
from headsmith.sequence.newton import MOST_LEVELS, Newton, best_rate, newton_graph, newton_of

__all__ = [
    "Learner",
    "gradient_descent",
    "kernel_regression",
    "lasso",
    "least_squares",
    "logistic",
    "nearest_neighbour",
    "newton",
    "ridge",
]


def __dir__() -> list[str]:
    return __all__


def gradient_descent(
    loss: Loss,
    steps: int,
    rate: float | None,
    features: int,
    examples: int,
    *,
    domain: Any = (-1.0, 1.0),
    labels: Any = None,
    queries: Any = None,
    error: float = 1e-6,
    decay: float = 0.0,
    threshold: float = 0.0,
    preconditioner: Any = None,
    weights: bool = False,
    dtype: Dtype = "float64",
    progress: Shown = None,
) -> Learner:
    """A transformer that takes `steps` steps of gradient descent, from w = 0, on up to `examples` examples.

    `domain` is (low, high) for all features, or a pair for each; `labels` the interval of the labels (default (-1, 1),
    for the logistic loss (0, 1)); `queries` that of the queries (default: as the features). `rate` None takes 1/L, L =
    c * sum of max|x_k|^2 + decay with c = 1 (squared) or 1/4 (logistic); up to 2/L is allowed, and converges faster
    where `decay` is what makes the loss strongly convex. `preconditioner` is a matrix P: the steps are on P x, and
    `domain` and `queries` are about P x (a whitening P needs far fewer steps). With `weights`, w is certified too.

    Guarantee: |predict - exact| <= certificate.error <= error for every context and query in the domain. The error is
    linear in the number of steps.
    """
    _check_numbers(loss, steps, features, examples, decay, threshold)
    if labels is None and loss == "logistic":
        labels = (0.0, 1.0)
    shown, pairs = _domain(features, domain, labels, queries)
    largest = np.maximum(np.abs(shown.low), np.abs(shown.high))
    chosen = checked_rate(loss, rate, largest, decay)
    run = Descent(loss, int(steps), int(features), chosen, 1.0 - chosen * decay, chosen * threshold)
    matrix = _checked_matrix(preconditioner, features)
    return _learner(run, descent_graph(run, weights), pairs, error, examples, dtype, progress, matrix)


def _domain(features: int, domain: Any, labels: Any, queries: Any) -> tuple[Box, list[tuple[float, float]]]:
    """The box of the features, and the intervals of all inputs."""
    names = input_names(features)
    shown = as_box(domain, names[:features])
    asked = shown if queries is None else as_box(queries, names[features + 1 :])
    label = as_box((-1.0, 1.0) if labels is None else labels, "y")
    return shown, [pair for box in (shown, label, asked) for pair in zip(box.low, box.high, strict=True)]


def _learner(
    run: Rule,
    graph: Graph,
    pairs: list[tuple[float, float]],
    error: float,
    examples: int,
    dtype: Dtype,
    progress: Shown,
    preconditioner: Array | None = None,
) -> Learner:
    """The learner of a run, whose graph takes inputs in these intervals."""
    options: dict[str, Any] = {"tokens": int(examples), "dtype": dtype, "progress": progress}
    compiled = compile(graph, pairs, error, recipe="native", **options)
    try:
        learner_of(compiled)  # as it is read from a file
    except TargetError:
        raise TargetError(
            "on this domain some steps of the learner are the same for all examples, and a saved model could not be "
            "told from others: give features, labels and queries intervals of some width, and a threshold below "
            "the largest |x y|"
        ) from None
    return _as_learner(compiled, run, preconditioner)


def _as_learner(compiled: Compiled, rule: Rule, preconditioner: Array | None) -> Learner:
    return Learner(**parts_of(compiled), rule=rule, preconditioner=preconditioner)


def least_squares(steps: int, features: int, examples: int, *, rate: float | None = None, **options: Any) -> Learner:
    """Gradient descent on the mean of 1/2 (w . x - y)^2."""
    return gradient_descent("squared", steps, rate, features, examples, **options)


def ridge(
    decay: float, steps: int, features: int, examples: int, *, rate: float | None = None, **options: Any
) -> Learner:
    """Least squares with decay/2 |w|^2: for m examples, what scikit-learn's Ridge(alpha = m decay) minimises. Steps are
    of the largest rate by default: with a decay they converge nearly twice as fast as those of 1/L."""
    return gradient_descent(
        "squared", steps, _fast(rate, "squared", features, decay, options), features, examples, decay=decay, **options
    )


def lasso(
    alpha: float, steps: int, features: int, examples: int, *, rate: float | None = None, **options: Any
) -> Learner:
    """Least squares with alpha |w|_1, by proximal steps (soft thresholds): scikit-learn's Lasso(alpha)."""
    return gradient_descent("squared", steps, rate, features, examples, threshold=alpha, **options)


def logistic(
    steps: int, features: int, examples: int, *, decay: float = 0.0, rate: float | None = None, **options: Any
) -> Learner:
    """Logistic regression, labels in [0, 1], with decay/2 |w|^2: LogisticRegression(C = 1 / (m decay)).
    The default rate is that of `ridge`."""
    chosen = _fast(rate, "logistic", features, decay, options)
    return gradient_descent("logistic", steps, chosen, features, examples, decay=decay, **options)


def newton(
    decay: float,
    doublings: int,
    features: int,
    examples: int,
    *,
    rate: float | None = None,
    domain: Any = (-1.0, 1.0),
    labels: Any = None,
    queries: Any = None,
    error: float = 1e-6,
    weights: bool = False,
    dtype: Dtype = "float64",
    progress: Shown = None,
) -> Learner:
    """Ridge regression (least squares, for decay = 0) by Newton's iteration: in doublings + 3 layers, exactly what
    2^doublings steps of gradient descent at that `rate` lead to. Options are those of `gradient_descent`.

    `rate` None takes 2 / (S^2 + 2 decay), S^2 = sum of max|x_k|^2, whose steps shrink distances most; for decay = 0,
    1 / S^2.

    Guarantee: |predict - exact| <= certificate.error <= error for every context and query in the domain.
    """
    check_counts(doublings=doublings)
    _check_numbers("squared", 1, features, examples, decay, 0.0)
    if doublings > MOST_LEVELS:
        raise TargetError(f"doublings is {doublings!r}; it must be at most {MOST_LEVELS}")
    shown, pairs = _domain(features, domain, labels, queries)
    largest = np.maximum(np.abs(shown.low), np.abs(shown.high))
    chosen = checked_rate("squared", best_rate(largest, decay) if rate is None else rate, largest, decay)
    run = Newton(int(doublings), int(features), chosen, 1.0 - chosen * decay)
    return _learner(run, newton_graph(run, weights), pairs, error, examples, dtype, progress)


def kernel_regression(
    bandwidth: float,
    features: int,
    examples: int,
    *,
    domain: Any = (-1.0, 1.0),
    labels: Any = None,
    queries: Any = None,
    error: float = 1e-6,
    dtype: Dtype = "float64",
    progress: Shown = None,
) -> Learner:
    """The mean of the labels with weights exp(-|q - x|^2 / (2 bandwidth^2)): two layers, whatever the number of
    examples. What Nadaraya and Watson proposed, and scikit-learn's KNeighborsRegressor with all neighbours and these
    weights computes.

    Guarantee: |predict - exact| <= certificate.error <= error for every context and query in the domain.
    """
    check_counts(features=features, examples=examples)
    _, pairs = _domain(features, domain, labels, queries)
    run = Neighbours(int(features), scale_of(bandwidth))
    return _learner(run, neighbours_graph(run), pairs, error, examples, dtype, progress)


def nearest_neighbour(
    features: int,
    examples: int,
    *,
    gap: float,
    domain: Any = (-1.0, 1.0),
    labels: Any = None,
    queries: Any = None,
    error: float = 1e-6,
    dtype: Dtype = "float64",
    progress: Shown = None,
) -> Learner:
    """The label of the nearest example, by a kernel mean that is narrow enough: two layers.

    Which example is nearest jumps where two are equally near, and no continuous function follows that. So the
    certificate is about the kernel mean, and the rest is a theorem: where the nearest example is nearer than all others
    by at least `gap` in squared distance, predictions are within `error` of its label. Elsewhere they are means of the
    labels of examples that are nearly as near.
    """
    check_counts(features=features, examples=examples)
    _, pairs = _domain(features, domain, labels, queries)
    spread = pairs[features][1] - pairs[features][0]
    check_error(error)
    scale = scale_for(gap, int(examples), spread, error / 4.0)
    left, run = error - neighbour_error(scale, gap, int(examples), spread), Neighbours(int(features), scale)
    return _learner(run, neighbours_graph(run), pairs, left, examples, dtype, progress)


def learner_of(compiled: Compiled, preconditioner: Any = None) -> Learner:
    """A compiled model as the learner that it is: its rule is read off its target. TargetError if it is none."""
    graph = compiled.graph
    rule = neighbours_of(graph) or newton_of(graph) or descent_of(graph)
    return _as_learner(compiled, rule, _checked_matrix(preconditioner, rule.features))


def _fast(rate: float | None, loss: Loss, features: int, decay: float, options: dict[str, Any]) -> float | None:
    """The largest rate, unless one is given."""
    if rate is not None or not decay > 0.0:
        return rate
    shown = as_box(options.get("domain", (-1.0, 1.0)), input_names(features)[:features])
    return largest_rate(loss, np.maximum(np.abs(shown.low), np.abs(shown.high)), decay)


def _checked_matrix(matrix: Any, features: int) -> Array | None:
    if matrix is None:
        return None
    try:
        found = frozen(matrix)
    except (TypeError, ValueError) as problem:
        raise TargetError(f"the preconditioner is no matrix of real numbers: {problem}") from None
    if found.ndim != 2 or found.shape[0] != features or not np.isfinite(found).all():
        raise TargetError(
            f"the preconditioner has shape {found.shape}; it must be a finite matrix with {features} rows"
        )
    return found


def _check_numbers(loss: str, steps: Any, features: Any, examples: Any, decay: Any, threshold: Any) -> None:
    if loss not in LOSSES:
        raise TargetError(f"unknown loss {loss!r}; choose one of {', '.join(LOSSES)}")
    check_counts(steps=steps, features=features, examples=examples)
    for name, number in (("decay", decay), ("threshold", threshold)):
        if not (isinstance(number, numbers.Real) and 0.0 <= float(number) < math.inf):
            raise TargetError(f"{name} is {number!r}; it must be a finite number, not negative")
