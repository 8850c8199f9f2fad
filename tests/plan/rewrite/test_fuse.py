"""Theorem: a fused graph computes what its target computes, exactly, whatever is fused, kept apart or left as it is.

Random graphs with awkward coefficients (0.1, 1/3), nodes that are read several times and nodes that are there twice,
affine maps of affine maps, parallel forms, vectors, pools and moves; every choice of exits and plain nodes. Both graphs
are evaluated with fifty digits: a weight that was rounded once, by half a unit of the last place, would show.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from helpers.effort import tried
from helpers.oracles.precise import Grower, precise

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.formula import formula_graph
from headsmith.language.graph import Expression, Function, Graph, Product, Quotient
from headsmith.plan.rewrite.fuse import Fusion, fuse, fused_nodes

TOKENWISE = ("affine", "affine", "function", "product", "square", "quotient", "relu", "extreme", "singular")
MIXING = ("pool", "move", "attend", "positional")
NOTHING: frozenset[int] = frozenset()


def largest_gap(first: Graph, second: Graph, sequence: object) -> float:
    """The largest difference of two outputs, relative to their size."""
    rows = zip(precise(first, sequence), precise(second, sequence), strict=True)
    with mpmath.workdps(50):
        return max(float(abs(a - b) / (1 + abs(a))) for row in rows for a, b in zip(*row, strict=True))


def random_graph(rng: np.random.Generator, tokens: int) -> Graph:
    grower = Grower(rng, int(rng.integers(1, 4)), tokens=tokens, causal=bool(rng.integers(2)))
    for _ in range(int(rng.integers(3, 12))):
        grower.grow(TOKENWISE + MIXING * (tokens > 1), int(rng.choice([1, 1, 1, 2])))
    return grower.graph(int(rng.choice([1, 1, 2, 3])))


def random_fusion(rng: np.random.Generator, graph: Graph, variables: int) -> Fusion:
    numbers = np.arange(len(graph.nodes))
    exits = numbers[rng.random(len(numbers)) < rng.choice([0.0, 0.3, 0.8])]
    plain = numbers[rng.random(len(numbers)) < rng.choice([0.0, 0.0, 0.3])]
    return Fusion(variables, frozenset(exits.tolist()), frozenset(plain.tolist()), bool(rng.integers(2)))


@pytest.mark.again
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("variables", [1, 2])
def test_fusing_changes_nothing(variables: int, tokens: int) -> None:
    compared = 0
    for seed in range(tried(150, 4)):
        rng = np.random.default_rng([seed, variables, tokens])
        graph = random_graph(rng, tokens)
        fusion = random_fusion(rng, graph, variables)
        try:
            fused = fuse(graph, fusion)
        except TargetError:
            # A sum of coefficients that is no double: the fusion is refused, not rounded.
            continue
        compared += 1
        sequence = rng.uniform(-1, 1, (tokens, graph.input.size))
        assert largest_gap(graph, fused, sequence) < 1e-35, (seed, fusion)
    assert compared > tried(100, 4)


def test_fusing_does_something() -> None:
    """Expressions of one and of two forms; the members are what was taken in."""
    b = Builder(["x", "y"])
    x, y = (b.affine([(0, np.eye(2)[i : i + 1])], [0.0]) for i in range(2))
    sine, bell = b.function("sin", x), b.function("exp", y)
    graph = b.graph(b.affine([(b.product(sine, bell), [[1.0]]), (b.product(x, x), [[2.0]])], [0.5]))
    fused = fuse(graph, Fusion(2))
    heads = [node for node in fused.nodes if isinstance(node, Expression | Function | Product)]
    assert len(heads) == 1
    (members,) = fused_nodes(graph, Fusion(2)).values()
    assert {sine, bell} <= members


def test_constants_of_nested_affine_nodes_count() -> None:
    """2 (sin x + 1) + x + 3."""
    b = Builder(["x"])
    inner = b.affine([(b.function("sin", 0), [[1.0]])], [1.0])
    graph = b.graph(b.affine([(inner, [[2.0]]), (0, [[1.0]])], [3.0]))
    for variables in (1, 2):
        assert largest_gap(graph, fuse(graph, Fusion(variables)), [[0.3]]) < 1e-40


@pytest.mark.parametrize("weights", [(1.0, 2.0), (0.1, 0.2), (1.0, -1.0), (1e-20, 1.0)])
def test_equal_nodes_that_are_computed_on_their_own(weights: tuple[float, float]) -> None:
    """x * x twice, each an exit: one place in the fused graph, and both weights count, without rounding."""
    for outer in (False, True):
        b = Builder(["x"])
        left, right = b.product(0, 0), b.product(0, 0)
        total = b.affine([(left, [[weights[0]]]), (right, [[weights[1]]])], [0.1])
        graph = b.graph(b.function("sin", total) if outer else total)
        for exits in ({left, right}, {left}, set()):
            try:
                fused = fuse(graph, Fusion(2, frozenset(exits)))
            except TargetError:
                continue
            assert largest_gap(graph, fused, [[0.7]]) < 1e-40, exits


def test_wide_affine_nodes_are_left_alone() -> None:
    """A form of two thousand gates stays a node, whichever row it stands in."""
    b = Builder(["x"])
    slopes = np.random.default_rng(0).normal(size=(1000, 1))
    gates = [b.relu(b.affine([(0, sign * slopes)], np.ones(1000))) for sign in (1.0, -1.0)]
    sums = [b.affine([(gate, np.full((1, 1000), 0.001))], [0.0]) for gate in gates]
    for matrix in ([[1.0], [1.0]], [[1.0], [0.0]]), ([[0.0], [1.0]], [[1.0], [1.0]]):
        graph = b.graph(b.affine(list(zip(sums, matrix, strict=True)), [0.1, 0.2]))
        assert largest_gap(graph, fuse(graph, Fusion(2)), [[0.3]]) < 1e-40


def test_quotients_taken_apart() -> None:
    """a / b is a times 1 / b, and the reciprocal is fused with what it is a function of."""
    b = Builder(["x", "y"])
    x, y = (b.affine([(0, np.eye(2)[i : i + 1])], [1.5]) for i in range(2))
    graph = b.graph(b.quotient(x, b.function("sqrt", y)))
    fused = fuse(graph, Fusion(1, apart=True))
    assert not any(isinstance(node, Quotient) for node in fused.nodes)
    assert [type(node).__name__ for node in fused.nodes[1:]] == ["Affine", "Affine", "Expression", "Product"]
    assert largest_gap(graph, fused, [[0.2, 0.4]]) < 1e-40


def test_three_variables_are_refused() -> None:
    b = Builder(["x"])
    with pytest.raises(TargetError, match="1 or 2"):
        fuse(b.graph(b.function("sin", 0)), Fusion(3))


def test_what_is_plain_stays() -> None:
    """A plain node neither takes in nor is taken in; an exit is computed on its own, and may still be read."""
    b = Builder(["x", "y"])
    x, y = (b.affine([(0, np.eye(2)[i : i + 1])], [1.5]) for i in range(2))
    ratio = b.quotient(b.function("sin", x), y)
    graph = b.graph(b.function("exp", ratio))
    plain = fuse(graph, Fusion(2, plain=frozenset({ratio})))
    assert sum(isinstance(node, Quotient) for node in plain.nodes) == 1
    assert largest_gap(graph, plain, [[0.2, 0.4]]) < 1e-40
    alone = fuse(graph, Fusion(2, exits=frozenset({ratio})))
    assert largest_gap(graph, alone, [[0.2, 0.4]]) < 1e-40


@pytest.mark.parametrize("formula", ["x*y", "2*x*y + 1", "(x + y)*(x - y) + x", "sin(3*x)", "x/(3 + y)", "relu(x) - y"])
@pytest.mark.parametrize("variables", [1, 2])
def test_where_nothing_can_be_fused_the_graph_is_the_same_one(formula: str, variables: int) -> None:
    graph = formula_graph(formula, ["x", "y"])
    assert fuse(graph, Fusion(variables)) is graph
    assert fused_nodes(graph, Fusion(variables)) == {}


@pytest.mark.parametrize("formula", ["sin(x)*x", "x*x + x**3", "sin(x) + cos(x)", "x*(2*x + 1)"])
def test_what_depends_on_one_number_is_not_left_as_it_is(formula: str) -> None:
    graph = formula_graph(formula, ["x"])
    assert fuse(graph, Fusion(1)) is not graph
