"""Claims U3 and U4: attention alone approximates a sequence-to-sequence function, in two layers or one and a softmax.

The rate 1/p for p^D reference tokens is measured here, and not claimed by the paper as far as we know. The
construction, the soft kernel, its constant with a proof, and fitted answers where the target is smooth are ours. U4
writes the second layer of U3, a look-up, as softmax(x W + b) V: the same function by another architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.heads.ramp import WIDTH
from headsmith.kernel.sampled import moment
from headsmith.report.claims import Finding, claim
from headsmith.report.recipe_claims import exponent
from headsmith.sequence.universal import Universal, universal
from headsmith.sequence.universal_fit import fitted
from headsmith.sequence.universal_inputs import sample
from headsmith.sequence.universal_model import Architecture

KERNELS = (1.0, 2.0, WIDTH, 4.0, 10.0, 100.0)
CELLS = (4, 8, 16, 32)
FITS = (4, 8, 16)
APART = 1e-12
"""How far rounding may take the outputs of the two architectures apart, which are of size 1."""

GAIN = 1e3
"""How much better fitted answers must do on a smooth target with 16 nodes along each coordinate."""


@dataclass(frozen=True)
class Target:
    """A function of a whole sequence on [-1, 1], with a Lipschitz bound that is true of it."""

    name: str
    function: Callable[[Array], Array]
    lipschitz: Any
    norm: float
    tokens: int = 2
    features: int = 1
    outputs: int = 1
    smooth: bool = False
    most: int = CELLS[-1]


TARGETS = (
    Target("sin(x_i + mean)", lambda x: np.sin(x + x.mean()), [[1.5], [1.5]], 1, smooth=True),
    Target("product, difference", lambda x: np.array([x[0] * x[1], x[0] - x[1]]), [[1.0], [1.0]], 1, smooth=True),
    Target("larger of the two", lambda x: np.maximum(x, x[::-1]), 1.0, np.inf),
    Target("sorted pair", lambda x: np.sort(x, axis=0), 1.0, 2),
    Target("sum of |x_j|", lambda x: np.full((2, 1), np.abs(x).sum()), [[1.0], [1.0]], 1),
    Target("x_i - median", lambda x: x - np.median(x), 2.0, np.inf, tokens=3, most=8),
    # Token i turns by a quarter and goes by the other's first feature.
    Target(
        "turn and follow",
        lambda x: np.stack([x[:, 1], x[::-1, 0] - x[:, 0]], axis=1),
        [[1.0, 1.0], [1.0, 1.0]],
        1,
        features=2,
        outputs=2,
        most=8,
    ),
)


def largest_error(model: Callable[[Array], Array], target: Target, effort: int = 600, seed: int = 0) -> float:
    """The largest error that a search finds: random points, ends, middles, then ever smaller moves of the worst."""
    random = np.random.default_rng(seed)
    size = target.tokens * target.features
    coarse = np.round(random.uniform(-1.0, 1.0, (effort, size)) * 16.0) / 16.0
    points = np.vstack([random.uniform(-1.0, 1.0, (effort, size)), coarse, np.zeros((1, size))])
    points = np.vstack(
        [points, np.where(random.random((effort, size)) < 0.5, np.sign(points[:effort]), points[:effort])]
    )
    worst, reach = 0.0, 0.25
    for _ in range(8):
        found = model(points.reshape(-1, target.tokens, target.features))
        exact = sample(target.function, points, target.tokens, target.outputs)
        errors = np.abs(found - exact).reshape(len(points), -1).max(axis=1)
        worst = max(worst, float(errors.max()))
        best = points[np.argsort(errors)[-20:]]
        moves = random.uniform(-reach, reach, (10, *best.shape)) * (random.random((10, *best.shape)) < 0.7)
        points, reach = np.clip(np.vstack([best, (best + moves).reshape(-1, size)]), -1.0, 1.0), reach / 2.5
    return worst


@claim("U3", "two attention layers, no feed-forward block, approximate a sequence-to-sequence function", tag="abstract")
def two_layers() -> Finding:
    """Each target for growing p: proven error, search, bill; then the constant against the kernel's width, and fits."""
    rows = [_row(target, cells, "two layers") for target in TARGETS for cells in CELLS if cells <= target.most]
    fits = [_fit(target, nodes) for target in TARGETS if target.smooth for nodes in FITS]
    constants = {f"constant_at_width_{width:g}": moment(CELLS[-1], width, 0.0, 1) for width in KERNELS}
    rates = [
        exponent([row["p"] for row in mine], [row["proven"] for row in mine])
        for target in TARGETS
        if len(mine := [row for row in rows if row["target"] == target.name]) > 1
    ]
    rate = max(rates, key=lambda each: abs(each + 1.0))
    attained = max(row["found"] / row["proven"] for row in rows)
    # In units of (b - a)/p times the sum of the L_i, for bounds coordinate by coordinate.
    constant = max(row["constant"] for row in rows if row["constant"])
    gains = [row["found"] / row["estimate"] for row in fits if row["p"] == FITS[-1]]
    holds = all(row["found"] <= row["proven"] and row["layers"] == 2 for row in rows)
    holds = holds and abs(rate + 1.0) <= 0.02 and constant <= 0.505 and attained >= 0.98 and min(gains) >= GAIN
    figures = (
        f"proven error {constant:.4f} (b - a)/p sum L_i (hardmax and best possible 1/2), our rate p^{rate:.3f}, up to "
        f"{attained:.4f} of it attained: {_series(rows, 'proven')}. Fitted answers on as many reference tokens (an "
        f"estimate, not proven) gain x {min(gains):.2g} or more on smooth targets at p = {FITS[-1]}: "
        f"{_series(fits, 'estimate')}"
    )
    return Finding(
        ran=f"{len(TARGETS)} targets of 2 and 3 tokens, 1 and 2 features on [-1, 1], p = 4 to {CELLS[-1]}",
        figure={
            "constant": constant,
            "exponent": rate,
            "attained": attained,
            "smallest_gain_of_fits": min(gains),
            **constants,
            "rows": [*rows, *fits],
        },
        holds=holds,
        verdict=_verdict(holds, figures),
    )


