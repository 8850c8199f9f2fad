"""Memory of a run is linear in the number of tokens: scores are held chunk by chunk, whatever kinds of heads there are.

n tokens have n x n scores a head. With a chunk of k scores no array is larger than k, or than n times a constant.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.run import numpy_runner

over = hs.tokens

PROGRAMS: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "table": (lambda x: hs.exp(x[:, 0]), {"table"}),
    "gate": (lambda x: hs.relu(x[:, 0] - 0.25), {"sink"}),
    "product": (lambda x: x[:, 0] * over.mean(x[:, 0]), {"mean", "gate"}),
    "mean": (lambda x: over.mean(x[:, 0]), {"mean"}),
    "maximum": (lambda x: over.max(x[:, 0]), {"boltzmann"}),
    "shift": (lambda x: over.shift(x[:, 0], 1), {"move"}),
}


def peak(model: hs.CompiledSequence, tokens: int) -> int:
    """The most bytes that a run on one sequence holds at once."""
    sequence = np.random.default_rng(0).uniform(-1, 1, (tokens, 1))
    model(sequence[:1])
    tracemalloc.start()
    try:
        model(sequence)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("causal", [False, True], ids=["all tokens", "causal"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_linear(name: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_runner, "CHUNK", 1 << 12)
    program, kinds = PROGRAMS[name]
    tokens = 1536
    model = hs.compile_sequence(program, tokens=tokens, domain=(-1, 1), error=1e-3, causal=causal)
    assert {bank.kind for layer in model.transformer.layers for bank in layer.banks} == kinds
    few, many = peak(model, tokens // 4), peak(model, tokens)
    assert many <= 4.5 * few
    # Far from the n x n doubles of one head's scores.
    assert many <= 8 * tokens * tokens / 6
