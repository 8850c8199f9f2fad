"""Other attentions: heads whose weights are no softmax of their scores. A model says which kind all of its heads have.

There is one data token. It sees itself and one reference token, the sink, which holds zero; under sigmoid, relu and
linear attention itself alone. Any number of data tokens do as well, where each sees itself and the reference tokens
alone (the mask self+prefix). Reference tokens see no data token, or give it no weight: under hardmax and sparsemax
because the sink scores reference_gain >= 1 on itself and 0 elsewhere; under elu+1 a causal mask must hide it. So they
stay exactly zero. Weights, from scores s:

    hardmax     equal shares to the largest, nothing to others
    sparsemax   max(s - c, 0), c such that the sum is one
    sigmoid     1 / (1 + e^-s)
    relu        max(s, 0)
    linear      s
    elu+1       phi(q) . phi(k) over its sum; phi(x) is e^x below zero and 1 + x above, feature by feature

Gates.  With t = b z the token scores t on itself and 0 on the sink; under elu+1 its query is (t, -t), its key (0, -C)
and the sink's (-C, 0), C = reference_gain. The head returns z s(t), s in [0, 1], never above relu(z) and below it by

    hardmax     nothing
    sparsemax   |z| (1 - b|z|) / 2 <= 1/8 / b                                  for s = (1 + t)/2, clipped to [0, 1]
    sigmoid     |z| / (1 + e^(b|z|)) <= W(1/e) / b < 0.27846454276107386 / b   (softmax.py)
    elu+1       |z| / (1 + (1 + y) e^y) <= 0.16 / b, y = b|z|,                 and by at most |z| e^-C more: with
                a = phi(t), c = phi(-t) the weight is (a + c e^-C) / ((a + c) (1 + e^-C)), within e^-C of a / (a + c)
    relu        nothing: the score is z, the value one, and b must be one.

For elu+1, e^y >= 2.2255 (y + 0.2), the tangent at 0.8, so 0.16 (1 + (1 + y) e^y) - y is at least
0.35608 y^2 - 0.572704 y + 0.231216, whose discriminant is negative.

Rounding.  A score t that is off by a factor 1 + m, |m| <= r, is that of another scale: below becomes c / (b (1 - r)).
Where two features of a query, t and -t, are read and rounded apart, their weights are those of some t between the two,
because a / (a + c) rises with both. A product that underflows moves a score by `lost`, and a weight by as much (no s is
steeper than one); under hardmax it may turn the sign of t, at a cost of |z| <= lost / (b (1 - r)). Powers of e, sums,
quotients and products are off by fewer than 40 roundings of a weight of at most one (two powers of e with 2 EXP_ULPS
each), or by a few smallest normal numbers where they underflow, or where a power overflows. What is read costs as much
as in rule Sink, where nothing but s in [0, 1] is used.

Products.  Under linear attention a head of forms x and y scores x and holds y: it returns x y, rounded once. Computed
from x + dx and y + dy it is off by |dx| |y + dy| + |x| |dy|, and the product of arguments that arrive off has slopes
y + dy by x, and x by y.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arithmetic import Interval, Upper, interval, smallest
from .errors import Refused
from .functions import Program, named
from .graph import PRODUCT
from .model import Bank, Model
from .softmax import Local, Reads, refuse_large, scales_of

GATES = {"hardmax": 0.0, "sparsemax": 0.125, "sigmoid": 0.27846454276107386, "relu": 0.0, "elu+1": 0.16}
SQUARES = named("square"), Program(1, (("times", 0, 0),))


def other_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What the heads of a bank commit, under another attention than softmax."""
    if reads.drift.value.any():
        raise Refused("a reference token holds something where it should hold zero")
    if bank.kind == "product" and model.attention == "linear":
        return _products(model, reads)
    if bank.kind != "sink" or model.attention not in GATES:
        raise Refused(f"there is no rule for {bank.kind} heads under {model.attention} attention")
    return _gates(model, bank, reads)


def _gates(model: Model, bank: Bank, reads: Reads) -> Local:
    kind, precision, size = model.attention, model.precision, reads.size
    scale, lost = scales_of(model, bank, reads, "query_scale", "key_scale")
    ones = {"relu": ("query_scale", "key_scale"), "elu+1": ("key_scale",)}.get(kind, ())
    if any(np.any(bank.arrays[name] != 1.0) for name in ones):
        raise Refused(f"under {kind} attention {' and '.join(ones)} must be one")
    gain, nothing = bank.gains["reference_gain"], Upper(np.zeros(bank.outputs))
    if kind in ("hardmax", "sparsemax") and gain < 1.0:
        raise Refused(f"the sink keeps to itself by {gain}, which is less than one")
    score = (size * scale.high).max() + gain
    refuse_large(model, score, "a score")
    flat = (scale * (interval(1.0) - precision.gamma(8).value)).low
    rounding = reads.wrong
    if kind != "relu":
        rounding = rounding + reads.read + precision.gamma(40) * size + size * lost + lost / flat
        rounding = rounding + (size + 1.0) * (8.0 * precision.smallest_normal)
    leak = size * (Upper(-gain).exp() * 1.001) if kind == "elu+1" else nothing
    below = smallest(Upper(np.full(bank.outputs, GATES[kind])) / flat, size * 0.5)
    return Local(below, nothing, leak, rounding, size + precision.gamma(40) * size, nothing, float(score.value))


def _products(model: Model, reads: Reads) -> Local:
    x, y = reads[0::2], reads[1::2]
    size, nothing = x.size * y.size, Upper(np.zeros(len(x.size.value)))
    refuse_large(model, size, "a product")
    rounding = x.wrong * y.size + x.size * y.wrong + model.precision.gamma(4) * size
    rounding = rounding + 4.0 * model.precision.smallest_normal
    reach = size + model.precision.gamma(4) * size + 4.0 * model.precision.smallest_normal
    return Local(nothing, nothing, nothing, rounding, reach, nothing, float(x.size.max().value))


def product_slopes(program: Program, seen: Sequence[Interval]) -> tuple[Interval, ...]:
    """The slopes of a product, or of a square, of arguments in these ranges, as they are and as they arrive."""
    if program == PRODUCT:
        return seen[1], seen[0]
    if program in SQUARES:
        return (seen[0] + seen[0],)
    raise Refused("a product head computes products and squares only")
