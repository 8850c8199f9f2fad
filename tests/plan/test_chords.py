"""The chord proof: circuit - f lies in [low, high], for any piecewise linear circuit and any function.

Theorem. For every real t in the interval, circuit(t) - f(t) lies in [low, high] and every node's value in its range.
Checked with the circuit in exact fractions and the function in 50 digits: at random points, at both ends, at kinks, and
where an 80-bit search finds the extremes. And the bound is no more than it has to be: within 2 % of what is found.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.oracles.exact import exact_nodes, extended, extended_nodes
from helpers.theorems.fragments import HIGH_PRECISION

from headsmith.core.errors import HeadsmithError, TooManyPiecesError
from headsmith.core.functions import FUNCTIONS
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, Graph, Term
from headsmith.plan import chords
from headsmith.plan.chords import Checked, check_circuit
from headsmith.plan.circuits.options import options
from headsmith.plan.circuits.shallow import shallow
from headsmith.plan.circuits.square import square

DIGITS = 50
SMALLEST = 1e-300

INTERVALS: dict[str, tuple[float | None, float, float]] = {
    "exp": (None, -3.0, 2.0),
    "log": (None, 0.05, 4.0),
    "sqrt": (None, 0.0, 3.0),
    "sin": (None, -4.0, 5.0),
    "cos": (None, -1.0, 7.0),
    "tan": (None, -1.4, 1.2),
    "arctan": (None, -4.0, 3.0),
    "arcsin": (None, -1.0, 0.9),
    "arccos": (None, -0.5, 1.0),
    "sinh": (None, -2.0, 3.0),
    "cosh": (None, -3.0, 2.0),
    "j0": (None, -3.0, 9.0),
    "j1": (None, -2.0, 8.0),
    "tanh": (None, -3.0, 2.0),
    "sigmoid": (None, -6.0, 5.0),
    "softplus": (None, -5.0, 6.0),
    "erf": (None, -2.0, 3.0),
    "gelu": (None, -4.0, 3.0),
    "gaussian": (None, -3.0, 4.0),
    "square": (None, -1.5, 2.0),
    "reciprocal": (None, -3.0, -0.2),
    "power": (1.5, 0.0, 2.0),
}


def test_every_function_is_covered() -> None:
    assert set(INTERVALS) == {name for name, function in FUNCTIONS.items() if function.program is None}


def random_circuit(rng: np.random.Generator, low: float, high: float) -> Graph:
    """One to three layers of one to four gates, each reading the input and an earlier layer, kinks mostly inside."""
    builder = Builder(["x"])
    layers = [builder.input]
    for _ in range(int(rng.integers(1, 4))):
        width, before = int(rng.integers(1, 5)), layers[-1]
        terms = [(before, rng.normal(size=(width, builder.size(before))))]
        if before != builder.input:
            terms.append((builder.input, rng.normal(size=(width, 1))))
        centre = rng.uniform(low, high, size=width)
        slopes = sum(weights.sum(axis=1) for _, weights in terms)
        layers.append(builder.relu(builder.affine(terms, -slopes * centre)))
    terms = [(layer, rng.normal(size=(1, builder.size(layer)))) for layer in layers]
    return builder.graph(builder.affine(terms, rng.normal(size=1)))


def places(graph: Graph, low: float, high: float, rng: np.random.Generator, each: int = 16) -> Any:
    """Both ends, kinks and their neighbours, evenly between kinks, random."""
    kinks = chords._kinks(graph, low, high)
    step = max(len(kinks) * each // 8000, 1)
    share = np.linspace(0.0, 1.0, each, endpoint=False)
    ends = kinks if len(kinks) > 1 else np.array([low, high])
    between = (ends[:-1:step, None] + (ends[1::step] - ends[:-1:step])[:, None] * share).reshape(-1)
    parts = [kinks, np.nextafter(kinks, -np.inf), np.nextafter(kinks, np.inf), between, rng.uniform(low, high, 50)]
    return np.unique(np.clip(np.concatenate(parts), low, high))


def differences(graph: Graph, name: str, parameter: float | None, points: Any) -> Any:
    wanted = FUNCTIONS[name].value(points.astype(np.longdouble), parameter)
    return extended(graph, points[:, None])[:, 0] - wanted


def exact_difference(graph: Graph, name: str, parameter: float | None, point: float) -> Any:
    value = exact_nodes(graph, [point])[graph.output][0]
    wanted = HIGH_PRECISION[name](mpmath.mpf(point), parameter)
    return mpmath.mpf(value.numerator) / mpmath.mpf(value.denominator) - wanted


def check_bound(
    checked: Checked, graph: Graph, name: str, parameter: float | None, points: Any, rng: np.random.Generator
) -> float:
    """Every exact difference lies in the bound; returns how much of it is used, of the larger side."""
    found = differences(graph, name, parameter, points)
    chosen = {int(np.argmin(found)), int(np.argmax(found)), 0, len(points) - 1}
    chosen |= {int(index) for index in rng.integers(len(points), size=3)}
    with mpmath.workdps(DIGITS):
        for index in chosen:
            assert checked.low <= exact_difference(graph, name, parameter, float(points[index])) <= checked.high
    return float(np.max(np.abs(found))) / max(abs(checked.low), abs(checked.high), SMALLEST)


def check_ranges(checked: Checked, graph: Graph, points: Any) -> None:
    for point in points:
        for node, found in zip(exact_nodes(graph, [float(point)]), checked.ranges, strict=True):
            for value, low, high in zip(node, found.low.tolist(), found.high.tolist(), strict=True):
                assert Fraction(low) <= value <= Fraction(high)


@pytest.mark.parametrize("name", INTERVALS)
def test_random_circuits(name: str, rng: np.random.Generator) -> None:
    parameter, low, high = INTERVALS[name]
    used = []
    for _ in range(6):
        graph = random_circuit(rng, low, high)
        checked = check_circuit(graph, low, high, name, parameter)
        points = places(graph, low, high, rng)
        used.append(check_bound(checked, graph, name, parameter, points, rng))
        check_ranges(checked, graph, rng.choice(points, 4))
    assert min(used) > 0.97


@pytest.mark.one_in(3)
@pytest.mark.parametrize("error", [1e-2, 1e-4])
@pytest.mark.parametrize("name", INTERVALS)
def test_the_catalogue(name: str, error: float, rng: np.random.Generator) -> None:
    """For every fragment the catalogue offers: true, and within 2 % of what is found."""
    parameter, low, high = INTERVALS[name]
    found = options(name, parameter, low, high, error)
    assert found
    for fragment in {id(each): each for each in (found[0], found[-1])}.values():
        checked = check_circuit(fragment.graph, low, high, name, parameter)
        points = places(fragment.graph, low, high, rng)
        assert check_bound(checked, fragment.graph, name, parameter, points, rng) > 1 / 1.02
        assert max(abs(checked.low), abs(checked.high)) <= 1.02 * error
        check_ranges(checked, fragment.graph, rng.choice(points, 2))


@pytest.mark.parametrize("name", ["square", "exp", "sqrt", "sin"])
def test_node_ranges_are_tight(name: str) -> None:
    parameter, low, high = INTERVALS[name]
    graph = options(name, parameter, low, high, 1e-4)[0].graph
    checked = check_circuit(graph, low, high, name, parameter)
    points = chords._kinks(graph, low, high)
    for value, found in zip(extended_nodes(graph, points[:, None]), checked.ranges, strict=True):
        size = 1e-12 * np.maximum(1.0, np.abs(value).max())
        assert np.all(found.low >= value.min(axis=0) - size)
        assert np.all(found.high <= value.max(axis=0) + size)


def moved(graph: Graph, number: int, by: float) -> Graph:
    """The same circuit with one bias moved."""
    node = graph.nodes[number]
    assert isinstance(node, Affine)
    bias = node.bias.copy()
    bias[0] += by
    return Graph((*graph.nodes[:number], Affine(node.terms, bias), *graph.nodes[number + 1 :]), graph.output)


@pytest.mark.parametrize("by", [1e-13, -1e-9, 1e-3, -7.0])
def test_a_moved_output_moves_the_bound(by: float) -> None:
    """Theorem: circuit + d - f lies in [low + d, high + d]."""
    graph = square(-1.0, 1.0, (2, 2, 2)).graph
    before = check_circuit(graph, -1.0, 1.0, "square")
    after = check_circuit(moved(graph, graph.output, by), -1.0, 1.0, "square")
    for one, other in ((before.low, after.low), (before.high, after.high)):
        assert other - one == pytest.approx(by, abs=3e-14 + 3e-3 * before.high)
    assert after.low <= -(0.25**2) / 8 + by
    assert after.high >= 0.25**2 / 8 + by


def test_a_perturbed_weight_is_seen(rng: np.random.Generator) -> None:
    """Every weight of a circuit in turn, by a little and by a lot: the bound follows what is found."""
    low, high = -1.0, 1.0
    graph = square(low, high, (2, 3)).graph
    before = check_circuit(graph, low, high, "square").high
    followed = 0
    for number, node in enumerate(graph.nodes):
        if not isinstance(node, Affine):
            continue
        for place, term in enumerate(node.terms):
            for by in (1e-4, 0.03, -1.0):
                weights = term.weights.copy()
                weights.reshape(-1)[rng.integers(weights.size)] += by
                terms = (*node.terms[:place], Term(term.node, weights), *node.terms[place + 1 :])
                nodes = (*graph.nodes[:number], Affine(terms, node.bias), *graph.nodes[number + 1 :])
                changed = Graph(nodes, graph.output)
                checked = check_circuit(changed, low, high, "square")
                used = check_bound(checked, changed, "square", None, places(changed, low, high, rng), rng)
                assert used > 0.97
                followed += max(-checked.low, checked.high) > 1.2 * before
    assert followed >= 6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("width", [0.0, 5e-324, 1e-200, 1e-12, 1e-9])
def test_narrow_intervals(name: str, width: float, rng: np.random.Generator) -> None:
    """At a point, between neighbouring doubles, and where f hardly changes: true, and as tight as float64 is."""
    parameter, start, _ = INTERVALS[name]
    low = start
    high = low if width == 0.0 else max(low + width, float(np.nextafter(low, np.inf)))
    value = float(FUNCTIONS[name].value(low, parameter))
    line = shallow([low], [value], 0.0).graph
    graph = random_circuit(rng, low, high)
    for circuit in (line, graph):
        checked = check_circuit(circuit, low, high, name, parameter)
        points = np.unique([low, high, low + 0.3 * (high - low), low + 0.7 * (high - low)])
        check_bound(checked, circuit, name, parameter, points, rng)
        check_ranges(checked, circuit, points)
        found = differences(circuit, name, parameter, points)
        size = max(max(float(np.abs(node).max()) for node in extended_nodes(circuit, points[:, None])), abs(value), 1.0)
        assert checked.high - checked.low <= 1e-12 * size + 1.3 * float(found.max() - found.min())


SINGULAR_ENDS = [
    (name, parameter, high)
    for name, parameter in [("sqrt", None), ("power", 0.5), ("power", 0.1), ("power", 1.5)]
    for high in [1e-300, 1e-170, 1e-30, 1e-9, 1.0, 1e12, 1e200]
    if high ** (parameter or 0.5) > 1e-290  # a value that is a double
]


@pytest.mark.parametrize(("name", "parameter", "high"), SINGULAR_ENDS)
def test_touching_a_singular_end(name: str, parameter: float | None, high: float, rng: np.random.Generator) -> None:
    """Next to 0, where f' or f'' is infinite, at any scale: f - chord is a quarter of f(high), for a root."""
    value = float(FUNCTIONS[name].value(high, parameter))
    graph = shallow([0.0, high], [0.0, value], 0.0).graph
    with np.errstate(over="ignore"):
        checked = check_circuit(graph, 0.0, high, name, parameter)
    points = np.unique(high * np.concatenate([[0.0, 1.0], np.geomspace(1e-12, 1.0, 40), rng.random(20)]))
    assert check_bound(checked, graph, name, parameter, points, rng) > 0.9


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("square", -1e150, 1e150),
        ("softplus", -1e300, 1e300),
        ("tanh", -1e300, 1e300),
        ("gaussian", -1e9, 1e9),
        ("exp", -1e5, 700.0),
        ("log", 1e-300, 1e300),
        ("reciprocal", 1e-9, 1e9),
        ("sin", -1e6, 1e6),
        ("gelu", 1e5, 1e8),
        ("sigmoid", -1e4, -40.0),
    ],
)
def test_huge_intervals(name: str, low: float, high: float, rng: np.random.Generator) -> None:
    """A line and a kinked circuit over many magnitudes: true wherever it is looked at, or refused."""
    ends = np.array([float(FUNCTIONS[name].value(end)) for end in (low, high)])
    middle = 0.5 * low + 0.5 * high
    for circuit in (shallow([low, high], ends, 0.0).graph, shallow([low, middle, high], [1.0, -2.0, 3.0], 0.0).graph):
        with np.errstate(over="ignore"):
            checked = check_circuit(circuit, low, high, name)
        near = np.concatenate([[low, high, middle], rng.uniform(low, high, 30), rng.normal(size=10)])
        near = np.concatenate([near, np.sign(near) * np.abs(near) ** rng.random(len(near))])
        check_bound(checked, circuit, name, None, np.unique(np.clip(near, low, high)), rng)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("log", 0.0, 1.0), ("log", -1.0, 1.0), ("sqrt", -1e-300, 1.0), ("reciprocal", -1.0, 1.0)]
)
def test_outside_the_domain_there_is_no_bound(name: str, low: float, high: float) -> None:
    with pytest.raises(HeadsmithError, match=name):
        check_circuit(shallow([low, high], [0.0, 1.0], 0.0).graph, low, high, name)


