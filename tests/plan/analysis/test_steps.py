"""Gradient steps of convex losses do not expand distances: errors grow linearly with the number of steps.

Theorem. For rate (c max|x|^2 + decay) <= 2 the step w' = (1 - rate decay) w - rate mean(loss'(w.x, y) x) moves two
weights no further apart in the 2-norm; in a target, the kernel's rule recognises such steps, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import known_of_target
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.choose import target_flow


def descent(
    d: int, steps: int, rate: float, loss: str = "squared", decay: float = 0.0, threshold: float = 0.0
) -> Graph:
    """Inputs (x, y, q) of every token; output w . q after so many steps from zero."""
    b = Builder([*(f"x{k}" for k in range(d)), "y", *(f"q{k}" for k in range(d))])
    x, y, q = (
        b.affine([(0, np.eye(2 * d + 1)[a:e])], np.zeros(e - a)) for a, e in ((0, d), (d, d + 1), (d + 1, 2 * d + 1))
    )
    ones, w = np.ones, None
    for _ in range(steps):
        if w is None:
            r = b.affine([(y, -ones((d, 1)))], np.full(d, 0.5 if loss == "logistic" else 0.0))
        elif loss == "squared":
            r = b.affine([(b.product(w, x), ones((d, d))), (y, -ones((d, 1)))], np.zeros(d))
        else:
            score = b.function("sigmoid", b.affine([(b.product(w, x), ones((1, d)))], np.zeros(1)))
            r = b.affine([(score, ones((d, 1))), (y, -ones((d, 1)))], np.zeros(d))
        mean = b.pool("mean", b.product(r, x))
        terms = [(mean, np.full(d, -rate))]
        w = b.affine(terms if w is None else [(w, np.full(d, 1.0 - rate * decay)), *terms], np.zeros(d))
        if threshold:
            above, below = (b.relu(b.affine([(w, s * ones(d))], np.full(d, -rate * threshold))) for s in (1.0, -1.0))
            w = b.affine([(above, ones(d)), (below, -ones(d))], np.zeros(d))
    assert w is not None
    return b.graph(b.affine([(b.product(w, q), ones((1, d)))], np.zeros(1)))


def box(d: int, loss: str = "squared") -> list[tuple[float, float]]:
    return [(-1.0, 1.0)] * d + [(0.0, 1.0) if loss == "logistic" else (-1.0, 1.0)] + [(-1.0, 1.0)] * d


CASES: list[dict[str, Any]] = [
    {"loss": "squared"},
    {"loss": "logistic"},
    {"loss": "squared", "decay": 0.2},
    {"loss": "squared", "threshold": 0.05},
]


@pytest.mark.parametrize("case", CASES, ids=["squared", "logistic", "ridge", "lasso"])
def test_certified_and_never_violated(case) -> None:
    d, tokens = 2, 6
    rate = (4.0 if case["loss"] == "logistic" else 0.9) / d
    graph = descent(d, 3, rate, **case)
    domain = box(d, case["loss"])
    model = hs.compile(graph, domain, error=1e-3, tokens=tokens, recipe="native")
    low, high = np.array(domain).T
    rng = np.random.default_rng(0)
    for length in (1, 2, tokens):
        contexts = np.concatenate(
            [
                rng.uniform(low, high, (40, length, 2 * d + 1)),
                rng.choice([0.0, 1.0], (40, length, 1)) * rng.choice([low, high], (40, length)),
                np.repeat(rng.choice([low, high], (20, 1)), length, axis=1),
            ]
        )
        contexts = np.clip(contexts, low, high)
        wanted = evaluate(graph, contexts, np.longdouble)
        assert np.abs(model(contexts) - wanted).max() <= model.certificate.error <= 1e-3


def test_errors_grow_linearly_with_the_steps() -> None:
    """Interval by interval they would grow like 2^steps."""
    errors = []
    for steps in (2, 5):
        graph = descent(2, steps, 0.5)
        model = hs.compile(graph, box(2), error=1e-2, tokens=4, recipe="native")
        per_head = [abs(region["margin"] or 0.0) for region in model.proof.stored["regions"]]
        errors.append(model.certificate.error)
        assert max(per_head) < 1.0
    assert errors[-1] <= 1e-2


class TestRecognition:
    """What is taken for a step is one, exactly."""

    def steps(self, graph: Graph, intervals: list[tuple[float, float]]) -> list[str]:
        low, high = np.array(intervals).T
        flow = target_flow(graph, ranges(graph, Box(graph.input.names, low, high)))
        grown = {
            result for each in flow.edges.steps.growth.values() for result, factor, _ in each if factor.value > 1.0
        }
        steps = [step for number, step in flow.known.steps.items() if number not in grown]
        return ["threshold" if step.gates else "squared" if step.curve < 0 else "logistic" for step in steps]

    def test_all_kinds(self) -> None:
        assert self.steps(descent(2, 4, 0.5), box(2)) == ["squared"] * 3
        assert self.steps(descent(3, 3, 1.0, "logistic"), box(3, "logistic")) == ["logistic"] * 2
        kinds = self.steps(descent(2, 3, 0.5, threshold=0.1), box(2))
        assert sorted(kinds) == ["squared"] * 2 + ["threshold"] * 3

    def test_a_rate_that_is_too_large(self) -> None:
        """L = 2 on [-1, 1]^2: rates below 1 will do."""
        assert self.steps(descent(2, 3, 1.0 - 1e-9), box(2)) == ["squared"] * 2
        assert self.steps(descent(2, 3, 1.0 + 1e-9), box(2)) == []
        assert self.steps(descent(2, 3, 0.95, decay=0.2), box(2)) == []

    def test_weights_that_differ_from_token_to_token(self) -> None:
        """With w_j = 1 and w_i = -1 elsewhere a step leads away."""
        b = Builder(["w", "x", "y"])
        w, x, y = (b.affine([(0, np.eye(3)[i : i + 1])], [0.0]) for i in range(3))
        r = b.affine([(b.product(w, x), [[1.0]]), (y, [[-1.0]])], [0.0])
        mean = b.pool("mean", b.product(r, x))
        graph = b.graph(b.affine([(w, [1.0]), (mean, [-1.0])], [0.0]))
        assert known_of_target(graph).steps == {}

    def test_features_that_are_the_weights(self) -> None:
        b = Builder(["u", "y"])
        y = b.affine([(0, [[0.0, 1.0]])], [0.0])
        w = b.pool("mean", b.affine([(0, [[1.0, 0.0]])], [0.0]))
        r = b.affine([(b.product(w, w), [[1.0]]), (y, [[-1.0]])], [0.0])
        graph = b.graph(b.affine([(w, [1.0]), (b.pool("mean", b.product(r, w)), [-0.5])], [0.0]))
        assert known_of_target(graph).steps == {}

    def test_a_causal_mean(self) -> None:
        """After one step tokens no longer share the weights."""
        b = Builder(["x", "y"])
        x, y = (b.affine([(0, np.eye(2)[i : i + 1])], [0.0]) for i in range(2))
        w = b.affine([(b.pool("mean", b.product(y, x), causal=True), [0.5])], [0.0])
        r = b.affine([(b.product(w, x), [[1.0]]), (y, [[-1.0]])], [0.0])
        graph = b.graph(b.affine([(w, [1.0]), (b.pool("mean", b.product(r, x), causal=True), [-0.5])], [0.0]))
        assert known_of_target(graph).steps == {}

    def test_what_is_read_from_outside(self) -> None:
        """A residual that the output reads too is no longer inside."""
        b = Builder(["x", "y"])
        x, y = (b.affine([(0, np.eye(2)[i : i + 1])], [0.0]) for i in range(2))
        w = b.affine([(b.pool("mean", b.product(y, x)), [0.5])], [0.0])
        r = b.affine([(b.product(w, x), [[1.0]]), (y, [[-1.0]])], [0.0])
        new = b.affine([(w, [1.0]), (b.pool("mean", b.product(r, x)), [-0.5])], [0.0])
        assert len(known_of_target(b.graph(new)).steps) == 1
        assert known_of_target(b.graph(b.affine([(new, [1.0]), (r, [1.0])], [0.0]))).steps == {}


def test_ranges_of_weights_grow_linearly() -> None:
    """|w_t| <= t rate max|y| max|x|, where intervals would double it at every step."""
    graph = descent(2, 10, 0.5)
    low, high = np.array(box(2)).T
    found = ranges(graph, Box(graph.input.names, low, high))
    results = sorted(known_of_target(graph).steps)
    for step, number in enumerate(results, start=2):
        assert found[number].magnitude.max() <= step * 0.5 * np.sqrt(2.0) * (1.0 + 1e-9)


@pytest.mark.parametrize("recipe", ["relu", "native"])
def test_a_threshold_whose_lower_gate_is_dead(recipe: str) -> None:
    """w = mean(x) >= 0: relu(-w - t) is zero on the domain, and nothing that it reads is needed."""
    b = Builder(["x", "y"])
    x, y = (b.affine([(0, np.eye(2)[k : k + 1])], np.zeros(1)) for k in range(2))
    w = b.affine([(b.pool("mean", x), np.ones(1))], np.zeros(1))
    above, below = (b.relu(b.affine([(w, sign * np.ones(1))], np.full(1, -0.1))) for sign in (1.0, -1.0))
    cut = b.affine([(above, np.ones(1)), (below, -np.ones(1))], np.zeros(1))
    graph = b.graph(b.product(cut, y))
    model = hs.compile(graph, (0, 1), error=1e-2, tokens=3, recipe=recipe)
    x = np.random.default_rng(0).random((50, 3, 2))
    assert np.abs(model(x) - evaluate(graph, x)).max() <= model.certificate.error
