"""Heads, one rule a kind: what a bank's heads commit, given what they read and how well that is known.

Each rule says which tokens are active, what they score, and which lemma of softmax.py bounds what. The features of
queries and keys are those of model.py. Sink, table, ramp and gate look at their own token and at reference tokens;
mean, boltzmann, move and attend look at other data tokens. Bounds of what is read hold for every data token of a
sequence of any length up to the model's, so a mean of errors, the error of a maximum (which is 1-Lipschitz) and an
error that was moved are all within the largest error of a token. A causal mask only takes tokens out of sight: no lemma
needs a token but itself, the addressed one, and the sink, which comes first. Products of zero are exact, so a reference
token's query scores keep_gain on the sink and zero elsewhere, unless a rule says otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .arithmetic import FLOAT64, Array, Interval, Upper, interval, largest, smallest
from .errors import Refused
from .model import Bank, Model
from .softmax import (
    Local,
    Reads,
    crowd_weight,
    exp_error,
    local,
    moved_mean,
    outside_weight,
    refuse_large,
    refuse_read,
    refuse_scaled,
    softmax_maximum,
    spilled,
    underflow,
)

__all__ = ["Local", "Reads", "address_targets", "local_errors"]

FLUSHED = 2.0**-60  # how much queries that underflow may move a score of a sink head
SMALL = 2.0**-8  # how much rounding may move scores for the sharper bound of what that does to a sigmoid
TOP_CELLS = {1: 64, 2: 12}  # cells for the lower bound of a table's largest score, by the number of arguments
RAMP_CELLS = 512  # cells for each token of a ramp head, on either side of zero,
RAMP_POWERS = 1 << 29  # but no more powers of e than that for all heads of a bank
HELD = 1 << 22  # numbers to hold at once


def local_errors(
    model: Model, bank: Bank, reads: Reads, slopes: Upper | None = None, sizes: Upper | None = None
) -> Local:
    """What the heads of a bank commit.

    For tables and gates `slopes` (outputs, arguments) bounds the derivatives of the stored function, in exact
    arithmetic and wherever arguments may be, and `sizes` (outputs) the expressions that outputs stand for. A table bank
    without slopes is one of ramps.
    """
    if slopes is not None and sizes is not None:
        rule = {"table": table_errors, "gate": gate_errors}[bank.kind]
        return rule(model, bank, reads, slopes, sizes)
    if bank.kind not in RULES:
        raise Refused(f"the slopes of a {bank.kind} bank are not known")
    return RULES[bank.kind](model, bank, reads)


# Sink: the ReLU -----------------------------------------------------------------------------------------------------


def sink_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """One ReLU gate a head, by a choice between the token itself and the sink.

    With b = query_scale . key_scale and h_ij >= 1 the number of bits in which two positions differ, data token i scores

        itself              b z_i                           value z_i
        the sink            0                               value 0
        data token j        b z_i - position_gain h_ij      value z_j
        grid tokens         -reference_gain                 value 0

    The first two are active: z sigmoid(b z). That is the softmax mean of the numbers z and 0 with themselves as scores,
    so it is below their maximum relu(z) by at most W(1/e) / b (`softmax_maximum` with one other number), and by at most
    |z|/2, because it is |z| / (1 + e^(b |z|)).

    Reading.  Let z be the stored argument, z_q = z + q what the query read and z_v = z + v what the value read, |q| and
    |v| at most `read`. The head returns z_v s, s = sigmoid(b z_q), which is v s - q s + z_q s, and z_q s is below
    relu(z_q) = relu(z) + c q, 0 <= c <= 1, by what the lemma allows. So reading costs |v s + q (c - s)| <= 2 `read`,
    and what the stored argument is off by `deviation + stored`, because the ReLU is 1-Lipschitz.

    Scores.  A score is a sum of products, one for each feature; three roundings more are those of the query, of the
    largest score's subtraction, and of a weight that is stored as a product. The position code's products add up to
    bits . position_gain in size. A query of underflowing products, times the key's scale, is off by at most FLUSHED:
    refused otherwise.
    """
    precision, bits, grid = model.precision, model.bits, model.grid_tokens
    query, key = bank.arrays["query_scale"], bank.arrays["key_scale"]
    reference_gain, position_gain = bank.gains["reference_gain"], bank.gains["position_gain"]
    if not ((query > 0.0).all() and (key > 0.0).all()):
        raise Refused("a score scale of a sink bank is not positive")
    if not (reference_gain > 0.0 and (bits == 0 or position_gain > 0.0)):
        raise Refused("the gains of a sink bank must be positive")
    refuse_read(model, reads)
    refuse_scaled(model, bank.read, query)
    refuse_large(model, reads.magnitude * query, "a query")
    products = sum(link.weights.shape[-1] for link in bank.read) + 1
    if not (Upper(key) * (products * precision.smallest_normal)).max().value <= FLUSHED:
        raise Refused("a key scale is so large that queries may underflow")
    size, drift, steep = reads.size, reads.drift, interval(query) * key
    pulled = drift * steep.high
    refuse_large(model, largest(drift * query, pulled), "what drifts into a reference token")

    features = (3 + bits if bits else 2) + (grid > 0)
    relative, code = precision.gamma(features + 3), Upper(bits) * position_gain
    score = size * steep.high
    absolute = relative * code + exp_error(precision) + FLUSHED
    disturbance = relative * score + absolute
    crowd = crowd_weight(bits, position_gain, disturbance)
    others = outside_weight(grid, reference_gain, disturbance + precision.gamma(1) * reference_gain)
    silent, leak = crowd + others, (crowd * 2.0 + others) * size + drift
    below = smallest(softmax_maximum(steep.low, 1, Upper(np.zeros_like(size.value))), size * 0.5)
    moved = reads.deviation + reads.stored + reads.read * 2.0
    moved = moved + moved_sigmoid(relative, absolute + exp_error(precision), steep, size)
    spill = spilled(model, size, drift, reference_gain, pulled, products=2)
    exact, scores = Upper(reads.exact.relu().high), (score + code, reference_gain)
    return local(model, exact, size, drift, silent, moved, spill, scores, active=2, leak=leak, below=below)


def moved_sigmoid(relative: Upper, absolute: Upper, scale: Interval, size: Upper) -> Upper:
    """How far z sigmoid(t), t = b z, moves for |z| <= size and b in `scale`, if t becomes t + m with
    |m| <= r |t| + a, r = `relative` and a = `absolute`.

    sigmoid' is at most 1/4: at most size (r b size + a) / 4.

    If r and a are at most 1/256: at most (0.448 r + 0.229 a) / b. For sigmoid' changes by a factor within e^(+-|m|)
    over a distance m (the derivative of its logarithm is 1 - 2 sigmoid), so with y = |t| the change is at most
    (r y^2 + a y) sigmoid'(y) e^((y + 1)/256) / b. Now y^2 sigmoid'(y) <= 0.43923 (at y tanh(y/2) = 2) and
    y sigmoid'(y) <= 0.22388 (at y tanh(y/2) = 1), and e^((y + 1)/256) <= 1.0198 for y <= 4; for larger y,
    sigmoid'(y) <= e^-y makes the products with that power less than 0.3 and 0.08. (The slack is 2% for small r and a.)
    """
    near = (relative * (size * scale.high) + absolute) * size * 0.25
    small = (relative.value <= SMALL) & (absolute.value <= SMALL)
    far = (relative * 0.448 + absolute * 0.229) / scale.low
    return smallest(near, np.where(small, far.value, np.inf))


# Table: any function of one or two forms ----------------------------------------------------------------------------


def table_errors(model: Model, bank: Bank, reads: Reads, slopes: Upper, sizes: Upper) -> Local:
    """Functions of one or two forms s, by a softmax over the grid. A data token scores

        grid token k        slope[k] . s + offset[k]        values[k], one number for each column
        data tokens, sink   -gain                           value 0

    The grid's tokens are active: g(s) = sum_k w_k values[k]. How well g stands for an expression is another rule's
    business; this one bounds what is computed against g at the arguments that arrive.

    The query is computed once, so all scores share what it is off by: that moves the argument of g, by slopes times
    `deviation + stored + read` (and a smallest normal number). A score is a sum of a product for each argument and one
    for the offset, so it is rounded `arguments` + 1 times; the subtraction of the largest rounds a difference of two
    scores; we count `arguments` + 6. A silent token scores -gain exactly, rounded when the largest is subtracted. That
    is less than the largest score of the grid, which is at least `lowest_top`, by gain + lowest_top; silent values
    being zero, they move the mean by their weight times the largest |value|.

    A reference token's query has no offset: the grid scores what drifted into the argument times slopes, the sink
    `keep_gain`. Where there is no sink, a reference token's output is some mean of values.
    """
    slope, offset, values = bank.arrays["slope"], bank.arrays["offset"], bank.arrays["values"]
    heads, _, arguments = slope.shape
    precision, sinks, gain, keep = model.precision, model.sink_tokens, bank.gains["gain"], bank.gains["keep_gain"]
    if not (gain > 0.0 and keep >= 0.0 and (keep > 0.0 or not sinks)):
        raise Refused("the gains of a table bank must be positive")
    held = Upper(np.abs(values).max(axis=1))
    refuse_read(model, reads)
    refuse_large(model, held, "a value of a table")
    steep = Upper(np.abs(slope))
    pulled = (steep * reads.drift.reshape(heads, 1, arguments)).sum().max(axis=1)
    refuse_large(model, pulled, "what drifts into a reference token's scores")

    score = ((steep * reads.size.reshape(heads, 1, arguments)).sum() + np.abs(offset)).max(axis=1)
    rounding = precision.gamma(arguments + 6) * score + (arguments + 4) * precision.smallest_normal
    disturbance = rounding + exp_error(precision)
    domain = reads.exact.widened(reads.off)
    shaped = Interval(domain.low.reshape(heads, arguments), domain.high.reshape(heads, arguments))
    margin = (interval(lowest_top(slope, offset, shaped)) + gain).low
    silent = outside_weight(model.tokens + sinks, margin, disturbance + precision.gamma(4) * gain)
    off = (reads.wrong + precision.smallest_normal).reshape(heads, 1, arguments)
    through = (slopes.reshape(heads, -1, arguments) * off).sum()
    spread = Upper(values.max(axis=1)) - values.min(axis=1)
    moved, drift = moved_mean(spread, disturbance[:, None]) + through, Upper(np.zeros_like(held.value))
    spill = spilled(model, held, drift, keep, pulled[:, None], arguments, model.grid_tokens)
    scores, active = (score, pulled, gain, keep), model.grid_tokens
    return local(model, sizes, held, drift, silent[:, None], moved, spill, scores, active=active)


def lowest_top(slope: Array, offset: Array, domain: Interval) -> Array:
    """For each head a lower bound of its largest score, max_k slope[k] . s + offset[k], for s in `domain` (heads,
    arguments): on each of a few cells that cover it, the largest over k of the least score of token k there.

    The edges of cells need not be exact: they begin and end with the domain, so every s lies between two in a row.
    """
    heads, tokens, arguments = slope.shape
    steps = np.linspace(0.0, 1.0, TOP_CELLS[arguments] + 1)
    edges = domain.low[..., None] + (domain.high - domain.low)[..., None] * steps
    edges[..., -1] = domain.high
    cells, top = Interval(edges[..., :-1], edges[..., 1:]), np.zeros(heads)
    parts = min(heads, 1 + slope.size * len(steps) ** arguments // HELD)
    for rows in np.array_split(np.arange(heads), parts):
        least = cells[rows, None, 0] * slope[rows, :, 0, None] + offset[rows, :, None]
        if arguments == 2:
            other = cells[rows, None, 1] * slope[rows, :, 1, None]
            least = least[..., None] + other[..., None, :]
        top[rows] = least.low.reshape(len(rows), tokens, -1).max(axis=1).min(axis=1)
    return top


# Ramp: the ReLU by interpolation ------------------------------------------------------------------------------------


def ramp_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """Table heads of one argument and one column that stand for the ReLU.

    The head returns g at what it reads, up to leak and rounding. That differs from relu of what arrives by g - relu at
    what is read (`ramp_sides`) and, the ReLU being 1-Lipschitz, by what is read against what arrives: slopes are one.
    """
    if bank.arrays["slope"].shape[2] != 1 or bank.arrays["values"].shape[2] != 1:
        raise Refused("a ramp head has one argument and one column")
    ones = Upper(np.ones((bank.outputs, 1)))
    found = table_errors(model, bank, reads, ones, Upper(reads.exact.relu().high))
    domain = reads.exact.widened(reads.off)
    tables: dict[tuple[bytes, ...], list[int]] = {}
    for head in range(bank.heads):
        tables.setdefault(tuple(array[head].tobytes() for array in bank.arrays.values()), []).append(head)
    sides = np.zeros((2, bank.heads))
    for heads in tables.values():
        slope, offset, values = (bank.arrays[name][heads[0]].ravel() for name in ("slope", "offset", "values"))
        cells = min(RAMP_CELLS * len(slope), RAMP_POWERS // (2 * len(slope) * len(tables))) + 1
        low, high = float(domain.low[heads].min()), float(domain.high[heads].max())
        sides[:, heads] = ramp_sides(slope, offset, values, low, high, cells)[:, None]
    return replace(found, below=Upper(sides[0]), above=Upper(sides[1]))


def ramp_sides(slope: Array, offset: Array, values: Array, low: float, high: float, cells: int) -> Array:
    """(below, above): head - relu lies in [-below, above] for every argument in [low, high]; arrays are (tokens,).

    If values rise with slopes, the head g rises with its argument: g' is the covariance of slopes and values under the
    weights, that is the mean over all pairs of tokens of (slope_j - slope_k) (value_j - value_k) / 2, which is not
    negative. The ReLU rises too, so on a cell [a, b]

        g(a) - relu(b)  <=  g - relu  <=  g(b) - relu(a),

    and g is only needed at the ends of cells; zero is such an end. There it is computed in double precision, and the
    lemmas of softmax.py bound how far that is off: of a score two roundings, and of its difference with the largest
    one, up to twice its size, one; we count six. The slack of the rule is at most the width of a cell.
    """
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise Refused(f"what a ramp head reads ranges over [{low}, {high}], which is no bounded interval")
    if (np.diff(values[np.argsort(slope, kind="stable")]) < 0.0).any():
        raise Refused("the values of a ramp head must rise with its slopes")
    ends = [low, 0.0, high] if low < 0.0 < high else [low, high]
    edges = np.concatenate([np.linspace(first, last, cells + 1) for first, last in pairwise(ends)])
    parts = 1 + len(edges) * len(slope) // HELD
    head = np.concatenate([_softmax_mean(slope, offset, values, part) for part in np.array_split(edges, parts)])
    size = Upper(np.abs(slope).max()) * max(abs(low), abs(high)) + np.abs(offset).max()
    disturbance = FLOAT64.gamma(6) * size + exp_error(FLOAT64)
    held, tokens = Upper(np.abs(values).max()), len(values)
    room = moved_mean(Upper(values.max()) - values.min(), disturbance)
    room = room + FLOAT64.gamma(2 * tokens + 4) * held + underflow(FLOAT64, tokens, held)
    found, relu = Interval(head, head).widened(room), np.maximum(edges, 0.0)
    below, above = (interval(relu[1:]) - found[:-1]).high.max(), (found[1:] - relu[:-1]).high.max()
    return np.maximum([below, above], 0.0)


def _softmax_mean(slope: Array, offset: Array, values: Array, points: Array) -> Array:
    scores = points[:, None] * slope + offset
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights @ values) / weights.sum(axis=1))


# Gate: a form times a function of another ---------------------------------------------------------------------------


def gate_errors(model: Model, bank: Bank, reads: Reads, slopes: Upper, sizes: Upper) -> Local:
    """The product of a form y with a function of a form x. A data token scores

        itself              0                               value y_i
        grid token k        slope[k] x_i + offset[k]        value 0
        data token j        -position_gain h_ij             value y_j
        the sink            -keep_gain                      value 0

    The first two are active: y g(x), g(x) = 1 / (1 + sum_k e^(slope[k] x + offset[k])). `slopes` (outputs, 2) bounds
    the derivatives of y g(x) by x and y: what these are off by moves it by slopes times `deviation + stored + read`.
    Active values lie between 0 and y, so their spread is at most |y|.

    A score on the grid is a sum of two products. That on itself is the position code alone: terms that are multiples of
    position_gain/2 and add up to zero; exactly so, in any order, where that is a whole number of at most 2^11, for then
    every partial sum is a whole number below 2^24. Otherwise they count as bits . position_gain. We allow as many
    roundings as a query has features, and six.

    On a reference token the grid scores what drifted into x times slopes, the sink keep_gain, data tokens zero.
    """
    slope, offset = bank.arrays["slope"], bank.arrays["offset"]
    precision, bits = model.precision, model.bits
    position_gain, keep = bank.gains["position_gain"], bank.gains["keep_gain"]
    if not (keep > 0.0 and (bits == 0 or position_gain > 0.0)):
        raise Refused("the gains of a gate bank must be positive")
    refuse_read(model, reads)
    x, y = reads[0::2], reads[1::2]
    steep = Upper(np.abs(slope).max(axis=1))
    pulled = steep * x.drift
    refuse_large(model, pulled, "what drifts into a reference token's scores")

    score = (Upper(np.abs(slope)) * x.size[:, None] + np.abs(offset)).max(axis=1)
    gamma, code = precision.gamma(bits + 9), Upper(bits) * position_gain
    exactly_zero = (position_gain / 2.0).is_integer() and position_gain <= 2.0**12
    summed = score if exactly_zero else score + code
    disturbance = gamma * summed + (steep + 1.0) * (4.0 * precision.smallest_normal) + exp_error(precision)
    farther = disturbance + gamma * (code + keep)
    crowd, sink = crowd_weight(bits, position_gain, farther), outside_weight(1, keep, farther)
    off = (reads.wrong + precision.smallest_normal).reshape(bank.heads, 2)
    silent, leak = crowd + sink, (crowd * 2.0 + sink) * y.size + y.drift
    moved, scores = moved_mean(y.size, disturbance) + (slopes * off).sum(), (score + code + keep, pulled)
    spill, active = spilled(model, y.size, y.drift, keep, pulled, products=2), model.grid_tokens + 1
    return local(model, sizes, y.size, y.drift, silent, moved, spill, scores, active=active, leak=leak)


# Mean, maximum, move, attention --------------------------------------------------------------------------------------


def mean_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """The mean over the data tokens in sight. A data token scores `gain` on data tokens, all active, and zero on
    reference tokens, which hold zero: r of them weigh at most r e^(2d - gain), one data token at least being in sight.

    The scores of all data tokens are computed from the same numbers, and other products are zero: they are equal,
    however they are rounded, and only exp tells tokens apart. Against a reference token a score is one product; with
    the subtraction of the largest and a few to spare we count six roundings.
    """
    gain, keep = _gains(model, bank)
    refuse_read(model, reads)
    alike = exp_error(model.precision)
    silent = outside_weight(model.references, gain, model.precision.gamma(6) * abs(gain) + alike)
    moved = moved_mean(reads.spread, alike) + reads.wrong
    exact, size, drift = reads.exact.magnitude, reads.size, reads.drift
    found = local(model, exact, size, drift, silent, moved, spilled(model, size, drift, keep), (abs(gain), keep))
    return replace(found, alike=reads.wrong)


def boltzmann_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """The largest of the data tokens' values: with b = query_scale . key_scale, a data token scores

        data token j        b z_j + gain        value z_j
        reference tokens    0                   value 0

    `softmax_maximum` applies to the stored arguments z_j: the values are these up to `read`, and the scores are theirs
    up to b . `read`, besides rounding. A score is a sum of two products; with the key's rounding, that of a weight that
    is stored as a product, and the subtraction of the largest we count eight. Keys that underflow lose a smallest
    normal number for each product.

    Some data token scores at least gain + b (least value); a reference token's key may have drifted by b . drift. Their
    difference is the margin.
    """
    precision, (gain, keep) = model.precision, _gains(model, bank)
    query, key = bank.arrays["query_scale"], bank.arrays["key_scale"]
    if not ((query > 0.0).all() and (key > 0.0).all()):
        raise Refused("the score scales of a maximum must be positive")
    refuse_read(model, reads)
    refuse_scaled(model, bank.read, key)
    size, drift, steep = reads.size, reads.drift, interval(query) * key
    refuse_large(model, largest(reads.magnitude, drift) * key, "a key")
    products = sum(link.weights.shape[-1] for link in bank.read)
    score = largest(size, drift) * steep.high + abs(gain)
    lost = (Upper(query) + 1.0) * ((products + 4.0) * precision.smallest_normal)
    disturbance = reads.read * steep.high + precision.gamma(8) * score + lost + exp_error(precision)
    least, pulled = reads.exact.widened(reads.off).low, drift * steep.high
    margin = (interval(least) * steep + gain - interval(pulled.value)).low
    silent = outside_weight(model.references, margin, disturbance)
    below = softmax_maximum(steep.low, model.tokens - 1, disturbance)
    exact, spill = reads.exact.magnitude, spilled(model, size, drift, keep)
    return local(model, exact, size, drift, silent, reads.wrong, spill, (score, keep), below=below)


def move_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What another token holds, or zero. A data token scores

        data token j        gain (bits - 2 h)       value v_j       h bits differ from the address
        reference tokens    0                       value 0
        the sink            gain bits               value 0         where the address says: nothing

    An address of a token: that token is active, the others of the crowd score 2 gain less for each bit, reference
    tokens gain bits less. The address of the sink: it is active, and data tokens score gain bits less. The larger of
    both leaks counts. A score is a sum of `bits` products of size gain; seven roundings more are to spare.
    """
    precision, bits, (gain, keep) = model.precision, model.bits, _gains(model, bank)
    exact, size, drift = reads.exact.magnitude, reads.size, reads.drift
    if bits == 0 or not gain > 0.0:
        raise Refused("a move needs several tokens and positive gains")
    refuse_read(model, reads)
    far = interval(gain) * float(bits)
    disturbance = precision.gamma(bits + 7) * Upper(far.high) + exp_error(precision)
    crowd = crowd_weight(bits, 2.0 * gain, disturbance)
    references = outside_weight(model.references, far.low, disturbance)
    leak, silent = size * 2.0 * crowd + (size + drift) * references, crowd + references
    if model.sink_tokens:
        tokens = outside_weight(model.tokens, far.low, disturbance)
        leak, silent = largest(leak, size * tokens + drift), largest(silent, tokens + references)
    spill = spilled(model, size, drift, keep)
    return local(model, exact, size, drift, silent, reads.wrong, spill, (far.high, keep), active=1, leak=leak)


