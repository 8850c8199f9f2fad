"""A proven bound of how steeply the outputs of a compiled model can depend on its residual stream, layer by layer.

Forwards, every register gets an interval that holds its values at all inputs of the domain. Backwards, the derivative
of an output at token i splits in two,

    own     by registers of the same token: an interval for each,
    rest    by registers of any token: bounds of the sum over tokens of absolute values,

and for each bank of a layer, `own` and `rest` of its heads (what they return by what they read) give

    own   <-  own + own write own_heads read
    rest  <-  rest + rest |write own_heads read| + (|own| + rest) |write| rest_heads |read|.

The lemmas for heads, in exact arithmetic:

    sink        z sigmoid(y), y = b z + shifts: (y sigmoid(y))' lies in [-0.1, 1.1]; other tokens and shifts are `rest`
    table       the slopes of a softmax mean of constants (softmax_slopes.py)
    gate        y g(x): y g' by x, g by y
    mean, move  weights do not depend on what is read, and add up to 1
    boltzmann   sum_j A_j |1 + b (z_j - out)| <= 1 + 2 W((n - 1)/e), see heads/boltzmann.py; references add a little
    attend      1 by values; a quarter of both spreads by queries; |query| times half the spread by keys

Gates that read the same linear form at different thresholds switch in order, and are taken together. What registers
have to do with each other is not known beyond that, so it is a bound and not always a tight one. Reference tokens are
held at their stored values, as they are under a causal or prefix mask.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.balls import boltzmann_constant
from headsmith.core.errors import TargetError
from headsmith.core.intervals import Box, Interval, added_outwards, centre_and_radius, linear_image, multiplied, point
from headsmith.core.rounding import lower, magnitude_product, upper
from headsmith.lab.signal.softmax_slopes import steepness
from headsmith.transformer.dense import DenseTransformer, read_matrix, write_matrix
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.heads.sink import SinkBank, leak_weight
from headsmith.transformer.heads.stream import DATA, GRID, RESERVED
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Transformer, layout, width

SWISH = (-0.1, 1.1)
"""Around d (y sigmoid(y)) / dy, which lies within [-0.09984, 1.09984]."""

SMALLEST = 0.2785
"""Above W(1/e) = 0.278464...: y sigmoid(y) is never below -W(1/e)."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Sink heads that read the same linear form, but for a constant: their slopes, state by state (states, heads)."""

    heads: Indices
    states: Interval

    @property
    def vertices(self) -> Array:
        """The extreme slopes, (vertices, heads); none, where too many are unknown at once."""
        found = []
        for low, high in zip(self.states.low, self.states.high, strict=True):
            unknown = np.flatnonzero(high - low > 0.5)
            if len(unknown) > 4:
                return np.empty((0, len(low)))
            for ends in itertools.product(SWISH, repeat=len(unknown)):
                vertex = np.rint(low)
                vertex[unknown] = ends
                found.append(vertex)
        return np.unique(found, axis=0)


@dataclass(frozen=True, eq=False)
class _Heads:
    """What a bank returns: by what it reads, (outputs, readers), own and rest; and where it lies. Heads in `groups` are
    taken together."""

    own: Interval
    rest: Array
    returned: Interval
    groups: tuple[_Group, ...] = ()

    @property
    def alone(self) -> Interval:
        """`own`, but for heads in groups."""
        low, high = self.own.low.copy(), self.own.high.copy()
        for group in self.groups:
            low[group.heads] = high[group.heads] = 0.0
        return Interval(low, high)


