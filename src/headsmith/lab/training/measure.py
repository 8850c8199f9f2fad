"""What is measured of trained weights, and what theory says before training starts.

    largest error     on a dense test set, and by random ascent from its worst points: an estimate from below
    same circuit      the total variation between the attention patterns of two models, averaged over inputs, tokens,
                      heads and layers, at the numbering of reference tokens that makes it least. It does not change
                      when weights are scaled or registers rotated, as distances between weights do
    sharpness         the largest eigenvalue of (2/N) J^T J, which is the Hessian of the mean square where residuals
                      vanish. Gradient descent of rate eta leaves every minimum whose curvature is above 2 / eta

Kick lemma. Adam's first step is theta - eta g / (|g| + eps), a step of eta in every coordinate that has a gradient:
    to first order the output at x moves by eta J(x) . sign(g), at most eta |J(x)|_1. So a certificate E cannot survive
    steps of sum eta_t > E / max_x |J(x)|_1 unless they cancel, and it does survive (to first order) shorter ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lab.training.optimise import EPSILON, Problem
from headsmith.lab.training.points import Field, Points
from headsmith.lab.training.students import Attention, Tensor, torch_module

SAME, MIRRORED = 0.05, 0.95
"""Pattern distances up to the first are the same circuit; from the second on, tokens have changed roles."""


CLIMBERS, ROUNDS = 16, 60
"""How many points climb side by side, and how often they step."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Of each run the largest error that a search finds, the input (m, inputs) where, and the root of the mean square
    on the test set: estimates."""

    largest: Array
    where: Array
    rms: Array


def largest_errors(problem: Problem, field: Field, weights: Tensor, test: Points) -> Errors:
    """What the test set and a random ascent from its worst points find."""
    torch = torch_module()
    with torch.no_grad():
        found = torch.cat([problem.residuals(weights, part) for part in _parts(test)], dim=1)
    worst = torch.nan_to_num(found.abs(), nan=np.inf).unflatten(1, (len(test), -1)).amax(2)
    tops, places = (each.numpy() for each in worst.topk(CLIMBERS, dim=1))
    squares = (found * found).mean(1).sqrt().numpy()
    random, width = np.random.default_rng(3), field.high - field.low
    points = test.x[places]  # (runs, climbers, m, inputs)
    steps = 10.0 ** random.uniform(-5.0, -2.0, tops.shape)
    for _ in range(ROUNDS):
        moved = points + steps[..., None, None] * width * random.standard_normal(points.shape)
        moved = np.clip(moved, field.low, field.high)
        wanted = field.at(moved.reshape(-1, *points.shape[2:])).y.reshape(*points.shape[:3], -1)
        with torch.no_grad():
            got = problem.student.outputs(weights, torch.from_numpy(moved)).numpy()
        errors = np.abs(got - wanted).max((2, 3))
        better = errors > tops  # what is no number stays as it is
        tops, points = np.where(better, errors, tops), np.where(better[..., None, None], moved, points)
        steps = np.where(better, 2.0 * steps, 0.7 * steps)
    best = tops.argmax(1)
    return Errors(tops.max(1), points[np.arange(len(points)), best], squares)


def _parts(points: Points, size: int = 30_000) -> list[Points]:
    return [Points(points.x[at : at + size], points.y[at : at + size]) for at in range(0, len(points), size)]


def largest_score(student: Attention, weights: Tensor, points: Points) -> Array:
    """The largest score of each run, in absolute value, on these points."""
    torch = torch_module()
    with torch.no_grad():
        _, scores = student.run(weights, torch.from_numpy(points.x))
    return np.asarray(torch.stack([each.abs().flatten(1).amax(1) for each in scores]).amax(0).numpy())


def sharpness(problem: Problem, weights: Tensor) -> Array:
    """The largest eigenvalue of (2/N) J^T J of each run."""
    torch = torch_module()
    rows = problem.jacobian(weights)
    values = torch.linalg.eigvalsh(torch.nan_to_num(rows.mT @ rows))
    return np.asarray((2.0 / rows.shape[1] * values[:, -1]).numpy())


def pattern_distances(student: Attention, weights: Tensor, reference: Tensor, points: Points) -> Array:
    """How far the attention patterns of each run are from those of `reference` (1, P): between 0 and 1."""
    torch = torch_module()
    x = torch.from_numpy(points.x)
    with torch.no_grad():
        mine, other = ([each.softmax(-1) for each in student.run(held, x)[1]] for held in (weights, reference))
    p, found = student.references, []
    for run in range(len(weights)):
        parts = [
            (one[run].reshape(-1, one.shape[-1]), two[0].reshape(-1, two.shape[-1]))
            for one, two in zip(mine, other, strict=True)
        ]
        count = sum(len(one) for one, _ in parts)
        cost = sum((one[:, :p, None] - two[:, None, :p]).abs().sum(0) for one, two in parts) if p else torch.zeros(0, 0)
        rest = sum(float((one[:, p:] - two[:, p:]).abs().sum()) for one, two in parts)
        found.append(0.5 * (assigned(np.asarray(cost)) + rest) / count)
    return np.array(found)


MATCHED = 12
"""Up to so many reference tokens are matched in the best way; more are compared as they are numbered."""


def assigned(cost: Array) -> float:
    """The least sum of one entry from each row and column of a square matrix: by subsets of columns, row by row."""
    size = len(cost)
    if size > MATCHED:
        return float(np.trace(cost))
    least = np.full(1 << size, np.inf)
    least[0] = 0.0
    for taken in range(1 << size):
        row = taken.bit_count()
        for column in range(size):
            if row < size and not taken >> column & 1:
                after = taken | 1 << column
                least[after] = min(least[after], least[taken] + cost[row, column])
    return float(least[-1])


def circuit_of(distance: float) -> str:
    """What a pattern distance says."""
    return "same" if distance <= SAME else "mirrored" if distance >= MIRRORED else "another"


@dataclass(frozen=True)
class Kick:
    """What theory says of compiled weights before training starts.

    `slope` is max_x |J(x)|_1: a certificate E survives steps of `budget` = E / slope in all, to first order. `moves`
    has for rates the largest error that is predicted after one step of Adam; `sharpness` the curvature, and
    `rests_below` the largest rate 2 / sharpness at which gradient descent can rest there.
    """

    slope: float
    budget: float
    sharpness: float
    rests_below: float
    moves: Mapping[float, float]


def kick(problem: Problem, weights: Tensor, error: float, rates: tuple[float, ...] = (1e-3, 1e-4, 1e-5)) -> Kick:
    """The prediction for compiled weights (1, P) with a certificate `error`, from one Jacobian and no run."""
    torch = torch_module()
    rows, residual = problem.jacobian(weights)[0], problem.residuals(weights)[0]
    gradient = 2.0 / len(residual) * residual @ rows
    direction = gradient / (gradient.abs() + EPSILON)
    # The step is that of the training points; what it does is looked at on the validation points too, which have
    # corners of the box.
    rows = torch.cat([rows, problem.jacobian(weights, problem.validation)[0]])
    residual = torch.cat([residual, problem.residuals(weights, problem.validation)[0]])
    turned = rows @ direction
    slope = float(rows.abs().sum(1).max())
    moves = {rate: float((residual - rate * turned).abs().max()) for rate in rates}
    curvature = float(sharpness(problem, weights)[0])
    return Kick(slope, error / slope, curvature, 2.0 / curvature, moves)
