"""The residual stream's vocabulary: registers (named columns) and links (weights between registers and heads).

Nobody writes a column index: weights are attached to names, and `transformer.ir.layout` alone knows which columns a
name has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Weights, frozen, frozen_weights
from headsmith.kernel.core.sparse import Sparse

DATA = "data"
"""One on every data token, zero on the reference tokens."""

REFERENCE = "reference"
"""One on the first reference token, the sink that stands for zero; zero on all others."""

GRID = "grid"
"""Which of the grid's reference tokens a token is: a one-hot row; zero on the sink and on data tokens."""

POSITION = "position"
"""The binary position code of a data token, +1 or -1 a bit; absent when there is a single data token."""

RESERVED = (DATA, REFERENCE, POSITION, GRID)


@dataclass(frozen=True)
class Register:
    """A named block of residual columns. The column i of the block is called name[i]."""

    name: str
    size: int


@dataclass(frozen=True, eq=False)
class Link:
    """Weights (to, from) between one register block and a run of heads, inputs or outputs that starts at `first`.

    A vector stands for a diagonal matrix. Read by heads: to = heads, from = register. Written by heads: to = register,
    from = heads.
    """

    register: str
    weights: Weights
    first: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozen_weights(self.weights))

    @property
    def rows(self) -> int:
        return int(self.weights.shape[0])

    @property
    def columns(self) -> int:
        return int(self.weights.shape[-1])

    @property
    def reads(self) -> slice:
        """The heads (or outputs) that this link feeds, where it reads a register."""
        return slice(self.first, self.first + self.rows)

    @property
    def sources(self) -> slice:
        """The heads (or inputs) that this link takes from, where it writes a register."""
        return slice(self.first, self.first + self.columns)

    def grouped(self, group: Callable[[Any], Any]) -> Any:
        """What a runtime makes of the weights, made once."""
        if "_grouped" not in self.__dict__:
            object.__setattr__(self, "_grouped", group(self.weights))
        return self.__dict__["_grouped"]

    @property
    def entries(self) -> Array:
        """The numbers that are stored of the weights, all that are not zero among them."""
        return np.asarray(self.weights.values if isinstance(self.weights, Sparse) else self.weights)

    @property
    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.entries))


def position_bits(tokens: int) -> int:
    """How many columns the position code of `tokens` data tokens takes: ceil(log2(tokens))."""
    return (tokens - 1).bit_length()


def position_code(tokens: int, count: int | None = None) -> Array:
    """The binary code of positions 0 .. tokens-1, one row each, entries +1 and -1; the first `count` of them.

    Guarantee: two rows i != j have inner product bits - 2 h, where h >= 1 is the number of bits in which they differ.
    """
    bits = position_bits(tokens)
    return frozen(
        1.0 - 2.0 * ((np.arange(tokens if count is None else count)[:, None] >> np.arange(bits)[None, :]) & 1)
    )
