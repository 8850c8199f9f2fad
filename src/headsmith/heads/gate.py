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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.rounding import upper
from headsmith.heads.bank import HeadBank
from headsmith.heads.stream import position_bits


@dataclass(frozen=True, eq=False)
class GateBank(HeadBank):
    """All gate heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h; `slope` and `offset` are
    (heads, grid tokens)."""

    kind: ClassVar[str] = "gate"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset")

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


def feature_count(tokens: int) -> int:
    """The width of queries and keys."""
    return 3 + position_bits(tokens)


def score_sizes(bank: GateBank, sizes: Array) -> Array:
    """For each head a bound of |slope| |x| + |offset|, the largest over the grid; `sizes` bounds |x|, (heads,)."""
    return np.asarray(upper((np.abs(bank.slope) * sizes[:, None] + np.abs(bank.offset)).max(axis=1), 2))
