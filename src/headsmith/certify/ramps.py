"""A table head as a gate: how far its interpolation can be from the ReLU, from the stored keys and values.

If values rise with slopes, the head g rises with its argument: g' = sum_k w_k (slope_k - mean) (v_k - mean) >= 0, the
covariance of two things that rise together. The ReLU rises too, so on a cell [a, b]

    g - relu  <=  g(b) - relu(a),         g - relu  >=  g(a) - relu(b),

and g is only needed at the ends of cells. Zero is such an end.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.core.rounding import FLOAT64, upper
from headsmith.heads.softmax import exp_disturbance, moved_mean, summation_rounding

CELLS, MOST_CELLS = 512, 1 << 19
HELD = 1 << 22
"""Cells for each token and in all, and how many scores to hold at once."""


def ramp_bounds(slope: Array, offset: Array, values: Array, low: float, high: float) -> tuple[float, float]:
    """(lower, upper): head - relu lies between, for every argument in [low, high]; arrays are (tokens,).

    Raises CertificateError unless values rise with slopes and the interval is bounded.
    """
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise CertificateError(f"what a ramp head reads ranges over [{low}, {high}], which is no bounded interval")
    return _bounds(slope.tobytes(), offset.tobytes(), values.tobytes(), float(low), float(high))


@lru_cache(maxsize=1024)
def _bounds(slope: bytes, offset: bytes, values: bytes, low: float, high: float) -> tuple[float, float]:
    steep, shift, held = (np.frombuffer(each) for each in (slope, offset, values))
    order = np.argsort(steep, kind="stable")
    if np.any(np.diff(held[order]) < 0.0):
        raise CertificateError("the values of a ramp head must rise with its slopes")
    sides = [(a, b) for a, b in ((low, min(high, 0.0)), (max(low, 0.0), high)) if a <= b]
    worst = [_side(steep, shift, held, a, b) for a, b in sides]
    return min(below for below, _ in worst), max(above for _, above in worst)


def _side(slope: Array, offset: Array, values: Array, low: float, high: float) -> tuple[float, float]:
    cells = min(CELLS * len(slope), MOST_CELLS)
    edges = np.linspace(low, high, cells + 1)
    parts = max(1, (cells + 1) * len(slope) // HELD)
    found = np.concatenate([_head(slope, offset, values, part) for part in np.array_split(edges, parts)])
    size = float(np.max(np.abs(slope))) * max(abs(low), abs(high)) + float(np.max(np.abs(offset)))
    disturbance = FLOAT64.gamma(6) * size + exp_disturbance(FLOAT64)
    spread = float(values.max() - values.min())
    rounding = float(moved_mean(spread, disturbance))
    rounding += float(summation_rounding(float(np.max(np.abs(values))), len(values), FLOAT64))
    gate = np.maximum(edges, 0.0)
    scale = float(np.max(np.abs(values))) + float(np.max(np.abs(gate)))
    room = float(upper(rounding + 4.0 * FLOAT64.unit_roundoff * scale, 4))
    return float(np.min(found[:-1] - gate[1:])) - room, float(np.max(found[1:] - gate[:-1])) + room


def _head(slope: Array, offset: Array, values: Array, points: Array) -> Array:
    scores = points[:, None] * slope + offset
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    return np.asarray((weights @ values) / weights.sum(axis=1))
