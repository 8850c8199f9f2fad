"""A certificate, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from headsmith.core.figures import bound, count, number
from headsmith.core.markup import table
from headsmith.core.rounding import HALVES
from headsmith.core.second import Second
from headsmith.kernel.core.check import PARTS
from headsmith.kernel.core.check import Certificate as Proved

__all__ = ["MEANING", "PARTS", "Certificate", "certificate_rows", "statement"]

SLACK = {"approximation": 1e-9, "softmax": 5e-7, "leak": 2.0**-10, "rounding": 2.0**-8}
"""How much more is claimed of a part than was proved here. Another machine adds up in another order, and so it comes to
other bounds of norms and of what sums round: 2e-8 of `softmax`, 5e-5 of `leak` and 8e-4 of `rounding` were seen."""
LITTLE = 1e-9

MEANING = {
    "approximation": "tables, circuits and networks against the target",
    "softmax": "a head of finite scale against its gate",
    "leak": "attention that reaches other tokens",
    "rounding": "floating point, in any order of summation",
}


@dataclass(frozen=True)
class Certificate(Proved):
    __doc__ = Proved.__doc__
    second: Second | None = field(default=None, compare=False, repr=False)
    """What the small kernel says of it, once `hs.verify` has asked."""

    @property
    def proved_by(self) -> tuple[str, ...]:
        """Who proved it: the kernel, or the kernel and the small kernel."""
        return self.second.proved_by if self.second else ("kernel",)

    @staticmethod
    def of(proved: Proved) -> Certificate:
        """What the kernel proved, and a little more, so that other machines come to no more than that."""
        found = Certificate(**{each.name: getattr(proved, each.name) for each in fields(Proved)})
        parts = {name: size * (1.0 + SLACK[name]) for name, size in proved.parts.items()}
        error = max(sum(parts.values()), proved.error * (1.0 + LITTLE))
        # Of other outputs than the worst nobody knows the parts.
        outputs = tuple(min(each * (1.0 + max(SLACK.values())), error) for each in proved.outputs)
        largest = {name: getattr(proved, name) * (1.0 + LITTLE) for name in ("max_score", "max_weight")}
        return replace(found, error=error, parts=parts, outputs=outputs, **largest)

    @staticmethod
    def claimed(claim: Mapping[str, Any], domain: Sequence[tuple[str, float, float]]) -> Certificate:
        """What a file claims for its domain; nothing is checked here."""
        stored: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in claim.items()
        }
        return Certificate(**stored, domain=tuple(domain))

    @property
    def claim(self) -> dict[str, Any]:
        """All fields as a file holds them; the domain has a place of its own there."""
        stored = {name: value for name, value in asdict(self).items() if name not in ("domain", "second")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in stored.items()}

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
        f"when run in {certificate.dtype}{', computed in float32' if certificate.dtype in HALVES else ''}{tokens}."
    )
