"""Rule Account: what sums of registers round, in any order, is no more than partial sums allow, and not far less."""

from __future__ import annotations

import numpy as np
import pytest

from headsmith.kernel.core.arithmetic import Array, Interval, Precision, Upper
from headsmith.kernel.core.stream import Register, constant

TOY = Precision("toy", 2.0**-12, 1e-300, 1e300)


def register(values: Array) -> Register:
    """One that holds constants."""
    zero, sizes = Upper(np.zeros(len(values))), Upper(np.abs(values))
    return Register(constant(values), sizes, sizes, zero, np.sign(sizes.value), zero, zero, zero, zero.value)


def summed(terms: list[float], tree: str, push: float, random: np.random.Generator) -> float:
    """The sum by a tree, every result off by a whole unit roundoff in one direction."""
    parts = list(terms)
    while len(parts) > 1:
        chosen = sorted(random.choice(len(parts), 2, replace=False).tolist()) if tree == "any" else [0, 1]
        right, left = parts.pop(chosen[1]), parts.pop(chosen[0])
        total = (left + right) * (1.0 + push * np.sign(left + right) * TOY.unit_roundoff)
        parts.insert(len(parts) if tree == "pairs" else 0, total)
    return parts[0]


@pytest.mark.parametrize("fine", [False, True])
def test_sums_in_any_order(fine: bool) -> None:
    """Gates at either end of their ranges, largest positive terms first, last or anywhere; chains, pairs, any trees."""
    random, found = np.random.default_rng(0), 0.0
    for _ in range(60):
        inputs, bias = int(random.integers(1, 24)), random.normal(size=1) * float(random.choice([0.0, 1.0]))
        weights = random.normal(size=(1, inputs)) * (random.random((1, inputs)) < 0.9)
        low, high = -random.random(inputs) * float(random.choice([0.0, 0.1, 1.0])), random.random(inputs)
        split = int(random.integers(0, inputs + 1))
        held = register(bias)
        for part in (slice(0, split), slice(split, inputs)):
            held = held.plus(held.form, weights[:, part], Interval(low[part], high[part]), fine)
        for tree in ("chain", "pairs", "any"):
            for push in (-1.0, 1.0):
                for values in (
                    high,
                    np.where(weights[0] > 0.0, high, low),
                    np.where(random.random(inputs) < 0.5, low, high),
                ):
                    terms = [each for each in (float(bias[0]), *(weights[0] * values).tolist()) if each] or [0.0]
                    terms.sort(key=lambda each: -each)
                    products = [terms[0], *(each * (1.0 + push * TOY.unit_roundoff) for each in terms[1:])]
                    off = abs(summed(products, tree, push, random) - sum(terms))
                    allowed = float(held.off(TOY).value[0])
                    assert off <= allowed * (1.0 + 1e-9) + 1e-12
                    found = max(found, off / max(allowed, 1e-300))
    assert 0.5 < found <= 1.0


def test_signs_and_sizes_count() -> None:
    """With terms of both signs the bound is little more than half of what all sizes at once allow."""
    random = np.random.default_rng(1)
    weights, ones = random.normal(size=(8, 64)), np.ones(64)
    held = [register(np.zeros(8)).plus({}, weights, Interval(0.0 * ones, ones), fine) for fine in (False, True)]
    plain, fine = (each.off(TOY).value / (TOY.gamma(67).value * each.magnitude.value) for each in held)
    assert np.all(fine < plain)
    assert np.all(fine < 0.62)
    assert np.all(plain < 0.78)


def test_a_column_that_is_copied_rounds_no_sum() -> None:
    ones = np.ones(4)
    held = register(np.zeros(4)).plus({}, np.array([1.0, -2.0, 3.0, 0.0]), Interval(-ones, ones), True)
    assert np.all(held.off(TOY).value <= 5.0 * TOY.unit_roundoff * 3.0)
