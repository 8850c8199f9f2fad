"""The mean head: one head averages any number of linear forms over the data tokens.

Theorem: |out - mean| <= leak + rounding, whatever the reference tokens hold; without them the mean is exact.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import bank_models as models
import mpmath
import numpy as np
import pytest
from dense_reference import Rounded, run_dense

from headsmith import single
from headsmith.core.errors import CertificateError
from headsmith.core.rounding import EXP_ULPS, PRECISIONS
from headsmith.heads.mean import MeanBank, leak, output_rounding, score_disturbance
from headsmith.heads.softmax import exp_disturbance, moved_mean, outside_weight, spilled, summation_rounding
from headsmith.heads.stream import DATA, Link
from headsmith.run.numpy_runner import run
from headsmith.transformer.dense import dense

FLOAT32, FLOAT64 = PRECISIONS["float32"], PRECISIONS["float64"]

each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
each_mask = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def bank(gain: float = 40.0) -> MeanBank:
    """The means of x0, of x1, and of x0 - 2 x1 + 3, which are written as two sums."""
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]]), Link(DATA, [[3.0]], 2))
    return MeanBank([-1] * 3, [0, 1, 2], read, (Link("out", [[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]),), gain, 60.0)


def mean_of(sequence: Any, place: int, causal: bool) -> list[Fraction]:
    seen = sequence[: place + 1] if causal else sequence
    x, y = (sum(Fraction(float(row[i])) for row in seen) / len(seen) for i in (0, 1))
    return [x + (x - 2 * y + 3) / 2, y]


# ---- the theorem ----------------------------------------------------------------------------------------------------


@each_mask
@pytest.mark.parametrize("how", ["alone", "gates", "table"])
@pytest.mark.parametrize("gain", [0.0, 40.0])
@pytest.mark.parametrize("push", ["up", "down", "in", "out", "random"])
def test_the_mean_holds_for_the_worst_rounding(how, gain, causal, push, rng) -> None:
    """The textbook transformer, every operation pushed by a unit roundoff of float32, against exact fractions."""
    model, precision = models.surround(bank(gain), how, 4, "float32"), FLOAT32
    mine = bank(gain)
    d = score_disturbance(mine, precision)
    size, drift = np.array([1.0, 1.0, 6.0]), np.zeros(3)
    bound = leak(mine, size, drift, d, model.reference_tokens) + output_rounding(
        size, d, precision, 4 + model.reference_tokens
    )
    # Reads, writes and read-out: a few products each.
    total = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]) @ (bound + 8.0 * precision.unit_roundoff * size)
    total += 8.0 * precision.unit_roundoff * np.array([4.0, 1.0])
    sequence = models.stored(rng.uniform(-1, 1, (4, 2)), "float32")
    arithmetic = Rounded(precision.unit_roundoff, 2 * EXP_ULPS, push, rng)
    found = run_dense(dense(model), sequence, arithmetic, causal=causal)
    for place, row in enumerate(found.tolist()):
        for got, wanted, room in zip(row, mean_of(sequence, place, causal), total, strict=True):
            assert abs(Fraction(got) - wanted) <= room


@each_mask
@each_dtype
def test_without_reference_tokens_the_mean_is_exact(causal, dtype, rng) -> None:
    model = single.mean(257, 2, dtype)
    assert model.reference_tokens == 0
    sequence = models.stored(rng.uniform(-1, 1, (257, 2)), dtype)
    found = run(model, sequence[None], causal=causal)[0]
    count = np.arange(1, 258)[:, None] if causal else 257
    wanted = np.cumsum(sequence, axis=0) / count if causal else np.tile(sequence.mean(axis=0), (257, 1))
    assert np.abs(found - wanted).max() <= output_rounding(np.ones(1), 1e-15, PRECISIONS[dtype], 257)[0]
    assert np.abs(found - wanted).max() <= 2e-7 if dtype == "float32" else 1e-15


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


class TestTheBankInAModel(models.BankInAModel):
    bank = staticmethod(bank)


def test_who_needs_the_sink() -> None:
    """Gates do; a mean does beside a grid, whose tokens it would read and write; a table alone does not."""
    sinks = {how: models.surround(bank(), how, 4, "float64").sink_tokens for how in models.SURROUNDINGS}
    assert sinks == {"alone": 0, "gates": 1, "table": 1, "deep": 1}
    assert models.build([[models.table("side", 2, "float64")]], 4, "float64", grid=models.GRID_SIZE).sink_tokens == 0
    assert single.gate_product(tokens=2).sink_tokens == 1


# ---- the lemmas of all softmax heads --------------------------------------------------------------------------------


class TestMovedMean:
    """Scores off by at most d move a mean of values R apart by at most R tanh(d/2)."""

    def test_it_is_a_bound(self, rng) -> None:
        for _ in range(300):
            count, d = int(rng.integers(2, 9)), 10.0 ** rng.uniform(-6, 1)
            scores, values = rng.normal(0, 3, count), rng.uniform(-2, 3, count)
            order = values > rng.choice(values)
            moved = scores + d * np.where(order, 1.0, -1.0)
            with mpmath.workdps(40):
                change = abs(softmax_mean(moved, values) - softmax_mean(scores, values))
                assert change <= moved_mean(np.ptp(values), d)

    @pytest.mark.parametrize("d", [1e-9, 1e-3, 0.1])
    def test_it_is_attained(self, d) -> None:
        """Two tokens; the upper one weighs 1 / (1 + e^d)."""
        with mpmath.workdps(40):
            change = softmax_mean([d, 0.0], [3.0, 0.0]) - softmax_mean([0.0, d], [3.0, 0.0])
            assert change <= moved_mean(3.0, d) <= change * mpmath.mpf("1.01")


def softmax_mean(scores: Any, values: Any) -> Any:
    powers = [mpmath.exp(mpmath.mpf(float(score))) for score in scores]
    return mpmath.fsum(p * mpmath.mpf(float(v)) for p, v in zip(powers, values, strict=True)) / mpmath.fsum(powers)


class TestOutsideWeight:
    @pytest.mark.parametrize("margin", [-5.0, 0.0, 3.0, 45.0, 690.0])
    @pytest.mark.parametrize("d", [0.0, 1e-9, 0.3])
    def test_it_is_attained(self, margin, d) -> None:
        bound = float(outside_weight(5, margin, d))
        with mpmath.workdps(40):
            exact = 5 * mpmath.exp(2 * mpmath.mpf(d) - mpmath.mpf(margin))
            assert exact <= bound <= exact * (1 + mpmath.mpf("1e-8"))

    def test_it_never_underflows_to_zero(self) -> None:
        assert outside_weight(1, 5000.0, 0.0) > 0.0

    def test_it_survives_cancellation(self) -> None:
        gain, d = 180945338.9468634, 90472664.5
        with mpmath.workdps(40):
            assert mpmath.exp(2 * mpmath.mpf(d) - mpmath.mpf(gain)) <= outside_weight(1, gain, d)

    def test_hopeless_cases_are_infinite(self) -> None:
        assert np.isinf(outside_weight(1, 10.0, np.inf))
        assert np.isinf(outside_weight(1, -1e9, 0.0))


@each_dtype
def test_sums_round_no_more_than_the_lemma_allows(dtype, rng) -> None:
    """Powers as they come, divided and added in random orders, in the dtype."""
    kind, precision = np.dtype(dtype).type, PRECISIONS[dtype]
    worst = 0.0
    for _ in range(200):
        count = int(rng.integers(1, 30))
        powers = np.exp(-rng.exponential(3, count)).astype(dtype)
        powers[rng.integers(count)] = 1
        values = (rng.choice([-1.0, 1.0], count) * rng.uniform(0.5, 1, count)).astype(dtype)
        mass, total = kind(0), kind(0)
        for index in rng.permutation(count):
            mass = kind(mass + powers[index])
        for index in rng.permutation(count):
            total = kind(total + kind(kind(powers[index] / mass) * values[index]))
        exact = sum(Fraction(float(p)) * Fraction(float(v)) for p, v in zip(powers, values, strict=True))
        exact /= sum(Fraction(float(p)) for p in powers)
        off, room = abs(Fraction(float(total)) - exact), float(summation_rounding(1.0, count, precision))
        assert off <= room
        worst = max(worst, float(off) / room)
    assert worst >= 0.05


def test_exp_is_allowed_its_ulps() -> None:
    for precision in (FLOAT32, FLOAT64):
        assert exp_disturbance(precision) >= 2 * EXP_ULPS * precision.unit_roundoff
        assert exp_disturbance(precision) <= 2.1 * EXP_ULPS * precision.unit_roundoff


@each_dtype
@pytest.mark.parametrize("keep", [5.0, 60.0])
def test_what_is_spilled_on_reference_tokens(dtype, keep, rng) -> None:
    """The rows of the sink and of the grid, computed by the textbook, stay within the lemma; with a small gain they
    nearly attain it."""
    mine = models.replace(bank(), keep_gain=keep, write=(Link("out", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),))
    written = dense(models.surround(mine, "table", 4, dtype))
    precision = PRECISIONS[dtype]
    bound = float(spilled(1.0, 0.0, keep, 4, 5, precision))
    columns = written.W_U.any(axis=1)
    ones = np.ones((4, 2))
    stream = np.concatenate([written.references, ones @ written.W_E + written.b_E + written.W_pos])
    layer = written.layers[0]
    scores = (stream @ layer.W_Q[0]) @ (stream @ layer.W_K[0]).T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    added = (weights @ (stream @ layer.W_V[0]) @ layer.W_O[0])[:5, columns]
    assert np.abs(added).max() <= bound
    if keep == 5.0:
        assert bound <= 1.1 * np.abs(added).max()


class TestLeakLemma:
    """Reference tokens that hold `drift` of the other sign pull the mean of all ones towards them."""

    @pytest.mark.parametrize("gain", [4.0, 20.0])
    @pytest.mark.parametrize("seen", [1, 5])
    def test_it_is_attained(self, gain, seen) -> None:
        bound = leak(bank(gain), np.ones(3), np.full(3, 0.5), 0.0, 3, seen)[0]
        with mpmath.workdps(40):
            exact = 1 - softmax_mean([gain] * seen + [0.0] * 3, [1.0] * seen + [-0.5] * 3)
            assert exact <= bound <= exact * (1 + 4 * mpmath.exp(-gain) * 3 + mpmath.mpf("1e-7"))

    def test_nobody_there_to_leak(self) -> None:
        assert not leak(bank(0.0), np.ones(3), np.zeros(3), 0.0, 0).any()


# ---- the checker ----------------------------------------------------------------------------------------------------


class TestTheCheckerRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"node": [], "component": [], "read": (), "write": ()}, "outputs of shape"),
            ({"node": np.zeros((3, 1), int)}, "outputs of shape"),
            ({"component": [0]}, "array of shape"),
            ({"read": (Link("x", np.ones((4, 2))),)}, "does not fit"),
            ({"write": (Link("out", np.ones((2, 4))),)}, "does not fit"),
            ({"write": (Link(DATA, np.ones((1, 3))),)}, "is written"),
            ({"read": (Link("position", np.ones((1, 2))),)}, "tells tokens apart"),
            ({"gain": np.inf}, "not finite"),
            ({"keep_gain": np.nan}, "not finite"),
        ],
        ids=repr,
    )
    def test_what_does_not_fit(self, changes, message) -> None:
        with pytest.raises(CertificateError, match=message):
            models.with_bank(models.surround(bank(), "table", 4, "float64"), MeanBank, **changes)

    @pytest.mark.parametrize("name", ["gain", "keep_gain"])
    def test_numbers_of_another_dtype(self, name) -> None:
        with pytest.raises(CertificateError, match="not a float32"):
            models.with_bank(models.surround(bank(), "alone", 4, "float32"), MeanBank, **{name: 0.1})
