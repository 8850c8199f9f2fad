"""Newton's iteration in context.

Theorem. For least squares with a decay, k doublings Q <- Q Q, w <- w + Q w from Q = I - rate M, w = rate b lead to what
2^k steps of gradient descent lead to, and the transformer is within its certificate of that, for every context of the
domain.
"""

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
from headsmith.core.errors import CertificateError, TargetError
from headsmith.language.evaluation import evaluate
from headsmith.model import verify
from headsmith.sequence import in_context
from headsmith.sequence.descent import Descent, descended
from headsmith.sequence.newton import Newton, best_rate, doubled, newton_graph, newton_of

LEARNERS: dict[str, Callable[[], in_context.Learner]] = {
    "ridge": lambda: in_context.newton(0.1, 2, 2, 4, weights=True, error=1e-3),
    "least squares": lambda: in_context.newton(0.0, 2, 3, 5, error=1e-3),
    "one feature": lambda: in_context.newton(0.05, 4, 1, 4, error=1e-3),
    "alone": lambda: in_context.newton(0.2, 2, 2, 1, error=1e-3),
    "one doubling": lambda: in_context.newton(0.5, 1, 2, 3, error=1e-6),
    "uneven": lambda: in_context.newton(
        0.3, 2, 2, 4, domain=[(-2, 1), (0, 3)], labels=(-400, 100), queries=(0, 1), error=1e-3
    ),
    "largest rate": lambda: in_context.newton(0.1, 3, 2, 4, rate=2.0 / 2.1 * (1.0 - 1e-11), error=1e-3),
}


@cache
def learner(name: str) -> in_context.Learner:
    return LEARNERS[name]()


def contexts(model: in_context.Learner) -> list[tuple[str, Any, Any, Any]]:
    """Ordinary, extreme, collinear, zero and tiny examples, of every number up to the capacity."""
    random, size = np.random.default_rng(3), model.features
    box = model.box
    (low, high), (least, most) = ((end[:size] for end in (box.low, box.high)), (box.low[size], box.high[size]))
    first, last = box.low[size + 1 :], box.high[size + 1 :]
    found = []
    for m in range(1, model.examples + 1):
        queries = np.where(random.random((2 * m + 1, size)) < 0.5, first, last)
        inside, corners = random.uniform(low, high, (m, size)), np.where(random.random((m, size)) < 0.5, low, high)
        ends = np.where(random.random(m) < 0.5, least, most)
        found += [
            (f"random, {m}", inside, random.uniform(least, most, m), random.uniform(first, last, (m, size))),
            (f"corners, {m}", corners, ends, queries),
            (f"collinear, {m}", np.repeat(corners[:1], m, axis=0), ends, queries),
            (f"the largest label, {m}", np.repeat(corners[:1], m, axis=0), np.full(m, most), queries),
            (f"zero features, {m}", np.clip(0.0 * inside, low, high), ends, queries),
            (f"tiny features, {m}", np.clip(1e-9 * inside, low, high), ends, queries),
        ]
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LEARNERS)
def test_no_context_refutes_the_certificate(name: str) -> None:
    model, worst = learner(name), 0.0
    for title, X, y, queries in contexts(model):
        off = np.abs(model.predict(X, y, queries) - model.exact(X, y, queries))
        assert off.max() <= model.certificate.error, title
        worst = max(worst, float(off.max()))
    assert worst > 0.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", LEARNERS)
def test_exact_is_gradient_descent_of_two_to_the_doublings_steps(name: str) -> None:
    """And the graph computes it."""
    model = learner(name)
    run = model.rule
    assert isinstance(run, Newton)
    same = Descent("squared", 2**run.doublings, run.features, run.rate, run.kept)
    for title, X, y, queries in contexts(model):
        w = descended(same, X, y)
        scale = 1e-16 * max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(doubled(run, X, y).astype(float), w.astype(float), rtol=0, atol=scale, err_msg=title)
        graph = evaluate(model.graph, model.sequences(X, y, queries), np.longdouble)[..., 0].ravel()[: len(queries)]
        off = np.abs(graph - model.exact(X, y, queries))
        assert float(off.max()) <= scale, title


