"""The bound of a table head holds at every point that a high-precision search can find, and is tight there.

The oracle is mpmath with 50 digits, on the head's doubles taken exactly. Heads are fitted here, plainly: a Gaussian
kernel on a uniform grid or a Gamma kernel on a geometric one, and least squares.
"""

from __future__ import annotations

import mathematics
import mpmath
import numpy as np
import pytest
from flint import ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.certify.table_cells import ORDERS, bound_cells
from headsmith.certify.tables import check_program_table
from headsmith.core.balls import Ball
from headsmith.core.errors import CertificateError
from headsmith.core.expansion import Scores, expand
from headsmith.core.functions import FUNCTIONS, user_function
from headsmith.core.polynomials import divided, frame
from headsmith.core.program import Call, Over, Program, Times
from headsmith.core.series import Named, series_arithmetic

PI = float(np.pi)
EXACT = {
    **mathematics.EXACT,
    "table tests: airy": mpmath.airyai,
    "table tests: polynomial": lambda x: ((x * x - 0.5) * x + 0.25) * x**9 - 3,
    "table tests: two": lambda x: mpmath.mpf(2),
}

user_function("table tests: airy", lambda x: x.airy_ai())
user_function("table tests: polynomial", lambda x: ((x * x - 0.5) * x + 0.25) * x**9 - 3)
user_function("table tests: two", lambda x: 2)
user_function("table tests: log", lambda x: (x - 5).log())
user_function("table tests: pole", lambda x: 1 / (x - 0.3))
user_function("table tests: short", lambda x: x.sin().derivative())


# Heads --------------------------------------------------------------------------------------------------------------


def fitted(alpha, offset, functions, points):
    scores = np.outer(points, alpha) + offset
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    wanted = np.stack([FUNCTIONS[name].value(points, parameter) for name, parameter in functions], axis=1)
    return alpha, offset, np.linalg.lstsq(weights, wanted.astype(np.float64), rcond=1e-15)[0]


