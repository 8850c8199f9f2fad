"""Heads, one rule a kind: what a bank's heads commit, given what they read and how well that is known.

Each rule says which tokens are active, what they score, how much less all others score, and how far scores are off;
softmax.py does the rest. The features of queries and keys are those of model.py. Sink, table, ramp and gate look at
their own token and at reference tokens; mean, boltzmann, move and attend look at other data tokens. Bounds of what is
read hold for every data token of a sequence of any length up to the model's, so a mean of errors, the error of a
maximum (which is 1-Lipschitz) and an error that was moved are all within the largest error of a token. A causal mask
only takes tokens out of sight: no lemma needs a token but itself, the addressed one, and the sink, which comes first.
Products of zero are exact, so a reference token's query scores keep_gain on the sink and zero elsewhere, unless a rule
says otherwise.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .arithmetic import FLOAT64, Array, Interval, Upper, interval, largest, smallest
from .errors import Refused, refuse, spend
from .model import Bank, Model
from .softmax import APART, SPARE, Local, Reads, committed, exp_error, maximum, moved_mean, refuse_large, scales_of
from .weighed import HELD, lowest_top, weighed_move

RAMP_CELLS = 512  # cells for each token of a ramp head, above zero,
RAMP_POWERS = 1 << 29  # but no more powers of e than that for all heads of a bank


def local_errors(model: Model, bank: Bank, reads: Reads, slopes: Upper | None = None) -> Local:
    """What the heads of a bank commit.

    For tables and gates `slopes` (outputs, arguments) bounds the derivatives of the stored function, in exact
    arithmetic and wherever arguments may be. A table bank without slopes is one of ramps.
    """
    refuse(min(bank.gains.values(), default=0.0) < 0.0, f"a gain of a {bank.kind} bank is negative")
    refuse_large(model, reads.magnitude, "what a head reads")
    refuse_large(model, reads.drift, "what drifts into a reference token")
    if model.attention not in ("softmax", *APART):
        return _other(model, bank, reads)
    if slopes is not None:
        return RULES[bank.kind]["expression"](model, bank, reads, slopes)
    rules = [rule for computed, rule in RULES[bank.kind].items() if computed != "expression"]
    refuse(not rules, f"the slopes of a {bank.kind} bank are not known")
    return rules[0](model, bank, reads)


def _other(model: Model, bank: Bank, reads: Reads, *_: Upper) -> Local:
    from ..rules.attentions import other_errors

    return other_errors(model, bank, reads)


def _neurons(model: Model, bank: Bank, reads: Reads, *_: Upper) -> Local:
    from ..rules.swiglu import neuron_errors

    return neuron_errors(model, bank, reads)


# Sink: the ReLU -----------------------------------------------------------------------------------------------------


def sink_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """One ReLU gate a head, by a choice between the token itself and the sink.

    With b = query_scale . key_scale and h_ij >= 1 the number of bits in which two positions differ, data token i scores

        itself              b z_i                           value z_i
        the sink            0                               value 0
        data token j        b z_i - position_gain h_ij      value z_j
        grid tokens         -reference_gain                 value 0

    The first two are active: z sigmoid(b z), the softmax mean of the numbers z and 0 with themselves as scores.

    Scores.  A score is a sum of products, one for each feature, at most bits + 4; three roundings more are those of the
    query, of the largest score's subtraction, and of a weight that is stored as a product. The position code's products
    add up to bits . position_gain in size. So t = b z becomes t + m with |m| <= r |t| + a: with y = (1 - r) |t| the
    head is below relu(z) by |z| / (1 + e^(|t| - |m|)) <= y / (1 + e^(y - a)) / (b (1 - r)), which is at most
    W(e^(a - 1)) / (b (1 - r)) (`maximum`), and at most |z| e^a / 2. It is never above. (Under hardmax and sparsemax the
    score is that of t (1 + m'), |m'| <= r, and m'' more, |m''| <= a, of which half counts for either token.)

    Reading.  Let z be the stored argument, z_q = z + q what the query read and z_v = z + v what the value read, |q| and
    |v| at most `read`. The head returns z_v s, s = sigmoid(b z_q), which is v s - q s + z_q s, and z_q s is below
    relu(z_q) = relu(z) + c q, 0 <= c <= 1, by what the lemma allows. So reading costs |v s + q (c - s)| <= 2 `read`,
    and what the stored argument is off by `deviation + stored`, because the ReLU is 1-Lipschitz.
    """
    bits, precision, size = model.bits, model.precision, reads.size
    reference_gain, position_gain = bank.gains["reference_gain"], bank.gains["position_gain"]
    steep, lost = scales_of(model, bank, reads, "query_scale", "key_scale")
    relative, code, score = precision.gamma(bits + 7), Upper(bits) * position_gain, size * steep.high
    absolute = relative * code + exp_error(precision) * 2.0 + lost
    flatter = (steep * (interval(1.0) - relative.value)).low
    below, more = maximum(model, flatter, 1, absolute * 0.5)
    below = smallest(below, size * absolute.exp() * 0.5)
    margin = min(reference_gain, position_gain) if bits else reference_gain
    disturbance, scores, pulled = relative * score + absolute, (score + code,), reads.drift * steep.high
    moved, keep = reads.wrong + reads.read + more, reference_gain
    held = largest(Upper(np.maximum(reads.exact.high, 0.0)) + reads.off, below + more + reads.read + reads.read)
    found = committed(model, size, reads.drift, moved, 2, margin, disturbance, scores, keep, pulled, held=held)
    return replace(found, below=below)


# Table: any function of one or two forms ----------------------------------------------------------------------------


def table_errors(model: Model, bank: Bank, reads: Reads, slopes: Upper) -> Local:
    """Functions of one or two forms s, by a softmax over the grid. A data token scores

        grid token k        slope[k] . s + offset[k]        values[k], one number for each column
        data tokens, sink   -gain                           value 0

    The grid's tokens are active: g(s) = sum_k w_k values[k]. How well g stands for an expression is another rule's
    business; this one bounds what is computed against g at the arguments that arrive.

    The query is computed once, so all scores share what it is off by: that moves the argument of g, by slopes times
    `deviation + stored + read` (and a smallest normal number). A score is a sum of a product for each argument and one
    for the offset, so it is rounded `arguments` + 1 times; the subtraction of the largest rounds a difference of two
    scores; we count `arguments` + 6. A silent token scores -gain, less than the largest score of the grid, which is at
    least `lowest_top`, by gain + lowest_top.

    A reference token's query has no offset: the grid scores what drifted into the argument times slopes, the sink
    `keep_gain`. Where there is no sink, a reference token's output is some mean of values.
    """
    slope, offset, values = bank.arrays["slope"], bank.arrays["offset"], bank.arrays["values"]
    (heads, _, arguments), gain = slope.shape, bank.gains["gain"]
    head, precision = np.repeat(np.arange(heads), values.shape[2]), model.precision  # the head of each output
    size = Upper(np.abs(values).max(axis=1)).reshape(-1)
    refuse_large(model, size, "a value of a table")
    pulled = (Upper(np.abs(slope)) * reads.drift.reshape(heads, 1, arguments)).sum().max(axis=1)[head]
    score = (Upper(np.abs(slope)) * reads.size.reshape(heads, 1, arguments)).sum() + np.abs(offset)
    score = score.max(axis=1)
    lost = exp_error(precision) + (arguments + 4) * precision.smallest_normal
    relative, unit = precision.gamma(arguments + 6, 0), precision.unit_roundoff
    disturbance = (relative * score + lost)[head]
    domain = reads.exact.widened(reads.off)
    shaped = Interval(domain.low.reshape(heads, arguments), domain.high.reshape(heads, arguments))
    margin = (interval(lowest_top(slope, offset, shaped)) + gain).low[head]
    off = (reads.wrong + precision.smallest_normal).reshape(heads, arguments)[head]
    spread = (Upper(values.max(axis=1)) - values.min(axis=1)).reshape(-1)
    absolute = lost + precision.gamma(SPARE + model.bits) * unit * (score + gain)
    weighed, _ = weighed_move(slope, offset, values, shaped, relative, unit, absolute)
    moved = smallest(moved_mean(spread, disturbance), weighed.reshape(-1)) + (slopes * off).sum()
    drift, active, keep = Upper(np.zeros_like(size.value)), model.grid_tokens, bank.gains["keep_gain"]
    return committed(model, size, drift, moved, active, margin, disturbance, (score, gain), keep, pulled)


# Ramp: the ReLU by interpolation ------------------------------------------------------------------------------------


def ramp_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """Table heads of one argument and one column that stand for the ReLU.

    The head returns g at what it reads, up to leak and rounding. That differs from relu of what arrives by g - relu at
    what is read (`ramp_sides`) and, the ReLU being 1-Lipschitz, by what is read against what arrives: slopes are one.
    Heads with the same table are compared on the hull of their intervals.
    """
    wide = {bank.arrays[name].shape[2] for name in ("slope", "values")}
    refuse(wide != {1}, "a ramp head has one argument and one column")
    found = table_errors(model, bank, reads, Upper(np.ones((bank.outputs, 1))))
    domain, sides = reads.exact.widened(reads.off), np.zeros((2, bank.heads))
    numbers = np.concatenate([bank.arrays[name].reshape(bank.heads, -1) for name in ("slope", "offset", "values")], 1)
    tables, which = np.unique(numbers, axis=0, return_inverse=True)
    for place, (slope, offset, values) in enumerate(tables.reshape(len(tables), 3, -1)):
        mine, tokens = which.reshape(-1) == place, len(slope)
        cells = min(RAMP_CELLS * tokens, RAMP_POWERS // (2 * tokens * len(tables))) + 1
        low, high = float(domain.low[mine].min()), float(domain.high[mine].max())
        sides[:, mine] = ramp_sides(slope, offset, values, low, high, cells)[:, None]
    return replace(found, below=Upper(sides[0]), above=Upper(sides[1]))


def ramp_sides(slope: Array, offset: Array, values: Array, low: float, high: float, cells: int) -> Array:
    """(below, above): head - relu lies in [-below, above] for every argument in [low, high]; arrays are (tokens,).

    If values rise with slopes, the head g rises with its argument: g' is the covariance of slopes and values under the
    weights, that is the mean over all pairs of tokens of (slope_j - slope_k) (value_j - value_k) / 2, which is not
    negative. The ReLU rises too, so on a cell [a, b]

        g(a) - relu(b)  <=  g - relu  <=  g(b) - relu(a),

    and g is only needed at the ends of cells; all that is negative is one of them, where the ReLU is zero. There it is
    computed in double precision, and the lemmas of softmax.py bound how far that is off: of a score two roundings, and
    of its difference with the largest one, up to twice its size, one; we count six. The slack of the rule is at most
    the width of a cell.
    """
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise Refused(f"what a ramp head reads ranges over [{low}, {high}], which is no bounded interval")
    falls = np.diff(values[np.argsort(slope, kind="stable")]) < 0.0
    refuse(falls.any(), "the values of a ramp head must rise with its slopes")
    edges = np.append(low, np.linspace(min(max(low, 0.0), high), high, cells + 1))
    parts = np.array_split(edges, 1 + len(edges) * len(slope) // HELD)
    head = np.concatenate([_softmax_mean(slope, offset, values, part) for part in parts])
    size = Upper(np.abs(slope).max()) * max(abs(low), abs(high)) + np.abs(offset).max()
    held, tokens = Upper(np.abs(values).max()), len(values)
    room = moved_mean(Upper(values.max()) - values.min(), FLOAT64.gamma(6) * size + exp_error(FLOAT64))
    room = room + FLOAT64.gamma(2 * tokens + 4) * held + (held + 1.0) * (4.0 * (tokens + 2) * FLOAT64.smallest_normal)
    found, relu = interval(head).widened(room), np.maximum(edges, 0.0)
    below, above = (interval(relu[1:]) - found[:-1]).high.max(), (found[1:] - relu[:-1]).high.max()
    return np.maximum([below, above], 0.0)


def _softmax_mean(slope: Array, offset: Array, values: Array, points: Array) -> Array:
    spend(20.0 * points.size * slope.size)
    scores = points[:, None] * slope + offset
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights @ values) / weights.sum(axis=1))


# Gate: a form times a function of another ---------------------------------------------------------------------------


def gate_errors(model: Model, bank: Bank, reads: Reads, slopes: Upper) -> Local:
    """The product of a form y with a function of a form x. A data token scores

        itself              0                               value y_i
        grid token k        slope[k] x_i + offset[k]        value 0
        data token j        -position_gain h_ij             value y_j
        the sink            -keep_gain                      value 0

    The first two are active: y g(x), g(x) = 1 / (1 + sum_k e^(slope[k] x + offset[k])). `slopes` (outputs, 2) bounds
    the derivatives of y g(x) by x and y: what these are off by moves it by slopes times `deviation + stored + read`.
    Active values lie between 0 and y, so their spread is at most |y|.

    A score on the grid is a sum of two products; an offset over KEY that underflows is off by KEY smallest normal
    numbers. That on itself is the position code alone: terms that are multiples of position_gain/2 and add up to zero;
    exactly so, in any order, where that is a whole number of at most 2^11, for then every partial sum is a whole number
    below 2^24. Otherwise, and where products are not exact (gpt2.py), they count as bits . position_gain. We allow as
    many roundings as a query has features, and six; and, weighed (weighed.py), seven on the grid: of both weights, a
    product, the sum, a division by the root of d_head, and the subtraction of the largest.

    Only the token itself holds anything, and the mean of the values is y g(x), smaller than y.

    On a reference token the grid scores what drifted into x times slopes, the sink keep_gain, data tokens zero.
    """
    slope, offset, precision, bits = bank.arrays["slope"], bank.arrays["offset"], model.precision, model.bits
    position_gain, keep = bank.gains["position_gain"], bank.gains["keep_gain"]
    x, y, steep = reads[0::2], reads[1::2], Upper(np.abs(slope).max(axis=1))
    score = (Upper(np.abs(slope)) * x.size[:, None] + np.abs(offset)).max(axis=1)
    code, exact = Upper(bits) * position_gain, precision.exact and not precision.held
    whole = exact and (position_gain / 2.0).is_integer() and position_gain <= 2.0**12
    mine = code * 0.0 if whole else code
    lost = exp_error(precision) + (steep + 1.0) * (16.0 * precision.smallest_normal)
    disturbance = precision.gamma(bits + 9) * (score + mine) + lost
    off = (reads.wrong + precision.smallest_normal).reshape(bank.heads, 2)
    every, unit, own = score + code + keep, precision.unit_roundoff, np.zeros((bank.heads, 1))
    absolute = lost + precision.gamma(bits + 7) * mine + precision.gamma(SPARE + bits) * unit * every
    slopes_all, offsets = np.hstack([own, slope])[..., None], np.hstack([own, offset])
    weights, domain = np.hstack([own + 1.0, np.zeros_like(slope)])[..., None], x.exact.widened(x.off)[:, None]
    weighed, mean = weighed_move(slopes_all, offsets, weights, domain, precision.gamma(7, 0), unit, absolute)
    moved = smallest(moved_mean(y.size, disturbance), weighed[:, 0] * y.size) + (slopes * off).sum()
    margin, active, pulled = min(position_gain, keep) if bits else keep, model.grid_tokens + 1, steep * x.drift
    held = mean[:, 0] * y.size * (disturbance + disturbance).exp()
    return committed(model, y.size, y.drift, moved, active, margin, disturbance, (every,), keep, pulled, held=held)


# Mean, maximum, move, attention --------------------------------------------------------------------------------------


def mean_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """The mean over the data tokens in sight. A data token scores `gain` on data tokens, all active, and zero on
    reference tokens, which hold zero; one data token at least is in sight.

    The scores of all data tokens are computed from the same numbers, and other products are zero: they are equal,
    however they are rounded, and only exp tells tokens apart; and the norms of tokens, where products are not exact
    (gpt2.py): then a score counts as rounded seven times.
    """
    gain, keep, alike = bank.gains["gain"], bank.gains["keep_gain"], exp_error(model.precision)
    alike = alike if model.precision.exact else alike + model.precision.gamma(7) * gain
    moved = moved_mean(reads.spread, alike) + reads.wrong
    found = committed(model, reads.size, reads.drift, moved, model.tokens, gain, alike, (gain,), keep)
    return replace(found, alike=reads.wrong)


def boltzmann_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """The largest of the data tokens' values: with b = query_scale . key_scale, a data token scores

        data token j        b z_j + gain        value z_j
        reference tokens    0                   value 0

    `maximum` applies to the stored arguments z_j: the values are these up to `read`, and the scores are theirs
    up to b . `read`, besides rounding. A score is a sum of two products; with the key's rounding, that of a weight that
    is stored as a product, and the subtraction of the largest we count eight.

    Some data token scores at least gain + b (least value); a reference token's key may have drifted by b . drift. Their
    difference is the margin.
    """
    gain, keep, tokens, drift = bank.gains["gain"], bank.gains["keep_gain"], model.tokens, reads.drift
    steep, lost = scales_of(model, bank, reads, "key_scale", "query_scale")
    score = largest(reads.size, drift) * steep.high + gain
    rounded = model.precision.gamma(8) * score + lost + exp_error(model.precision)
    disturbance, least = reads.read * steep.high + rounded, interval(reads.exact.widened(reads.off).low)
    margin = (least * steep + gain - interval((drift * steep.high).value)).low
    below, more = maximum(model, steep.low, tokens - 1, disturbance)
    found = committed(model, reads.size, drift, reads.wrong + more, tokens, margin, disturbance, (score,), keep)
    return replace(found, below=below)


def move_errors(model: Model, bank: Bank, reads: Reads) -> Local:
    """What another token holds, or zero. A data token scores

        data token j        gain (bits - 2 h)       value v_j       h bits differ from the address
        reference tokens    0                       value 0
        the sink            gain bits               value 0         where the address says: nothing

    An address of a token: that token is active, the others score 2 gain less for each bit, reference tokens gain bits
    less. The address of the sink: it is active, and all others score gain bits less. A score is a sum of `bits`
    products of size gain; seven roundings more are to spare.
    """
    gain, keep, bits = bank.gains["gain"], bank.gains["keep_gain"], model.bits
    far, margin = Upper(gain) * float(bits), gain * min(bits, 2)
    disturbance = model.precision.gamma(bits + 7) * far + exp_error(model.precision)
    return committed(model, reads.size, reads.drift, reads.wrong, 1, margin, disturbance, (far,), keep)


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
    -gain + sum |q_c| drift_c. A reference token's own query may have drifted too: on two tokens its scores differ by at
    most sum drift_c (|k_c| + drift_c) from what they should.
    """
    precision, width, gain = model.precision, bank.width, bank.gains["gain"] if model.references else 0.0
    query, key, values = reads[:width], reads[width : 2 * width], reads[2 * width :]
    score, drawn = (query.size * key.size).sum(), (query.size * key.drift).sum()
    moved = query.size * key.wrong + key.spread * 0.5 * query.wrong + query.wrong * key.wrong
    lost = exp_error(precision) + 4.0 * (width + 8) * precision.smallest_normal
    disturbance = moved.sum() + precision.gamma(width + 8) * score + lost
    margin = (interval(gain) - interval((score + drawn).value)).low
    pulled, rounding = (query.drift * (key.size + key.drift)).sum(), moved_mean(values.spread, disturbance)
    size, drift, tokens, scores = values.size, values.drift, model.tokens, (score, drawn + gain)
    keep, moved = bank.gains["keep_gain"], rounding + values.wrong
    return committed(model, size, drift, moved, tokens, margin, disturbance, scores, keep, pulled, width)


SAMPLED = dict.fromkeys(("sampled 1", "sampled 2", "sampled inf"), table_errors)
RULES: dict[str, dict[str, Callable[..., Local]]] = {
    "sink": {"relu": sink_errors},
    "table": {"relu": ramp_errors, "expression": table_errors, **SAMPLED},
    "gate": {"expression": gate_errors},
    "mean": {"pool mean": mean_errors},
    "boltzmann": {"pool max": boltzmann_errors},
    "move": {"move": move_errors},
    "attend": {"attend": attend_errors},
    "product": {"expression": _other},
    "swiglu": {"expression": _neurons},
    "silu": {"relu": _neurons},
}
# What heads of a kind compute, and by which rule.


def addresses(targets: tuple[int, ...], bits: int) -> Array:
    """What tells each token where to fetch from: a position code (column k is -1 where bit k of the index is set, and
    the last column is 0), or zeros and 1 in the last column for nothing (-1)."""
    index = np.array(targets)[:, None]
    codes = np.where(index >= 0, 1.0 - 2.0 * (index >> np.arange(bits) & 1), 0.0)
    return np.hstack([codes, index < 0])
