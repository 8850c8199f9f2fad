"""Piecewise linear functions of x, several on the same knots sharing one node of gates.

With slopes s_i on [t_i, t_{i+1}], jumps d_i = s_i - s_{i-1}, and any piece k:
    out = y_k + s_k (x - t_k) + sum_{i <= k} d_i max(t_i - x, 0) + sum_{i > k} d_i max(x - t_i, 0),
since going left from piece k the slope changes by -d_i at t_i. With k a flat piece, gates with large weights see small
arguments (the root near 0), and rounding stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import column


@dataclass(frozen=True, eq=False)
class Knots:
    """Knots with their gates (None where there are no inner knots), which look away from the piece `pivot`."""

    places: Array
    pivot: int
    gates: int | None


def place_knots(builder: Builder, places: Array, heights: Array) -> Knots:
    """The gates of all inner knots, as one node; the pivot is the flattest piece of the polygon through `heights`."""
    slopes = np.diff(heights) / np.diff(places)
    pivot = int(np.argmin(np.abs(slopes)))
    if len(places) == 2:
        return Knots(places, pivot, None)
    side = np.where(np.arange(1, len(places) - 1) <= pivot, -1.0, 1.0)
    return Knots(places, pivot, builder.relu(column(builder, [(builder.input, side)], -side * places[1:-1])))


def polygon(builder: Builder, knots: Knots, heights: Array) -> tuple[list[tuple[int, Any]], float]:
    """Terms and bias of the piecewise linear function through (knots, heights)."""
    slopes = np.diff(heights) / np.diff(knots.places)
    slope, height = slopes[knots.pivot], heights[knots.pivot]
    terms: list[tuple[int, Any]] = [(builder.input, slope)]
    if knots.gates is not None:
        terms.append((knots.gates, np.diff(slopes)))
    return terms, float(height - slope * knots.places[knots.pivot])
