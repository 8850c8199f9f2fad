"""Certified models as stock GPT-2s: their norms cost rounding, which the certificate counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks.forged import Forged
from helpers.models.stock import GPT2, MODELS, points, sequence
from safetensors.numpy import load_file, save_file

import headsmith as hs
from headsmith.core.figures import bound
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.kernel.rules import gpt2 as kernel
from headsmith.kernel.rules.stock import refuse_others, stock
from headsmith.run import gpt2

T = hs.tokens


@pytest.fixture(scope="module", params=GPT2)
def other(request: pytest.FixtureRequest) -> Any:
    return GPT2[request.param]()


def test_a_gpt2_stays_within_its_certificate(other: Any, rng: np.random.Generator) -> None:
    found, x = other.to_stock("gpt2"), points(other, rng)
    assert np.abs(found(x) - other(x.astype(np.float64))).max() <= found.certificate.parts["rounding"]
    assert other.certificate.error < found.certificate.error
    assert any("LayerNorm computes the mean" in each for each in found.certificate.assumes)
    for name in ("c_attn", "c_proj"):
        assert np.abs(found.tensors[f"transformer.h.0.attn.{name}.weight"]).max() < 1e4


def test_the_worst_norms_stay_within_the_certificate(
    other: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means and inverse roots are as wrong as the certificate assumes at most, and every rounding is the largest one,
    with signs at random for each token, the same for all, or those of something that tokens hold."""
    found, u = other.to_stock("gpt2"), 2.0**-24

    def worst(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
        x = x.astype(np.float64)

        def signs(*shape: int) -> Any:
            if rng.integers(3) == 0:
                column = int(rng.integers(x.shape[-1]))
                return np.broadcast_to(np.where(x[..., column : column + 1] > 0.0, 1.0, -1.0), shape)
            return rng.choice([-1.0, 1.0], shape if rng.integers(2) else [1] * len(shape))

        mean = x.mean(axis=-1, keepdims=True) + signs(*x.shape[:-1], 1) * 5 * u * np.abs(x).sum(-1, keepdims=True)
        inverse = (1.0 + signs(*x.shape[:-1], 1) * 8 * u) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
        return ((x - mean) * inverse * weight * (1.0 + 4 * u * signs(*x.shape))).astype(np.float32)

    monkeypatch.setattr(gpt2, "norm", worst)
    x = points(other, rng)
    exact = other(x.astype(np.float64))
    worst_error = max(float(np.abs(found(x) - exact).max()) for _ in range(20))
    assert 1e-7 < worst_error <= found.certificate.parts["rounding"]


def test_sums_on_the_way_hold_a_part_of_the_mean(rng: np.random.Generator) -> None:
    """A form of n registers that are zero, and of the probe, adds up n products with the mean before they cancel. One
    after the other they leave n/4 roundings of it: more than what products and weights alone would explain."""
    count, unit = 1000, 2.0**-24
    means = rng.uniform(1.0, 2.0, 200).astype(np.float32)
    terms = np.column_stack([np.repeat(-means[:, None], count, axis=1), np.float32(count) * means])
    left = np.abs(np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1].astype(np.float64))
    weights = np.ones((1, count, 1))
    bounds = np.array([float(kernel._noise(weights, float(mean)).value[0, 0]) for mean in means])
    assert np.all(left <= bounds)
    assert np.max(left / (unit * means * count)) > 200.0


def test_every_part_of_a_gpt2_is_compared(tmp_path: Path, rng: np.random.Generator) -> None:
    folder = GPT2["table"]().export(tmp_path / "exp", "gpt2")
    certificate, path = hs.verify(folder), folder / "model.safetensors"
    assert f"<= {bound(certificate.error)}" in (folder / "README.md").read_text()
    header, tensors = read(folder / "proof.safetensors")
    proven, held = stock(header, tensors, "gpt2"), load_file(path)
    config = json.loads((folder / "config.json").read_text())
    refuse_others(proven, config, held)
    for name, values in held.items():
        for _ in range(20):
            changed, place = values.copy(), tuple(int(rng.integers(size)) for size in values.shape)
            changed[place] = np.nextafter(changed[place], np.float32(np.inf))
            with pytest.raises(Refused, match=r"model.safetensors: .* is .*, and .* in the proven model"):
                refuse_others(proven, config, held | {name: changed})
    for name in config:
        with pytest.raises(Refused, match=r"config.json"):
            refuse_others(proven, config | {name: "other"}, held)
    norms = {name: value * np.float32(0.25) for name, value in held.items() if "ln_" in name}
    save_file({**held, **norms}, path, metadata={"format": "pt"})
    with pytest.raises(hs.CertificateError, match="normed away"):
        hs.verify(folder)


def test_what_a_gpt2_cannot_hold() -> None:
    with pytest.raises(hs.TargetError, match="a GPT-2 has no SwiGLU blocks"):
        MODELS["neurons"]().to_stock("gpt2")
    with pytest.raises(hs.TargetError, match="causal mask, and the model looks at later tokens"):
        sequence(T.mean, causal=False).to_stock("gpt2")


def test_a_gpt2_is_asked_in_words(rng: np.random.Generator) -> None:
    found = hs.compile("x*y", (-1, 1), 2e-2, dtype="float32").to_stock("gpt2", vocabulary=16)
    assert found.config["architectures"] == ["GPT2ForSequenceClassification"]
    for x, y in rng.choice(np.arange(-8, 9) / 8, (50, 2)):
        answer = found(f"x={x:g} y={y:g}".replace("=-0 ", "=0 "))
        assert abs(float(answer[0]) - x * y) <= found.certificate.error
        assert np.array_equal(answer, found([x, y]))
    words = found.tensors["transformer.wte.weight"][list(found.words.values())]
    assert np.abs(words[:, :-4].sum(axis=1)).max() <= 1e-6  # registers and balance; what is left is probe, c and -c


def test_products_of_small_weights_underflow_in_a_gpt2_too() -> None:
    """2^-126 x, and a head that returns nothing of that size. A product that underflows may be lost; the noise of the
    norms, which such small weights multiply, is far less."""
    file, small = Forged(1, 0.0, 1.0, dtype="float32"), 2.0**-120
    gate = file.relu(file.circuit, file.scaled(file.circuit, (0, small)))
    file.outputs(*(file.scaled(graph, (0, 2.0**-126)) for graph in (file.source, file.circuit)))
    file.embed()
    file.register("y")
    file.gates([file.link("x", [[small]])], [file.link("y", [[1.0]])], [gate], [0], scale=1.0 / small)
    file.model["layers"][0][0]["reference_gain"] = 40.0
    file.model["readout"] = [file.link("x", [[2.0**-126]])]
    assert stock(*file.contents(), "gpt2").certificate.error >= 2.0**-126
