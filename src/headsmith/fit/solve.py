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
from functools import cached_property
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
    def emphasised(self) -> Array:
        """The targets, each point with its emphasis."""
        return self.emphasis[:, None] * self.targets


@dataclass(frozen=True)
class Head:
    """Keys (tokens, variables + 1) with the best values for a problem, and what these leave of the targets."""

    problem: Problem
    keys: Array
    weights: Array  # (points, tokens)
    values: Array  # (tokens, functions), in units of the asked errors
    basis: Array  # (points + tokens, tokens): orthonormal, spans the emphasised weights with the ridge below
    rest: Array  # (points + tokens, functions): what is left, weighed as in the cost
    misfit: Array  # (points, functions): target - output

    @property
    def tokens(self) -> int:
        return len(self.keys)

    @cached_property
    def cost(self) -> float:
        return float(np.vdot(self.rest, self.rest))

    @property
    def strain(self) -> float:
        """The part of the cost that is the ridge."""
        ridged = self.rest[len(self.misfit) :]
        return float(np.vdot(ridged, ridged))

    @cached_property
    def worst(self) -> float:
        """The largest misfit at the sample points, in units of the asked error."""
        return float(np.max(np.abs(self.misfit)))


Stop = Callable[[Head], bool]


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


def project(problem: Problem, keys: Array) -> Head:
    """The head with these keys and the values of least cost.

    QR is backward stable: what it does to the misfit is u |values|, and execution in float64 does that too. So the
    condition of the weights, often 1/u, needs no other care.
    """
    weights = softmax_weights(problem.inputs, keys)
    points, tokens = weights.shape
    problem.meter.spend(8e-5 + 0.8e-9 * points * tokens**2)
    emphasis = problem.emphasis[:, None]
    system = np.zeros((points + tokens, tokens))
    np.multiply(emphasis, weights, out=system[:points])
    np.fill_diagonal(system[points:], problem.ridge)
    basis, triangle = np.linalg.qr(system)
    values = np.linalg.solve(triangle, basis[:points].T @ problem.emphasised)
    misfit = problem.targets - weights @ values
    rest = np.empty((points + tokens, len(problem.shares)))
    np.multiply(emphasis, misfit, out=rest[:points])
    np.multiply(values, -problem.ridge, out=rest[points:])
    rest *= problem.shares
    return Head(problem, keys, weights, values, basis, rest, misfit)


def slopes(head: Head) -> Array:
    """-d rest / d keys: ((points + tokens) * functions, tokens * (variables + 1)).

    d output / d score_k = w_k (v_k - output), and the score is linear in the key. As the values follow the keys, to
    first order in the misfit the derivative is projected off the span of the weights (Kaufman 1975).
    """
    problem, (points, tokens) = head.problem, head.weights.shape
    outputs = problem.targets - head.misfit
    pull = head.weights[:, None, :] * (head.values.T - outputs[:, :, None])
    pull *= problem.emphasis[:, None, None] * problem.shares[:, None]
    moved = (pull[:, :, :, None] * problem.inputs[:, None, None, :]).reshape(points, -1)
    slope = -(head.basis @ (head.basis[:points].T @ moved))
    slope[:points] += moved
    return np.asarray(slope.reshape(-1, tokens * problem.inputs.shape[1]))


def descend(head: Head, evaluations: int, stop: Stop = lambda head: False) -> Head:
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
    """The linear model of a head's rest, with columns of length 1, diagonalised once for all dampings."""

    head: Head
    slope: Array
    scale: Array
    spectrum: Array
    axes: Array

    @staticmethod
    def of(head: Head) -> _Tangent:
        slope = slopes(head)
        head.problem.meter.spend(1e-4 + 0.4e-9 * len(slope) * slope.shape[1] ** 2)
        scale = np.sqrt(np.einsum("ij,ij->j", slope, slope))
        scale = np.maximum(scale, 1e-8 * np.max(scale) + 1e-300)
        slope /= scale
        spectrum, axes = np.linalg.eigh(slope.T @ slope)
        return _Tangent(head, slope, scale, np.maximum(spectrum, 0.0), axes)

    @cached_property
    def pull(self) -> Array:
        """What the rest says of each key."""
        return np.asarray(self.slope.T @ self.head.rest.ravel())

    def step(self, damping: float) -> Head | None:
        """The head after one step, or None if the step is too long for its own curvature.

        With d the damped Gauss-Newton step, rest(keys + h d) = rest - h S d + h^2/2 rest''. A small h gives rest'', and
        its own damped step, S^+ rest''/2, bends d along the valley, which is narrow and curved.
        """
        head, rest = self.head, self.head.rest.ravel()
        inverse = (self.axes / (self.spectrum + damping)) @ self.axes.T
        step = inverse @ self.pull
        ahead = project(head.problem, self._moved(SMALL_STEP * step))
        curvature = 2.0 / SMALL_STEP**2 * (ahead.rest.ravel() - rest + SMALL_STEP * (self.slope @ step))
        bend = 0.5 * (inverse @ (self.slope.T @ curvature))
        if np.linalg.norm(bend) > 0.75 * np.linalg.norm(step):
            return None
        return project(head.problem, self._moved(step + bend))

    def _moved(self, step: Array) -> Array:
        """The keys after a step, in the gauge where they have mean 0 (softmax ignores what all keys share)."""
        keys = self.head.keys + (step / self.scale).reshape(self.head.keys.shape)
        keys -= keys.sum(axis=0) / len(keys)
        return np.asarray(keys)


def level(head: Head, stop: Stop, evaluations: int = 16) -> Head:
    """Lawson's iteration: emphasise where the misfit is large and descend again, towards the least worst misfit.

    With keys held, emphasis^2 <- emphasis^2 |misfit| converges to the minimax values (Lawson 1961); here keys follow.
    It goes on for as long as six rounds win 3%.
    """
    best, history = head, [head.worst]
    while not stop(best) and not best.problem.meter.empty:
        problem, size = head.problem, np.abs(head.misfit)
        squares = problem.emphasis**2 * (np.max(size, axis=1) + 1e-2 * np.max(size))
        shares = problem.shares * np.sqrt(np.max(size, axis=0) / np.max(size) + 1e-2)
        problem = replace(
            problem, emphasis=np.sqrt(squares / np.sum(squares)), shares=shares / np.sqrt(np.mean(shares**2))
        )
        head = descend(project(problem, head.keys), evaluations, stop)
        best = head if head.worst < best.worst else best
        history.append(best.worst)
        if len(history) > 6 and history[-1] > 0.97 * history[-7]:
            break
    return best
