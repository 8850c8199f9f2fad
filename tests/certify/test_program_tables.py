"""The bound of a table head against programs holds at every point that is tried in 50 digits, and is tight.

Heads are fitted here, plainly, on even grids; where the programs are random, so are the heads.
"""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product

import mpmath
import numpy as np
import pytest
from programs import ONE_VARIABLE, TWO_VARIABLES, exact_value, linear, random_program

from headsmith.certify.tables import check_program_table
from headsmith.core.errors import CertificateError
from headsmith.core.program import Call, Linear, Over, Program, Times, program_values

CATALOGUE = {
    **{name: (program, [x]) for name, (program, x) in ONE_VARIABLE.items()},
    **{name: (program, [x, y]) for name, (program, x, y) in TWO_VARIABLES.items()},
}


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def chebyshev(low, high, count):
    return np.clip((low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0.0, np.pi, count)), low, high)


def mesh(axes):
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def grid_head(programs, box, tokens, width=0.15, pad=0.3):
    """Gaussian kernels on an even grid of the box, and least squares."""
    axes = [np.linspace(low - pad * (high - low), high + pad * (high - low), tokens) for low, high in box]
    steps = np.array([axis[1] - axis[0] for axis in axes])
    nodes = mesh(axes)
    slopes, offset = 2 * width * nodes / steps**2, -width * np.sum((nodes / steps) ** 2, axis=1)
    points = mesh([chebyshev(*ends, 1000 if len(box) == 1 else 40) for ends in box])
    wanted = np.stack([program_values(program, *points.T) for program in programs], axis=1)
    return slopes, offset, np.linalg.lstsq(softmax(points @ slopes.T + offset), wanted, rcond=1e-14)[0]


def wide_errors(head, program, column, points):
    """The errors in 80-bit floats: enough to rank points."""
    slopes, offset, values = (np.asarray(array, dtype=np.longdouble) for array in head)
    points = np.asarray(points, dtype=np.longdouble)
    return softmax(points @ slopes.T + offset) @ values[:, column] - program_values(program, *points.T)


def exact_head(head, column, place):
    """The value and the partial derivatives at a point, in 50 digits."""
    slopes = [[mpmath.mpf(a) for a in row] for row in head[0].tolist()]
    scores = [mpmath.mpf(c) + mpmath.fdot(row, place) for row, c in zip(slopes, head[1].tolist(), strict=True)]
    top = max(scores)
    weights = [mpmath.exp(score - top) for score in scores]
    values, total = [mpmath.mpf(v) for v in head[2][:, column].tolist()], mpmath.fsum(weights)
    mean = mpmath.fdot(weights, values) / total

    def slope(axis):
        pulled = [w * row[axis] for w, row in zip(weights, slopes, strict=True)]
        return mpmath.fdot(pulled, values) / total - mpmath.fsum(pulled) / total * mean

    return mean, [slope(axis) for axis in range(len(place))]


def assert_holds(checked, head, program, column, points):
    """No point violates the bounds. The largest error that was met."""
    found = mpmath.mpf(0)
    with mpmath.workdps(50):
        for point in np.asarray(points, dtype=np.float64).tolist():
            place = [mpmath.mpf(s) for s in point]
            value, slopes = exact_head(head, column, place)
            error = value - exact_value(program, place)
            assert checked.low[column] <= error <= checked.high[column], point
            for axis, slope in enumerate(slopes):
                assert checked.slope_low[column, axis] <= slope <= checked.slope_high[column, axis], point
            found = max(found, abs(error))
    return found


def worst_points(head, program, column, box):
    """The largest errors of a dense grid with its ends, each moved to a local maximum."""
    count = 4001 if len(box) == 1 else 121
    points = mesh([chebyshev(*ends, count) for ends in box])
    best = points[np.argsort(-np.abs(wide_errors(head, program, column, points)))[:3]]
    size = np.array([(high - low) / count for low, high in box])
    low, high = (np.array([ends[side] for ends in box]) for side in (0, 1))
    moves = mesh([np.linspace(-1.0, 1.0, 5)] * len(box))
    for _ in range(24):
        for number, point in enumerate(best):
            around = np.clip(point + moves * size, low, high)
            best[number] = around[np.argmax(np.abs(wide_errors(head, program, column, around)))]
        size = size / 1.6
    return best


@pytest.mark.parametrize("case", sorted(CATALOGUE))
def test_bounds_hold_and_are_tight(case, rng) -> None:
    program, box = CATALOGUE[case]
    head = grid_head([program], box, 14 if len(box) == 1 else 5)
    checked = check_program_table(*head, [program], box)
    scattered = np.stack([rng.uniform(*ends, 100) for ends in box], axis=1)
    points = np.concatenate([worst_points(head, program, 0, box), list(product(*box)), scattered])
    found = assert_holds(checked, head, program, 0, points)
    assert checked.error[0] <= 1.06 * found


@pytest.mark.parametrize("variables", [1, 2])
def test_bounds_hold_for_random_programs_and_heads(variables) -> None:
    """Dozens of programs, each at many points with the corners: thousands of points in all."""
    decided = 0
    for seed in range(48):
        random = np.random.default_rng(seed)
        program = random_program(seed, variables, steps=7 - 2 * variables)
        low = random.uniform(-1.5, 1.0, variables)
        box = list(zip(low, low + random.uniform(0.25, 1.5, variables), strict=True))
        head = random.normal(size=(4, variables)) * 2, random.normal(size=4), random.normal(size=(4, 1))
        try:
            checked = check_program_table(*head, [program], box)
        except CertificateError:
            continue
        decided += 1
        scattered = np.stack([random.uniform(*ends, 60) for ends in box], axis=1)
        assert_holds(checked, head, program, 0, np.concatenate([list(product(*box)), scattered]))
    assert decided >= 30


