"""Sink head: one ReLU gate by a choice between the token itself and a reference token that holds zero.

With b = query_scale * key_scale, data token i scores

    itself              b z_i                        value z_i
    the reference       0                            value 0
    data token j != i   b z_i - position_gain h_ij   value z_j       h_ij >= 1: bits in which the positions differ

so that, up to the other tokens, the head returns z sigmoid(b z).

Gate lemma.  0 <= relu(z) - z sigmoid(b z) = |z| / (1 + e^{b|z|}) <= min(W(1/e) / b, |z| / 2).
    With y = b|z| the middle is (1/b) y / (1 + e^y); its derivative vanishes where e^y (y - 1) = 1, that is y = 1 +
    W(1/e), and the value there is (y - 1)/b = W(1/e)/b.

Leak lemma.  The other data tokens together weigh at most L = (1 + e^{-position_gain})^bits - 1.
    Every pattern of differing bits belongs to at most one token, and every token has z_i's score: the sum over j != i
    of e^{-gain h_ij} is at most sum_{h >= 1} binomial(bits, h) e^{-gain h}. They move a convex combination of values in
    [-Z, Z] by at most 2 Z L, whatever b is. Where table heads brought a grid of p more reference tokens, these score
    -reference_gain, hold zero, and weigh at most p e^{-reference_gain} more.

The features of query and key, one row each (d_head of them), and the value:

    slope       query_scale * (read . x)              key_scale * data
    reference   reference_gain / KEY * reference      KEY * reference
    bit k       position_gain / 2 / KEY * position[k] KEY * position[k]
    offset      KEY * data                            -position_gain * bits / 2 / KEY * data
    grid        KEY * data                            -reference_gain / KEY * (sum of grid)
    value       read . x

KEY = 8 only shares the gains between query and key, so that neither has large weights; a power of two, it rounds
nothing. The sink attends to itself (and the grid's tokens to the sink: the query of `reference` then also holds the sum
of grid), reference_gain above the data tokens, so it stays (almost) zero under full attention too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import gate_constant
from headsmith.core.figures import number
from headsmith.transformer.heads.attentions import EXACT, GATES, WITHOUT_SINK
from headsmith.transformer.heads.bank import KEY, ScaledBank, Words, keep, position_features
from headsmith.transformer.heads.other_gates import other_gates
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.scaling import Scaling, even, heaviest_read, in_parts, rounded_up, split_scale
from headsmith.transformer.heads.stream import DATA, GRID, REFERENCE, Feature, On, Read, Terms, position_bits
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class SinkBank(ScaledBank):
    """All sink heads of one layer. Head h computes gate `component[h]` of the source graph's relu node `node[h]`."""

    kind: ClassVar[str] = "sink"
    called: ClassVar[str] = "gate"
    folded_arrays: ClassVar[tuple[str, ...]] = ("query_scale",)
    numbers: ClassVar[tuple[str, ...]] = ("reference_gain", "position_gain")

    reference_gain: float
    position_gain: float

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return True

    def shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        scales = [(values.shape, (self.heads,)) for values in (self.query_scale, self.key_scale)]
        return [*scales, *super().shapes()]

    def evaluated(self, attention: Attention) -> Any:
        if attention.transformer.attention != "softmax":
            return other_gates(attention, self)
        values, dtype = attention.reads(self), attention.dtype
        scores = values * self.query_scale.astype(dtype)
        scores *= self.key_scale.astype(dtype)
        top = np.maximum(scores, 0.0)
        scores -= top
        own = attention.powers(scores)
        silent = attention.power(0.0, top)
        grid = attention.transformer.grid_tokens
        if grid and not attention.hard:
            silent += attention.power(-self.reference_gain, top) * dtype.type(grid)
        mixed, total = attention.crowded(self.position_gain, values)
        silent += own * total if attention.tokens > 1 else own
        own /= silent
        own *= mixed
        return own

    def closed(self, attention: Attention) -> Any:
        """z / (1 + e^(-b z))."""
        if attention.transformer.attention != "softmax":
            return other_gates(attention, self)
        values, dtype = attention.reads(self), attention.dtype
        with np.errstate(over="ignore"):
            powers = values * (-self.query_scale * self.key_scale).astype(dtype)
            np.exp(powers, out=powers)
        powers += 1.0
        return np.divide(values, powers, out=powers)

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        if model.attention == "elu+1":
            far = -self.reference_gain
            slope = Feature("slope", (Read(scale=self.query_scale),), (On(REFERENCE, far),))
            return (slope, Feature("slope of the sink", (Read(scale=-self.query_scale),), (On(DATA, far),)))
        slope = Feature("slope", (Read(scale=self.query_scale),), (On(DATA, self.key_scale[:, None]),))
        # A gate without a sink has no reference (heads/attentions.py).
        sink = () if model.attention in WITHOUT_SINK else keep(model, self.reference_gain, name="reference")
        apart = -self.position_gain * position_bits(model.tokens) / 2.0 / KEY
        offset = (Feature("offset", (On(DATA, KEY),), (On(DATA, apart),)),) if model.tokens > 1 else ()
        silent = Feature("grid", (On(DATA, KEY),), (On(GRID, -self.reference_gain / KEY),))
        grid = (silent,) if model.grid_tokens else ()
        return (slope, *sink, *position_features(model, self.position_gain / 2.0), *offset, *grid)

    def value(self, model: Surroundings) -> Terms:
        # The value of a gate of relu attention is one.
        return (On(DATA, np.ones((self.heads, 1, 1))),) if model.attention == "relu" else (Read(),)

    def scaled(self, scaling: Scaling) -> Self:
        precision, ones = scaling.model.precision, np.ones(self.heads)
        if scaling.model.attention in EXACT:
            # Other tokens must score less under hardmax, and nothing above zero under relu attention.
            apart = 2.0 if scaling.model.tokens > 1 else 0.0
            if scaling.model.attention == "relu" and scaling.model.tokens > 1:
                most = max(scaling.sizes[each] for each in {*self.node.tolist()})
                apart = 2.0 ** math.ceil(math.log2(max(most, precision.smallest_normal)) + 0.5)
            return replace(self, query_scale=ones, key_scale=ones, position_gain=apart, reference_gain=2.0)
        if scaling.model.attention == "elu+1":
            steep = rounded_up(scaling.common / heaviest_read(self), precision)
            far = max(scaling.reach + 8.0, -math.log(precision.unit_roundoff))
            kept = replace(
                self, position_gain=0.0, reference_gain=float(rounded_up(np.array(math.ceil(far)), precision))
            )
            return replace(kept, query_scale=steep, key_scale=ones)
        if scaling.model.attention == "sigmoid" and scaling.model.tokens > 1:
            # The largest score, and all that may leak, below zero.
            query, key = split_scale(scaling.common / heaviest_read(self), precision)
            most = max(float(b * scaling.sizes[n]) for b, n in zip(query * key, self.node.tolist(), strict=True))
            kept = replace(self, position_gain=even(1.01 * most + scaling.reach + 4.0, precision))
            return replace(kept, query_scale=query, key_scale=key, reference_gain=scaling.reference)
        # Sums of registers times powers of two round least (kernel/core/stream.py).
        scale = 2.0 ** math.ceil(math.log2(scaling.of_gates)) if in_parts(self) else scaling.of_gates
        query, key = split_scale(scale / heaviest_read(self), precision)
        kept = replace(self, position_gain=scaling.position, reference_gain=scaling.reference)
        return replace(kept, query_scale=query, key_scale=key)

    def softmax_constant(self, model: Surroundings) -> float:
        return GATES.get(model.attention, gate_constant())

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        read = f"reads z = {words.read(head)}; {_looks(model.attention, float(self.scale[head]))}"
        return [read] if head else [read, "so it returns z where z > 0 and zero where z < 0"]


