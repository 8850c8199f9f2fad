"""Rule 12.9: scores that are off move a mean by no more than the weights of their tokens say, and by nearly as much.

The worst changes of scores are found by trying both signs for every token; the means are those of mpmath, 40 digits.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf

from headsmith.kernel.core.arithmetic import Interval, Upper
from headsmith.kernel.core.weighed import weighed_move

POINTS = 33


def worst_move(scores: list[mpf], values: list[mpf], off: list[mpf]) -> mpf:
    """How far the softmax mean of values moves at most if every score may be off by so much."""

    def mean(moved: list[mpf]) -> mpf:
        powers = [mp.exp(each) for each in moved]
        return sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers)

    exact = mean(scores)
    signs = product((-1, 1), repeat=len(scores))
    return max(
        abs(mean([s + sign * d for s, sign, d in zip(scores, each, off, strict=True)]) - exact) for each in signs
    )


@pytest.mark.parametrize(("relative", "unit", "absolute"), [(1e-7, 1e-8, 1e-7), (0.02, 0.004, 0.01), (0.0, 0.0, 0.2)])
def test_no_mean_moves_further_than_the_rule_says(relative: float, unit: float, absolute: float) -> None:
    rng, shares = np.random.default_rng(3), []
    for _ in range(12):
        tokens = int(rng.integers(2, 6))
        slope, offset, values = rng.normal(size=(3, tokens)) * [[2.0], [3.0], [1.0]]
        low, high = sorted(rng.uniform(-1.5, 1.5, size=2))
        moved, sized = weighed_move(
            slope[None, :, None],
            offset[None],
            values[None, :, None],
            Interval([[low]], [[high]]),
            Upper(relative),
            unit,
            Upper([absolute]),
        )
        found = mpf(0)
        with mp.workdps(40):
            for x in np.linspace(low, high, POINTS).tolist():
                scores = [mpf(a) * mpf(x) + mpf(c) for a, c in zip(slope.tolist(), offset.tolist(), strict=True)]
                top = max(0, *scores)
                sizes = [abs(mpf(a) * mpf(x)) + abs(c) for a, c in zip(slope.tolist(), offset.tolist(), strict=True)]
                off = [relative * size + unit * top + absolute for size in sizes]
                found = max(found, worst_move(scores, [mpf(v) for v in values.tolist()], off))
                powers = [mp.exp(each) for each in scores]
                mean = sum(p * abs(v) for p, v in zip(powers, values.tolist(), strict=True)) / sum(powers)
                assert mean <= sized.value[0, 0]
        shares.append(float(found / mpf(float(moved.value[0, 0]))))
    assert max(shares) <= 1.0
    assert max(shares) >= (0.9 if absolute < 1e-3 else 0.5)


def test_a_gate_is_weighed_by_its_own_weight() -> None:
    """Two tokens with equal scores, values 1 and 0: a quarter of what both are off by, as in the limit."""
    zero = np.zeros((1, 2, 1))
    values = np.array([[[1.0], [0.0]]])
    moved, sized = weighed_move(
        zero, zero[..., 0], values, Interval([[-1.0]], [[1.0]]), Upper(0.0), 0.0, Upper([2.0**-20])
    )
    assert moved.value[0, 0] == pytest.approx(2.0**-21, rel=1e-5)
    assert moved.value[0, 0] >= 2.0**-21
    assert sized.value[0, 0] == pytest.approx(0.5)


def test_scores_that_are_far_off_and_large_grids_are_not_weighed() -> None:
    ones, unit = np.ones((1, 2, 1)), Interval([[-1.0]], [[1.0]])
    assert np.isinf(weighed_move(ones, ones[..., 0], ones, unit, Upper(0.0), 0.0, Upper([1.5]))[0].value).all()
    many = np.ones((1, 300, 1))
    assert np.isinf(weighed_move(many, many[..., 0], many, unit, Upper(0.0), 0.0, Upper([0.0]))[0].value).all()
    endless, values = Interval([[-np.inf]], [[1.0]]), np.array([[[0.0], [1.0]]])
    with np.errstate(all="ignore"):
        found, _ = weighed_move(ones * values, ones[..., 0], values, endless, Upper(0.0), 0.0, Upper([0.1]))
    assert not found.value[0, 0] < 0.05
