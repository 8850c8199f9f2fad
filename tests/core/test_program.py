"""Ranges and slopes of programs enclose what 50 digits find, and are not much wider."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product
from math import inf

import mpmath
import numpy as np
import pytest
from helpers.effort import tried
from helpers.models.programs import ONE_VARIABLE, TWO_VARIABLES, exact_value, linear, random_program

from headsmith.core.program import (
    Call,
    Linear,
    Over,
    Program,
    Times,
    defined_on,
    fault_of,
    program_range,
    program_values,
)
from headsmith.core.program_slopes import program_slopes

CATALOGUE = {
    **{name: (program, [x]) for name, (program, x) in ONE_VARIABLE.items()},
    **{name: (program, [x, y]) for name, (program, x, y) in TWO_VARIABLES.items()},
}


@pytest.mark.again
def test_ranges_hold_for_random_programs() -> None:
    known = 0
    for seed in range(tried(150, 3)):
        random = np.random.default_rng(seed)
        variables = 1 + seed % 2
        program = random_program(seed, variables)
        low = random.uniform(-2.0, 2.0, (variables, 8))
        high = low + 2.0 ** -random.integers(0, 12, (1, 8))
        lower, upper = program_range(program, low, high)
        assert not np.isnan([lower, upper]).any()
        assert np.all(lower <= upper)
        with mpmath.workdps(50):
            for number in np.flatnonzero(np.isfinite(lower)).tolist():
                known += 1
                for share in (0.0, 0.3, 1.0):
                    place = low[:, number] + share * (high[:, number] - low[:, number])
                    value = exact_value(program, np.clip(place, low[:, number], high[:, number]))
                    assert lower[number] <= value <= upper[number], (program, place)
    assert known > tried(500, 3)


def test_ranges_of_small_boxes_are_narrow() -> None:
    for program, box in CATALOGUE.values():
        centre = np.array([[0.75 * low + 0.25 * high] for low, high in box])
        low, high = program_range(program, centre - 1e-9, centre + 1e-9)
        assert high[0] - low[0] < 1e-6


def test_where_a_program_is_not_defined_its_range_is_infinite() -> None:
    quotient, log = Program(2, (Over(0, 1),)), Program(1, (Call("log", 0), Linear(((F(0), 1),))))
    low, high = program_range(quotient, [[1.0, 1.0, 1.0], [-1.0, 0.0, 0.5]], [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert low.tolist() == [-inf, -inf, 1.0]
    assert high.tolist() == [inf, inf, 4.0]
    assert program_range(log, [[-1.0, 1.0]], [[1.0, 2.0]])[0].tolist() == [-inf, 0.0]
    overflow = Program(1, (Call("exp", 0), Call("exp", 1), Call("sin", 2)))
    assert program_range(overflow, [[9.0]], [[10.0]])[1].tolist() == [inf]


def test_defined_on_looks_closely() -> None:
    near, at = (Program(1, (linear((1, 0), constant=gap), Call("log", 1))) for gap in (F(1, 10**6), F(0)))
    assert defined_on(near, [(0.0, 1.0)])
    assert not defined_on(at, [(0.0, 1.0)])
    diagonal = Program(2, (linear((1, 0), (-1, 1), constant=F(1, 7)), Linear((), F(1)), Over(3, 2)))
    assert not defined_on(diagonal, [(-1.0, 1.0), (-1.0, 1.0)])
    assert defined_on(diagonal, [(0.0, 1.0), (-1.0, 0.0)])


@pytest.mark.parametrize("case", sorted(CATALOGUE))
def test_slopes_hold_and_are_tight(case, rng) -> None:
    program, box = CATALOGUE[case]
    found = program_slopes(program, box)
    inside = np.stack([rng.uniform(*ends, 400) for ends in box])
    points = np.concatenate([np.array(list(product(*box))).T, inside], axis=1)
    for axis, (low, high) in enumerate(found):
        with mpmath.workdps(50):
            step = mpmath.mpf("1e-20")
            seen = []
            for point in points.T.tolist():
                place = [mpmath.mpf(s) for s in point]
                ahead, behind = ([s + sign * step * (i == axis) for i, s in enumerate(place)] for sign in (1, -1))
                seen.append((exact_value(program, ahead) - exact_value(program, behind)) / (2 * step))
            tiny = mpmath.mpf("1e-15")
            assert low - tiny <= min(seen)
            assert max(seen) <= high + tiny
        spread = float(max(seen) - min(seen)) + float(max(map(abs, seen)))
        assert high - low <= float(max(seen) - min(seen)) + 0.3 * spread


@pytest.mark.again
def test_slopes_of_random_programs_hold() -> None:
    known = 0
    for seed in range(tried(40, 3)):
        random = np.random.default_rng(seed)
        variables = 1 + seed % 2
        program = random_program(seed, variables, steps=5)
        low = random.uniform(-1.0, 1.0, variables)
        box = list(zip(low, low + random.uniform(0.1, 1.0, variables), strict=True))
        for axis, (least, most) in enumerate(program_slopes(program, box)):
            assert least <= most
            if most == inf:
                continue
            known += 1
            with mpmath.workdps(50):
                for _ in range(10):
                    place = [mpmath.mpf(random.uniform(*ends)) for ends in box]
                    values = []
                    for sign in (1, -1):
                        shift = sign * mpmath.mpf("1e-18")
                        values.append(exact_value(program, [s + shift * (i == axis) for i, s in enumerate(place)]))
                    slope = (values[0] - values[1]) / mpmath.mpf("2e-18")
                    assert least - 1e-12 * abs(least) - 1e-12 <= slope <= most + 1e-12 * abs(most) + 1e-12
    assert known > tried(30, 3)


def test_slopes_of_what_is_not_smooth_are_infinite() -> None:
    pole = Program(1, (linear((1, 0), constant=F(-1, 3)), Linear((), F(1)), Over(2, 1)))
    assert program_slopes(pole, [(-1.0, 1.0)]) == [(-inf, inf)]
    assert program_slopes(Program(2, (Call("sin", 0),)), [(0.0, 0.0), (1.0, 2.0)])[1] == pytest.approx(
        (0, 0), abs=1e-300
    )


def test_values_are_those_of_the_formula() -> None:
    x, y = np.linspace(-1.0, 1.0, 11), np.linspace(0.5, 1.0, 11)
    program = Program(2, (Times(0, 1), linear((2, 2), constant=F(1, 3)), Over(3, 1)))
    np.testing.assert_allclose(program_values(program, x, y), (2 * x * y + 1 / 3) / y, rtol=1e-15)
    assert program_values(program, x.astype(np.longdouble), y).dtype == np.longdouble


def test_faults_are_named() -> None:
    assert fault_of(Program(1, (Call("sin", 0),))) is None
    assert "no step" in str(fault_of(Program(1, ())))
    assert "not all before it" in str(fault_of(Program(1, (Over(0, 1),))))
