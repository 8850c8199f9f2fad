"""Claims U1 and U2: what attention interpolates, the truncated linear function, and at which rate.

The published error is (b - a)/p for p tokens; the kernel's width that makes it 0.0622 (b - a)/(p - 1) is ours.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.kernel.core.heads import RAMP_CELLS, ramp_sides
from headsmith.lab import heads as head_models
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.report.falsify import falsify
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.ramp import HARDMAX_ERROR, WIDTH, ramp_error, ramp_table

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
    found = [_ramp(tokens) for tokens in GRIDS]
    found += [_by_recipe(*case, asked) for case in (("relu(x)", 1.0), ("clip(x, -0.5, 0.5)", 2.0)) for asked in ASKED]
    return judged(
        f"ramps from {LOW} to {HIGH}, {GRIDS[0]} to {GRIDS[-1]} tokens; relu and clip, recipe ramp, 1e-1 to 1e-3",
        [row for row, _ in found],
        _ramp_summary,
        _ramp_faults,
        lambda figure: (
            f"measured {figure['measured_constant']:.4f} (b-a)/(p-1), proven {figure['lemma_constant']:.4f} by the "
            f"lemma and at most {figure['kernel_constant']:.4f} from the weights, exponent {figure['exponent']:.3f}; "
            f"the nearest grid point (hardmax) errs by {figure['hardmax_constant']:.3f}, "
            f"{figure['hardmax_constant'] / figure['measured_constant']:.1f} times more"
        ),
        [counted for _, counted in found],
    )


def _ramp_summary(rows: Rows) -> dict[str, Any]:
    ramps = [row for row in rows if "lemma" in row]
    rate = exponent([row["tokens"] - 1 for row in ramps], [row["measured"] for row in ramps])
    measured, proven, kernel = (
        max(row[name] * (row["tokens"] - 1) for row in ramps) / (HIGH - LOW) for name in ("measured", "lemma", "kernel")
    )
    return {
        "measured_constant": measured,
        "lemma_constant": proven,
        "kernel_constant": kernel,
        "hardmax_constant": min(row["hardmax"] * (row["tokens"] - 1) for row in ramps) / (HIGH - LOW),
        "exponent": rate,
    }


def _ramp_faults(rows: Rows) -> list[str]:
    found, ramps = _ramp_summary(rows), [row for row in rows if "lemma" in row]
    most = max(row["hardmax"] * (row["tokens"] - 1) for row in ramps) / (HIGH - LOW)
    below = [row["measured"] <= min(row["lemma"], row["kernel"]) for row in ramps]
    compiled = [row for row in rows if "asked" in row]
    met = [row["found"] <= row["certified"] <= min(row["asked"], row["published"]) for row in compiled]
    return [
        *need(found["lemma_constant"] <= CONSTANT, f"the lemma's constant is {found['lemma_constant']:.4f}"),
        *need(found["kernel_constant"] <= 1.15 * CONSTANT, f"the kernel's constant is {found['kernel_constant']:.4f}"),
        *need(abs(found["exponent"] + 1.0) <= 0.02, f"the exponent is {found['exponent']:.3f}"),
        *need(found["hardmax_constant"] >= 0.9 * HARDMAX_ERROR, "hardmax errs less than half a step"),
        *need(most <= 1.1 * HARDMAX_ERROR, "hardmax errs more than half a step"),
        *need(all(below), "an error is larger than proven"),
        *need(all(row["kernel"] <= row["published"] for row in ramps), "the published bound is not met"),
        *need(all(met), "a compiled ramp errs more than certified, asked or published"),
    ]


def _ramp(tokens: int) -> Counted:
    """All figures in units of the output."""
    step = (HIGH - LOW) / (tokens - 1)
    slope, offset, values = ramp_table(0.0, HIGH - LOW, tokens)
    # Up to its upper end the ramp from 0 is a ReLU.
    cells = RAMP_CELLS * tokens
    below, above = ramp_sides(slope[0, :, 0], offset[0], values[0, :, 0], LOW - HIGH, HIGH - LOW, cells)
    row = {
        "tokens": tokens,
        "measured": _measured(tokens, 1),
        "lemma": ramp_error(tokens) * step,
        "kernel": float(max(below, above)),
        "published": (HIGH - LOW) / tokens,
        "hardmax": _measured(tokens, 1, NARROW),
    }
    direct = {"measured": _direct(tokens, 1), "hardmax": _direct(tokens, 1, NARROW)}
    return row, {"tokens": tokens, "published": (HIGH - LOW) / tokens, **direct}


def _by_recipe(formula: str, reach: float, asked: float) -> Counted:
    """Each gate a ramp head; `reach` is how far their arguments go, in all."""
    model = compile(formula, {"x": (-1.0, 1.0)}, asked, recipe="ramp")
    tokens, worst = model.bill.reference_tokens, falsify(model, effort=400)
    row = {
        "target": formula,
        "asked": asked,
        "certified": model.certificate.error,
        "found": worst.error,
        "layers": model.bill.layers,
        "heads": model.bill.heads,
        "tokens": tokens,
        "published": reach / tokens,
    }
    counted = audit(model, worst)
    held = counted["reference_tokens"]
    return row, counted | {"asked": asked, "tokens": held, "published": reach / held}


@claim("U2", "H heads over n tokens: error O(1/(nH))", tag="recalled")
def many_heads() -> Finding:
    """The data tokens themselves are the grid: no reference token; heads share the interval."""
    found = [_shared(tokens, 2) for tokens in LENGTHS] + [_shared(9, heads) for heads in HEADS]
    return judged(
        f"ramps from {LOW} to {HIGH}: 5 to 129 data tokens with 2 heads, 1 to 32 heads over 9 data tokens",
        [row for row, _ in found],
        _shared_summary,
        _shared_faults,
        lambda figure: (
            f"error (n-1)^{figure['exponent_in_tokens']:.3f} H^{figure['exponent_in_heads']:.3f}, at most "
            f"{figure['measured_constant']:.4f} (b-a)/((n-1) H) measured and {figure['lemma_constant']:.4f} proven, "
            "without any reference token"
        ),
        [counted for _, counted in found],
    )


LENGTHS, HEADS = (5, 9, 17, 33, 65, 129), (1, 2, 4, 8, 16, 32)


def _shared_summary(rows: Rows) -> dict[str, Any]:
    longer, wider = rows[: len(LENGTHS)], rows[len(LENGTHS) :]
    measured, proven = (
        max(row[name] * (row["tokens"] - 1) * row["heads"] for row in rows) / (HIGH - LOW)
        for name in ("measured", "lemma")
    )
    return {
        "exponent_in_tokens": exponent([row["tokens"] - 1 for row in longer], [row["measured"] for row in longer]),
        "exponent_in_heads": exponent([row["heads"] for row in wider], [row["measured"] for row in wider]),
        "measured_constant": measured,
        "lemma_constant": proven,
    }


def _shared_faults(rows: Rows) -> list[str]:
    found = _shared_summary(rows)
    return [
        *need(abs(found["exponent_in_tokens"] + 1.0) <= 0.02, f"tokens: exponent {found['exponent_in_tokens']:.3f}"),
        *need(abs(found["exponent_in_heads"] + 1.0) <= 0.02, f"heads: exponent {found['exponent_in_heads']:.3f}"),
        *need(found["lemma_constant"] <= CONSTANT + 1e-4, f"the lemma's constant is {found['lemma_constant']:.4f}"),
        *need(all(row["measured"] <= row["lemma"] for row in rows), "an error is larger than proven"),
    ]


def _shared(tokens: int, heads: int) -> Counted:
    row = {
        "tokens": tokens,
        "heads": heads,
        "measured": _measured(tokens, heads, own=True),
        "lemma": ramp_error(tokens, heads=heads) * (HIGH - LOW) / ((tokens - 1) * heads),
    }
    return row, {"tokens": tokens, "heads": heads, "measured": _direct(tokens, heads)}


def _direct(tokens: int, heads: int, width: float = WIDTH) -> float:
    """The error by the formula alone: each head is a Gaussian mean over a grid of its part of the interval."""
    places, total = _places(tokens, heads)[:, None], np.full(len(_places(tokens, heads)), LOW)
    for ends in pairwise(np.linspace(LOW, HIGH, heads + 1)):
        grid = np.linspace(*ends, tokens)
        scores = -width * ((places - grid) / (grid[1] - grid[0])) ** 2
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        total = total + (weights @ grid) / weights.sum(axis=1) - ends[0]
    return float(np.abs(total - np.clip(places[:, 0], LOW, HIGH)).max())


def _measured(tokens: int, heads: int, width: float = WIDTH, own: bool = False) -> float:
    """The largest error over arguments around both ends, in the middle and anywhere."""
    model = head_models.ramp(LOW, HIGH, tokens, heads, tokens=None if own else 1, width=width)
    places = _places(tokens, heads)
    length = tokens if own else 1
    places = np.concatenate([places, places[: -len(places) % length]]).reshape(-1, length, 1)
    return float(np.abs(run(model, places) - np.clip(places, LOW, HIGH)).max())


def _places(tokens: int, heads: int) -> Array:
    step = (HIGH - LOW) / ((tokens - 1) * heads)
    near = step * np.linspace(-2.0, 2.0, 241)
    joints = LOW + (HIGH - LOW) * np.array([0.0, 1.0, (heads // 2) / heads, 0.5])
    return np.unique(np.concatenate([*(joint + near for joint in joints), np.linspace(LOW - 1.0, HIGH + 1.0, 200)]))