def attend_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """Attention as in the textbook. A data token scores

        data token j        q_i . k_j           values v_j
        reference tokens    -gain               value 0

    and data tokens are active. The first `width` forms are the query, the next the key, the others values.

    What queries are off by, e, and keys, f, moves a score by at most sum |q_c| f_c + |k_c| e_c + e_c f_c. What moves
    all scores of a query alike does not count: for what the query is off by, the distance of k_c from the middle of its
    range, half the spread, stands in for |k_c|. A score is a sum of products of sizes that add up to at most S =
    sum |q_c| |k_c|; we count eight roundings more than the key is wide.

    Some data token scores at least -S, and a reference token, whose key may have drifted, at most
    -gain + sum |q_c| drift_c, rounded. A reference token's own query may have drifted too: on two tokens its scores
    differ by at most sum drift_c (|k_c| + drift_c) from what they should.
    """
    precision, width, (gain, keep) = model.precision, bank.width, _gains(model, bank)
    refuse_read(model, reads)
    query, key, values = reads[:width], reads[width : 2 * width], reads[2 * width :]
    gamma = precision.gamma(width + 8)
    score = (query.size * key.size).sum()
    moved = query.size * key.wrong + key.spread * 0.5 * query.wrong + query.wrong * key.wrong
    lost = 4.0 * (width + 8) * precision.smallest_normal
    disturbance = moved.sum() + gamma * score + exp_error(precision) + lost
    drawn = (query.size * key.drift).sum()
    pulled = (query.drift * (key.size + key.drift)).sum()
    margin = (interval(gain) - interval((score + drawn).value)).low
    silent = outside_weight(model.references, margin, disturbance + gamma * (score + drawn + gain))
    rounding = moved_mean(values.spread, disturbance) + values.wrong
    scores = (score, drawn + gain, pulled + keep) if model.references else (score,)
    exact, size, drift = values.exact.magnitude, values.size, values.drift
    spill = spilled(model, size, drift, keep, pulled, products=width + 1)
    return local(model, exact, size, drift, silent, rounding, spill, scores)


