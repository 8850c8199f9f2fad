"""Library functions compute the same of traced values and of numbers, with the gates that the catalogue states."""

import itertools
import math

import numpy as np
import pytest

from headsmith.core.errors import TargetError
from headsmith.language import library as hs
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Maximum, Minimum, Relu
from headsmith.language.trace import graph_of


def comparators(graph):
    """Gates of maxima and minima: those of the same arguments share one."""
    pairs = {node.arguments: len(node.arguments) - 1 for node in graph.nodes if isinstance(node, Maximum | Minimum)}
    return sum(pairs.values())


def gates(graph):
    return comparators(graph) + sum(node.size for node in graph.nodes if isinstance(node, Relu))


def traced(function, count):
    return graph_of(lambda *values: function(list(values)), [f"x{i}" for i in range(count)])


@pytest.mark.parametrize("count", range(1, 10))
def test_sort_by_the_zero_one_principle(count):
    graph = traced(hs.sort, count)
    inputs = np.array(list(itertools.product([0.0, 1.0], repeat=count)))
    assert np.array_equal(evaluate(graph, inputs), np.sort(inputs, axis=-1))


@pytest.mark.parametrize(("count", "wanted"), [(2, 1), (4, 5), (8, 19), (16, 63), (32, 191)])
def test_sort_counts(count, wanted):
    assert comparators(traced(hs.sort, count)) == wanted


@pytest.mark.parametrize(
    ("count", "k", "wanted"),
    [(16, 1, 15), (16, 2, 29), (16, 4, 44), (16, 8, 58), (64, 1, 63), (64, 2, 125), (64, 8, 292)],
)
def test_top_k_counts(count, k, wanted):
    assert comparators(traced(lambda values: hs.top_k(values, k), count)) == wanted


@pytest.mark.parametrize("count", range(1, 9))
def test_top_k_by_the_zero_one_principle(count):
    inputs = np.array(list(itertools.product([0.0, 1.0], repeat=count)))
    for k in range(1, count + 1):
        graph = traced(lambda values, k=k: hs.top_k(values, k), count)
        assert np.array_equal(evaluate(graph, inputs), -np.sort(-inputs, axis=-1)[:, :k])


