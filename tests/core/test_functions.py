"""Enclosures hold against mpmath at 50 digits, are tight, and survive edges; values and derivatives agree with them."""

import math

import mpmath
import numpy as np
import pytest
from helpers.effort import tried
from helpers.oracles import mathematics
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS, Domain, user_function

ORACLE = {
    **mathematics.EXACT,
    "power": lambda x, a: x ** int(a) if float(a).is_integer() else x ** mpmath.mpf(a),
}
CASES = [(name, None) for name in ORACLE if name != "power"] + [("power", a) for a in (3.0, 4.0, -2.0, 0.7, -1.3, 64.0)]


def exact(name, parameter, x, order=0):
    """The derivative at 50 digits."""
    function = ORACLE[name] if parameter is None else (lambda t: ORACLE["power"](t, parameter))
    with mpmath.workdps(50):
        place = mpmath.mpf(float(x))
        if order == 0:
            return function(place)
        step = mpmath.mpf(10) ** -14 * max(abs(place), mpmath.mpf(1) / 100)
        with mpmath.workdps(120):
            return mpmath.diff(function, place, order, h=step)


LIMITS = {"arcsin": (-0.99, 0.99), "arccos": (-0.99, 0.99), "tan": (-1.55, 1.55), "sinh": (-9.0, 9.0)}


def sample(name, parameter, random, count, low=-6.0, high=6.0):
    points = random.uniform(low, high, count)
    if name in LIMITS:
        return np.interp(points, (low, high), LIMITS[name])
    domain = FUNCTIONS[name].domain(parameter)
    return points if domain.low == -math.inf and not domain.without_zero else np.abs(points) + 0.05


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "parameter"), CASES)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_points_and_cells_hold_the_exact_values_and_are_tight(name, parameter, order):
    random = np.random.default_rng(0)
    low = sample(name, parameter, random, 40)
    high = low + np.where(random.random(40) < 0.5, 0.0, 10 ** random.uniform(-6, 0.7, 40))
    high = np.minimum(high, LIMITS.get(name, (0.0, math.inf))[1])
    lower, upper = FUNCTIONS[name].enclose(low, high, order, parameter)
    for i in range(40):
        inside = [low[i], high[i], *(low[i] + (high[i] - low[i]) * random.random(3))]
        values = [exact(name, parameter, min(max(x, low[i]), high[i]), order) for x in inside]
        slack = 0 if order == 0 else mpmath.mpf(10) ** -24 * (1 + abs(values[0]))
        assert all(lower[i] - slack <= value <= upper[i] + slack for value in values)
        if low[i] == high[i]:
            assert upper[i] - lower[i] <= 4 * math.ulp(max(abs(lower[i]), abs(upper[i])))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "parameter"), CASES)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_intervals_are_the_range_itself(name, parameter, order):
    """Wide intervals, turning points inside: the enclosure is the range up to what sampling misses."""
    random = np.random.default_rng(1)
    for _ in range(20):
        low, high = np.sort(sample(name, parameter, random, 2, -9.0, 9.0))
        lower, upper = FUNCTIONS[name].enclose(low, high, order, parameter)
        seen = FUNCTIONS[name].derivative(np.linspace(low, high, 20001), order, parameter)
        size = seen.max() - seen.min() + 1e-9 * np.abs(seen).max()
        assert lower <= seen.min() + 1e-13 * np.abs(seen).max()
        assert upper >= seen.max() - 1e-13 * np.abs(seen).max()
        assert lower >= seen.min() - 1e-5 * size - 1e-300
        assert upper <= seen.max() + 1e-5 * size + 1e-300