def chebyshev(low, high, count=1000):
    return (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def uniform(functions, low, high, tokens, width, pad):
    grid = np.linspace(low - pad * (high - low), high + pad * (high - low), tokens)
    step = grid[1] - grid[0]
    return fitted(2 * width * grid / step**2, -width * (grid / step) ** 2, functions, chebyshev(low, high))


def geometric(functions, low, high, tokens, kappa):
    grid = np.exp(np.linspace(np.log(low) - 1, np.log(high) + 1, tokens))
    return fitted(-kappa / grid, -kappa * np.log(grid), functions, chebyshev(low, high))


def tensor(tokens, width, x_range, y_range, quotient=False, pad=0.4):
    grids = [np.linspace(a - pad * (b - a), b + pad * (b - a), tokens) for a, b in (x_range, y_range)]
    steps = [grid[1] - grid[0] for grid in grids]
    left, right = (axis.ravel() for axis in np.meshgrid(*grids, indexing="ij"))
    alpha, beta = 2 * width * left / steps[0] ** 2, 2 * width * right / steps[1] ** 2
    offset = -width * (left / steps[0]) ** 2 - width * (right / steps[1]) ** 2
    x, y = (axis.ravel() for axis in np.meshgrid(chebyshev(*x_range, 40), chebyshev(*y_range, 40)))
    scores = np.outer(x, alpha) + np.outer(y, beta) + offset
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return alpha, beta, offset, np.linalg.lstsq(weights, x / y if quotient else x * y, rcond=1e-15)[0]


def plain(*names):
    return [(name, None) for name in names]


def check_table(alpha, offset, values, functions, low, high, **options):
    """A head of one variable for named functions."""
    programs = [Program(1, (Call(name, 0, parameter),)) for name, parameter in functions]
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    return check_program_table(np.reshape(alpha, (-1, 1)), offset, table, programs, [(low, high)], **options)


PAIRS = {"product": Program(2, (Times(0, 1),)), "quotient": Program(2, (Over(0, 1),))}


def check_pair(alpha, beta, offset, values, kind, x_range, y_range):
    """A head of two variables for their product or quotient."""
    slopes = np.stack([alpha, beta], axis=1)
    return check_program_table(slopes, offset, np.reshape(values, (-1, 1)), [PAIRS[kind]], [x_range, y_range])


# The oracle ---------------------------------------------------------------------------------------------------------


def exact_function(name, parameter):
    return EXACT[name] if name in EXACT else lambda x: mpmath.power(x, mpmath.mpf(parameter))


def exact_head(slopes, offset, values, place):
    """The value and the partial derivatives at a point: slopes is a list of columns."""
    numbers = [[mpmath.mpf(float(x)) for x in column] for column in slopes]
    scores = [mpmath.mpf(float(c)) for c in offset]
    for column, s in zip(numbers, place, strict=True):
        scores = [score + a * s for score, a in zip(scores, column, strict=True)]
    top = max(scores)
    weights = [mpmath.exp(score - top) for score in scores]
    total = sum(weights)

    def mean(column):
        return sum(w * v for w, v in zip(weights, column, strict=True)) / total

    exact = [mpmath.mpf(float(v)) for v in values]
    value = mean(exact)
    slope = [mean([a * v for a, v in zip(column, exact, strict=True)]) - mean(column) * value for column in numbers]
    return value, slope


def extremes(alpha, offset, values, function, low, high, count=60):
    """[min, max] of the error and of the slope over many points: ends, a Chebyshev grid, and polished extremes."""

    def error(s):
        return exact_head([alpha], offset, values, [mpmath.mpf(s)])[0] - function(mpmath.mpf(s))

    random = np.random.default_rng(count).uniform(low, high, count // 2)
    points = np.unique(np.clip(np.concatenate([[low, high], chebyshev(low, high, count), random]), low, high))
    errors = [error(s) for s in points.tolist()]
    slopes = [exact_head([alpha], offset, values, [mpmath.mpf(s)])[1][0] for s in points.tolist()]
    for sign in (1, -1):
        best = max(range(len(points)), key=lambda i: sign * errors[i])
        left, right = float(points[max(best - 1, 0)]), float(points[min(best + 1, len(points) - 1)])
        for _ in range(30):
            inner, outer = left + 0.382 * (right - left), left + 0.618 * (right - left)
            left, right = (left, outer) if sign * error(inner) > sign * error(outer) else (inner, right)
        errors.append(error((left + right) / 2))
    return min(errors), max(errors), min(slopes), max(slopes)


def assert_sound_and_tight(head, functions, low, high, tightness=1.05):
    alpha, offset, values = head
    checked = check_table(alpha, offset, values, functions, low, high)
    with mpmath.workdps(50):
        for j, (name, parameter) in enumerate(functions):
            function = exact_function(name, parameter)
            least, largest, flattest, steepest = extremes(alpha, offset, values[:, j], function, low, high)
            assert checked.low[j] <= least
            assert largest <= checked.high[j]
            assert checked.slope_low[j, 0] <= flattest
            assert steepest <= checked.slope_high[j, 0]
            # The search may stop a little short of the largest error.
            assert checked.error[j] <= 1.002 * tightness * max(abs(least), abs(largest)), name
    return checked


ONE_VARIABLE = {
    "square, 8 tokens": (uniform(plain("square"), -1, 1, 8, 0.03, 0.4), plain("square"), -1, 1),
    "square, 24 tokens": (uniform(plain("square"), -1, 1, 24, 0.1, 0.4), plain("square"), -1, 1),
    "sin": (uniform(plain("sin"), -PI, PI, 16, 0.1, 0.4), plain("sin"), -PI, PI),
    "sin and cos": (uniform(plain("sin", "cos"), -12, 12, 24, 0.2, 0.2), plain("sin", "cos"), -12, 12),
    "exp": (uniform(plain("exp"), -1, 1, 16, 0.1, 0.4), plain("exp"), -1, 1),
    "activations": (
        uniform(plain("sigmoid", "tanh", "gelu"), -5, 5, 24, 0.2, 0.3),
        plain("sigmoid", "tanh", "gelu"),
        -5,
        5,
    ),
    "bells": (
        uniform(plain("softplus", "erf", "gaussian"), -4, 4, 20, 0.2, 0.3),
        plain("softplus", "erf", "gaussian"),
        -4,
        4,
    ),
    "reciprocal, log, sqrt": (
        geometric(plain("reciprocal", "log", "sqrt"), 0.1, 1, 20, 4.0),
        plain("reciprocal", "log", "sqrt"),
        0.1,
        1,
    ),
    "reciprocal on a wide domain": (geometric(plain("reciprocal"), 0.001, 1, 32, 4.0), plain("reciprocal"), 0.001, 1),
    "powers": (
        geometric([("power", -2.5), ("power", 1.7), ("power", 3.0)], 0.1, 1, 16, 4.0),
        [("power", -2.5), ("power", 1.7), ("power", 3.0)],
        0.1,
        1,
    ),
    "programs": (
        uniform(plain("table tests: airy", "table tests: polynomial"), -1, 1, 16, 0.15, 0.3),
        plain("table tests: airy", "table tests: polynomial"),
        -1,
        1,
    ),
    "a narrow kernel": (uniform(plain("sin"), -3, 3, 16, 2.725, 0.1), plain("sin"), -3, 3),
    "nearly hardmax": (uniform(plain("sin"), -3, 3, 12, 40.0, 0.1), plain("sin"), -3, 3),
}


@pytest.mark.parametrize("case", sorted(ONE_VARIABLE))
def test_bounds_hold_and_are_tight(case) -> None:
    assert_sound_and_tight(*ONE_VARIABLE[case])


def test_the_figures_of_the_construction_are_met_with_few_cells() -> None:
    for case, error, cells in [("square, 8 tokens", 3e-9, 10), ("square, 24 tokens", 3e-12, 40), ("sin", 3e-9, 30)]:
        head, functions, low, high = ONE_VARIABLE[case]
        checked = check_table(*head, functions, low, high)
        assert checked.error[0] <= error
        assert checked.cells <= cells


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-3, 3), st.floats(-2, 2)), min_size=1, max_size=5),
    st.floats(-2, 2),
    st.floats(0, 3, allow_subnormal=False),
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
)
def test_bounds_hold_for_any_head(tokens, low, length, places) -> None:
    alpha, offset, values = (np.array(column) for column in zip(*tokens, strict=True))
    high = low + length
    checked = check_table(alpha, offset, values, plain("sin"), low, high)
    with mpmath.workdps(50):
        for share in (0.0, 1.0, *places):
            s = mpmath.mpf(min(max(low + share * length, low), high))
            value, slope = exact_head([alpha], offset, values, [s])
            assert checked.low[0] <= value - mpmath.sin(s) <= checked.high[0]
            assert checked.slope_low[0, 0] <= slope[0] <= checked.slope_high[0, 0]


