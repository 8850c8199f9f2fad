"""Product head: the product of two linear forms, in one head of linear attention.

Head h reads x and y. The data token scores x on itself and holds y there, so that it returns x y: exactly, up to
rounding. Nothing else is in sight, and there is no reference token.

    query   read_x . x              key     data              value   read_y . x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headsmith.heads.bank import HeadBank


@dataclass(frozen=True, eq=False)
class ProductBank(HeadBank):
    """All product heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h."""

    kind: ClassVar[str] = "product"

    @property
    def heads(self) -> int:
        """How many heads there are: one for each output."""
        return self.outputs

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each head."""
        return 2 * self.outputs
