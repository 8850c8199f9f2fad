"""The falsifier of sampled callables: looks for the sequence on which some function that is as stated is furthest away.

A file holds no callable, and the certificate is about more than one: the model is within the error of every f with the
stated bound whose values at the knots are within `evaluation` of the stored answers. Of all these f

    lower(X) = max over knots k of  answer_k - evaluation - L |X - k|
    upper(X) = min over knots k of  answer_k + evaluation + L |X - k|

are the lowest and the highest, and they are such functions themselves (McShane's extensions). So the certificate says
that |model - lower| and |model - upper| are at most its error, everywhere: that is what is tried here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.report.found import Found
from headsmith.report.sequences import SequenceSpace, search
from headsmith.sequence.universal import Universal
from headsmith.sequence.universal_model import points_of

HELD = 4_000_000
"""How many distances are held at once."""

MOST = 200_000_000
"""How many distances a search may take: with many knots it tries fewer sequences."""


def falsify_sampled(model: Universal, *, effort: int = 1000, seed: int = 0) -> Found:
    """Search for the sequence where the model is furthest from a function that is as stated."""
    shape = (model.tokens, model.features)
    space = SequenceSpace(model.box.low.reshape(shape), model.box.high.reshape(shape), (model.tokens,))
    knots = points_of(model.axes.knots)
    affordable = max(16, min(effort, MOST // (len(knots) * model.box.size)))

    def errors(sequences: Array) -> Array:
        lower, upper = envelopes(model, sequences)
        found = model(sequences)
        return np.asarray(np.maximum(np.abs(found - lower), np.abs(found - upper)), dtype=np.float64)

    return search(space, errors, errors, model.certificate, affordable, seed)


def envelopes(model: Universal, sequences: Any) -> tuple[Any, Any]:
    """The lowest and the highest value at every token of sequences (count, tokens, features) of any function that is as
    stated, in extended precision."""
    knots = points_of(model.axes.knots)
    answers = model.answers.astype(np.longdouble)
    spare = np.longdouble(model.node.evaluation)
    flat = np.asarray(sequences, dtype=np.float64).reshape(len(sequences), -1)
    step = max(1, HELD // (len(knots) * max(answers.shape[1] * answers.shape[2], model.box.size)))
    lows, highs = [], []
    for start in range(0, len(flat), step):
        away = model.lipschitz.distance(flat[start : start + step, None] - knots)[..., None, None] + spare
        lows.append((answers - away).max(axis=1))
        highs.append((answers + away).min(axis=1))
    return np.concatenate(lows), np.concatenate(highs)