def address_targets(model: Model, bank: Bank) -> tuple[int, ...]:
    """The token that each token fetches from by the stored addresses: a position code (bit k of the index is set where
    column k is -1, and the last column is 0), or -1 for nothing (zeros, and 1 in the last column)."""
    rows = model.positional[bank.address]
    codes, last = rows[:, :-1], rows[:, -1]
    index = (codes < 0.0).astype(np.int64) @ (1 << np.arange(model.bits))
    token = (np.abs(codes) == 1.0).all(axis=1) & (last == 0.0) & (index < model.tokens)
    nothing = (codes == 0.0).all(axis=1) & (last == 1.0)
    if not (token | nothing).all():
        row = int(np.argmin(token | nothing))
        raise Refused(f"row {row} of the register {bank.address} is not an address")
    return tuple(np.where(token, index, -1).tolist())


def _gains(model: Model, bank: Bank) -> tuple[float, float]:
    """The gains of a bank, which must be positive where there are reference tokens."""
    gain, keep = bank.gains["gain"], bank.gains["keep_gain"]
    if model.references and not (gain > 0.0 and keep > 0.0):
        raise Refused(f"the gains of a {bank.kind} bank must be positive where there are reference tokens")
    return gain, keep if model.references else 0.0


RULES = {
    "sink": sink_errors,
    "table": ramp_errors,
    "mean": mean_errors,
    "boltzmann": boltzmann_errors,
    "move": move_errors,
    "attend": attend_errors,
}
