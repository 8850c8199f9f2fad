"""Linear programs with few variables and many rows, by an interior point: what minimax fits and dual witnesses need.

    minimise  objective . y   subject to   rows y <= limits          y free

Mehrotra's predictor and corrector on the conditions of optimality, slack s and multipliers x, both positive:

    rows y + s = limits,      rows^T x = -objective,      x s = 0.

One step costs a product of rows^T D rows, D diagonal, and a small factorisation; some twenty steps do. Nothing that is
found here is believed: fits are measured and certified, and multipliers are checked in ball arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array

MOST_STEPS = 60
CLOSE = 1e-10
"""Residuals and gap, relative to the sizes of the data, at which a solution is called one."""
NEARLY = 1e-6
"""The same, at which a search that stalls is content."""
STRIDE = 0.995
"""The part of the way to the boundary that a step goes."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The best y that was found, with the multipliers of the rows, and whether the conditions hold nearly."""

    values: Array
    multipliers: Array
    solved: bool


def smallest(objective: Array, rows: Array, limits: Array) -> Solution:
    """Minimise objective . y subject to rows y <= limits: an estimate. Rows are scaled to length 1 inside."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths = np.where(lengths > 0.0, lengths, 1.0)
    matrix, bounds = rows / lengths[:, None], limits / lengths
    y = np.zeros(matrix.shape[1])
    size = 1.0 + float(np.max(np.abs(bounds), initial=0.0))
    x, s = np.ones(len(bounds)), np.maximum(bounds, 0.1 * size)
    best = Solution(y, x / lengths, False)
    closest = np.inf
    for _ in range(MOST_STEPS):
        off, tilt = bounds - matrix @ y - s, -objective - matrix.T @ x
        gap = float(x @ s) / len(x)
        away = max(
            float(np.max(np.abs(off), initial=0.0)) / size,
            float(np.max(np.abs(tilt), initial=0.0)) / (1.0 + float(np.max(np.abs(objective)))),
            gap * len(x) / (1.0 + abs(float(objective @ y))),
        )
        if not np.isfinite(away):
            break
        if away < closest:
            closest, best = away, Solution(y, x / lengths, away <= NEARLY)
        if away <= CLOSE:
            break
        square = matrix.T @ (matrix * (x / s)[:, None])
        square[np.diag_indices_from(square)] += 1e-14 * float(np.max(np.diagonal(square)))
        try:
            system = _System(matrix, np.asarray(np.linalg.cholesky(square), dtype=np.float64), x, s, off, tilt)
        except np.linalg.LinAlgError:
            break
        _, dx, ds = system.step(-x * s)
        ahead = float((x + _reach(x, dx) * dx) @ (s + _reach(s, ds) * ds)) / len(x)
        centre = gap * (ahead / gap) ** 3
        dy, dx, ds = system.step(centre - x * s - dx * ds)
        primal, dual = min(1.0, STRIDE * _reach(x, dx)), min(1.0, STRIDE * _reach(s, ds))
        x, y, s = x + primal * dx, y + dual * dy, s + dual * ds
    return best


@dataclass(frozen=True, eq=False)
class _System:
    """Newton's equations at one point: what is left of the conditions, and the factor of rows^T (x / s) rows."""

    matrix: Array
    factor: Array
    x: Array
    s: Array
    off: Array
    tilt: Array

    def step(self, target: Array) -> tuple[Array, Array, Array]:
        """Steps of y, x and s after which x s, to first order, has moved by the target."""
        right = self.tilt - self.matrix.T @ ((target - self.x * self.off) / self.s)
        dy = np.linalg.solve(self.factor.T, np.linalg.solve(self.factor, right))
        ds = self.off - self.matrix @ dy
        return dy, (target - self.x * ds) / self.s, ds


def _reach(values: Array, step: Array) -> float:
    """How far a step may go before a value is zero, at most 1."""
    falling = step < 0.0
    return float(min(1.0, np.min(-values[falling] / step[falling], initial=np.inf)))
