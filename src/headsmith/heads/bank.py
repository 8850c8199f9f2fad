"""What all kinds of banks have in common: heads of one layer and one kind, what they stand for, read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen, frozen_indices
from headsmith.heads.stream import Link


@dataclass(frozen=True, eq=False)
class HeadBank:
    """Output k is component `component[k]` of circuit node `node[k]` (-1: of none). Unless a kind says otherwise, the
    bank is one head that reads one linear form for each output."""

    kind: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ()
    """The fields that hold arrays of numbers."""

    node: Indices
    component: Indices
    read: tuple[Link, ...]
    write: tuple[Link, ...]

    def __post_init__(self) -> None:
        for name in ("node", "component"):
            object.__setattr__(self, name, frozen_indices(getattr(self, name)))
        for name in self.arrays:
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return 1

    @property
    def neurons(self) -> int:
        """How many neurons there are, in a layer that has these in place of heads (heads/swiglu.py)."""
        return 0

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns."""
        return int(self.node.size)

    @property
    def cleared(self) -> tuple[str, ...]:
        """The registers that the bank clears: one whose outputs stand for no node adds -1 times what it reads to what
        it reads (lower/reuse.py)."""
        if np.any(self.node >= 0):
            return ()
        return tuple(link.register for link in self.write if link.weights.ndim == 1)

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads."""
        return self.outputs


@dataclass(frozen=True, eq=False)
class ScaledBank(HeadBank):
    """Heads of one linear form and one output each, whose scores have scales of their own."""

    arrays: ClassVar[tuple[str, ...]] = ("query_scale", "key_scale")

    query_scale: Array
    key_scale: Array

    @property
    def heads(self) -> int:
        return len(self.query_scale)

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns: one for each head."""
        return self.heads