def test_edges_of_the_domains():
    assert FUNCTIONS["sqrt"].enclose(0.0, 4.0) == (0.0, 2.0)
    assert FUNCTIONS["sqrt"].enclose(0.0, 0.0) == (0.0, 0.0)
    lower, upper = FUNCTIONS["sqrt"].enclose(0.0, 4.0, 2)
    assert lower == -math.inf
    assert upper == pytest.approx(-1 / 32)
    assert FUNCTIONS["sqrt"].enclose(0.0, 0.0, 2) == (-math.inf, math.inf)
    assert FUNCTIONS["log"].enclose(0.0, 1.0) == (-math.inf, 0.0)
    assert FUNCTIONS["log"].enclose(-1.0, 1.0) == (-math.inf, math.inf)
    assert FUNCTIONS["reciprocal"].enclose(-1.0, 1.0) == (-math.inf, math.inf)
    assert FUNCTIONS["reciprocal"].enclose(-0.5, 0.0) == (-math.inf, -2.0)
    assert FUNCTIONS["reciprocal"].enclose(0.0, 0.5, 1) == (-math.inf, -4.0)
    assert FUNCTIONS["power"].enclose(-0.5, 0.0, 0, -2.0) == (4.0, math.inf)
    assert FUNCTIONS["power"].enclose(0.0, 1.0, 1, 1.5) == (0.0, 1.5)
    assert FUNCTIONS["power"].enclose(-2.0, 1.0, 0, 4.0) == (0.0, 16.0)
    assert FUNCTIONS["arcsin"].enclose(-1.0, 1.0, 1) == (1.0, math.inf)
    assert FUNCTIONS["arccos"].enclose(0.0, 1.0, 2) == (-math.inf, 0.0)
    assert FUNCTIONS["arcsin"].enclose(0.0, 1.5) == FUNCTIONS["tan"].enclose(1.0, 2.0) == (-math.inf, math.inf)
    assert FUNCTIONS["tan"].enclose(math.pi - 0.5, math.pi + 0.5, 1)[0] == 1.0
    assert FUNCTIONS["square"].enclose(-2.0, 1.0) == (0.0, 4.0)
    assert FUNCTIONS["square"].enclose(-2.0, 1.0, 3) == (0.0, 0.0)


def test_huge_tiny_and_undefined_arguments_stay_sound():
    largest = np.finfo(np.float64).max
    assert FUNCTIONS["exp"].enclose(1000.0, 2000.0) == (largest, math.inf)
    assert FUNCTIONS["exp"].enclose(-2000.0, -1000.0)[0] == 0.0
    assert 0.0 < FUNCTIONS["exp"].enclose(-2000.0, -1000.0)[1] < 1e-300
    assert FUNCTIONS["sigmoid"].enclose(-1e300, 1e300) == (0.0, 1.0)
    assert FUNCTIONS["sin"].enclose(0.0, 1e300) == (-1.0, 1.0)
    for function in [each for each in FUNCTIONS.values() if each.program is None]:
        parameter = 2.5 if function.name == "power" else None
        for order in range(4):
            for low, high in ((-1e300, 1e300), (5e-324, 1e-320), (math.nan, 1.0), (2.0, 1.0), (-math.inf, math.inf)):
                lower, upper = function.enclose(low, high, order, parameter)
                assert lower <= upper


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("name", ["j0", "j1"])
def test_far_intervals_do_not_widen_near_ones(name, order):
    """Beyond 256 a Bessel function is known to lie in [-1, 1]; an interval that is nearer is known as well as alone."""
    function = FUNCTIONS[name]
    low, high = np.array([1.0, -5.0, 200.0, -math.inf, 257.0]), np.array([2.0, 7.5, 300.0, -3.0, 258.0])
    lower, upper = function.enclose(low, high, order)
    alone = [function.enclose(low[:1], high[:1], order), function.enclose(low[1:2], high[1:2], order)]
    assert [(lower[i], upper[i]) for i in (0, 1)] == [(float(below[0]), float(above[0])) for below, above in alone]
    assert upper[0] - lower[0] < 1.0
    assert lower[2:].tolist() == [-1.0] * 3
    assert upper[2:].tolist() == [1.0] * 3


