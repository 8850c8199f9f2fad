"""Rule Turned: a network and its function are compared in other coordinates, where its gates lie along the cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.attacks.saved import read, write
from helpers.models.networks import product_network

import headsmith as hs
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.composed import check_composition, turned
from headsmith.language.evaluation import evaluate
from headsmith.plan.analysis.flow import kernel_graph
from headsmith.plan.evidence.approximates import search_cells, turn_of
from headsmith.plan.reading import as_graph

HALF = {"M": [[0.5, 0.5], [0.5, -0.5]], "K": [[1.0, 1.0], [1.0, -1.0]]}
BOX = Interval(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))


def graphs(network: hs.Network, formula: str) -> Any:
    wanted = as_graph(formula, dict.fromkeys(network.names, (-1.0, 1.0)))
    return (network.graph, wanted), (kernel_graph(network.graph), kernel_graph(wanted))


def bound_of(pair: Any, box: Interval, turn: Any, cells: str) -> float:
    (found,) = check_composition(*pair, box, {"turned": turn, "approximation": cells}, {}).error.value
    return float(found)


def squares(levels: int) -> str:
    """A tree of halvings along both axes in turn."""
    return "0" if levels == 0 else "1" + 2 * ("2" + 2 * squares(levels - 1))


@pytest.mark.parametrize("gates", [1, 2, 3])
def test_products_by_squares_are_off_by_a_power_of_four_exactly(gates: int) -> None:
    """The bound is attained: cells of the size of the network's pieces show it."""
    _, pair = graphs(product_network(gates), "x*y")
    found = bound_of(pair, BOX, HALF, squares(gates + 1))
    assert 0.0 <= found - 4.0 ** -(gates + 1) <= 1e-12


@pytest.mark.parametrize(
    "turn",
    [
        {"M": [[0.5, 0.5], [0.5, -0.5]], "K": [[1.0, 1.0], [1.0, -1.0 + 2.0**-52]]},
        {"M": [[1.0, 0.0], [0.0, 1.0]], "K": [[0.5, 0.0], [0.0, 0.5]]},
        {"M": [[0.0, 0.0], [0.0, 0.0]], "K": [[0.0, 0.0], [0.0, 0.0]]},
        {"M": [[1.0]], "K": [[1.0]]},
        {"M": [[1.0, 0.0], [0.0]], "K": [[1.0, 0.0], [0.0, 1.0]]},
        {"M": [[1.0, 0.0], [0.0, float("nan")]], "K": [[1.0, 0.0], [0.0, 1.0]]},
        {"M": [[1.0, 0.0], [0.0, 1.0]]},
    ],
)
def test_what_is_no_turn_is_refused(turn: Any) -> None:
    with pytest.raises(Refused):
        turned(BOX, turn)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_on_the_whole_box(seed: int) -> None:
    """Random networks, formulas and turns (products of shears, whose inverses doubles hold), and boxes."""
    rng = np.random.default_rng(seed)
    for _ in range(5):
        M, K = np.eye(2), np.eye(2)
        for _ in range(3):
            shear = np.eye(2)
            shear[tuple(rng.permutation(2))] = float(rng.integers(-4, 5)) / 4.0
            M, K = M @ shear, (2.0 * np.eye(2) - shear) @ K
        weights = [rng.normal(size=(4, 2)), rng.normal(size=(1, 4))]
        network = hs.Network([(weights[0], rng.normal(size=4)), (weights[1], [0.1])], names=["x", "y"])
        formula = str(rng.choice(["x*y", "sin(x - y)*x", "exp(x) + max(x, y)", "abs(x + y)*y", "tanh(x*y)"]))
        (ours, theirs), pair = graphs(network, formula)
        low = rng.uniform(-1.0, 0.0, 2)
        box = Interval(low, low + rng.uniform(0.1, 1.0, 2))
        turn = {"M": M.tolist(), "K": K.tolist()}
        found = bound_of(pair, box, turn, squares(int(rng.integers(1, 4))))
        points = rng.uniform(box.low, box.high, (2000, 2))
        points[:200] = np.where(rng.random((200, 2)) < 0.5, box.low, box.high)
        assert np.abs(evaluate(ours, points) - evaluate(theirs, points)).max() <= found


def test_the_search_finds_the_forms_that_gates_read() -> None:
    pair = graphs(product_network(2), "x*y")[1]
    assert turn_of(pair[0]) == HALF
    assert turn_of(kernel_graph(hs.Network([([[1, 0], [0, 1]], [0, 0]), ([[1, 1]], [0])]).graph)) is None
    assert turn_of(kernel_graph(hs.Network([([[1, 2], [1, -1]], [0, 0]), ([[1, 1]], [0])]).graph)) is None  # thirds
    (ours, theirs), pair = graphs(product_network(4), "((x + y)/2)**2 - ((x - y)/2)**2")

    def gap(points: Any) -> Any:
        return np.asarray(evaluate(ours, points) - evaluate(theirs, points))

    found = search_cells(*pair, BOX.low, BOX.high, gap, 2e-3)
    assert found.turn == HALF
    assert found.cells.count("0") <= 128  # along each of the two coordinates
    assert found.bound == pytest.approx(4.0**-5, rel=1e-9)
    assert np.abs(gap(found.place[None])).max() == pytest.approx(found.largest)


def test_a_product_in_few_cells_and_its_file(tmp_path: Any) -> None:
    """x y within 2e-3 by a network for squares: compiled, saved, proved again; with another turn, refused."""
    model = hs.compile(product_network(4), (-1, 1), 2e-3, approximates="x*y")
    assert model.certificate.parts["approximation"] == pytest.approx(4.0**-5, rel=1e-9)
    points = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    assert np.abs(model(points)[:, 0] - points.prod(axis=1)).max() <= model.certificate.error <= 2e-3
    path = tmp_path / "product.safetensors"
    model.save(path)
    assert hs.verify(path).error == pytest.approx(model.certificate.error)
    header, tensors = read(path)
    (piece,) = header["proof"]["pieces"]
    for change in ({"M": [[1.0, 0.0], [0.0, 1.0]], "K": [[1.0, 0.0], [0.0, 1.0]]}, {"M": [], "K": []}, 7, None):
        piece["turned"] = change
        write(path, header, tensors)
        with pytest.raises(hs.CertificateError):
            hs.verify(path)
