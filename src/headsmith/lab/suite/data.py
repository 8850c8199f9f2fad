"""Inputs and interchange pairs of a model of the suite, from a seed.

inputs.safetensors    train, validation, test: inputs as the model takes them; and what the target is there
pairs.safetensors     base and source, the number of a variable, its value at both, and what the target would be at the
                      base if the variable had the value that it has at the source: the expected output of the
                      interchange

A variable whose interchange moves the target by less than ten certificates in half of its pairs is left out: it is
weak. Pairs that differ in one variable alone do not exist in general: x*y cannot change while x and y stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.inside.causal import Causal

SPLITS = {"train": 1024, "validation": 256, "test": 256}
PAIRS = 128
"""How many pairs there are of each variable."""

WORDS = 64
"""How many words there are, each with a number of the interval [-1, 1]."""

MOST_VARIABLES = 24
"""Of so many variables pairs are drawn."""

CLEAR = 10.0


@dataclass(frozen=True, eq=False)
class Data:
    """The arrays of both files, and the variables that pairs are about."""

    inputs: dict[str, Array]
    pairs: dict[str, Array]
    variables: tuple[str, ...]


def points(model: Any, rng: np.random.Generator, count: int, words: bool = False) -> Array:
    """Inputs of the domain, as the model takes them."""
    box, transformer = model.box, model.transformer
    sequences = transformer.tokens > 1 and not model.blocks
    shape = (count, transformer.tokens, box.size) if sequences else (count, box.size)
    found = rng.uniform(box.low, box.high, shape)
    if words:
        found = box.low + np.round((found - box.low) / (box.high - box.low) * (WORDS - 1)) / (WORDS - 1) * (
            box.high - box.low
        )
    return np.asarray(found)


def data_of(model: Any, error: float, seed: int, words: bool = False) -> Data:
    """Everything that is drawn of a plain model; `error` is the certificate of what it is scored as."""
    rng, causal, inputs = np.random.default_rng([seed, 7]), model.causal(), dict[str, Array]()
    for name, count in SPLITS.items():
        inputs[name] = points(model, rng, count, words)
        inputs[f"{name}.target"] = causal.run(inputs[name])
    chosen, parts = list[str](), list[dict[str, Array]]()
    for number, variable in enumerate(causal.variables[:MOST_VARIABLES]):
        part = _pairs(model, causal, variable.id, error, np.random.default_rng([seed, 8, number]), words)
        if part is not None:
            part["variable"] = np.full(PAIRS, float(len(chosen)))
            parts.append(part)
            chosen.append(variable.id)
    names = parts[0].keys() if parts else ()
    return Data(inputs, {name: np.concatenate([part[name] for part in parts]) for name in names}, tuple(chosen))


def _pairs(
    model: Any, causal: Causal, name: str, error: float, rng: np.random.Generator, words: bool
) -> dict[str, Array] | None:
    """Pairs of one variable; None where it is weak, or nobody writes it."""
    if not causal.labels.write(causal.variable(name))[1]:
        return None
    base, source = points(model, rng, PAIRS, words), points(model, rng, PAIRS, words)
    try:
        before, after = causal.values(base)[name], causal.values(source)[name]
        expected = causal.run(base, set={name: after})
        moved = np.abs(expected - causal.run(base)).reshape(PAIRS, -1).max(axis=1)
    except HeadsmithError:
        return None
    if np.count_nonzero(moved > CLEAR * error) < PAIRS / 2:
        return None
    return {"base": base, "source": source, "before": before, "after": after, "expected": expected}