@pytest.mark.parametrize("steepness", [0.5, 2.0, 4.0])
def test_one_coarse_cell_covers_what_its_polynomial_misses(steepness, rng) -> None:
    slopes, offset, values = steepness * rng.normal(size=(6, 1)), rng.normal(size=6), rng.normal(size=(6, 1))
    with series_arithmetic(128, ORDERS[1]):
        bounds = bound_cells(Scores(slopes, offset, values), [Named("sin")], [[Ball(0.3)]], [Ball(1.5)])
        series = expand(Scores(slopes, offset, values), [Named("sin")], [[Ball(0.3)]], [Ball(1.5)], ORDERS[1])
    polynomial = divided(series.difference, series.denominator[:, None], frame(1, ORDERS[1]))[0, 0]
    missed = mpmath.mpf(0)
    with mpmath.workdps(50):
        for x in np.linspace(-1, 1, 21).tolist():
            s = mpmath.mpf(0.3) + mpmath.mpf(1.5) * mpmath.mpf(x)
            value, slope = exact_head(slopes.T, offset, values[:, 0], [s])
            assert bounds.low[0, 0, 0] <= value - mpmath.sin(s) <= bounds.high[0, 0, 0]
            assert bounds.low[0, 0, 1] <= slope[0] <= bounds.high[0, 0, 1]
            missed = max(missed, abs(value - mpmath.sin(s) - mpmath.mpf(np.polyval(polynomial[::-1], x))))
    # The rest is real: it shows in the steep heads, and the bound allows for it.
    assert missed > {0.5: 0.0, 2.0: 1e-9, 4.0: 1e-3}[steepness]


