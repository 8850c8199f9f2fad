"""Gate head: the product of one linear form with a function of another, in one head.

Head h reads x and y. Data token i scores

    itself              0                              value y_i
    grid token k        slope[k] x_i + offset[k]       value 0
    data token j != i   -position_gain h_ij            value y_j       h_ij >= 1: bits in which the positions differ
    the sink            -keep_gain                     value 0

so that, up to the other tokens, the head returns

    y g(x),        g(x) = 1 / (1 + sum_k e^{slope[k] x + offset[k]}),

and with g(x) nearly intercept + incline * x, the product is x y = (out - intercept y) / incline (`gate_product_fit`).

Deviation lemma.  |g''| <= g q, q = sum_k w_k slope[k]^2 over the softmax weights w of the grid: g is the softmax
    weight of slope 0, so with m = sum_k w_k slope[k] we have g' = -g m and g'' = g (2 m^2 - q), and m^2 <= q. Over a
    distance r weights change by factors within e^{+-2 s r}, s = max|slope|. So between two points r apart g differs
    from an affine function by at most the larger of the differences there, plus r^2 / 8 times g q at either point times
    e^{4 s r}.

Leak lemma.  The other data tokens weigh at most L = (1 + e^{-position_gain})^bits - 1, as in heads/sink.py, the sink
    e^{-keep_gain}; for |y| <= Y they move the output by at most 2 Y L and Y e^{-keep_gain}. What reference tokens hold
    instead of zero arrives at most as it is.

Rounding lemma.  Values lie between 0 and y: scores off by d move the output by at most Y d / 2 (kernel/softmax.py).

Few sums lemma.  Let a sum have A terms of sizes that add up to S, and any number of silent ones that add up to t. Added
    in any order, rounded to nearest, it is off by at most gamma_A S + 3 t, however many silent terms there are.
    An order is a binary tree. At A - 1 of its nodes both sides hold some of the A terms: these round relatively.
    Anywhere else one side, b, is silent, and the rounding error is at most |b|: the other side is itself a
    floating-point number, so the nearest one is no further (of a fused product, at most |b| and its own rounding).
    Silent subtrees that meet others are disjoint: their values and these errors add up to at most 2 t, up to factors
    1 + gamma.
    Here the A terms are the token itself and the grid, of sizes that add up to at most Y once normalised.

The features of query and key, and the value:

    slope       read_x . x                                          slope . grid
    offset      KEY * data                                          offset / KEY . grid
                                                                        - position_gain * bits / 2 / KEY * data
    bit k       position_gain / 2 / KEY * position[k]               KEY * position[k]
    sink        keep_gain / KEY * (reference + sum grid - data)     KEY * reference
    value       read_y . x
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.transformer.heads.bank import (
    KEY,
    Columns,
    HeadBank,
    Matrices,
    Words,
    keep,
    keep_folded,
    keep_nonzeros,
    largest,
)
from headsmith.transformer.heads.running import Attention, blocks
from headsmith.transformer.heads.scaling import Scaling
from headsmith.transformer.heads.stream import DATA, GRID, POSITION, position_bits
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class GateBank(HeadBank):
    """All gate heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h; `slope` and `offset` are
    (heads, grid tokens)."""

    kind: ClassVar[str] = "gate"
    called: ClassVar[str] = "product"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset")
    folded_arrays: ClassVar[tuple[str, ...]] = ("offset",)
    numbers: ClassVar[tuple[str, ...]] = ("position_gain", "keep_gain")
    approximates: ClassVar[bool] = True
    heavy: ClassVar[bool] = True

    slope: Array
    offset: Array
    position_gain: float
    keep_gain: float

    @property
    def heads(self) -> int:
        return len(self.offset)

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each head."""
        return 2 * self.heads

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns: one for each head."""
        return self.heads

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return True

    def check(self, model: Surroundings, where: str) -> None:
        """One slope and one offset for each head and reference token of the grid."""
        tokens, shape = model.sizes.get(GRID, 0), self.offset.shape
        if self.offset.ndim != 2 or self.slope.shape != shape or shape[1] != tokens or tokens < 1:
            raise CertificateError(
                f"{where}: slopes {self.slope.shape} and offsets {shape} do not fit {tokens} reference tokens"
            )

    def evaluated(self, attention: Attention) -> Any:
        reads, dtype = attention.reads(self), attention.dtype
        slopes, values = reads[..., 0::2], np.ascontiguousarray(reads[..., 1::2])
        mixed, total = attention.crowded(self.position_gain, values)
        slope, offset = self.slope.astype(dtype), self.offset.astype(dtype)
        outputs = np.empty_like(values)
        for rows, heads in blocks(attention, self.heads, self.slope.shape[1]):
            # scores[row, head, grid token]
            scores = slopes.reshape(-1, self.heads)[rows, heads, None] * slope[heads]
            scores += offset[heads]
            top = np.maximum(scores.max(axis=2), 0.0)
            scores -= top[..., None]
            silent = attention.powers(scores).sum(axis=2)
            own = attention.power(0.0, top)
            silent += attention.power(-self.keep_gain, top)
            silent += own * np.broadcast_to(total, (attention.batch, attention.tokens, 1)).reshape(-1, 1)[rows]
            outputs.reshape(-1, self.heads)[rows, heads] = own / silent * mixed.reshape(-1, self.heads)[rows, heads]
        return outputs

    def closed(self, attention: Attention) -> Any:
        """y / (1 + sum_k e^(slope_k x + offset_k))."""
        reads, dtype = attention.reads(self), attention.dtype
        slope, offset = self.slope.astype(dtype), self.offset.astype(dtype)
        slopes, values = reads[..., 0::2], reads[..., 1::2]
        total = np.ones_like(values)
        with np.errstate(over="ignore"):
            for token in range(slope.shape[1]):
                total += np.exp(slopes * slope[:, token] + offset[:, token])
        return values / total

    def constants(self, model: Surroundings) -> dict[str, Any]:
        zero = np.zeros((self.heads, 1))
        return {"slope": np.hstack([zero, self.slope]), "offset": np.hstack([zero, self.offset])}

    def features(self, model: Surroundings) -> tuple[str, ...]:
        return ("slope", "offset", *(f"bit {bit}" for bit in range(position_bits(model.tokens))), "sink")

    def dense(self, model: Surroundings, columns: Columns, read: Array, write: Array) -> Matrices:
        (W_Q, W_K), bits = self.no_features(model, read), position_bits(model.tokens)
        data, grid = columns[DATA], columns[GRID]
        W_Q[:, :, 0] = read[0::2]
        W_K[:, grid, 0] = self.slope
        W_Q[:, data, 1] = KEY
        W_K[:, grid, 1] = self.offset / KEY
        W_K[:, data, 1] = -self.position_gain * bits / 2.0 / KEY
        for bit in range(bits):
            W_Q[:, columns[POSITION].start + bit, 2 + bit] = self.position_gain / 2.0 / KEY
            W_K[:, columns[POSITION].start + bit, 2 + bit] = KEY
        W_Q[:, data, -1] = -self.keep_gain / KEY
        keep(model, columns, self.keep_gain, W_Q, W_K)
        return Matrices(W_Q, W_K, read[1::2, :, None], write[:, None, :])

    def law(self, model: Surroundings) -> tuple[str, str]:
        return "3 + ceil(log2 n)" if model.tokens > 1 else "3", "product"

    def nonzeros(self, model: Surroundings, read: int) -> int:
        bits, keys = position_bits(model.tokens), np.count_nonzero(self.slope) + np.count_nonzero(self.offset)
        return read + int(keys) + self.heads * (1 + (bits > 0) + 2 * bits + keep_nonzeros(model) + 1)

    def folded(self, model: Surroundings) -> list[float]:
        code = abs(self.position_gain) * position_bits(model.tokens) / 2.0 / KEY
        return [KEY, largest(self.offset) / KEY, code, *keep_folded(model, self.keep_gain)]

    def scaled(self, scaling: Scaling) -> Self:
        return replace(self, position_gain=scaling.position, keep_gain=scaling.reference)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        pair = f"reads s = {words.read(2 * head)} and v = {words.read(2 * head + 1)}"
        return [
            f"{pair}; looks at itself with a weight that is affine in s, else at {words.grid}",
            f"so it returns v times that weight: {words.output(head)}",
        ]
