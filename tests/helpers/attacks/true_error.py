"""The true error of a model, from below: dense points, local refinement, and an oracle of fifty digits in the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.language.evaluation import evaluate
from headsmith.model import Compiled
from helpers.oracles.precise import error_at, precise

KEPT = 24
"""How many of the worst points are followed, and asked of the oracle."""


def true_error(model: Compiled, points: int = 4000, rounds: int = 8) -> float:
    """The largest |run - target| over all outputs that was found, on a model of one data token."""
    rng = np.random.default_rng(3)
    low, high = model.box.low, model.box.high
    angles = np.linspace(0.0, np.pi, points)
    if model.box.size == 1:
        shares = np.concatenate([0.5 - 0.5 * np.cos(angles), np.linspace(0.0, 1.0, points)])[:, None]
    else:
        # Errors of products are worst on faces and corners: a third of the points has each coordinate there.
        shares = 0.5 - 0.5 * np.cos(np.pi * rng.random((8 * points, model.box.size)))
        ends = rng.random(shares.shape) < np.repeat([0.0, 0.4, 0.8], -(-len(shares) // 3))[: len(shares), None]
        shares = np.where(ends, np.round(shares), shares)
    found = np.clip(low + (high - low) * shares, low, high)
    errors = _errors(model, found)
    width = 4.0 / points ** (1.0 / model.box.size)
    for _ in range(rounds):
        best = found[np.argsort(errors)[-KEPT:]]
        moves = width * (high - low) * rng.uniform(-1.0, 1.0, (40, *best.shape))
        moves[::2] *= rng.random(moves[::2].shape) < 0.5
        found = np.clip(np.concatenate([best[None], best + moves]), low, high).reshape(-1, len(low))
        errors = _errors(model, found)
        width *= 0.4
    last = found[np.argsort(errors)[-KEPT:]]
    return float(max(error_at(model(point[None]), precise(model.graph, point[None])).max() for point in last))


def _errors(model: Compiled, points: Any) -> Any:
    """Good to about 1e-18 of the values: enough to find the worst points."""
    wanted = evaluate(model.graph, points, np.longdouble)
    return np.abs(model(points) - wanted).max(axis=1).astype(np.float64)
