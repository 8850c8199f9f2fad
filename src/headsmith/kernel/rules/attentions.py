"""Attentions whose weights are no shares of one, and elu+1. A model says which kind all of its heads have; softmax,
hardmax and sparsemax have the rules of heads.py. Weights, from scores s:

    sigmoid     1 / (1 + e^-s)
    relu        max(s, 0)
    linear      s
    elu+1       phi(q) . phi(k) over its sum; phi(x) is e^x below zero and 1 + x above, feature by feature

Under elu+1 and linear attention there is one data token, or any number of them where each sees itself and the reference
tokens alone (the mask self+prefix). Under elu+1 it sees the sink, which holds zero, and a causal mask must hide it from
that, so that the sink stays exactly zero. Under the others there are no reference tokens.

Gates.  With t = b z a token scores t on itself, and t - position_gain h on a token whose position differs in h bits.
Under elu+1 its query is (t, -t), its key (0, -C) and the sink's (-C, 0), C = reference_gain. The head returns z s(t), s
in [0, 1], never above relu(z) and below it by

    sigmoid     |z| / (1 + e^(b|z|)) <= W(1/e) / b < 0.27846454276107386 / b   (softmax.py)
    elu+1       |z| / (1 + (1 + y) e^y) <= 0.16 / b, y = b|z|,                 and by at most |z| e^-C more: with
                a = phi(t), c = phi(-t) the weight is (a + c e^-C) / ((a + c) (1 + e^-C)), within e^-C of a / (a + c)
    relu        nothing: the score is z, the value one, and b must be one.

For elu+1, e^y >= 2.2255 (y + 0.2), the tangent at 0.8, so 0.16 (1 + (1 + y) e^y) - y is at least
0.35608 y^2 - 0.572704 y + 0.231216, whose discriminant is negative.

Other tokens.  Scores are sums of bits + 2 products, bits . position_gain and |t| in size, and off by at most
d = gamma_(bits+7) (|t| + bits . position_gain). So another token scores at most |t| + d - position_gain: under relu
attention it must be at most zero, and weighs nothing; under sigmoid attention it weighs at most e to that power. There
T tokens add up to at most t = (T - 1) e^(...) size, and the sum is off by 1.6 t more (softmax.py, few sums): 3 t.

Rounding.  A score t that is off by a factor 1 + m, |m| <= r, is that of another scale: below becomes c / (b (1 - r)).
Where two features of a query, t and -t, are read and rounded apart, their weights are those of some t between the two,
because a / (a + c) rises with both. A product that underflows, and the position code, move a score by `lost`, and a
weight by as much (no s is steeper than one). Powers of e, sums, quotients and products are off by fewer than 40
roundings of a weight of at most one (two powers of e with 2 EXP_ULPS each), or by a few smallest normal numbers where
they underflow, or where a power overflows. What is read costs as much as in rule Sink, where nothing but s in [0, 1] is
used. Under relu attention the score is off by d, and so is what the head returns; without a position code nothing is
rounded.

Moves, under sigmoid and relu attention.  A token scores gain (bits - 2 h) - gain (bits - 1/2) on one whose position
differs from the address in h bits: gain/2 on the addressed one, -3/2 gain or less on others; and -gain (bits - 1/2) on
all where the address says: nothing. Under relu attention gain must be two: products and their sums, in any order, are
whole numbers below 2^8, weights are one and zero, and nothing is rounded but what is read. Under sigmoid attention,
with scores off by d = gamma_(bits+7) 2 bits gain, every weight is within w = e^(d - gain/2) of one or zero, so T of
them move the output by at most T w size, and their sum by 1.6 times that (few sums): 3 T w size. Weight, product and
sum round as above.

Products.  Under linear attention a head of forms x and y scores x and holds y: it returns x y, rounded once. Computed
from x + dx and y + dy it is off by |dx| |y + dy| + |x| |dy|, and the product of arguments that arrive off has slopes
y + dy by x, and x by y.
"""

import numpy as np

from ..core.arithmetic import Upper, interval, smallest
from ..core.errors import Refused, refuse
from ..core.model import Bank, Model
from ..core.softmax import Local, Reads, refuse_large, scales_of

