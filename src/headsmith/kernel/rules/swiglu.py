"""SwiGLU blocks: layers of neurons, as a Llama has them after its attention, in place of heads.

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

import numpy as np

from ..core.arithmetic import EXP_ULPS, Upper, largest, smallest
from ..core.errors import Refused, refuse
from ..core.model import Bank, Model
from ..core.softmax import Local, Reads, refuse_large
from ..core.sparse import entries_of, of_rows


def neuron_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What neurons commit: pairs that multiply, or gates."""
    refuse(model.precision.held, "there is no rule for neurons in formats of 16 bits")
    return _products(model, bank, reads) if bank.kind == "swiglu" else _gates(model, bank, reads)


def _products(model: Model, bank: Bank, reads: Reads) -> Local:
    x, y, precision = reads[0::2], reads[1::2], model.precision
    size, nothing = (x.size + x.read * 2.2) * y.size, Upper(np.zeros(bank.outputs))
    refuse_large(model, size, "a product")
    lost = (x.size + 256.0) * (y.size + 1.0) * (4.0 * precision.smallest_normal)
    rounding = (x.wrong + x.read * 1.2) * y.size + x.size * (y.wrong + y.read)
    rounding = rounding + precision.gamma(EXP_ULPS + 6) * size + lost
    return Local(nothing, nothing, nothing, rounding, size + rounding, x.drift * y.drift * 4.0, 0.0)


def _gates(model: Model, bank: Bank, reads: Reads) -> Local:
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
