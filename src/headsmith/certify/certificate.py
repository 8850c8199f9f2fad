"""A certificate, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headsmith.core.rounding import EXP_ULPS, Dtype

PARTS = ("approximation", "softmax", "leak", "rounding")


@dataclass(frozen=True)
class Certificate:
    """For every input in the domain and every output: |run(model, x) - target(x)| <= error. A bound, never an estimate.

    `run` is floating-point execution in `dtype`, rounded to nearest, in any order of summation, with exp correct to
    `exp_ulps` units in the last place, of up to `tokens` data tokens in one sequence, under full attention or a causal
    mask; `target` is exact real arithmetic. `parts` belong to the worst output and add up to `error`; `outputs` has one
    bound for each output. `max_score` bounds every attention score.
    """

    error: float
    parts: Mapping[str, float]
    outputs: tuple[float, ...]
    dtype: Dtype
    tokens: int
    max_score: float
    exp_ulps: int = EXP_ULPS
