"""Gates that feed back: however many components share the limit, what their slopes can do lies within the hull."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from headsmith.kernel.core.arithmetic import Interval, interval
from headsmith.kernel.core.flow import _hull


def test_hulls_hold_all_combinations_of_slopes_whatever_is_looked_at_together() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        base, weights = random.normal(size=5), random.normal(size=(6, 5))
        middle, radius = random.normal(size=(5, 3)), random.uniform(0.0, 0.5, (5, 3))
        gains = Interval(middle - radius, middle + radius)
        groups = [interval(np.stack([np.zeros(5), each])) for each in weights]
        hulls = [_hull(interval(base), groups, gains, size) for size in (1, 1 << 16, 1 << 30)]
        slopes = random.uniform(0.0, 1.0, (500, 6)).round(random.integers(0, 3))
        rows = base + slopes @ weights
        drawn = middle + radius * random.choice([-1.0, 1.0], (500, 5, 3))
        values = np.einsum("ni,nij->nj", rows, drawn)
        for narrow, wide in pairwise(hulls):
            assert np.all(wide.low <= narrow.low + 1e-12)
            assert np.all(narrow.high <= wide.high + 1e-12)
        assert np.all(hulls[0].low <= values)
        assert np.all(values <= hulls[0].high)
        assert np.any(hulls[0].high < hulls[-1].high - 0.1)


def test_folds_do_not_amplify() -> None:
    """z - 2 relu(z) has a slope of 1 or -1; apart, its parts would have 1 + 2."""
    fold = [interval(np.array([[0.0], [-2.0]]))]
    together = _hull(interval(np.ones(1)), fold, Interval(np.array([[-1.0]]), np.array([[1.0]])), 1)
    assert together.high[0] <= 1.0 + 1e-9
