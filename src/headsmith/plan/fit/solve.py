"""Variable projection: the best keys of a table head by Gauss-Newton, its values always at their optimum.

A head with keys (alpha_k, offset_k) has weights w_k(s) = softmax_k(alpha_k s + offset_k), outputs sum_k w_k(s) v_k. For
given keys the best values are a linear least-squares problem; what is left of the targets depends on the keys alone
(Golub and Pereyra 1973). Numerator and denominator are sums of exponentials, so free keys make the head a rational
function with a free positive denominator: 3 p - 2 degrees of freedom instead of the p of a fixed grid.

Everything is in units of the asked error: targets are f / error, so a misfit of 1 is just enough. A ridge keeps the
values moderate; it is a row (ridge v_k) of the same system, so it weighs misfit and size of the values in one unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf

import numpy as np

from headsmith.core.arrays import Array

LARGEST_KEY = 1e5
FIRST_DAMPING, LEAST_DAMPING, DAMPING_FACTOR = 1e-4, 1e-14, 4.0
SMALL_STEP = 0.1


@dataclass(eq=False)
class Meter:
    """What a search may still spend: seconds of a usual processor, by counting operations, so that results repeat."""

    left: float = inf

    def spend(self, seconds: float) -> None:
        self.left -= seconds

    @property
    def empty(self) -> bool:
        return self.left <= 0.0


UNLIMITED = Meter()


@dataclass(frozen=True)
class Problem:
    """Sampled targets of the functions that share a head, of one variable or more.

    Cost: sum_f shares_f^2 ( sum_i emphasis_i^2 misfit_if^2 + ridge^2 sum_k v_kf^2 ). Emphasis belongs to points and
    shares to functions, so that all functions share one factorisation.
    """

    inputs: Array  # (points, variables + 1): variables scaled to [-1, 1], then 1
    targets: Array  # (points, functions), in units of the asked errors
    ridge: float
    emphasis: Array  # (points,): squares sum to 1
    shares: Array  # (functions,): mean square 1
    meter: Meter = UNLIMITED

    @cached_property
    def columns(self) -> Array:
        """The inputs, each variable in one piece of memory."""
        return np.ascontiguousarray(self.inputs.T)

    @cached_property
    def emphasised(self) -> Array:
        """The targets (functions, points), each point with its emphasis."""
        return np.ascontiguousarray((self.emphasis[:, None] * self.targets).T)


@dataclass(frozen=True, eq=False)
class TableHead:
    """Keys (tokens, variables + 1) with the best values for a problem, and what these leave of the targets.

    Points are the last axis of all arrays, so that sums over tokens run along memory. What is not asked for is not
    computed: a search ranks most heads by their cost, and forgets them.
    """

    problem: Problem
    keys: Array
    spanned: Array  # (tokens, points + tokens): the emphasised weights, then the ridge
    factor: Array  # (tokens + functions, points + tokens): Householder's QR of the columns of spanned, then of targets

    @property
    def tokens(self) -> int:
        return len(self.keys)

    @cached_property
    def cost(self) -> float:
        """What the targets leave below the rows of the tokens."""
        left = self.factor[self.tokens :, self.tokens :]
        functions = len(left)
        if functions == 1:
            return float(left[0, 0] * self.problem.shares[0]) ** 2
        left = left[:, :functions] * (self.problem.shares[:, None] * _triangle(functions)[:, : left.shape[1]])
        return float(np.vdot(left, left))

    @cached_property
    def values(self) -> Array:
        """(tokens, functions), in units of the asked errors."""
        tokens = self.tokens
        triangle = self.factor[:tokens, :tokens] * _triangle(tokens)
        return np.asarray(np.linalg.solve(triangle.T, self.factor[tokens:, :tokens].T))

    @cached_property
    def left(self) -> Array:
        """(functions, points + tokens): what is left of the emphasised targets, and of the ridge."""
        left = -self.values.T @ self.spanned
        left[:, : len(self.problem.emphasis)] += self.problem.emphasised
        return np.asarray(left)

    @property
    def rest(self) -> Array:
        """(functions, points + tokens): what is left, weighed as in the cost."""
        return self.problem.shares[:, None] * self.left

    @property
    def misfit(self) -> Array:
        """(functions, points): target - output."""
        return np.asarray(self.left[:, : len(self.problem.emphasis)] / self.problem.emphasis)

    @property
    def strain(self) -> float:
        """The part of the cost that is the ridge."""
        ridged = self.problem.ridge * self.problem.shares * self.values
        return float(np.vdot(ridged, ridged))

    @cached_property
    def worst(self) -> float:
        """The largest misfit at the sample points, in units of the asked error."""
        return float(np.max(np.abs(self.misfit)))


Stop = Callable[[TableHead], bool]


@lru_cache(maxsize=256)
def _triangle(size: int) -> Array:
    return np.tri(size)


def problem_of(inputs: Array, targets: Array, ridge: float, meter: Meter = UNLIMITED) -> Problem:
    """A problem with the same emphasis on every point."""
    points, functions = targets.shape
    return Problem(inputs, targets, ridge, np.full(points, points**-0.5), np.ones(functions), meter)


def softmax_weights(inputs: Array, keys: Array) -> Array:
    """w_k at every point, in the floating point of `inputs`."""
    weights = np.asarray(inputs @ keys.T)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def project(problem: Problem, keys: Array) -> TableHead:
    """The head with these keys and the values of least cost.

    QR is backward stable: what it does to the misfit is u |values|, and execution in float64 does that too. So the
    condition of the weights, often 1/u, needs no other care. The targets are more columns of the same factorisation:
    the rows of the tokens then hold what the values are solved from, those below them the cost.
    """
    tokens, points, functions = len(keys), len(problem.emphasis), len(problem.shares)
    problem.meter.spend(8e-5 + 0.8e-9 * points * tokens**2)
    scores = keys @ problem.columns
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    system = np.zeros((tokens + functions, points + tokens))
    np.multiply(scores, problem.emphasis / scores.sum(axis=0), out=system[:tokens, :points])
    np.fill_diagonal(system[:tokens, points:], problem.ridge)
    system[tokens:, :points] = problem.emphasised
    factor, _ = np.linalg.qr(system.T, mode="raw")
    return TableHead(problem, keys, system[:tokens], factor)


def slopes(head: TableHead) -> Array:
    """-d rest / d keys: (tokens * (variables + 1), functions * (points + tokens)).

    d output / d score_k = w_k (v_k - output), and the score is linear in the key. As the values follow the keys, to
    first order in the misfit the derivative is projected off the span of the weights (Kaufman 1975).
    """
    problem, points = head.problem, len(head.problem.emphasis)
    outputs = problem.targets.T - head.misfit
    pull = head.spanned[:, None, :points] * (head.values[:, :, None] - outputs)
    pull *= problem.shares[:, None]
    moved = (pull[:, None] * problem.columns[:, None]).reshape(-1, points)
    basis, _ = np.linalg.qr(head.spanned.T)
    slope = (moved @ -basis[:points]) @ basis.T
    slope[:, :points] += moved
    return np.asarray(slope.reshape(head.keys.size, -1))


def descend(head: TableHead, evaluations: int, stop: Stop = lambda head: False) -> TableHead:
    """Levenberg-Marquardt with geodesic acceleration (Transtrum and Sethna 2012), for about so many projections."""
    damping, used, history = FIRST_DAMPING, 0, [head.cost]
    while used < evaluations and not stop(head) and not head.problem.meter.empty:
        tangent = _Tangent.of(head)
        better = None
        for _ in range(20):
            candidate = tangent.step(damping)
            used += 1 if candidate is None else 2
            if candidate is not None and candidate.cost < head.cost and np.max(np.abs(candidate.keys)) < LARGEST_KEY:
                better = candidate
                break
            damping *= DAMPING_FACTOR
        if better is None:
            return head
        head, damping = better, max(damping / DAMPING_FACTOR, LEAST_DAMPING)
        history.append(head.cost)
        if len(history) > 8 and history[-1] > 0.98 * history[-9]:
            return head
    return head


@dataclass(frozen=True)
class _Tangent:
    """The linear model of a head's rest, with rows of length 1, diagonalised once for all dampings.

    Steps are in the axes of the model, in which the slopes times themselves are the spectrum.
    """

    head: TableHead
    slope: Array
    spectrum: Array
    axes: Array  # (keys, axes): what a step along an axis adds to the keys
    pull: Array  # what the rest says of each axis

    @staticmethod
    def of(head: TableHead) -> _Tangent:
        slope = slopes(head)
        head.problem.meter.spend(1e-4 + 0.4e-9 * slope.shape[1] * len(slope) ** 2)
        square = slope @ slope.T
        scale = np.sqrt(np.diagonal(square))
        scale = np.maximum(scale, 1e-8 * np.max(scale) + 1e-300)
        square /= scale
        square /= scale[:, None]
        spectrum, axes = np.linalg.eigh(square)
        axes /= scale[:, None]
        return _Tangent(head, slope, np.maximum(spectrum, 0.0), axes, axes.T @ (slope @ head.rest.ravel()))

    def step(self, damping: float) -> TableHead | None:
        """The head after one step, or None if the step is too long for its own curvature.

        With d the damped Gauss-Newton step, rest(keys + h d) = rest - h S d + h^2/2 rest''. A small h gives rest'', and
        its own damped step, S^+ rest''/2, bends d along the valley, which is narrow and curved.
        """
        problem, damped = self.head.problem, self.spectrum + damping
        step = self.pull / damped
        ahead = project(problem, self._moved(SMALL_STEP * step))
        change = self.axes.T @ (self.slope @ ahead.rest.ravel()) - self.pull + SMALL_STEP * (self.spectrum * step)
        bend = change / (SMALL_STEP**2 * damped)
        if bend @ bend > 0.75**2 * (step @ step):
            return None
        return project(problem, self._moved(step + bend))

    def _moved(self, step: Array) -> Array:
        """The keys after a step, in the gauge where they have mean 0 (softmax ignores what all keys share)."""
        keys = self.head.keys + (self.axes @ step).reshape(self.head.keys.shape)
        keys -= keys.sum(axis=0) / len(keys)
        return np.asarray(keys)


def level(head: TableHead, stop: Stop, evaluations: int = 16) -> TableHead:
    """Lawson's iteration: emphasise where the misfit is large and descend again, towards the least worst misfit.

    With keys held, emphasis^2 <- emphasis^2 |misfit| converges to the minimax values (Lawson 1961); here keys follow.
    It goes on for as long as six rounds win 3%.
    """
    best, history = head, [head.worst]
    while not stop(best) and not best.problem.meter.empty:
        problem, size = head.problem, np.abs(head.misfit)
        squares = problem.emphasis**2 * (np.max(size, axis=0) + 1e-2 * np.max(size))
        shares = problem.shares * np.sqrt(np.max(size, axis=1) / np.max(size) + 1e-2)
        problem = replace(
            problem, emphasis=np.sqrt(squares / np.sum(squares)), shares=shares / np.sqrt(np.mean(shares**2))
        )
        head = descend(project(problem, head.keys), evaluations, stop)
        best = head if head.worst < best.worst else best
        history.append(best.worst)
        if len(history) > 6 and history[-1] > 0.97 * history[-7]:
            break
    return best
