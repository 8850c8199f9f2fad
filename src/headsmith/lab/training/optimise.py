"""Three optimisers for a stack of runs at once: Adam, Levenberg-Marquardt, and the latter on a higher power of errors.

    adam(...)      a step for every run of the stack is one backward pass: rates differ from run to run
    levenberg(...) least squares by Gauss-Newton steps that are damped: with J = dr/dw, columns scaled to length one,
                   w <- w - D^-1 V (S / (S^2 + mu)) U^T r from the singular values of J D^-1 = U S V^T; mu * .2 after
                   a step that helps, * 4 after one that does not
    power q        the same on |r|^(q/2), whose least squares are the q-norm of r: towards the sup norm as q grows

Gradient descent stops far above what a shape can do (a paper that stops there measures its optimiser); the second stage
costs seconds and gains one to two digits, the third another factor.

The Jacobian of a whole stack is one backward pass: the weights are copied once for every sample, so that each sample is
a run of its own, and the gradient of the sum of all outputs holds every row.

Everything is deterministic: one thread, full batches, stops by steps and never by seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.lab.training.points import Points
from headsmith.lab.training.students import Student, Tensor, torch_module

Tell = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""

WARM_UP, CLIP = 50, 1.0
BETAS, EPSILON = (0.9, 0.999), 1e-12
SHOWN = 100
"""How many points a curve has."""


@contextmanager
def one_thread() -> Iterator[Any]:
    """torch on one thread: sums are then taken in one order, and reruns have equal bits."""
    torch = torch_module()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, eq=False)
class Problem:
    """A student with the points that it is trained on, and those that choose among its weights."""

    student: Student
    train: Points
    validation: Points

    def residuals(self, weights: Tensor, points: Points | None = None) -> Tensor:
        """Output minus target, (runs, all outputs of all points)."""
        torch, points = torch_module(), points or self.train
        found = self.student.outputs(weights, torch.from_numpy(points.x)) - torch.from_numpy(points.y)
        return found.flatten(1)

    def loss(self, weights: Tensor, _step: int) -> tuple[Tensor, Tensor]:
        """Mean square and largest error of each run, on the training points."""
        found = self.residuals(weights)
        return (found * found).mean(1), found.detach().abs().amax(1)

    def validated(self, weights: Tensor) -> Tensor:
        """The largest error of each run on training and validation points; infinite where it is no number."""
        torch = torch_module()
        with torch.no_grad():
            found = [self.residuals(weights, points).abs().amax(1) for points in (self.train, self.validation)]
        return torch.nan_to_num(torch.maximum(*found), nan=np.inf)

    def jacobian(self, weights: Tensor, points: Points | None = None) -> Tensor:
        """(runs, all outputs of all points, P)."""
        torch = torch_module()
        x, (runs, size) = torch.from_numpy((points or self.train).x), weights.shape
        copies = weights[:, None].expand(-1, len(x), -1).reshape(-1, size).clone().requires_grad_()
        each = self.student.outputs(copies, x.expand(runs, -1, -1, -1).reshape(-1, 1, *x.shape[1:])).flatten(1)
        rows = [torch.autograd.grad(one.sum(), copies, retain_graph=True)[0] for one in each.unbind(1)]
        return torch.stack(rows, dim=1).reshape(runs, -1, size)


@dataclass(frozen=True, eq=False)
class Descent:
    """What Adam made of a stack: the weights at the end, the best on the way with their losses, and curves (points,
    runs, 2) of root mean square and largest error at `steps`."""

    last: Tensor
    best: Tensor
    losses: Tensor
    steps: Array
    curves: Array

    def curve(self, runs: Indices) -> Array:
        """The curves of these runs, (points, runs, 3): steps come first."""
        steps = np.broadcast_to(self.steps[:, None, None], (len(self.steps), len(runs), 1))
        return np.concatenate([steps, self.curves[:, runs]], axis=2)


@dataclass(frozen=True)
class Schedule:
    """How many steps, and the share of the rate at each: a linear warm-up, then a cosine to zero, or constant."""

    steps: int
    warm_up: int = WARM_UP
    cosine: bool = True

    def share(self, step: int) -> float:
        """The share of the rate that step 0, 1, ... has."""
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return 0.5 * (1.0 + float(np.cos(np.pi * done))) if self.cosine else 1.0


Loss = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""(weights (runs, P), step) to the loss of each run and the largest error of each run."""


