"""Any function with a stated smoothness as a transformer: samples on a grid, their interpolant, a compiled model.

    grid           as few nodes as the stated bound allows for the error      language/kuhn.py,
    plan/analysis/smoothness.py interpolant    one gate for each node, exactly
    language/kuhn.py model          compiled and certified against the interpolant             compile.py

A callable cannot be proven anything about from samples. What is proven and what is assumed is kept apart.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.core.figures import bound, count
from headsmith.core.intervals import Box, as_box
from headsmith.core.markup import card, table
from headsmith.core.rounding import Dtype
from headsmith.inside.explain import HEADS
from headsmith.inside.notebook import bill_text, box_text
from headsmith.language.kuhn import Grid, grid_on, interpolant
from headsmith.model import Compiled
from headsmith.plan.analysis.refute import refute
from headsmith.plan.analysis.smoothness import Smoothness, as_smoothness, fewest_steps
from headsmith.transformer.bill import Bill

SHARE, SPARE = 0.98, 0.01
"""How much of the error interpolation and left-out terms may take: scales of heads cost nothing, nodes cost gates."""


@dataclass(frozen=True, eq=False)
class Approximation:
    """A compiled interpolant of a callable. For every x in the domain |model(x) - f(x)| <= error, where

        error = compiled + sampling + interpolation

    `compiled` (the certificate's error) bounds model against interpolant and is proven by the kernel; `sampling` bounds
    what rounded values, nodes and coefficients do to the interpolant, and the terms that were left out;
    `interpolation` bounds the exact interpolant against f, if `smoothness`, which the user stated, is true of f.
    `evaluation` is how far the callable's floating-point results are assumed to be from f; it is part of `sampling`.
    """

    model: Compiled
    grid: Grid
    smoothness: Smoothness
    interpolation: float
    sampling: float
    evaluation: float

    def __repr__(self) -> str:
        return (
            f"<Approximation of a callable on {box_text(self.model.box)} from {count(self.grid.nodes, 'sample')}\n"
            f" error <= {bound(self.error)} if {self.smoothness}, {bill_text(self.bill)}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("error", bound(self.error), "if what is assumed is true"),
            ("  compiled", bound(self.compiled), "proven: the model against the interpolant"),
            ("  sampling", bound(self.sampling), "rounded values and coefficients"),
            ("  interpolation", bound(self.interpolation), "assumed: the interpolant against the callable"),
        ]
        title = f"Approximation of a callable on {box_text(self.model.box)} from {count(self.grid.nodes, 'sample')}"
        return card(title, table("Error", rows, note=f"assumed: {self.assumed}"), self.bill._repr_html_())

    def explain(self, heads: int = HEADS) -> str:
        """The model in words: what is proven, what is assumed, and the transformer layer by layer."""
        return f"Proven: {self.proven}.\nAssumed: {self.assumed}.\n\n{self.model.explain(heads)}"

    @property
    def compiled(self) -> float:
        return self.model.certificate.error

    @property
    def error(self) -> float:
        total = math.fsum([self.compiled, self.sampling, self.interpolation])
        return math.nextafter(total, math.inf)

    @property
    def bill(self) -> Bill:
        return self.model.bill

    @property
    def proven(self) -> str:
        """What holds whatever the callable is."""
        return (
            f"the transformer is within {self.compiled + self.sampling - self.evaluation:.6g} of the linear "
            f"interpolant of the {self.grid.nodes} sampled values on the Kuhn triangulation, everywhere on the domain"
        )

    @property
    def assumed(self) -> str:
        """What the user vouches for, and what follows from it."""
        return (
            f"{self.smoothness}, and the callable's results are within {self.evaluation:.3g} of f; then the "
            f"interpolant is within {self.interpolation + self.evaluation:.6g} of f"
        )

    def __call__(self, *arrays: Any, **named: Any) -> Array:
        """Run the model, as `Compiled` does."""
        return self.model(*arrays, **named)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model. What is loaded again is certified against the interpolant, not against the callable."""
        self.model.save(path)


def approximate(
    function: Callable[..., Any],
    domain: Any,
    error: float = 1e-2,
    *,
    lipschitz: Any = None,
    hessian: Any = None,
    norm: Any = 2,
    evaluation: float | None = None,
    max_nodes: int = 100_000,
    recipe: str = "auto",
    dtype: Dtype = "float64",
) -> Approximation:
    """A transformer within `error` of a callable on the domain, if the callable is as smooth as is stated.

    `lipschitz`: L with |f(x) - f(y)| <= L |x - y| in the `norm` 1, 2 or infinity; or one L_i for each input, for sum
    L_i |x_i - y_i|. `hessian`: a bound of its spectral norm, or a matrix of bounds of its entries. `evaluation`: how
    far results may be from f; 8 units in the last place of the largest one, unless given. The function takes one
    number for each input, or one vector, and returns a number or several.
    Raises TargetError, with the points, where samples contradict what is stated, and UnreachableError where the grid
    would have more than `max_nodes` nodes.
    """
    if not (isinstance(error, int | float) and math.isfinite(error) and error > 0.0):
        raise TargetError(f"error is {error!r}; it must be a positive finite number")
    box, vector = _inputs(function, domain)
    smoothness = as_smoothness(lipschitz, hessian, norm, box.size)
    grid = grid_on(box, fewest_steps(box, smoothness, SHARE * error, max_nodes))
    values = sample(function, grid.points, vector)
    slack = float(evaluation) if evaluation is not None else 2.0**-50 * float(np.abs(values).max())
    if not (math.isfinite(slack) and slack >= 0.0):
        raise TargetError(f"evaluation is {evaluation!r}; it must be a finite number, not negative")
    refute(smoothness, grid, values, slack, lambda points: sample(function, points, vector))
    graph, moved = interpolant(grid, values, SPARE * error)
    interpolation, sampling = smoothness.bound(grid.steps), (moved + slack) * (1.0 + 1e-9)
    left = (error - interpolation - sampling) * (1.0 - 1e-9)
    if left <= 0.0:
        smallest = 100.0 * sampling
        raise UnreachableError(
            f"what rounding does to samples and coefficients is {sampling:.3g}, and interpolation takes "
            f"{interpolation:.3g} of the error {error:.3g}: ask for more than {smallest:.3g}",
            part="rounding",
            smallest=smallest,
        )
    model = compile(graph, box, left, recipe=recipe, dtype=dtype)
    return Approximation(model, grid, smoothness, interpolation, sampling, slack)


def _inputs(function: Callable[..., Any], domain: Any) -> tuple[Box, bool]:
    """The domain's box with the inputs' names, and whether the function takes them as one vector."""
    try:
        parameters = [
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        ]
    except (TypeError, ValueError):
        parameters = []
    if isinstance(domain, Mapping):
        # The function's own order, where the domain has its names: points are passed by position.
        names = tuple(parameters if set(parameters) == set(domain) else map(str, domain))
    elif isinstance(domain, Box):
        names = domain.names
    elif np.ndim(domain) == 2:
        count = len(domain)
        names = tuple(parameters) if len(parameters) == count else tuple(f"x{i}" for i in range(count))
    elif parameters:
        names = tuple(parameters)
    else:
        raise DomainError("the function does not name its inputs; give a domain with a pair (low, high) for each")
    return as_box(domain, names), len(parameters) == 1 and len(names) > 1


def sample(function: Callable[..., Any], points: Array, vector: bool) -> Array:
    """The function's values (points, outputs), point by point; TargetError where they are not finite numbers."""
    rows: list[Array] = []
    for point in points:
        result = function(point) if vector else function(*point.tolist())
        try:
            row = np.asarray(result, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise TargetError(f"the function returned {result!r} at {point.tolist()}; numbers are needed") from None
        if not len(row) or not np.isfinite(row).all() or (rows and len(row) != len(rows[0])):
            raise TargetError(f"the function returned {result!r} at {point.tolist()}; it needs finite numbers there")
        rows.append(row)
    return np.array(rows)
