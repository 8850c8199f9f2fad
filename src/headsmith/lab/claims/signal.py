"""Claims A1 to A3: how signals and gradients grow through deep random transformers, with LayerNorm and without.

The recurrences are those of arXiv 2604.11890, the integrals for DyT and the terms of order 1/n are ours.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from headsmith.lab.claims.recipe import Counted
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.lab.signal.estimate import estimate
from headsmith.lab.signal.theory import Settings, apjn

REFERENCE = {
    ("layernorm", 1.0): 9.63301,
    ("derf", 0.5): 6.72238,
    ("derf", 1.0): 33.87141,
    ("derf", 1.5): 152.15952,
    ("dyt", 0.5): 5.09972,
    ("dyt", 1.0): 21.03413,
    ("dyt", 1.5): 75.18685,
}
"""J of 64 blocks of a ViT-Base, derived twice elsewhere (196 tokens, q0 = 1, p0 = 0.2): six digits."""


@claim("A1", "APJN of transformers with LayerNorm, Derf, DyT follows recurrences", tag="abstract")
def recurrences() -> Finding:
    """J of 64 blocks against reference values, to six digits; and the two ways to run the recurrences agree."""
    found = [_whole(norm, alpha) for norm, alpha in REFERENCE]
    return judged(
        f"{len(found)} networks of 64 blocks, 196 tokens, forward and backward",
        [row for row, _ in found],
        _whole_summary,
        _whole_faults,
        lambda figure: (
            f"every reference value is met to its last digit (J = {figure['J_layernorm']:.5f} with LayerNorm, "
            f"{figure['J_derf']:.5f} with Derf and {figure['J_dyt']:.5f} with DyT at alpha 1)"
        ),
        [counted for _, counted in found],
    )


STREAM = {"q": 16.63923, "correlation": 0.716475}
"""The stream of the LayerNorm network after 64 blocks, from the same derivations."""


def _whole(norm: Any, alpha: float) -> Counted:
    """Forwards, and once more backwards."""
    found, reference = apjn(norm, alpha=alpha), REFERENCE[norm, alpha]
    row = {"norm": norm, "alpha": alpha, "J": float(found.J[-1]), "reference": reference}
    counted = {"alpha": alpha, "J": float(found.J_to_output[0]), "reference": reference}
    if norm == "layernorm":
        row |= {"q": float(found.q[-1]), "correlation": float(found.correlation[-1])}
        counted |= STREAM
    return row, counted


def _whole_summary(rows: Rows) -> dict[str, Any]:
    at = {(row["norm"], row["alpha"]): row for row in rows}
    stream = at["layernorm", 1.0]
    shown = {f"J_{norm}": at[norm, 1.0]["J"] for norm in ("layernorm", "derf", "dyt")}
    return shown | {"q_layernorm": stream["q"], "correlation_layernorm": stream["correlation"]}


def _whole_faults(rows: Rows) -> list[str]:
    # Half a unit of the last printed digit.
    off = max(abs(row["J"] - row["reference"]) for row in rows)
    stream = [row for row in rows if "q" in row]
    near = [abs(row["q"] - STREAM["q"]) <= 0.6e-5 for row in stream]
    near += [abs(row["correlation"] - STREAM["correlation"]) <= 0.6e-6 for row in stream]
    return [*need(off <= 0.6e-5, f"J is off by {off:.2g}"), *need(all(near), "the stream is off")]


@claim("A2", "LayerNorm: power law in depth; Derf, DyT: stretched exponential", tag="abstract")
def growth() -> Finding:
    """Local exponents from L to 2L: d log J / d log L settles for LayerNorm, d log J / d sqrt(L) for the others."""
    cases = [("layernorm", 1.0, 13)]
    cases += [(norm, alpha, last) for norm, last in (("derf", 13), ("dyt", 11)) for alpha in (0.5, 1.0, 1.5)]
    return judged(
        f"{len(cases)} networks of up to {2**14} blocks, local exponents from L to 2L",
        [_growth(*case) for case in cases],
        _growth_summary,
        _growth_faults,
        lambda figure: (
            f"J ~ L^{figure['exponent_layernorm']:.3f} with LayerNorm (and still falling towards 2/3); log J ~ c "
            f"sqrt(L) with c = {', '.join(f'{c:.4f}' for c in figure['slopes_derf'])} for Derf and "
            f"{', '.join(f'{c:.3f}' for c in figure['slopes_dyt'])} for DyT at alpha 0.5, 1, 1.5"
        ),
        [_growth_again(*case) for case in cases],
    )


def _growth_summary(rows: Rows) -> dict[str, Any]:
    slopes = {f"slopes_{name}": [row["slope"] for row in rows if row["norm"] == name] for name in ("derf", "dyt")}
    return {"exponent_layernorm": rows[0]["exponent"], **slopes}


def _growth_faults(rows: Rows) -> list[str]:
    # What settles changes little from one octave to the next; what does not, changes by about sqrt(2).
    power, stretched = rows[0], rows[1:]
    power_law = abs(power["exponent_change"]) < 0.01 and power["slope_change"] < -0.2
    stretching = all(abs(row["slope_change"]) < 0.03 and row["exponent_change"] > 0.3 for row in stretched)
    return [
        *need(power_law and 2.0 / 3.0 < power["exponent"] < 0.72, "LayerNorm has no power law"),
        *need(stretching, "a slope in the root of the depth does not settle"),
    ]


def _growth_again(norm: Any, alpha: float, last: int) -> dict[str, Any]:
    """A second count of the figures: from J at three depths."""
    log_J = _log_J(norm, alpha, last)
    low, middle, high = (float(log_J[2**octave]) for octave in range(last - 1, last + 2))
    exponents = [(middle - low) / math.log(2.0), (high - middle) / math.log(2.0)]
    roots = [2.0 ** (octave / 2.0) for octave in range(last - 1, last + 2)]
    slopes = [(middle - low) / (roots[1] - roots[0]), (high - middle) / (roots[2] - roots[1])]
    changes = {"exponent_change": exponents[1] / exponents[0] - 1.0, "slope_change": slopes[1] / slopes[0] - 1.0}
    return {"alpha": alpha, "depth": 2**last, "exponent": exponents[1], "slope": slopes[1], **changes}


@cache
def _log_J(norm: Any, alpha: float, last: int) -> Any:
    return apjn(norm, alpha=alpha, depth=2 ** (last + 1)).log_J


def _growth(norm: str, alpha: float, last: int) -> dict[str, Any]:
    """Exponent (in log L) and slope (in sqrt L) of log J over the octave from 2^last, and what the one before had."""
    log_J = _log_J(norm, alpha, last)
    exponents, slopes = [], []
    for octave in (last - 1, last):
        low, high = 2**octave, 2 ** (octave + 1)
        rise = float(log_J[high] - log_J[low])
        exponents.append(rise / float(np.log(2.0)))
        slopes.append(rise / (high**0.5 - low**0.5))
    return {
        "norm": norm,
        "alpha": alpha,
        "depth": 2**last,
        "exponent": exponents[1],
        "exponent_change": exponents[1] / exponents[0] - 1.0,
        "slope": slopes[1],
        "slope_change": slopes[1] / slopes[0] - 1.0,
    }


NETWORKS, ALLOWED = 64, 3.5
"""How many networks A3 draws for a setting; how many standard errors their mean may be off, in the worst of five."""


@claim("A3", "theory equals measurement", tag="abstract")
def measurement() -> Finding:
    """Hutchinson's estimate, by reverse passes, on random transformers against the theory, in standard errors.

    With 12 tokens the terms of order 1/n matter: the theory here keeps them (finite_tokens). Rows have seeds of their
    own.
    """
    chosen = (("layernorm", 1.0), ("derf", 0.5), ("derf", 1.0), ("derf", 1.5), ("dyt", 1.0))
    found = [_measured(norm, alpha, seed) for seed, (norm, alpha) in enumerate(chosen)]
    return judged(
        f"{len(found)} settings, {NETWORKS} random transformers each: 8 blocks, 12 tokens, width 128",
        [row for row, _ in found],
        _measured_summary,
        _measured_faults,
        lambda figure: (
            f"measured over theory is 1 within {figure['furthest_in_standard_errors']:.1f} standard errors, which are "
            f"at most {figure['largest_standard_error']:.2%}"
        ),
        [counted for _, counted in found],
    )


def _measured_summary(rows: Rows) -> dict[str, Any]:
    furthest = max(abs(row["in_standard_errors"]) for row in rows)
    return {
        "furthest_in_standard_errors": furthest,
        "largest_standard_error": max(row["standard_error"] for row in rows),
    }


def _measured_faults(rows: Rows) -> list[str]:
    found = _measured_summary(rows)
    furthest, largest = found["furthest_in_standard_errors"], found["largest_standard_error"]
    return [
        *need(furthest <= ALLOWED, f"{furthest:.1f} standard errors from 1 ({ALLOWED} are allowed)"),
        *need(largest <= 0.01, f"standard errors are up to {largest:.2%}"),
    ]


def _measured(norm: Any, alpha: float, seed: int) -> Counted:
    """One setting, measured: J of the whole depth over the theory's, with and without terms of order 1/n. The second
    count has the theory's recurrences backwards; what was measured it can only read again."""
    settings = Settings(norm, alpha, depth=8, tokens=12, finite_tokens=True)
    found = estimate(settings, width=128, hidden=256, networks=NETWORKS, probes=2, seed=seed)
    J, theory = float(found.J_to_output[0]), float(found.theory.J[-1])
    error, many = float(found.J_to_output_standard_error[0]) / theory, apjn(norm, alpha=alpha, depth=8, tokens=12)
    row = {
        "norm": norm,
        "alpha": alpha,
        "J": J,
        "theory": theory,
        "measured_over_theory": J / theory,
        "standard_error": error,
        "in_standard_errors": (J / theory - 1.0) / error,
        "over_theory_of_many_tokens": J / float(many.J[-1]),
    }
    expected, spread = float(found.theory.J_to_output[0]), float(found.J_to_output_standard_error[0])
    return row, {
        "alpha": alpha,
        "J": float(found.J_to_output[0]),
        "theory": expected,
        "measured_over_theory": J / expected,
        "standard_error": spread / expected,
        "in_standard_errors": (J - expected) / spread,
        "over_theory_of_many_tokens": J / float(many.J_to_output[0]),
    }
