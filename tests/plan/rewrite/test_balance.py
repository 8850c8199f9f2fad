"""Brackets do not matter: long products and maxima are as flat as they can be, and compute the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import headsmith as hs
from headsmith.language.evaluation import evaluate
from headsmith.language.formula import formula_graph
from headsmith.language.graph import Affine, Input, Maximum, arguments
from headsmith.plan.rewrite.simplify import balanced

NAMES = list("abcdpqrt")


def depth(graph) -> int:
    """How many products or maxima lie on the longest path."""
    depths: list[int] = []
    for node in graph.nodes:
        below = max((depths[each] for each in arguments(node)), default=0)
        depths.append(below + (not isinstance(node, Affine | Input)))
    return depths[graph.output]


def graph_of(formula: str):
    used = [name for name in NAMES if name in formula]
    return formula_graph(formula, used)


@pytest.mark.parametrize(
    ("formula", "levels"),
    [
        ("a*b*c", 2),
        ("a*b*c*d", 2),
        ("a*(b*(c*d))", 2),
        ("a*b*c*d*p*q", 3),
        ("2*a*b*c*d*p*q*r*t - a", 3),
        ("(a*b)*(c*d)", 2),
        ("sin(a*b*c*d)*p*q", 4),  # the sine is the deepest factor: it is multiplied last
        ("a*b*c*d + (a*b)**2", 2),  # a b is read twice
        ("a*a*b*b*c", 3),
    ],
)
def test_products_are_as_flat_as_they_can_be(formula: str, levels: int, rng) -> None:
    before = graph_of(formula)
    after = balanced(before)
    assert depth(after) == min(levels, depth(before))
    points = rng.uniform(-2, 2, (50, before.input.size))
    assert np.allclose(evaluate(after, points), evaluate(before, points), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("formula", ["max(a, max(b, max(c, d)))", "max(max(a, b), max(c, d), 0)", "min(a, min(b, c))"])
def test_maxima_of_maxima_are_one(formula: str, rng) -> None:
    before = graph_of(formula)
    after = balanced(before)
    assert depth(after) == 1
    points = rng.uniform(-2, 2, (50, before.input.size))
    assert np.array_equal(evaluate(after, points), evaluate(before, points))


def test_comparisons_keep_their_pairs() -> None:
    """A sorting network compares two numbers at a time: the larger and the smaller one share a head."""
    graph = balanced(formula_graph(["max(a, max(b, c))", "min(a, max(b, c))", "min(b, c)"], ["a", "b", "c"]))
    assert all(len(node.arguments) == 2 for node in graph.nodes if isinstance(node, Maximum))


def test_a_graph_without_chains_is_left_as_it_is() -> None:
    graph = graph_of("a*b + c*d")
    assert balanced(graph) is graph


def test_brackets_do_not_change_the_bill() -> None:
    box = (-1, 1)
    bills = [hs.compile(formula, box, error=1e-2).bill for formula in ("a*b*c*d", "(a*b)*(c*d)", "a*(b*(c*d))")]
    assert len({(bill.layers, bill.heads) for bill in bills}) == 1
    assert bills[0].layers == 2
    for one, other in itertools.pairwise(bills):
        assert one.max_weight == other.max_weight
