"""A search for a violation: mixing heads in the worst arithmetic that the standard model allows, with reference tokens
that hold what they should not, gains that are too small, values of any size.

For every data token the bound of leak and rounding holds, and for every reference token that of the spill. The search
comes near the bounds, so they are not slack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import bank_models as models
import numpy as np
import pytest
from dense_reference import Rounded, stream_dense

from headsmith.core.rounding import EXP_ULPS, PRECISIONS
from headsmith.heads import attend, boltzmann, gate, mean, move
from headsmith.heads.sink import split_scale
from headsmith.heads.softmax import spilled
from headsmith.heads.stream import Link
from headsmith.transformer.dense import dense
from headsmith.transformer.ir import layout

PRECISION = PRECISIONS["float32"]
UNIT = PRECISION.unit_roundoff
TRIALS = 120

BOTH, OUT = (Link("x", np.eye(2)),), (Link("out", np.eye(2)),)


def number(value: float) -> float:
    return float(np.float32(value))


@dataclass(frozen=True, eq=False)
class Trial:
    """Values of at most `size` in a sequence of `tokens`, off by `reads`; reference tokens hold at most `drift`."""

    rng: Any
    tokens: int
    causal: bool
    size: float
    drift: float

    @property
    def sizes(self) -> Any:
        return np.full(2, self.size)

    @property
    def drifts(self) -> Any:
        return np.full(2, self.drift)

    @property
    def reads(self) -> Any:
        return np.full(2, 3.0 * UNIT * self.size)

    def seen(self, sequence: Any, place: int) -> Any:
        return sequence[: place + 1] if self.causal else sequence


Judge = Callable[[Any, int, Any, Any], Any]
"""How much of its bound a token's output uses up: from the sequence, the place, the outputs, the model."""


def mean_trial(trial: Trial) -> tuple[Any, dict[str, Any], Judge]:
    bank = mean.MeanBank([-1, -1], [0, 1], BOTH, OUT, number(trial.rng.uniform(0, 60)), 60.0)

    def judge(sequence: Any, place: int, found: Any, model: Any) -> Any:
        d, count = mean.score_disturbance(bank, PRECISION), trial.tokens + model.reference_tokens
        bound = mean.leak(bank, trial.sizes, trial.drifts, d, model.reference_tokens)
        bound = bound + mean.output_rounding(trial.sizes, d, PRECISION, count) + 3.0 * trial.reads
        return np.abs(found - trial.seen(sequence, place).mean(axis=0)) / bound

    return bank, {}, judge


def boltzmann_trial(trial: Trial) -> tuple[Any, dict[str, Any], Judge]:
    steep = 10.0 ** trial.rng.uniform(-2, 5) / trial.size
    query, key = split_scale(np.full(2, steep), PRECISION)
    gain = number(trial.rng.uniform(0, 2) * steep * trial.size + trial.rng.uniform(0, 60))
    query = query * trial.rng.choice([-1.0, 1.0], 2)
    bank = boltzmann.BoltzmannBank([-1, -1], [0, 1], BOTH, OUT, query, key, gain, 60.0)

    def judge(sequence: Any, place: int, found: Any, model: Any) -> Any:
        scale, seen = query * key, trial.seen(sequence, place)
        tops = (scale * seen).max(axis=0)
        d = boltzmann.score_disturbance(bank, trial.sizes, trial.reads, PRECISION)
        lowest = tops - 1e-12 * np.abs(tops)
        room = boltzmann.leak(bank, lowest, trial.sizes, trial.drifts, d, model.reference_tokens)
        count = trial.tokens + model.reference_tokens
        room = room + boltzmann.output_rounding(trial.sizes, trial.reads, PRECISION, count) + 2.0 * trial.reads
        missed = np.sign(scale) * (np.where(scale > 0, seen.max(axis=0), seen.min(axis=0)) - found)
        return np.maximum(-missed / room, missed / (boltzmann.boltzmann_error(scale, len(seen), d) + room))

    return bank, {}, judge


def move_trial(trial: Trial) -> tuple[Any, dict[str, Any], Judge]:
    ends = np.arange(trial.tokens) + 1 if trial.causal else np.full(trial.tokens, trial.tokens)
    wanted = [int(trial.rng.integers(move.NOTHING, end)) for end in ends]
    bank = move.MoveBank([-1, -1], [0, 1], BOTH, OUT, "address", number(trial.rng.uniform(0.1, 60)), 60.0)

    def judge(sequence: Any, place: int, found: Any, model: Any) -> Any:
        d = move.score_disturbance(bank, trial.tokens, PRECISION)
        bound = move.leak(bank, trial.sizes, trial.drifts, d, trial.tokens, model.reference_tokens)
        largest = np.maximum(trial.sizes, trial.drifts)
        bound = bound + move.output_rounding(largest, PRECISION, trial.tokens + model.reference_tokens)
        held = sequence[wanted[place]] if wanted[place] != move.NOTHING else np.zeros(2)
        return np.abs(found - held) / (bound + 3.0 * trial.reads)

    return bank, {"positional": {"address": move.addresses(wanted, trial.tokens)}}, judge


