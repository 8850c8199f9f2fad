"""A ReLU network of a whole sequence: one hidden layer takes two layers of attention, whatever each token returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headsmith as hs


def network(tokens: int, features: int, hidden: list[int], outputs: int, seed: int = 0) -> hs.Network:
    rng = np.random.default_rng(seed)
    sizes = [tokens * features, *hidden, tokens * outputs]
    pairs = zip(sizes[1:], sizes[:-1], strict=True)
    return hs.Network([(rng.normal(size=pair) / np.sqrt(pair[1]), rng.normal(size=pair[0]) / 4) for pair in pairs])


def textbook(model: Any, X: Any) -> Any:
    """Attention from the matrices that are written out, and nothing else."""
    written = model.dense()
    stream = np.concatenate([written.references, X @ written.W_E + written.b_E + written.W_pos])
    for layer in written.layers:
        more = np.zeros_like(stream)
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            scores = stream @ W_Q @ (stream @ W_K).T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            more += weights / weights.sum(axis=1, keepdims=True) @ (stream @ W_V @ W_O)
        stream = stream + more
    return stream[len(written.references) :] @ written.W_U + written.b_U


@pytest.mark.parametrize(("tokens", "features", "hidden", "outputs"), [(8, 3, [6], 3), (4, 2, [3], 1), (3, 1, [4], 2)])
def test_two_layers(tokens: int, features: int, hidden: list[int], outputs: int) -> None:
    target = network(tokens, features, hidden, outputs)
    model = hs.compile_sequence(target, tokens=tokens, features=features, domain=(-1, 1), error=1e-3)
    assert model.bill.layers == 2
    assert model.bill.heads <= tokens + tokens * hidden[0]  # fewer where a gate does not cross zero
    X = np.random.default_rng(1).uniform(-1, 1, (50, tokens, features))
    X[:9] = np.sign(X[:9])
    wanted = target(X.reshape(len(X), -1)).reshape(len(X), tokens, outputs)
    assert np.abs(model(X) - wanted).max() <= model.certificate.error <= 1e-3
    assert np.abs(textbook(model, X[0]) - wanted[0]).max() <= model.certificate.error
    assert model.verify().error == pytest.approx(model.certificate.error)


def test_near_a_kink_the_model_is_worst_and_within_its_bound() -> None:
    target = network(4, 2, [3], 2)
    model = hs.compile_sequence(target, tokens=4, features=2, domain=(-1, 1), error=1e-2)
    weights, bias = target.layers[0]
    rng = np.random.default_rng(2)
    worst = 0.0
    for row, constant in zip(weights, bias, strict=True):
        X = rng.uniform(-0.9, 0.9, (400, 8))
        away = np.geomspace(1e-5, 0.3, 400)
        X = (X - np.outer((X @ row + constant - away) / (row @ row), row)).clip(-1, 1)
        wanted = target(X).reshape(-1, 4, 2)
        worst = max(worst, float(np.abs(model(X.reshape(-1, 4, 2)) - wanted).max()))
    assert 1e-4 <= worst <= model.certificate.error


def test_tokens_that_return_the_same_share_their_gates() -> None:
    """One gate for each group of equal coefficients; none for coefficients that are zero."""
    (first, bias), _ = network(6, 2, [4], 1).layers
    same = np.tile(np.array([[1.0, -1.0, 0.5, 2.0]]), (6, 1))
    halves = same * np.array([[1.0], [1.0], [1.0], [0.0], [0.0], [0.0]])
    only = np.zeros((6, 4))
    only[2, 1] = 3.0
    # A gate that nobody reads needs no head.
    for last, gates in ((same, 4), (halves, 4), (only, 1)):
        target = hs.Network([(first, bias), (last, np.zeros(6))])
        model = hs.compile_sequence(target, tokens=6, features=2, domain=(-1, 1), error=1e-3)
        assert model.bill.heads == 6 + gates
        X = np.random.default_rng(0).uniform(-1, 1, (40, 6, 2))
        wanted = target(X.reshape(40, -1)).reshape(40, 6, 1)
        assert np.abs(model(X) - wanted).max() <= model.certificate.error


def test_deeper_networks_take_a_layer_for_each_of_theirs(tmp_path: Any) -> None:
    target = network(3, 2, [4, 3], 1)
    model = hs.compile_sequence(target, tokens=3, features=2, domain=(-1, 1), error=1e-3)
    assert model.bill.layers == 3
    X = np.random.default_rng(0).uniform(-1, 1, (200, 3, 2))
    assert np.abs(model(X) - target(X.reshape(200, -1)).reshape(200, 3, 1)).max() <= model.certificate.error
    model.save(tmp_path / "model.safetensors")
    assert hs.verify(tmp_path / "model.safetensors").error == pytest.approx(model.certificate.error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 4, "features": 3}, "8 numbers"),
        ({"tokens": 8, "features": 1}, "equally many outputs"),
        ({"tokens": 4, "features": 2, "causal": True}, "cannot be causal"),
    ],
)
def test_other_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hs.TargetError, match=message):
        hs.compile_sequence(network(4, 2, [3], 1), domain=(-1, 1), error=1e-2, **options)
