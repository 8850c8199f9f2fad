"""Rounding: `upper` and `lower` are on the right side of the exact figure, for any order of summation. Exact
fractions are the judge."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers.oracles.exact import exact_image
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.rounding import FLOAT64, PRECISIONS, lower, magnitude_product, upper

# Magnitudes from deep underflow to near overflow.
magnitudes = st.one_of(
    st.just(0.0),
    st.floats(1e-3, 1e3),
    st.floats(0.0, 1e-300),
    st.builds(lambda m, e: m * 2.0**e, st.floats(1.0, 2.0), st.integers(-500, 400)),
)


@given(st.lists(st.tuples(magnitudes, magnitudes), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_sum_of_products_lies_between_lower_and_upper_in_any_order(pairs, random) -> None:
    exact = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
    random.shuffle(pairs)
    computed = 0.0
    for a, b in pairs:
        computed = computed + a * b
    above, below = float(upper(computed, len(pairs))), float(lower(computed, len(pairs)))
    assert np.isinf(above) or Fraction(above) >= exact
    assert below >= 0.0
    assert np.isinf(computed) or Fraction(below) <= exact


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32 - 1), st.integers(-1000, 900))
def test_magnitude_product_is_above_the_exact_product(rows, columns, seed, exponent) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(rows, columns)) * 2.0 ** rng.integers(-60, 60, size=(rows, columns))
    sizes = np.abs(rng.normal(size=columns)) * 2.0 ** float(exponent)
    found = magnitude_product(weights, sizes)
    wanted = exact_image(np.abs(weights), [Fraction(float(s)) for s in sizes])
    assert all(np.isinf(f) or Fraction(float(f)) >= w for f, w in zip(found, wanted, strict=True))


def test_magnitude_product_is_barely_above_it(rng) -> None:
    weights, sizes = rng.normal(size=(5, 40)), np.abs(rng.normal(size=40))
    wanted = exact_image(np.abs(weights), [Fraction(float(s)) for s in sizes])
    for found, exact in zip(magnitude_product(weights, sizes), wanted, strict=True):
        assert Fraction(float(found)) <= exact * (1 + Fraction(1, 10**13))


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_vector_of_weights_is_a_diagonal_matrix(seed, size) -> None:
    rng = np.random.default_rng(seed)
    diagonal, sizes = rng.normal(size=size), np.abs(rng.normal(size=(size, 3)))
    full = magnitude_product(np.diag(diagonal), sizes)
    assert np.allclose(magnitude_product(diagonal, sizes), full, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_gamma_is_above_k_u_over_one_minus_k_u_and_gives_up_in_time(name) -> None:
    precision = PRECISIONS[name]
    for k in (0, 1, 2, 3, 10, 1000, 10**6):
        product = k * Fraction(precision.unit_roundoff)
        if product < Fraction(1, 2):
            assert Fraction(precision.gamma(k)) >= product / (1 - product)
    assert precision.gamma(int(0.6 / precision.unit_roundoff)) == np.inf
    assert np.array_equal(np.isinf(precision.gamma(np.array([1, 2**60]))), [False, True])


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_the_constants_are_those_of_the_format(name) -> None:
    precision, info = PRECISIONS[name], np.finfo(name)
    assert precision.unit_roundoff == float(info.eps) / 2.0
    assert precision.smallest_normal == float(info.smallest_normal)
    assert precision.largest == float(info.max)


def test_a_dot_product_obeys_gamma_in_any_order_and_in_both_formats(rng) -> None:
    """The inequality that the kernel rests on, seen at work on numpy's own sums."""
    for name in ("float64", "float32"):
        precision = PRECISIONS[name]
        left = rng.normal(size=200).astype(name)
        right = rng.normal(size=200).astype(name)
        exact = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(left, right, strict=True))
        size = float(np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64)))
        for _ in range(20):
            order = rng.permutation(200)
            found = [left[order] @ right[order], np.cumsum(left[order] * right[order])[-1]]
            for value in found:
                assert abs(float(Fraction(float(value)) - exact)) <= precision.gamma(200) * size


def test_upper_of_nothing_is_tiny() -> None:
    assert upper(0.0, 3) <= 10 * FLOAT64.smallest_normal
    assert lower(0.0, 3) == 0.0
