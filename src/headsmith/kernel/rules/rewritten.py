"""Another set of matrices that computes the same as a proven model, up to what is charged here.

Whoever rewrites a model may choose another basis of the stream, fewer columns, other features of queries and keys;
reorder its heads, share one out among several, and add heads of his own. Nobody needs to know how: what a head reads of
what another one writes is a product (row of what is written) . (column of what is read), and these must be the same.

Let the stream be a sum of rows with coefficients: the rows of a token (those of a reference token, or the constants of
a data token), the inputs times the rows of the embedding, and what heads return times the rows of their W_O. All
coefficients are bounded: inputs by the domain, what heads return by the walk. Every head of the rewritten model is `of`
a head of the proven one, with a `share` (the shares of a head add up to one), or of none. It may mix: queries by A,
keys by the transposed inverse of A, values by B, W_O by the inverse of B; a head of none is taken as it is, whatever
stands there for its mixes. Whatever has no finite bound is refused, and so is what is no double, or not of the shape
that the proven model's tokens, inputs and outputs, and the mixes, say. Then for every read of a head that is of one,

    off  =  sum of |coefficient| |row' . column' - (row . column) mixed|  +  |column'| (noise + gamma |X'|),

the first over all rows, share times the row for the proven model, zero for a row that it does not have; the second with
2-norms. `noise` is what the stream has been rounded by so far: of every layer, gamma of all that is added. Scores of
the head are then off by no more than sum |q| off_k + |k| off_q + off_q off_k + gamma |q| |k|, and what it returns, but
for the scores, by no more than off_v + gamma |v|, mixed back.

Theorem (Rewritten).  Let a walk of the proven model, in a format whose every operation may lose t and whose scores may
be off by s besides, bound the coefficients, and let scores be off by at most s and returned values by at most t. Then
the walk's certificate, and what the read-out is off by, bound the error of the rewritten model. *Proof*: where the walk
bounds how far scores are off, it counts exp's error, which is at least s (softmax.exp_error); of a sink, where the
difference of two scores counts, twice that. What a head returns is counted as off by 4 (tokens + 2) t at least
(softmax.committed), and what is read by t. So the walk's induction holds with the heads of the rewritten model in place
of the proven ones, and nothing else is known of these.

Only softmax heads in float64 have such a walk, and proofs that do not use that registers are rounded once for all who
read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arithmetic import FLOAT64, Array, Interval
from ..core.check import Certificate, certificate, contents, facts_of
from ..core.errors import refuse
from ..core.graph import Graph
from ..core.model import NEURONS
from ..core.reading import Tensors
from ..core.walk import Facts, Walk, walk_through

MORE = 1.0 + 2.0**-30  # for sums and products of numbers that are not negative, of up to 2^20 terms
Weights = Mapping[str, Array]


@dataclass(frozen=True)
class Loss:
    """How far what heads return may be off, and scores."""

    returned: float
    scores: float


def rewritten(header: Any, stored: Tensors, plain: Weights, other: Weights, loss: Loss) -> tuple[Certificate, Array]:
    """The certificate of the proven model in a format that loses `loss`, and what the outputs of the rewritten one may
    be off by besides. `plain` are the matrices of the proven model as it is exported, `other` the rewritten ones."""
    facts, target, box = _facts(header, stored, loss)
    needed, extra, strange = _needed(facts, walk_through(facts), plain, other)
    enough = needed.returned <= loss.returned and needed.scores <= loss.scores
    refuse(not enough, f"the rewritten model may lose {needed}, and {loss} is allowed for")
    found = certificate(target, facts, box)
    weight = max(float(np.abs(each).max(initial=0.0)) for each in other.values())
    score = max(found.max_score + needed.scores, strange) * MORE
    return replace(found, max_weight=weight, max_score=score), extra


def needed_loss(header: Any, stored: Tensors, plain: Weights, other: Weights, loss: Loss) -> Loss:
    """What must be allowed for, where coefficients are those of a walk that loses so much: for whoever rewrites."""
    facts, _, _ = _facts(header, stored, loss)
    return _needed(facts, walk_through(facts), plain, other)[0]


def _facts(header: Any, stored: Tensors, loss: Loss) -> tuple[Facts, Graph, Interval]:
    target, model, proof, box, _ = contents(header, stored)
    usual = model.precision is FLOAT64 and model.attention == "softmax" and not model.alone and not proof.powers
    neurons = any(bank.kind in NEURONS for layer in model.layers for bank in layer)
    refuse(not usual or neurons or proof.beyond is not None, "only softmax heads in float64 are rewritten")
    facts = facts_of(target, model, proof, box)
    refuse(not (loss.returned >= FLOAT64.smallest_normal and loss.scores >= 0.0), "a loss is negative, or none")
    lossy = replace(FLOAT64, smallest_normal=loss.returned, loose=loss.scores)
    return replace(facts, model=replace(model, precision=lossy)), target, box


def _refuse_shapes(plain: Weights, other: Weights) -> None:
    """Raise Refused unless both models have as many tokens, inputs and outputs, and all numbers are doubles: what is
    compared is not spread over rows, and is not rounded more than is counted."""
    width, columns = len(other["embed.bias"]), {"embed.weight": 0, "embed.bias": 0, "unembed.bias": None}
    for name in ("references", "positions", "unembed.weight", *columns):
        shape = (width if axis == columns.get(name, 1) else n for axis, n in enumerate(plain[name].shape))
        refuse(other[name].shape != (*shape,), f"{name} is not of the shape of the proven model's")
    refuse(any(each.dtype != np.float64 for each in other.values()), "a matrix is not stored in float64")


class _Rows:
    """The rows of a stream, proven and rewritten, with bounds of their coefficients: `first` are those of which every
    token has one, the others all have. `noise` is what the stream was rounded by."""

    def __init__(self, first: tuple[Array, Array], rows: tuple[Array, Array], sizes: Array) -> None:
        self.first, self.rows, self.sizes, self.noise = first, rows, sizes, 0.0

    def length(self) -> float:
        """A bound of the 2-norm of the rewritten stream, as it is rounded."""
        norms = [norm(each) for each in (self.first[1], self.rows[1])]
        return float(norms[0].max(initial=0.0) + self.sizes @ norms[1]) * MORE + self.noise

    def add(self, row: Array, other: Array, sizes: Array) -> None:
        self.rows = (np.vstack([self.rows[0], row]), np.vstack([self.rows[1], other]))
        self.sizes = np.append(self.sizes, sizes)

    def read(self, columns: Array | None, others: Array) -> tuple[Array, Array]:
        """How large is what is read by the columns of the rewritten model, and how far it is off what the proven one
        reads; of a head that is of none, that is nothing."""
        share, size, off = gamma(max(len(self.rows[0].T), len(others)) + 8), [], []
        for mine, theirs in (self.first, self.rows):
            found, rounded = theirs @ others, np.abs(theirs) @ np.abs(others)
            if columns is not None:
                rounded = rounded + np.abs(mine) @ np.abs(columns)
            size.append(np.abs(found) + share * rounded)
            off.append((0.0 * found if columns is None else np.abs(found - mine @ columns)) + share * rounded)
        reached, away = (np.max(each[0], axis=0, initial=0.0) + self.sizes @ each[1] for each in (size, off))
        away = (away + norm(others.T) * (self.noise + share * self.length())) * MORE
        return reached * MORE + away, away


class _Layer:
    """The matrices of a layer: W_Q, W_K, W_V (heads, d_model, width) and W_O (heads, width, d_model)."""

    def __init__(self, weights: Weights, layer: int, heads: int) -> None:
        named = [weights[f"layers.{layer}.{name}.weight"] for name in ("query", "key", "value")]
        self.reads = [each.reshape(heads, -1, each.shape[1]).transpose(0, 2, 1) for each in named]
        write = weights[f"layers.{layer}.output.weight"].T
        self.write = write.reshape(heads, -1, write.shape[1])


class _Origins:
    """Of which proven head each head of a layer is one, with which share, and how it mixes what."""

    def __init__(self, weights: Weights, layer: int, heads: int) -> None:
        named = ("of", "share", "mix", "unmix", "values", "devalues")
        self.of, self.share, self.mix, self.unmix, self.values, self.devalues = (
            weights[f"heads.{layer}.{name}"] for name in named
        )
        self.of, self.mixes = self.of.astype(np.int64), (self.mix, self.unmix, self.values)
        totals = [float(self.share[self.of == head].sum()) for head in range(heads)]
        whole = all(float(each).is_integer() for each in (2.0**20 * self.share).tolist())
        refuse(totals != [1.0] * heads or not whole, "the shares of a head do not add up to one")
        refuse(bool(np.any(self.share < 0.0) or np.any(self.of >= heads)), "a share is negative, or of no head")
        for one, other in ((self.mix, self.unmix), (self.values, self.devalues)):
            small = np.all(np.abs(one) <= 2.0**20) and np.all(np.abs(other) <= 2.0**20) and one.shape[1] <= 256
            exact = np.array_equal(one, np.round(one)) and np.array_equal(other, np.round(other))
            identity = np.array_equal(one @ other, np.broadcast_to(np.eye(one.shape[1]), one.shape))
            refuse(not (small and exact and identity), "what mixes features is no whole matrix with such an inverse")


def _needed(facts: Facts, walk: Walk, plain: Weights, other: Weights) -> tuple[Loss, Array, float]:
    """The loss that must be allowed for, what the read-out is off by, and how large scores of heads of none are."""
    _refuse_shapes(plain, other)
    inputs, committed = facts.ranges[0].magnitude.value, iter(walk.locals_)
    needed, strange = [0.0, 0.0], 0.0
    (row, base), (row_, base_) = ((w["embed.weight"].T, w["positions"] + w["embed.bias"]) for w in (plain, other))
    data = _Rows((base, base_), (row, row_), inputs)
    held = _Rows((plain["references"], other["references"]), (row, row_), 0.0 * inputs)
    entered = norm(np.abs(other["positions"]) + np.abs(other["embed.bias"])).max(initial=0.0)
    for each in (data, held):
        each.noise = gamma(len(inputs) + 4) * (each.length() + float(entered)) * MORE
    tokens = len(base) + len(plain["references"])
    for number, banks in enumerate(facts.model.layers):
        known = [(bank.heads, next(committed)[1]) for bank in banks]
        reach = [each for heads, local in known for each in np.split(local.reach.value, heads)]
        spill = [each for heads, local in known for each in np.split(local.spilled.value, heads)]
        origins = _Origins(other, number, len(reach))
        mine, theirs = _Layer(plain, number, len(reach)), _Layer(other, number, len(origins.of))
        fits = all(each.shape[2] == mix.shape[2] for each, mix in zip(theirs.reads, origins.mixes, strict=True))
        refuse(not fits, f"layer {number + 1}: heads are not as wide as what mixes their features")
        heads = [_head(head, (data, held), mine, theirs, origins, tokens) for head in range(len(origins.of))]
        added = sum(float(size @ norm(theirs.write[head])) for head, (_, _, size, _) in enumerate(heads))
        for each in (data, held):
            terms = theirs.write.shape[0] * (theirs.write.shape[1] + 1) + 4
            each.noise += gamma(terms) * (added + each.length()) * MORE
        for head, (origin, (score, off, size, most)) in enumerate(zip(origins.of.tolist(), heads, strict=True)):
            back, before, sizes = theirs.write[head], np.zeros(mine.write.shape[1:]), (size, size)
            finite = np.isfinite(score) and np.isfinite(off).all() and np.isfinite(size).all()
            refuse(not finite, f"layer {number + 1}, head {head}: what it reads has no finite bound")
            strange = strange if origin >= 0 else max(strange, most)
            if origin >= 0:
                back = origins.values[head] @ theirs.write[head]
                needed = [max(needed[0], float(off.max())), max(needed[1], score)]
                before = mine.write[origin] * origins.share[head]
                sizes = (_filled(reach[origin], len(back)), _filled(spill[origin], len(back)))
                held.noise += float(off @ norm(back)) * MORE
            rounded = gamma(len(back) + 2) * norm(np.abs(origins.values[head]) @ np.abs(theirs.write[head]))
            for each, coefficients in zip((data, held), sizes, strict=True):
                each.noise += float(coefficients @ rounded) * MORE
                each.add(before, back, coefficients)
    size, extra = data.read(plain["unembed.weight"].T, other["unembed.weight"].T)
    bias = np.abs(plain["unembed.bias"]) + np.abs(other["unembed.bias"])
    away = extra + np.abs(plain["unembed.bias"] - other["unembed.bias"]) + gamma(row_.shape[1] + 8) * (size + bias)
    refuse(not np.isfinite(away).all(), "what the read-out reads has no finite bound")
    return Loss(*needed), away * MORE, strange


def _head(
    head: int, rows: tuple[_Rows, _Rows], mine: _Layer, theirs: _Layer, origins: _Origins, tokens: int
) -> tuple[float, Array, Array, float]:
    """How far scores of a head are off, and what it returns but for these, as the proven head has it; and how large its
    values and scores are. Of a head that is of none, only these count."""
    origin, parts = int(origins.of[head]), []
    mixes = (origins.mix[head], origins.unmix[head].T, origins.values[head])
    for read, other, mix in zip(mine.reads, theirs.reads, mixes, strict=True):
        if origin < 0:
            found = [each.read(None, other[head]) for each in rows]
        else:
            found = [each.read(read[origin] @ mix, other[head]) for each in rows]
            rounded = gamma(len(mix) + 2) * (np.abs(read[origin]) @ np.abs(mix))
            for place, each in enumerate(rows):
                unsure = np.max(np.abs(each.first[0]) @ rounded, axis=0, initial=0.0)
                unsure = unsure + each.sizes @ (np.abs(each.rows[0]) @ rounded)
                found[place] = found[place][0] + unsure, (found[place][1] + unsure) * MORE
        parts.append(tuple(np.maximum(one, other) for one, other in zip(*found, strict=True)))
    (query, off_query), (key, off_key), (value, off_value) = parts
    score = query @ off_key + key @ off_query + gamma(len(query) + 4) * (query @ key)
    returned = (off_value + gamma(2 * tokens + 4) * value) @ np.abs(origins.devalues[head])
    return float(score) * MORE, returned * MORE, value * MORE, float(query @ key) * MORE


def _filled(values: Array, length: int) -> Array:
    """Values with zeros behind them."""
    return np.append(values, np.zeros(length - len(values)))


def gamma(terms: int) -> float:
    """Twice what a sum of so many products is off by, as a share of their sizes: once for who runs, and once for us."""
    return 2.0 * float(FLOAT64.gamma(terms).value)


def norm(rows: Array) -> Array:
    """The 2-norms of rows, from above. Rows are scaled by their largest entries, so that no square underflows that
    counts."""
    scale = np.abs(rows).max(axis=1, initial=0.0)
    parts = rows / np.where(scale > 0.0, scale, 1.0)[:, None]
    return np.asarray(scale * np.sqrt((parts**2).sum(axis=1)) * MORE)
