"""The rule for table heads: sharp, and never below the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.functions import Program, named, read_program
from headsmith.kernel.core.table import Table, check_table, read_cells
from headsmith.plan.evidence.cells import table_cells

Head = tuple[np.ndarray, np.ndarray, np.ndarray]


def checked(head: Head, programs: Sequence[Program], box: Any, cells: str) -> tuple[Any, Any, Any, Any]:
    """Bounds of the error, low and high, and of the slopes."""
    found = check_table(Table(*head, programs, box), cells)
    return found.low[:, 0], found.high[:, 0], found.low[:, 1:], found.high[:, 1:]


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def values_of(head: Head, points: Any) -> Any:
    """A head at points (n, variables), in extended precision."""
    slopes, offsets, values = (np.asarray(array, dtype=np.longdouble) for array in head)
    return softmax(np.asarray(points, dtype=np.longdouble) @ slopes.T + offsets) @ values


def fitted(functions: Sequence[Callable[..., Any]], box: Any, grid: Sequence[np.ndarray]) -> Head:
    """A head whose slopes are a grid, with the values that fit the functions best."""
    slopes = np.stack([axis.ravel() for axis in np.meshgrid(*grid, indexing="ij")], axis=1)
    centres = [(low + high) / 2 for low, high in box]
    offsets = -slopes @ np.array(centres)
    points = grid_of(box, 40)
    basis = softmax(points @ slopes.T + offsets)
    values = np.linalg.lstsq(basis, np.stack([f(*points.T) for f in functions], axis=1), rcond=1e-12)[0]
    return slopes, offsets, values


def grid_of(box: Any, count: int) -> np.ndarray:
    axes = [np.linspace(low, high, count) for low, high in box]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


STEPS = [["times", 0, 1], ["linear", [[-1, 2]], 0], ["call", "exp", 3], ["linear", [[1, 4]], 1], ["linear", [], 1]]
SIGMOID_OF_PRODUCT = read_program({"variables": 2, "steps": [*STEPS, ["over", 6, 5]]})
PRODUCT = read_program({"variables": 2, "steps": [["times", 0, 1]]})
AFFINE = read_program({"variables": 1, "steps": [["linear", [["1/4", 0]], "1/2"]]})
GATE = (np.array([[0.0], [-2.0], [2.0]]), np.array([0.0, -1.6, -1.6]), np.array([[1.0], [0.0], [0.0]]))

CASES: dict[str, tuple[Any, list[Program], list[Callable[..., Any]], Any]] = {
    "sigmoid and tanh": ([(-4, 4)], [named("sigmoid"), named("tanh")], [sigmoid, np.tanh], [np.linspace(-6, 6, 9)]),
    "reciprocal": ([(0.5, 4)], [named("reciprocal")], [lambda x: 1 / x], [np.linspace(-6, 3, 7)]),
    "sin": ([(-3, 3)], [named("sin")], [np.sin], [np.linspace(-5, 5, 8)]),
    "exp": ([(-2, 2)], [named("exp")], [np.exp], [np.linspace(-1, 3, 4)]),
    "product": ([(-1, 1), (-1, 1)], [PRODUCT], [lambda x, y: x * y], [np.linspace(-1, 1, 3)] * 2),
    "sigmoid of a product": (
        [(-1, 1), (-1, 1)], [SIGMOID_OF_PRODUCT], [lambda x, y: sigmoid(x * y)], [np.linspace(-2, 2, 3)] * 2,
    ),
}  # fmt: skip


def case(name: str) -> tuple[Head, list[Program], list[Callable[..., Any]], np.ndarray]:
    box, programs, functions, grid = CASES[name]
    return fitted(functions, box, grid), programs, functions, np.array(box, dtype=np.float64)


@pytest.mark.parametrize("name", CASES)
def test_bounds_are_sharp(name: str) -> None:
    head, programs, functions, box = case(name)
    cells = table_cells(Table(*head, programs, box)).text
    low, high, slope_low, slope_high = checked(head, programs, box, cells)
    points = grid_of(box, 2000 if len(box) == 1 else 60)
    truth = values_of(head, points) - np.stack([f(*points.T.astype(np.longdouble)) for f in functions], axis=1)
    largest = np.max(np.abs(truth), axis=0).astype(np.float64)
    bound = np.maximum(-low, high)
    assert np.all(truth >= low)
    assert np.all(truth <= high)
    assert np.all(bound <= 1.03 * largest)
    step = 1e-5
    for axis, direction in enumerate(np.eye(len(box))):
        ahead, behind = (values_of(head, points + side * step * direction) for side in (1, -1))
        slopes = ((ahead - behind) / (2 * step)).astype(np.float64)
        size = np.maximum(np.abs(slope_low[:, axis]), np.abs(slope_high[:, axis]))
        room = 1e-6 * (1.0 + size)
        assert np.all(slopes >= slope_low[:, axis] - room)
        assert np.all(slopes <= slope_high[:, axis] + room)
        assert np.all(size <= 1.08 * np.max(np.abs(slopes), axis=0) + room)


def test_the_constant_is_attained() -> None:
    """softmax over (-x, x) with the values (-1, 1) is tanh(x): here is a table that is off by a millionth of it."""
    head = np.array([[-1.0], [1.0]]), np.zeros(2), np.array([[-1.0], [1.0]]) * (1.0 + 2.0**-20)
    box = np.array([[-3.0, 3.0]])
    cells = table_cells(Table(*head, [named("tanh")], box), tightness=1.0 + 1e-6).text
    low, high, slope_low, slope_high = checked(head, [named("tanh")], box, cells)
    exact = 2.0**-20 * np.tanh(3.0)
    assert exact <= high[0] <= (1.0 + 1e-6) * exact
    assert -(1.0 + 1e-6) * exact <= low[0] <= -exact
    assert 1.0 + 2.0**-20 <= slope_high[0, 0] <= 1.05  # the search asks for no more of slopes; small cells show it
    even = "0"
    for _ in range(9):
        even = "1" + even + even
    _, _, _, slope_high = checked(head, [named("tanh")], box, even)
    assert 1.0 + 2.0**-20 <= slope_high[0, 0] <= 1.000003
    assert slope_low[0, 0] <= 1 / np.cosh(3.0) ** 2


def test_an_exact_table_needs_no_cells_below_the_rounding_of_its_values() -> None:
    head = np.array([[-1.0], [1.0]]), np.zeros(2), np.array([[-1.0], [1.0]])
    box = np.array([[-3.0, 3.0]])
    cells = table_cells(Table(*head, [named("tanh")], box)).text
    low, high, _, _ = checked(head, [named("tanh")], box, cells)
    assert max(-low[0], high[0]) <= 1e-18
    assert len(cells) < 200


def test_the_weight_of_a_gate_is_a_table() -> None:
    box = np.array([[-0.5, 0.5]])
    affine = [AFFINE]
    low, high, _, _ = checked(GATE, affine, box, table_cells(Table(*GATE, affine, box)).text)
    points = np.linspace(-0.5, 0.5, 1001)[:, None]
    truth = values_of(GATE, points)[:, 0] - 0.5 - 0.25 * points[:, 0]
    assert low[0] <= truth.min()
    assert truth.max() <= high[0] <= 1.06 * np.max(np.abs(truth))


def test_a_box_that_is_a_point() -> None:
    head, programs, _, _ = case("sin")
    low, high, _, _ = checked(head, programs, np.array([[1.0, 1.0]]), "0")
    truth = float(values_of(head, np.array([[1.0]]))[0, 0] - np.sin(np.longdouble(1)))
    assert low[0] <= truth <= high[0]
    assert high[0] - low[0] < 1e-3


@pytest.mark.parametrize("name", ["sin", "reciprocal", "product"])
def test_a_changed_number_or_cell_never_gives_a_bound_below_the_truth(name: str) -> None:
    head, programs, functions, box = case(name)
    cells = table_cells(Table(*head, programs, box)).text
    points = grid_of(box, 300 if len(box) == 1 else 25)
    target = np.stack([f(*points.T.astype(np.longdouble)) for f in functions], axis=1)
    rng = np.random.default_rng(3)
    kept = 0
    for trial in range(18):
        changed, text = [array.copy() for array in head], cells
        if trial % 3 == 2:
            place = int(rng.integers(len(cells)))
            text = cells[:place] + rng.choice(list("012")) + cells[place + 1 :]
        else:
            array = changed[int(rng.integers(3))].reshape(-1)
            place = int(rng.integers(len(array)))
            bits = array[place : place + 1].view(np.int64)
            if trial % 3 == 0:
                bits ^= np.int64(1) << np.int64(rng.integers(64))
            else:
                array[place] *= 1.0 + rng.choice([1e-12, 1e-6, 1e-2, 1.0])
        try:
            low, high, _, _ = checked(changed, programs, box, text)
        except Refused:
            continue
        kept += 1
        with np.errstate(all="ignore"):
            truth = values_of(tuple(changed), points) - target
        assert np.all(truth >= low - 1e-17)
        assert np.all(truth <= high + 1e-17)
    assert kept > 3


@pytest.mark.parametrize(
    "cells", ["", "1", "10", "000", "1000", "2", "3", "200", "x", "1" * 10**6, "1" * 10**4, "10" * 10**6, "0" * 10**6]
)
def test_hostile_cells_are_refused_at_once(cells: str) -> None:
    head, programs, _, box = case("sin")
    start = time.process_time()
    with pytest.raises(Refused):
        checked(head, programs, box, cells)
    assert time.process_time() - start < 1.0


def test_cells_in_two_variables() -> None:
    assert read_cells("0", 2) == [((0, 0), (0, 0))]
    assert read_cells("1020 0".replace(" ", ""), 2) == [((0, 1), (0, 0)), ((1, 1), (0, 1)), ((1, 1), (1, 1))]


@pytest.mark.parametrize(
    "change",
    [
        lambda s, o, v: (s * 1e9, o, v),
        lambda s, o, v: (s * 1e300, o * 1e300, v),
    ],
)
def test_heads_that_cannot_be_bounded_are_refused(change: Callable[..., Any]) -> None:
    head, programs, _, box = case("sin")
    with pytest.raises(Refused):
        checked(change(*head), programs, box, "100")


def test_a_function_that_is_singular_in_the_box_is_refused() -> None:
    head, _, _, _ = case("sin")
    with pytest.raises(Refused):
        checked(head, [named("reciprocal")], np.array([[-1.0, 1.0]]), "1" + "100" + "100")
    with pytest.raises(Refused):
        checked(head, [named("sqrt")], np.array([[0.0, 1.0]]), "100")
