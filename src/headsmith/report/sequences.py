"""The falsifier of sequence programs: looks for the sequence on which a model is furthest from its target.

It tries every kind of sequence that a head might mind, at the shortest, the longest and random lengths:

    random tokens, corners      the box as a whole
    equal tokens, ties          maxima and sorts at their kinks
    nearly equal tokens         distances from 1e-12 to 1: somewhere among them a softmax errs most
    ascent                      from the worst sequences so far, random steps on some tokens that shrink when they fail

Its figure is an estimate from below.
"""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import Array
from headsmith.report.falsify import Found, fitting_dtype
from headsmith.sequence.compiled import CompiledSequence

CHAINS = 8
"""How many sequences climb side by side."""


def falsify_sequence(model: CompiledSequence, *, effort: int = 1000, seed: int = 0) -> Found:
    """Search for the worst sequence with about `effort` runs of the model."""
    random = np.random.default_rng(seed)
    lengths = sorted({model.lengths[0], model.lengths[-1], *random.choice(model.lengths, 3).tolist()})
    share = max(effort // (2 * len(lengths)), 8)
    best: dict[int, Array] = {}
    worst = Found(-1.0, np.zeros((1, model.box.size)), 0, 0.0, 0.0, 0)
    tried = 0
    for length in lengths:
        sequences = candidates(model, length, share, random)
        for step in range(1 + share // CHAINS):
            errors = errors_on(model, sequences)
            tried += len(sequences)
            worst = _worse(model, worst, sequences, errors)
            kept = best.get(length)
            pool = sequences if kept is None else np.concatenate([kept, sequences])
            scores = errors.max(axis=(1, 2)) if kept is None else errors_on(model, pool).max(axis=(1, 2))
            best[length] = pool[np.argsort(scores)[-CHAINS:]]
            sequences = _moved(model, best[length], step, random)
    return Found(worst.error, worst.input, worst.output, worst.tightness, worst.ratio, tried)


def errors_on(model: CompiledSequence, sequences: Array) -> Array:
    """|model - target| on sequences (count, m, features): (count, m, outputs). Estimates."""
    dtype = fitting_dtype(model.graph)
    wanted = model.target(sequences, dtype)
    return np.asarray(np.abs(model(sequences).astype(dtype) - wanted), dtype=np.float64)


def candidates(model: CompiledSequence, length: int, count: int, random: np.random.Generator) -> Array:
    """Sequences (count, length, features) of every kind, inside the box."""
    low, high = model.box.low, model.box.high
    found = random.uniform(low, high, (count, length, model.box.size))
    kinds = np.arange(count) % 5
    ends = np.where(random.random(found.shape) < 0.5, low, high)
    found[kinds == 1] = ends[kinds == 1]
    found[kinds == 2] = found[kinds == 2][:, :1]
    distance = (high - low) * 10.0 ** random.uniform(-12.0, 0.0, (count, 1, 1))
    near = found[:, :1] - distance * (random.random(found.shape) < 0.8)
    found[kinds == 3] = near[kinds == 3]
    tied = np.where(random.random(found.shape) < 0.5, found[:, :1], found)
    found[kinds == 4] = tied[kinds == 4]
    return np.asarray(np.clip(found, low, high))


def _moved(model: CompiledSequence, best: Array, step: int, random: np.random.Generator) -> Array:
    """Random steps on some tokens of each."""
    width = (model.box.high - model.box.low) * 10.0 ** random.uniform(-9.0 * (step % 4) / 3.0, 0.0, (len(best), 1, 1))
    chosen = random.random(best.shape) < 1.0 / max(best.shape[1] ** 0.5, 1.0)
    return np.asarray(
        np.clip(best + chosen * width * random.normal(size=best.shape), model.box.low, model.box.high), dtype=np.float64
    )


def _worse(model: CompiledSequence, worst: Found, sequences: Array, errors: Array) -> Found:
    bounds = np.array(model.certificate.outputs)
    ratio = max(worst.ratio, float((errors / bounds).max()))
    place = np.unravel_index(int(errors.argmax()), errors.shape)
    if not errors[place] > worst.error:
        return Found(worst.error, worst.input, worst.output, worst.tightness, ratio, worst.evaluations)
    error = float(errors[place])
    return Found(error, sequences[place[0]], int(place[2]), error / model.certificate.error, ratio, 0)