def gate_trial(trial: Trial) -> tuple[Any, dict[str, Any], Judge]:
    """y g(x) and x g'(y)."""
    rng = trial.rng
    slope, offset = (models.stored(rng.normal(0, 3, (2, 4)) * unit, "float32") for unit in (1.0 / trial.size, 1.0))
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),)
    gains = number(rng.uniform(0, 45)), number(rng.uniform(0, 60))
    bank = gate.GateBank([-1, -1], [0, 1], read, OUT, slope, offset, *gains)

    def judge(sequence: Any, place: int, found: Any, model: Any) -> Any:
        d = gate.score_disturbance(bank, trial.sizes, trial.reads, PRECISION, trial.tokens)
        count = trial.tokens + model.reference_tokens
        bound = gate.leak(bank, trial.sizes, trial.drifts, d, trial.tokens)
        bound = bound + gate.output_rounding(trial.sizes, trial.reads, d, PRECISION, count) + 2.0 * trial.reads
        x = sequence[place]
        weights = 1.0 / (1.0 + np.exp(slope * x[:, None] + offset).sum(axis=1))
        return np.abs(found - x[::-1] * weights) / bound

    return bank, {"grid": 4}, judge


def pulled(trial: Trial, bank: attend.AttendBank) -> float:
    """What drifted queries do to the scores of reference tokens."""
    keys = np.abs(bank.read[0].weights[bank.parts[1]]).sum(axis=1)
    return attend.reference_pull(bank, attend.largest_score(trial.drifts, keys * (trial.size + trial.drift)), PRECISION)


def attend_trial(trial: Trial) -> tuple[Any, dict[str, Any], Judge]:
    """Scores x0 k0 + x1 k1 of any size, values x."""
    rng = trial.rng
    steep = 10.0 ** rng.uniform(-2, 1.5) / trial.size**2
    keys = models.stored(rng.normal(0, 1, (2, 2)) * steep, "float32")
    read = (Link("x", np.vstack([np.eye(2), keys, np.eye(2)])),)
    size = np.abs(keys).sum(axis=1) * trial.size
    largest = attend.largest_score(trial.sizes, size)
    gain = number(rng.uniform(0.0, 2.0) * largest + rng.uniform(0, 60))
    bank = attend.AttendBank([-1, -1], [0, 1], read, OUT, 2, gain, 60.0)

    def judge(sequence: Any, place: int, found: Any, model: Any) -> Any:
        reads = 3.0 * UNIT * size
        d = attend.score_disturbance(trial.sizes, size, PRECISION)
        d += attend.moved_scores(trial.sizes, size, trial.reads, reads)
        drifted = np.abs(keys).sum(axis=1) * trial.drift
        pull = attend.largest_score(trial.sizes, drifted)
        references = model.reference_tokens
        room = attend.leak(bank, largest, pull, trial.sizes, trial.drifts, d, references, PRECISION)
        room = room + attend.output_rounding(2.0 * trial.sizes, trial.sizes, d, PRECISION, trial.tokens + references)
        seen = trial.seen(sequence, place)
        scores = seen @ keys.T @ sequence[place]
        weights = np.exp(scores - scores.max())
        return np.abs(found - weights @ seen / weights.sum()) / (room + 3.0 * trial.reads)

    return bank, {}, judge


@pytest.mark.parametrize(
    ("make", "reached"),
    [(mean_trial, 0.8), (boltzmann_trial, 0.95), (move_trial, 0.8), (gate_trial, 0.8), (attend_trial, 0.5)],
)
def test_no_bound_is_violated_and_none_is_slack(make, reached, rng) -> None:
    worst, spill = 0.0, 0.0
    for _ in range(TRIALS):
        size = 10.0 ** rng.uniform(-3, 3)
        tokens = int(rng.choice([2, 3, 5] if make is move_trial else [1, 2, 3, 5]))
        drift = float(rng.choice([0.0, 1e-4, 0.3])) * size
        trial = Trial(rng, tokens, bool(rng.integers(2)), size * (1 + 1e-6), drift * (1 + 1e-6))
        bank, more, judge = make(trial)
        model = models.surround(bank, str(rng.choice(["alone", "gates", "table"])), tokens, "float32", **more)
        sequence = models.stored(rng.uniform(-1, 1, (tokens, 2)) * size * rng.choice([1, 1e-3], (tokens, 1)), "float32")
        columns, written = layout(model), dense(model)
        references = written.references.copy()
        held = rng.choice([-1.0, 0.5, 1.0], (len(references), 2)) * drift
        references[:, columns["x"]] = models.stored(held, "float32")
        push = str(rng.choice(["up", "down", "in", "out", "random"]))
        written = replace(written, references=references, layers=written.layers[:1])
        arithmetic = Rounded(UNIT, 2 * EXP_ULPS, push, rng)
        stream = np.array(stream_dense(written, sequence, arithmetic, causal=trial.causal))[:, columns["out"]]
        kept, found = stream[: len(references)], stream[len(references) :]
        for place, outputs in enumerate(found):
            worst = max(worst, float(np.max(judge(sequence, place, outputs, model))))
        if len(references):
            drawn = pulled(trial, bank) if isinstance(bank, attend.AttendBank) else 0.0
            room = spilled(trial.sizes, trial.drifts, bank.keep_gain, tokens, len(references), PRECISION, drawn)
            spill = max(spill, float(np.max(np.abs(kept) / (room + 3.0 * trial.reads))))
    assert reached <= worst <= 1.0
    assert 0.8 <= spill <= 1.0
