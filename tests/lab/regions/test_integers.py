"""Doubles as integers over a power of two: products are exact, points where planes meet are the rational ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from headsmith.core.integers import meet, nearest_double, scaled, sign_at


def fractions(rows: list[list[object]], exponent: int) -> list[list[Fraction]]:
    return [[Fraction(int(entry), 2**exponent) for entry in row] for row in rows]


def test_products_of_doubles_are_exact() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(3, 4)) * 1e-12, random.normal(size=(4, 2)) * 1e9
    product = scaled(a) @ scaled(b)
    exact = [
        [sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for column in b.T.tolist()]
        for row in a.tolist()
    ]
    assert fractions(product.rows, product.exponent) == exact


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_planes_meet_where_they_vanish(dimension: int) -> None:
    random = np.random.default_rng(dimension)
    for _ in range(20):
        planes = scaled(random.normal(size=(dimension, dimension + 1))).rows
        point = meet(planes)
        assert point[-1] > 0
        assert [sign_at(plane, point) for plane in planes] == [0] * dimension
        shifted = [*planes[0][:-1], planes[0][-1] + 1]
        assert sign_at(shifted, point) == 1


def test_parallel_planes_do_not_meet() -> None:
    with pytest.raises(ArithmeticError):
        meet(scaled(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 1.0]])).rows)


def test_rounding_is_to_nearest() -> None:
    assert nearest_double(1, 3) == 1.0 / 3.0
    assert nearest_double(2**80 + 1, 2**80) == 1.0
