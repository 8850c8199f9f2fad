"""Rule Approximates: bounds of network - function hold at every point, whatever the cells, and are not slack."""

import random

import mpmath
import numpy as np
import pytest
from helpers.attacks.forged import plain
from helpers.models.networks import square_network

import headsmith as hs
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.table import read_cells
from headsmith.kernel.rules import approximates
from headsmith.kernel.rules.approximates import check_approximation, ends_of, on_cells
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.reading import as_graph


def graphs(network: hs.Network, formula: str):
    wanted = as_graph(formula, dict.fromkeys(network.names, (0.0, 1.0)))
    return (network.graph, wanted), (kernel_graph(network.graph), kernel_graph(wanted))


def halved(times: int) -> str:
    return "0" if times == 0 else "1" + 2 * halved(times - 1)


UNIT = Interval(np.zeros(1), np.ones(1))


@pytest.mark.parametrize("gates", [1, 4, 7])
def test_the_square_of_Yarotsky_is_off_by_a_power_of_four(gates):
    _, pair = graphs(square_network(gates), "x**2")
    (found,) = check_approximation(*pair, UNIT, halved(gates))[0].value
    assert 0.0 <= found - 4.0 ** -(gates + 1) <= 1e-12


def random_formula(names: list[str], depth: int, choose: random.Random) -> str:
    if depth == 0:
        return choose.choice([*names, f"{choose.uniform(-2, 2):.3f}"])
    shapes = ("({}+{})", "({}*{})", "sin({})", "exp(-({})**2)", "relu({})", "max({},{})", "abs({})", "tanh({})")
    shapes += ("sqrt(abs({}))", "sqrt(abs({})+0.01)", "1/(1+({})**2)", "min({},{},{})")
    shape = choose.choice(shapes)
    return shape.format(*(random_formula(names, depth - 1, choose) for _ in range(shape.count("{}"))))


def random_tree(inputs: int, depth: int, choose: random.Random) -> str:
    if depth == 0 or choose.random() < 0.15:
        return "0"
    return str(choose.randint(1, inputs)) + "".join(random_tree(inputs, depth - 1, choose) for _ in range(2))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_on_random_networks_formulas_and_cells(seed):
    """On coarse cells and on fine ones, so that gates keep their sign on some and have slack on others."""
    choose, rng, known = random.Random(seed), np.random.default_rng(seed), 0
    for _ in range(12):
        names = list("xyz")[: choose.choice([1, 1, 2, 3])]
        sizes = [len(names), *[choose.choice([1, 3, 6])] * choose.choice([1, 2]), 1]
        shapes = zip(sizes[1:], sizes[:-1], strict=True)
        layers = [(rng.normal(size=(out, into)), rng.normal(size=out).round(1)) for out, into in shapes]
        formula = random_formula(names, choose.choice([2, 3, 4]), choose)
        network = hs.Network(layers, names=names, transposed=False)
        (ours, theirs), pair = graphs(network, formula)
        low = rng.uniform(-2.0, 0.5, len(names))
        box = Interval(low, low + rng.uniform(0.01, 2.0, len(names)))
        ends = ends_of(box, read_cells(random_tree(len(names), choose.choice([0, 2, 5]), choose), len(names)))
        found = on_cells(*pair, ends)[:1]
        points = rng.uniform(ends.low.T, ends.high.T, size=(40, *ends.low.T.shape))
        points[:10] = np.where(rng.random(points[:10].shape) < 0.5, ends.low.T, ends.high.T)
        gap = (evaluate(ours, points, np.longdouble) - evaluate(theirs, points, np.longdouble))[..., 0]
        allowed = 1e-15 * (1.0 + np.abs(gap))
        assert np.all(gap >= found.low[0] - allowed), formula
        assert np.all(gap <= found.high[0] + allowed), formula
        known += int(np.isfinite(found.low).sum())
    assert known > 0


def test_a_bound_is_close_to_what_mpmath_finds():
    """The chords of sin between 40 points, that are nowhere near the ends of cells."""
    knots = np.sort(np.random.default_rng(0).uniform(-3, 3, 40))
    knots[0] = -3.0
    ends = np.append(knots, 3.0)
    slopes = np.diff(np.sin(ends)) / np.diff(ends)
    network = hs.Network([(np.ones((40, 1)), -knots), (np.diff(slopes, prepend=0)[None], [np.sin(-3.0)])], names=["x"])
    _, pair = graphs(network, "sin(x)")
    (found,) = check_approximation(*pair, Interval(np.array([-3.0]), np.array([3.0])), halved(10))[0].value
    mpmath.mp.dps = 30
    (weights, bias), (out, start) = network.layers

    def gap(x):
        gates = [max(mpmath.mpf(w) * x + mpmath.mpf(b), 0) for w, b in zip(weights[:, 0], bias, strict=True)]
        return abs(sum(mpmath.mpf(w) * g for w, g in zip(out[0], gates, strict=True)) + start[0] - mpmath.sin(x))

    worst = max(gap(mpmath.mpf(float(x))) for x in (ends[1:] + ends[:-1]) / 2)
    assert float(worst) <= found <= 1.05 * float(worst)


