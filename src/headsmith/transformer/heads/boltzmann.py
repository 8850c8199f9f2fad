"""Boltzmann head: the largest (or smallest) value of a linear form over the data tokens.

Key and value are the same number z_j. With b = query_scale * key_scale, every data token scores

    data token j        b z_j + gain          value z_j
    reference token     0                     value 0

so that the head returns the softmax mean of the z_j, nearly their maximum for b > 0 and nearly their minimum for b < 0.

Boltzmann lemma.  b > 0, n data tokens in sight:  0 <= max z - out <= W((n - 1)/e) / b,  W Lambert's function; attained.
    Let u_j = b (max z - z_j) >= 0 for the n - 1 tokens besides the largest. Then b (max z - out) is sum u_j e^{-u_j} /
    (1 + sum e^{-u_j}), which is at most M if sum (u_j - M) e^{-u_j} <= M. Each term is at most e^{-M-1}, at u_j = M +
    1, so (n - 1) e^{-M-1} = M is enough: M e^M = (n - 1)/e.  All u_j = M + 1 attain it.

    Scores that are off by at most d: the largest may be d too low, the others d too high, as if there were N = (n - 1)
    e^{2d} of them: at most W(N/e) / b. Since W'(x) x = W / (1 + W), this adds at most 2 d / b.

    With a gap g to the second largest and b g >= 1 + W(N/e), the terms (u - M) e^{-u} fall from u = b g on, and the
    error is at most N g / (e^{b g} + N): all others exactly g below attain it.

Leak lemma.  r reference tokens weigh at most r e^{-gain - t}, where t is the largest b z_j (t >= -|b| Z in any case,
    for |z| <= Z). They move the output by at most that times Z + drift.

The features of query and key, and the value:

    slope       query_scale * data                          key_scale * (read . x)
    gain        gain / KEY * data                           KEY * data
    keep        keep_gain / KEY * (reference + sum grid)    KEY * reference        where there are reference tokens
    value       read . x
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.balls import boltzmann_constant
from headsmith.core.errors import CertificateError
from headsmith.core.figures import number, shortened
from headsmith.transformer.heads.attentions import EXACT, MAXIMA
from headsmith.transformer.heads.bank import (
    KEY,
    ScaledBank,
    Words,
    keep,
)
from headsmith.transformer.heads.running import Attention, shares
from headsmith.transformer.heads.scaling import Scaling, heaviest_read, split_scale
from headsmith.transformer.heads.stream import DATA, Feature, On, Read
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class BoltzmannBank(ScaledBank):
    """All Boltzmann heads of one layer. Head h reads row h of `read`, and returns the maximum over tokens where
    query_scale[h] * key_scale[h] > 0, the minimum where it is negative."""

    kind: ClassVar[str] = "boltzmann"
    called: ClassVar[str] = "max"
    folded_arrays: ClassVar[tuple[str, ...]] = ("key_scale",)
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    mixes: ClassVar[bool] = True

    gain: float
    keep_gain: float

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return model.grid_tokens > 0

    def check(self, model: Surroundings, where: str) -> None:
        """One scale for each head, none of them zero."""
        for values in (self.query_scale, self.key_scale):
            if values.shape != self.query_scale.shape or values.ndim != 1:
                raise CertificateError(f"{where}: scales of shapes {self.query_scale.shape} and {self.key_scale.shape}")
            if not np.all(values != 0.0):
                raise CertificateError(
                    f"{where}: a head with scale zero returns a mean, not an extreme; use a mean head"
                )

    def evaluated(self, attention: Attention) -> Any:
        return self._outputs(attention, attention.references)

    def closed(self, attention: Attention) -> Any:
        """The softmax mean over the data tokens."""
        return self._outputs(attention, 0)

    def _outputs(self, attention: Attention, references: int) -> Any:
        """All queries have the same scores, unless a mask tells them apart."""
        values, dtype = attention.reads(self), attention.dtype
        # The scores of any data token's query: (batch, key token, head).
        scores = values * self.key_scale.astype(dtype) * self.query_scale.astype(dtype) + dtype.type(self.gain)
        if not attention.causal:
            weights, total = shares(attention, scores, 0.0, references)
            mean = (weights * values).sum(axis=1, keepdims=True) / total
            return np.broadcast_to(mean, values.shape)
        places, outputs = np.arange(attention.tokens), np.empty_like(values)
        for queries in attention.query_chunks(values.size):
            hidden = places[None, :] > places[queries, None]
            # weights[sequence, query token, key token, head]
            weights = np.where(hidden[None, :, :, None], dtype.type(-np.inf), scores[:, None])
            weights, total = shares(attention, weights, 0.0, references)
            weights *= values[:, None]
            outputs[:, queries] = weights.sum(axis=2) / total[:, :, 0]
        return outputs

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        slope = Feature("slope", (On(DATA, self.query_scale[:, None]),), (Read(scale=self.key_scale),))
        gain = Feature("gain", (On(DATA, self.gain / KEY),), (On(DATA, KEY),))
        return (slope, gain, *keep(model, self.keep_gain))

    @property
    def stands_for(self) -> str:
        return "maximum over tokens"

    def scaled(self, scaling: Scaling) -> Self:
        # Under hardmax no scale is too small; scores should be no smaller than what is rounded.
        least = 1.0 if scaling.model.attention in EXACT else 0.0
        query, key = split_scale(max(scaling.common, least) / heaviest_read(self), scaling.model.precision)
        # Reference tokens score zero: the gain must lift the largest data token above them, wherever it is.
        depth = max((float(b * scaling.sizes[n]) for b, n in zip(query * key, self.node.tolist(), strict=True)))
        gain = scaling.lifted(scaling.reach + depth)
        return replace(self, query_scale=query, key_scale=key, gain=gain, keep_gain=scaling.reference)

    def softmax_constant(self, model: Surroundings) -> float:
        return MAXIMA.get(model.attention, boltzmann_constant)(model.tokens)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        scale = float(self.scale[head])
        which, score = "largest" if scale > 0.0 else "smallest", f"scores {number(scale)} v"
        lines = [f"reads v = {words.read(head)}; looks at the data token with the {which} v ({score}), returns its v"]
        pieces = words.pieces(head)
        if pieces:
            told = (f"t{token} holds {shortened(text, 40)}" for token, text in enumerate(pieces))
            lines.append(f"pieces: {', '.join(told)}")
        return lines
