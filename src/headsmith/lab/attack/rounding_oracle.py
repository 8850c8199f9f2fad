"""The dense matrices, run with every rounding pushed the worst way to first order.

The standard model of floating point says that every operation returns its result times 1 + d, |d| <= u, and exp with a
few units more; nobody says which d. A certificate holds for all of them. Here the model runs once without rounding and
its derivative by every single d is computed (backwards, as gradients are); then it runs again, with every d at the end
of its range that moves one output of one token furthest. What comes out is an execution that the certificate covers,
and close to the worst one.

Rounding is to nearest: adding what is tiny moves a sum by no more than that. What is exact stays so: a product with
zero or with a power of two, adding zero, and results that are numbers of the format anyway, such as those of gains and
position codes. Sums run from the largest weights to the smallest. Formats of 16 bits compute in float32, and what they
hold is pushed by the units of their own (kernel/core/arithmetic.py, Precision).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.core.rounding import HALVES, PRECISIONS, arithmetic, held
from headsmith.transformer.dense import DenseLayer, DenseTransformer
from headsmith.transformer.heads.attentions import shares_of, weights_of
from headsmith.transformer.heads.swiglu import silu

EXP_UNITS = 8.0
"""exp is correct to 4 units in the last place, and one of these is at most 2 u."""

Back = tuple[int, Callable[[Any], Any]]
"""An operand, and how it is pulled by what pulls the result."""


class Tape:
    """Everything that was computed, in order. `signs`, where given, says how the result of each step is pushed."""

    def __init__(self, dtype: str, signs: dict[int, Any] | None = None) -> None:
        self.dtype, self.kind = dtype, np.dtype(arithmetic(dtype)).type
        self.wide: Any = np.float64 if self.kind is np.float32 else np.longdouble
        self.unit = float(np.finfo(self.kind).eps) / 2.0
        self.signs, self.values, self.backs, self.free = signs, list[Any](), list[tuple[Back, ...]](), dict[int, Any]()

    def put(self, value: Any, *backs: Back, units: Any = 0.0) -> int:
        """A new step, rounded by so many units; returns its place."""
        value = np.asarray(value, dtype=self.wide)
        with np.errstate(over="ignore"):
            units = np.where(value.astype(self.kind) == value, 0.0, units)
        if self.signs is not None:
            value = value * (1 + self.signs[len(self.values)] * units * self.unit)
        self.values.append(value)
        self.backs.append(backs)
        return len(self.values) - 1

    def constant(self, values: Any) -> int:
        """Numbers that are stored in the format."""
        return self.put(held(values, self.dtype))

    def hold(self, place: int, where: Any = True) -> int:
        """What is held: where it is new, and no number of the format, it is rounded once more."""
        if self.dtype not in HALVES:
            return place
        value, here = self.values[place], len(self.values)
        # What needs no rounding in the first run needs none in the second: only there, all others have signs.
        self.free[here] = where & (held(value, self.dtype) != value)
        if self.signs is not None:
            value = value * (1 + self.signs[here] * PRECISIONS[self.dtype].unit_roundoff)
        self.values.append(value)
        self.backs.append(((place, lambda pull: pull),))
        return here

    def linear(self, place: int, matrix: Any) -> int:
        """x @ matrix as a model holds it; one number times a power of two is held already."""
        sizes = np.abs(held(matrix, self.dtype))
        copied = ((sizes != 0.0).sum(axis=0) <= 1) & (np.frexp(sizes.max(axis=0, initial=0.0))[0] == 0.5)
        return self.hold(self.product(place, matrix), ~copied)

    def add(self, left: int, right: int) -> int:
        a, b = self.values[left], self.values[right]
        # Both terms are numbers of the format. The nearest one to their sum is no further from it than either of them:
        # what is rounded is at most the smaller term.
        smaller = np.minimum(np.abs(a), np.abs(b)) / (self.unit * np.abs(a + b))
        return self.put(
            a + b,
            (left, lambda pull: _fitted(pull, a.shape)),
            (right, lambda pull: _fitted(pull, b.shape)),
            units=np.fmin(smaller, 1.0) * ((a != 0.0) & (b != 0.0)),
        )

    def times(self, left: int, right: int) -> int:
        a, b = self.values[left], self.values[right]
        exact = (np.frexp(np.abs(a))[0] == 0.5) | (np.frexp(np.abs(b))[0] == 0.5)
        return self.put(
            a * b,
            (left, lambda pull: _fitted(pull * b, a.shape)),
            (right, lambda pull: _fitted(pull * a, b.shape)),
            units=np.where(exact, 0.0, 1.0),
        )

    def over(self, left: int, right: int) -> int:
        a, b = self.values[left], self.values[right]
        return self.put(
            a / b,
            (left, lambda pull: _fitted(pull / b, a.shape)),
            (right, lambda pull: _fitted(-pull * a / (b * b), b.shape)),
            units=1.0,
        )

    def exp(self, place: int) -> int:
        power = np.exp(self.values[place])
        return self.put(power, (place, lambda pull: pull * power), units=EXP_UNITS)

    def take(self, place: int, *index: Any) -> int:
        """Some entries, as they are."""
        value = self.values[place]

        def back(pull: Any) -> Any:
            whole = np.zeros_like(value)
            np.add.at(whole, index, pull)
            return whole

        return self.put(value[index], (place, back))

    def total(self, terms: list[int]) -> int:
        """A sum, from the first to the last."""
        result = terms[0]
        for term in terms[1:]:
            result = self.add(result, term)
        return result

    def product(self, place: int, matrix: Any) -> int:
        """x @ matrix, for weights of the format."""
        matrix = held(matrix, self.dtype)
        sizes = np.abs(matrix).max(axis=1, initial=0.0)
        rows = [row for row in np.argsort(-sizes, kind="stable") if sizes[row] > 0.0]
        if not rows:
            return self.constant(np.zeros((len(self.values[place]), matrix.shape[1])))
        columns = [self.take(place, slice(None), slice(int(row), int(row) + 1)) for row in rows]
        return self.total(
            [self.times(column, self.constant(matrix[row][None])) for row, column in zip(rows, columns, strict=True)]
        )


def _fitted(pull: Any, shape: tuple[int, ...]) -> Any:
    """The sum over what was broadcast."""
    while pull.ndim > len(shape):
        pull = pull.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and pull.shape[axis] > 1:
            pull = pull.sum(axis=axis, keepdims=True)
    return np.broadcast_to(pull, shape)


def worst_run(
    model: DenseTransformer, sequence: Any, dtype: str, causal: bool, token: int, output: int, up: bool
) -> Any:
    """All outputs (tokens, outputs) of one sequence (tokens, inputs), in an execution whose roundings push the output
    of a token up (or down) as far as they can, to first order."""
    with np.errstate(all="ignore"):
        first = Tape(dtype)
        place = run_on(first, model, sequence, causal)
        pull = np.zeros_like(first.values[place])
        pull[token, output] = 1.0 if up else -1.0
        again = Tape(dtype, signs=_signs(first, place, pull))
        return again.values[run_on(again, model, sequence, causal)]


def _signs(tape: Tape, place: int, pull: Any) -> dict[int, Any]:
    """For each step, which way to push each of its results."""
    pulls: dict[int, Any] = {place: pull}
    signs: dict[int, Any] = {}
    for step in range(len(tape.values) - 1, -1, -1):
        mine = pulls.pop(step, None)
        if mine is None:
            signs[step] = 0.0
            continue
        signs[step] = np.nan_to_num(np.sign(mine * tape.values[step])) * tape.free.get(step, 1.0)
        for operand, back in tape.backs[step]:
            more = back(mine)
            pulls[operand] = pulls[operand] + more if operand in pulls else more
    return signs


def run_on(tape: Tape, model: DenseTransformer, sequence: Any, causal: bool) -> int:
    """The textbook: embedding, layers of attention or neurons, read-out. Returns the place of the outputs."""
    sequence = np.asarray(sequence, dtype=np.float64)
    tokens, references = len(sequence), len(model.references)
    inputs = tape.hold(tape.put(sequence, units=1.0))
    data = _held_sum(tape, tape.linear(inputs, model.W_E), np.broadcast_to(model.b_E, (tokens, model.d_model)))
    data = _held_sum(tape, data, model.W_pos[:tokens])
    stream = tape.add(_below(tape, data, references), tape.constant(np.pad(model.references, ((0, tokens), (0, 0)))))
    places = np.arange(references + tokens)
    visible = places[None, :] <= places[:, None] if causal else np.ones((len(places), len(places)), dtype=bool)
    for layer in model.layers:
        if layer.neurons:
            stream = tape.add(stream, _neurons(tape, stream, layer))
            continue
        heads = zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True)
        added = [_head(tape, stream, visible, model.attention, *matrices) for matrices in heads]
        if tape.dtype in HALVES:
            added = [tape.hold(tape.total(added))]
        stream = tape.hold(tape.total([stream, *added]), tape.values[added[0]] != 0.0)
    out = tape.linear(tape.take(stream, slice(references, None)), model.W_U)
    return _held_sum(tape, out, model.b_U[None])


def _held_sum(tape: Tape, place: int, constants: Any) -> int:
    """Numbers that are held, and constants; zeros change nothing."""
    return tape.hold(tape.add(place, tape.constant(constants)), np.asarray(constants) != 0.0)


def _below(tape: Tape, data: int, rows: int) -> int:
    """The data tokens, below rows of zeros."""
    value = tape.values[data]
    return tape.put(np.pad(value, ((rows, 0), (0, 0))), (data, lambda pull: pull[rows:]))


def _neurons(tape: Tape, stream: int, layer: DenseLayer) -> int:
    """silu(X W_gate) (X W_up) W_down, silu(t) = t / (1 + e^-t)."""
    gate, up = tape.product(stream, layer.W_gate), tape.product(stream, layer.W_up)
    power = tape.exp(tape.put(-tape.values[gate], (gate, lambda pull: -pull)))
    silu = tape.over(gate, tape.add(power, tape.constant(np.ones_like(tape.values[power]))))
    return tape.product(tape.times(silu, up), layer.W_down)


def _head(tape: Tape, stream: int, visible: Any, kind: str, W_Q: Any, W_K: Any, W_V: Any, W_O: Any) -> int:
    # Under elu+1 a feature that nobody writes is phi(0) = 1, and counts.
    features = np.flatnonzero((W_Q.any(axis=0) & W_K.any(axis=0)) | (kind == "elu+1"))
    columns, tokens = np.flatnonzero(W_V.any(axis=0) & W_O.any(axis=1)), len(visible)
    query, key = tape.linear(stream, W_Q[:, features]), tape.linear(stream, W_K[:, features])
    if kind == "elu+1":
        query, key = _positive(tape, query), _positive(tape, key)
    if len(features):
        turned = tape.put(tape.values[key].T, (key, lambda pull: pull.T))
        parts = [
            tape.times(tape.take(query, slice(None), [f]), tape.take(turned, [f], slice(None)))
            for f in range(len(features))
        ]
        scores = tape.total(parts)
    else:
        scores = tape.constant(np.zeros((tokens, tokens)))
    weights, values = _weights(tape, scores, visible, kind), tape.linear(stream, W_V[:, columns])
    mixed = tape.total(
        [
            tape.times(tape.take(weights, slice(None), [other]), tape.take(values, [other], slice(None)))
            for other in range(tokens)
        ]
    )
    return tape.product(tape.hold(mixed), W_O[columns])


def _positive(tape: Tape, place: int) -> int:
    """phi of elu+1: e^x below zero, 1 + x above."""
    above = (tape.values[place] > 0.0).astype(np.float64)
    over, under = tape.constant(above), tape.constant(1.0 - above)
    return tape.add(
        tape.times(tape.add(place, tape.constant(np.ones_like(above))), over),
        tape.times(tape.exp(tape.times(place, under)), under),
    )


def _minus(tape: Tape, place: int) -> int:
    return tape.put(-tape.values[place], (place, lambda pull: -pull))


def _weights(tape: Tape, scores: int, visible: Any, kind: str) -> int:
    """Where each token looks, from its scores (heads/attentions.py)."""
    tokens, seen = len(visible), tape.constant(visible.astype(np.float64))
    ones = tape.constant(np.ones(visible.shape))

    def mass(place: int) -> int:
        return tape.total([tape.take(place, slice(None), [other]) for other in range(tokens)])

    if kind in ("linear", "relu", "sigmoid"):
        if kind == "sigmoid":
            scores = tape.over(ones, tape.add(ones, tape.exp(_minus(tape, scores))))
        kept = visible & ((tape.values[scores] > 0.0) | (kind != "relu"))
        return tape.times(scores, tape.constant(kept.astype(np.float64)))
    if kind == "elu+1":
        powers = tape.times(scores, seen)
        return tape.over(powers, mass(powers))
    top = np.argmax(np.where(visible, tape.values[scores], -np.inf), axis=1)
    highest = tape.take(scores, np.arange(tokens)[:, None], top[:, None])
    # What is hidden may score more than all that is seen: it becomes 0 before exp, and its power 0 after it.
    lower = tape.times(tape.add(scores, _minus(tape, highest)), seen)
    if kind == "softmax":
        powers = tape.times(tape.exp(lower), seen)
        return tape.over(powers, mass(powers))
    if kind == "hardmax":
        chosen = tape.constant((visible & (tape.values[lower] == 0.0)).astype(np.float64))
        return tape.over(chosen, mass(chosen))
    plain = np.where(visible, tape.values[lower], -np.inf)
    kept = visible & (shares_of("sparsemax", plain, visible) > 0.0)
    support, count = tape.constant(kept.astype(np.float64)), tape.constant(kept.sum(axis=1, keepdims=True))
    lost = tape.over(
        tape.add(mass(tape.times(lower, support)), _minus(tape, tape.constant(np.ones((tokens, 1))))), count
    )
    return tape.times(tape.add(lower, _minus(tape, lost)), support)


def plain_run(model: DenseTransformer, sequences: Any, dtype: str, causal: bool) -> Any:
    """The textbook in the format itself, for many sequences (count, tokens, inputs): (count, tokens, outputs)."""

    def own(values: Any) -> Any:
        return held(values, dtype)

    with np.errstate(all="ignore"):
        x = own(np.asarray(sequences))
        data = own(own(own(x @ own(model.W_E)) + own(model.b_E)) + own(model.W_pos[: x.shape[1]]))
        references = np.broadcast_to(own(model.references), (len(x), *model.references.shape))
        stream = np.concatenate([references, data], axis=1)
        places = np.arange(stream.shape[1])
        for layer in model.layers:
            update = np.zeros_like(stream)
            if layer.neurons:
                gates, ups = own(stream @ own(layer.W_gate)), own(stream @ own(layer.W_up))
                update += own(silu(gates) * ups) @ own(layer.W_down)
            for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
                visible = (places[None, :] <= places[:, None]) | (not causal)
                queries, keys = own(stream @ own(W_Q)), own(stream @ own(W_K))
                weights = weights_of(model.attention, queries, keys, visible)
                update += own(weights @ own(stream @ own(W_V))) @ own(W_O)
            stream = own(stream + own(update))
        return own(own(stream[:, len(model.references) :] @ own(model.W_U)) + own(model.b_U))
