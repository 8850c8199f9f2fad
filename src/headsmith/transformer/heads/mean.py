"""Mean head: one head that averages any number of linear forms over the data tokens.

Every data token scores `gain` on every data token (under a causal mask: up to itself) and zero on reference tokens:

    out_i = sum_j v_j / m      over the m data tokens in sight,      v = read . x,

up to the reference tokens. A model without reference tokens needs no gain.

Leak lemma.  r reference tokens, which hold at most `drift`, weigh at most r e^{-gain} / m, and move a mean of
    values in [-V, V] by at most (r / m) e^{-gain} (V + drift). Without reference tokens the mean is exact.

Rounding lemma.  Scores that are off by at most d move the mean by at most V d; the normalisation and the sum of T
    tokens by gamma_{2T+6} V more (kernel/core/softmax.py).

The features of query and key, and the value:

    gain        gain / KEY * data                           KEY * data
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
    value       read . x, one number for each output
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.transformer.heads.bank import (
    KEY,
    HeadBank,
    Words,
    check_vector,
    keep,
)
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.scaling import Scaling
from headsmith.transformer.heads.stream import DATA, Feature, On
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class MeanBank(HeadBank):
    """One mean head. Output k is the mean of row k of `read`: component `component[k]` of node `node[k]`. With `split`,
    that many heads of the same scores return the same number of outputs each."""

    kind: ClassVar[str] = "mean"
    called: ClassVar[str] = "mean"
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    mixes: ClassVar[bool] = True

    gain: float
    keep_gain: float
    split: int = 1

    @property
    def heads(self) -> int:
        return self.split

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return model.grid_tokens > 0

    def check(self, model: Surroundings, where: str) -> None:
        check_vector(self, where)

    def evaluated(self, attention: Attention) -> Any:
        return self._outputs(attention, True)

    def closed(self, attention: Attention) -> Any:
        """A sum, divided by how many there are."""
        return self._outputs(attention, False)

    def _outputs(self, attention: Attention, leak: bool) -> Any:
        values, dtype = attention.reads(self), attention.dtype
        # exp(-gain) for each reference token beside ones for the data tokens in sight.
        leaked = leak and not attention.hard
        silent = attention.references * np.exp(dtype.type(-self.gain)) if leaked else dtype.type(0.0)
        shares = 1.0 / (attention.seen() + dtype.type(silent))
        if attention.causal:
            return np.cumsum(values, axis=1) * shares[:, None]
        mean = (values * shares[0]).sum(axis=1, keepdims=True)
        return np.broadcast_to(mean, values.shape)

    def constants(self, model: Surroundings) -> dict[str, Any]:
        return {"share": 1.0 / np.arange(1.0, model.tokens + 1.0)[:, None]}

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        gain = Feature("gain", (On(DATA, self.gain / KEY),), (On(DATA, KEY),))
        return (gain, *keep(model, self.keep_gain))

    @property
    def stands_for(self) -> str:
        return "mean over tokens"

    def scaled(self, scaling: Scaling) -> Self:
        return replace(self, gain=scaling.lifted(scaling.alone(int(self.node[0]))), keep_gain=scaling.reference)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        values = ", ".join(words.read(row) for row in range(min(self.outputs, 3)))
        return [f"looks at all data tokens alike, so it returns the mean of {values}"]
