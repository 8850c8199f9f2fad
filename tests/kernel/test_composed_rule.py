"""Rule Composed: a network and its function are compared piece by piece; errors arrive by the function's slopes.

Wrong pieces cost tightness, or are refused: whatever a proof lists, the bound holds at every point."""

from __future__ import annotations

import random
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks.forged import Forged
from helpers.attacks.saved import read, write
from helpers.effort import CAMPAIGN, tried
from helpers.models.networks import product_chain, square_network

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.composed import check_composition, cut, slopes_of
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.compositions import compare
from headsmith.plan.reading import as_graph

UNIT = Interval(np.zeros(1), np.ones(1))


def halved(times: int, mark: str = "1") -> str:
    return "0" if times == 0 else mark + 2 * halved(times - 1, mark)


def bound(network: Graph, wanted: Graph, box: Interval, stored: Any, tensors: Any = None) -> float:
    found = check_composition(kernel_graph(network), kernel_graph(wanted), box, stored, tensors or {})
    return float(found.error.value.max())


def scaled_square(gates: int, factor: float) -> tuple[Graph, int]:
    """factor * x^2 by a network for x^2, which is a node of its own."""
    network, builder = square_network(gates), Builder(["x"])
    place = builder.input
    for number, (W, b) in enumerate(network.layers):
        place = builder.affine([(place, W)], b)
        place = place if number == gates else builder.relu(place)
    return builder.graph(builder.affine([(place, [[factor]])], [0.0])), place


def test_errors_arrive_with_the_slopes_of_the_function_and_no_more() -> None:
    """3 x^2: the network for x^2 is off by 4^-(m+1), and three times that is attained."""
    (network, square), wanted = scaled_square(4, 3.0), as_graph("3*x**2", {"x": (0, 1)})
    cells = [{"network": square, "function": 2, "reads": [0], "approximation": halved(4)}]
    cells.append({"network": network.output, "function": wanted.output, "reads": [1], "approximation": "0"})
    found = bound(network, wanted, UNIT, {"pieces": cells})
    assert 0.0 <= found - 3.0 * 4.0**-5 <= 1e-12
    x = np.array([[1.0 / 32.0]])
    assert abs(evaluate(network, x) - 3.0 * x**2).max() == pytest.approx(3.0 * 4.0**-5)


@pytest.mark.parametrize(
    "change",
    [
        {"reads": []},
        {"reads": [2]},
        {"reads": [-1]},
        {"reads": [0.0]},
        {"reads": "0"},
        {"reads": [1] * 2000},
        {"network": 99},
        {"function": 99},
        {"function": 0},
        {"network": 1},
        {"approximation": ""},
        {"approximation": "0 0"},
        {"approximation": 0},
        {"turned": {"M": [[2.0]], "K": [[1.0]]}},
        {"rewritten": {"nodes": [], "output": 0}},
        {"pieces": []},
        {"pieces": 7},
    ],
)
def test_what_is_no_piece_is_refused(change: Any) -> None:
    (network, square), wanted = scaled_square(2, 3.0), as_graph("3*x**2", {"x": (0, 1)})
    cells = [{"network": square, "function": 2, "reads": [0], "approximation": halved(2)}]
    cells.append({"network": network.output, "function": wanted.output, "reads": [1], "approximation": "0"})
    assert bound(network, wanted, UNIT, {"pieces": cells}) < 0.05
    with pytest.raises((Refused, ValueError)):
        bound(network, wanted, UNIT, {"pieces": [cells[0], {**cells[1], **change}]})


def test_a_piece_that_reads_inputs_and_does_not_say_so_is_refused() -> None:
    """The network reads x behind the cut, too; so does, in another file, the function."""
    builder = Builder(["x"])
    gate = builder.relu(builder.input)
    network = builder.graph(builder.affine([(gate, [[1.0]]), (builder.input, [[0.1]])], [0.0]))
    wanted = as_graph("x", {"x": (0, 1)})
    first = {"network": gate, "function": wanted.output, "reads": [0], "approximation": "0"}
    last = {"network": network.output, "function": wanted.output, "reads": [1], "approximation": "0"}
    with pytest.raises(Refused, match="reads inputs, and does not say so"):
        bound(network, wanted, UNIT, {"pieces": [first, last]})
    assert bound(network, wanted, UNIT, {"pieces": [first, {**last, "reads": [0, 1], "approximation": "0 0"}]}) >= 0.1
    with pytest.raises(Refused, match="not the output"):
        bound(network, wanted, UNIT, {"pieces": [first]})


