"""Designs: circuits whose proven approximation part fits the error, with few gates, within the layers allowed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval, as_box
from headsmith.language.evaluation import node_values
from headsmith.language.formula import formula_graph
from headsmith.language.graph import Function, Graph, Product, Quotient
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Design, approximate, gained
from headsmith.plan.choose import Chooser, Option, Plan, candidates, target_gains
from headsmith.plan.circuits.assemble import Choice, assemble
from headsmith.plan.circuits.fragment import depth
from headsmith.plan.design import design_circuits
from headsmith.plan.request import Policy, Request

SHARE, ROOM = 0.998, 2.0
Domain = dict[str, tuple[float, float]]

TARGETS: list[tuple[str, Domain, float]] = [
    ("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),
    ("x*y", {"x": (-1e-3, 1e-3), "y": (0, 1e4)}, 1e-5),
    ("x/y", {"x": (-1, 1), "y": (-3, -0.5)}, 1e-4),
    ("1/(1+exp(-x*y))", {"x": (-2, 2), "y": (-1, 1)}, 1e-4),
    ("max(x, y)*x + abs(y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-2),
    ("sin(x)*cos(x)", {"x": (-3, 3)}, 1e-3),
    ("sqrt(x) + log(1+x)", {"x": (0, 4)}, 1e-4),
    ("x*y*z*x", {"x": (-1, 1), "y": (0, 1), "z": (-2, 1)}, 1e-2),
    ("exp(x)/(1+x*x)", {"x": (-1, 1)}, 1e-3),
]


def question(formula: str, domain: Domain) -> tuple[Graph, tuple[Interval, ...]]:
    graph = formula_graph(formula, list(domain))
    return graph, tuple(ranges(graph, as_box(domain, graph.input.names)))


def design(formula: str, domain: Domain, error: float, max_layers: int | None = None) -> Design:
    graph, found = question(formula, domain)
    request = Request(graph, as_box(domain, graph.input.names), found, error, 1, "float64", max_layers)
    return design_circuits(request, Policy(SHARE, ROOM, 1.0))


def proven(graph: Graph, found: tuple[Interval, ...], choices: Any) -> float:
    """The approximation part of these choices, by the kernel's analysis."""
    assembly = assemble(graph, choices)
    return gained(graph, choices, assembly, approximate(graph, found, assembly, choices)).approximation


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("formula", "domain", "error"), TARGETS)
def test_the_proven_part_fits(formula: str, domain: Domain, error: float, rng: np.random.Generator) -> None:
    """Theorem: |circuit - target| <= approximation <= share of the error; and most of it is used."""
    graph, found = question(formula, domain)
    result = design(formula, domain, error)
    assert result.approximation <= SHARE * error
    assert result.approximation == pytest.approx(proven(graph, found, result.choices), rel=1e-9)
    box = as_box(domain, graph.input.names)
    points = box.low + (box.high - box.low) * rng.random((4000, box.size))
    got = node_values(result.circuit, points, np.longdouble)[result.circuit.output]
    worst = float(np.abs(got - node_values(graph, points, np.longdouble)[graph.output]).max())
    assert 0.1 * result.approximation < worst <= result.approximation
    assert result.gates == result.circuit.gates
    assert set(result.choices) == set(Chooser(graph, found).nodes)


@pytest.mark.parametrize("formula", ["2*x - y", "max(x, y, 0.5)", "abs(x) - min(x, 2*y)", "relu(relu(x) - y)"])
def test_piecewise_linear_targets_need_no_approximation(formula: str) -> None:
    result = design(formula, {"x": (-1, 1), "y": (-1, 1)}, 1e-9)
    assert result.approximation == 0.0
    assert not result.choices


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("formula", "domain", "error"), TARGETS)
def test_smaller_errors_never_need_fewer_gates(formula: str, domain: Domain, error: float) -> None:
    gates = [design(formula, domain, error * factor).gates for factor in (30.0, 5.0, 1.0)]
    assert gates == sorted(gates)


# ---- the split against exhaustive search
# ------------------------------------------------------------------------------


@cache
def menu(formula: str, domain: tuple[Any, ...], number: int, cap: int | None = None) -> tuple[Option, ...]:
    """For one node: the cheapest circuit at each of many errors."""
    graph, found = question(formula, dict(domain))
    node = graph.nodes[number]
    assert isinstance(node, Function | Product | Quotient)
    best: dict[int, Option] = {}
    for error in np.geomspace(1e-6, 0.3, 20):
        for option in candidates(graph, node, found, float(error), cap)[:1]:
            if option.gates not in best or option.error < best[option.gates].error:
                best[option.gates] = option
    return tuple(best.values())


def all_pairs(formula: str, domain: Domain, error: float) -> Iterator[tuple[int, dict[int, Choice]]]:
    """Every pair from the menus, fewest gates first, without those that are beyond hope."""
    graph, found = question(formula, domain)
    chooser = Chooser(graph, found)
    nodes = chooser.nodes
    menus = [menu(formula, tuple(domain.items()), number) for number in nodes]
    for options in sorted(itertools.product(*menus), key=lambda each: sum(option.gates for option in each)):
        picked = Plan(dict(zip(nodes, options, strict=True)))
        if sum(float(np.max(chooser.gains[n])) * option.error for n, option in picked.options.items()) > 4.0 * error:
            continue
        for choices in (picked.choices, chooser.with_margins(picked, np.zeros(len(domain)), ROOM)):
            yield picked.gates, choices