GATES = {"sigmoid": 0.27846454276107386, "relu": 0.0, "elu+1": 0.16}


def other_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What the heads of a bank commit, where weights are no shares of one."""
    refuse(reads.drift.value.any(), "a reference token holds something where it should hold zero")
    if not model.precision.gamma(model.tokens, 0).value <= 0.125:
        raise Refused(f"{model.tokens} tokens are too many for sums in {model.precision.name}")
    return {"product": _products, "move": _moves, "sink": _gates}[bank.kind](model, bank, reads)


def _gates(model: Model, bank: Bank, reads: Reads) -> Local:
    kind, precision, size, bits = model.attention, model.precision, reads.size, model.bits
    scale, lost = scales_of(model, bank, reads, "query_scale", "key_scale")
    ones = {"relu": ("query_scale", "key_scale"), "elu+1": ("key_scale",)}.get(kind, ())
    if any(np.any(bank.arrays[name] != 1.0) for name in ones):
        raise Refused(f"under {kind} attention {' and '.join(ones)} must be one")
    gain, apart, nothing = bank.gains["reference_gain"], bank.gains["position_gain"], Upper(np.zeros(bank.outputs))
    own, code, relative = size * scale.high, Upper(bits) * apart, precision.gamma(bits + 7)
    refuse_large(model, own + code + gain, "a score")
    off = relative * (own + code)
    above = own + off - apart  # no other token scores more
    if kind == "relu" and bits and not (above.value <= 0.0).all():
        raise Refused(f"another token may score {float(above.value.max()):.3g}, and a weight must be zero")
    flat = (scale * (interval(1.0) - precision.gamma(bits + 8).value)).low
    below = smallest(Upper(np.full(bank.outputs, GATES[kind])) / flat, size * 0.5)
    leak, rounding = nothing, reads.wrong + off if bits else reads.wrong
    if kind != "relu":
        rounding = reads.wrong + reads.read + size * (lost + relative * code) + _weighed(model, size)
    if kind == "elu+1":
        leak = size * (Upper(-gain).exp() * 1.001)
    elif kind == "sigmoid" and bits:
        leak = above.exp() * (3.01 * model.tokens) * size
    # Under elu+1 a score is phi(t) + phi(-t) e^-C, or the same with t and -t changed: at most |t| + 2.
    score = float((own + code + gain + off + lost + 2.0 * (kind == "elu+1")).max().value)
    return Local(below, nothing, leak, rounding, size + precision.gamma(40) * size + rounding + leak, nothing, score)


def _weighed(model: Model, size: Upper) -> Upper:
    """What weights, products and their sum round."""
    tiny = (4.0 * model.tokens + 8.0) * model.precision.smallest_normal
    return model.precision.gamma(40) * size + (size + 1.0) * tiny


def _moves(model: Model, bank: Bank, reads: Reads) -> Local:
    gain, size, leak = bank.gains["gain"], reads.size, Upper(np.zeros(bank.outputs))
    score, rounding, nothing = Upper(2.0 * model.bits) * gain, reads.wrong, leak
    refuse_large(model, score, "a score")
    if model.attention == "sigmoid":
        leak = (model.precision.gamma(model.bits + 7) * score - gain / 2.0).exp() * (3.01 * model.tokens) * size
        rounding, score = rounding + _weighed(model, size), score + model.precision.gamma(model.bits + 7) * score
    elif gain != 2.0:
        raise Refused(f"under relu attention the gain of a move must be two, and is {gain}")
    return Local(nothing, nothing, leak, rounding, size + leak + rounding, nothing, float(score.value))


def _products(model: Model, _: Bank, reads: Reads) -> Local:
    x, y = reads[0::2], reads[1::2]
    size, nothing = x.size * y.size, Upper(np.zeros(len(x.size.value)))
    refuse_large(model, size, "a product")
    lost = model.precision.gamma(4) * size + 4.0 * model.precision.smallest_normal
    rounding = x.wrong * y.size + x.size * y.wrong + lost
    return Local(nothing, nothing, nothing, rounding, size + lost, nothing, float(x.size.max().value))
