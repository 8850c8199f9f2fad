"""The falsifier of models that map token by token: looks for the input where one is furthest from its target.

It tries

    random points, corners      the box as a whole
    kinks                       zeros of gate arguments, met along random segments: a sink head errs most beside them
    vertices                    several gates at once beside their zeros, by Newton's method on their arguments
    aimed                       the same, for gates whose heads move an output the same way
    ascent                      from the worst points so far, random steps that shrink when they fail

The target is evaluated in extended precision where the network is small; the worst points always are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.language.evaluation import evaluate
from headsmith.model import Compiled
from headsmith.report.found import Found, fitting_dtype, over
from headsmith.report.kinks import aimed, crossings, kinks_of, vertices

CHAINS = 32
"""How many points climb side by side."""


def falsify_points(compiled: Compiled, *, effort: int = 4000, seed: int = 0) -> Found:
    """Search for the worst input with about `effort` runs of the model on single points."""
    search = _PointSearch(compiled, effort, seed)
    search.scatter(effort // 8)
    search.corners(effort // 8)
    search.beside_kinks(effort // 4)
    search.at_vertices(effort // 8)
    search.aimed(effort // 8)
    search.ascend(effort - search.evaluations)
    return search.found()


def errors_at(compiled: Compiled, points: Any, dtype: Any = None, *, causal: bool = False) -> Array:
    """|model - target| at `points` (..., inputs), one column for each output. Estimates.

    The target is evaluated in floating point of `dtype`: by default extended precision for small networks, float64 for
    others. A model of several tokens runs the points as sequences: along their last axis but one, or, for a plain list
    of points, packed into short sequences.
    """
    points = np.asarray(points, dtype=np.float64)
    dtype = dtype or fitting_dtype(compiled.wanted)
    length = min(compiled.transformer.tokens, 16)
    packed = points
    if compiled.transformer.tokens > 1 and points.ndim == 2:
        sequences = -(-len(points) // length)
        packed = np.resize(points, (sequences, length, points.shape[-1]))
    outputs = compiled(packed, causal=causal)
    outputs = outputs.reshape(-1, outputs.shape[-1])[: points[..., 0].size].reshape(*points.shape[:-1], -1)
    target = evaluate(compiled.wanted, points, dtype)
    return np.asarray(np.abs(outputs.astype(dtype) - target), dtype=np.float64)


class _PointSearch:
    """The points tried so far: only the worst are kept."""

    def __init__(self, compiled: Compiled, effort: int, seed: int) -> None:
        self.compiled, self.effort = compiled, effort
        self.low, self.high = np.asarray(compiled.box.low), np.asarray(compiled.box.high)
        self.width = self.high - self.low
        self.random = np.random.default_rng(seed)
        self.kinks = kinks_of(compiled)
        self.dtype = fitting_dtype(compiled.wanted)
        self.evaluations = 0
        self.ratio = 0.0
        self.points = np.empty((0, compiled.box.size))
        self.scores = np.empty(0)

    def scatter(self, count: int) -> None:
        """Random points, and the middle of the box."""
        middle = self.low + 0.5 * self.width
        self._try(np.vstack([middle[None], self._inside(count)]))

    def corners(self, count: int) -> None:
        """All corners of a box of few inputs, random ones of others."""
        size = self.compiled.box.size
        if 2**size <= count:
            upper = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
        else:
            upper = self.random.integers(0, 2, (count, size))
        self._try(np.where(upper == 1, self.high, self.low))

    def beside_kinks(self, count: int) -> None:
        """Points on both sides of single kinks."""
        if len(self.kinks):
            found = crossings(self.kinks, self._inside(count), self._inside(count), count, self.random)
            self._try(self._clipped(found))

    def at_vertices(self, count: int) -> None:
        """Points beside as many kinks as there are inputs."""
        if len(self.kinks) and self.compiled.box.size <= 32:
            self._try(vertices(self.kinks, self._inside(count), self.low, self.high, self.random))

    def aimed(self, count: int) -> None:
        """Points beside many kinks that move an output the same way: each costs as much as several runs."""
        size, outputs = self.compiled.box.size, self.compiled.transformer.outputs
        if len(self.kinks) > 1 and size <= 128 and count >= 8:
            starts = self._inside(count // 4)
            self._try(aimed(self.kinks, starts, self.low, self.high, outputs, self.random))

    def ascend(self, count: int) -> None:
        """Climb from the worst points: steps along one or all coordinates, doubled on success and shrunk on failure."""
        chains = min(CHAINS, len(self.points), max(1, count // 8))
        points, scores = self.points[:chains].copy(), self.scores[:chains].copy()
        steps = 10.0 ** self.random.uniform(-6.0, -1.0, chains)
        for _ in range(count // chains):
            directions = self.random.standard_normal(points.shape)
            single = self.random.random(chains) < 0.5
            chosen = self.random.integers(0, points.shape[1], chains)
            directions[single] *= np.arange(points.shape[1]) == chosen[single, None]
            moved = self._clipped(points + steps[:, None] * directions * self.width)
            found = self._try(moved)
            better = found > scores
            points[better], scores[better] = moved[better], found[better]
            steps = np.where(better, 2.0 * steps, 0.7 * steps)
            # A chain whose steps have vanished starts again with a fresh length.
            lost = steps < 1e-12
            steps[lost] = 10.0 ** self.random.uniform(-8.0, -1.0, int(lost.sum()))

    def found(self) -> Found:
        """The worst point, measured again in extended precision."""
        errors = errors_at(self.compiled, self.points[:4], np.longdouble)
        where, output = np.unravel_index(int(np.argmax(errors)), errors.shape)
        error = float(errors[where, output])
        certified = self.compiled.certificate.error
        ratio = float(np.max(over(errors, np.array(self.compiled.certificate.outputs))))
        # Extended precision has the last word where the search itself compared in float64.
        ratio = max(ratio, self.ratio) if self.dtype is np.longdouble else ratio
        tightness = float(over(np.array(error), np.array(certified)))
        return Found(error, self.points[where], int(output), tightness, ratio, self.evaluations)

    def _inside(self, count: int) -> Array:
        return np.asarray(self._clipped(self.low + self.width * self.random.random((count, len(self.low)))))

    def _clipped(self, points: Array) -> Array:
        return np.asarray(np.clip(points, self.low, self.high))

    def _try(self, points: Array) -> Array:
        """Measure `points`, remember the worst, return each point's largest error."""
        if not len(points):
            return np.empty(0)
        errors = errors_at(self.compiled, points, self.dtype)
        self.evaluations += len(points)
        self.ratio = max(self.ratio, float(np.max(over(errors, np.array(self.compiled.certificate.outputs)))))
        scores = np.asarray(errors.max(axis=1))
        points, all_scores = np.vstack([self.points, points]), np.concatenate([self.scores, scores])
        order: Indices = np.argsort(-all_scores, kind="stable")[:CHAINS]
        self.points, self.scores = points[order], all_scores[order]
        return scores
