"""One head kind as a whole model: the examples in the docstrings run, sizes are what is said, long sequences fit."""

from __future__ import annotations

import doctest
import tracemalloc

import numpy as np
import pytest
from helpers.oracles.boltzmann import boltzmann_error

from headsmith.lab import heads as head_models
from headsmith.run import numpy_runner
from headsmith.run.numpy_runner import run
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.move import constant_address


def test_the_examples_run() -> None:
    found = doctest.testmod(head_models)
    assert found.attempted >= 12
    assert found.failed == 0


def test_what_they_cost() -> None:
    """(layers, heads, reference tokens)."""
    costs = {
        "mean": (head_models.mean(8, 3), (1, 1, 0)),
        "boltzmann": (head_models.boltzmann(8, 10.0, 3), (1, 3, 0)),
        "shift": (head_models.move(8, 1), (1, 1, 1)),
        "broadcast": (head_models.move(8, address=constant_address(8, 0)), (1, 1, 0)),
        "product": (head_models.gate_product(), (1, 1, 5)),
        "ramp": (head_models.ramp(0.0, 1.0, 9, 2, tokens=3), (1, 2, 9)),
        "ramp over data tokens": (head_models.ramp(0.0, 1.0, 9, 2), (1, 2, 0)),
    }
    for name, (model, wanted) in costs.items():
        cost = bill(model, 1.0)
        assert (cost.layers, cost.heads, cost.reference_tokens) == wanted, name


LONG = 2400


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kind", ["mean", "boltzmann", "move", "gate"])
def test_long_sequences_fit(kind, causal, rng) -> None:
    """Nobody holds all pairs of 2400 tokens at once (46 megabytes), and the numbers are right."""
    x = rng.uniform(-1, 1, (1, LONG, 2 if kind == "gate" else 1))
    model = {
        "mean": head_models.mean(LONG),
        "boltzmann": head_models.boltzmann(LONG, 1e4),
        "move": head_models.move(LONG, 1),
        "gate": head_models.gate_product(tokens=LONG),
    }[kind]
    tracemalloc.start()
    try:
        found = run(model, x, causal=causal)[0, :, 0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 8 * numpy_runner.CHUNK
    column = x[0, :, 0]
    match kind:
        case "mean":
            wanted, room = np.cumsum(column) / np.arange(1, LONG + 1) if causal else column.mean(), 1e-14
        case "boltzmann":
            wanted, room = np.maximum.accumulate(column) if causal else column.max(), float(boltzmann_error(1e4, LONG))
        case "move":
            wanted, room = np.concatenate([[0.0], column[:-1]]), 1e-15
        case _:
            wanted, room = column * x[0, :, 1], 1e-9
    assert np.abs(found - wanted).max() <= room


def test_sequences_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="a sequence of 4 tokens; the model takes at most 3"):
        run(head_models.mean(3), np.zeros((1, 4, 1)))