def test_sine_near_its_zeros_and_peaks():
    zero = math.pi * 1e6
    lower, upper = FUNCTIONS["sin"].enclose(zero, zero)
    with mpmath.workdps(50):
        assert lower <= mpmath.sin(mpmath.mpf(zero)) <= upper
    assert upper - lower <= 4 * math.ulp(abs(lower))
    peak = math.pi / 2
    assert FUNCTIONS["sin"].enclose(peak - 1e-3, peak + 1e-3)[1] == 1.0
    assert FUNCTIONS["sin"].enclose(peak - 1e-3, peak - 1e-4)[1] < 1.0


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_values_and_derivatives_agree_with_the_enclosures(name, parameter):
    function = FUNCTIONS[name]
    points = sample(name, parameter, np.random.default_rng(2), 200, -5.0, 5.0)
    for order in range(4):
        lower, _ = function.enclose(points, points, order, parameter)
        found = function.derivative(points, order, parameter)
        assert np.abs(found - lower).max() <= 1e-12 * max(1.0, np.abs(lower).max())
    values = function.value(points.astype(np.longdouble), parameter)
    assert values.dtype == np.longdouble
    lower, _ = function.enclose(points, points, 0, parameter)
    assert (np.abs(values - lower) <= 4e-15 * np.maximum(np.abs(lower), 1e-3)).all()
    assert function.value(points, parameter).dtype == np.float64
    assert function.value(np.zeros((2, 3)) + 1.5, parameter).shape == (2, 3)


@settings(max_examples=tried(60, 3), deadline=None)
@given(st.floats(-40.0, 40.0), st.floats(0.0, 3.0), st.floats(0.0, 1.0))
def test_enclosures_hold_on_random_intervals(low, width, part):
    for name in (
        "sin",
        "cos",
        "arctan",
        "cosh",
        "j0",
        "j1",
        "tanh",
        "sigmoid",
        "softplus",
        "gelu",
        "erf",
        "gaussian",
        "exp",
    ):
        high = low + width
        lower, upper = FUNCTIONS[name].enclose(low, high)
        assert lower <= exact(name, None, min(low + part * width, high)) <= upper


def test_domains():
    assert FUNCTIONS["log"].domain() == Domain(low=0.0, needs="positive numbers")
    assert FUNCTIONS["sqrt"].domain().covers(0.0, 1.0)
    assert not FUNCTIONS["log"].domain().covers(0.0, 1.0)
    assert not FUNCTIONS["reciprocal"].domain().covers(-1.0, 1.0)
    assert FUNCTIONS["reciprocal"].domain().covers(-1.0, -0.5)
    assert FUNCTIONS["power"].domain(3.0).covers(-1.0, 1.0)
    assert not FUNCTIONS["power"].domain(0.5).covers(-1.0, 1.0)
    assert not FUNCTIONS["power"].domain(-3.0).covers(-1.0, 1.0)
    assert FUNCTIONS["arcsin"].domain().covers(-1.0, 1.0)
    assert not FUNCTIONS["arcsin"].domain().contains_neighbourhood(-0.5, 1.0)
    assert FUNCTIONS["tan"].domain().covers(math.pi / 2 + 1e-9, 3 * math.pi / 2 - 1e-9)
    assert not FUNCTIONS["tan"].domain().covers(1.0, math.pi / 2)


def test_a_function_that_comes_as_a_program():
    bump = user_function("test_bump", lambda x: (-x * x).exp() * x.sin())
    try:
        with pytest.raises(TargetError, match="already"):
            user_function("test_bump", lambda x: x)
        for low, high in ((0.3, 0.3), (0.0, 0.1), (-2.0, 2.0)):
            for order in range(4):
                lower, upper = bump.enclose(low, high, order)
                seen = bump.derivative(np.linspace(low, high, 101), order)
                assert lower <= seen.min()
                assert upper >= seen.max()
                assert upper - lower <= 1.3 * (seen.max() - seen.min()) + 1e-12
        assert bump.value(np.array([0.5])) == pytest.approx(math.exp(-0.25) * math.sin(0.5), rel=1e-15)
    finally:
        del FUNCTIONS["test_bump"]