def test_overflow_is_refused() -> None:
    with pytest.raises(HeadsmithError, match="exp"), np.errstate(all="ignore"):
        check_circuit(shallow([0.0, 1.0], [0.0, 1.0], 0.0).graph, 0.0, 800.0, "exp")


def test_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = square(0.0, 1.0, (2,) * 10).graph
    monkeypatch.setattr(chords, "MOST_CELLS", 1000)
    with pytest.raises(TooManyPiecesError, match="1000 pieces"):
        check_circuit(graph, 0.0, 1.0, "square")


def test_wrong_kinks_cost_tightness_not_truth(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Theorem: the bound holds for any cells. Random ends instead of the kinks: wider, never false."""
    for _ in range(10):
        graph = random_circuit(rng, -2.0, 2.0)
        points = places(graph, -2.0, 2.0, rng)
        good = check_circuit(graph, -2.0, 2.0, "tanh")
        cells = np.unique([-2.0, 2.0, *rng.uniform(-2.0, 2.0, 9)])
        with monkeypatch.context() as patch:
            patch.setattr(chords, "_kinks", lambda *_, cells=cells: cells)
            blind = check_circuit.__wrapped__(graph, -2.0, 2.0, "tanh")
        check_bound(blind, graph, "tanh", None, points, rng)
        check_ranges(blind, graph, rng.choice(points, 5))
        assert blind.high - blind.low >= (good.high - good.low) * 0.99