def certified_gains(transformer: Transformer, model: DenseTransformer, box: Box) -> Array:
    """For each place of the stream (before the first layer, after each), a bound over all inputs in `box` of
    |d outputs / d working registers of the data tokens|_F^2 / outputs.

    It holds for every length of sequence and every mask that the model takes. `model` is `transformer` written out.
    """
    stream = _start(transformer, model, box)
    passed: list[list[tuple[Array, Array, _Heads]]] = []
    for layer in transformer.layers:
        found, after = [], stream
        for bank in layer.banks:
            read, write = read_matrix(transformer, bank), write_matrix(transformer, bank)
            heads = _slopes_of(transformer, bank, linear_image(read, stream))
            if isinstance(bank, SinkBank):
                heads = replace(heads, groups=_groups(transformer, bank, read, write, stream))
            found.append((read, write, heads))
            after = added_outwards(after, linear_image(write.T, heads.returned))
        passed.append(found)
        stream = after
    working = working_columns(transformer)
    own, rest = point(model.W_U.T), np.zeros(model.W_U.T.shape)
    gains = [_squared(own, rest, working)]
    for found in reversed(passed):
        own, rest = _through(own, rest, found)
        gains.append(_squared(own, rest, working))
    return np.array(gains[::-1])


def _through(own: Interval, rest: Array, banks: list[tuple[Array, Array, _Heads]]) -> tuple[Interval, Array]:
    """Derivatives by the stream before a layer, from those by the stream after it."""
    kept_low, kept_high, taken = own.low.copy(), own.high.copy(), np.zeros(own.low.shape[1], dtype=bool)
    passed, rest_before = point(np.zeros(own.low.shape)), rest
    for read, write, heads in banks:
        at_heads = _times(own, write.T)
        passed = added_outwards(passed, _times(_product(at_heads, heads.alone), read))
        for group in heads.groups:
            row = read[group.heads[0]].copy()
            columns = np.flatnonzero((row != 0.0) & write[group.heads].any(axis=0) & ~taken)
            vertices = group.vertices
            if len(columns) and len(vertices):
                found = _collected(own, vertices, row[columns], write[group.heads], columns)
                kept_low[:, columns], kept_high[:, columns] = found.low, found.high
                taken[columns], row[columns] = True, 0.0
            passed = added_outwards(passed, _times(_together(at_heads[:, group.heads], group), row[None]))
        rest_at = magnitude_product(rest, np.abs(write.T))
        size = upper(at_heads.magnitude + rest_at, 1)
        at_reads = magnitude_product(rest_at, heads.own.magnitude) + magnitude_product(np.asarray(size), heads.rest)
        rest_before = np.asarray(upper(rest_before + magnitude_product(upper(at_reads, 1), np.abs(read)), 1))
    return added_outwards(Interval(kept_low, kept_high), passed), rest_before


def _collected(own: Interval, vertices: Array, row: Array, write: Array, columns: Indices) -> Interval:
    """own + own write slopes read, for the registers that a group both reads and writes, (outputs, columns).

    A fold z - 2 relu(z - t) writes into the register that it reads: its slope is 1 - 2 s, and 1 and s must meet before
    they meet the interval `own`. What comes out is linear in own for given slopes, and its largest value convex in the
    slopes: the vertices are enough.
    """
    lows, highs = [], []
    for slopes in vertices:
        matrix = np.outer(slopes @ write, row)
        matrix[columns, np.arange(len(columns))] += 1.0
        # Rounding, and slopes that are 0 or 1 up to 1e-15 only.
        blurred = np.outer((np.abs(slopes) + 1.0) @ np.abs(write), np.abs(row)) + 1.0
        found = _product(own, point(matrix).inflated((len(write) + 20) * 2.0**-52 * blurred))
        lows.append(found.low)
        highs.append(found.high)
    return Interval(np.minimum.reduce(lows), np.maximum.reduce(highs))


def _together(at_heads: Interval, group: _Group) -> Interval:
    """The slope of each output by the linear form of a group: the hull over its states, (outputs, 1)."""
    found = _product(at_heads, Interval(group.states.low.T, group.states.high.T))
    return Interval(found.low.min(axis=1, keepdims=True), found.high.max(axis=1, keepdims=True))


