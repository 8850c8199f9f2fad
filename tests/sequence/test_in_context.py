"""Learners in context: certified against exact gradient descent, for every context of the domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.arrays import frozen
from headsmith.core.errors import CertificateError, DomainError, HeadsmithError, TargetError
from headsmith.lab.claims.in_context import same_heads
from headsmith.language.evaluation import evaluate
from headsmith.sequence import in_context
from headsmith.sequence.descent import descended, descent_of, largest_rate

LEARNERS: dict[str, Callable[[], in_context.Learner]] = {
    "squared": lambda: in_context.least_squares(3, 2, 5, error=1e-3, weights=True),
    "ridge": lambda: in_context.ridge(0.5, 3, 3, 8, error=1e-3),
    "lasso": lambda: in_context.lasso(0.05, 2, 2, 5, error=1e-2),
    "logistic": lambda: in_context.logistic(2, 2, 5, error=3e-2, decay=0.1),
    "uneven": lambda: in_context.least_squares(
        2, 2, 5, domain=[(-2, 1), (0, 3)], labels=(-4, 4), queries=(0, 1), error=1e-2
    ),
    "alone": lambda: in_context.least_squares(3, 2, 1, error=1e-4),
    "kernel": lambda: in_context.kernel_regression(0.5, 2, 6, error=1e-5),
    "wide kernel": lambda: in_context.kernel_regression(30.0, 1, 4, domain=(0, 40), labels=(-9, 5), error=1e-3),
    "nearest": lambda: in_context.nearest_neighbour(2, 6, gap=0.05, error=1e-4),
    "kernel, alone": lambda: in_context.kernel_regression(0.5, 2, 1, error=1e-5),
    "one feature": lambda: in_context.gradient_descent("squared", 3, 2.0, 1, 4, error=1e-3),
}


@cache
def learner(name: str) -> in_context.Learner:
    return LEARNERS[name]()


def parts(model: in_context.Learner) -> tuple[Any, Any, Any]:
    """The boxes of features, labels and queries, each as (low, high)."""
    box, size = model.box, model.features
    places = (slice(size), slice(size, size + 1), slice(size + 1, None))
    x, y, q = ((box.low[place], box.high[place]) for place in places)
    return x, y, q


def contexts(model: in_context.Learner) -> list[tuple[str, Any, Any, Any]]:
    """Ordinary and adversarial contexts, of every size up to the capacity."""
    random = np.random.default_rng(7)
    x, y, q = parts(model)
    size, found = model.features, []
    corners = np.where(random.random((9, size)) < 0.5, *q)
    for m in range(1, model.examples + 1):
        inside, labels = random.uniform(*x, (m, size)), random.uniform(*y, (m, 1))[:, 0]
        extreme = np.where(random.random((m, size)) < 0.5, *x)
        ends = np.where(random.random(m) < 0.5, *(end[0] for end in y))
        zero = np.clip(np.zeros((m, size)), *x)
        found += [
            (f"random, {m}", inside, labels, random.uniform(*q, (2 * m + 1, size))),
            (f"corners, {m}", extreme, ends, corners),
            (f"collinear, {m}", np.repeat(extreme[:1], m, axis=0), ends, corners),
            (f"same label, {m}", np.repeat(extreme[:1], m, axis=0), np.full(m, y[1][0]), corners),
            (f"zero features, {m}", zero, ends, corners),
            (f"tiny features, {m}", np.clip(1e-9 * inside, *x), ends, corners),
        ]
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LEARNERS)
def test_no_context_refutes_the_certificate(name: str) -> None:
    model, worst = learner(name), 0.0
    for title, X, y, queries in contexts(model):
        off = np.abs(model.predict(X, y, queries) - model.exact(X, y, queries))
        assert off.shape == (len(queries),)
        assert off.max() <= model.certificate.error, title
        worst = max(worst, float(off.max()))
    assert worst > 0.0 or name == "kernel, alone"


def by_hand(X: Any, y: Any, steps: int, rate: float, decay: float, threshold: float, loss: str) -> Any:
    """Gradient descent as one writes it, example by example."""
    w = np.zeros(X.shape[1])
    for _ in range(steps):
        gradient = decay * w
        for row, label in zip(X, y, strict=True):
            score = float(row @ w)
            gradient = gradient + ((score if loss == "squared" else 1.0 / (1.0 + np.exp(-score))) - label) * row / len(
                X
            )
        w = w - rate * gradient
        w = np.sign(w) * np.maximum(np.abs(w) - rate * threshold, 0.0)
    return w


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "decay", "threshold"),
    [("squared", 0.0, 0.0), ("ridge", 0.5, 0.0), ("lasso", 0.0, 0.05), ("logistic", 0.1, 0.0)],
)
def test_exact_is_gradient_descent(name: str, decay: float, threshold: float) -> None:
    model = learner(name)
    for _, X, y, queries in contexts(model):
        w = by_hand(X, y, model.rule.steps, model.rule.rate, decay, threshold, model.rule.loss)
        np.testing.assert_allclose(np.asarray(model.exact(X, y, queries), dtype=float), queries @ w, atol=1e-14)
        graph = evaluate(model.graph, model.sequences(X, y, queries), np.longdouble)[..., 0].ravel()[: len(queries)]
        np.testing.assert_allclose(np.asarray(graph - model.exact(X, y, queries), dtype=float), 0.0, atol=1e-17)


def test_exact_agrees_with_rational_arithmetic() -> None:
    model = learner("ridge")
    X, y = np.random.default_rng(3).uniform(-1.0, 1.0, (5, 3)), np.linspace(-1.0, 1.0, 5)
    rational = descended(model.rule, np.vectorize(Fraction, otypes=[object])(X), [Fraction(v) for v in y], object)
    assert all(isinstance(weight, Fraction) for weight in rational)
    extended = descended(model.rule, X, y)
    assert max(abs(float(Fraction(*w.as_integer_ratio()) - r)) for w, r in zip(extended, rational, strict=True)) < 1e-18


def test_weights_are_certified_too() -> None:
    model = learner("squared")
    for title, X, y, _ in contexts(model):
        off = np.abs(model.weights(X, y) - descended(model.rule, X, y))
        assert off.max() <= model.certificate.error, title
    with pytest.raises(TargetError, match="weights=True"):
        learner("ridge").weights([[0.0, 0.0, 0.0]], [0.0])


def test_queries_come_in_any_number_and_do_not_see_each_other() -> None:
    model = learner("ridge")
    random = np.random.default_rng(5)
    X, y, queries = random.uniform(-1, 1, (5, 3)), random.uniform(-1, 1, 5), random.uniform(-1, 1, (23, 3))
    whole = model.predict(X, y, queries)
    alone = np.concatenate([model.predict(X, y, query[None]) for query in queries])
    np.testing.assert_allclose(whole, alone, atol=1e-9)
    assert model.predict(X, y, np.zeros((0, 3))).shape == (0,)


def test_more_examples_than_the_capacity_are_refused() -> None:
    model = learner("ridge")
    with pytest.raises(DomainError, match="a context of 9 examples; this learner was compiled for 1 to 8"):
        model.predict(np.zeros((9, 3)), np.zeros(9), np.zeros((1, 3)))
    with pytest.raises(DomainError, match="a context of 0 examples"):
        model.predict(np.zeros((0, 3)), np.zeros(0), np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, q: (X * 3, y, q), r"X\[0, 0\] = 1.5 lies outside its domain \[-1.0, 1.0\]"),
        (lambda X, y, q: (X, y * np.nan, q), r"y\[0\] = nan lies outside"),
        (lambda X, y, q: (X, y, q - 2), r"queries\[0, 0\] = -1.5 lies outside"),
        (lambda X, y, q: (X[:, :2], y, q), r"X has shape \(4, 2\); this learner takes rows of 3 features"),
        (lambda X, y, q: (X, y[:3], q), r"y has shape \(3,\); it should be \(4,\)"),
        (lambda X, y, q: (X, y, q[0]), r"queries has shape \(3,\)"),
    ],
)
def test_what_lies_outside_is_refused(change: Callable[..., Any], message: str) -> None:
    half = np.full((4, 3), 0.5)
    with pytest.raises(DomainError, match=message):
        learner("ridge").predict(*change(half, half[:, 0], half))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("hinge", 2, None, 2, 4), {}, "unknown loss 'hinge'; choose one of squared, logistic"),
        (("squared", 0, None, 2, 4), {}, "steps is 0"),
        (("squared", 2, None, 0, 4), {}, "features is 0"),
        (("squared", 2, None, 2, 1.5), {}, "examples is 1.5"),
        (("squared", 2, -0.1, 2, 4), {}, "rate is -0.1"),
        (("squared", 2, None, 2, 4), {"decay": -1.0}, "decay is -1.0"),
        (("squared", 2, 1.01, 2, 4), {}, r"rate of 1.01 may expand .* L = 2, and the rate must be at most 1 "),
        (("logistic", 2, 4.1, 2, 4), {}, r"rate of 4.1 may expand .* L = 0.5, and the rate must be at most 4 "),
        (("squared", 2, 0.3, 2, 4), {"decay": 4.0}, "must be at most 0.25 "),
        (("squared", 2, None, 2, 4), {"preconditioner": np.eye(3)}, r"the preconditioner has shape \(3, 3\)"),
    ],
)
def test_what_cannot_be_compiled_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        in_context.gradient_descent(*arguments, **options)


@pytest.mark.parametrize("change", [{"threshold": 1.0}, {"labels": (1.0, 1.0)}, {"domain": (0.0, 0.0)}])
def test_a_learner_whose_steps_are_constants_is_refused_before_it_is_saved(change: dict[str, Any]) -> None:
    """No |mean of x y| exceeds a threshold of 1, so every weight stays zero; labels that are all one say nothing. What
    such a file learns from cannot be read off its target."""
    with pytest.raises(TargetError, match="intervals of some width"):
        hs.in_context.gradient_descent("squared", 2, None, 2, 4, error=1e-2, **change)


def test_the_largest_rate_is_accepted_and_certified() -> None:
    assert learner("one feature").rule.rate == pytest.approx(2.0, rel=1e-11)
    assert learner("ridge").rule.rate == largest_rate("squared", np.ones(3), 0.5)
    assert in_context.least_squares(2, 2, 3, error=1e-2).rule.rate == 0.5


def test_a_learner_is_saved_loaded_and_verified(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    for name in ("ridge", "lasso", "logistic", "squared", "kernel", "nearest"):
        model = learner(name)
        model.save(tmp_path / "learner.safetensors")
        again = hs.load(tmp_path / "learner.safetensors")
        assert again.rule == model.rule
        X, y = random.uniform(-1, 1, (4, model.features)), random.uniform(0, 1, 4)
        assert np.array_equal(again.predict(X, y, X), model.predict(X, y, X))
        assert again.verify().error <= model.certificate.error * (1.0 + 1e-9)


def test_a_changed_rate_is_not_verified() -> None:
    """The certificate is about the stated steps: those of another rate are another algorithm."""
    mine, other = learner("ridge"), in_context.ridge(0.5, 3, 3, 8, rate=0.3, error=1e-3)
    from headsmith.model import verify

    with pytest.raises(CertificateError):
        verify(replace(other, graph=mine.graph))


def test_only_learners_are_read_as_learners() -> None:
    from headsmith.compile import compile

    with pytest.raises(HeadsmithError, match="does not learn in context"):
        in_context.learner_of(compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-2))


def test_a_preconditioner_is_saved_with_its_learner(tmp_path: Path) -> None:
    matrix = np.array([[0.5, 0.25]])
    model = in_context.least_squares(1, 1, 3, preconditioner=matrix, error=1e-3)
    model.save(tmp_path / "learner.safetensors")
    again = hs.load(tmp_path / "learner.safetensors")
    X, y = np.array([[0.2, 0.4], [-0.3, 0.1]]), np.array([0.5, -0.5])
    assert np.array_equal(again.predict(X, y, X), model.predict(X, y, X))
    assert np.array_equal(again.preconditioner, matrix)


def test_a_preconditioner_is_a_map_of_the_features() -> None:
    random = np.random.default_rng(2)
    matrix = random.uniform(-0.5, 0.5, (3, 2))
    plain = learner("ridge")
    mapped = replace(plain, preconditioner=frozen(matrix))
    X, y = random.uniform(-0.9, 0.9, (6, 2)), random.uniform(-1, 1, 6)
    np.testing.assert_array_equal(mapped.predict(X, y, X), plain.predict(X @ matrix.T, y, X @ matrix.T))
    with pytest.raises(DomainError, match="after the preconditioner"):
        mapped.predict(9 * X, y, X)
    assert descent_of(plain.graph) == plain.rule


def test_the_proof_knows_the_steps() -> None:
    """Every step after the first is one that the kernel knows not to expand; fused, none would be."""
    for name in ("squared", "ridge", "logistic"):
        model = learner(name)
        assert len(model.proof.stored["steps"]) == model.rule.steps - 1


def test_with_the_same_heads_errors_do_not_multiply_from_step_to_step() -> None:
    """Component by component, a step of rate 1/L doubles an error: four more steps would make it sixteenfold."""
    few, more = (same_heads(steps).certificate.error for steps in (4, 8))
    assert few < more <= 5.0 * few


def test_whitened_features_need_far_fewer_steps() -> None:
    """Two nearly collinear features: four steps on P x are nearer to least squares than four on x."""
    random = np.random.default_rng(4)
    signs = np.where(random.random((32, 2)) < 0.5, -1.0, 1.0)
    X = np.column_stack([signs[:, 0], 0.9 * signs[:, 0] + 0.1 * signs[:, 1]])
    y = X @ [0.3, -0.5]
    whitening = np.linalg.inv(np.linalg.cholesky(X.T @ X / len(X)))
    plain = in_context.least_squares(4, 2, 32, rate=1.0, error=1e-2)
    white = in_context.least_squares(4, 2, 32, rate=0.44, domain=(-1.5, 1.5), preconditioner=whitening, error=1e-2)
    off = [np.abs(model.predict(X, y, X) - y).max() for model in (plain, white)]
    assert white.bill.layers == plain.bill.layers
    assert off[1] < 0.2 * off[0]
    assert np.abs(white.predict(X, y, X) - white.exact(X, y, X)).max() <= white.certificate.error
