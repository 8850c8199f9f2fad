"""Intervals are rounded outwards: they hold every exact value. Boxes refuse what is not a finite box."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.oracles.exact import exact_image, exact_range
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.errors import DomainError
from headsmith.core.intervals import Box, Interval, added_outwards, as_box, ball, centre_and_radius, linear_image, point

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
pairs = st.tuples(finite, finite).map(sorted)


def fractions(values) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


@st.composite
def images(draw):
    """Weights and a vector of intervals: some zero, some negative, of very different sizes; some intervals a single
    point."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    weights = rng.normal(size=(rows, columns)) * 2.0 ** rng.integers(-30, 30, size=(rows, columns))
    weights *= rng.random(weights.shape) < 0.8
    ends = rng.normal(size=(2, columns)) * 2.0 ** rng.integers(-40, 40, size=columns)
    ends *= rng.random(ends.shape) < 0.8
    ends[1] = np.where(rng.random(columns) < 0.2, ends[0], ends[1])
    if draw(st.booleans()):
        ends = np.abs(ends)
    if draw(st.booleans()):
        weights = np.abs(weights)
    if draw(st.integers(0, 4)) == 0:
        weights = weights[0].copy()
    return weights, Interval(ends.min(axis=0), ends.max(axis=0))


@given(images())
def test_linear_image_holds_the_exact_range(case) -> None:
    weights, interval = case
    found = linear_image(weights, interval)
    low, high = exact_range(weights, fractions(interval.low), fractions(interval.high))
    assert all(Fraction(float(f)) <= w for f, w in zip(found.low, low, strict=True))
    assert all(Fraction(float(f)) >= w for f, w in zip(found.high, high, strict=True))


@given(images())
def test_linear_image_does_not_cross_zero_if_no_product_does(case) -> None:
    """A sum of non-negative products is not negative, and rounding must not say otherwise: the gate would get a
    head."""
    weights, interval = case
    found = linear_image(weights, interval)
    products = (np.diag(weights) if weights.ndim == 1 else weights)[:, :, None] * np.stack(
        [interval.low, interval.high], axis=1
    )
    for row in range(len(products)):
        if np.all(products[row] >= 0.0):
            assert found.low[row] >= 0.0
        if np.all(products[row] <= 0.0):
            assert found.high[row] <= 0.0


def test_linear_image_is_barely_wider_than_the_exact_range(rng) -> None:
    weights = rng.normal(size=(20, 50))
    low = rng.normal(size=50)
    found = linear_image(weights, Interval(low, low + 1.0))
    exact_low, exact_high = exact_range(weights, fractions(low), fractions(low + 1.0))
    assert max(float(w) - f for f, w in zip(found.low, exact_low, strict=True)) < 1e-12
    assert max(f - float(w) for f, w in zip(found.high, exact_high, strict=True)) < 1e-12


def test_linear_image_of_a_matrix_of_intervals_acts_on_columns(rng) -> None:
    weights, low = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    whole = linear_image(weights, Interval(low, low + 0.5))
    for column in range(3):
        single = linear_image(weights, Interval(low[:, column], low[:, column] + 0.5))
        assert np.allclose(whole.low[:, column], single.low, atol=1e-12)
        assert np.allclose(whole.high[:, column], single.high, atol=1e-12)


@given(st.lists(st.tuples(pairs, pairs), min_size=1, max_size=6))
def test_add_holds_every_sum(rows) -> None:
    left = Interval([a[0] for a, _ in rows], [a[1] for a, _ in rows])
    right = Interval([b[0] for _, b in rows], [b[1] for _, b in rows])
    found = added_outwards(left, right)
    for index, (a, b) in enumerate(rows):
        assert Fraction(float(found.low[index])) <= Fraction(a[0]) + Fraction(b[0])
        assert Fraction(float(found.high[index])) >= Fraction(a[1]) + Fraction(b[1])


def test_adding_zero_is_exact() -> None:
    """Zero added to [0, 1] is [0, 1]: an outward step from an exact zero would make stable gates unstable."""
    found = added_outwards(Interval([0.0, 2.0], [1.0, 3.0]), point(np.zeros(2)))
    assert np.array_equal(found.low, [0.0, 2.0])
    assert np.array_equal(found.high, [1.0, 3.0])


@given(pairs)
def test_the_ball_of_centre_and_radius_holds_the_interval(pair) -> None:
    interval = Interval([pair[0]], [pair[1]])
    centre, radius = centre_and_radius(interval)
    assert Fraction(float(centre[0])) - Fraction(float(radius[0])) <= Fraction(pair[0])
    assert Fraction(float(centre[0])) + Fraction(float(radius[0])) >= Fraction(pair[1])
    again = ball(centre, radius)
    assert again.low[0] <= pair[0]
    assert pair[1] <= again.high[0]


def test_the_widest_interval_has_a_centre_and_a_radius() -> None:
    largest = 1.7e308
    centre, radius = centre_and_radius(Interval([-largest, -largest], [largest, -largest]))
    assert centre.tolist() == [0.0, -largest]
    assert radius[0] >= largest


@given(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).map(sorted), st.floats(0, 1e9))
def test_inflated_magnitude_and_relu(pair, margin) -> None:
    interval = Interval([pair[0]], [pair[1]])
    wide = interval.inflated(np.array([margin]))
    assert Fraction(float(wide.low[0])) <= Fraction(pair[0]) - Fraction(margin)
    assert Fraction(float(wide.high[0])) >= Fraction(pair[1]) + Fraction(margin)
    assert interval.magnitude[0] == max(abs(pair[0]), abs(pair[1]))
    assert (interval.relu().low[0], interval.relu().high[0]) == (max(pair[0], 0.0), max(pair[1], 0.0))


