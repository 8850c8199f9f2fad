"""The parts of training, each against a second way to compute the same."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

import headsmith as hs
from headsmith.lab.training.cases import case_of
from headsmith.lab.training.measure import assigned, kick, largest_errors, pattern_distances, sharpness
from headsmith.lab.training.optimise import Problem, Schedule, adam, levenberg
from headsmith.lab.training.points import Field, Points, switches
from headsmith.lab.training.starts import balanced, perturbed_start, random_start
from headsmith.lab.training.students import Attention, Gates, Table, flat, size_of, split

DEEP = Attention(2, 1, 3, 2, 5, ((2, 2, 1), (1, 3, 2)))


@pytest.fixture(scope="module")
def product() -> Any:
    return case_of("x*y", {"x": (-1, 1), "y": (-1, 1)}, None, 1e-3, None)


def test_students_compute_what_the_module_computes(product: Any) -> None:
    """A stack of runs, one token or several, one layer or two, against run/torch_model.py."""
    from headsmith.run.torch_model import build

    weights, x = random_start(DEEP, [0, 1]), torch.randn(7, 3, 2, dtype=torch.float64)
    layers = [{"heads": h, "d_head": e, "d_value": v, "names": ["head"] * h} for h, e, v in DEEP.layers]
    config = {"inputs": 2, "outputs": 1, "tokens": 3, "causal": False, "takes": "sequences", "lengths": [[1, 3]]}
    config |= {"dtype": "float64", "reference_tokens": 2, "d_model": 5, "layers": layers, "answers": None}
    for run in range(2):
        tensors = {name: each[run] for name, each in split(DEEP.shapes, weights).items()}
        assert torch.allclose(DEEP.outputs(weights, x)[run], build(config, tensors)(x), atol=1e-12)
    points = torch.tensor(product.problem.validation.x)
    found = product.student.outputs(product.compiled, points)[0]
    assert torch.allclose(found[:, 0], product.model.to_torch()(points[:, 0]), atol=1e-13)


def test_tables_and_gates_are_what_they_say() -> None:
    table, x = Table(2, 3), np.linspace(-1.0, 1.0, 5)
    held = {name: np.random.default_rng(1).standard_normal(shape) for name, shape in table.shapes.items()}
    found = table.outputs(torch.tensor(flat(table.shapes, held))[None], torch.tensor(x)[:, None, None])[0, :, 0, 0]
    wanted = held["linear"][0] * x + held["bias"][0]
    for slope, offset, values in zip(held["slope"], held["offset"], held["values"], strict=True):
        shares = np.exp(slope * x[:, None] + offset)
        wanted = wanted + (shares / shares.sum(1, keepdims=True)) @ values
    assert np.allclose(found.numpy(), wanted)
    gates = Gates(1, 1, 4, 2)
    held = {name: np.random.default_rng(2).standard_normal(shape) for name, shape in gates.shapes.items()}
    network = hs.Network([(held[f"layers.{n}.weight"], held[f"layers.{n}.bias"]) for n in range(3)])
    found = gates.outputs(torch.tensor(flat(gates.shapes, held))[None], torch.tensor(x)[:, None, None])[0, :, 0]
    assert np.allclose(found.numpy(), Field(network.graph, -np.ones(1), np.ones(1)).at(x[:, None, None]).y[:, 0])


def test_the_jacobian_is_that_of_differences() -> None:
    random = np.random.default_rng(0)
    points = Points(random.standard_normal((6, 3, 2)), random.standard_normal((6, 3, 1)))
    problem, weights = Problem(DEEP, points, points), random_start(DEEP, [3, 4])
    rows = problem.jacobian(weights)
    assert rows.shape == (2, 18, size_of(DEEP))
    for place in range(0, size_of(DEEP), 7):
        moved = torch.zeros_like(weights)
        moved[:, place] = 1e-6
        slope = (problem.residuals(weights + moved) - problem.residuals(weights - moved)) / 2e-6
        assert torch.allclose(rows[:, :, place], slope, atol=1e-7)


def test_adam_is_that_of_torch(product: Any) -> None:
    start = random_start(product.student, [0])
    found = adam(product.problem.loss, start.repeat(2, 1), [1e-2, 0.0], Schedule(40, warm_up=0, cosine=False))
    weights = start.clone().requires_grad_()
    other = torch.optim.Adam([weights], lr=1e-2, eps=1e-12)
    for _ in range(40):
        other.zero_grad()
        product.problem.loss(weights, 0)[0].sum().backward()
        torch.nn.utils.clip_grad_norm_([weights], 1.0)
        other.step()
    assert torch.allclose(found.last[0], weights[0], atol=1e-9)
    assert torch.equal(found.last[1], start[0])  # rate zero trains nothing
    assert found.losses[0] < found.losses[1]


def test_levenberg_solves_least_squares_in_one_step_and_keeps_what_is_best() -> None:
    """A student that is linear in its weights: the first step is nearly all the way."""
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 1, 3))
    points = Points(x, x @ np.array([[1.0], [2.0], [-3.0]]) + 0.5)
    problem = Problem(Gates(3, 1, 1, 0), points, points)
    found = levenberg(problem, torch.zeros(2, 4, dtype=torch.float64), 6)
    assert torch.allclose(found.weights[0], torch.tensor([1.0, 2.0, -3.0, 0.5], dtype=torch.float64), atol=1e-6)
    assert found.errors[0] < 1e-6
    # Kept is what errs least on validation points, if that is the start.
    elsewhere = Problem(Gates(3, 1, 1, 0), points, Points(x, np.zeros_like(points.y)))
    zero = levenberg(elsewhere, torch.zeros(1, 4, dtype=torch.float64), 6)
    assert zero.errors[0] <= elsewhere.validated(torch.zeros(1, 4, dtype=torch.float64))[0]


def test_a_higher_norm_lowers_the_largest_error() -> None:
    """The best line for x^2 on [-1, 1]: 1/3 in squares, errs 2/3; 1/2 in the sup norm, errs 1/2."""
    x = np.linspace(-1.0, 1.0, 101)[:, None, None]
    problem = Problem(Gates(1, 1, 1, 0), Points(x, x**2), Points(x, x**2))
    held = levenberg(problem, torch.zeros(1, 2, dtype=torch.float64), 20)
    assert held.curves[-1, 0, 1] == pytest.approx(0.66, abs=0.02)
    for power in (4.0, 8.0, 16.0, 32.0):
        held = levenberg(problem, held.weights, 20, power)
    assert float(held.errors[0]) == pytest.approx(0.5, abs=0.02)


def test_points_lie_beside_kinks_at_every_scale() -> None:
    """An error of a strip of any width beside a kink is seen: some point is in it."""
    graph = case_of("max(x,y)", (-1, 1), None, 1e-2, None).model.wanted
    points = Field(graph, -np.ones(2), np.ones(2)).test()
    beside = np.abs(switches(graph, points.x[:, 0])[:, 0])
    for width in 10.0 ** -np.arange(1, 8):
        assert np.count_nonzero((beside > 0.1 * width) & (beside < width)) > 100
    smooth = Field(case_of("sin(x)", (-1, 1), None, 1e-2, None).model.wanted, -np.ones(1), np.ones(1))
    assert not len(smooth.beside_kinks(100, 0))


def test_starts(product: Any) -> None:
    student, built = product.student, product.compiled
    names = [*student.shapes]
    held = split(student.shapes, random_start(student, [0, 1, 0]))
    assert torch.equal(held["references"][0], held["references"][2])
    assert not torch.equal(held["references"][0], held["references"][1])
    assert float(held["references"].std()) > 0.3  # reference tokens that are all zero would stay alike for ever
    x = torch.tensor(product.problem.validation.x)
    same = balanced(student, built)
    assert torch.allclose(student.outputs(same, x), student.outputs(built, x), atol=1e-12)
    assert float(pattern_distances(student, same, built, product.problem.validation)[0]) < 1e-12
    sparse, dense = (perturbed_start(student, built, 0.1, zeros, [0]) for zeros in (True, False))
    assert torch.equal(sparse == 0.0, same == 0.0)
    assert torch.count_nonzero(dense) > torch.count_nonzero(sparse)
    assert names[0] == "embed.weight"


def test_a_circuit_is_the_same_however_its_tokens_are_numbered(product: Any) -> None:
    held = split(product.student.shapes, product.compiled)
    turned = torch.cat(
        [(each.flip(1) if name == "references" else each).reshape(1, -1) for name, each in held.items()], dim=1
    )
    assert float(pattern_distances(product.student, turned, product.compiled, product.problem.validation)[0]) < 1e-12
    other = random_start(product.student, [0])
    assert (
        0.05 < float(pattern_distances(product.student, other, product.compiled, product.problem.validation)[0]) <= 1.0
    )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_assignments_are_the_cheapest(size: int) -> None:
    cost = np.random.default_rng(size).random((size, size))
    best = min(sum(cost[row, column] for row, column in enumerate(each)) for each in permutations(range(size)))
    assert assigned(cost) == pytest.approx(best)


def test_the_kick_is_predicted(product: Any) -> None:
    """One step of Adam from the built weights, against what one Jacobian says of it."""
    predicted = kick(product.problem, product.compiled, product.error, rates=(1e-6,))
    found = adam(product.problem.loss, product.compiled, [1e-6], Schedule(1, warm_up=0, cosine=False))
    measured = largest_errors(product.problem, product.field, found.last, product.test).largest
    assert 0.9 <= measured[0] / predicted.moves[1e-6] <= 1.15
    assert predicted.budget == pytest.approx(product.error / predicted.slope)
    assert predicted.moves[1e-6] <= 1e-6 * predicted.slope + 2.0 * product.error
    assert predicted.rests_below == pytest.approx(2.0 / float(sharpness(product.problem, product.compiled)[0]))