@pytest.mark.parametrize("name", ["reciprocal", "log", "sqrt", "tanh", "table tests: airy"])
def test_one_coarse_cell_covers_what_the_series_of_the_function_misses(name) -> None:
    one, (centre, radius) = np.ones((1, 1)), (0.7, 0.65)
    with series_arithmetic(128, ORDERS[1]):
        bounds = bound_cells(Scores(one, one[0], one), [Named(name)], [[Ball(centre)]], [Ball(radius)])
    with mpmath.workdps(50):
        for x in (-1.0, -0.98, 0.0, 0.7, 1.0):
            error = 1 - EXACT[name](mpmath.mpf(centre) + mpmath.mpf(radius) * mpmath.mpf(x))
            assert bounds.low[0, 0, 0] <= error <= bounds.high[0, 0, 0]


# Identities, floors, mutations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "alpha", "values"), [("sigmoid", [1.0, 0.0], [1.0, 0.0]), ("tanh", [1.0, -1.0], [1.0, -1.0])]
)
def test_two_tokens_are_the_sigmoid_exactly(name, alpha, values) -> None:
    checked = check_table(alpha, [0.0, 0.0], values, plain(name), -50, 50)
    assert checked.error[0] <= 1e-25
    assert checked.cells < 1000
    nudged = check_table(alpha, [0.0, 0.0], [values[0], np.nextafter(values[1], 1.0)], plain(name), -50, 50)
    assert nudged.error[0] > 0.0


def test_a_head_of_equal_values_is_constant() -> None:
    checked = check_table([3.0, -2.0, 0.5], [0.0, 1.0, 2.0], [2.0, 2.0, 2.0], plain("table tests: two"), -1, 1)
    assert checked.error[0] <= 1e-25
    np.testing.assert_allclose([checked.slope_low, checked.slope_high], 0.0, atol=1e-7)


def test_a_floor_ends_the_search_early() -> None:
    head, functions, low, high = ONE_VARIABLE["sin"]
    tight, early = check_table(*head, functions, low, high), check_table(*head, functions, low, high, floor=1e-3)
    assert early.cells < tight.cells
    assert tight.error[0] <= early.error[0] <= 1e-3


def test_tightness_is_a_choice() -> None:
    head, functions, low, high = ONE_VARIABLE["sin"]
    tight, loose = check_table(*head, functions, low, high, tightness=1.0001), check_table(*head, functions, low, high)
    assert tight.error[0] <= loose.error[0] <= 1.05 * tight.error[0]
    assert tight.error[0] >= loose.error[0] / 1.05


def test_values_that_are_all_moved_move_the_bound() -> None:
    (alpha, offset, values), functions, low, high = ONE_VARIABLE["sin"]
    before = check_table(alpha, offset, values, functions, low, high, tightness=1.001)
    moved = 2.0**-20
    after = check_table(alpha, offset, values + moved, functions, low, high, tightness=1.001)
    # values + moved is rounded, by at most half a unit in the last place of the largest of them
    slack = 0.002 * moved + np.spacing(np.max(np.abs(values)))
    assert abs(after.low[0] - (before.low[0] + moved)) <= slack
    assert abs(after.high[0] - (before.high[0] + moved)) <= slack


@pytest.mark.parametrize("which", ["alpha", "offset", "values"])
def test_a_changed_number_is_seen(which, rng) -> None:
    head, functions, low, high = ONE_VARIABLE["square, 8 tokens"]
    before = check_table(*head, functions, low, high).error[0]
    for token in rng.permutation(8)[:4]:
        mutated = [np.array(array) for array in head]
        array = mutated[["alpha", "offset", "values"].index(which)]
        array[token] += 1e-4 * (1.0 + np.abs(array[token]))
        checked = assert_sound_and_tight(mutated, functions, low, high)
        assert checked.error[0] > 10 * before


def test_a_point_and_one_token_are_fine() -> None:
    head, functions, _, _ = ONE_VARIABLE["sin"]
    at_point = check_table(*head, functions, 0.5, 0.5)
    with mpmath.workdps(50):
        value, slope = exact_head([head[0]], head[1], head[2][:, 0], [mpmath.mpf(0.5)])
        assert at_point.low[0] <= value - mpmath.sin(0.5) <= at_point.high[0]
        assert at_point.slope_low[0, 0] <= slope[0] <= at_point.slope_high[0, 0]
    one = check_table([3.0], [1.0], [2.0], plain("sin"), -1, 1)
    assert one.low[0] <= 2 - np.sin(1.0)
    assert 2.841 < one.high[0] < 2.842 * 1.05