def adam(
    loss: Loss,
    start: Tensor,
    rates: Sequence[float],
    schedule: Schedule,
    tell: Tell | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Descent:
    """Adam from a stack of weights (runs, P), one rate for each run. Gradients are clipped at norm 1, run by run.
    `watch` sees the weights at every point of the curves."""
    torch = torch_module()
    weights = start.clone()
    rate = torch.tensor(rates, dtype=start.dtype)[:, None]
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    best, least = start.clone(), torch.full((len(start),), np.inf, dtype=start.dtype)
    shown, curves = _shown(schedule.steps), []
    for step in range(schedule.steps + 1):
        leaf = weights.detach().requires_grad_()
        losses, largest = loss(leaf, step)
        weights, found = leaf.detach(), losses.detach()
        better = found < least  # a loss that is no number is never better
        best, least = torch.where(better[:, None], weights, best), torch.where(better, found, least)
        if step in shown:
            curves.append(np.stack([found.numpy() ** 0.5, largest.numpy()], axis=-1))
            if watch is not None:
                watch(step, weights)
            if tell is not None:
                tell("Adam", step / max(1, schedule.steps))
        if step == schedule.steps:
            break
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        gradient = torch.nan_to_num(gradient)
        gradient = gradient * (CLIP / gradient.norm(dim=1, keepdim=True).clamp(min=CLIP))
        mean = BETAS[0] * mean + (1.0 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1.0 - BETAS[1]) * gradient * gradient
        moved = mean / (1.0 - BETAS[0] ** (step + 1))
        scale = (square / (1.0 - BETAS[1] ** (step + 1))).sqrt() + EPSILON
        weights = weights - rate * schedule.share(step) * moved / scale
    return Descent(weights, best, least, np.array(sorted(shown)), np.array(curves))


def _shown(steps: int) -> set[int]:
    """The steps at which a curve has its points: dense at the start, where compiled weights jump."""
    early = np.geomspace(1, max(2, steps), SHOWN // 2).astype(int)
    return {0, steps, *early.tolist(), *np.linspace(0, steps, SHOWN // 2).astype(int).tolist()} & {*range(steps + 1)}


@dataclass(frozen=True, eq=False)
class Polished:
    """What Levenberg-Marquardt made of a stack: for each run the weights of least validated error (those it started
    from among them), these errors, and curves (iterations + 1, runs, 2) of root mean square and largest error on the
    training points."""

    weights: Tensor
    errors: Tensor
    curves: Array
    last: Tensor


LARGEST_DAMPING, TRIES = 1e12, 6
LEAST_GAIN = 1e-3
"""By what share an error must be lower for other weights to be kept."""


@dataclass(frozen=True)
class Damping:
    """How a run of Levenberg-Marquardt begins: its first damping, and the least length, relative to the longest one,
    that a column is given when columns are scaled. Weights without a gradient have no say, those of almost none could
    take steps without end."""

    first: float = 1e-3
    floor: float = 1e-6


def levenberg(
    problem: Problem,
    start: Tensor,
    iterations: int,
    power: float = 2.0,
    dampings: Sequence[Damping] = (),
    tell: Tell | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Polished:
    """Levenberg-Marquardt on |r|^(power/2) from a stack of weights (runs, P): at most so many Jacobians. `dampings` has
    one for each run; `watch` sees the weights after every iteration."""
    torch = torch_module()
    dampings = dampings or [Damping()] * len(start)
    floor = torch.tensor([each.floor for each in dampings], dtype=start.dtype)[:, None, None]
    weights, damping = start.clone(), torch.tensor([[each.first] for each in dampings], dtype=start.dtype)
    best, errors = start.clone(), problem.validated(start)
    with torch.no_grad():
        residual = problem.residuals(weights)
    curves = [_sizes(residual)]
    for iteration in range(iterations):
        if tell is not None:
            tell(_called(power), iteration / iterations)
        moved, residual, damping = _improved(problem, weights, residual, damping, floor, power)
        still = bool((moved == weights).all())
        weights = moved
        curves.append(_sizes(residual))
        if watch is not None:
            watch(iteration, weights)
        found = problem.validated(weights)
        better = found < errors * (1.0 - LEAST_GAIN)
        best, errors = torch.where(better[:, None], weights, best), torch.where(better, found, errors)
        if still and bool((damping >= LARGEST_DAMPING).all()):
            break
    return Polished(best, errors, np.array(curves), weights)


def _called(power: float) -> str:
    return "Levenberg-Marquardt" if power == 2.0 else f"L{power:g} polish"


def _sizes(residual: Tensor) -> Array:
    return np.stack([(residual * residual).mean(1).sqrt().numpy(), residual.abs().amax(1).numpy()], axis=-1)


def _improved(
    problem: Problem, weights: Tensor, residual: Tensor, damping: Tensor, floor: Tensor, power: float
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of each run that lowers its cost, if one of a few dampings gives one: weights, residuals, dampings."""
    torch = torch_module()
    # Errors are measured by the largest one, so that no power of them underflows.
    largest = residual.abs().amax(1, keepdim=True).clamp(min=1e-300)
    share = (residual / largest).abs()
    sides = torch.sign(residual) * share ** (power / 2.0)
    rows = problem.jacobian(weights) * (0.5 * power * share ** (power / 2.0 - 1.0) / largest)[..., None]
    length = rows.norm(dim=1, keepdim=True)
    length = length.clamp(min=1e-300).maximum(floor * length.amax(2, keepdim=True))
    healthy = torch.isfinite(rows).all(2).all(1) & torch.isfinite(sides).all(1)
    scaled = torch.where(healthy[:, None, None], rows / length, torch.zeros_like(rows))
    sides = torch.where(healthy[:, None], sides, torch.zeros_like(sides))
    # Of [J r] = Q [R c] only the small factors are needed: J = Q U S V^T, and U^T Q^T r = U^T c.
    factor = torch.linalg.qr(torch.cat([scaled, sides[..., None]], dim=2), mode="r").R[:, : rows.shape[2]]
    left, values, right = torch.linalg.svd(factor[..., :-1], full_matrices=False)
    pulled = values * (left.mT @ factor[..., -1:])[..., 0]
    open_, cost = healthy.clone(), (sides * sides).sum(1)
    for _ in range(TRIES):
        step = (right.mT @ (pulled / (values * values + damping))[..., None])[..., 0] / length[:, 0]
        tried = torch.where(open_[:, None], weights - step, weights)
        with torch.no_grad():
            found = problem.residuals(tried)
        lower = ((found / largest).abs() ** power).sum(1) < cost
        taken = open_ & lower
        weights = torch.where(taken[:, None], tried, weights)
        residual = torch.where(taken[:, None], found, residual)
        damping = torch.where(taken[:, None], damping * 0.2, torch.where(open_[:, None], damping * 4.0, damping))
        open_ = open_ & ~lower & (damping[:, 0] < LARGEST_DAMPING)
        if not bool(open_.any()):
            break
    return weights, residual, damping
