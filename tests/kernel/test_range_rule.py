"""Ranges that adding up intervals does not see: piecewise linear functions of one number, and targets that are defined
because a sum is not negative."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.attacks.forged import Forged
from helpers.models.carried import carried

import headsmith as hs
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import read_graph
from headsmith.kernel.core.proof import read_proof
from headsmith.kernel.core.ranges import ranges


def hat(kinks: list[float]) -> Forged:
    """relu(x) - 2 relu(x - 1) + relu(x - 2) on [-3, 3], with these kinks."""
    file = Forged(1, -3.0, 3.0)
    gates = file.relu(file.circuit, file.affine(file.circuit, [(0, [[1.0]] * 3)], [0.0, -1.0, -2.0]), 3)
    output = file.affine(file.circuit, [(gates, [[1.0, -2.0, 1.0]])], [0.0])
    file.proof["bends"] = [{"node": output, "argument": 0, "kinks": file.keep(kinks)}]
    return file


def range_of(file: Forged) -> tuple[float, float]:
    graph = read_graph({"nodes": file.circuit, "output": 0}, file.tensors)
    proof = read_proof(file.proof, file.tensors, graph)
    found, _ = ranges(
        proof,
        Interval(*(file.header["domain"][end] for end in ("low", "high"))),
        lambda *_: pytest.fail("there are no regions"),
    )
    return float(found[-1].low[0]), float(found[-1].high[0])


def test_a_piecewise_linear_function_takes_its_extremes_at_its_kinks() -> None:
    """Theorem: with the right kinks the range is exact, to the bit; with none it is that of intervals."""
    assert range_of(hat([0.0, 1.0, 2.0])) == (0.0, 1.0)
    assert range_of(hat([])) == (-4.0, 4.0)


@pytest.mark.parametrize("kinks", [[0.5], [0.0, 2.0], [-9.0, 9.0], [0.1, 0.9, 1.1, 1.9], [1.0, 1.0]])
def test_wrong_kinks_cost_tightness_and_not_truth(kinks: list[float]) -> None:
    low, high = range_of(hat(kinks))
    assert low <= 0.0
    assert high >= 1.0


def test_a_bend_is_a_function_of_one_number_by_gates_and_sums() -> None:
    """What depends on two numbers, or on what is no gate or sum, is refused."""
    file = Forged(2, -3.0, 3.0)
    one, other = (file.affine(file.circuit, [(0, [row])], [0.0]) for row in ([1.0, 0.0], [0.0, 1.0]))
    both = file.affine(file.circuit, [(one, [[1.0]]), (other, [[1.0]])], [0.0])
    square = file.product(file.circuit, one, one)
    for node, argument in ((both, one), (square, one), (one, 0)):
        file.proof["bends"] = [{"node": node, "argument": argument, "kinks": file.keep([0.0])}]
        with pytest.raises(Refused, match="piecewise linear"):
            range_of(file)


def test_a_bend_through_a_region_is_refused() -> None:
    """The output of a region has the value of what it stands for, and not that of its circuit."""
    file = Forged(1, -3.0, 3.0)
    reference = file.function(file.circuit, "square", 0)
    output = file.affine(file.circuit, [(0, [[0.0]])], [9.0])
    after = file.affine(file.circuit, [(output, [[1.0]])], [0.0])
    file.proof["regions"] = [{"output": output, "stands_for": reference}]
    assert range_of(file) == (0.0, 9.0)
    file.proof["bends"] = [{"node": after, "argument": 0, "kinks": file.keep([0.0])}]
    with pytest.raises(Refused, match="piecewise linear"):
        range_of(file)


def gap(first: str, second: str, *, causal: bool = False, sign: float = 1.0) -> float:
    """The lower end of the range of a difference of the value or a pool of it and another one, on [-3, 3]."""
    file = Forged(1, -3.0, 3.0)
    nodes = [
        0 if name == "own" else file.add(file.circuit, "pool", of=name, argument=0, size=1, causal=mask)
        for name, mask in ((first, False), (second, causal))
    ]
    file.affine(file.circuit, [(nodes[0], [sign]), (nodes[1], [-sign])], [0.0])
    return range_of(file)[0]


def test_a_value_lies_between_the_smallest_and_the_largest() -> None:
    for pair in (("max", "own"), ("own", "min"), ("max", "mean"), ("mean", "min"), ("max", "min")):
        assert gap(*pair) == 0.0
        assert gap(*pair[::-1]) == -6.0
        assert gap(*pair, sign=2.0) == -12.0
    assert gap("own", "mean") == -6.0
    assert gap("max", "mean", causal=True) == -6.0


@pytest.fixture(scope="module")
def root() -> tuple[Any, Any]:
    """sqrt(|x - y| + 0.01): the sum is positive, which intervals of 2 relu(d) - d do not show."""
    model = hs.compile("sqrt(abs(x - y) + 0.01)", {"x": (-1, 1), "y": (-1, 1)}, 3e-2, recipe="relu")
    header, tensors = carried(model)
    assert proved(header, tensors).error <= 1.05 * model.certificate.error
    return header, tensors


def test_a_target_is_defined_by_what_the_circuit_knows_of_its_nodes(root: tuple[Any, Any]) -> None:
    header, tensors = root
    bare = {**header, "proof": {**header["proof"], "alike": []}}
    with pytest.raises(Refused, match="may not be defined"):
        proved(bare, tensors)


def test_nodes_that_are_not_alike_are_refused(root: tuple[Any, Any]) -> None:
    header, tensors = root
    output = header["proof"]["circuit"]["output"]
    alike = [{**each, "as": output} for each in header["proof"]["alike"]]
    with pytest.raises(Refused, match="alike"):
        proved({**header, "proof": {**header["proof"], "alike": alike}}, tensors)


def test_random_piecewise_linear_functions_lie_in_their_ranges() -> None:
    """Gates of gates of one number with random weights: no sample lies outside, and with all kinks the ends are met."""
    random = np.random.default_rng(3)
    for _ in range(30):
        file, width = Forged(1, -3.0, 3.0), 4
        w, b, v, c, u = (random.normal(size=size) for size in ((width, 1), width, (width, width), width, (1, width)))
        first = file.relu(file.circuit, file.affine(file.circuit, [(0, w)], b), width)
        second = file.relu(file.circuit, file.affine(file.circuit, [(first, v)], c), width)
        output = file.affine(file.circuit, [(second, u), (0, [[1.0]])], [0.1])
        x = np.concatenate([np.linspace(-3.0, 3.0, 4001), random.uniform(-3.0, 3.0, 100)])
        inner = np.maximum(v @ np.maximum(w * x + b[:, None], 0.0) + c[:, None], 0.0)
        values = (u @ inner)[0] + x + 0.1
        for kinks in ([], random.uniform(-3.0, 3.0, 5), np.linspace(-3.0, 3.0, 4001)):
            file.proof["bends"] = [{"node": output, "argument": 0, "kinks": file.keep(np.sort(kinks))}]
            low, high = range_of(file)
            assert low <= values.min()
            assert high >= values.max()
        assert high - low <= 1.05 * (values.max() - values.min())


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e9])
def test_products_of_many_terms_hold_and_are_tight(size: float) -> None:
    """W x for x within a box, in exact fractions: the bounds hold, and exceed them by rounding alone. A sum of products
    that are not negative is not negative."""
    random = np.random.default_rng(0)
    low = random.standard_normal(60) * 10.0 ** random.uniform(-12.0, 3.0, 60) * size
    x = Interval(low, low + np.where(random.random(60) < 0.3, 0.0, np.abs(random.standard_normal(60)) * size))
    weights = random.standard_normal((8, 60)) * 10.0 ** random.uniform(-6.0, 6.0, (8, 60))
    found = weights @ x
    for row, least, most in zip(weights.tolist(), found.low.tolist(), found.high.tolist(), strict=True):
        ends = [
            sorted(Fraction(w) * Fraction(end) for end in pair) for w, *pair in zip(row, x.low, x.high, strict=True)
        ]
        exact, sizes = [sum(each) for each in zip(*ends, strict=True)], sum(max(map(abs, each)) for each in ends)
        assert least <= exact[0] <= exact[1] <= most
        assert (
            max(exact[0] - Fraction(least), Fraction(most) - exact[1])
            <= sizes * Fraction(1, 1 << 44) + Fraction(2) ** -1010
        )
    assert np.all((np.abs(weights) @ Interval(np.zeros(60), np.abs(low))).low == 0.0)