@given(st.integers(0, 2**32 - 1))
def test_points_inside_stay_inside(seed) -> None:
    rng = np.random.default_rng(seed)
    weights, low = rng.normal(size=(3, 4)), rng.normal(size=4)
    interval = Interval(low, low + rng.random(4))
    image = linear_image(weights, interval)
    for _ in range(5):
        x = np.clip(interval.low + (interval.high - interval.low) * rng.random(4), interval.low, interval.high)
        for row, value in enumerate(exact_image(weights, fractions(x))):
            assert Fraction(float(image.low[row])) <= value <= Fraction(float(image.high[row]))


def test_intervals_are_read_only() -> None:
    interval = point(np.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        interval.low[0] = 2.0


class TestBox:
    """What is not a finite box is refused, by name and with the numbers."""

    def test_one_pair_serves_all_inputs(self) -> None:
        box = as_box((-1, 2), ["a", "b"])
        assert box.low.tolist() == [-1, -1]
        assert box.high.tolist() == [2, 2]

    def test_a_sequence_and_a_mapping_give_one_interval_each(self) -> None:
        for domain in ([(0, 1), (2, 3)], {"b": (2, 3), "a": (0, 1)}, np.array([[0.0, 1.0], [2.0, 3.0]])):
            box = as_box(domain, ["a", "b"])
            assert box.low.tolist() == [0, 2]
            assert box.high.tolist() == [1, 3]

    def test_a_box_is_taken_as_it_is(self) -> None:
        box = as_box(Box(("p", "q"), [0.0, 1.0], [1.0, 2.0]), ["a", "b"])
        assert box.names == ("a", "b")
        with pytest.raises(DomainError, match="2 intervals and the target 3 inputs"):
            as_box(box, ["a", "b", "c"])

    def test_a_single_point_is_a_box(self) -> None:
        assert as_box((1, 1), ["a"]).low.tolist() == [1]

    @pytest.mark.parametrize(
        ("domain", "message"),
        [
            (None, "no domain was given"),
            ((1, -1), r"the domain of a is \[1.0, -1.0\]: reversed; write \(-1.0, 1.0\)"),
            ((0, np.inf), "both ends must be finite"),
            ((-np.inf, 0), "both ends must be finite"),
            ((0, np.nan), "both ends must be finite"),
            ([(0, 1)], "1 intervals and the target 2 inputs"),
            ([(0, 1)] * 3, "3 intervals and the target 2 inputs"),
            ([], "neither a pair"),
            ((), "neither a pair"),
            ([(0, 1, 2), (0, 1, 2)], "neither a pair"),
            (3.0, "neither a pair"),
            ("wide", "neither a pair"),
            ([(0, 1), (0,)], "neither a pair"),
            ({"a": (0, 1)}, "no interval for b"),
            ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, "an interval for c, which the target does not use"),
            ({"a": (0, 1), "b": 3}, "the domain of b is 3; write a pair"),
            ({"a": (0, 1), "b": (1, 2, 3)}, r"the domain of b is \(1, 2, 3\); write a pair"),
            ({"a": (0, 1), "b": ("x", 1)}, "the domain of b is"),
        ],
    )
    def test_refusals(self, domain, message) -> None:
        with pytest.raises(DomainError, match=message):
            as_box(domain, ["a", "b"])

    def test_two_arrays_are_all_lower_and_all_upper_ends(self) -> None:
        for low, high in ((np.zeros(3), np.array([1.0, 2.0, 3.0])), ([0.0, -1.0, 0.0], [1.0, 2.0, 3.0])):
            box = as_box((low, high), "abc")
            assert (box.low == low).all()
            assert (box.high == high).all()
        box = as_box((np.array([0.0, 0.0]), np.array([1.0, 2.0])), "ab")
        assert (box.low == 0.0).all()
        assert box.high.tolist() == [1.0, 2.0]
        assert as_box((np.array([-1.0, 1.0]), np.array([-1.0, 1.0])), "ab").low.tolist() == [-1.0, -1.0]
        assert as_box([(0.0, 1.0), (2.0, 3.0)], "ab").low.tolist() == [0.0, 2.0]
        with pytest.raises(DomainError, match="may be two pairs"):
            as_box((np.array([0.0, 1.0]), np.array([2.0, 3.0])), "ab")

    def test_a_long_domain_is_not_printed(self) -> None:
        with pytest.raises(DomainError, match="of shape") as refused:
            as_box(np.zeros((50, 7)), [f"x{i}" for i in range(50)])
        assert len(str(refused.value)) < 200

    def test_complex_ends_and_texts_are_refused(self) -> None:
        for domain in ((0.0, 1.0j), ("0", "1"), [(0, 1), (0, None)]):
            with pytest.raises(DomainError):
                as_box(domain, "ab")

    def test_outside_names_the_coordinate_and_its_interval(self) -> None:
        box = as_box({"a": (0, 1), "b": (-2, 3)}, ["a", "b"])
        box.refuse_outside(np.array([[0.0, -2.0], [1.0, 3.0]]))
        for bad in (3.5, -2.5, np.inf):
            with pytest.raises(DomainError, match=r"input b = .* lies outside its domain \[.*-2.0.*, .*3.0.*\]"):
                box.refuse_outside(np.array([[0.5, 0.0], [0.5, bad]]))
        with pytest.raises(DomainError, match=r"input b in row 1 is nan, which is not a number"):
            box.refuse_outside(np.array([[0.5, 0.0], [0.5, np.nan]]))