def test_ranges_are_those_of_the_network_too() -> None:
    """p is 1.5 x for x, and the network bends at 1.2, where x never is: a comparison on [0, 1] would miss that."""
    builder = Builder(["x"])
    p = builder.affine([(builder.relu(builder.input), [[1.5]])], [0.0])
    gate = builder.relu(builder.affine([(p, [[1.0]])], [-1.2]))
    network = builder.graph(builder.affine([(p, [[1.0]]), (gate, [[100.0]])], [0.0]))
    wanted = as_graph("sqrt(x + 1)*2", {"x": (0, 1)})  # any function that can be cut at x
    pieces = [{"network": p, "function": 0, "reads": [0], "approximation": "0"}]
    pieces.append({"network": network.output, "function": wanted.output, "reads": [1], "approximation": "0"})
    assert bound(network, wanted, UNIT, {"pieces": pieces}) >= 31.5 - 2.0 * np.sqrt(2.0)


def test_another_writing_must_be_the_same_function() -> None:
    from headsmith.language.stored import graph_data

    network, box = product_chain(2, ["x", "y"]), Interval(-np.ones(2), np.ones(2))
    wanted = as_graph("x*y", {"x": (-1, 1), "y": (-1, 1)})
    turn = {"M": [[0.5, 0.5], [0.5, -0.5]], "K": [[1.0, 1.0], [1.0, -1.0]]}
    stored = {"turned": turn, "approximation": " ".join([halved(3)] * 2)}
    for formula, right in (
        ("((x + y)/2)**2 - ((x - y)/2)**2", True),
        ("((x + y)/2)**2 - ((x - y)/2)**2 + 0.001", False),
    ):
        tensors: dict[str, Any] = {}
        other = graph_data(as_graph(formula, {"x": (-1, 1), "y": (-1, 1)}), tensors)
        if right:
            found = bound(network.graph, wanted, box, {**stored, "rewritten": other}, tensors)
            assert 0.0 <= found - 4.0**-3 <= 1e-12
        else:
            with pytest.raises(Refused, match="another function"):
                bound(network.graph, wanted, box, {**stored, "rewritten": other}, tensors)


def test_a_function_that_is_not_defined_is_not_so_in_another_writing() -> None:
    """log(x) - log(x) is 0 wherever it is defined, and x may be negative."""
    from headsmith.language.stored import graph_data

    builder = Builder(["x"])
    logarithm = builder.function("log", builder.input)
    wanted = builder.graph(builder.affine([(logarithm, [[0.0]]), (builder.input, [[1.0]])], [0.0]))
    tensors: dict[str, Any] = {}
    other = graph_data(as_graph("x", {"x": (0, 1)}), tensors)
    network, stored = hs.Network([([[1.0]], [0.0])], names=["x"]).graph, {"rewritten": other, "approximation": "0"}
    assert bound(network, wanted, Interval(np.array([0.5]), np.ones(1)), stored, tensors) < 1e-15
    with pytest.raises(Refused, match="defined"):
        bound(network, wanted, Interval(-np.ones(1), np.ones(1)), stored, tensors)


@pytest.mark.parametrize(
    "formula", ["x*y", "max(x, y)*2", "sin(x)*y", "x/(y + 3)", "abs(x - y) + exp(x)", "sqrt(x + 1.1)"]
)
def test_slopes_hold_between_any_two_points(formula: str) -> None:
    wanted = as_graph(formula, {"x": (-1, 1), "y": (-1, 1)})
    reach, slopes = slopes_of(kernel_graph(wanted), Interval(-np.ones(2), np.ones(2)))
    points = np.random.default_rng(0).uniform(-1, 1, (2, 4000, 2))
    a, b = (evaluate(wanted, each, np.longdouble)[:, 0] for each in points)
    allowed = np.abs(points[0] - points[1]) @ slopes.magnitude.value[0]
    assert np.all(np.abs(a - b) <= allowed * (1 + 1e-15))
    assert np.all((a >= reach.low) & (a <= reach.high))