@claim("U4", "one attention layer followed by a softmax suffices", tag="abstract")
def one_layer() -> Finding:
    """The same targets, with the second layer written as softmax(x W + b) V; compared with the two layers."""
    rows = [_row(target, min(target.most, 16), "one layer and a softmax") for target in TARGETS]
    rate_rows = [_row(TARGETS[0], cells, "one layer and a softmax") for cells in CELLS]
    rate = exponent([row["p"] for row in rate_rows], [row["proven"] for row in rate_rows])
    apart = max(row["apart"] for row in rows + rate_rows)
    holds = all(row["found"] <= row["proven"] and row["apart"] <= APART for row in rows + rate_rows)
    holds = holds and all((row["layers"], row["reference_tokens"]) == (1, 0) for row in rows + rate_rows)
    holds = holds and abs(rate + 1.0) <= 0.02
    return Finding(
        ran=f"{len(TARGETS)} targets, one attention layer and softmax(x W + b) V, against the two-layer models",
        figure={"exponent": rate, "apart": apart, "rows": [*rows, *rate_rows]},
        holds=holds,
        verdict=_verdict(
            holds,
            f"the second layer's look-up, written as a softmax: the same proven errors, rate p^{rate:.3f}; outputs "
            f"differ from the two layers' by {apart:.2g} at most, by rounding; no reference token, parameters x "
            f"{max(row['parameters_ratio'] for row in rows):.3g} at most",
        ),
    )


def _made(target: Target, cells: int, architecture: Architecture) -> Universal:
    return universal(
        target.function,
        target.tokens,
        target.features,
        target.outputs,
        (-1.0, 1.0),
        grid=cells,
        lipschitz=target.lipschitz,
        norm=target.norm,
        architecture=architecture,
    )


def _row(target: Target, cells: int, architecture: Architecture) -> dict[str, Any]:
    made = _made(target, cells, architecture)
    cost = made.bill
    effort = 600 if len(made.answers) <= 600 else 100
    row: dict[str, Any] = {
        "target": target.name,
        "p": cells,
        "proven": made.error,
        "found": largest_error(made, target, effort),
        "constant": made.error * cells / 2.0 / float(np.sum(target.lipschitz)) if target.norm == 1 else None,
        "layers": cost.layers,
        "heads": cost.heads,
        "reference_tokens": cost.reference_tokens,
        "parameters": cost.parameters,
    }
    if architecture != "two layers":
        other = _made(target, cells, "two layers")
        points = np.random.default_rng(1).uniform(-1.0, 1.0, (50, target.tokens, target.features))
        row["apart"] = float(np.abs(made(points) - other(points)).max())
        row["parameters_ratio"] = cost.parameters / other.bill.parameters
    return row


def _fit(target: Target, nodes: int) -> dict[str, Any]:
    """Fitted against sampled answers, on the same number of reference tokens."""
    fit = fitted(target.function, target.tokens, target.features, target.outputs, (-1.0, 1.0), grid=nodes)
    return {
        "target": f"{target.name}, fitted",
        "p": nodes,
        "found": largest_error(_made(target, nodes, "two layers"), target, 300),
        "estimate": max(fit.estimate, largest_error(fit, target, 300)),
        "largest_answer": fit.largest_answer,
        "reference_tokens": fit.bill.reference_tokens,
    }


def _series(rows: Sequence[dict[str, Any]], figure: str) -> str:
    """The first target's figures against p."""
    mine = [row for row in rows if row["target"] == rows[0]["target"]]
    values, cells = (", ".join(f"{row[name]:.3g}" for row in mine) for name in (figure, "p"))
    return f"{mine[0]['target']} {values} at p = {cells}"


def _verdict(holds: bool, figures: str) -> str:
    return f"holds with these constants: {figures}" if holds else f"fails: {figures}"
