"""The universal model with fitted answers: for a smooth target far better than its values at the nodes, but not proven.

The kernel mean is linear in the answers and its weights are products, one factor for each coordinate: least squares on
a tensor grid of Chebyshev points is one small problem for each coordinate. A wide kernel makes the means of a
few nodes as rich as polynomials (heads/table.py); small singular values are cut off so that answers stay moderate.

The error is an estimate: the largest one seen at points that were not fitted. A Lipschitz bound says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box
from headsmith.plan.analysis.smoothness import Lipschitz
from headsmith.run.numpy_runner import run
from headsmith.run.textbook import shares
from headsmith.sequence.universal_inputs import box_of, run_inside, sample
from headsmith.sequence.universal_model import Architecture, points_of, sampled_graph, transformer_of
from headsmith.transformer.bill import Bill, bill
from headsmith.transformer.ir import Transformer

WIDTHS = (0.03, 0.1, 0.3, 1.0, 2.725)
PADS = (0.0, 0.1, 0.3)
"""Kernels that are tried, and by how much of the domain's width the nodes go beyond it on both sides."""

CUTS = (1e-8, 1e-11, 1e-14)
"""Singular values below this share of the largest are left out: the choices that are tried."""


@dataclass(frozen=True, eq=False)
class FittedAnswers:
    """A universal model with fitted answers. `estimate` is the largest error that was seen; nothing is proven."""

    model: Transformer
    box: Box
    estimate: float

    @property
    def bill(self) -> Bill:
        """What the model costs; its scores are not bounded."""
        return bill(self.model, np.inf)

    @property
    def largest_answer(self) -> float:
        return float(np.abs(self.model.table.values).max())

    def __call__(self, array: Any) -> Array:
        """(..., tokens, features) -> (..., tokens, outputs); DomainError outside the domain."""
        return run_inside(self.model, self.box, array)


def fitted(
    function: Callable[[Array], Any],
    tokens: int,
    features: int = 1,
    outputs: int = 1,
    domain: Any = None,
    *,
    grid: int,
    architecture: Architecture = "two layers",
    checks: int = 1000,
    seed: int = 0,
) -> FittedAnswers:
    """The universal model with `grid` nodes along every coordinate whose answers fit the callable best."""
    box = box_of(domain, tokens, features)
    if not (isinstance(grid, int) and grid >= 2 and (box.low < box.high).all()):
        raise TargetError(
            f"a fit needs two nodes or more along every coordinate, and a domain with a width; not {grid!r}"
        )
    places = np.cos(np.pi * (np.arange(3 * grid + 4) + 0.5) / (3 * grid + 4))
    half, middle = (box.high - box.low) / 2.0, (box.high + box.low) / 2.0
    knots = [middle[axis] + half[axis] * places for axis in range(box.size)]
    values = sample(function, points_of(knots), tokens, outputs).reshape(*[len(places)] * box.size, -1)
    nodes: Array = np.arange(float(grid)) - (grid - 1) / 2.0
    found: list[tuple[float, float, float, Array]] = []
    for width, pad, cut in product(WIDTHS, PADS, CUTS):
        reach = (grid - 1) / 2.0 / (1.0 + 2.0 * pad)
        weights = shares(-width * (reach * places[:, None] - nodes) ** 2)
        answers = _along(partial(_least_squares, weights, cut), values)
        residual = float(np.abs(_along(partial(np.matmul, weights), answers) - values).max())
        # Large answers multiply rounding.
        found.append((residual + 1e-14 * float(np.abs(answers).max()), width, reach, answers))
    _, width, reach, answers = min(found, key=lambda each: each[0])
    scale = reach / half
    table = np.moveaxis(answers.reshape(*[grid] * box.size, tokens, outputs), -2, 0)
    # Nothing is claimed of these answers: a bound of the target is not used.
    graph = sampled_graph(middle, scale, table, Lipschitz(frozen(np.zeros(box.size)), "1"), 0.0, tokens)
    model = transformer_of(graph, width, architecture)
    random = np.random.default_rng(seed)
    fresh = middle + half * np.clip(random.uniform(-1.1, 1.1, (checks, box.size)), -1.0, 1.0)
    fresh = np.clip(fresh, box.low, box.high)
    seen = run(model, fresh.reshape(checks, tokens, features))
    return FittedAnswers(model, box, float(np.abs(seen - sample(function, fresh, tokens, outputs)).max()))


def _least_squares(weights: Array, cut: float, columns: Array) -> Array:
    return np.asarray(np.linalg.lstsq(weights, columns, rcond=cut)[0])


def _along(change: Callable[[Array], Array], table: Array) -> Array:
    """A map of columns, applied along every axis but the last, which holds outputs."""
    for axis in range(table.ndim - 1):
        turned = np.moveaxis(table, axis, 0)
        changed = change(turned.reshape(len(turned), -1))
        table = np.moveaxis(changed.reshape(-1, *turned.shape[1:]), 0, axis)
    return table
