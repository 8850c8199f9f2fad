"""Exact matrices: doubles are integers times a power of two, so sums of products of doubles are too.

A `Scaled` holds integers (flint's, of any size) that stand for integers / 2^exponent. Products add exponents; nothing
is ever rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flint import fmpz, fmpz_mat

from headsmith.core.arrays import Array

Row = list[Any]
"""A row of integers."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A matrix of rationals: `rows` of integers, each divided by 2^exponent."""

    matrix: Any
    exponent: int

    @property
    def rows(self) -> list[Row]:
        found: list[Row] = self.matrix.tolist()
        return found

    def __matmul__(self, other: Scaled) -> Scaled:
        return Scaled(self.matrix * other.matrix, self.exponent + other.exponent)


def scaled(array: Array) -> Scaled:
    """A matrix of finite doubles, exactly."""
    rows, columns = array.shape
    ratios = [value.as_integer_ratio() for value in array.ravel().tolist()]
    # Denominators are powers of two: the largest one serves all.
    largest = max((denominator for _, denominator in ratios), default=1)
    entries = [numerator * (largest // denominator) for numerator, denominator in ratios]
    return Scaled(fmpz_mat(rows, columns, entries), largest.bit_length() - 1)


def from_rows(rows: Sequence[Row], exponent: int) -> Scaled:
    """A matrix from its rows of integers; there must be at least one."""
    return Scaled(fmpz_mat(list(rows)), exponent)


def power_of_two(exponent: int) -> Any:
    """2^exponent as an integer."""
    return fmpz(1) << exponent


def meet(planes: Sequence[Row]) -> Row:
    """The point (X_1, ..., X_d, W), W > 0, that stands for X / W, where d planes a . x + c = 0 in d dimensions meet.

    The planes are rows (a_1, ..., a_d, c); raises ArithmeticError where they do not meet in one point.
    """
    match len(planes):
        case 1:
            ((a, c),) = planes
            point = [-c, a]
        case 2:
            (a, b, c), (p, q, r) = planes
            point = [b * r - c * q, c * p - a * r, a * q - b * p]
        case 3:
            first, second, third = planes
            normal = _cross(second[:3], third[:3])
            point = [-_determinant([_replaced(row, axis) for row in planes]) for axis in range(3)] + [
                sum((x * y for x, y in zip(first[:3], normal, strict=True)), fmpz(0))
            ]
        case _:
            point = _solution(planes)
    if point[-1] == 0:
        raise ArithmeticError("the planes do not meet in one point")
    return point if point[-1] > 0 else [-entry for entry in point]


def _solution(planes: Sequence[Row]) -> Row:
    """The point where planes meet, by elimination."""
    normals, constants = fmpz_mat([row[:-1] for row in planes]), fmpz_mat([[-row[-1]] for row in planes])
    try:
        found: Any = normals.solve(constants)  # a matrix of rationals, which flint's types do not say
    except ZeroDivisionError:
        raise ArithmeticError("the planes do not meet in one point") from None
    numerator, denominator = found.numer_denom()
    return [*(entry for (entry,) in numerator.tolist()), denominator]


def _replaced(row: Row, axis: int) -> Row:
    """The normal with its coordinate `axis` replaced by the constant."""
    return [row[3] if place == axis else row[place] for place in range(3)]


def _cross(u: Row, v: Row) -> Row:
    return [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]


def _determinant(rows: Sequence[Row]) -> Any:
    return sum((x * y for x, y in zip(rows[0], _cross(rows[1], rows[2]), strict=True)), fmpz(0))


def sign_at(plane: Row, point: Row) -> int:
    """The sign of a . x + c at a point (X, W) with W > 0."""
    total = sum((a * x for a, x in zip(plane, point, strict=True)), fmpz(0))
    return (total > 0) - (total < 0)


def nearest_double(numerator: Any, denominator: Any) -> float:
    """numerator / denominator, correctly rounded."""
    return int(numerator) / int(denominator)
