"""Tracing writes down what a Python function does to numbers, and says clearly where it cannot."""

import math

import numpy as np
import pytest

from headsmith.core.errors import TargetError
from headsmith.language import library as hs
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Function, Product
from headsmith.language.trace import Traced, graph_of, names_of, trace


def agree(function, count, low=-2.0, high=2.0, **options):
    """The traced graph computes what the function computes."""
    names = [f"x{i}" for i in range(count)]
    graph = graph_of(function, names)
    random = np.random.default_rng(0)
    for _ in range(10):
        point = random.uniform(low, high, count)
        wanted = np.asarray(function(*point.tolist()), dtype=np.float64).ravel()
        assert evaluate(graph, point) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    return graph


def test_operators():
    agree(lambda x, y: (x + 1) * (2 - y) / (3 + x * x) - -x + +y, 2)
    agree(lambda x: x**3 - x**2 + 2**x + abs(x) ** 0.5 + (1 + x**4) ** -1.5, 1)
    agree(lambda x, y: (1.5 + abs(x)) ** y - 1 / (3 + y), 2)
    agree(lambda x: (x, 2 * x, 3), 1)
    agree(lambda x, y: [[x, y], [x * y, 0.5]], 2)
    agree(lambda x: np.float64(2.0) * x + np.int64(3) - np.float64(0.5) / (4 + x), 1)


def test_numpy_functions_of_single_values():
    agree(lambda x: np.exp(x) + np.sin(x) * np.cos(x) - np.tanh(x) + np.square(x), 1)
    agree(lambda x: np.log(x) + np.sqrt(x) + np.reciprocal(x) + np.log1p(x) + np.log2(x) + np.log10(x), 1, 0.5)
    agree(lambda x, y: np.maximum(x, y) - np.minimum(x, 0.5) + np.abs(y) + np.hypot(x, y) + np.power(x, 2), 2)
    agree(lambda x: np.clip(x, -0.5, 1.0) + np.clip(x, 0.1, None) + np.expm1(x) + np.exp2(x) + np.tan(x / 4), 1)
    agree(lambda x: np.multiply(np.array([1.0, 2.0]), x) + np.array([0.5, 0.25]), 1)
    agree(lambda x, y: np.maximum(x, np.array([0.1, 0.2])) * y, 2)


def test_arrays_of_traced_values():
    weights = np.random.default_rng(3).normal(size=(2, 3))
    agree(lambda x, y, z: weights @ np.array([x, y, z]) + np.array([1.0, 2.0]), 3)
    agree(lambda x, y, z: np.dot(np.array([x, y, z]), np.array([z, y, x])), 3)
    agree(lambda x, y, z: np.sum(np.exp(np.array([x, y, z]))) / np.mean(np.array([x, y, z]) ** 2 + 1), 3)
    agree(lambda x, y: np.abs(np.array([x, y])) + np.sqrt(np.array([x * x, y * y])), 2)
    linear = graph_of(lambda x, y, z: weights @ np.array([x, y, z]), ["x", "y", "z"])
    assert len(linear.nodes) == 2
    assert np.array_equal(linear.nodes[1].terms[0].weights, weights)


def test_equal_expressions_are_one_node():
    graph = graph_of(lambda x, y: hs.exp(x * y) + hs.exp(y * x) * 2 + (x * y) ** 2, ["x", "y"])
    assert sum(isinstance(node, Product) for node in graph.nodes) == 1
    assert sum(isinstance(node, Function) for node in graph.nodes) == 2


def test_constants_fold_exactly():
    (value,) = trace(lambda x: (x + 1e16) - 1e16 + (0.1 + x) - 0.1 - x)
    assert value.value == trace(lambda x: x)[0].value
    assert trace(lambda x: 0 * hs.sin(x) + hs.exp(0.0) + x - x)[0].value.is_constant


def test_what_is_not_needed_is_not_built():
    assert len(graph_of(lambda x: (hs.sin(x), x)[1], ["x"]).nodes) == 2


def raises_at(function, message):
    with pytest.raises(TargetError, match=message) as caught:
        trace(function, ["x", "y"])
    line = function.__code__.co_firstlineno
    assert f"at line {line} of {__file__}" in str(caught.value)


def test_branching_is_refused_with_the_line():
    raises_at(lambda x, y: x if x > y else y, "branches on a traced value")
    raises_at(lambda x, y: x if x else y, "branches")
    raises_at(lambda x, y: max(x, y), "hs.maximum")
    raises_at(lambda x, y: x == y, "branches")
    raises_at(lambda x, y: np.sort(np.array([x, y])), "branches")
    raises_at(lambda x, y: math.exp(x), "plain number")
    raises_at(lambda x, y: int(x), "plain number")
    raises_at(lambda x, y: x // 2 + x % 3, "jumps")
    raises_at(lambda x, y: [v for v in x], "iterates")  # noqa: C416
    raises_at(lambda x, y: np.floor(x), "floor cannot be traced")
    raises_at(lambda x, y: np.where(x, y, 0.0), "where cannot be traced")


def test_other_mistakes():
    with pytest.raises(TargetError, match="returned None"):
        trace(lambda x: None)
    with pytest.raises(TargetError, match="returned 'a'"):
        trace(lambda x: "a")
    with pytest.raises(TargetError, match="integer power of 200"):
        trace(lambda x: x**200)
    with pytest.raises(TargetError, match="not a finite"):
        trace(lambda x: x * math.inf)
    with pytest.raises(TargetError, match="division by the constant 0"):
        trace(lambda x: x / 0)
    with pytest.raises(TargetError, match="inputs x, and the domain has x, y"):
        trace(lambda x: x, ["x", "y"])
    other = trace(lambda x: x)[0]
    with pytest.raises(TargetError, match="different functions"):
        trace(lambda x: x + other)
    with pytest.raises(TargetError, match="does not name its inputs"):
        names_of(lambda *values: values[0])
    with pytest.raises(TargetError, match="cannot make a graph"):
        graph_of([1, 2])
    with pytest.raises(TargetError, match="larger than double precision"):
        graph_of(lambda x: x * 1e300 * 1e300)


def test_names():
    assert names_of(lambda x, y, k=3: x) == ("x", "y")
    assert graph_of(lambda a, b: a).input.names == ("a", "b")
    assert isinstance(trace(lambda x: 3.0)[0], Traced)


def test_names_in_another_order_than_the_function_s_own() -> None:
    graph = graph_of(lambda x, y: x - 2.0 * y, ["y", "x"])
    assert graph.input.names == ("y", "x")
    assert evaluate(graph, [1.0, 5.0]).tolist() == [3.0]
    renamed = graph_of(lambda x, y: x - 2.0 * y, ["height", "width"])
    assert evaluate(renamed, [5.0, 1.0]).tolist() == [3.0]
