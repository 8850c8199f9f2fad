"""What a falsifier finds: the worst input of a search, beside the certified error. It is an estimate from below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core import figures
from headsmith.core.arrays import Array
from headsmith.core.markup import table
from headsmith.language.graph import Affine, Graph

SMALL = 20_000
"""Up to this many weights a whole search compares with the target in extended precision."""


@dataclass(frozen=True, eq=False)
class Found:
    """The worst input of a search: an estimate from below of the model's true error.

    `error` is |model - target| there, at output `output`; `input` is a point, or for a sequence model a sequence
    (tokens, features), and `token` then says at which token. `tightness` is `error` over the certified error; `ratio`
    is the largest of error over certified error of the same output, at any input tried: above one, the certificate
    would be refuted.
    """

    error: float
    input: Array
    output: int
    tightness: float
    ratio: float
    evaluations: int
    token: int | None = None

    def __repr__(self) -> str:
        verdict = "; REFUTES the certificate" if self.refutes else ""
        return (
            f"<Found: error {figures.found(self.error)} at {self._where}, {self.tightness:.3g} of what is certified "
            f"(an estimate, from {figures.count(self.evaluations, 'input')}){verdict}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("worst error found", figures.found(self.error), f"an estimate, from {self.evaluations:,} inputs"),
            ("tightness", f"{self.tightness:.3g}", "found / certified"),
            ("where", "", self._where),
        ]
        return table("Falsifier", rows)

    @property
    def _where(self) -> str:
        """The input in a few words."""
        flat = self.input.reshape(-1)
        numbers = ", ".join(f"{value:.4g}" for value in flat[:4]) + (", ..." if flat.size > 4 else "")
        place = f"({numbers})" if self.input.ndim == 1 else f"a sequence of {len(self.input)} tokens ({numbers})"
        return f"{place}, output {self.output}" + ("" if self.token is None else f", token {self.token}")

    @property
    def refutes(self) -> bool:
        return self.ratio > 1.0


def fitting_dtype(graph: Graph) -> Any:
    """Extended precision where that is affordable."""
    weights = sum(term.weights.size for node in graph.nodes if isinstance(node, Affine) for term in node.terms)
    return np.longdouble if weights <= SMALL else np.float64


def over(errors: Array, bounds: Array) -> Array:
    """errors / bounds, where nothing over nothing is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(errors == 0.0, 0.0, errors / bounds))
