"""Affine forms with a radius: what a register or a source node means, as a function of inputs and gates.

A form is   sum over basis nodes n of M_n v_n  +  constant,   where v_n is the exact value of the source node n (the
            input, or a relu).
Every matrix and the constant carry a radius that bounds, entry by entry, how far floating point may be from the exact
number; the radius is absent (None) where the numbers are exact, as they are wherever weights were merely copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.rounding import FLOAT64, magnitude_product, upper

Radius = Array | None


@dataclass(frozen=True, eq=False)
class Part:
    """A matrix (rows, basis size), or a vector that stands for a diagonal matrix, and its radius."""

    matrix: Array
    radius: Radius = None


@dataclass(frozen=True, eq=False)
class Form:
    """An affine form: `parts` by basis node, and a constant with its radius."""

    parts: Mapping[int, Part]
    constant: Array
    radius: Array

    @property
    def rows(self) -> int:
        return len(self.constant)


def constant_form(values: Array) -> Form:
    """The form without variables."""
    return Form({}, np.asarray(values), np.zeros(len(values)))


def basis_form(node: int, size: int) -> Form:
    """The form that is the basis node itself."""
    return Form({node: Part(np.ones(size))}, np.zeros(size), np.zeros(size))


def image(weights: Array, form: Form) -> Form:
    """weights @ form, with the rounding of the products in the radii."""
    parts = {node: _product(weights, part) for node, part in form.parts.items()}
    if weights.ndim == 1:
        constant, count = weights * form.constant, 1
    else:
        constant, count = weights @ form.constant, int(np.max(np.count_nonzero(weights, axis=1), initial=0))
    if count <= 1 and _exact_products(weights, form.constant):
        return Form(parts, constant, magnitude_product(weights, form.radius) if form.radius.any() else 0.0 * constant)
    radius = magnitude_product(weights, form.radius + FLOAT64.gamma(count) * np.abs(form.constant))
    return Form(parts, constant, radius)


def plus(left: Form, right: Form) -> Form:
    """The sum of two forms."""
    parts = dict(left.parts)
    for node, part in right.parts.items():
        parts[node] = _sum(parts[node], part) if node in parts else part
    constant = left.constant + right.constant
    rounded = (left.constant != 0.0) & (right.constant != 0.0)
    if not (rounded.any() or left.radius.any() or right.radius.any()):
        return Form(parts, constant, np.zeros(len(constant)))
    radius = upper(left.radius + right.radius + FLOAT64.unit_roundoff * np.abs(constant) * rounded, 4)
    return Form(parts, constant, radius)


def rows_of(form: Form, rows: Indices) -> Form:
    """Some rows of a form."""
    if len(rows) == form.rows and np.array_equal(rows, np.arange(form.rows)):
        return form
    parts = {node: _rows(part, rows) for node, part in form.parts.items()}
    return Form(parts, form.constant[rows], form.radius[rows])


def embedded_rows(form: Form, first: int, rows: int) -> Form:
    """The form placed at rows first, first + 1, ... of a taller one that is zero elsewhere."""
    if first == 0 and rows == form.rows:
        return form
    place = slice(first, first + form.rows)
    parts = {}
    for node, part in form.parts.items():
        matrix, radius = _dense(part)
        tall = np.zeros((rows, matrix.shape[1]))
        tall[place] = matrix
        tall_radius = None
        if radius is not None:
            tall_radius = np.zeros_like(tall)
            tall_radius[place] = radius
        parts[node] = Part(tall, tall_radius)
    constant, error = np.zeros(rows), np.zeros(rows)
    constant[place], error[place] = form.constant, form.radius
    return Form(parts, constant, error)


def scattered(weights: Array, columns: Indices, size: int) -> Array:
    """Weights over some components of a basis node, as weights over all of them."""
    if len(columns) == size and np.array_equal(columns, np.arange(size)):
        return weights
    wide = np.zeros((len(weights), size))
    wide[:, columns] = np.diag(weights) if weights.ndim == 1 else weights
    return wide


def deviation(left: Form, right: Form, magnitudes: Mapping[int, Array]) -> Array:
    """Bound of |left - right| when each basis node n has |v_n| <= magnitudes[n]."""
    result = np.abs(left.constant - right.constant)
    result = upper(result + left.radius + right.radius, 4)
    for node in left.parts.keys() | right.parts.keys():
        first, second = left.parts.get(node), right.parts.get(node)
        if node not in magnitudes:
            # A gate that has not been computed yet: it must not matter.
            for part in (first, second):
                if part is not None:
                    result = np.where(_touched(part), np.inf, result)
            continue
        if first is not None and second is not None and _identical(first, second):
            continue
        for gap in _gaps(first, second):
            result = upper(result + magnitude_product(gap, magnitudes[node]), 2)
    return np.asarray(result)


def _touched(part: Part) -> Any:
    """Which rows of a part are not exactly zero."""
    rows = np.zeros(len(part.matrix), dtype=bool)
    for array in (part.matrix, part.radius):
        if array is not None:
            rows |= array != 0.0 if array.ndim == 1 else (array != 0.0).any(axis=1)
    return rows


def _identical(first: Part, second: Part) -> bool:
    if first.radius is not None or second.radius is not None:
        return False
    same = first.matrix is second.matrix or first.matrix.shape == second.matrix.shape
    return same and np.array_equal(first.matrix, second.matrix)


def _gaps(first: Part | None, second: Part | None) -> list[Array]:
    """Matrices whose absolute values add up to a bound of |first - second|."""
    if first is None or second is None:
        part = first if first is not None else second
        assert part is not None
        return [part.matrix] if part.radius is None else [part.matrix, part.radius]
    one, two = (first.matrix, second.matrix)
    if one.ndim != two.ndim:
        one, two = _dense(first)[0], _dense(second)[0]
    # The subtraction rounds relatively: upper() in the caller has room for it only if we widen it here.
    gap = (one - two) * (1.0 + 4.0 * FLOAT64.unit_roundoff)
    return [gap, *(radius for radius in (first.radius, second.radius) if radius is not None)]


def _product(weights: Array, part: Part) -> Part:
    matrix, radius = part.matrix, part.radius
    if weights.ndim == 1 and np.all(weights == 1.0):
        return part
    if matrix.ndim == 1 and radius is None and np.all(matrix == 1.0):
        return Part(weights)
    exact = radius is None and _exact_products(weights, matrix)
    if weights.ndim == 1:
        left = weights if matrix.ndim == 1 else weights[:, None]
        result = left * matrix
        error = upper(np.abs(left) * radius, 1) if radius is not None else 0.0
        return Part(result, None if exact else upper(error + FLOAT64.unit_roundoff * np.abs(result), 3))
    if matrix.ndim == 1:
        result = weights * matrix
        error = upper(np.abs(weights) * radius, 1) if radius is not None else 0.0
        return Part(result, None if exact else upper(error + FLOAT64.unit_roundoff * np.abs(result), 3))
    # Where each row picks at most one term, nothing is added.
    terms = int(np.max(np.count_nonzero(weights, axis=1), initial=0))
    if exact and terms <= 1:
        return Part(weights @ matrix)
    spread = FLOAT64.gamma(terms) * np.abs(matrix)
    return Part(weights @ matrix, magnitude_product(weights, spread if radius is None else spread + radius))


def _exact_products(left: Array, right: Array) -> bool:
    """Whether no product of two of these numbers rounds: one side has powers of two alone, and none is near the ends of
    the format."""
    sizes = [np.abs(each[each != 0.0]) for each in (left, right)]
    ordinary = all(np.all((size >= 2.0**-400) & (size <= 2.0**400)) for size in sizes)
    return ordinary and any(bool(np.all(np.frexp(size)[0] == 0.5)) for size in sizes)


def _sum(left: Part, right: Part) -> Part:
    if left.matrix.ndim != right.matrix.ndim:
        left, right = (Part(*_dense(part)) for part in (left, right))
    matrix = left.matrix + right.matrix
    # Adding zero is exact.
    rounded = (left.matrix != 0.0) & (right.matrix != 0.0)
    if left.radius is None and right.radius is None and not rounded.any():
        return Part(matrix)
    radius = FLOAT64.unit_roundoff * np.abs(matrix) * rounded
    for part in (left, right):
        if part.radius is not None:
            radius = radius + part.radius
    return Part(matrix, upper(radius, 4))


def _rows(part: Part, rows: Indices) -> Part:
    matrix, radius = _dense(part)
    return Part(matrix[rows], None if radius is None else radius[rows])


def _dense(part: Part) -> tuple[Array, Radius]:
    if part.matrix.ndim == 2:
        return part.matrix, part.radius
    return np.diag(part.matrix), None if part.radius is None else np.diag(part.radius)