def _times(left: Interval, right: Array) -> Interval:
    """Encloses left @ right."""
    image = linear_image(right.T, Interval(left.low.T, left.high.T))
    return Interval(image.low.T, image.high.T)


def _product(left: Interval, right: Interval) -> Interval:
    """Encloses left @ right for two matrices of intervals: the product of the centres, and what the radii add."""
    middle, radius = centre_and_radius(left)
    centre, width = centre_and_radius(right)
    image = _times(point(middle), centre)
    spread = upper(np.abs(middle) @ width + radius @ right.magnitude, 2 * len(centre) + 4)
    return image.inflated(np.asarray(spread))


def working_columns(transformer: Transformer) -> Array:
    """True for the columns that layers write or read as data: neither token kinds nor positions."""
    working = np.zeros(width(transformer), dtype=bool)
    for name, columns in layout(transformer).items():
        working[columns] = name not in RESERVED and name not in transformer.positional
    return working


def _squared(own: Interval, rest: Array, working: Array) -> float:
    """The squared norm, over all outputs alike: sum_j x_j^2 <= (sum_j |x_j|)^2 joins the tokens."""
    rows = upper(own.magnitude + rest, 1)[:, working]
    return float(upper((rows**2).sum() / len(rows), rows.size + 3))


def _start(transformer: Transformer, model: DenseTransformer, box: Box) -> Interval:
    """Where the registers of data tokens lie before the first layer, whatever the input and the position."""
    inputs = transformer.inputs // box.size
    low, high = np.tile(box.low, inputs), np.tile(box.high, inputs)
    if inputs > 1:
        # Inputs in blocks: a token's own block holds its inputs, the others hold zeros.
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    embedded = added_outwards(linear_image(model.W_E.T, Interval(low, high)), point(model.b_E))
    return added_outwards(embedded, Interval(model.W_pos.min(axis=0), model.W_pos.max(axis=0)))


def _nothing(bank: Bank) -> Interval:
    return point(np.zeros((bank.outputs, bank.readers)))


def _with_zero(reads: Interval) -> Interval:
    """A mean of what tokens hold and of zeros."""
    return Interval(np.minimum(reads.low, 0.0), np.maximum(reads.high, 0.0))


def _sink(transformer: Transformer, bank: SinkBank, reads: Interval) -> _Heads:
    """The head returns zbar sigmoid(y): zbar is the mean of z over data tokens, the others weigh W <= L in all,
    the grid e <= p e^{-gain}, and y = b z + log(1 + W) - log(1 + e). By its values it passes at most sigmoid(y), of
    which 2 L at most is not the token's own; by its scores b zbar sigmoid'(y), where b zbar is y up to L + e + 2 b Z
    L."""
    scale = np.asarray(upper(bank.query_scale * bank.key_scale, 1))
    size = reads.magnitude
    others = leak_weight(bank.position_gain, transformer.tokens, np.zeros(bank.heads))
    grid = transformer.grid_tokens * np.exp(-bank.reference_gain) * (1.0 + 1e-9)
    aside = upper(2.0 * others + (others + grid + 2.0 * scale * size * others) / 4.0, 8)
    lowest = upper(SMALLEST / (bank.query_scale * bank.key_scale) + 2.0 * size * others + grid * size, 8)
    low = np.maximum(np.minimum(reads.low, 0.0), -lowest)
    slopes = (np.diag(np.full(bank.heads, end)) for end in SWISH)
    return _Heads(Interval(*slopes), np.diag(aside), Interval(low, np.maximum(reads.high, 0.0)))


FAR = 41.0
"""Where y sigmoid(y) has slope 0 or 1 up to 1e-15, on either side; one more than needed, for shifts."""


