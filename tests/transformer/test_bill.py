"""The bill is what counting the written-out matrices gives, and its largest score is a bound of every score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers.models.networks import random_network, shifted_network

import headsmith as hs
from headsmith.transformer.dense import DenseTransformer, dense

MIXED = shifted_network([4, 9, 9, 2], 3, -1.0, 1.0, ["active", "free", "dead"])
MODELS: dict[str, Callable[[], hs.Compiled]] = {
    "plain": lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-3),
    "tokens": lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-3, tokens=5),
    "float32": lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), error=1e-1, tokens=2, dtype="float32"),
    "stable gates": lambda: hs.compile(MIXED, (-1, 1), error=1e-3),
    "no gates": lambda: hs.compile(random_network([3, 2]), (-1, 1), error=1e-3),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> hs.Compiled:
    return MODELS[request.param]()


def matrices(written: DenseTransformer) -> list:
    found = [written.W_E, written.b_E, written.W_U, written.b_U]
    for layer in written.layers:
        found += [layer.W_Q, layer.W_K, layer.W_V, layer.W_O]
    return found


def test_counts(model) -> None:
    written, bill = dense(model.transformer), model.bill
    assert bill.layers == len(written.layers)
    assert bill.heads == sum(len(layer.W_Q) for layer in written.layers) == sum(bill.heads_per_layer)
    assert bill.d_model == written.W_E.shape[1]
    assert bill.reference_tokens == (1 if written.layers else 0)
    if written.layers:
        assert bill.d_head == written.layers[0].W_Q.shape[2]


def test_nonzeros_and_parameters(model) -> None:
    written, bill = dense(model.transformer), model.bill
    flags = np.count_nonzero(written.references) + np.count_nonzero(written.W_pos)
    assert bill.nonzeros == sum(np.count_nonzero(matrix) for matrix in matrices(written)) + flags
    assert bill.parameters == sum(matrix.size for matrix in matrices(written)) + flags


def test_largest_weight(model) -> None:
    written, bill = dense(model.transformer), model.bill
    largest = max(np.abs(matrix).max() for matrix in matrices(written))
    assert largest <= bill.max_weight * (1 + 1e-12)
    assert bill.max_weight <= largest * (1 + 1e-12) or not written.layers


def test_largest_score_is_a_bound(model, rng) -> None:
    """Scores of every query and key over the streams of random and extreme inputs."""
    written = dense(model.transformer)
    tokens = model.transformer.tokens
    for _ in range(20):
        x = np.where(rng.random((tokens, model.box.size)) < 0.5, rng.choice([-1.0, 1.0]), 1 - 2 * rng.random())
        stream = np.concatenate([written.references, x @ written.W_E + written.b_E + written.W_pos[:tokens]])
        for layer in written.layers:
            scores = np.einsum("td,hdf,hef,se->hts", stream, layer.W_Q, layer.W_K, stream)
            assert np.abs(scores).max() <= model.bill.max_score
            weights = np.exp(scores - scores.max(axis=2, keepdims=True))
            weights /= weights.sum(axis=2, keepdims=True)
            stream = stream + np.einsum("hts,sd,hdv,hve->te", weights, stream, layer.W_V, layer.W_O)
