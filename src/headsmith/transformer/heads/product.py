"""Product head: the product of two linear forms, in one head of linear attention.

Head h reads x and y. The data token scores x on itself and holds y there, so that it returns x y: exactly, up to
rounding. Nothing else is in sight, and there is no reference token.

    query   read_x . x              key     data              value   read_y . x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headsmith.transformer.heads.bank import HeadBank, Words
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.stream import DATA, Feature, On, Read, Terms
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class ProductBank(HeadBank):
    """All product heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h."""

    kind: ClassVar[str] = "product"
    called: ClassVar[str] = "product"

    @property
    def heads(self) -> int:
        """How many heads there are: one for each output."""
        return self.outputs

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each head."""
        return 2 * self.outputs

    def evaluated(self, attention: Attention) -> Any:
        reads = attention.reads(self)
        return reads[..., 0::2] * reads[..., 1::2]

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        return (Feature("slope", (Read(slice(0, None, 2)),), (On(DATA, 1.0),)),)

    def value(self, model: Surroundings) -> Terms:
        return (Read(slice(1, None, 2)),)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        pair = f"reads s = {words.read(2 * head)} and v = {words.read(2 * head + 1)}"
        return [f"{pair}; scores s on itself, returns s times v"]