PAIRS: list[tuple[str, Domain, float]] = [
    ("x*y + 20*exp(x)", {"x": (-1, 1), "y": (-1, 1)}, 1e-2),
    ("exp(x) + 100*exp(y)", {"x": (-2, 2), "y": (-1, 1)}, 1e-2),
    ("1/(1+x*y)", {"x": (0, 1), "y": (0, 1)}, 1e-3),
    ("exp(3*x*y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-2),
    ("sqrt(1+x)*y", {"x": (0, 3), "y": (-1, 1)}, 1e-4),
    ("log(2+x*x)", {"x": (-2, 2)}, 1e-4),
    ("exp(x)/(2+y)", {"x": (-2, 2), "y": (-1, 1)}, 1e-3),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("formula", "domain", "error"), PAIRS)
def test_two_nodes_against_exhaustive_search(formula: str, domain: Domain, error: float) -> None:
    """The greedy split costs at most two gates more than the best pair of circuits whose proven part fits."""
    graph, found = question(formula, domain)
    assert len(Chooser(graph, found).nodes) == 2
    result = design(formula, domain, error)
    for gates, choices in all_pairs(formula, domain, error):
        if gates >= result.gates - 2:
            return
        assert proven(graph, found, choices) > SHARE * error, f"{gates} gates are enough, {result.gates} were design"


# ---- depth
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("formula", "domain", "error"), [*TARGETS[:5], *TARGETS[6:]])
def test_layers_are_respected_and_more_never_cost_gates(formula: str, domain: Domain, error: float) -> None:
    """With every layer more the search finds as few gates or fewer, down to what it needs when free."""
    free = design(formula, domain, 30 * error)
    counts = []
    for layers in range(1, depth(free.circuit) + 2):
        try:
            result = design(formula, domain, 30 * error, layers)
        except hs.UnreachableError:
            assert not counts, "more layers made it unreachable"
            continue
        assert depth(result.circuit) <= layers
        assert result.approximation <= SHARE * 30 * error
        counts.append(result.gates)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == free.gates


# ---- what cannot be done
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "domain", "error", "layers", "says"),
    [
        ("exp(x)", {"x": (-1, 1)}, 1e-18, None, r"exp|circuit"),
        ("x*y", {"x": (-1e8, 1e8), "y": (-1e8, 1e8)}, 1e-12, None, r"x|circuit"),
        ("sqrt(x)*exp(x)", {"x": (0, 1)}, 1e-300, None, r"circuit"),
        ("exp(sin(x))", {"x": (-1, 1)}, 1e-3, 1, r"max_layers=1|1 layers"),
        ("max(x, 1, -x, x*x)", {"x": (-3, 3)}, 1e-2, 1, r"max_layers=1"),
        ("relu(relu(x) - 0.5) * x", {"x": (-3, 3)}, 1e-2, 2, r"max_layers=2"),
    ],
)
def test_the_unreachable_has_a_reason(
    formula: str, domain: Domain, error: float, layers: int | None, says: str
) -> None:
    with pytest.raises(hs.UnreachableError, match=says) as refusal:
        design(formula, domain, error, layers)
    assert refusal.value.part == "approximation"
    assert refusal.value.smallest > error


def test_gains_say_how_much_a_node_moves_the_output(rng: np.random.Generator) -> None:
    """target_gains bounds the slopes d output / d node: moved values move the output by no more."""
    graph, found = question("sin(x*y) * 3 / (2 + exp(y))", {"x": (-1, 2), "y": (-1, 1)})
    gains = target_gains(graph, found, range(len(graph.nodes)))
    step = 1e-6
    points = np.array([-1.0, -1.0]) + np.array([3.0, 2.0]) * rng.random((200, 2))
    values = node_values(graph, points, np.longdouble)
    for number in Chooser(graph, found).nodes:
        moved = [*values[:number], values[number] + step]
        for later in range(number + 1, len(graph.nodes)):
            part = Graph(graph.nodes[: later + 1], later)
            moved.append(_value(part, later, moved))
        slope = np.abs(moved[graph.output] - values[graph.output]).max() / step
        assert slope <= float(gains[number].max()) * (1 + 1e-4)


def _value(graph: Graph, number: int, values: list[Any]) -> Any:
    """The value of one node from those of the nodes that it reads."""
    node = graph.nodes[number]
    match node:
        case Function():
            return FUNCTIONS[node.name].value(values[node.argument], node.parameter)
        case Product():
            return values[node.left] * values[node.right]
        case Quotient():
            return values[node.numerator] / values[node.denominator]
    total = node.bias.astype(np.longdouble)
    for term in node.terms:
        total = total + (values[term.node] * term.weights if term.diagonal else values[term.node] @ term.weights.T)
    return total