def test_in_rational_arithmetic_both_are_equal() -> None:
    run = Newton(3, 3, 0.3, 1.0 - 0.3 * 0.1)
    X = np.vectorize(Fraction, otypes=[object])(np.random.default_rng(1).uniform(-1, 1, (4, 3)).round(3))
    y = np.array([Fraction(1), Fraction(-1, 3), Fraction(0), Fraction(2, 7)], dtype=object)
    steps = descended(Descent("squared", 8, 3, run.rate, run.kept), X, y, object)
    assert list(doubled(run, X, y, object)) == list(steps)
    assert all(isinstance(weight, Fraction) for weight in steps)


def test_the_transformer_is_within_its_certificate_of_rational_arithmetic() -> None:
    model = learner("ridge")
    assert isinstance(model.rule, Newton)
    X, y = np.random.default_rng(9).uniform(-1, 1, (4, 2)), np.linspace(-1, 1, 4)
    exact = doubled(model.rule, np.vectorize(Fraction, otypes=[object])(X), [Fraction(v) for v in y], object)
    off = [abs(Fraction(float(w)) - e) for w, e in zip(model.weights(X, y), exact, strict=True)]
    assert max(off) <= Fraction(model.certificate.error)


def test_weights_are_certified_too() -> None:
    model = learner("ridge")
    assert isinstance(model.rule, Newton)
    for title, X, y, _ in contexts(model):
        assert np.abs(model.weights(X, y) - doubled(model.rule, X, y)).max() <= model.certificate.error, title
    with pytest.raises(TargetError, match="weights=True"):
        learner("least squares").weights([[0.0, 0.0, 0.0]], [0.0])


def test_a_doubling_is_one_layer() -> None:
    """Products, mean, doublings, prediction: gradient descent takes three layers a step."""
    for name in ("ridge", "one feature"):
        model = learner(name)
        assert isinstance(model.rule, Newton)
        assert model.bill.layers == model.rule.doublings + 3


def test_it_converges_to_ridge_regression() -> None:
    """Sixteen steps of the default rate: within q^16 of the minimum."""
    model = learner("one feature")
    X, y = np.array([[0.9], [-0.7], [1.0], [0.8]]), np.array([0.5, -0.4, 0.6, 0.3])
    w = float(X[:, 0] @ y) / (float(X[:, 0] @ X[:, 0]) + 0.05 * 4)
    assert abs(model.predict(X, y, [[1.0]])[0] - w) <= 2.0 * (1.0 / 1.1) ** 16
    assert best_rate(np.ones(1), 0.05) == pytest.approx(2.0 / 1.1)


def test_a_learner_is_saved_loaded_and_verified(tmp_path: Path) -> None:
    model = learner("ridge")
    model.save(tmp_path / "newton.safetensors")
    again = hs.load(tmp_path / "newton.safetensors")
    assert again.rule == model.rule
    X, y = np.full((3, 2), 0.5), np.array([1.0, 0.0, -1.0])
    assert np.array_equal(again.predict(X, y, X), model.predict(X, y, X))
    assert again.verify().error <= model.certificate.error * (1.0 + 1e-9)


def test_other_doublings_are_not_verified() -> None:
    """The weights of one rate do not compute another, and a graph with one wrong weight is no run of Newton's."""
    mine, other = learner("ridge"), in_context.newton(0.1, 2, 2, 4, rate=0.5, weights=True, error=1e-3)
    with pytest.raises(CertificateError):
        verify(replace(other, graph=mine.graph))
    assert newton_of(newton_graph(Newton(2, 2, 0.3, 0.9))) == Newton(2, 2, 0.3, 0.9)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0.1, 0, 2, 4), {}, "doublings is 0"),
        ((0.1, 61, 2, 4), {}, "doublings is 61; it must be at most 60"),
        ((0.1, 2, 0, 4), {}, "features is 0"),
        ((-0.1, 2, 2, 4), {}, "decay is -0.1"),
        ((0.1, 2, 2, 4), {"rate": 1.0}, "rate of 1 may expand distances"),
        ((0.1, 2, 2, 4), {"rate": -1.0}, "rate is -1.0"),
    ],
)
def test_what_cannot_be_compiled_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        in_context.newton(*arguments, **options)