def _groups(
    transformer: Transformer, bank: SinkBank, read: Array, write: Array, stream: Interval
) -> tuple[_Group, ...]:
    """Heads z = s + threshold with the same s switch in order as s rises: few of their slopes are between 0 and 1 at a
    time. Between two neighbours of the ends (+-FAR / b - threshold), each slope is 0, or 1, or unknown."""
    forms, constant = read.copy(), layout(transformer)[DATA]
    forms[:, constant] = 0.0
    scale = np.asarray(lower(bank.query_scale * bank.key_scale, 1))
    shifts = transformer.grid_tokens * np.exp(-bank.reference_gain) + leak_weight(
        bank.position_gain, transformer.tokens, np.zeros(1)
    )
    if float(np.max(shifts)) > 0.5:
        return ()
    groups = []
    _, member = np.unique(forms, axis=0, return_inverse=True)
    for number in np.unique(member):
        mine = np.flatnonzero(member == number)
        itself = (forms[mine[0]] != 0.0) & write[mine].any(axis=0)
        if len(mine) > 1 or itself.any():
            s = linear_image(forms[mine[:1]], stream)
            groups.append(_Group(mine, _states(read[mine, constant].sum(axis=1), scale[mine], s)))
    return tuple(groups)


def _states(threshold: Array, scale: Array, s: Interval) -> Interval:
    """Slopes (states, heads) for s between neighbouring ends of what heads cannot tell."""
    width = FAR / scale * (1.0 + 1e-9) + 1e-12 * np.abs(threshold)
    below, above = -threshold - width, -threshold + width
    ends = np.unique(np.clip(np.concatenate([below, above, s.low, s.high]), s.low[0], s.high[0]))
    # A state lies between two ends, or is the only one.
    starts, stops = (ends[:-1], ends[1:]) if len(ends) > 1 else (ends, ends)
    on, off = starts[:, None] >= above, stops[:, None] <= below
    low = np.where(on, 1.0 - 1e-15, np.where(off, -1e-15, SWISH[0]))
    return Interval(low, np.where(on, 1.0 + 1e-15, np.where(off, 1e-15, SWISH[1])))


def _table(transformer: Transformer, bank: TableBank, reads: Interval) -> _Heads:
    """Silent tokens are one more token of the table: value 0, score log(number) - gain.

    How many data tokens are in sight depends on the mask and on the length: the logarithm is one more argument.
    """
    own = bank.grid == GRID
    seen = (1, transformer.tokens) if own else (transformer.grid_tokens,) * 2
    fewest, most = (transformer.sink_tokens + count for count in seen)
    tokens = bank.offset.shape[1]
    silent = (np.zeros((1, bank.arguments)), [-bank.gain], np.zeros((1, bank.columns)))
    falls, rises = np.zeros((2, bank.outputs, bank.readers))
    low, high = np.empty((2, bank.outputs))
    for head in range(bank.heads):
        forms = slice(head * bank.arguments, (head + 1) * bank.arguments)
        columns = slice(head * bank.columns, (head + 1) * bank.columns)
        slope, offset, values, ends = bank.slope[head], bank.offset[head], bank.values[head], reads[forms]
        start, end = ends.low, ends.high
        if most:
            slope, values = np.concatenate([slope, silent[0]]), np.concatenate([values, silent[2]])
            offset = np.concatenate([offset, silent[1]])
            slope = np.column_stack([slope, np.append(np.zeros(tokens), 1.0)])
            start, end = np.append(start, math.log(fewest) - 1e-12), np.append(end, math.log(most) + 1e-12)
        found = steepness(slope, offset, values, start, end)
        slopes = found.slopes[:, : bank.arguments]
        falls[columns, forms], rises[columns, forms] = slopes.low, slopes.high
        low[columns], high[columns] = found.values.low, found.values.high
    return _Heads(Interval(falls, rises), np.zeros_like(falls), Interval(low, high))


