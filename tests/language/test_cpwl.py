"""Max-min forms and differences of maxima: exactly the definition, with the stated number of gates, and certified."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.oracles.exact import exact
from hypothesis import given
from hypothesis import strategies as st

from headsmith.compile import compile
from headsmith.core.errors import TargetError
from headsmith.language.cpwl import difference_of_max_affine, irredundant, max_min
from headsmith.language.graph import Graph, Maximum, Minimum
from headsmith.report.falsify import falsify

NUMBERS = st.sampled_from([-2.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 2.0])


def comparisons(graph: Graph) -> int:
    return sum(node.size for node in graph.nodes if isinstance(node, Maximum | Minimum))


def rounds(graph: Graph) -> int:
    return sum(isinstance(node, Maximum | Minimum) for node in graph.nodes)


def value(piece, point) -> Fraction:
    return sum((Fraction(w) * Fraction(float(x)) for w, x in zip(piece[0], point, strict=True)), Fraction(piece[1]))


@st.composite
def pieces_of(draw, inputs: int, most: int = 6):
    row = st.tuples(st.lists(NUMBERS, min_size=inputs, max_size=inputs), NUMBERS)
    return draw(st.lists(row, min_size=1, max_size=most))


@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_max_min_is_its_definition(data, inputs, count) -> None:
    groups = [data.draw(pieces_of(inputs)) for _ in range(count)]
    point = data.draw(st.lists(st.floats(-3, 3, width=32), min_size=inputs, max_size=inputs))
    wanted = max(min(value(piece, point) for piece in group) for group in groups)
    graph = max_min(groups)
    assert exact(graph, point) == [wanted]
    assert comparisons(graph) <= sum(len(group) - 1 for group in groups) + count - 1


@given(st.data(), st.integers(1, 3))
def test_a_difference_of_maxima_is_its_definition(data, inputs) -> None:
    rising, falling = data.draw(pieces_of(inputs)), data.draw(pieces_of(inputs))
    point = data.draw(st.lists(st.floats(-3, 3, width=32), min_size=inputs, max_size=inputs))
    wanted = max(value(piece, point) for piece in rising) - max(value(piece, point) for piece in falling)
    graph = difference_of_max_affine(rising, falling)
    assert exact(graph, point) == [wanted]
    assert comparisons(graph) <= len(rising) + len(falling) - 2


def test_groups_that_contain_another_never_decide() -> None:
    sets = [frozenset({1, 2, 3}), frozenset({1, 2}), frozenset({4}), frozenset({4, 1}), frozenset({1, 2})]
    assert irredundant(sets) == [frozenset({4}), frozenset({1, 2})]
    a, b, c = ((1.0,), 0.0), ((-1.0,), 0.0), ((0.0,), 3.0)
    assert comparisons(max_min([[a, b], [a, b, c], [b, a, a]])) == 1


def test_shared_pairs_are_compared_once() -> None:
    a, b, c, d = (((float(i), 1.0 - i), float(i * i)) for i in range(4))
    graph = max_min([[a, b, c], [a, b, d]])
    assert comparisons(graph) == 4  # min(a, b), with c, with d, and the maximum


def test_one_node_for_each_round(rng) -> None:
    groups = [[(rng.normal(size=2), float(rng.normal())) for _ in range(8)] for _ in range(64)]
    graph = max_min(groups)
    assert rounds(graph) == 3 + 6
    assert comparisons(graph) == 64 * 7 + 63


@pytest.mark.parametrize(("groups", "members", "inputs"), [(1, 1, 2), (5, 4, 2), (12, 3, 4)])
def test_certified(groups, members, inputs) -> None:
    rng = np.random.default_rng(groups)
    pieces = [[(rng.normal(size=inputs), float(rng.normal())) for _ in range(members)] for _ in range(groups)]
    model = compile(max_min(pieces), (-1.0, 1.0), 1e-4)
    assert falsify(model).error <= model.certificate.error <= 1e-4
    assert model.bill.heads <= groups * members - 1
    points = rng.uniform(-1.0, 1.0, (500, inputs))
    wanted = np.max([np.min([points @ a + c for a, c in group], axis=0) for group in pieces], axis=0)
    assert np.abs(model(points)[:, 0] - wanted).max() <= model.certificate.error + 1e-13


def test_names() -> None:
    graph = max_min([[((1.0, 0.0), 0.0)]], names=["u", "v"])
    assert graph.input.names == ("u", "v")
    with pytest.raises(TargetError, match="1 different names for 2 inputs"):
        max_min([[((1.0, 0.0), 0.0)]], names=["u", "u"])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "no groups"),
        ([[]], "group 0: there are no pieces"),
        ([[((1.0,), 0.0)], [((1.0, 2.0), 0.0)]], "group 1 has pieces of 2 inputs, group 0 of 1"),
        ([[((1.0,), np.inf)]], "group 0: piece 0 .* finite"),
    ],
)
def test_malformed_groups_are_refused(groups, message) -> None:
    with pytest.raises(TargetError, match=message):
        max_min(groups)