# Forged proofs -------------------------------------------------------------------------------------------------------


def random_pair(choose: random.Random, rng: np.random.Generator) -> tuple[Graph, Graph, int]:
    """A network and a function of a few inputs, of nodes of one or two numbers."""
    names = list("xyz")[: choose.choice([1, 2, 3])]
    network, wanted = Builder(names), Builder(names)
    for builder, kinds in (
        (network, ("affine", "relu", "affine")),
        (wanted, ("affine", "square", "sin", "times", "max")),
    ):
        for _ in range(choose.randint(2, 6)):
            kind, size = choose.choice(kinds), choose.choice([1, 1, 1, 2])
            alike = [n for n in range(builder.count) if builder.size(n) == size]
            if kind == "affine" or not alike:
                read_ = {choose.randrange(builder.count) for _ in range(2)}
                terms = [(n, rng.normal(size=(size, builder.size(n))).round(2)) for n in read_]
                builder.affine(terms, rng.normal(size=size).round(2))
            elif kind == "relu":
                builder.relu(choose.choice(alike))
            elif kind == "times":
                builder.product(choose.choice(alike), choose.choice(alike))
            elif kind == "max":
                builder.maximum([choose.choice(alike), choose.choice(alike)])
            else:
                builder.function(kind, choose.choice(alike))
        builder.affine([(builder.count - 1, rng.normal(size=(1, builder.size(builder.count - 1))))], [0.1])
    return network.graph(network.count - 1), wanted.graph(wanted.count - 1), len(names)


def random_tree(inputs: int, depth: int, choose: random.Random) -> str:
    if depth == 0 or choose.random() < 0.2:
        return "0"
    return str(choose.randint(1, min(inputs, 9))) + "".join(random_tree(inputs, depth - 1, choose) for _ in range(2))


def random_pieces(network: Graph, wanted: Graph, choose: random.Random) -> list[Any]:
    """Any pairs, in any order, that read any earlier ones."""
    pairs, pieces = [(0, 0)], list[Any]()
    for last in [False] * choose.randint(0, 4) + [True]:
        n, f = choose.randrange(len(network.nodes)), choose.randrange(len(wanted.nodes))
        n, f = (network.output, wanted.output) if last else (n, f)
        reads = sorted({choose.randrange(len(pairs)) for _ in range(choose.randint(1, 3))})
        size = sum(network.nodes[pairs[each][0]].size for each in reads)
        tree = random_tree(size, choose.choice([0, 1, 3]), choose)
        pieces.append({"network": n, "function": f, "reads": reads, "approximation": tree})
        pairs.append((n, f))
    return pieces


def furthest(network: Graph, wanted: Graph, low: Any, high: Any, rng: np.random.Generator) -> float:
    points = rng.uniform(low, high, (400, len(low)))
    points[:100] = np.where(rng.random((100, len(low))) < 0.5, low, high)
    return float(np.abs(evaluate(network, points, np.longdouble) - evaluate(wanted, points, np.longdouble)).max())


def forged(seed: int, count: int) -> tuple[int, float]:
    """How many forged compositions were accepted, and the largest share of a bound that was found."""
    choose, rng, accepted, most = random.Random(seed), np.random.default_rng(seed), 0, 0.0
    for _ in range(count):
        network, wanted, inputs = random_pair(choose, rng)
        low = rng.uniform(-1.0, 0.5, inputs)
        high = low + rng.uniform(0.01, 1.5, inputs)
        graphs = kernel_graph(network), kernel_graph(wanted)
        for _ in range(12):
            pieces = random_pieces(network, wanted, choose)
            for _ in range(3):  # the number of trees that sums take is not known before
                try:
                    found = float(
                        check_composition(*graphs, Interval(low, high), {"pieces": pieces}, {}).error.value[0]
                    )
                except Refused as problem:
                    words = str(problem).split()
                    if "trees" not in words:
                        break
                    trees = " ".join(["0"] * int(words[words.index("of") + 1]))
                    (wrong,) = [each for each in pieces if len(each["approximation"].split(" ")) == int(words[-2])][:1]
                    wrong["approximation"] = trees
                    continue
                except (TargetError, ValueError, IndexError):
                    break
                accepted += 1
                gap = furthest(network, wanted, low, high, rng)
                assert gap <= found * (1.0 + 1e-12) + 1e-14, (seed, pieces)
                most = max(most, gap / found if found > 0.0 else 0.0)
                break
    return accepted, most


