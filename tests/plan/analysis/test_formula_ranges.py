"""Ranges of formulas hold every value, touch what they touch, see through shared arguments; refusals give a reason."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers.effort import tried
from hypothesis import given, settings
from hypothesis import strategies as st
from language.test_formula import TREES

from headsmith.core.errors import DomainError
from headsmith.core.intervals import Interval, added, as_box, divided, exact_sum, multiplied, squared
from headsmith.language import library as hs
from headsmith.language.evaluation import node_values
from headsmith.language.formula import formula_graph
from headsmith.language.trace import graph_of
from headsmith.plan.analysis.ranges import ranges


def range_of(text, **domain):
    graph = formula_graph(text, list(domain))
    found = ranges(graph, as_box(domain, list(domain)))[graph.output]
    return float(found.low[0]), float(found.high[0])


ends = st.tuples(st.floats(-3, 3), st.floats(-3, 3)).map(sorted)


@settings(max_examples=tried(100, 3), deadline=None)
@given(TREES, ends, ends, ends)
def test_every_node_stays_in_its_range(text, x, y, z):
    graph = formula_graph(text, ["x", "y", "z"])
    found = ranges(graph, as_box([x, y, z], ["x", "y", "z"]))
    low, high = np.array([x, y, z], dtype=np.longdouble).T
    shares = np.random.default_rng(0).choice([0.0, 0.25, 0.7, 1.0], size=(30, 3)).astype(np.longdouble)
    inputs = np.clip(low + shares * (high - low), low, high)
    for interval, values in zip(found, node_values(graph, inputs, np.longdouble), strict=True):
        slack = 1e-15 * (1 + np.abs(values))
        assert (values >= interval.low - slack).all()
        assert (values <= interval.high + slack).all()


EXACT = [
    ("x**2", {"x": (-1, 1)}, 0, 1),
    ("x*x*y", {"x": (-2, 1), "y": (1, 3)}, 0, 12),
    ("x**3", {"x": (-1, 2)}, -1, 8),
    ("x**4", {"x": (-1, 2)}, 0, 16),
    ("sqrt(x)", {"x": (0, 1)}, 0, 1),
    ("sqrt(1 - x**2)", {"x": (-1, 1)}, 0, 1),
    ("sqrt(abs(x))", {"x": (-1, 4)}, 0, 2),
    ("sqrt(abs(3*x - 1))", {"x": (-1, 1)}, 0, 2),
    ("sqrt(1 - abs(x))", {"x": (-1, 1)}, 0, 1),
    ("sqrt(max(x, y) - x)", {"x": (0, 1), "y": (0, 1)}, 0, 1),
    ("sqrt(x - min(x, y))", {"x": (0, 1), "y": (0, 1)}, 0, 1),
    ("sqrt(clip(3*x, 0, 4))", {"x": (-1, 2)}, 0, 2),
    ("hypot(x, y)", {"x": (0, 3), "y": (-4, 4)}, 0, 5),
    ("1/x", {"x": (0.5, 2)}, 0.5, 2),
    ("x/(1 + x)", {"x": (0, 1)}, 0, 0.5),
    ("cos(x)", {"x": (-1, 1)}, math.cos(1), 1),
    ("exp(x) - exp(x)", {"x": (0, 1)}, 0, 0),
    ("max(x, y) * min(x, 2)", {"x": (0, 1), "y": (0, 3)}, 0, 3),
    ("x**0.7", {"x": (0, 1)}, 0, 1),
    ("3", {"x": (0, 1)}, 3, 3),
]


@pytest.mark.parametrize(("text", "domain", "low", "high"), EXACT)
def test_ranges_that_are_exact(text, domain, low, high):
    found = range_of(text, **domain)
    assert found == pytest.approx((low, high), rel=1e-14, abs=0)
    assert found[0] <= low
    assert found[1] >= high


def test_cells_see_through_repeated_variables():
    low, high = range_of("1/(x*x - x + 1)", x=(0, 1))
    assert 0.98 <= low <= 1.0
    assert 4 / 3 <= high <= 1.36
    low, high = range_of("x*(1 - x)*y", x=(0, 1), y=(0, 1))
    assert high <= 0.28
    range_of("log(x*x - x*y + y*y + 0.05)", x=(-1, 1), y=(-1, 1))


def test_softmax_is_a_share():
    graph = graph_of(lambda a, b, c: hs.softmax([a, b, c]))
    found = ranges(graph, as_box((-5, 5), "abc"))[graph.output]
    assert (found.low >= 0).all()
    assert (found.high <= 1).all()


REFUSED = [
    ("log(x - 2)", (-1, 3), r"log\(x - 2\): its argument ranges over \[-3, 1\], but log needs positive numbers"),
    ("log(x)", (0, 1), r"log\(x\): its argument ranges over \[0, 1\]"),
    (
        "1 + 1/(x - 1)",
        (0, 2),
        r"1/\(x - 1\): its denominator ranges over \[-1, 1\], but division needs numbers other than",
    ),
    ("x/(x - 1)", (0, 2), r"x/\(x - 1\): its denominator ranges over \[-1, 1\]"),
    ("3*sqrt(x)", (-0.25, 1), r"sqrt\(x\): its argument ranges over \[-0.25, 1\], but sqrt needs numbers that are not"),
    ("(x*x - 2)**0.5", (0, 1), r"sqrt\(x\*\*2 - 2\): its argument ranges over \[-2, -1\]"),
    ("x**1.5", (-1, 1), r"x\*\*1.5: its base ranges over \[-1, 1\]"),
    ("x**-2", (-1, 1), r"x\*\*-2: its base ranges over \[-1, 1\], but x\*\*-2 needs numbers other than 0"),
    ("exp(exp(x))", (0, 10), r"exp\(exp\(x\)\): its values overflow"),
    ("x*1e200*x*1e200", (0, 10), "overflow|larger than double"),
    ("tanh(log(x))", (-3, -1), r"log\(x\): its argument ranges over \[-3, -1\]"),
]


@pytest.mark.parametrize(("text", "domain", "message"), REFUSED)
def test_refusals_name_the_expression_and_its_interval(text, domain, message):
    with pytest.raises(ValueError, match=message):
        range_of(text, x=domain)


def test_a_singularity_just_outside_is_fine():
    assert range_of("log(x)", x=(1e-300, 1))[0] < -690
    assert range_of("1/x", x=(-2, -1e-3)) == pytest.approx((-1000, -0.5))
    with pytest.raises(DomainError):
        range_of("1/x", x=(-2, 0))


def test_tiny_wide_and_single_point_domains():
    low, high = range_of("sin(x)*exp(x)", x=(1.0, 1.0 + 1e-14))
    assert low <= math.sin(1) * math.exp(1) <= high
    assert high - low < 1e-12
    assert range_of("x*y", x=(2, 2), y=(3, 3)) == (6, 6)
    assert range_of("tanh(x)", x=(-1e300, 1e300)) == (-1, 1)
    assert range_of("exp(x - x) + x/2 + x/2", x=(-1e308, 1e308)) == pytest.approx((-1e308, 1e308))


floats = st.floats(-1e3, 1e3, allow_subnormal=False)


@given(floats, floats, floats, floats)
def test_directed_operations_hold_the_exact_result_within_a_step(a, b, c, d):
    left, right = Interval(min(a, b), max(a, b)), Interval(min(c, d), max(c, d))
    near, far = sorted((abs(c) + 1e-3, abs(d) + 1e-3))
    away_from_zero = Interval(near, far) if c > 0.0 else Interval(-far, -near)
    for operation, other, exact in (
        (added, right, lambda x, y: x + y),
        (multiplied, right, lambda x, y: x * y),
        (divided, away_from_zero, lambda x, y: x / y),
    ):
        ends = [
            (Fraction(float(x)), Fraction(float(y))) for x in (left.low, left.high) for y in (other.low, other.high)
        ]
        found, wanted = operation(left, other), [exact(x, y) for x, y in ends]
        for end, value, step in ((found.low, min(wanted), -math.inf), (found.high, max(wanted), math.inf)):
            nearest = float(value)
            assert (Fraction(float(end)) <= value) if step < 0 else (Fraction(float(end)) >= value)
            assert float(end) in (
                nearest,
                math.nextafter(nearest, step),
                math.nextafter(math.nextafter(nearest, step), step),
            )
    square = squared(left)
    assert Fraction(float(square.low)) <= min(x * x for x, _ in ends)
    assert Fraction(float(square.high)) >= max(x * x for x, _ in ends)


def test_exact_sums_are_rounded_once():
    terms = [(Fraction(1), 1e16, 1e16), (Fraction(1), 1.0, 1.0), (Fraction(-1), 1e16, 1e16)]
    assert exact_sum(terms, Fraction(0)) == (1.0, 1.0)


def test_ranges_hold_against_a_high_precision_oracle():
    random = np.random.default_rng(0)
    texts = {
        "sqrt(1 - x*y) + log(2 + sin(3*x))/(1 + y**2)": lambda x, y: (
            mpmath.sqrt(1 - x * y) + mpmath.log(2 + mpmath.sin(3 * x)) / (1 + y * y)
        ),
        "gelu(x - y)*erf(x)**3": lambda x, y: (x - y) * mpmath.ncdf(x - y) * mpmath.erf(x) ** 3,
        "exp(-(x*x + y*y)/2)/(1 + exp(-x))": lambda x, y: mpmath.exp(-(x * x + y * y) / 2) / (1 + mpmath.exp(-x)),
    }
    for text, oracle in texts.items():
        low, high = range_of(text, x=(-0.9, 1.0), y=(-0.5, 0.8))
        with mpmath.workdps(50):
            values = [
                oracle(mpmath.mpf(x), mpmath.mpf(y))
                for x, y in zip(
                    random.uniform(-0.9, 1.0, 300).tolist(), random.uniform(-0.5, 0.8, 300).tolist(), strict=True
                )
            ]
        assert low <= min(values)
        assert max(values) <= high
        assert high - low <= 1.6 * float(max(values) - min(values))
