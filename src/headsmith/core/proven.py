"""What a file proves of a network that somebody gave, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headsmith.core.figures import bound, count
from headsmith.kernel.rules.given import Statement


@dataclass(frozen=True)
class Proven(Statement):
    __doc__ = Statement.__doc__

    text: str = ""

    @staticmethod
    def claimed(claim: Mapping[str, Any], domain: Sequence[tuple[str, float, float]], text: str) -> Proven:
        """What a file claims; nothing is checked here."""
        held: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in claim.items()
        }
        return Proven(**held, domain=tuple(domain), text=text)

    def __str__(self) -> str:
        inside = ", ".join(f"{low:g} <= {name} <= {high:g}" for name, low, high in self.domain)
        run = "in exact arithmetic" if self.dtype == "real" else f"with the network run in {self.dtype}"
        parts = " + ".join(f"{name} {bound(size)}" for name, size in self.parts.items())
        return (
            f"For every input with {inside}: |network - ({self.text})| <= {bound(self.error)}, {run} ({parts}). "
            f"Proven on {count(self.cells, 'cell')} by Taylor polynomials of degree {self.order}. The weights of the "
            f"network have the digest {self.network[:16]}..., the function {self.function[:16]}... (SHA-256)."
        )