def _gate(transformer: Transformer, bank: GateBank, reads: Interval) -> _Heads:
    """The weight g of data tokens is a table of x, in which they hold 1 and score 0. The other data tokens are among
    them: they add log(1 + W) to that score, W <= L. What they hold differs from y by 2 Y at most."""
    others = float(leak_weight(bank.position_gain, transformer.tokens, np.zeros(1))[0])
    extra = [-bank.keep_gain] if transformer.sink_tokens else []
    falls, rises, rest = np.zeros((3, bank.outputs, bank.readers))
    low, high = np.empty((2, bank.outputs))
    for head in range(bank.heads):
        x, y = reads[2 * head : 2 * head + 1], reads[2 * head + 1 : 2 * head + 2]
        slope = np.concatenate([[0.0], bank.slope[head], np.zeros(len(extra))])
        offset = np.concatenate([[0.0], bank.offset[head], extra])
        own = np.append(1.0, np.zeros(len(slope) - 1))
        found = steepness(
            np.column_stack([slope, own]),
            offset,
            own[:, None],
            np.append(x.low, 0.0),
            np.append(x.high, upper(others, 1)),
        )
        by_x, by_y = multiplied(found.slopes[:1, 0], y), found.values
        falls[head, 2 * head : 2 * head + 2] = by_x.low[0], by_y.low[0]
        rises[head, 2 * head : 2 * head + 2] = by_x.high[0], by_y.high[0]
        # The other tokens' values in place of the token's own: by x they are 2 Y L apart, by y they weigh L.
        apart = 2.0 * y.magnitude[0] * others * found.slopes.magnitude[0, 0]
        rest[head, 2 * head : 2 * head + 2] = upper(np.array([apart, 2.0 * others]), 4)
        product = multiplied(found.values, y).inflated(upper(2.0 * y.magnitude * others, 3))
        low[head], high[head] = product.low[0], product.high[0]
    return _Heads(Interval(falls, rises), rest, Interval(low, high))


def _boltzmann(transformer: Transformer, bank: BoltzmannBank, reads: Interval) -> _Heads:
    """Reference tokens weigh r <= count e^{|b| Z - gain}, which moves the mean by r Z."""
    scale, size = np.asarray(upper(np.abs(bank.query_scale * bank.key_scale), 1)), reads.magnitude
    with np.errstate(over="ignore"):
        weight = np.exp(upper(scale * size, 2) - bank.gain) * (1.0 + 1e-9)
        weight = transformer.reference_tokens * np.minimum(weight, 1.0)
    steep = upper(1.0 + 2.0 * boltzmann_constant(transformer.tokens) + scale * size * np.minimum(weight, 1.0), 8)
    return _Heads(_nothing(bank), np.diag(steep), _with_zero(reads))


def _attend(transformer: Transformer, bank: AttendBank, reads: Interval) -> _Heads:
    """Every output depends on its own value row, and on all rows of query and key."""
    query, key, value = bank.parts
    held = _with_zero(reads)
    spread = np.asarray(upper(held.high - held.low, 1))
    rest = np.zeros((bank.outputs, bank.readers))
    rest[:, query] = upper(spread[value][:, None] * spread[key] / 4.0, 3)
    rest[:, key] = upper(spread[value][:, None] * reads.magnitude[query] / 2.0, 3)
    rest[np.arange(bank.outputs), np.arange(bank.readers)[value]] = 1.0
    return _Heads(_nothing(bank), rest, held[value])


def _carried(transformer: Transformer, bank: Bank, reads: Interval) -> _Heads:
    """A mean, or a move: weights that no input changes."""
    return _Heads(_nothing(bank), np.eye(bank.outputs), _with_zero(reads))


SLOPES: dict[str, Callable[..., _Heads]] = {
    "sink": _sink,
    "table": _table,
    "gate": _gate,
    "mean": _carried,
    "move": _carried,
    "boltzmann": _boltzmann,
    "attend": _attend,
}
"""The kinds of heads whose slopes are known."""


def _slopes_of(transformer: Transformer, bank: Bank, reads: Interval) -> _Heads:
    if bank.kind not in SLOPES:
        raise TargetError("gains are certified of softmax attention, without SwiGLU blocks")
    return SLOPES[bank.kind](transformer, bank, reads)
