"""Claims U1 and U2: what attention interpolates, the truncated linear function, and at which rate.

The published error is (b - a)/p for p tokens; the kernel's width that makes it 0.0622 (b - a)/(p - 1) is ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith import single
from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.heads.ramp import HARDMAX_ERROR, WIDTH, ramp_error, ramp_table
from headsmith.kernel.heads import RAMP_CELLS, ramp_sides
from headsmith.report.claims import Finding, claim
from headsmith.report.falsify import falsify
from headsmith.report.recipe_claims import exponent
from headsmith.run.numpy_runner import run

LOW, HIGH = -0.5, 1.5
"""The ends a and b of the ramps."""

GRIDS = (4, 8, 16, 32, 64, 128, 256)
CONSTANT = 0.0625
"""In steps of the grid: 0.0622, and what several heads and the cells of the bound add to it."""

NARROW = 1e3
"""A kernel so narrow that it takes the nearest grid point: hardmax, nearly."""

ASKED = (1e-1, 1e-2, 1e-3)


@claim(
    "U1",
    "one head on p tokens approximates clamp(w.x + t; a, b) with error (b-a)/p; our width gives 0.0622 (b-a)/(p-1)",
    tag="recalled",
)
def one_head() -> Finding:
    """A ramp head for each number of tokens: run, bounded by the lemma, bounded by the kernel; then compiled."""
    rows = [_ramp(tokens) for tokens in GRIDS]
    compiled = [_by_recipe(*case, asked) for case in (("relu(x)", 1.0), ("clip(x, -0.5, 0.5)", 2.0)) for asked in ASKED]
    steps = [row["tokens"] - 1 for row in rows]
    rate = exponent(steps, [row["measured"] for row in rows])
    measured, proven, kernel = (
        max(row[name] * (row["tokens"] - 1) for row in rows) / (HIGH - LOW) for name in ("measured", "lemma", "kernel")
    )
    hardmax = min(row["hardmax"] * (row["tokens"] - 1) for row in rows) / (HIGH - LOW)
    holds = proven <= CONSTANT and kernel <= 1.15 * CONSTANT and abs(rate + 1.0) <= 0.02
    holds = holds and hardmax >= 0.9 * HARDMAX_ERROR
    holds = holds and all(
        row["measured"] <= min(row["lemma"], row["kernel"]) and row["kernel"] <= row["published"] for row in rows
    )
    holds = holds and all(row["found"] <= row["certified"] <= min(row["asked"], row["published"]) for row in compiled)
    return Finding(
        ran=f"ramps from {LOW} to {HIGH}, {GRIDS[0]} to {GRIDS[-1]} tokens; relu and clip, recipe ramp, 1e-1 to 1e-3",
        figure={
            "measured_constant": measured,
            "lemma_constant": proven,
            "kernel_constant": kernel,
            "hardmax_constant": hardmax,
            "exponent": rate,
            "rows": [*rows, *compiled],
        },
        holds=holds,
        verdict=_verdict(
            holds,
            f"measured {measured:.4f} (b-a)/(p-1), proven {proven:.4f} by the lemma and at most {kernel:.4f} from the "
            f"weights, exponent {rate:.3f}; the nearest grid point (hardmax) errs by {hardmax:.3f}, "
            f"{hardmax / measured:.1f} times more",
        ),
    )


def _ramp(tokens: int) -> dict[str, Any]:
    """All figures in units of the output."""
    step = (HIGH - LOW) / (tokens - 1)
    slope, offset, values = ramp_table(0.0, HIGH - LOW, tokens)
    # Up to its upper end the ramp from 0 is a ReLU.
    cells = RAMP_CELLS * tokens
    below, above = ramp_sides(slope[0, :, 0], offset[0], values[0, :, 0], LOW - HIGH, HIGH - LOW, cells)
    return {
        "tokens": tokens,
        "measured": _measured(tokens, 1),
        "lemma": ramp_error(tokens) * step,
        "kernel": float(max(below, above)),
        "published": (HIGH - LOW) / tokens,
        "hardmax": _measured(tokens, 1, NARROW),
    }


def _by_recipe(formula: str, reach: float, asked: float) -> dict[str, Any]:
    """Each gate a ramp head; `reach` is how far their arguments go, in all."""
    model = compile(formula, {"x": (-1.0, 1.0)}, asked, recipe="ramp")
    tokens = model.bill.reference_tokens
    return {
        "target": formula,
        "asked": asked,
        "certified": model.certificate.error,
        "found": falsify(model, effort=400).error,
        "layers": model.bill.layers,
        "heads": model.bill.heads,
        "tokens": tokens,
        "published": reach / tokens,
    }


@claim("U2", "H heads over n tokens: error O(1/(nH))", tag="abstract")
def many_heads() -> Finding:
    """The data tokens themselves are the grid: no reference token; heads share the interval."""
    longer = [_shared(tokens, 2) for tokens in (5, 9, 17, 33, 65, 129)]
    wider = [_shared(9, heads) for heads in (1, 2, 4, 8, 16, 32)]
    rows = longer + wider
    in_tokens = exponent([row["tokens"] - 1 for row in longer], [row["measured"] for row in longer])
    in_heads = exponent([row["heads"] for row in wider], [row["measured"] for row in wider])
    measured, proven = (
        max(row[name] * (row["tokens"] - 1) * row["heads"] for row in rows) / (HIGH - LOW)
        for name in ("measured", "lemma")
    )
    holds = abs(in_tokens + 1.0) <= 0.02 and abs(in_heads + 1.0) <= 0.02 and proven <= CONSTANT + 1e-4
    holds = holds and all(row["measured"] <= row["lemma"] for row in rows)
    return Finding(
        ran=f"ramps from {LOW} to {HIGH}: 5 to 129 data tokens with 2 heads, 1 to 32 heads over 9 data tokens",
        figure={
            "exponent_in_tokens": in_tokens,
            "exponent_in_heads": in_heads,
            "measured_constant": measured,
            "lemma_constant": proven,
            "rows": rows,
        },
        holds=holds,
        verdict=_verdict(
            holds,
            f"error (n-1)^{in_tokens:.3f} H^{in_heads:.3f}, at most {measured:.4f} (b-a)/((n-1) H) measured and "
            f"{proven:.4f} proven, without any reference token",
        ),
    )


def _shared(tokens: int, heads: int) -> dict[str, Any]:
    return {
        "tokens": tokens,
        "heads": heads,
        "measured": _measured(tokens, heads, own=True),
        "lemma": ramp_error(tokens, heads=heads) * (HIGH - LOW) / ((tokens - 1) * heads),
    }


def _measured(tokens: int, heads: int, width: float = WIDTH, own: bool = False) -> float:
    """The largest error over arguments around both ends, in the middle and anywhere."""
    model = single.ramp(LOW, HIGH, tokens, heads, tokens=None if own else 1, width=width)
    places = _places(tokens, heads)
    length = tokens if own else 1
    places = np.concatenate([places, places[: -len(places) % length]]).reshape(-1, length, 1)
    return float(np.abs(run(model, places) - np.clip(places, LOW, HIGH)).max())


def _places(tokens: int, heads: int) -> Array:
    step = (HIGH - LOW) / ((tokens - 1) * heads)
    near = step * np.linspace(-2.0, 2.0, 241)
    joints = LOW + (HIGH - LOW) * np.array([0.0, 1.0, (heads // 2) / heads, 0.5])
    return np.unique(np.concatenate([*(joint + near for joint in joints), np.linspace(LOW - 1.0, HIGH + 1.0, 200)]))


def _verdict(holds: bool, figures: str) -> str:
    return f"holds with these constants: {figures}" if holds else f"fails: {figures}"
