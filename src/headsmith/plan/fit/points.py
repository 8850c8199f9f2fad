"""Where to sample functions of one variable: dense where they are hard to resolve, and towards both ends.

The interval is cut in half until Chebyshev interpolation of degree 12 resolves the functions on every cell. A cell is
then one unit of a new variable, in which the functions and the heads that fit them have features of one size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.core.arrays import Array

DEGREE = 12
MOST_CELLS = 64
SMALLEST_CELL = 2.0**-40


def cell_edges(targets: Callable[[Array], Array], tolerance: float = 0.1) -> Array:
    """Edges of cells of [-1, 1] on which `targets` (points -> (points, functions)) are resolved to `tolerance`."""
    angles = np.pi * np.arange(DEGREE + 1) / DEGREE
    # The two highest Chebyshev coefficients, by the discrete cosine transform.
    last = np.cos(np.outer([DEGREE - 1, DEGREE], angles)) * (2.0 / DEGREE)
    last[:, [0, -1]] /= 2.0
    edges = np.array([-1.0, 1.0])
    for _ in range(40):
        left, right = edges[:-1], edges[1:]
        points = (left + right)[:, None] / 2 + np.cos(angles) * (right - left)[:, None] / 2
        sampled = targets(np.clip(points, -1.0, 1.0).ravel()).reshape(len(left), DEGREE + 1, -1)
        rough = np.max(np.abs(last @ sampled), axis=(1, 2)) > tolerance
        rough &= right - left > SMALLEST_CELL
        if not np.any(rough) or len(edges) > MOST_CELLS:
            break
        edges = np.sort(np.concatenate([edges, ((left + right) / 2)[rough]]))
    return edges


def points_of(edges: Array, count: int) -> Array:
    """So many points of [-1, 1], both ends among them: Chebyshev points of the variable in which a cell is one unit."""
    places = (1.0 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2.0 * (len(edges) - 1)
    return np.interp(places, np.arange(len(edges)), edges)


def with_ones(*variables: Any) -> Array:
    """Columns of variables, then a column of ones, in the floating point of the variables."""
    return np.stack([*variables, np.ones_like(variables[0])], axis=1)
