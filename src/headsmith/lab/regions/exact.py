"""The oracle: signs, points and maps as rationals, asked where float64 cannot decide.

A cell's activation pattern says which piece every unit of the levels before took. With it, every form of the next level
is an affine form of the coordinates with rational coefficients; a vertex is where d such forms (or ends of the box)
vanish. Everything is integers over a common power of two.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.integers import Row, Scaled, from_rows, meet, nearest_double, power_of_two, scaled, sign_at
from headsmith.lab.regions.complex import ROW, STAGE
from headsmith.lab.regions.levels import ZERO, Level, Levels

Name = tuple[int, bytes]
"""A plane: its code, and the activation pattern on the levels before its own for which it holds."""
Vertex = tuple[Name, ...]
"""The names of d planes that meet in one point."""

REMEMBERED = 50_000


@dataclass(eq=False)
class Oracle:
    """Answers about one network on one slice; `placement` (inputs, d + 1) maps the coordinates to the inputs."""

    levels: Levels
    placement: Array
    low: Array
    high: Array
    asked: int = 0
    _ends: list[int] = field(init=False)
    _weights: dict[int, Scaled] = field(default_factory=dict)
    _states: dict[Hashable, Scaled] = field(default_factory=dict)
    _rows: dict[Hashable, list[Row]] = field(default_factory=dict)
    _points: dict[Hashable, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # How many bytes of a pattern belong to the levels before each level.
        self._ends = np.cumsum([0, *(2 * level.units for level in self.levels.levels)]).tolist()

    def sign(self, form: Name, vertex: Vertex) -> int:
        """The sign of a form at a vertex."""
        self.asked += 1
        return sign_at(self.plane(form), self.point(vertex))

    def point(self, vertex: Vertex) -> Row:
        """The vertex (X, W), standing for X / W, where these planes meet."""
        if vertex not in self._points:
            _bounded(self._points)
            self._points[vertex] = meet([self.plane(each) for each in vertex])
        return self._points[vertex]

    def nearest(self, vertex: Vertex) -> list[float]:
        """A vertex in the nearest doubles."""
        *point, scale = self.point(vertex)
        return [nearest_double(entry, scale) for entry in point]

    def plane(self, name: Name) -> Row:
        """The affine form that vanishes on a plane, as integers (up to one common power of two)."""
        code, key = name
        if code < 0:
            axis, end = divmod(-1 - code, 2)
            numerator, denominator = float((self.low, self.high)[end][axis]).as_integer_ratio()
            row = [0] * (len(self.low) + 1)
            row[axis], row[-1] = denominator, -numerator
            return from_rows([row], 0).rows[0]
        rows = self.rows(code >> STAGE, key)
        high, low = (code >> ROW) % (1 << ROW) - 1, code % (1 << ROW) - 1
        if low == ZERO:
            return rows[high]
        if high == ZERO:
            return [-entry for entry in rows[low]]
        return [up - down for up, down in zip(rows[high], rows[low], strict=True)]

    def rows(self, stage: int, key: bytes) -> list[Row]:
        """The rows of a level, or of the read-out, as affine forms (up to one common power of two)."""
        key = key[: self._ends[stage]]
        if (stage, key) not in self._rows:
            _bounded(self._rows)
            self._rows[stage, key] = (self._weight(stage) @ self._state(stage, key)).rows
        return self._rows[stage, key]

    def _weight(self, stage: int) -> Scaled:
        if stage not in self._weights:
            source: Level | Levels = self.levels.levels[stage] if stage < len(self.levels.levels) else self.levels
            self._weights[stage] = scaled(np.column_stack([source.weights, source.bias]))
        return self._weights[stage]

    def _state(self, stage: int, key: bytes) -> Scaled:
        """The state before a level as rows of affine forms; the last row is the constant one."""
        if (stage, key) in self._states:
            return self._states[stage, key]
        if stage == 0:
            one = np.zeros((1, self.placement.shape[1]))
            one[0, -1] = 1.0
            state = scaled(np.concatenate([self.placement, one]))
        else:
            level = self.levels.levels[stage - 1]
            before = key[: self._ends[stage - 1]]
            winners = np.frombuffer(key[self._ends[stage - 1] :], dtype=np.uint16)[: level.units]
            state = self._after(level, stage - 1, before, winners)
        _bounded(self._states)
        self._states[stage, key] = state
        return state

    def _after(self, level: Level, stage: int, before: bytes, winners: Any) -> Scaled:
        old, weight = self._state(stage, before), self._weight(stage)
        rows, old_rows = self.rows(stage, before), old.rows
        shift = power_of_two(weight.exponent)
        zero = [0] * len(old_rows[0])
        carried = [[entry * shift for entry in old_rows[place]] for place in [*level.carry.tolist(), -1]]
        chosen = level.row[level.first + winners].tolist()
        units = [zero if row == ZERO else rows[row] for row in chosen]
        return from_rows(carried[:-1] + units + carried[-1:], old.exponent + weight.exponent)


def _bounded(memory: dict[Hashable, Any]) -> None:
    if len(memory) >= REMEMBERED:
        memory.clear()
