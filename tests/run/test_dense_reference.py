"""The runner evaluates attention and nothing else: it equals a textbook transformer in plain loops, token by token,
up to rounding.

The textbook has every W_Q, W_K, W_V and W_O written out. Tokens in any number and order, full attention or a causal
mask: the difference never exceeds the rounding part of the certificate, which covers any order of summation.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.models.networks import random_network, shifted_network
from helpers.oracles.exact import extended
from helpers.oracles.textbook import Floating, Rounded, run_dense

import headsmith as hs
from headsmith.kernel.core.arithmetic import EXP_ULPS
from headsmith.run.numpy_runner import patterns
from headsmith.transformer.dense import dense


def compiled(tokens: int, dtype: str = "float64", error: float = 1e-2, kind: str = "plain") -> hs.Compiled:
    if kind == "mixed":
        network = shifted_network([3, 6, 6, 2], 5, -1.0, 1.0, ["active", "free", "dead", "free"])
    else:
        network = random_network([3, 5, 4, 2], tokens)
    return hs.compile(network, (-1, 1), error=error, tokens=tokens, dtype=dtype)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["plain", "mixed"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 16])
def test_runner_equals_textbook(tokens, causal, dtype, kind, rng) -> None:
    model = compiled(tokens, dtype, kind=kind)
    written = dense(model.transformer)
    # Twice the rounding part: each of the two may be off by that much.
    room = 2.0 * model.certificate.parts["rounding"]
    for length in {1, max(1, tokens // 2), tokens}:
        sequence = rng.uniform(-1, 1, (length, 3))
        wanted = run_dense(written, sequence, Floating(dtype), causal=causal)
        found = model(sequence, causal=causal)
        assert found.shape == (length, 2)
        assert np.abs(found - wanted).max() <= room


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_order_of_summation_does_not_matter(dtype, rng) -> None:
    model = compiled(4, dtype)
    written, sequence = dense(model.transformer), rng.uniform(-1, 1, (4, 3))
    for seed in range(5):
        shuffled = run_dense(written, sequence, Floating(dtype, np.random.default_rng(seed)))
        assert np.abs(shuffled - model(sequence)).max() <= 2.0 * model.certificate.parts["rounding"]


def test_tokens_may_change_places(rng) -> None:
    """Every token computes its own function: a permuted sequence gives permuted outputs, up to leak and rounding."""
    model = compiled(5)
    room = 2.0 * (model.certificate.parts["leak"] + model.certificate.parts["rounding"])
    for causal in (False, True):
        sequence = rng.uniform(-1, 1, (5, 3))
        straight = model(sequence, causal=causal)
        for _ in range(5):
            order = rng.permutation(5)
            assert np.abs(model(sequence[order], causal=causal) - straight[order]).max() <= room
        alone = np.concatenate([model(token[None], causal=causal) for token in sequence])
        assert np.abs(alone - straight).max() <= room


def test_attention_is_real(rng) -> None:
    """The weights of each query sum to one, under a causal mask the future has weight zero, and the data tokens do
    not see each other."""
    model = compiled(4)
    sequence = rng.uniform(-1, 1, (4, 3))
    for causal in (False, True):
        for pattern in patterns(model.transformer, sequence, causal=causal):
            weights = pattern.weights
            assert weights.shape[1:] == (5, 5)
            assert np.allclose(weights.sum(axis=2), 1.0)
            assert np.all(weights >= 0.0)
            others = weights[:, 1:, 1:] * (1 - np.eye(4))
            assert others.max() < 1e-6
            if causal:
                assert np.triu(weights, 1).max() == 0.0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("push", ["up", "down", "in", "out", "random"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_the_certificate_holds_for_the_worst_rounding_that_the_model_allows(tokens, push, rng) -> None:
    """Every operation pushed by a whole unit roundoff of float32, exp by its full allowance: what section 5 of the
    design promises.

    The model asks for (almost) the smallest error that float32 can meet, so that rounding is most of the bound.
    """
    network = random_network([3, 5, 4, 2], 7)
    with pytest.raises(hs.UnreachableError) as refusal:
        hs.compile(network, (-1, 1), error=1e-7, dtype="float32", tokens=tokens)
    model = hs.compile(network, (-1, 1), error=2.0 * refusal.value.smallest, dtype="float32", tokens=tokens)
    written = dense(model.transformer)
    arithmetic = Rounded(2.0**-24, 2 * EXP_ULPS, push, rng)
    for _ in range(6):
        sequence = rng.uniform(-1, 1, (tokens, 3))
        wanted = extended(network.graph, sequence)
        found = run_dense(written, sequence, arithmetic, causal=bool(rng.integers(2)))
        assert np.abs(found - wanted).max() <= model.certificate.error