@pytest.mark.again
@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_pieces_a_proof_lists_the_bound_holds(seed: int) -> None:
    accepted, most = forged(seed, tried(8, 2))
    assert accepted >= tried(5, 2)
    assert most > 0.3  # and it says something


# Files ---------------------------------------------------------------------------------------------------------------


NAMES = list("xyzw" if CAMPAIGN else "xyz")


@pytest.fixture(scope="module")
def chained() -> Any:
    """x y z (w) by products in a row, each by squares."""
    return hs.compile(product_chain(1, NAMES), (-1, 1), 0.5, approximates="*".join(NAMES))


def precisely(network: hs.Network, point: Any) -> Any:
    """The network at a point, in 30 digits."""
    values = [mpmath.mpf(float(each)) for each in point]
    for number, (W, b) in enumerate(network.layers):
        rows = zip(W.tolist(), b.tolist(), strict=True)
        values = [sum((w * v for w, v in zip(row, values, strict=True)), mpmath.mpf(bias)) for row, bias in rows]
        values = values if number == len(network.layers) - 1 else [max(v, mpmath.mpf(0)) for v in values]
    return values[0]


@pytest.mark.again
def test_many_inputs_by_products_of_two(chained: Any, tmp_path: Any) -> None:
    """No cells of all inputs: two pieces a product, and n - 1 times what one product is off by."""
    most = (len(NAMES) - 1) * 4.0**-2
    assert 0.0 <= chained.certificate.parts["approximation"] - most <= 1e-6
    mpmath.mp.dps = 30
    points = np.random.default_rng(0).uniform(-1, 1, (300, len(NAMES)))
    network = product_chain(1, NAMES)
    worst = max(abs(precisely(network, p) - mpmath.fprod(p.tolist())) for p in points)
    assert float(worst) <= most
    assert np.abs(chained(points)[:, 0] - points.prod(axis=1)).max() <= chained.certificate.error <= 0.5
    pieces = chained.proof.stored["pieces"]
    assert all(each["approximation"].count("0") <= 64 for each in pieces)
    path = tmp_path / "chain.safetensors"
    chained.save(path)
    assert hs.verify(path).error == pytest.approx(chained.certificate.error)
    header, tensors = read(path)
    for change in ("less", "read", "node", "cells"):
        changed = [dict(each) for each in pieces]
        match change:
            case "less":
                changed = changed[:-2] + changed[-1:]
            case "read":
                changed[-1]["reads"] = changed[-1]["reads"][:1]
            case "node":
                changed[0]["function"] = changed[1]["function"]
            case "cells":
                changed[0]["approximation"] = " ".join("0" for _ in changed[0]["approximation"].split(" "))
        header["proof"]["pieces"] = changed
        write(path, header, tensors)
        with pytest.raises(hs.CertificateError):
            hs.verify(path)


def compared(network: hs.Network, formula: str, error: float) -> float:
    box = Box(tuple(network.names), -np.ones(len(network.names)), np.ones(len(network.names)))
    return compare(
        network.graph, as_graph(formula, dict.fromkeys(box.names, (-1, 1))), box, error, lambda _: None
    ).bound


