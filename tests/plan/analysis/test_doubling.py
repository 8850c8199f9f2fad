"""Doublings: powers of one matrix, and the weights they lead to, are known by their norms.

Theorem. For |x| <= S and |y| <= Y let Q_0 = kept I - rate mean(x x^T) have its eigenvalues in [-1, 1], and w = rate
mean(y x). Then |Q_k|_2 <= q^(2^k) and |w^(k)| <= Y min(m rate S, sqrt(m rate), 1 / (2 sqrt(decay))) with m = 2^k, and
errors E of Q and D of w grow to at most (2 |Q| + |E|) |E| and (1 + |Q| + |E|) |D| + |E| |w|. In a target, the kernel's
rule recognises such nodes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.attacks import mutation
from helpers.attacks.proving import proven
from helpers.effort import tried

import headsmith as hs
from headsmith.core.errors import HeadsmithError
from headsmith.core.intervals import Box
from headsmith.core.rounding import FLOAT64
from headsmith.kernel.rules import steps
from headsmith.kernel.rules.steps import Power
from headsmith.language.evaluation import evaluate, node_values
from headsmith.language.graph import Affine, Graph, Pool, Product, Term
from headsmith.plan.analysis.flow import kernel_interval, known_of_target
from headsmith.plan.analysis.ranges import ranges
from headsmith.sequence.newton import (
    Newton,
    apply_maps,
    best_rate,
    counts,
    doubled,
    moment_maps,
    newton_graph,
    square_maps,
)

RUNS = {
    "ridge": Newton(4, 3, best_rate(np.ones(3), 0.05), 1.0 - best_rate(np.ones(3), 0.05) * 0.05),
    "least squares": Newton(3, 2, 0.5),
    "largest rate": Newton(4, 2, 1.0 - 1e-9),
    "one feature": Newton(5, 1, 1.5, 1.0 - 1.5 * 0.01),
    "all decay": Newton(3, 2, 0.5, 0.0),
}


def triangle(size: int) -> tuple[Any, Any]:
    return steps.triangle(size)[:2]


def powers(graph: Graph) -> dict[int, Power]:
    return known_of_target(graph).powers


def box_of(graph: Graph, size: float = 1.0) -> Box:
    ends = np.full(graph.input.size, size)
    return Box(graph.input.names, -ends, ends)


def examples(features: int) -> Iterator[tuple[Any, Any]]:
    """Random, extreme and nearly singular contexts; labels that go with the features, and against them."""
    random = np.random.default_rng(5)
    for m in (1, 2, 7):
        for scale in (1.0, 0.3, 1e-4, 0.0):
            for X in (random.uniform(-1, 1, (m, features)), np.sign(random.normal(size=(m, features)))):
                line = np.outer(np.sign(random.normal(size=m)), X[0])
                for chosen in (X, line):
                    yield scale * chosen, np.sign(chosen @ np.ones(features))
                    yield scale * chosen, random.uniform(-1, 1, m)


def matrix_of(entries: Any, size: int) -> Any:
    rows, columns = triangle(size)
    full = np.zeros((size, size))
    full[rows, columns] = full[columns, rows] = entries
    return full


class TestLemmas:
    @pytest.mark.parametrize("name", RUNS)
    def test_norms_and_ranges_hold(self, name: str) -> None:
        run = RUNS[name]
        graph = newton_graph(run)
        found, known = ranges(graph, box_of(graph)), powers(graph)
        # A matrix without a constant is not told from weights, and nothing is known of it by norms.
        assert len(known) == (2 * run.doublings + 1 if run.kept else 0)
        for X, y in examples(run.features):
            values = node_values(graph, np.column_stack([X, y, np.ones_like(X)]))
            for number, power in known.items():
                value = values[number][0]
                np.testing.assert_allclose(values[number], np.broadcast_to(value, values[number].shape), atol=1e-15)
                within = 1e-14 + found[number].magnitude
                assert np.all(value >= found[number].low - 1e-14), (name, number)
                assert np.all(value <= found[number].high + 1e-14), (name, number)
                assert np.all(np.abs(value) <= within)
                features = kernel_interval(found[power.features])
                if power.labels < 0:
                    values_ = np.linalg.eigvalsh(matrix_of(value, run.features))
                    within = steps.spectrum(power, features)
                    assert within.low - 1e-14 <= values_.min() <= values_.max() <= within.high + 1e-14
                else:
                    most = steps.solution(power, features, kernel_interval(found[power.labels]))
                    assert np.linalg.norm(value) <= most.value + 1e-14

    def test_the_length_is_nearly_attained(self) -> None:
        """One feature of size sqrt(decay) and labels that go with it: w = y / (2 sqrt(decay)) in the limit."""
        run, decay = Newton(12, 1, 1.9, 1.0 - 1.9 * 0.01), 0.01
        graph = newton_graph(run)
        last = max(powers(graph))
        w = doubled(run, np.full((3, 1), np.sqrt(decay)), np.ones(3))
        bound = ranges(graph, box_of(graph))[last].magnitude[0]
        assert 0.99 * bound <= float(w[0]) <= bound

    def test_interval_by_interval_ranges_would_explode(self) -> None:
        graph = newton_graph(Newton(8, 3, 1.0 / 3.0))
        found = ranges(graph, box_of(graph))
        assert max(each.magnitude.max() for each in found) <= 3.0 * np.sqrt(256.0 / 3.0) * (1.0 + 1e-9)

    @pytest.mark.parametrize("size", [1, 2, 4])
    def test_errors_grow_by_at_most_the_factors(self, size: int) -> None:
        graph = newton_graph(Newton(2, size, 1.0 / size))
        found, known = [kernel_interval(each) for each in ranges(graph, box_of(graph))], powers(graph)
        random = np.random.default_rng(size)
        for each in (power for power in known.values() if power.level):
            norm = float(steps.spectrum(known[each.matrix], found[each.features]).magnitude.value)
            for scale in (1e-9, 1e-3, 1.0):
                factors = steps.factors(each, found, known, scale)
                basis, _ = np.linalg.qr(random.normal(size=(size, size)))
                Q = norm * basis @ np.diag(random.choice([-1.0, 1.0], size)) @ basis.T
                E = matrix_of(scale * random.uniform(-1, 1, len(counts(size))), size)
                if each.vector < 0:
                    moved = np.linalg.norm((Q + E) @ (Q + E) - Q @ Q)
                    assert moved <= factors[each.matrix].value * np.linalg.norm(E) * (1 + 1e-9) + 1e-15
                else:
                    w, D = random.normal(size=size), scale * random.uniform(-1, 1, size)
                    length = steps.solution(known[each.vector], found[each.features], found[each.labels])
                    w *= length.value / np.linalg.norm(w)
                    moved = np.linalg.norm((w + D) + (Q + E) @ (w + D) - w - Q @ w)
                    bound = factors[each.matrix].value * np.linalg.norm(E)
                    bound += factors[each.vector].value * np.linalg.norm(D)
                    assert moved <= bound * (1 + 1e-9) + 1e-14

    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_the_maps_multiply(self, size: int) -> None:
        random = np.random.default_rng(0)
        A, w, x = matrix_of(random.normal(size=len(counts(size))), size), *random.normal(size=(2, size))
        stored = A[triangle(size)]
        left, right, total = square_maps(size)
        np.testing.assert_allclose(total @ ((left @ stored) * (right @ stored)), (A @ A)[triangle(size)], atol=1e-14)
        left, right, total = apply_maps(size)
        np.testing.assert_allclose(total @ ((left @ stored) * (right @ w)), A @ w, atol=1e-14)
        left, right = moment_maps(size)
        np.testing.assert_array_equal((left @ x) * (right @ x), np.outer(x, x)[triangle(size)])


class TestRecognition:
    """What is taken for a doubling is one, exactly."""

    graph = newton_graph(Newton(3, 2, 0.4, 0.9))

    def test_all_of_a_run(self) -> None:
        known = powers(self.graph)
        assert sorted(each.level for each in known.values() if each.labels < 0) == [0, 1, 2]
        assert sorted(each.level for each in known.values() if each.labels >= 0) == [0, 1, 2, 3]

    def test_one_changed_number_ends_the_run(self) -> None:
        """Any weight or bias of the nodes that make up the run: what depends on it is not recognised any more."""
        known, random = powers(self.graph), np.random.default_rng(2)
        made_of = {n for n in range(4, self.graph.output) if isinstance(self.graph.nodes[n], Affine)}
        for number in sorted(made_of):
            node = self.graph.nodes[number]
            assert isinstance(node, Affine)
            changed = []
            for index, term in enumerate(node.terms):
                weights = np.array(term.weights)
                weights[tuple(random.integers(0, n) for n in weights.shape)] += 0.25
                terms = (*node.terms[:index], Term(term.node, weights), *node.terms[index + 1 :])
                changed.append(replace(node, terms=terms))
            bias = np.array(node.bias)
            bias[random.integers(len(bias))] += 1e-9
            for other in (*changed, replace(node, bias=bias)):
                nodes = (*self.graph.nodes[:number], other, *self.graph.nodes[number + 1 :])
                assert len(powers(Graph(nodes, self.graph.output))) < len(known), number

    def test_what_is_read_from_outside(self) -> None:
        """An inner node that the output reads too is no longer inside."""
        known = powers(self.graph)
        for each in known.values():
            for inner in each.inside - {each.output}:
                size = self.graph.nodes[inner].size
                output = self.graph.nodes[self.graph.output]
                assert isinstance(output, Affine)
                more = replace(output, terms=(*output.terms, Term(inner, np.ones((1, size)))))
                assert each.output not in powers(Graph((*self.graph.nodes[:-1], more), self.graph.output))

    def test_a_node_without_terms(self) -> None:
        """A constant is no part of a run, wherever it stands."""
        for number in powers(self.graph):
            constant = Affine((), np.ones(self.graph.nodes[number].size))
            nodes = (*self.graph.nodes[:number], constant, *self.graph.nodes[number + 1 :])
            assert number not in powers(Graph(nodes, self.graph.output))

    def test_a_causal_mean_or_a_maximum(self) -> None:
        for change in ({"causal": True}, {"kind": "max"}):
            nodes = tuple(replace(n, **change) if isinstance(n, Pool) else n for n in self.graph.nodes)
            assert powers(Graph(nodes, self.graph.output)) == {}

    def test_features_that_are_no_inputs(self) -> None:
        """Features that are products of inputs: the lemmas are about any features in their ranges."""
        nodes = list(self.graph.nodes)
        assert isinstance(nodes[1], Affine)
        shifted = [_moved(node, 1) for node in nodes[2:]]
        squares = Graph((nodes[0], nodes[1], Product(1, 1, 2), *shifted), self.graph.output + 1)
        known, found = powers(squares), ranges(squares, box_of(squares))
        assert len(known) == len(powers(self.graph))
        for X, y in examples(2):
            values = node_values(squares, np.column_stack([X, y, np.ones_like(X)]))
            for number in known:
                assert np.all(np.abs(values[number]) <= found[number].magnitude + 1e-14)

    def test_weights_of_another_level_or_rate(self) -> None:
        """w^(0) with Q_1 is no pair, and neither are matrix and weights of two rates."""
        known = powers(self.graph)
        vectors = [each for each in known.values() if each.labels >= 0]
        matrices = {each.level: each.output for each in known.values() if each.labels < 0}
        second = next(each for each in vectors if each.level == 2)
        nodes = list(self.graph.nodes)
        gather = next(n for n in second.inside if arguments_of(nodes[n]) == (second.matrix,))
        nodes[gather] = replace(nodes[gather], terms=(Term(matrices[0], nodes[gather].terms[0].weights),))
        assert second.output not in powers(Graph(tuple(nodes), self.graph.output))
        first = next(each for each in vectors if each.level == 0)
        nodes = list(self.graph.nodes)
        nodes[first.output] = replace(
            nodes[first.output], terms=(Term(nodes[first.output].terms[0].node, np.full(2, 0.41)),)
        )
        left = powers(Graph(tuple(nodes), self.graph.output))
        assert all(not each.level for each in left.values() if each.labels >= 0)

    def test_a_rate_that_is_too_large(self) -> None:
        """Eigenvalues below -1: nothing is known of the norms."""
        graph = newton_graph(Newton(3, 2, 1.0 + 1e-9))
        found = ranges(graph, box_of(graph))
        for power in powers(graph).values():
            assert steps.spectrum(power, kernel_interval(found[power.features])).high == np.inf


def arguments_of(node: Any) -> tuple[int, ...]:
    return tuple(term.node for term in node.terms) if isinstance(node, Affine) else ()


def _moved(node: Any, by: int) -> Any:
    """The node with what it reads moved: node 1 and later are one further, the first is now their square."""
    if isinstance(node, Affine):
        return replace(node, terms=tuple(Term(t.node + by if t.node else 0, t.weights) for t in node.terms))
    if isinstance(node, Product):
        return replace(node, left=node.left + by, right=node.right + by)
    return replace(node, argument=node.argument + by)


@cache
def compiled() -> hs.in_context.Learner:
    return hs.in_context.newton(0.1, 2, 2, 3, error=1e-6)


def errors_of(model: hs.in_context.Learner, random: np.random.Generator) -> float:
    """The largest error found on random and extreme contexts."""
    worst = 0.0
    for length in (1, 3):
        tokens = np.concatenate([random.uniform(-1, 1, (30, length, 5)), random.choice([-1.0, 1.0], (30, length, 5))])
        wanted = evaluate(compiled().graph, tokens, np.longdouble)
        worst = max(worst, float(np.abs(model(tokens) - wanted).max()))
    return worst


@pytest.mark.again
@pytest.mark.one_in(2)
def test_a_changed_model_is_refused_or_its_bound_holds() -> None:
    model, random = compiled(), np.random.default_rng(11)
    assert errors_of(model, random) <= model.certificate.error
    every = list(mutation.places(model.transformer))
    kinds: dict[str, list[Any]] = {}
    for place, value in every:
        kinds.setdefault(mutation.kind_of(place), []).append((place, value))
    kept = 0
    for _ in range(tried(60, 5)):
        chosen = kinds[str(random.choice(sorted(kinds)))]
        place, value = chosen[int(random.integers(len(chosen)))]
        _, new = mutation.mutate(value, random, False, [r.name for r in model.transformer.registers])
        try:
            changed = replace(model, transformer=mutation.put(model.transformer, place, new))
            bound = proven(changed).error
        except (HeadsmithError, ValueError, TypeError, IndexError, KeyError, AssertionError):
            continue
        kept += 1
        assert errors_of(changed, random) <= bound, place
    assert kept > 0


def test_few_sums_round_little() -> None:
    """Three terms and hundreds of silent ones, in any order: gamma_3 S + 3 t, not gamma_300 S (see heads/gate.py)."""
    random, tokens = np.random.default_rng(0), 300
    orders: list[Callable[[Any], float]] = [
        lambda values: float(np.cumsum(values)[-1]),
        lambda values: float(np.sum(values)),
        lambda values: float(np.cumsum(values[::-1])[-1]),
    ]
    for _ in range(200):
        large, silent = random.uniform(-1, 1, 3), 1e-17 * random.uniform(-1, 1, tokens)
        values = random.permutation(np.concatenate([large, silent]))
        exact = float(np.sum(values.astype(np.longdouble)))
        bound = FLOAT64.gamma(3) * np.abs(large).sum() + 3.0 * np.abs(silent).sum()
        for order in orders:
            assert abs(order(values) - exact) <= bound + 1e-19
