"""Finite scale: the same network with softmax means in place of maxima, and how far that is.

A Boltzmann head at scale b returns sum_j z_j e^(b z_j) / sum_j e^(b z_j) for the largest of k pieces z_j. With the gaps
g_j = max z - z_j >= 0 its error is sum_j g_j e^(-b g_j) / (1 + sum_j e^(-b g_j)), at most W((k - 1)/e) / b, reached
where the other k - 1 pieces are equal and b g = 1 + W((k - 1)/e). For a ReLU, {0, z}, the mean is z sigmoid(b z), the
sink head. Away from the borders of the regions the error dies exponentially: it is at most (k - 1) g e^(-b g), where
g > 1/b is the gap to the second largest piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import boltzmann_constant
from headsmith.lab.regions.levels import Level, Levels


def softened(levels: Levels, inputs: Any, scale: float) -> Array:
    """The outputs (..., outputs) of the network whose units are softmax means at this scale."""
    state = np.asarray(inputs, dtype=np.float64)
    for level in levels.levels:
        state = np.concatenate([state[..., level.carry], _soft_units(level, state, scale)], axis=-1)
    return np.asarray(state @ levels.weights.T + levels.bias)


def _soft_units(level: Level, state: Array, scale: float) -> Array:
    rows = state @ level.weights.T + level.bias
    pieces = np.concatenate([rows, np.zeros((*rows.shape[:-1], 1))], axis=-1)[..., level.row]
    best = np.maximum.reduceat(pieces, level.first, axis=-1)
    gap = best[..., level.unit] - pieces
    weight = np.exp(-scale * gap)
    missing = np.add.reduceat(weight * gap, level.first, axis=-1) / np.add.reduceat(weight, level.first, axis=-1)
    return np.asarray(best - missing)


def soft_bound(levels: Levels, scale: float) -> Array:
    """For each output a bound of |softened - exact|, everywhere.

    Guarantee: a maximum moves no more than its pieces, so e <- max over pieces of |weights| e, plus W((k - 1)/e) / b.
    """
    errors = np.zeros(len(levels.names))
    for level in levels.levels:
        rows = np.append(np.abs(level.weights) @ errors, 0.0)
        moved = np.maximum.reduceat(rows[level.row], level.first)
        own = np.array([boltzmann_constant(int(rank)) / scale for rank in np.bincount(level.unit)])
        errors = np.concatenate([errors[level.carry], moved + own])
    return np.asarray((np.abs(levels.weights) @ errors) * (1.0 + 1e-12))


@dataclass(frozen=True)
class Softness:
    """The error of one Boltzmann head over k pieces at scale b: the largest found, and the lemma's bound."""

    pieces: int
    scale: float
    found: float
    bound: float

    @property
    def attained(self) -> float:
        """Found over bound: 1 if the lemma is sharp."""
        return self.found / self.bound


def measure(pieces: int, scale: float, *, seed: int = 0, tries: int = 200) -> Softness:
    """The largest error of the softmax mean over `pieces` numbers: random gaps, then gaps that are all equal.

    Both are computed in float64 from the definition of the mean; neither knows the lemma's maximiser.
    """
    random = np.random.default_rng(seed)
    gaps = random.exponential(1.0 / scale, (tries, pieces - 1)) * random.uniform(0.0, 8.0, (tries, 1))
    worst = _errors(gaps, scale).max()
    low, high = 0.0, 40.0 / scale
    for _ in range(40):
        equal = np.linspace(low, high, 33)
        errors = _errors(np.repeat(equal[:, None], pieces - 1, axis=1), scale)
        place, worst = int(np.argmax(errors)), max(worst, float(errors.max()))
        low, high = equal[max(place - 1, 0)], equal[min(place + 1, 32)]
    return Softness(pieces, scale, float(worst), boltzmann_constant(pieces) / scale)


def _errors(gaps: Array, scale: float) -> Array:
    """max - softmax mean of the numbers 0, -gaps."""
    numbers = np.concatenate([np.zeros((len(gaps), 1)), -gaps], axis=1)
    weight = np.exp(scale * numbers)
    return np.asarray(-(weight * numbers).sum(axis=1) / weight.sum(axis=1))


@dataclass(frozen=True)
class Softening:
    """A network on points at one scale: the largest error, its bound, and the share of points above 1% of it."""

    scale: float
    found: float
    bound: float
    share_above: float


def soften(levels: Levels, points: Array, scales: Sequence[float]) -> list[Softening]:
    """How the error at the borders shrinks: the largest |softened - exact| over points, for several scales."""
    exact = levels(points)
    rows = []
    for scale in scales:
        error = np.abs(softened(levels, points, scale) - exact).max(axis=-1)
        bound = float(soft_bound(levels, scale).max())
        rows.append(Softening(float(scale), float(error.max()), bound, float(np.mean(error > 0.01 * bound))))
    return rows
