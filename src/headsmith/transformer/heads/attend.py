"""Attend head: data tokens compare what they ask with what the others hold, and average. Textbook attention.

Queries, keys and values are linear forms of the data tokens. Token i scores

    data token j        q_i . k_j           value v_j
    reference token     -gain               value 0

and gets the softmax mean of the v_j, up to the reference tokens.

Scores lemma.  Scores that are off by at most d move the mean by at most R tanh(d/2), R the spread of the values
    (heads/softmax.py). If queries are off by e and keys by f, component by component, scores are off by at most
    sum |q_c| f_c + |k_c| e_c + e_c f_c. What moves all scores of a query alike does not count: for what the query is
    off by, half the spread of k_c over the tokens stands in for |k_c|.

Leak lemma.  Some data token scores at least -S, S = sum |q_c| |k_c|, and r reference tokens score at most -gain + D,
    D = sum |q_c| drift_c for keys that have drifted from zero there: they weigh at most r e^{S + D - gain}.

The features of query and key, and the values:

    c           row c of the read, on both sides: rows of the queries, then of the keys, then of the values
    silent      KEY * data                                  -gain / KEY * (reference + sum grid)
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.errors import CertificateError
from headsmith.core.figures import count
from headsmith.transformer.heads.bank import (
    KEY,
    HeadBank,
    Words,
    check_vector,
    keep,
)
from headsmith.transformer.heads.running import Attention, shares
from headsmith.transformer.heads.scaling import Scaling
from headsmith.transformer.heads.stream import DATA, GRID, REFERENCE, Feature, On, Read, Terms
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class AttendBank(HeadBank):
    """One attend head. The first `width` rows of `read` are the query, the next ones the key; the others are values,
    one for each output: component `component[k]` of node `node[k]`."""

    kind: ClassVar[str] = "attend"
    called: ClassVar[str] = "attend"
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    counts: ClassVar[tuple[str, ...]] = ("width",)
    mixes: ClassVar[bool] = True

    width: int
    gain: float
    keep_gain: float

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: query, key and values."""
        return 2 * self.width + self.outputs

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """The rows of the query, of the key and of the values."""
        return slice(0, self.width), slice(self.width, 2 * self.width), slice(2 * self.width, self.readers)

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return model.grid_tokens > 0

    def check(self, model: Surroundings, where: str) -> None:
        """Queries and keys of one number or more, all of which are read."""
        check_vector(self, where)
        last = max((link.first + link.rows for link in self.read), default=0)
        if self.width < 1 or last != self.readers:
            raise CertificateError(
                f"{where}: queries and keys of {self.width} numbers, and {self.outputs} values, do not fit {last} reads"
            )

    def evaluated(self, attention: Attention) -> Any:
        return self._outputs(attention, attention.references)

    def closed(self, attention: Attention) -> Any:
        """The softmax mean over the data tokens."""
        return self._outputs(attention, 0)

    def _outputs(self, attention: Attention, references: int) -> Any:
        reads = attention.reads(self)
        query, key, value = (reads[..., part] for part in self.parts)
        places, outputs = np.arange(attention.tokens), np.empty_like(value)
        for queries in attention.query_chunks(attention.batch * attention.tokens):
            # weights[sequence, query token, key token]
            scores = query[:, queries] @ key.swapaxes(1, 2)
            if attention.causal:
                scores[:, places[None, :] > places[queries, None]] = -np.inf
            weights, total = shares(attention, scores[..., None], -self.gain, references)
            outputs[:, queries] = weights[..., 0] @ value / total[..., 0]
        return outputs

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        query, key = (range(part.start, part.stop) for part in self.parts[:2])
        own = [
            Feature(f"feature {each}", (Read(slice(asks, asks + 1)),), (Read(slice(holds, holds + 1)),), "w")
            for each, (asks, holds) in enumerate(zip(query, key, strict=True))
        ]
        if model.reference_tokens:
            grid = (On(GRID, -self.gain / KEY),) if model.grid_tokens else ()
            own.append(Feature("silent", (On(DATA, KEY),), (On(REFERENCE, -self.gain / KEY), *grid)))
        return (*own, *keep(model, self.keep_gain))

    def value(self, model: Surroundings) -> Terms:
        return (Read(self.parts[2]),)

    @property
    def stands_for(self) -> str:
        return f"attention of width w = {self.width}"

    def scaled(self, scaling: Scaling) -> Self:
        # Some data token scores at least minus the largest score.
        depth = scaling.sizes[int(self.node[0])]
        return replace(self, gain=scaling.lifted(scaling.reach + depth), keep_gain=scaling.reference)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        return [f"softmax attention with queries, keys and values of its own ({count(self.width, 'feature')})"]