def test_large_scores_do_not_overflow() -> None:
    checked = check_table([1e3, -1e3, 0.0], [0.0, 0.0, 500.0], [2.0, -2.0, 1e6], plain("sin"), -50, 50)
    assert 1e6 <= checked.error[0] <= 1.05e6


def test_progress_is_told_and_results_repeat() -> None:
    head, functions, low, high = ONE_VARIABLE["sin and cos"]
    told: list[float] = []
    before = ctx.prec, ctx.cap
    first = check_table(*head, functions, low, high, progress=told.append)
    assert (ctx.prec, ctx.cap) == before
    assert told == sorted(told)
    assert told[-1] == 1.0
    second = check_table(*head, functions, low, high)
    np.testing.assert_array_equal([first.low, first.high], [second.low, second.high])
    np.testing.assert_array_equal([first.slope_low, first.slope_high], [second.slope_low, second.slope_high])


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_numbers_that_are_not_finite_are_refused(which, bad) -> None:
    head, functions, low, high = ONE_VARIABLE["square, 8 tokens"]
    mutated = [np.array(array) for array in head]
    mutated[which].flat[3] = bad
    with pytest.raises(CertificateError, match="not a finite number"):
        check_table(*mutated, functions, low, high)


@pytest.mark.parametrize(
    ("function", "low", "high", "reason"),
    [
        (("sqrt", None), 0.0, 1.0, "not analytic"),
        (("log", None), 0.0, 1.0, "not analytic"),
        (("reciprocal", None), -1.0, 1.0, "not analytic"),
        (("power", 0.5), 0.0, 1.0, "not analytic"),
        (("power", -2.0), -1.0, 1.0, "not analytic"),
        (("power", None), 1.0, 2.0, "exponent"),
        (("no such function", None), 1.0, 2.0, "no function"),
        (("table tests: log", None), -1.0, 1.0, "no finite Taylor series"),
        (("table tests: short", None), -1.0, 1.0, "no finite Taylor series"),
        (("sin", None), 1.0, -1.0, "bounded interval"),
        (("sin", None), 0.0, np.nan, "bounded interval"),
    ],
)
def test_functions_that_are_not_analytic_are_refused(function, low, high, reason) -> None:
    with pytest.raises(CertificateError, match=reason):
        check_table([1.0, -1.0], [0.0, 0.0], [1.0, 2.0], [function], low, high)


def test_a_pole_that_no_cell_centre_meets_is_refused() -> None:
    with pytest.raises(CertificateError, match="no Taylor series"):
        check_table([1.0, -1.0], [0.0, 0.0], [1.0, 2.0], plain("table tests: pole"), -1.0, 1.0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CertificateError, match="outputs of one table"):
        check_table([1.0, -1.0], [0.0], [1.0, 2.0], plain("sin"), -1.0, 1.0)
    with pytest.raises(CertificateError, match="outputs of one table"):
        check_table([1.0, -1.0], [0.0, 0.0], [1.0, 2.0], plain("sin", "cos"), -1.0, 1.0)


def test_scores_that_are_too_steep_or_too_large_are_refused_at_once() -> None:
    with pytest.raises(CertificateError, match="too steep"):
        check_table([1e60, -1e60], [0.0, 0.0], [1.0, 2.0], plain("sin"), 1.0 / 3.0, 1.0)

    with pytest.raises(CertificateError, match="so large"):
        check_table([0.1, -0.1], [0.1e60, 0.0], [1.0, 2.0], plain("sin"), 1e-30, 1.0)


# Two variables ------------------------------------------------------------------------------------------------------


def grid_head(quotient, tokens, width, x_range, y_range):
    return tensor(tokens, width, x_range, y_range, quotient), "quotient" if quotient else "product", x_range, y_range


def random_head(scale):
    rng = np.random.default_rng(7)
    alpha, beta, offset, values = rng.normal(size=(4, 7)) * np.array([[scale], [scale], [1.0], [1.0]])
    return (alpha, beta, offset, values), "product", (-1, 1), (-0.5, 2)


