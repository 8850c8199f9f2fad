"""The causal model of a compiled one: its variables can be set, and a model that is written to follows it."""

from __future__ import annotations

import numpy as np
import pytest

import headsmith as hs
from headsmith.inside.ablation import Machine

over = hs.tokens


def test_variables_are_set_by_name(rng: np.random.Generator) -> None:
    model = hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3)
    causal, points = model.causal(), rng.uniform(-1, 1, (50, 3))
    x, y, z = points.T
    assert np.allclose(causal.run(points)[:, 0], np.maximum(x - y, 0) + x * y * z, atol=1e-12)
    assert np.allclose(causal.values(points)["v1"], x * y)
    assert np.allclose(causal.run(points, set={"x*y": 0.25})[:, 0], np.maximum(x - y, 0) + 0.25 * z)
    assert np.array_equal(causal.run(points, set={"v1": x})[:, 0], causal.run(points, set={"x*y": x})[:, 0])
    assert "v1 = x*y" in repr(causal)
    with pytest.raises(hs.TargetError, match="there is no variable"):
        causal.run(points, set={"q": 1.0})


def test_a_model_follows_its_causal_model(rng: np.random.Generator) -> None:
    """Writing another value of x*y does to the model what it does to the causal one, in every disguise."""
    model = hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3)
    causal, points, value = model.causal(), rng.uniform(-1, 1, (400, 3)), rng.uniform(-1, 1, 400)
    wanted = causal.run(points, set={"v1": value})[:, 0]
    plain = model.plain()
    found = causal.interchanged(Machine(plain.config, plain.tensors), points, "v1", value)[:, 0, 0]
    assert np.abs(found - wanted).max() <= model.certificate.error
    hidden = model.disguise(1, seed=2)
    told = next(each for each in hidden.circuit(damages=False)["variables"] if each["id"] == "v1")
    vector = np.array(told["write"][0]["vector"])
    found = causal.interchanged(hidden.machine, points, "v1", value, vector)[:, 0, 0]
    assert np.abs(found - wanted).max() <= hidden.certificate.error


def test_sequences(rng: np.random.Generator) -> None:
    model = hs.compile_sequence(lambda x: over.sort(x), tokens=4, domain=(-1, 1), error=1e-3)
    causal, table = model.causal(), rng.uniform(-1, 1, (20, 4, 1))
    assert np.allclose(causal.run(table)[..., 0], np.sort(table[..., 0]), atol=1e-12)
    assert causal.values(table)["v3"].shape == (20, 4)