def test_inputs_that_a_gate_or_a_product_reads_together_are_one_group():
    """A sum that is none, though it looks like one: the trees do not fit."""
    box = Interval(np.zeros(3), np.ones(3))
    network = hs.Network([([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0, 0, 0]), ([[1, 1, 1]], [0])], names=list("xyz"))
    _, alone = graphs(network, "x**2 + sin(y) + z")
    _, joint = graphs(network, "x*z + sin(y)")
    assert len(approximates.boxes_of(*alone, box)) == 3
    assert len(approximates.boxes_of(*joint, box)) == 2
    _, mixed = graphs(hs.Network([([[1, 1, 0], [0, 1, 1]], [-1, -1]), ([[1, 1]], [0])], names=list("xyz")), "x + y + z")
    assert len(approximates.boxes_of(*mixed, box)) == 1
    # x - x^2 is at most 1/4, y - sin(y) at most 1 - sin(1).
    (found,) = check_approximation(*alone, box, " ".join([halved(6)] * 3))[0].value
    assert 0.0 <= found - (0.25 + 1.0 - np.sin(1.0)) <= 1e-3
    with pytest.raises(Refused, match="3 functions of other inputs"):
        check_approximation(*alone, box, halved(2))
    with pytest.raises(Refused, match="2 functions of other inputs"):
        check_approximation(*joint, box, "0 0 0")


def test_an_output_that_is_the_input_node_reads_all_inputs():
    """(x, 0) for (x, y), whose graph has no other node than its inputs: y is looked at, and (x, 0) is off by |y|."""
    file = plain(2)
    nodes = [file.affine(graph, [(0, np.diag([1.0, 0.0]))], np.zeros(2)) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.model["outputs"], file.model["readout_bias"] = 2, file.keep(np.zeros(2))
    file.model["readout"] = [file.link("x", [[1.0], [0.0]])]
    file.header["approximates"] = {"nodes": file.source[:1], "output": 0}
    file.proof["approximation"] = "0 0"
    assert file.check().outputs == pytest.approx((0.0, 1.0))
    file.proof["approximation"] = "0"
    with pytest.raises(Refused, match="2 functions of other inputs"):
        file.check()


def test_what_is_not_defined_has_no_bound():
    """Not even where it is multiplied by zero."""
    builder = Builder(["x"])
    logarithm = builder.function("log", builder.affine([(builder.input, np.ones((1, 1)))], [-0.5]))
    wanted = builder.graph(builder.affine([(logarithm, np.zeros((1, 1))), (builder.input, np.ones((1, 1)))], [0.0]))
    pair = kernel_graph(hs.Network([([[1.0]], [0.0])], names=["x"]).graph), kernel_graph(wanted)
    assert check_approximation(*pair, Interval(np.array([0.6]), np.ones(1)), "0")[0].value < 1e-15
    with pytest.raises(Refused, match="no finite bound"):
        check_approximation(*pair, UNIT, halved(3))


def test_what_is_not_defined_has_no_bound_though_no_output_reads_it():
    """y + 0 log(x): x is a group of its own, and is looked at."""
    builder = Builder(["x", "y"])
    logarithm = builder.function("log", builder.affine([(builder.input, [[1.0, 0.0]])], [-0.5]))
    wanted = builder.graph(builder.affine([(logarithm, np.zeros((1, 1))), (builder.input, [[0.0, 1.0]])], [0.0]))
    pair = kernel_graph(hs.Network([([[0.0, 1.0]], [0.0])], names=["x", "y"]).graph), kernel_graph(wanted)
    assert check_approximation(*pair, Interval(np.array([0.6, 0.0]), np.ones(2)), "0 0")[0].value < 1e-15
    with pytest.raises(Refused, match="no finite bound"):
        check_approximation(*pair, Interval(np.zeros(2), np.ones(2)), "0 0")


@pytest.mark.parametrize("cells", ["", "1", "100", "2", "20", "1000", "00", "x", "1 0"])
def test_cells_that_are_no_tree_are_refused(cells):
    _, pair = graphs(square_network(2), "x**2")
    if cells == "100":
        assert check_approximation(*pair, UNIT, cells)[0].value < 1.0
        return
    with pytest.raises(Refused, match="tree"):
        check_approximation(*pair, UNIT, cells)


def test_other_inputs_outputs_and_tokens_are_refused():
    network = kernel_graph(square_network(2).graph)
    for formula, names in (("x*y", "xy"), ("z", "z"), ("x, x", "x")):
        wanted = kernel_graph(as_graph(formula, dict.fromkeys(names, (0.0, 1.0))))
        with pytest.raises(Refused, match="inputs and outputs"):
            check_approximation(network, wanted, UNIT, "0")


def test_cells_that_are_cut_more_often_than_doubles_have_bits_leave_nothing_out():
    """The ends of 2^54 equal parts are no doubles. Round 0, in [-1, 1], there are doubles between them: a function with
    a peak of 2^26 between 0 and 2^-53 was taken to be 0."""
    file = plain()
    places: list[int] = [file.add(wanted := [], "input", names=["x0"])]
    for rows, biases in (([[1.0], [1.0]], [0.0, -(2.0**-20)]), ([[1.0]] * 3, [0.0, -(2.0**-54), -(2.0**-53)])):
        gates = file.relu(wanted, file.affine(wanted, [(places[-1], rows)], biases), len(rows))
        weights = [[1.0, -1.0]] if len(rows) == 2 else [[2.0**80, -(2.0**81), 2.0**80]]
        places.append(file.affine(wanted, [(gates, weights)], [0.0]))
    file.affine(wanted, [(0, [[1.0]]), (places[-1], [[1.0]])], [0.0])
    file.header["approximates"] = {"nodes": wanted, "output": len(wanted) - 1}
    file.proof["approximation"] = "10" + "1" * 53 + "0" * 54
    assert file.check().error >= 2.0**26
    cells = read_cells(file.proof["approximation"], 1)
    ends = ends_of(Interval(-np.ones(1), np.ones(1)), cells)
    assert np.array_equal(ends.low[0, 1:], ends.high[0, :-1])
