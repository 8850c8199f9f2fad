"""The universal attention model, as plain matrices: gather the tokens, then look up the answer.

Registers of the stream, of n data tokens and n p^D constant reference tokens (a prefix), D = n d:

    x (d)          the token's features                     data tokens
    data (1)       one                                      data tokens
    position (n)   which token it is, one-hot               data tokens
    gathered (D)   all tokens' features, less the middles   data tokens, written by layer 1
    grid (D + 1)   node g in steps, and -c sum g_i^2        reference tokens
    block (n)      the token that it answers for, one-hot   reference tokens
    answer (e)     f(node) at that token                    reference tokens
    out (e)        the output                               data tokens, written by layer 2

Layer 1, head j:  every token scores GAIN on token j and 0 elsewhere, and copies its x less the middle of its domain.
Layer 2, one head: query (t, 1, bonus position), t = gathered/h; key (2 c g, -c sum g^2, block); value answer.

All tokens gather the same input and must answer differently. The cheapest legal way is to let the position be one more
coordinate of the grid: n blocks of reference tokens, and a bonus for one's own. It needs one head and no further layer;
n heads of which all but one look at a sink cost as many scores and more heads; a mask on n e outputs is a product, and
no linear map. Data tokens have key zero, so the bonus silences them as well.

Leak.  Other blocks have the same scores but for the bonus: their weight is at most (n - 1) e^{-bonus}. The best node of
the own block is within 1/2 of t in every coordinate and scores at least bonus - D c/4; n data tokens score 0.

Reference tokens collect a mean of x in `gathered`, which nobody reads there: `run` leaves their rows out, unless asked.

The other architecture stops after layer 1 and ends in softmax(x W + b) V with the same scores and answers: no prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.rounding import FLOAT64, upper
from headsmith.heads.softmax import exp_disturbance, moved_mean, outside_weight, summation_rounding
from headsmith.sequence.gaussian_grid import BEYOND
from headsmith.transformer.bill import Bill

GAIN = 60.0
"""How far silent tokens stay below the others: e^-60 is far below the unit roundoff."""

CHUNK = 2_000_000
"""Scores that are held at once."""

Architecture = Literal["two layers", "one layer and a softmax"]


HEAD, LAST = ("W_Q", "W_K", "W_V", "W_O"), ("W", "b", "V")
"""The matrices of a head, and of the softmax at the end."""


@dataclass(frozen=True, eq=False)
class Head:
    """softmax(X W_Q (X W_K)^T) X W_V W_O."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array


@dataclass(frozen=True, eq=False)
class Softmax:
    """softmax(x W + b) V, token by token."""

    W: Array
    b: Array
    V: Array


@dataclass(frozen=True, eq=False)
class Attention:
    """An attention-only model: data tokens start as x embedding + positional, reference tokens as `prefix`.

    The output is the stream times `readout`, or what `last` makes of the stream.
    """

    embedding: Array
    positional: Array
    prefix: Array
    layers: tuple[tuple[Head, ...], ...]
    readout: Array
    last: Softmax | None

    @property
    def d_model(self) -> int:
        return int(self.embedding.shape[1])

    @property
    def tokens(self) -> int:
        return len(self.positional)

    @property
    def features(self) -> int:
        return len(self.embedding)

    @property
    def outputs(self) -> int:
        return int((self.readout if self.last is None else self.last.V).shape[1])


@dataclass(frozen=True, eq=False)
class Lookup:
    """What the model looks up: t = scale * (s - middle) is a flat input (D) in steps, `nodes` (p^D, D) are the grid's
    in steps, `answers` (p^D, n, e) the values there, `width` is c."""

    scale: Array
    middle: Array
    nodes: Array
    answers: Array
    width: float

    @property
    def bonus(self) -> float:
        return GAIN + len(self.scale) * self.width / 4.0


def layout(tokens: int, features: int, outputs: int, architecture: Architecture) -> dict[str, slice]:
    """The registers' columns, in order; the last one ends at d_model."""
    size = tokens * features
    sizes = {"x": features, "data": 1, "position": tokens, "gathered": size}
    if architecture == "two layers":
        sizes |= {"grid": size + 1, "block": tokens, "answer": outputs, "out": outputs}
    ends = np.cumsum(list(sizes.values())).tolist()
    return {name: slice(end - length, end) for (name, length), end in zip(sizes.items(), ends, strict=True)}


