"""A search for a violation of what the kernel says of heads: of every kind, in the worst arithmetic that IEEE allows,
with reference tokens that hold what they should not, gains that are too small, values of any size.

For every data token the bound of leak and rounding holds, and for every reference token that of the spill. The search
comes near the bounds, so they are not slack.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from helpers.oracles.textbook import Rounded, stream_dense
from helpers.theorems import banks as models

from headsmith.core.rounding import PRECISIONS
from headsmith.kernel.core.arithmetic import EXP_ULPS, Interval, Upper
from headsmith.kernel.core.heads import local_errors
from headsmith.kernel.core.model import read_model
from headsmith.kernel.core.softmax import Local, Reads
from headsmith.transformer.dense import dense
from headsmith.transformer.heads import attend, boltzmann, gate, mean, move, sink, table
from headsmith.transformer.heads.scaling import split_scale
from headsmith.transformer.heads.stream import Link
from headsmith.transformer.ir import layout
from headsmith.transformer.stored import roles_data, transformer_data

PRECISION = PRECISIONS["float32"]
UNIT = PRECISION.unit_roundoff
TRIALS = 120

BOTH, OUT = (Link("x", np.eye(2)),), (Link("out", np.eye(2)),)


def number(value: float) -> float:
    return float(np.float32(value))


@dataclass(frozen=True, eq=False)
class Trial:
    """Values of at most `size` in a sequence of `tokens`; reference tokens hold at most `drift`."""

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

    def seen(self, sequence: Any, place: int) -> Any:
        return sequence[: place + 1] if self.causal else sequence


Judge = Callable[[Any, int, Any, Local], Any]
"""How much of its bound a token's output uses up: from the sequence, the place, the outputs, what the kernel says."""


def known(trial: Trial, sizes: Any, drifts: Any, roundings: Any = 1.0) -> Reads:
    """What the kernel is told of the forms that a bank reads: nothing is off but for rounding, of inputs and sums."""
    nothing, read = Upper(np.zeros(len(sizes))), (1.0 + 1e-5) * UNIT * sizes * roundings
    return Reads(Interval(-sizes, sizes), nothing, nothing, nothing, Upper(read), Upper(sizes), Upper(drifts))


def proven(model: Any, place: int, reads: Reads, *slopes: Upper) -> Local:
    """What the kernel says of a bank in the first layer, from the arrays that a file would have."""
    tensors: dict[str, Any] = {}
    stored, roles = transformer_data(model, tensors), roles_data(model, tensors)
    for layer in roles:
        for role in layer:
            tensors[role["node"]] = np.maximum(tensors[role["node"]], 0)
    with np.errstate(all="ignore"):
        found = read_model(json.loads(json.dumps(stored)), tensors, roles)
        return local_errors(found, found.layers[0][place], reads, *slopes)


def mean_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    bank = mean.MeanBank([-1, -1], [0, 1], BOTH, OUT, number(trial.rng.uniform(0, 60)), 60.0)

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        return np.abs(found - trial.seen(sequence, place).mean(axis=0)) / (local.leak + local.rounding).value

    return bank, {}, known(trial, trial.sizes, trial.drifts), (), judge


def sink_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    query, key = split_scale(np.full(2, 10.0 ** trial.rng.uniform(-2, 5) / trial.size), PRECISION)
    gains = number(trial.rng.uniform(0, 60)), number(trial.rng.uniform(0, 60))
    bank = sink.SinkBank([-1, -1], [0, 1], BOTH, OUT, query, key, *gains)

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        off, room = found - np.maximum(sequence[place], 0.0), local.leak + local.rounding
        return np.maximum(-off / (local.below + room).value, off / (local.above + room).value)

    return bank, {}, known(trial, trial.sizes, trial.drifts), (), judge


def table_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    """Two tables of one column, of one argument each."""
    rng = trial.rng
    slope = models.stored(rng.normal(0, 3, (2, 4, 1)) / trial.size, "float32")
    offset, values = (models.stored(rng.normal(0, 1, shape), "float32") for shape in ((2, 4), (2, 4, 1)))
    bank = table.TableBank([-1, -1], [0, 1], BOTH, OUT, slope, offset, values, number(rng.uniform(0, 60)), 60.0)
    slopes = Upper([[np.abs(each).max() * np.ptp(held)] for each, held in zip(slope, values, strict=True)])

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        powers = np.exp(slope[:, :, 0] * sequence[place][:, None] + offset)
        exact = (powers * values[:, :, 0]).sum(axis=1) / powers.sum(axis=1)
        return np.abs(found - exact) / (local.leak + local.rounding).value

    return bank, {"grid": 4}, known(trial, trial.sizes, trial.drifts), (slopes,), judge


