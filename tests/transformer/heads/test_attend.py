"""The attend head: data tokens compare queries with keys, and average values.

Theorem: |out - softmax mean| <= leak + rounding, whatever the reference tokens hold. Scores off by at most d move the
mean by at most R tanh(d/2); queries off by e and keys off by f move scores by at most sum |q| f + |k| e + e f.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.theorems import banks as models

from headsmith.core.errors import CertificateError
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.slopes import _attend_slopes
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.attend import (
    AttendBank,
)
from headsmith.transformer.heads.stream import DATA, Link

each_mask = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])

QUERY = np.array([[2.0, 1.0], [0.0, -3.0], [0.5, 0.25]])
KEY = np.array([[1.0, -0.5], [1.0, 1.0], [0.0, 2.0]])
SHIFT = 0.75
VALUES = np.array([[1.0, 0.0], [0.5, -1.0]])


def bank(gain: float = 70.0) -> AttendBank:
    """Queries and keys of three numbers, the first key shifted; two values."""
    read = (Link("x", np.vstack([QUERY, KEY, VALUES])), Link(DATA, [[SHIFT]], 3))
    return AttendBank([-1, -1], [0, 1], read, (Link("out", [[1.0, 0.0], [0.5, 1.0]]),), 3, gain, 60.0)


# ---- the theorem ----------------------------------------------------------------------------------------------------


def test_slopes_bound_every_move(rng) -> None:
    """Queries, keys and values that are off, each token in its own way: the mean moves by at most the slopes say; and
    two tokens whose scores part come near it."""
    closest = 0.0
    for trial in range(400):
        width, tokens, steep = int(rng.integers(1, 4)), int(rng.integers(2, 6)), 10.0 ** rng.uniform(-2, 1)
        low = rng.uniform(-1, 0, (3, width)) * steep
        high = low + rng.uniform(0, 2, (3, width)) * steep
        ranges = [Interval(a, b) for a, b in zip(low, high, strict=True)]
        q, k, v = (item.low + (item.high - item.low) * rng.random((tokens, width)) for item in ranges)
        if trial % 2:
            q, k, v = q.round(), np.where(rng.random(k.shape) < 0.5, low[1], high[1]), np.where(k > 0, low[2], high[2])
            q = np.clip(q, low[0], high[0])
        off = [10.0 ** rng.uniform(-7, -1) * steep for _ in range(3)]
        moved = [each + size * rng.choice([-1.0, 1.0], each.shape) for each, size in zip((q, k, v), off, strict=True)]
        slopes = [slope.magnitude.value for slope in _attend_slopes(off[0], *ranges)]
        room = sum(slope @ np.full(width, size) for slope, size in zip(slopes[:2], off[:2], strict=True))
        room = room + slopes[2] * off[2]
        change = np.abs(_plain(*moved) - _plain(q, k, v))
        assert np.all(change <= room + 1e-15 * steep)
        closest = max(closest, float(np.max(change / room)))
    assert closest > 0.5


def _plain(queries: Any, keys: Any, values: Any) -> Any:
    scores = (queries @ keys.T).astype(np.longdouble)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


class TestTheBankInAModel(models.BankInAModel):
    bank = staticmethod(bank)
    gains = (70.0, 400.0)


@each_mask
def test_hardmax_takes_the_best_key(causal, rng) -> None:
    model = models.surround(bank(), "table", 6, "float64")
    sequence = rng.uniform(-1, 1, (6, 2))
    found = run(model, sequence[None], causal=causal, hardmax=True)[0]
    scores = (sequence @ QUERY.T) @ (sequence @ KEY.T + [SHIFT, 0.0, 0.0]).T
    scores += np.triu(np.full((6, 6), -np.inf), 1) if causal else 0.0
    values = sequence[scores.argmax(axis=1)] @ VALUES.T
    assert np.abs(found - values @ np.array([[1.0, 0.5], [0.0, 1.0]])).max() <= 1e-15


def test_queries_need_a_number() -> None:
    with pytest.raises(CertificateError, match="queries and keys of 0 numbers"):
        models.surround(AttendBank([-1], [0], (), (), 0, 1.0, 1.0), "alone", 3, "float64")


def test_the_head_as_a_model() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (3, 2))
    weights = np.exp((x @ QUERY.T) @ (x @ KEY.T).T)
    found = run(head_models.attend(3, QUERY.T, KEY.T, VALUES.T), x[None])[0]
    assert np.abs(found - weights / weights.sum(axis=1, keepdims=True) @ x @ VALUES.T).max() <= 1e-14