TWO_VARIABLES = {
    "x y, 3 x 3": grid_head(False, 3, 0.03, (-1, 1), (-1, 1)),
    "x y, 4 x 4": grid_head(False, 4, 0.03, (-1, 1), (-1, 1)),
    "x y, 6 x 6": grid_head(False, 6, 0.03, (-1, 1), (-1, 1)),
    "x y, off centre": grid_head(False, 5, 0.05, (0, 5), (2, 3)),
    "x y, narrow": grid_head(False, 6, 0.5, (-1, 1), (-1, 1)),
    "x / y": grid_head(True, 5, 0.05, (-1, 1), (0.5, 2)),
    "x / y, below zero": grid_head(True, 5, 0.1, (-1, 2), (-3, -1)),
    "no grid": random_head(1.0),
    "no grid, steep": random_head(8.0),
}


def wide_error(head, kind, x, y):
    """The error in 80-bit floats: good to about 1e-15 of the largest value, which is enough to rank points."""
    alpha, beta, offset, values = (np.asarray(array, dtype=np.longdouble) for array in head)
    x, y = np.asarray(x, dtype=np.longdouble), np.asarray(y, dtype=np.longdouble)
    scores = np.multiply.outer(x, alpha) + np.multiply.outer(y, beta) + offset
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.sum(weights * values, axis=-1) / weights.sum(axis=-1) - (x / y if kind == "quotient" else x * y)


@pytest.mark.parametrize("case", sorted(TWO_VARIABLES))
def test_two_variables_bounds_hold_and_are_tight(case, rng) -> None:
    head, kind, x_range, y_range = TWO_VARIABLES[case]
    checked = check_pair(*head, kind, x_range, y_range)
    grids = [np.clip(np.concatenate([ends, chebyshev(*ends, 120)]), *ends) for ends in (x_range, y_range)]
    x, y = (axis.ravel() for axis in np.meshgrid(*grids, indexing="ij"))
    ranked = np.argsort(-np.abs(wide_error(head, kind, x, y)))
    chosen = np.concatenate([ranked[:10], rng.choice(len(x), 40), [0, 1, 122, 123]])
    found = mpmath.mpf(0)
    with mpmath.workdps(50):
        for a, b in zip(x[chosen].tolist(), y[chosen].tolist(), strict=True):
            a, b = mpmath.mpf(a), mpmath.mpf(b)
            value, slope = exact_head(head[:2], head[2], head[3], [a, b])
            error = value - (a / b if kind == "quotient" else a * b)
            assert checked.low[0] <= error <= checked.high[0]
            assert all(low <= s for low, s in zip(checked.slope_low[0], slope, strict=True))
            assert all(s <= high for high, s in zip(checked.slope_high[0], slope, strict=True))
            found = max(found, abs(error))
    assert checked.error[0] <= 1.05 * 1.02 * found  # the grid misses a little of the largest error


def test_two_variables_reach_the_figures_with_few_cells() -> None:
    for case, error, cells in [("x y, 3 x 3", 1e-4, 5), ("x y, 4 x 4", 3e-8, 10), ("x y, 6 x 6", 2e-10, 60)]:
        head, kind, x_range, y_range = TWO_VARIABLES[case]
        checked = check_pair(*head, kind, x_range, y_range)
        assert checked.error[0] <= error
        assert checked.cells <= cells


def test_a_head_of_one_variable_is_a_head_of_two() -> None:
    (alpha, offset, values), functions, low, high = ONE_VARIABLE["square, 8 tokens"]
    single = check_table(alpha, offset, values, functions, low, high)
    # On the thin box y = 1 the product x y is x, and g(x) - x ranges as in one variable.
    line = check_table(alpha, offset, values, [("power", 1.0)], low, high)
    double = check_pair(alpha, np.zeros(8), offset, values[:, 0], "product", (low, high), (1.0, 1.0))
    np.testing.assert_allclose(double.error, line.error, rtol=0.06)
    assert single.error[0] < line.error[0]


def test_two_variables_refusals() -> None:
    head = TWO_VARIABLES["x / y"][0]
    with pytest.raises(CertificateError, match="contains 0"):
        check_pair(*head, "quotient", (-1, 1), (0.0, 1))
    with pytest.raises(CertificateError, match="not a finite number"):
        check_pair(head[0] * np.nan, *head[1:], "product", (-1, 1), (0.5, 1))
    with pytest.raises(CertificateError, match="bounded interval"):
        check_pair(*head, "product", (-1, 1), (0.5, np.inf))