def build(lookup: Lookup, architecture: Architecture) -> Attention:
    """The matrices."""
    nodes, tokens, outputs = lookup.answers.shape
    size = len(lookup.scale)
    features = size // tokens
    at = layout(tokens, features, outputs, architecture)
    d_model = max(columns.stop for columns in at.values())

    def matrix(rows: int, name: str, values: Array) -> Array:
        """Zero but for `values` in the columns of a register."""
        made = np.zeros((rows, d_model))
        made[:, at[name]] = values
        return made

    positional = matrix(tokens, "position", np.eye(tokens)) + matrix(tokens, "data", np.ones((tokens, 1)))
    gather = []
    for token in range(tokens):
        place = np.zeros((features, size))
        mine = slice(token * features, (token + 1) * features)
        place[:, mine] = np.eye(features)
        centred = matrix(features, "x", np.eye(features)) + matrix(features, "data", -lookup.middle[mine, None])
        gather.append(
            Head(
                frozen(matrix(1, "data", np.full((1, 1), GAIN)).T),
                frozen(matrix(1, "position", np.eye(tokens)[token]).T),
                frozen(centred.T),
                frozen(matrix(features, "gathered", place)),
            )
        )
    grid = np.hstack([lookup.nodes, -lookup.width * (lookup.nodes**2).sum(axis=1, keepdims=True)])
    # W_Q and W_K, transposed: the features t, the offset, the blocks.
    query = np.vstack(
        [
            matrix(size, "gathered", np.diag(lookup.scale)),
            matrix(1, "data", np.ones((1, 1))),
            matrix(tokens, "position", lookup.bonus * np.eye(tokens)),
        ]
    )
    answers = lookup.answers.transpose(1, 0, 2).reshape(tokens * nodes, outputs)
    blocks = np.repeat(np.eye(tokens), nodes, axis=0)
    slopes = np.array([*[2.0 * lookup.width] * size, 1.0])
    embedding = frozen(matrix(features, "x", np.eye(features)))
    if architecture != "two layers":
        keys = np.hstack([np.tile(slopes[:-1] * lookup.nodes, (tokens, 1)), np.zeros((tokens * nodes, 1)), blocks])
        last = Softmax(frozen(query.T @ keys.T), frozen(np.tile(grid[:, -1], tokens)), frozen(answers))
        empty = frozen(np.zeros((0, d_model)))
        return Attention(embedding, frozen(positional), empty, (tuple(gather),), empty.T, last)
    prefix = matrix(tokens * nodes, "grid", np.tile(grid, (tokens, 1)))
    prefix += matrix(tokens * nodes, "block", blocks) + matrix(tokens * nodes, "answer", answers)
    key = np.vstack([matrix(size + 1, "grid", np.diag(slopes)), matrix(tokens, "block", np.eye(tokens))])
    value, write = (matrix(outputs, name, np.eye(outputs)) for name in ("answer", "out"))
    table = Head(frozen(query.T), frozen(key.T), frozen(value.T), frozen(write))
    return Attention(embedding, frozen(positional), frozen(prefix), (tuple(gather), (table,)), frozen(write.T), None)


# Running ------------------------------------------------------------------------------------------------------------


