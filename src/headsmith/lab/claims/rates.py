"""Claim R10: error against size, for Lipschitz and for smooth targets of one to four variables.

A callable is sampled on a grid of k steps in each variable and interpolated on simplices: the proven error is in
proportion to 1/k for a Lipschitz target (s = 1) and to 1/k^2 for one with bounded second derivatives (s = 2). Compiled,
a node of the grid takes about one head, so the size N is in proportion to (k + 1)^d, and the error to N^(-s/d) in the
limit: that is the rate of the theory. On small grids the exponent is larger, because k + 1 grows more slowly than k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from headsmith.core.intervals import as_box
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.language.kuhn import grid_on
from headsmith.plan.analysis.smoothness import as_smoothness
from headsmith.sequence.approximate import SHARE, approximate

STEPS = {1: (8, 16, 32, 64), 2: (3, 6, 12), 3: (2, 3, 4), 4: (2, 3)}
CLOUD = np.random.default_rng(1).random((400, 4))
BILLED = ("layers", "heads", "parameters", "nonzeros")


def distance(*point: float) -> float:
    """How far the nearest of 400 points is, in the largest coordinate: a Lipschitz function with the constant one,
    rough on the scale of their gaps."""
    return float(np.abs(CLOUD[:, : len(point)] - np.array(point)).max(axis=1).min())


def wave(*point: float) -> float:
    """A product of sines: no second derivative is larger than one."""
    return math.prod(math.sin(each + 1.0) for each in point)


@claim("R10", "error against size: N^(-s/d) for s = 1 (Lipschitz) and s = 2 (smooth) in d variables", tag="ours")
def rates() -> Finding:
    """Grow grids of one to four variables, compile, count heads, and fit exponents of what is proven and found."""
    found = [_sampled(order, variables, steps) for order in (1, 2) for variables in STEPS for steps in STEPS[variables]]
    return judged(
        f"a Lipschitz and a smooth callable in 1 to 4 variables on grids of up to {max(STEPS[1])} steps, recipe relu; "
        "1,000 random points each",
        [row for row, _ in found],
        _summary,
        _faults,
        lambda figure: (
            "proven error = heads^-a: "
            + "; ".join(
                f"{name}, d = {d}: a = {figure[f'proven_{s}_{d}']:.3f}, theory {s / d:.3f}, with (k + 1)^d nodes "
                f"{figure[f'nodes_{s}_{d}']:.3f}"
                for s, name in ((1, "Lipschitz"), (2, "smooth"))
                for d in STEPS
            )
            + "; what is found of smooth targets falls with a = "
            + ", ".join(f"{figure[f'found_{d}']:.3f}" for d in STEPS)
            + f"; {figure['heads_per_node']:.2f} heads for each node at most"
        ),
        [counted for _, counted in found],
    )


def _stated(order: int, variables: int) -> dict[str, Any]:
    return {"lipschitz": 1.0, "norm": math.inf} if order == 1 else {"hessian": np.ones((variables, variables))}


def _sampled(order: int, variables: int, steps: int) -> Counted:
    """A callable on a grid of so many steps in each variable, and its model."""
    domain, stated = [(0.0, 1.0)] * variables, _stated(order, variables)
    smoothness = as_smoothness(stated.get("lipschitz"), stated.get("hessian"), stated.get("norm", 2), variables)
    grid = grid_on(as_box(domain, [f"x{each}" for each in range(variables)]), [steps] * variables)
    function: Callable[..., float] = distance if order == 1 else wave
    made = approximate(function, domain, smoothness.bound(grid.steps) / SHARE * (1.0 + 1e-9), recipe="relu", **stated)
    points = np.random.default_rng(0).random((1000, variables))
    row = {"order": order, "variables": variables, "steps": steps, "cells": steps**variables, "nodes": made.grid.nodes}
    row |= {"error": made.error, "found": _furthest(made, function, points), "certified": made.compiled}
    row |= {name: getattr(made.bill, name) for name in BILLED}
    counted = audit(made.model) | {"order": order, "variables": variables, "steps": steps, "cells": steps**variables}
    counted |= {"nodes": (steps + 1) ** variables, "error": made.compiled + made.sampling + made.interpolation}
    return row, counted | {"found": _furthest(made, function, points)}


def _furthest(made: Any, function: Callable[..., float], points: Any) -> float:
    wanted = np.array([function(*point) for point in points.tolist()])
    return float(np.abs(made(points)[:, 0] - wanted).max())


def _series(rows: Rows, order: int, variables: int) -> Rows:
    return [row for row in rows if row.get("order") == order and row["variables"] == variables]


def _fitted(rows: Rows, size: str, error: str) -> float:
    return -exponent([row[size] for row in rows], [row[error] for row in rows])


def _summary(rows: Rows) -> dict[str, Any]:
    figure: dict[str, Any] = {"heads_per_node": max(row["heads"] / row["nodes"] for row in rows)}
    for order, variables in product((1, 2), STEPS):
        mine = _series(rows, order, variables)
        figure[f"proven_{order}_{variables}"] = _fitted(mine, "heads", "error")
        figure[f"nodes_{order}_{variables}"] = _fitted(mine, "nodes", "error")
    # What a Lipschitz target really errs by depends on the scale on which it is rough.
    return figure | {f"found_{d}": _fitted(_series(rows, 2, d), "heads", "found") for d in STEPS}


def _faults(rows: Rows) -> list[str]:
    found = _summary(rows)
    ratios = [found[f"proven_{order}_{d}"] / (order / d) for order, d in product((1, 2), STEPS)]
    near = [found[f"proven_{order}_{d}"] / found[f"nodes_{order}_{d}"] for order, d in product((1, 2), STEPS)]
    smooth = [found[f"found_{d}"] / found[f"proven_2_{d}"] for d in STEPS]
    return [
        *need(min(ratios) >= 0.9, f"an error falls like the power {min(ratios):.2f} of the theory's rate"),
        *need(min(near) >= 0.85 and max(near) <= 1.1, "heads do not grow as nodes do"),
        *need(min(smooth) >= 0.8 and max(smooth) <= 1.25, "the error that is found falls at another rate"),
        *need(found["heads_per_node"] <= 2.0, "a node takes more than two heads"),
        *need(all(row["found"] <= row["error"] for row in rows), "an error is larger than proven"),
        *need(all(row["certified"] <= row["error"] for row in rows), "the model errs more than it may"),
    ]