def leak_weight(position_gain: float, tokens: int, disturbance: Array) -> Array:
    """Bound of the total weight of the other data tokens, when rounding moves scores by at most `disturbance`.

    Guarantee: ((1 + e^{-gain})^bits - 1) e^{2 disturbance} <= bits e^{bits e^{-gain}} e^{2 disturbance - gain}, rounded
    up.
    """
    bits = position_bits(tokens)
    if bits == 0:
        return np.zeros_like(disturbance)
    # (1 + t)^m - 1 <= m t e^{m t}.  numpy's exp is good to a few units in the last place; 1e-9 covers it many times.
    single = np.exp(-position_gain)
    with np.errstate(over="ignore"):
        return np.asarray(bits * np.exp(bits * single) * np.exp(2.0 * disturbance - position_gain) * (1.0 + 1e-9))


def _looks(attention: str, scale: float) -> str:
    """How a gate of scale b looks at itself."""
    score = f"{number(scale)} z"
    match attention:
        case "relu":
            return "looks at itself with weight max(z, 0), where it finds 1"
        case "sigmoid":
            return f"looks at itself with weight 1/(1 + exp(-{score}))"
        case "hardmax":
            return "looks at itself if z > 0, else at r0"
        case "sparsemax":
            return f"looks at itself with weight (1 + {score})/2, clipped to [0, 1], else at r0"
        case "elu+1":
            return f"looks at itself with weight f/(f + g), f = elu({score}) + 1, g = elu(-{score}) + 1, else at r0"
    return f"looks at itself with weight 1/(1 + exp(-{score})), else at r0"