def test_a_changed_weight_of_a_piece_costs_what_it_costs() -> None:
    """The bias of the last sum moves the output by as much; that of the first product arrives with the slope |z| <= 1,
    and the second product is off by 4^-(m+1) a little beyond its domain, too."""
    before = compared(product_chain(2, list("xyz")), "x*y*z", 0.08)
    assert 0.0 <= before - 2.0 * 4.0**-3 <= 1e-6
    for place in (-1, 3):
        layers = [(np.array(W), np.array(b)) for W, b in product_chain(2, list("xyz")).layers]
        layers[place][1][0] += 1e-3
        moved = compared(hs.Network(layers, names=list("xyz"), transposed=False), "x*y*z", 0.08)
        assert 0.9e-3 <= moved - before <= 3e-3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("inner", [1.0, 0.7])
def test_compositions_of_other_functions(inner: float) -> None:
    """sin of a sum of squares of three inputs: chords of sin read the sum; its weights need not be powers of two."""
    squares, knots = square_network(4).layers, np.linspace(0.0, 3.0, 33)
    layers = [(np.kron(np.eye(3), W), np.tile(b, 3)) for W, b in squares]
    total = inner * np.ones((1, 3)) @ layers.pop()[0]
    slopes = np.diff(np.sin(knots)) / np.diff(knots)
    layers += [(np.repeat(total, 32, axis=0), -inner * knots[:-1]), (np.diff(slopes, prepend=0.0)[None] / inner, [0.0])]
    network = hs.Network(layers, names=[f"x{i}" for i in range(3)], transposed=False)
    wanted = as_graph("sin(" + " + ".join(f"x{i}**2" for i in range(3)) + ")", dict.fromkeys(network.names, (0, 1)))
    box = Box(tuple(network.names), np.zeros(3), np.ones(3))
    found = compare(network.graph, wanted, box, 0.02, lambda _: None)
    assert found.largest <= found.bound <= 3.0 * 4.0**-5 + 3.0**2 / 32.0**2 / 8.0 + 1e-3
    points = np.random.default_rng(0).uniform(0, 1, (500, 3))
    assert np.abs(evaluate(found.network, points) - evaluate(network.graph, points)).max() <= 1e-12


def test_a_gate_of_which_nothing_is_known_may_be_open() -> None:
    """relu(x + 1e-9 (1/d + ... + 1/d)), d = x^2 - 2 x + 3/2, moves by what x does, 1/4. Over the whole box intervals do
    not know that d > 0, and a long sum of what is not known is no number: that is no reason to call the gate closed."""
    file, many = Forged(1, 0.0, 2.0), 33
    for graph in (file.source, file.circuit):
        file.scaled(graph, (file.scaled(graph, (0, 1.0), bias=0.25), 1.0))
    file.outputs(2, 2)
    file.embed()
    file.model["readout"], file.model["readout_bias"] = [file.link("x", [[1.0]])], file.keep([0.25])
    wanted = [file.source[0]]
    x = file.scaled(wanted, (0, 1.0))
    column = file.affine(wanted, [(x, np.ones((many, 1)))], np.zeros(many))
    square = file.function(wanted, "square", column, many)
    d = file.affine(wanted, [(square, np.ones(many)), (column, np.full(many, -2.0))], np.full(many, 1.5))
    inverse = file.function(wanted, "reciprocal", d, many)
    gate = file.relu(wanted, file.affine(wanted, [(x, [[1.0]]), (inverse, np.full((1, many), 1e-9))], [0.0]))
    file.header["approximates"] = {"nodes": wanted, "output": gate}
    file.proof["pieces"] = [
        {"network": 1, "function": x, "reads": [0], "approximation": "0"},
        {"network": 2, "function": gate, "reads": [1], "approximation": halved(6)},
    ]
    with pytest.raises(Refused, match="no finite bound"):
        file.check()


def test_cuts_keep_the_graph() -> None:
    """A node as a function of others is the node."""
    wanted = as_graph("sin(x*y)*x", {"x": (-1, 1), "y": (-1, 1)})
    graph = kernel_graph(wanted)
    product = next(n for n, node in enumerate(graph.nodes) if node.kind == "expression" and len(node.arguments) == 2)
    alone = cut(graph, graph.output, [0, product], np.eye(3))
    assert alone.nodes[0].size == 3
    with pytest.raises(Refused, match="does not say so"):
        cut(graph, graph.output, [product], np.eye(1))