def run(model: Attention, inputs: Array, every_row: bool = False) -> Array:
    """(sequences, n, d) -> (sequences, n, e). `every_row`: update the reference tokens, too."""
    width = len(model.prefix) + model.tokens + (len(model.last.b) if model.last is not None else 0)
    step = max(1, CHUNK // (model.tokens * width))
    parts = [_run(model, inputs[start : start + step], every_row) for start in range(0, len(inputs), step)]
    return np.concatenate(parts) if parts else np.zeros((0, model.tokens, model.outputs))


def _run(model: Attention, inputs: Array, every_row: bool) -> Array:
    data = inputs @ model.embedding + model.positional
    prefix = np.broadcast_to(model.prefix, (len(inputs), *model.prefix.shape)) if every_row else model.prefix
    for layer in model.layers:
        written = np.sum([attend(head, data, prefix, data) for head in layer], axis=0)
        if every_row:
            prefix = prefix + np.sum([attend(head, prefix, prefix, data) for head in layer], axis=0)
        data = data + written
    if model.last is not None:
        return np.asarray(softmax(data @ model.last.W + model.last.b) @ model.last.V)
    return np.asarray(data @ model.readout)


def attend(head: Head, rows: Array, prefix: Array, data: Array) -> Array:
    """What a head writes on `rows`, which look at the reference tokens and the data tokens."""
    weights = pattern(head, rows, prefix, data)
    count = prefix.shape[-2]
    mean = weights[..., :count] @ (prefix @ head.W_V) + weights[..., count:] @ (data @ head.W_V)
    return np.asarray(mean @ head.W_O)


def pattern(head: Head, rows: Array, prefix: Array, data: Array) -> Array:
    """How much `rows` look at each token, reference tokens first."""
    queries = rows @ head.W_Q
    scores = [queries @ np.swapaxes(part @ head.W_K, -1, -2) for part in (prefix, data)]
    return softmax(np.concatenate(scores, axis=-1))


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


# What floating point and silent tokens do ---------------------------------------------------------------------------


def gathered_error(model: Attention, lookup: Lookup, low: Array, high: Array) -> Array:
    """Bound of |gathered - (s - middle)| for low <= s <= high (D): leak and rounding of the move heads, rounded up.

    Guarantee: the score of the own token is GAIN and all others' are 0, exactly; the n data tokens hold x - middle,
    rounded, and reference tokens 0. `largest` is over all data tokens, seen from the middle that the head takes off.
    """
    lows, highs, middles = (each.reshape(model.tokens, -1) for each in (low, high, lookup.middle))
    size = np.maximum(highs.max(axis=0) - middles, middles - lows.min(axis=0)).reshape(-1)
    taken = np.tile(np.maximum(np.abs(lows), np.abs(highs)).max(axis=0), model.tokens) + np.abs(lookup.middle)
    offset = upper(FLOAT64.gamma(4) * taken, 3)
    largest = upper(np.abs(size) + offset, 3)
    others = outside_weight(model.tokens - 1, GAIN, exp_disturbance(FLOAT64))
    references = outside_weight(len(model.prefix), GAIN, exp_disturbance(FLOAT64))
    summed = summation_rounding(largest, model.tokens + len(model.prefix), FLOAT64) + FLOAT64.gamma(4) * largest
    return np.asarray(upper((2.0 * others + references) * largest + summed + offset, 8))


def query_error(lookup: Lookup, reach: Array) -> Array:
    """Bound of how far the computed t (D) is from scale * gathered, for |gathered| <= reach, rounded up."""
    return np.asarray(upper(FLOAT64.gamma(4) * lookup.scale * reach + 4.0 * FLOAT64.smallest_normal, 4))


def score_size(lookup: Lookup) -> float:
    """Bound of the sum of the absolute values of a score's products."""
    half = np.abs(lookup.nodes).max(axis=0) + 0.5 + BEYOND
    slope, offset = 2.0 * lookup.width * (np.abs(lookup.nodes) @ half), lookup.width * (lookup.nodes**2).sum(axis=1)
    return float(upper((slope + offset).max() + lookup.bonus, len(half) + 8))


def answer_error(lookup: Lookup, model: Attention) -> tuple[float, float]:
    """Bounds (leak, rounding) of the output against the exact kernel mean of the answers at the computed t, rounded up.

    Guarantee: outside weight times the spread of the values; moved mean (heads/softmax.py) for scores that are off by
    gamma_{2 D + n + 8} times their products' sizes, in any order, differences with the largest score, and exp.
    """
    size, (tokens, _) = len(lookup.scale), lookup.answers.shape[1:]
    high, low = max(float(lookup.answers.max()), 0.0), min(float(lookup.answers.min()), 0.0)
    spread, largest = float(upper(high - low, 1)), max(high, -low)
    others = outside_weight(tokens - 1, lookup.bonus, 0.0)
    silent = outside_weight(tokens, lookup.bonus - size * lookup.width * (0.25 + 2.0 * BEYOND), 0.0)
    scores = score_size(lookup)
    moved = (
        FLOAT64.gamma(2 * size + tokens + 8) * scores + 4.0 * FLOAT64.unit_roundoff * scores + exp_disturbance(FLOAT64)
    )
    moved = float(upper(moved + 1e-300, 8))
    rows = lookup.answers.shape[0] * tokens + tokens
    rounding = moved_mean(spread, moved) + summation_rounding(largest, rows, FLOAT64) + FLOAT64.gamma(4) * largest
    return float(upper((others + silent) * spread, 4)), float(upper(rounding, 4))


# The bill -----------------------------------------------------------------------------------------------------------


def bill(model: Attention, max_score: float) -> Bill:
    """Count everything, as matrices; of the constants of tokens, those that are not zero."""
    matrices, constants = list(_matrices(model)), [model.positional, model.prefix]
    constant = sum(int(np.count_nonzero(array)) for array in constants)
    heads = tuple(len(layer) for layer in model.layers)
    return Bill(
        layers=len(heads),
        heads=sum(heads),
        heads_per_layer=heads,
        reference_tokens=len(model.prefix),
        data_tokens=len(model.positional),
        d_model=model.d_model,
        d_head=max(head.W_Q.shape[1] for layer in model.layers for head in layer),
        parameters=sum(array.size for array in matrices) + constant,
        nonzeros=sum(int(np.count_nonzero(array)) for array in matrices) + constant,
        max_weight=max(float(np.abs(array).max(initial=0.0)) for array in [*matrices, *constants]),
        max_score=max(GAIN, max_score),
    )


def _matrices(model: Attention) -> Iterator[Array]:
    return (array for name, array in named(model).items() if name not in ("positional", "prefix"))


def named(model: Attention) -> dict[str, Array]:
    """Every array of the model by its name."""
    found = {"embedding": model.embedding, "positional": model.positional, "prefix": model.prefix}
    for number, layer in enumerate(model.layers):
        for place, head in enumerate(layer):
            found |= {f"layers.{number}.{place}.{name}": getattr(head, name) for name in HEAD}
    found["readout"] = model.readout
    if model.last is not None:
        found |= {f"last.{name}": getattr(model.last, name) for name in LAST}
    return found
