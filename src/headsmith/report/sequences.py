"""The falsifier of sequence programs: looks for the sequence on which a model is furthest from its target.

It tries every kind of sequence that a head might mind, at the shortest, the longest and random lengths:

    random tokens, corners      the box as a whole
    equal tokens, ties          maxima and sorts at their kinks
    nearly equal tokens         distances from 1e-12 to 1: somewhere among them a softmax errs most
    ascent                      from the worst sequences so far, random steps on some tokens that shrink when they fail

Its figure is an estimate from below. The worst sequences are always compared with the target in extended precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.certificate import Certificate
from headsmith.report.found import Found, fitting_dtype, over
from headsmith.sequence.compiled import CompiledSequence

CHAINS = 8
"""How many sequences climb side by side."""

LONG = 32
"""Sequences of so many tokens count as one run; longer ones as several, in proportion to their scores."""

Errors = Callable[[Array], Array]
"""|model - target| on sequences (count, m, features): (count, m, outputs)."""


@dataclass(frozen=True, eq=False)
class SequenceSpace:
    """The sequences of these lengths whose tokens lie between `low` and `high`: (features), or (m, features)."""

    low: Array
    high: Array
    lengths: tuple[int, ...]


def falsify_sequence(model: CompiledSequence, *, effort: int = 1000, seed: int = 0) -> Found:
    """Search for the worst sequence with about `effort` runs of the model."""
    space = SequenceSpace(model.box.low, model.box.high, model.lengths)
    fast = fitting_dtype(model.graph)
    return search(
        space,
        lambda sequences: errors_on(model, sequences, fast),
        lambda sequences: errors_on(model, sequences, np.longdouble),
        model.certificate,
        effort,
        seed,
    )


def errors_on(model: CompiledSequence, sequences: Array, dtype: Any = None) -> Array:
    """|model - target| on sequences (count, m, features): (count, m, outputs). Estimates."""
    dtype = dtype or fitting_dtype(model.graph)
    wanted = model.target(sequences, dtype)
    return np.asarray(np.abs(model(sequences).astype(dtype) - wanted), dtype=np.float64)


def search(
    space: SequenceSpace, errors: Errors, precise: Errors, certificate: Certificate, effort: int, seed: int
) -> Found:
    """The worst of about `effort` sequences by `errors`; what is reported is measured by `precise`."""
    random = np.random.default_rng(seed)
    lengths = sorted({space.lengths[0], space.lengths[-1], *random.choice(space.lengths, 3).tolist()})
    bounds, tried, worst = np.array(certificate.outputs), 0, None
    for length in lengths:
        share = max(effort // (2 * len(lengths) * (-(-length // LONG)) ** 2), CHAINS)
        best = suspect = np.empty((0, length, space.low.shape[-1]))
        scores = shares = np.empty(0)
        sequences = candidates(space, length, share, random)
        for step in range(1 + share // CHAINS):
            found = errors(sequences)
            tried += len(sequences)
            best, scores = _largest(best, scores, sequences, found.max(axis=(1, 2)), CHAINS)
            suspect, shares = _largest(suspect, shares, sequences, over(found, bounds).max(axis=(1, 2)), 1)
            sequences = _moved(space, best, step, random)
        measured = np.concatenate([best, suspect])
        worst = _worse(worst, measured, precise(measured), certificate)
    assert worst is not None
    return Found(worst.error, worst.input, worst.output, worst.tightness, worst.ratio, tried, worst.token)


def _largest(kept: Array, scores: Array, more: Array, their: Array, count: int) -> tuple[Array, Array]:
    """The `count` sequences with the largest scores, of those kept and some more."""
    every, all_scores = np.concatenate([kept, more]), np.concatenate([scores, their])
    order = np.argsort(-all_scores, kind="stable")[:count]
    return every[order], all_scores[order]


def candidates(space: SequenceSpace, length: int, count: int, random: np.random.Generator) -> Array:
    """Sequences (count, length, features) of every kind, inside the box."""
    low, high = space.low, space.high
    found = np.broadcast_to(low, (length, low.shape[-1])) + (high - low) * random.random((count, length, low.shape[-1]))
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


def _moved(space: SequenceSpace, best: Array, step: int, random: np.random.Generator) -> Array:
    """Random steps on some tokens of each."""
    width = (space.high - space.low) * 10.0 ** random.uniform(-9.0 * (step % 4) / 3.0, 0.0, (len(best), 1, 1))
    chosen = random.random(best.shape) < 1.0 / max(best.shape[1] ** 0.5, 1.0)
    moved = best + chosen * width * random.normal(size=best.shape)
    return np.asarray(np.clip(moved, space.low, space.high), dtype=np.float64)


def _worse(worst: Found | None, sequences: Array, errors: Array, certificate: Certificate) -> Found:
    """The worse of what was found before and the worst of these."""
    ratio = float(over(errors, np.array(certificate.outputs)).max())
    place = np.unravel_index(int(errors.argmax()), errors.shape)
    sequence, token, output = map(int, place)
    error = float(errors[place])
    if worst is not None and not error > worst.error:
        return Found(worst.error, worst.input, worst.output, worst.tightness, max(ratio, worst.ratio), 0, worst.token)
    tightness = float(over(np.array(error), np.array(certificate.error)))
    ratio = max(ratio, worst.ratio) if worst is not None else ratio
    return Found(error, sequences[sequence], output, tightness, ratio, 0, token)
