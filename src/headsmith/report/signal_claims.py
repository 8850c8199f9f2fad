"""Claims A1 to A3: how signals and gradients grow through deep random transformers, with LayerNorm and without.

The recurrences are those of arXiv 2604.11890, the integrals for DyT and the terms of order 1/n are ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.report.claims import Finding, claim
from headsmith.signal.estimate import estimate
from headsmith.signal.theory import Settings, apjn

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
    rows: list[dict[str, Any]] = []
    for (norm, alpha), reference in REFERENCE.items():
        found = apjn(norm, alpha=alpha)
        whole, backward = float(found.J[-1]), float(found.J_to_output[0])
        off = abs(whole - reference)
        rows.append(
            {"norm": norm, "alpha": alpha, "J": whole, "reference": reference, "off": off, "backward": backward}
        )
    stream = apjn("layernorm")
    q, rho = float(stream.q[-1]), float(stream.correlation[-1])
    # Half a unit of the last printed digit.
    close = all(row["off"] <= 0.6e-5 for row in rows) and abs(q - 16.63923) <= 0.6e-5 and abs(rho - 0.716475) <= 0.6e-6
    same = max(abs(row["backward"] / row["J"] - 1.0) for row in rows)
    holds = close and same <= 1e-12
    return Finding(
        ran=f"{len(rows)} networks of 64 blocks, 196 tokens, forward and backward",
        figure={"q_layernorm": q, "correlation_layernorm": rho, "forward_against_backward": same, "rows": rows},
        holds=holds,
        verdict=f"holds: every reference value is met to its last digit (J = {rows[0]['J']:.5f} with LayerNorm, "
        f"{rows[2]['J']:.5f} with Derf and {rows[5]['J']:.5f} with DyT at alpha 1)"
        if holds
        else f"fails: off by {max(row['off'] for row in rows):.2g}",
    )


@claim("A2", "LayerNorm: power law in depth; Derf, DyT: stretched exponential", tag="abstract")
def growth() -> Finding:
    """Local exponents from L to 2L: d log J / d log L settles for LayerNorm, d log J / d sqrt(L) for the others."""
    rows = [_growth("layernorm", 1.0, 13)]
    rows += [_growth(norm, alpha, last) for norm, last in (("derf", 13), ("dyt", 11)) for alpha in (0.5, 1.0, 1.5)]
    power, stretched = rows[0], rows[1:]
    # What settles changes little from one octave to the next; what does not, changes by about sqrt(2).
    power_law = abs(power["exponent_change"]) < 0.01 and power["slope_change"] < -0.2
    stretching = all(abs(row["slope_change"]) < 0.03 and row["exponent_change"] > 0.3 for row in stretched)
    holds = power_law and stretching and 2.0 / 3.0 < power["exponent"] < 0.72
    slopes = {name: [row["slope"] for row in stretched if row["norm"] == name] for name in ("derf", "dyt")}
    return Finding(
        ran=f"{len(rows)} networks of up to {2**14} blocks, local exponents from L to 2L",
        figure={"exponent_layernorm": power["exponent"], "rows": rows},
        holds=holds,
        verdict=f"holds: J ~ L^{power['exponent']:.3f} with LayerNorm (and still falling towards 2/3); log J ~ c "
        f"sqrt(L) with c = {', '.join(f'{c:.4f}' for c in slopes['derf'])} for Derf and "
        f"{', '.join(f'{c:.3f}' for c in slopes['dyt'])} for DyT at alpha 0.5, 1, 1.5"
        if holds
        else "fails: a local exponent does not settle",
    )


def _growth(norm: str, alpha: float, last: int) -> dict[str, Any]:
    """Exponent (in log L) and slope (in sqrt L) of log J over the octave from 2^last, and what the one before had."""
    log_J = apjn(norm, alpha=alpha, depth=2 ** (last + 1)).log_J
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
    rows = [_measured(norm, alpha, seed) for seed, (norm, alpha) in enumerate(chosen)]
    furthest = max(abs(row["in_standard_errors"]) for row in rows)
    largest = max(row["standard_error"] for row in rows)
    holds = furthest <= ALLOWED and largest <= 0.01
    return Finding(
        ran=f"{len(rows)} settings, {NETWORKS} random transformers each: 8 blocks, 12 tokens, width 128",
        figure={"furthest_in_standard_errors": furthest, "largest_standard_error": largest, "rows": rows},
        holds=holds,
        verdict=f"holds: measured over theory is 1 within {furthest:.1f} standard errors, which are at most "
        f"{largest:.2%}"
        if holds
        else f"fails: {furthest:.1f} standard errors from 1 ({ALLOWED} are allowed); they are up to {largest:.2%}",
    )


def _measured(norm: str, alpha: float, seed: int) -> dict[str, Any]:
    """One setting, measured: J of the whole depth over the theory's, with and without terms of order 1/n."""
    settings = Settings(norm, alpha, depth=8, tokens=12, finite_tokens=True)  # type: ignore[arg-type]
    found = estimate(settings, width=128, hidden=256, networks=NETWORKS, probes=2, seed=seed)
    J, theory = float(found.J_to_output[0]), float(found.theory.J[-1])
    error = float(found.J_to_output_standard_error[0]) / theory
    return {
        "norm": norm,
        "alpha": alpha,
        "J": J,
        "theory": theory,
        "measured_over_theory": J / theory,
        "standard_error": error,
        "in_standard_errors": (J / theory - 1.0) / error,
        "over_theory_of_many_tokens": J / float(apjn(norm, alpha=alpha, depth=8, tokens=12).J[-1]),
    }
