"""The approximation part: how far each spliced circuit can be from its target node, and where all of its values lie.

Theorem. Give a node's circuit the exact values of the node's arguments, each moved by at most the node's margin. Then
(circuit - function of the same arguments) lies in `errors`, and everything inside lies in `ranges`. Checked by walking
the circuit with exact arguments put in where target nodes stand: in fractions for products and quotients, in 80-bit
floats for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.oracles.exact import exact_image

import headsmith as hs
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Box, Interval, as_box
from headsmith.kernel.core.arithmetic import Interval as KernelInterval
from headsmith.language.builder import Builder
from headsmith.language.evaluation import apply, node_values
from headsmith.language.formula import formula_graph
from headsmith.language.graph import Affine, Function, Graph, Hypotenuse, Node, Product, Quotient, Relu, arguments
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import Approximation, approximate
from headsmith.plan.circuits.assemble import Assembly, Choice, assemble
from headsmith.plan.circuits.square import square
from headsmith.plan.design import design_circuits
from headsmith.plan.request import Policy, Request

Domain = dict[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Case:
    target: Graph
    box: Box
    found: tuple[Interval, ...]
    choices: dict[int, Choice]

    @property
    def assembly(self) -> Assembly:
        return assemble(self.target, self.choices)

    @property
    def approximation(self) -> Approximation:
        return approximate(self.target, self.found, self.assembly, self.choices)

    def with_margin(self, margin: float | None) -> Case:
        """The same margin for every node."""
        return replace(self, choices={n: replace(choice, margin=margin) for n, choice in self.choices.items()})


def case_of(target: Graph, domain: Any, error: float) -> Case:
    """The choices of a search, without margins."""
    box = as_box(domain, target.input.names)
    found = tuple(ranges(target, box))
    request = Request(target, box, found, error, 1, "float64")
    chosen = design_circuits(request, Policy(0.998, 2.0, 1.0)).choices
    return Case(target, box, found, dict(chosen)).with_margin(None)


def points_in(box: Box, rng: np.random.Generator, count: int) -> Any:
    share = rng.random((count, box.size))
    share = np.where(rng.random(share.shape) < 0.2, np.round(share), share)
    return np.clip(box.low + (box.high - box.low) * share, box.low, box.high)


def function_of(node: Node, values: list[Any]) -> Any:
    match node:
        case Function():
            return FUNCTIONS[node.name].value(values[0], node.parameter)
        case Product():
            return values[0] * values[1]
        case Quotient():
            return values[0] / values[1]
        case Hypotenuse():
            return np.hypot(values[0], values[1])
    raise AssertionError(node)


def walk(circuit: Graph, region: range, values: dict[int, Any]) -> dict[int, Any]:
    """The values of the circuit's nodes in `region`, given those that it reads from outside."""
    inside = dict(values)
    for number in region:
        node = circuit.nodes[number]
        if isinstance(node, Relu):
            inside[number] = np.maximum(inside[node.argument], 0)
            continue
        assert isinstance(node, Affine)
        total = node.bias.astype(np.longdouble)
        for term in node.terms:
            total = total + apply(term.weights.astype(np.longdouble), inside[term.node])
        inside[number] = total
    return inside


def check_theorem(case: Case, rng: np.random.Generator, margin: float = 0.0, count: int = 2500) -> dict[int, float]:
    """For every approximated node: errors and inner ranges hold; returns how much of each error is used."""
    assembly, proven = case.assembly, case.approximation
    exact = node_values(case.target, points_in(case.box, rng, count), np.longdouble)
    used = {}
    for number, region in assembly.regions.items():
        node, place = case.target.nodes[number], assembly.places[number]
        off = [margin * rng.choice([-1.0, 0.0, 1.0, rng.uniform(-1, 1)], exact[a].shape) for a in arguments(node)]
        given = [exact[a] + move for a, move in zip(arguments(node), off, strict=True)]
        places = [assembly.places[argument] for argument in arguments(node)]
        values = walk(assembly.circuit, region, dict(zip(places, given, strict=True)))
        difference = values[place] - function_of(node, given)
        largest = max(float(np.abs(values[inner]).max()) for inner in region)
        slack, error = 1e-17 * largest, proven.errors[place]
        assert np.all(difference >= error.low - slack)
        assert np.all(difference <= error.high + slack)
        used[number] = float(np.abs(difference).max()) / float(error.magnitude.max())
        for inner in region:
            if inner != place:
                assert np.all(values[inner] >= proven.ranges[inner].low - slack), inner
                assert np.all(values[inner] <= proven.ranges[inner].high + slack), inner
    return used


