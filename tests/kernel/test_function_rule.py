"""Enclosures of named functions and programs, against mpmath; and what is refused."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from helpers.oracles.mathematics import EXACT

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.functions import FUNCTIONS, Program, enclose, named, program_series, read_program, working

ORACLE = {
    **EXACT,
    "expm1": mpmath.expm1,
    "log1p": mpmath.log1p,
    "tan": mpmath.tan,
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "hypotenuse": lambda x: mpmath.sqrt(1 + x * x),
    "j0": lambda x: mpmath.besselj(0, x),
    "j1": lambda x: mpmath.besselj(1, x),
}
POWERS = (2.0, 3.0, -1.0, -2.0, 0.5, 2.5, -1.5)
CASES = [(name, None) for name in sorted(FUNCTIONS)] + [("power", exponent) for exponent in POWERS]
PRODUCT = {"variables": 2, "steps": [["times", 0, 1], ["linear", [["-3/7", 2]], "1/2"], ["call", "sigmoid", 3]]}


def exact(name: str, parameter: float | None, x: Any, order: int) -> Any:
    function = ORACLE[name] if parameter is None else lambda t: mpmath.power(t, parameter)
    with mpmath.workdps(40):
        return mpmath.diff(function, mpmath.mpf(x), order) if order else function(mpmath.mpf(x))


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_enclosures_hold_everywhere_and_are_tight(name: str, parameter: float | None) -> None:
    rng = np.random.default_rng(1)
    low = rng.uniform(0.02, 0.8, 6)
    high = low + np.array([0.0, 1e-9, 1e-4, 1e-2, 0.1, 0.15])
    for order in (0, 1, 2):
        found = enclose(named(name, parameter), Interval(low, high), order)
        assert np.all(np.isfinite(found.low) & np.isfinite(found.high))
        for i, x in enumerate(low):
            inside = [exact(name, parameter, s, order) for s in np.linspace(x, high[i], 5)]
            assert all(found.low[i] <= value <= found.high[i] for value in inside)
            spread = float(max(inside) - min(inside))
            rounding = 4.0 * float(np.spacing(np.max(np.abs([float(value) for value in inside]))))
            assert found.high[i] - found.low[i] <= 1.05 * spread + rounding


def test_known_extremes_are_met() -> None:
    square, root, sine = (
        enclose(named("square"), Interval(-1.0, 2.0)),
        enclose(named("sqrt"), Interval(0.0, 4.0)),
        enclose(named("sin"), Interval(-1, 9)),
    )
    assert (float(square.low), float(square.high)) == (0.0, 4.0)
    assert (float(root.low), float(root.high)) == (0.0, 2.0)
    assert (float(sine.low), float(sine.high)) == (-1.0, 1.0)
    bend = enclose(named("gelu"), Interval(-3.0, 3.0))
    # An extreme inside the interval is met up to a small share of the range.
    assert -0.171 < float(bend.low) <= -0.16997120747990369
    assert float(bend.high) >= 2.9959
    for name, most in (("softplus", 1.0), ("sigmoid", 0.25), ("tanh", 1.0)):
        slope = enclose(named(name), Interval(-900.0, 900.0), 1)
        assert float(slope.low) >= 0.0
        assert float(slope.high) == most


def test_softplus_is_finite_on_every_finite_interval() -> None:
    """log(1 + e^x) = x + log(1 + e^-x): of large x neither side of it overflows, and it is hardly more than x."""
    for low, high in ((-1e300, 1e300), (800.0, 1e300), (1e300, 1e300), (-1e300, -1e299)):
        found = enclose(named("softplus"), Interval(low, high))
        with mpmath.workdps(40):
            ends = [max(mpmath.mpf(x), 0) + mpmath.log1p(mpmath.exp(-abs(mpmath.mpf(x)))) for x in (low, high)]
        assert mpmath.mpf(float(found.low)) <= ends[0]
        assert ends[1] <= mpmath.mpf(float(found.high)) <= max(1.0, 1.000001 * high)


@pytest.mark.parametrize(
    ("name", "parameter", "low", "high"),
    [
        ("log", None, 0.0, 1.0),
        ("log1p", None, -2.0, 1.0),
        ("sqrt", None, -1.0, 1.0),
        ("reciprocal", None, -1.0, 1.0),
        ("tan", None, 1.0, 2.0),
        ("arcsin", None, 0.0, 1.5),
        ("power", 0.5, -1.0, 1.0),
        ("power", -1.5, 0.0, 1.0),
        ("power", -2.0, -1.0, 1.0),
        ("exp", None, 0.0, 1e6),
    ],
)
def test_outside_of_a_domain_bounds_are_infinite_and_never_nan(
    name: str, parameter: float | None, low: float, high: float
) -> None:
    for order in (0, 1, 2):
        found = enclose(named(name, parameter), Interval(low, high), order)
        assert not np.isnan([found.low, found.high]).any()
        assert float(found.high) == inf
    assert (ctx.prec, ctx.cap) == (53, 10)


@pytest.mark.parametrize("ends", [(1.0, 0.0), (float("nan"), 1.0), (0.0, inf)])
def test_of_what_is_no_bounded_interval_nothing_is_known(ends: tuple[float, float]) -> None:
    """Whatever is known of all values of the function: its argument may be anything. Its neighbours are not touched."""
    for name in ("exp", "sin"):
        found = enclose(named(name), Interval(*([end, 0.0] for end in ends)))
        assert (found.low[0], found.high[0]) == (-inf, inf)
        assert np.isfinite([found.low[1], found.high[1]]).all()


def test_a_program_is_read_and_expanded() -> None:
    program = read_program(PRODUCT)
    assert program.steps[1] == ("linear", ((Fraction(-3, 7), 2),), Fraction(1, 2))
    with mpmath.workdps(120):
        along = mpmath.taylor(lambda t: ORACLE["sigmoid"](mpmath.mpf(1) / 2 - 3 * (1 + t) * (2 - t) / 7), 0, 6)
        written = [arb(mpmath.nstr(value, 40)) for value in along]
    with working(128, 7):
        found = program_series(program, [(arb(1), arb(1)), (arb(2), arb(-1))], 7)
        assert all(abs(float(ball - value)) < 1e-14 for ball, value in zip(found, written, strict=True))
        wide = program_series(program, [(arb(1, 0.1), arb(1)), (arb(2, 0.1), arb(-1))], 7)
        assert all(outer.contains(inner) for outer, inner in zip(wide, found, strict=True))


def test_what_is_undefined_inside_a_program_is_not_multiplied_away() -> None:
    program = read_program({"variables": 1, "steps": [["call", "log", 0], ["linear", [], 0], ["times", 1, 2]]})
    found = enclose(program, Interval(-1.0, 1.0))
    assert not isfinite(float(found.high))


def test_a_function_whose_steps_may_be_zero_keeps_all_its_coefficients() -> None:
    with working(128, 4):
        found = program_series(Program(1, (("call", "j0", 0, None),)), [(arb(1), arb(0, 1))], 4)
    assert found[1].contains(-0.44005)
    assert found[1].contains(0.44005)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"variables": 3, "steps": [["times", 0, 1]]},
        {"variables": 1, "steps": []},
        {"variables": 1, "steps": [["times", 0, 1]]},
        {"variables": 1, "steps": [["times", 0, -1]]},
        {"variables": 1, "steps": [["call", "eval", 0]]},
        {"variables": 1, "steps": [["call", "power", 0]]},
        {"variables": 1, "steps": [["call", "exp", 0, 2.0]]},
        {"variables": 1, "steps": [["call", "power", 0, 1e9]]},
        {"variables": 1, "steps": [["linear", [["1/0", 0]], 0]]},
        {"variables": 1, "steps": [["linear", [["1e999999", 0]], 0]]},
        {"variables": 1, "steps": [["linear", [["9" * 5000, 0]], 0]]},
        {"variables": 1, "steps": [["linear", [[1, 0, 0]], 0]]},
        {"variables": 1, "steps": [["linear", [[True, 0]], 0]]},
        {"variables": 1, "steps": [["times", 0, 0]] * 1000},
        {"variables": 1, "steps": [[["times"]]]},
    ],
)
def test_bad_programs_are_refused(data: Any) -> None:
    with pytest.raises(Refused):
        read_program(data)


@pytest.mark.parametrize(
    ("name", "at", "value"), [("arcsin", 1.0, np.pi / 2), ("arccos", -1.0, np.pi), ("sqrt", 0.0, 0.0)]
)
def test_a_function_is_known_where_its_slope_is_infinite(name: str, at: float, value: float) -> None:
    found = enclose(named(name), Interval([at], [at]))
    assert found.low[0] <= value <= found.high[0]
    assert found.high[0] - found.low[0] <= 1e-15
