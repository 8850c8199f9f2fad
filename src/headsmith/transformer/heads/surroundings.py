"""What a bank finds in its model: all that one kind of head may ask of the whole. A `Transformer` is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import Precision


class Surroundings(Protocol):
    """A model, as its banks see it."""

    @property
    def tokens(self) -> int:
        """How many data tokens a sequence has at most."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many columns each register has."""

    @property
    def positional(self) -> Mapping[str, Array]:
        """What data tokens hold whatever the inputs are: (tokens, size) for each register."""

    @property
    def attention(self) -> str:
        """The kind of attention of all heads (heads/attentions.py)."""

    @property
    def grid_form(self) -> str:
        """How the grid's tokens hold their table (transformer/ir.py)."""

    @property
    def sink_tokens(self) -> int:
        """One, if there is a sink."""

    @property
    def grid_tokens(self) -> int:
        """How many tokens the grid has."""

    @property
    def reference_tokens(self) -> int:
        """The sink, and the grid."""

    @property
    def precision(self) -> Precision:
        """The format of the model's numbers."""

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """The numbers with which sums, scores and powers of e are computed."""

    def held(self, values: Any) -> Any:
        """Numbers as the model holds them, in the format of its arithmetic."""