FORMULAS: list[tuple[str, Domain, float]] = [
    ("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),
    ("x*y", {"x": (1e-6, 3e-6), "y": (-1e5, 1e6)}, 1e-3),
    ("x/y", {"x": (-1, 1), "y": (0.5, 2)}, 1e-3),
    ("x/y", {"x": (-1, 3), "y": (-2, -0.5)}, 1e-3),
    ("(x+5)/(y-3)", {"x": (-1, 1), "y": (1, 2.5)}, 1e-4),
    ("1/(1+x*y)", {"x": (0, 1), "y": (0, 1)}, 1e-4),
    ("max(x,y)*x - min(x, y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-2),
    ("sin(x*y) + exp(y)/(2+x)", {"x": (-1, 1), "y": (-2, 1)}, 1e-3),
    ("tanh(exp(sin(x)))*log(2+y)", {"x": (-3, 3), "y": (-1, 1)}, 1e-2),
    ("relu(x*y - 0.3)*sqrt(x+1)", {"x": (-1, 1), "y": (-1, 1)}, 1e-2),
    ("x**3 - x**2.5 + 1/x", {"x": (0.25, 2)}, 1e-3),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("margin", [None, 0.0, 1e-6, 1e-3])
@pytest.mark.parametrize(("formula", "domain", "error"), FORMULAS)
def test_errors_and_ranges_hold(
    formula: str, domain: Domain, error: float, margin: float | None, rng: np.random.Generator
) -> None:
    case = case_of(formula_graph(formula, list(domain)), domain, error).with_margin(margin)
    try:
        proven = case.approximation
    except hs.CertificateError:
        # A root at 0 has no slope, and a wide margin may leave a function's domain.
        assert margin is not None
        return
    used = check_theorem(case, rng, margin or 0.0)
    assert margin or min(used.values()) > 0.5
    anew = {case.assembly.places[number]: margin for number in case.choices if margin is not None}
    assert {number: region.margin for number, region in proven.flow.known.regions.items()} == anew


def test_hypotenuses(rng: np.random.Generator) -> None:
    """Both arguments of either sign, and both zero."""
    builder = Builder(["x", "y"])
    x, y = (builder.affine([(0, np.eye(2)[[row]])], [0.0]) for row in range(2))
    lower = builder.affine([(y, np.ones(1))], [-1.0])
    lengths = builder.hypotenuse(x, lower), builder.hypotenuse(builder.product(x, y), y)
    target = builder.graph(builder.affine([(length, np.ones(1)) for length in lengths], [0.0]))
    for low, high in ((-1, 1), (0, 2), (-3, 0)):
        case = case_of(target, {"x": (low, high), "y": (low, high)}, 1e-3)
        assert min(check_theorem(case, rng).values()) > 0.5
        check_theorem(case.with_margin(1e-3), rng, 1e-3)


def exact_errors(case: Case, point: Any) -> list[Fraction]:
    """circuit - target at one point, for a target that is one product or quotient of affine nodes."""
    assembly, target = case.assembly, case.target
    node, values = target.nodes[target.output], [[Fraction(float(value)) for value in point]]
    for circuit_node in assembly.circuit.nodes[1:]:
        if isinstance(circuit_node, Relu):
            values.append([max(value, Fraction(0)) for value in values[circuit_node.argument]])
            continue
        assert isinstance(circuit_node, Affine)
        total = [Fraction(b) for b in circuit_node.bias.tolist()]
        for term in circuit_node.terms:
            total = [a + b for a, b in zip(total, exact_image(term.weights, values[term.node]), strict=True)]
        values.append(total)
    left, right = (values[assembly.places[argument]] for argument in arguments(node))
    wanted = [a * b if isinstance(node, Product) else a / b for a, b in zip(left, right, strict=True)]
    return [got - want for got, want in zip(values[assembly.circuit.output], wanted, strict=True)]


@pytest.mark.parametrize("kind", ["product", "quotient", "negative quotient"])
def test_vector_nodes_exactly(kind: str, rng: np.random.Generator) -> None:
    """Three components of very different ranges share the circuit: errors of each hold in fractions, and are used."""
    builder = Builder([f"{letter}{i}" for letter in "xy" for i in range(3)])
    eye, none = np.eye(3), np.zeros((3, 3))
    left = builder.affine([(0, np.hstack([eye, none]))], np.zeros(3))
    right = builder.affine([(0, np.hstack([none, eye]))], np.zeros(3))
    node = builder.product(left, right) if kind == "product" else builder.quotient(left, right)
    target = builder.graph(node)
    domain = [(-1, 1), (0, 0.25), (-3, -1), (0.5, 1), (1, 4), (2, 2)]
    if kind == "negative quotient":
        domain[3:] = [(-high, -low) for low, high in domain[3:]]
    case = case_of(target, domain, 1e-2)
    error = case.approximation.errors[case.assembly.places[node]]
    largest = [Fraction(0)] * 3
    for point in points_in(case.box, rng, 60):
        found = exact_errors(case, point)
        for value, low, high in zip(found, error.low.tolist(), error.high.tolist(), strict=True):
            assert Fraction(low) <= value <= Fraction(high)
        largest = [max(old, abs(new)) for old, new in zip(largest, found, strict=True)]
    assert max(float(a) / b for a, b in zip(largest, error.magnitude.tolist(), strict=True)) > 0.5
    check_theorem(case, rng)


def test_one_sided_errors_keep_their_sides(rng: np.random.Generator) -> None:
    """Squares that lie above: the error of their difference leans to the side of the coarser one."""
    target = formula_graph("x*y", ["x", "y"])
    case = case_of(target, (-1, 1), 1e-3)
    (number,) = case.choices

    for plus, minus in (([2], [2, 2, 2]), ([2, 2, 2], [2])):
        halves = tuple(square(-2.0, 2.0, tuple(radices), centred=False) for radices in (plus, minus))
        choice = Choice("product", None, halves, {"balance": 1.0})
        lopsided = replace(case, choices={number: choice})
        error = lopsided.approximation.errors[lopsided.assembly.places[number]]
        small, large = (-error.low, error.high) if plus == [2] else (error.high, -error.low)
        assert float(small[0]) == pytest.approx(0.25 / 16, rel=1e-2)
        assert float(large[0]) == pytest.approx(0.25, rel=1e-2)
        assert check_theorem(lopsided, rng)[number] > 0.9


def test_a_denominator_must_be_positive_after_its_sign() -> None:
    target = formula_graph("x/y", ["x", "y"])
    case = case_of(target, {"x": (-1, 1), "y": (0.5, 2)}, 1e-2)
    (number,) = case.choices
    turned = replace(case.choices[number], margin=None, numbers={**case.choices[number].numbers, "sign": -1.0})
    with pytest.raises(hs.CertificateError, match="denominator"):
        _ = replace(case, choices={number: turned}).approximation
    # A margin that reaches zero.
    with pytest.raises(hs.CertificateError):
        _ = case.with_margin(0.6).approximation


@pytest.mark.parametrize("margin", [-1e-9, -0.0 - 1.0, np.nan, np.inf])
def test_margins_are_finite_and_not_negative(margin: float) -> None:
    case = case_of(formula_graph("exp(x)", ["x"]), (-1, 1), 1e-2)
    with pytest.raises(hs.CertificateError, match="margin"):
        _ = case.with_margin(margin).approximation


def test_a_margin_needs_slopes_of_its_own() -> None:
    """sqrt at 0 has no slope; a fragment of log proven on [low - m, high + m] must stay where log is defined."""
    root = case_of(formula_graph("sqrt(x)", ["x"]), (0, 1), 1e-2)
    for margin in (0.0, 1e-3):
        with pytest.raises(hs.CertificateError):
            _ = root.with_margin(margin).approximation
    logarithm = case_of(formula_graph("log(x)", ["x"]), (0.1, 1), 1e-2)
    assert logarithm.with_margin(1e-3).approximation.errors
    with pytest.raises(hs.CertificateError):
        _ = logarithm.with_margin(0.1).approximation


def test_slopes_of_regions_enclose_the_function(rng: np.random.Generator) -> None:
    """f(a + d) - f(a) = slopes . d, for some slopes within the region's, for every |d| up to the margin."""
    margin = 0.01
    for formula, domain, error in FORMULAS:
        case = case_of(formula_graph(formula, list(domain)), domain, error).with_margin(margin)
        try:
            edges = case.approximation.flow.edges.of
        except hs.CertificateError:
            continue
        exact = node_values(case.target, points_in(case.box, rng, 500), np.longdouble)
        for number in case.choices:
            node, mine = case.target.nodes[number], edges[case.assembly.places[number]]
            slopes = [slope for _, slope, _ in mine if isinstance(slope, KernelInterval)]
            start = [exact[argument] for argument in arguments(node)]
            moves = [margin * rng.uniform(-1, 1, each.shape) for each in start]
            end = [one + move for one, move in zip(start, moves, strict=True)]
            rise = function_of(node, end) - function_of(node, start)
            low = high = np.zeros(rise.shape, dtype=np.longdouble)
            for slope, move in zip(slopes, moves, strict=True):
                low = low + np.minimum(slope.low * move, slope.high * move)
                high = high + np.maximum(slope.low * move, slope.high * move)
            slack = 1e-17 * float(np.abs(function_of(node, start)).max())
            assert np.all(rise >= low - slack)
            assert np.all(rise <= high + slack)
