"""Stock language models in TransformerLens: a TransformerBridge boots from the folder, the first logits are the
outputs, the patterns are those of the model's heads, and hooks reach them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

import headsmith as hs


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def booted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model, its folder, the bridge, points and the stream that enters it."""
    model = hs.compile("x*y*z", (-1, 1), 1e-2, dtype="float32")
    folder = model.export(tmp_path_factory.mktemp("lens") / "model", request.param, language_model=True)
    x = np.random.default_rng(0).uniform(-1, 1, (500, 3)).astype(np.float32)
    embeds = torch.tensor(model.to_stock(request.param).embed(x))
    return model, folder, TransformerBridge.boot_transformers(str(folder)), x, embeds


def error(found: Any, x: Any) -> float:
    return float(np.abs(found.numpy() - x.astype(np.float64).prod(axis=-1)).max())


def test_within_the_certificate(booted: Any) -> None:
    _, folder, bridge, x, embeds = booted
    certificate = hs.verify(folder)
    with torch.no_grad():
        logits = bridge(embeds, start_at_layer=0)
    assert error(logits[:, -1, 0], x) <= certificate.error
    assert not logits[:, :, 1:].any()  # all rows of the head but the first are zero
    ids = torch.arange(embeds.shape[1]).repeat(len(x), 1)
    with torch.no_grad():  # numbers may also enter by a hook at the embedding
        entered = bridge.run_with_hooks(ids, fwd_hooks=[("hook_embed", lambda value, hook: embeds)])
    assert torch.equal(entered, logits)


def test_patterns_show_the_gates(booted: Any) -> None:
    """The data token divides its attention between itself and the grid: the weight on itself is the gate."""
    model, _, bridge, x, embeds = booted
    with torch.no_grad():
        _, cache = bridge.run_with_cache(embeds, start_at_layer=0)
    for layer in range(model.bill.layers):
        for place in range(5):
            _, own = model.run(x[place].astype(np.float64), cache=True)
            mine = [value for name, value in own.items() if re.fullmatch(rf"layer {layer + 1} / .* / pattern", name)]
            for head, pattern in enumerate(mine):
                np.testing.assert_allclose(cache["pattern", layer][place, head, -1], pattern[-1], atol=1e-4)
    gate = cache["pattern", 0][:, 0, -1, -1].numpy()
    assert gate.max() - gate.min() > 0.01
    assert np.allclose(cache["pattern", 0].sum(dim=-1), 1.0)


def test_a_silenced_head_says_nothing(booted: Any) -> None:
    model, _, bridge, x, embeds = booted

    def silence(z: Any, hook: Any) -> Any:
        return torch.zeros_like(z)

    with torch.no_grad():
        found = bridge.run_with_hooks(embeds, start_at_layer=0, fwd_hooks=[("blocks.1.attn.hook_z", silence)])
    without = model.ablate("layer 2 / head 0")(x.astype(np.float64))[:, 0]
    assert np.abs(found[:, -1, 0].numpy() - without).max() <= 1e-3
    assert error(found[:, -1, 0], x) > 0.1


def test_compatibility_mode_centres_the_head(booted: Any) -> None:
    """It subtracts the mean of all logits: a difference with a row of zeros is what the model computes."""
    _, folder, _, x, embeds = booted
    bridge = TransformerBridge.boot_transformers(str(folder))
    bridge.enable_compatibility_mode()
    with torch.no_grad():
        logits = bridge(embeds, start_at_layer=0)[:, -1]
    assert error(logits[:, 0], x) > 0.05
    assert error(logits[:, 0] - logits[:, 1], x) <= hs.verify(folder).error


def test_prompts_and_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text goes in; and the lines of the card run as they stand."""
    model = hs.compile("x*y", (-1, 1), 1e-3, dtype="float32")
    folder = model.export(tmp_path / "model", "llama", vocabulary=16, language_model=True)
    bridge = TransformerBridge.boot_transformers(str(folder))
    with torch.no_grad():
        logits = bridge("x=0.25 y=-0.5")
    assert abs(float(logits[0, -1, 0]) + 0.125) <= hs.verify(folder).error
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["y"].shape == (1, 1)
    assert names["cache"]["pattern", 0].shape[0] == 1