def test_several_programs_of_two_variables_share_a_head() -> None:
    programs = [CATALOGUE[name][0] for name in ("exp(-x^2) cos(3y)", "sqrt(1+x^2+y^2)", "y tanh(x+y)")]
    box = [(-1.0, 1.0), (-1.0, 1.0)]
    head = grid_head(programs, box, 5)
    together = check_program_table(*head, programs, box)
    for column, program in enumerate(programs):
        alone = check_program_table(head[0], head[1], head[2][:, [column]], [program], box)
        assert together.error[column] == pytest.approx(alone.error[0], rel=0.06)
        found = assert_holds(together, head, program, column, worst_points(head, program, column, box))
        assert together.error[column] <= 1.06 * found


def test_named_functions_and_their_programs_agree() -> None:
    same = Linear(((F(1), 0),))
    for name, box in [("sin", (-3.0, 3.0)), ("reciprocal", (0.1, 1.0)), ("sigmoid", (-4.0, 4.0)), ("log", (0.1, 2.0))]:
        named, composed = Program(1, (Call(name, 0),)), Program(1, (same, Call(name, 1)))
        head = grid_head([named], [box], 12)
        one, other = (check_program_table(*head, [program], [box]) for program in (named, composed))
        np.testing.assert_allclose(one.error, other.error, rtol=0.06)


def test_what_softmax_is_exactly_has_no_error() -> None:
    steps = (linear((-1, 0)), Call("exp", 1), linear((1, 2), constant=1), Linear((), F(1)), Over(4, 3))
    head = np.array([[1.0], [0.0]]), np.zeros(2), np.array([[1.0], [0.0]])
    assert check_program_table(*head, [Program(1, steps)], [(-20.0, 20.0)]).error[0] <= 1e-25
    moved = np.array([[1.0], [np.nextafter(0.0, 1.0) + 1e-20]])
    assert check_program_table(head[0], head[1], moved, [Program(1, steps)], [(-20.0, 20.0)]).error[0] >= 1e-21


def test_rationals_are_not_rounded() -> None:
    """x / 3 is not x times the double nearest to a third, and a head that is constant shows the difference."""
    third = Program(1, (Linear((), F(1, 3)),))
    head = np.zeros((1, 1)), np.zeros(1), np.array([[1.0 / 3.0]])
    checked = check_program_table(*head, [third], [(0.0, 1.0)])
    gap = float(abs(F(1.0 / 3.0) - F(1, 3)))
    assert gap <= checked.error[0] <= 1.05 * gap


# Refusals -----------------------------------------------------------------------------------------------------------

POLE = Program(1, (linear((1, 0), constant=F(-1, 3)), Linear((), F(1)), Over(2, 1)))
CURVE = Program(2, (linear((1, 0), (-1, 1), constant=F(1, 7)), Linear((), F(1)), Over(3, 2)))
CIRCLE = Program(2, (Times(0, 0), Times(1, 1), linear((1, 2), (1, 3), constant=F(-1, 2)), Linear((), F(1)), Over(5, 4)))
HOPELESS = {
    "a pole": (POLE, 1, "no Taylor series"),
    "a logarithm that ends": (Program(1, (linear((1, 0), constant=F(1, 7)), Call("log", 1))), 1, "Taylor series"),
    "a root that ends": (Program(1, (Times(0, 0), linear((-1, 1), constant=1), Call("sqrt", 2))), 1, "Taylor series"),
    "a curve of poles": (CURVE, 2, "no Taylor series"),
    "a circle of poles": (CIRCLE, 2, "no Taylor series"),
    "a corner": (Program(2, (Times(0, 1), linear((1, 2), constant=1), Call("log", 3))), 2, "no Taylor series"),
    "x / y": (Program(2, (Over(0, 1),)), 2, "contains 0"),
    "y / x": (Program(2, (Over(1, 0),)), 2, "Taylor series"),
}


@pytest.mark.parametrize("case", sorted(HOPELESS))
def test_programs_that_are_not_analytic_are_refused(case) -> None:
    program, variables, reason = HOPELESS[case]
    head = np.linspace(-1.0, 1.0, 2 * variables).reshape(2, variables), np.zeros(2), np.array([[1.0], [2.0]])
    with pytest.raises(CertificateError, match=reason):
        check_program_table(*head, [program], [(-1.0, 1.0)] * variables)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (Program(1, ()), "no step"),
        (Program(1, (Call("no such function", 0),)), "no function named"),
        (Program(1, (Call("power", 0),)), "exponent"),
        (Program(1, (Call("sin", 0, 2.0),)), "parameter"),
        (Program(1, (Times(0, 1),)), "not all before it"),
        (Program(1, (Times(0, -1),)), "not all before it"),
        (Program(2, (Times(0, 1),)), "a box of 1"),
    ],
)
def test_what_is_no_program_is_refused(program, reason) -> None:
    with pytest.raises(CertificateError, match=reason):
        check_program_table(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1)), [program], [(0.0, 1.0)])
