"""A certificate, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headsmith.core.figures import bound, count, number
from headsmith.core.html import table
from headsmith.core.rounding import EXP_ULPS, Dtype

PARTS = ("approximation", "softmax", "leak", "rounding")

MEANING = {
    "approximation": "tables and circuits against the target",
    "softmax": "a head of finite scale against its gate",
    "leak": "attention that reaches other tokens",
    "rounding": "floating point, in any order of summation",
}


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

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {bound(value)}" for name, value in self.parts.items() if value)
        outputs = f"; {count(len(self.outputs), 'output')}" if len(self.outputs) != 1 else ""
        return f"<Certificate: error <= {bound(self.error)} in {self.dtype} ({parts or 'exact'}){outputs}>"

    def _repr_html_(self) -> str:
        return table("Certificate", certificate_rows(self), note=statement(self))


def certificate_rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    """The proven error and its parts for reading: name, figure, meaning."""
    rows = [("error", bound(certificate.error), "proven, everywhere on the domain")]
    rows += [(f"  {name}", bound(value), MEANING.get(name, "")) for name, value in certificate.parts.items()]
    if len(certificate.outputs) > 1:
        smallest, largest = min(certificate.outputs), max(certificate.outputs)
        rows.append(("each output", f"{bound(smallest)} to {bound(largest)}", f"{len(certificate.outputs)} outputs"))
    return rows


def statement(certificate: Certificate) -> str:
    """What the certificate says, in one sentence."""
    tokens = "" if certificate.tokens == 1 else f", with up to {number(certificate.tokens)} data tokens in a sequence"
    return (
        f"For every input in the domain and every output, |model - target| <= {bound(certificate.error)} "
        f"when run in {certificate.dtype}{tokens}."
    )
