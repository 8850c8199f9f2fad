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

SwiGLU blocks: layers of neurons, as a Llama has them after its attention, in place of heads.

A neuron reads two linear forms g and v of its own token and returns silu(g) v, silu(t) = t s(t), s(t) = 1 / (1 + e^-t);
what it returns is written like the output of a head. Banks are `swiglu`, products, and `silu`, gates (model.py).
silu is computed as t / (1 + e^-t), or as t times 1 / (1 + e^-t) or, of t < 0, e^t / (1 + e^t).

Silu.  Write S(t) = silu(t) and T(t) = -silu(-t). Then S + T = t; both have the sign of t; |S(t)| + |T(t)| = |t|; and
their slopes lie in [-0.1, 1.1]. For with E = e^-t, S' = (1 + E + t E) / (1 + E)^2 <= 1.1 means t <= 0.1 e^t + 1.2 +
1.1 e^-t; the difference is smallest at e^t = 11, where it is 2.4 - log 11 > 0. And S'(t) + S'(-t) = 1.

Products.  Two neurons return S(x) y and T(x) y, which add up to x y. Both read the same registers, perhaps in other
    orders: x + c + r1 and x + c + r2, |c| <= deviation + stored and |r| <= read; y + f1 and y + f2. So what they return
    adds up to x y, up to |c| |y| + 1.1 (|r1| + |r2|) |y + f| + |x + c| |f|: that is what is `wrong` times the other
    size, and 1.2 read besides. (Slopes of what arrives are those of the product.)

    Rounding.  Of a power of e that is off by a factor 1 + m, |m| <= 2 k u (k = EXP_ULPS), s(t) is off by (1 - s) |m| of
    itself. Both neurons together by |m| (|t1| s (1 - s) + |t2| s (1 - s)) <= k u |t|. One plus the power, the quotient
    (or a reciprocal and a product) and the product with v are four roundings; we count k + 6 of both sizes, |t1| + 1.1
    |t1 - t2|.

    Two terms.  The register is added to twice (stream.py). Each term lies between zero and their sum, unless what the
    neurons read differs in sign: then |t| <= 2 read or |v| <= 2 read, and the term is within the `rounding` below.

    On reference tokens each returns at most what drifted there, multiplied.

Gates.  One neuron of g = b z and v = data, b >= 1 a power of two, is written with 1 / b: it returns z s(b z), where z
    is read once. That is never above relu(z) and below it by at most W(1/e) / b < 0.27846454276107386 / b, and |z| / 2
    (softmax.py); the power costs 2 k u of what is returned, other roundings as above. On reference tokens `data` is
    zero, and so is what is returned.

Where a power, a quotient or a product leaves the format, silu(t) is off by at most |t| + 256 smallest normal numbers:
if e^-t overflows, |silu(t)| <= |t| e^t <= log(largest) / largest.
"""

from collections.abc import Sequence

import numpy as np

from .arithmetic import EXP_ULPS, Interval, Upper, interval, largest, smallest
from .errors import Refused, refuse
from .functions import Program, named
from .graph import PRODUCT
from .model import Bank, Model
from .softmax import Local, Reads, refuse_large, scales_of
from .sparse import entries_of, of_rows

GATES = {"sigmoid": 0.27846454276107386, "relu": 0.0, "elu+1": 0.16}
SQUARES = named("square"), Program(1, (("times", 0, 0),))


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
    reach, score = size + precision.gamma(40) * size + rounding + leak, (own + code + gain).max()
    return Local(below, nothing, leak, rounding, reach, nothing, float(score.value))


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
        rounding = rounding + _weighed(model, size)
    elif gain != 2.0:
        raise Refused(f"under relu attention the gain of a move must be two, and is {gain}")
    return Local(nothing, nothing, leak, rounding, size + leak + rounding, nothing, float(score.value))


def _products(model: Model, _: Bank, reads: Reads) -> Local:
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


# Neurons ------------------------------------------------------------------------------------------------------------


def neuron_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What neurons commit: pairs that multiply, or gates."""
    refuse(model.precision.held, "there is no rule for neurons in formats of 16 bits")
    return _multiplied(model, bank, reads) if bank.kind == "swiglu" else _neuron_gates(model, bank, reads)


def _multiplied(model: Model, bank: Bank, reads: Reads) -> Local:
    x, y, precision = reads[0::2], reads[1::2], model.precision
    size, nothing = (x.size + x.read * 2.2) * y.size, Upper(np.zeros(bank.outputs))
    refuse_large(model, size, "a product")
    lost = (x.size + 256.0) * (y.size + 1.0) * (4.0 * precision.smallest_normal)
    rounding = (x.wrong + x.read * 1.2) * y.size + x.size * (y.wrong + y.read)
    rounding = rounding + precision.gamma(EXP_ULPS + 6) * size + lost
    return Local(nothing, nothing, nothing, rounding, size + rounding, x.drift * y.drift * 4.0, 0.0)


def _neuron_gates(model: Model, bank: Bank, reads: Reads) -> Local:
    scale, precision, nothing = bank.arrays["scale"], model.precision, Upper(np.zeros(bank.outputs))
    if not np.all((np.frexp(scale)[0] == 0.5) & (scale >= 1.0)):
        raise Refused("the scale of a gate in a SwiGLU block is no power of two, or less than one")
    refuse_large(model, largest(reads.magnitude, reads.drift) * scale, "what a neuron reads")
    scaled = [entries_of(each.weights) * of_rows(each.weights, scale[each.rows]) for each in bank.read]
    scaled += [entries_of(each.weights.T) / of_rows(each.weights.T, scale[each.columns]) for each in bank.write]
    sizes = np.concatenate([np.abs(each[each != 0.0]) for each in scaled])
    if np.any((sizes < precision.smallest_normal) | (sizes > precision.largest / 16.0)):
        raise Refused(f"a weight and its neuron's scale are beyond {precision.name}")
    below = smallest(Upper(np.full(bank.outputs, 0.27846454276107386)) / scale, reads.size * 0.5)
    held = Upper(np.maximum(reads.exact.high, 0.0)) + reads.off + below
    rounding = reads.wrong + precision.gamma(2 * EXP_ULPS + 6) * held
    rounding = rounding + (reads.size + 256.0) * (4.0 * precision.smallest_normal)
    return Local(below, nothing, nothing, rounding, held + rounding, nothing, 0.0)