CASES = {
    "exp": (hs.exp, np.exp),
    "log": (hs.log, np.log),
    "sqrt": (hs.sqrt, np.sqrt),
    "sin": (hs.sin, np.sin),
    "cos": (hs.cos, np.cos),
    "tanh": (hs.tanh, np.tanh),
    "sigmoid": (hs.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "softplus": (hs.softplus, lambda x: np.log1p(np.exp(x))),
    "gelu": (hs.gelu, np.vectorize(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)))),
    "erf": (hs.erf, np.vectorize(math.erf)),
    "gaussian": (hs.gaussian, lambda x: np.exp(-x * x / 2)),
    "relu": (hs.relu, lambda x: np.maximum(x, 0)),
    "abs": (hs.abs, np.abs),
    "clip": (lambda x: hs.clip(x, 0.5, 1.0), lambda x: np.clip(x, 0.5, 1.0)),
    "polynomial": (lambda x: hs.polynomial([1.0, 0.0, -2.0, 0.5], x), lambda x: 1 - 2 * x**2 + 0.5 * x**3),
    "rational": (lambda x: hs.rational([1.0, 2.0], [1.0, 0.0, 1.0], x), lambda x: (1 + 2 * x) / (1 + x**2)),
    "cpwl": (
        lambda x: hs.piecewise_linear([0.0, 0.5, 1.0, 3.0], [1.0, 0.0, 0.3, 0.1], x),
        lambda x: np.interp(x, [0.0, 0.5, 1.0, 3.0], [1.0, 0.0, 0.3, 0.1]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_arrays_and_traced_values_agree(name):
    ours, plain = CASES[name]
    points = np.linspace(0.1, 2.5, 13)
    assert ours(points) == pytest.approx(plain(points), rel=1e-13, abs=1e-14)
    assert ours(0.7) == pytest.approx(float(plain(np.array(0.7))), rel=1e-13)
    assert evaluate(graph_of(ours, ["x"]), points[:, None])[:, 0] == pytest.approx(plain(points), rel=1e-13, abs=1e-14)
    if name not in ("rational", "cpwl"):
        pair = graph_of(lambda x, y: ours(np.array([x, y])), ["x", "y"])
        assert evaluate(pair, [0.3, 0.9]) == pytest.approx(plain(np.array([0.3, 0.9])))


def test_gates_of_exact_functions():
    x = ["x"]
    assert gates(graph_of(lambda x: hs.abs(x), x)) == 1
    assert gates(graph_of(lambda x: hs.clip(x, 0, 1), x)) == 2
    assert gates(graph_of(CASES["cpwl"][0], x)) == 2
    assert gates(graph_of(lambda a, b: hs.maximum(a, b), None)) == 1
    assert gates(graph_of(lambda a, b, c: hs.median(a, b, c), None)) == 3
    assert gates(graph_of(lambda a, b, c, d: hs.norm([a, b, c, d], 1), None)) == 4
    assert gates(graph_of(lambda a, b: hs.norm([a, b], np.inf), None)) == 2
    assert gates(graph_of(lambda a, b, c, d: hs.norm([a, b, c, d], np.inf), None)) == 5


def test_vectors():
    random = np.random.default_rng(0)
    for count in (1, 2, 3, 5):
        for point in random.normal(size=(5, count)) * 3:
            weights = np.exp(point) / np.exp(point).sum()
            assert evaluate(traced(hs.softmax, count), point) == pytest.approx(weights)
            assert hs.softmax(point) == pytest.approx(weights)
            assert hs.sort(point) == pytest.approx(np.sort(point))
            for order in (1, 2, np.inf):
                graph = traced(lambda values, order=order: hs.norm(values, order), count)
                assert evaluate(graph, point)[0] == pytest.approx(np.linalg.norm(point, order))
                assert hs.norm(point, order) == pytest.approx(np.linalg.norm(point, order))
    assert hs.median(3.0, 1.0, 2.0) == 2.0
    assert hs.maximum([1.0, 4.0, 2.0]) == 4.0
    assert hs.minimum(np.array([1.0, 2.0]), 1.5) == pytest.approx([1.0, 1.5])


def test_matrices():
    random = np.random.default_rng(1)
    left, right = random.normal(size=(2, 3)), random.normal(size=(3, 2))
    graph = traced(lambda v: hs.matmul(np.array(v[:6]).reshape(2, 3), np.array(v[6:]).reshape(3, 2)), 12)
    assert evaluate(graph, np.concatenate([left.ravel(), right.ravel()])) == pytest.approx((left @ right).ravel())
    assert hs.matmul(left, right) == pytest.approx(left @ right)
    matrix = np.array([[0.8, 0.1], [0.1, 0.7]])
    graph = traced(lambda v: hs.inverse(np.array(v).reshape(2, 2), 5), 4)
    assert evaluate(graph, matrix.ravel()) == pytest.approx(np.linalg.inv(matrix).ravel(), abs=1e-12)
    assert hs.inverse(matrix, 5) == pytest.approx(np.linalg.inv(matrix), abs=1e-12)


def test_b_splines_are_the_cardinal_ones():
    x = np.linspace(-1, 5, 61)
    for degree in (2, 3):
        wanted = sum(
            (-1) ** j * math.comb(degree + 1, j) * np.maximum(x - j, 0) ** degree for j in range(degree + 2)
        ) / math.factorial(degree)
        assert hs.b_spline(degree, x) == pytest.approx(wanted, abs=1e-12)
        graph = graph_of(lambda t, degree=degree: hs.b_spline(degree, t), ["x"])
        assert evaluate(graph, x[:, None])[:, 0] == pytest.approx(wanted, abs=1e-12)
        assert gates(graph) == 3


def test_mistakes():
    for wrong, message in (
        (lambda: hs.top_k([1.0], 2), "asks for 2 of 1"),
        (lambda: hs.sort([]), "no values"),
        (lambda: hs.maximum(), "no values"),
        (lambda: hs.norm([1.0], 3), "choose 1, 2 or infinity"),
        (lambda: hs.b_spline(4, 0.5), "choose 2 or 3"),
        (lambda: hs.piecewise_linear([0.0, 0.0], [1.0, 2.0], 0.5), "rising knots"),
        (lambda: hs.matmul(np.eye(2), np.eye(3)), "cannot be multiplied"),
        (lambda: hs.inverse(np.ones((2, 3)), 1), "square"),
    ):
        with pytest.raises(TargetError, match=message):
            wrong()


@pytest.mark.parametrize("count", range(1, 8))
def test_a_median_takes_any_number_of_values(count) -> None:
    """The middle value, or the mean of the middle two: of numbers and of traced values alike."""
    names = [f"x{index}" for index in range(count)]
    graph = graph_of(lambda *values: hs.median(*values), names)
    for point in np.random.default_rng(count).uniform(-1, 1, (20, count)):
        assert hs.median(*point) == pytest.approx(np.median(point))
        assert evaluate(graph, point)[0] == pytest.approx(np.median(point))
