"""Whatever a caller hands in is copied: nothing that is done to it afterwards changes a model, or what is proven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.language.builder import Builder
from headsmith.run.numpy_runner import run

Case = tuple[list[np.ndarray], Callable[..., Any], Any]


def box(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs)


def as_graph(weights: np.ndarray, bias: np.ndarray) -> Any:
    build = Builder(["x", "y"])
    return build.graph(build.relu(build.affine([(build.input, weights)], bias)))


def boxed(low: np.ndarray, high: np.ndarray) -> Any:
    return hs.compile("sin(x)", Box(("x",), low, high), 1e-3)


HALF, PAIR = np.array([0.3]), np.array([0.3, -0.2])
TABLE = np.array([[0.3], [-0.2], [0.5]])

CASES: dict[str, Case] = {
    "domain": ([box((-1, 1))], lambda d: hs.compile("sin(x)", d, 1e-3), HALF),
    "domain by name": ([np.array([-1.0, 1.0])], lambda d: hs.compile("sin(x)", {"x": d}, 1e-3), HALF),
    "ends": ([np.full(3, -1.0), np.ones(3)], lambda a, b: hs.compile("x*y + z", (a, b), 1e-3), np.zeros(3)),
    "box": ([np.array([-1.0]), np.array([1.0])], boxed, HALF),
    "network": (
        [np.eye(2), np.zeros(2), np.ones((1, 2)), np.zeros(1)],
        lambda W, b, V, c: hs.compile(hs.Network([(W, b), (V, c)]), (-1, 1), 1e-3),
        PAIR,
    ),
    "maxout network": (
        [np.array([[[1.0]], [[-1.0]]]), np.zeros((2, 1))],
        lambda W, b: hs.compile(hs.MaxoutNetwork([(W, b)]), (-1, 1), 1e-3, recipe="maxout"),
        HALF,
    ),
    "graph": ([np.eye(2), np.zeros(2)], lambda W, b: hs.compile(as_graph(W, b), (-1, 1), 1e-3), PAIR),
    "piecewise linear": (
        [np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])],
        lambda k, v: hs.compile(lambda x: hs.piecewise_linear(k, v, x), (-1, 1), 1e-3),
        HALF,
    ),
    "polynomial": ([np.array([1.0, 2.0])], lambda c: hs.compile(lambda x: hs.polynomial(c, x), (-1, 1), 1e-3), HALF),
    "rational": (
        [np.array([1.0, 2.0]), np.array([3.0, 1.0])],
        lambda a, b: hs.compile(lambda x: hs.rational(a, b, x), (-1, 1), 5e-1),
        HALF,
    ),
    "matrix": ([np.eye(2)], lambda W: hs.compile(lambda x, y: list(hs.matmul(W, [x, y])), (-1, 1), 1e-3), PAIR),
    "maxout": (
        [np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2)],
        lambda W, b: hs.compile(lambda x, y: hs.maxout(list(zip(W, b, strict=True)), [x, y]), (-1, 1), 1e-3),
        PAIR,
    ),
    "regions of a function": (
        [np.array([1.0]), np.array([[0.0], [1.0]]), np.array([[-1.0], [0.0]])],
        lambda a, p, q: hs.compile(hs.from_regions([(a, 0.0, p), (-a, 0.0, q)]), (-1, 1), 1e-3),
        HALF,
    ),
    "max min": ([np.array([1.0, 1.0])], lambda a: hs.compile(hs.max_min([[(a, 0.0), (-a, 1.0)]]), (-1, 1), 1e-3), PAIR),
    "difference": (
        [np.array([1.0, 1.0])],
        lambda a: hs.compile(hs.difference_of_max_affine([(a, 0.0), (-a, 1.0)], [(0 * a, 0.0)]), (-1, 1), 1e-3),
        PAIR,
    ),
    "approximate": ([box((-1, 1))], lambda d: hs.approximate(np.sin, d, 0.1, lipschitz=1.0).model, HALF),
    "lipschitz": (
        [box((-1, 1)), np.ones(1)],
        lambda d, L: hs.approximate(np.sin, d, 0.1, lipschitz=L).model,
        HALF,
    ),
    "sequence": (
        [box((-1, 1))],
        lambda d: hs.compile_sequence(lambda x: hs.tokens.mean(x), tokens=4, domain=d, error=1e-3),
        TABLE,
    ),
    "tables": (
        [np.array([1.0, 2.0, 3.0]), np.array([2, 1, 0])],
        lambda c, g: hs.compile_sequence(
            lambda x: hs.tokens.gather(x[:, 0], g) + hs.tokens.constants(x, c), tokens=3, domain=(-1, 1), error=1e-3
        ),
        TABLE,
    ),
    "attention": (
        [np.array([2.0])],
        lambda w: hs.compile_sequence(
            lambda x: hs.tokens.attend(w[0] * x[:, 0], x[:, 0], x[:, 0]), tokens=3, domain=(-1, 1), error=1e-3
        ),
        TABLE,
    ),
    "universal": (
        [box((-1, 1)), np.array([[1.0], [1.0]])],
        lambda d, L: hs.universal(lambda X: np.sin(X), 2, domain=d, error=0.5, lipschitz=L),
        TABLE[:2],
    ),
    "learner": (
        [box((-1, 1)), np.array([-1.0, 1.0]), box((-1, 1)), np.eye(1)],
        lambda d, y, q, P: hs.in_context.least_squares(
            1, 1, 3, domain=d, labels=y, queries=q, preconditioner=P, error=1e-3
        ),
        np.full((3, 3), 0.2),
    ),
}


def answers(model: Any, inputs: Any) -> list[Any]:
    """All that a caller relies on: outputs, claim, proof, domain, and the plain steps of a learner."""
    found = [model(inputs), model.certificate.error, hs.verify(model).error, model.box.low, model.box.high]
    if isinstance(model, hs.in_context.Learner):
        found.append(model.exact(inputs[:, :1], inputs[:, 1], inputs[:, 2:]))
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_is_handed_in_is_copied(name: str) -> None:
    given, make, inputs = CASES[name]
    given = [array.copy() for array in given]
    model = make(*given)
    before = answers(model, inputs)
    for array in given:
        array[...] = array * 4 + 1
    for old, new in zip(before, answers(model, inputs), strict=True):
        assert np.array_equal(old, new)


def test_a_read_only_array_of_the_callers_is_copied_too() -> None:
    domain = box((-1, 1))
    domain.flags.writeable = False
    model = hs.compile("sin(x)", domain, 1e-3)
    domain.flags.writeable = True
    domain *= 4
    with pytest.raises(hs.DomainError):
        model([3.5])


def test_nobody_can_write_into_a_model() -> None:
    model = hs.compile("sin(x)", (-1, 1), 1e-3)
    for array in (model.box.low, model.transformer.readout_bias, model.graph.nodes[-1]):
        if isinstance(array, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_regions_and_single_heads_copy() -> None:
    W, V, domain = np.array([[1.0], [2.0]]), np.ones((1, 2)), box((-1, 1))
    found = hs.regions(hs.Network([(W, np.array([0.0, -1.0])), (V, np.zeros(1))]), domain)
    maps = [region.matrix.copy() for region in found]
    W[...], V[...], domain[...] = 9.0, 9.0, 9.0
    assert all(np.array_equal(a, region.matrix) for a, region in zip(maps, found, strict=True))
    matrix, sequence = np.eye(1), np.array([[[0.5], [0.25]]])
    head = hs.heads.attend(2, matrix, matrix, matrix)
    before = run(head, sequence)
    matrix[...] = 7.0
    assert np.array_equal(run(head, sequence), before)