def boltzmann_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    steep = 10.0 ** trial.rng.uniform(-2, 5) / trial.size
    query, key = split_scale(np.full(2, steep), PRECISION)
    gain = number(trial.rng.uniform(0, 2) * steep * trial.size + trial.rng.uniform(0, 60))
    bank = boltzmann.BoltzmannBank([-1, -1], [0, 1], BOTH, OUT, query, key, gain, 60.0)

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        seen = trial.seen(sequence, place)
        off = found - seen.max(axis=0)
        room = local.leak + local.rounding
        return np.maximum(-off / (local.below + room).value, off / (local.above + room).value)

    return bank, {}, known(trial, trial.sizes, trial.drifts), (), judge


def move_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    ends = np.arange(trial.tokens) + 1 if trial.causal else np.full(trial.tokens, trial.tokens)
    wanted = [int(trial.rng.integers(move.NOTHING, end)) for end in ends]
    bank = move.MoveBank([-1, -1], [0, 1], BOTH, OUT, "address", number(trial.rng.uniform(0.1, 60)), 60.0)

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        held = sequence[wanted[place]] if wanted[place] != move.NOTHING else np.zeros(2)
        return np.abs(found - held) / (local.leak + local.rounding).value

    more = {"positional": {"address": move.addresses(wanted, trial.tokens)}}
    return bank, more, known(trial, trial.sizes, trial.drifts), (), judge


def gate_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    """y g(x) and x g'(y)."""
    rng = trial.rng
    slope, offset = (models.stored(rng.normal(0, 3, (2, 4)) * unit, "float32") for unit in (1.0 / trial.size, 1.0))
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),)
    gains = number(rng.uniform(0, 45)), number(rng.uniform(0, 60))
    bank = gate.GateBank([-1, -1], [0, 1], read, OUT, slope, offset, *gains)
    slopes = Upper([[0.25 * trial.size * np.abs(each).max(), 1.0] for each in slope])

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        x = sequence[place]
        weights = 1.0 / (1.0 + np.exp(slope * x[:, None] + offset).sum(axis=1))
        return np.abs(found - x[::-1] * weights) / (local.leak + local.rounding).value

    return bank, {"grid": 4}, known(trial, np.full(4, trial.size), np.full(4, trial.drift)), (slopes,), judge


def attend_trial(trial: Trial) -> tuple[Any, dict[str, Any], Reads, tuple[Upper, ...], Judge]:
    """Scores x0 k0 + x1 k1 of any size, values x."""
    rng = trial.rng
    steep = 10.0 ** rng.uniform(-2, 1.5) / trial.size**2
    keys = models.stored(rng.normal(0, 1, (2, 2)) * steep, "float32")
    read = (Link("x", np.vstack([np.eye(2), keys, np.eye(2)])),)
    size = np.abs(keys).sum(axis=1) * trial.size
    gain = number(rng.uniform(0.0, 2.0) * float(trial.sizes @ size) + rng.uniform(0, 60))
    bank = attend.AttendBank([-1, -1], [0, 1], read, OUT, 2, gain, 60.0)

    def judge(sequence: Any, place: int, found: Any, local: Local) -> Any:
        seen = trial.seen(sequence, place)
        scores = seen @ keys.T @ sequence[place]
        weights = np.exp(scores - scores.max())
        return np.abs(found - weights @ seen / weights.sum()) / (local.leak + local.rounding).value

    sizes = np.concatenate([trial.sizes, size, trial.sizes])
    reads = known(trial, sizes, sizes * (trial.drift / trial.size), np.array([1.0, 1.0, 3.0, 3.0, 1.0, 1.0]))
    return bank, {}, reads, (), judge


@pytest.mark.parametrize(
    ("make", "reached"),
    [
        (mean_trial, 0.4),
        (sink_trial, 0.9),
        (table_trial, 0.3),
        (boltzmann_trial, 0.8),
        (move_trial, 0.8),
        (gate_trial, 0.8),
        (attend_trial, 0.2),
    ],
)
def test_no_bound_is_violated_and_none_is_slack(make, reached, rng) -> None:
    worst, spill = 0.0, 0.0
    for _ in range(TRIALS):
        size = 10.0 ** rng.uniform(-3, 3)
        tokens = int(rng.choice([2, 3, 5] if make is move_trial else [1, 2, 3, 5]))
        drift = float(rng.choice([0.0, 1e-4, 0.3])) * size
        trial = Trial(rng, tokens, bool(rng.integers(2)), size * (1 + 1e-6), drift * (1 + 1e-6))
        bank, more, reads, slopes, judge = make(trial)
        model = models.surround(bank, str(rng.choice(["alone", "gates", "table"])), tokens, "float32", **more)
        local = proven(model, next(n for n, each in enumerate(model.layers[0].banks) if each is bank), reads, *slopes)
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
            worst = max(worst, float(np.max(judge(sequence, place, outputs, local))))
        if len(references):
            spill = max(spill, float(np.max(np.abs(kept) / local.spilled.value)))
    assert reached <= worst <= 1.0
    assert 0.8 <= spill <= 1.0
