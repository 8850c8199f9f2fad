"""What is asked for, how a search may go about it, and what came of it: the values that passes hand on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.certificate import Certificate
from headsmith.core.errors import HeadsmithError
from headsmith.core.intervals import Box, Interval
from headsmith.core.program import Program
from headsmith.core.progress import Report
from headsmith.core.rounding import PRECISIONS, Dtype, Precision
from headsmith.language.graph import Graph
from headsmith.language.labels import Labels
from headsmith.language.stored import Proof
from headsmith.transformer.bill import Bill, bill
from headsmith.transformer.heads.attentions import AttentionKind
from headsmith.transformer.ir import Transformer


@dataclass(eq=False)
class Failed:
    """Programs that no table was found for, with the errors that were too small: smaller ones need not be tried."""

    errors: dict[tuple[Program, ...], list[tuple[float, ...]]] = field(default_factory=dict)

    def covers(self, programs: tuple[Program, ...], errors: tuple[float, ...]) -> bool:
        known = self.errors.get(programs, [])
        return any(all(a <= b for a, b in zip(errors, other, strict=True)) for other in known)

    def add(self, programs: tuple[Program, ...], errors: tuple[float, ...]) -> None:
        self.errors.setdefault(programs, []).append(errors)


@dataclass(frozen=True, eq=False)
class Request:
    """What is wanted of a model: target and domain, the ranges of all nodes, the error, and limits.

    `attention` is the kind of all heads, and with `alone` data tokens see themselves and reference tokens alone. With
    `neurons`, gates and products are those of SwiGLU blocks. `value_limit` bounds the values of tables. An `accurate`
    search spends as many heads and tokens as small errors take. `failed` keeps what no table was found for.
    """

    graph: Graph
    box: Box
    ranges: Sequence[Interval]
    error: float
    tokens: int
    dtype: Dtype
    max_layers: int | None = None
    value_limit: float = math.inf
    progress: Report | None = None
    accurate: bool = False
    attention: AttentionKind = "softmax"
    alone: bool = False
    neurons: bool = False
    failed: Failed = field(default_factory=Failed)

    def tell(self, text: str, fraction: float = 0.0) -> None:
        """Report what is being done, and how much of it is done, from 0 to 1."""
        if self.progress is not None:
            self.progress(text, fraction)

    @property
    def precision(self) -> Precision:
        """The floating point that the model runs in."""
        return PRECISIONS[self.dtype]

    @property
    def inputs(self) -> Array:
        """How far the inputs are rounded."""
        rounding = 0.0 if self.dtype == "float64" else self.precision.unit_roundoff
        return np.asarray(self.ranges[0].magnitude * rounding)

    def allows(self, transformer: Transformer) -> bool:
        """Whether a model has no more layers than are wanted."""
        return self.max_layers is None or len(transformer.layers) <= self.max_layers


@dataclass(frozen=True)
class Policy:
    """How one attempt shares the error out: `share` is what the approximation part may take of it, `room` how many
    times the margins cover what arguments are expected to be off by, `caution` how many times the rounding of
    multiplying heads is taken for what it is on its own (plan/native.py)."""

    share: float
    room: float
    caution: float


@dataclass(frozen=True, eq=False)
class Met:
    """A certified model, with its proof, and what the nodes of the proof's circuit mean."""

    transformer: Transformer
    certificate: Certificate
    proof: Proof
    labels: Labels

    @cached_property
    def bill(self) -> Bill:
        """What the model costs."""
        return bill(self.transformer, self.certificate.max_score)


def nearer(one: Met | None, other: Met | None) -> Met | None:
    """The model of the smaller certified error."""
    return min((met for met in (one, other) if met is not None), key=lambda met: met.certificate.error, default=None)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a search: a model within the error, or why there is none (`refusal`); and `nearest`, the model of
    the smallest error that was certified on the way and has no more layers than are wanted."""

    met: Met | None = None
    nearest: Met | None = None
    refusal: HeadsmithError | None = None

    def after(self, earlier: Outcome) -> Outcome:
        """This outcome, of a search that came after an earlier one."""
        return replace(self, nearest=nearer(earlier.nearest, self.nearest))
