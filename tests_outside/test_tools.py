"""Exported folders in the tools that they are for: Hugging Face transformers and TransformerLens.

These are large packages, so the tests have an environment of their own: `make outside`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.models.among_tokens import AMONG_TOKENS
from transformers import AutoModel

import headsmith as hs

over = hs.tokens


def network(dtype: str = "float64", tokens: int = 1) -> Any:
    random = np.random.default_rng(0)
    layers = [(random.normal(size=(b, a)), random.normal(size=b)) for a, b in ((3, 6), (6, 5), (5, 2))]
    return hs.compile(hs.Network(layers), (-1, 1), 1e-2, dtype=dtype, tokens=tokens)


def sequence(program: Callable[[Any], Any], **options: Any) -> Any:
    return hs.compile_sequence(program, tokens=5, domain=(-1, 1), error=1e-4, **options)


MODELS: dict[str, Callable[[], Any]] = {
    "product": lambda: hs.compile("x*y", (-1, 1), 1e-4),
    "table": lambda: hs.compile("exp(x), relu(x)", (-1, 1), 1e-3),
    "pieces": lambda: hs.compile("max(x, y, -x)", (-1, 1), 1e-4, recipe="maxout"),
    "network": network,
    "network, float32": lambda: network("float32"),
    "network of sequences": lambda: network(tokens=3),
    "mean": lambda: sequence(lambda x: x - over.mean(x)),
    "maximum so far": lambda: sequence(over.max, causal=True),
    "sort": lambda: sequence(over.sort),
    "attention": lambda: sequence(lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0])),
    "ridge": lambda: hs.in_context.ridge(0.5, 1, 2, 4, error=1e-3),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def inputs_of(model: Any) -> Any:
    """A few points, or sequences, inside the domain."""
    shape = (
        (3, model.box.size) if model.called()["takes"] != "sequences" else (3, model.transformer.tokens, model.box.size)
    )
    middle, half = (model.box.high + model.box.low) / 2, (model.box.high - model.box.low) / 2
    return middle + half * np.cos(np.arange(np.prod(shape))).reshape(shape)


def room(model: Any) -> float:
    return float(2.0 * model.certificate.parts["rounding"])


def test_hugging_face(model: Any, tmp_path: Path) -> None:
    """AutoModel loads the folder, bit for bit, in the model's dtype, and computes the same."""
    folder = model.export(tmp_path / "model", "huggingface")
    hs.verify(folder)
    loaded, x = AutoModel.from_pretrained(folder, trust_remote_code=True), inputs_of(model)
    for name, value in model.plain().tensors.items():
        assert loaded.state_dict()[f"transformer.{name}"].numpy().tobytes() == value.tobytes()
    with torch.no_grad():
        found = loaded(torch.tensor(x)).outputs.numpy()
    assert found.dtype == model(x).dtype
    assert np.abs(found - model(x)).max() <= room(model)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", AMONG_TOKENS)
def test_other_attentions_among_tokens(name: str, dtype: str, tmp_path: Path) -> None:
    """AutoModel runs the folder's own attention on 200 sequences, as numpy does; TransformerLens has softmax alone."""
    model = AMONG_TOKENS[name](dtype)
    folder = model.export(tmp_path / "model", "huggingface")
    assert hs.verify(folder).error <= model.certificate.error * (1 + 1e-9)
    x = np.random.default_rng(0).uniform(-1, 1, (200, model.lengths[-1], 1)).astype(dtype)
    with torch.no_grad():
        found = AutoModel.from_pretrained(folder, trust_remote_code=True)(torch.tensor(x)).outputs.numpy()
    assert found.dtype == np.dtype(dtype)
    assert np.abs(found.astype(float) - model(x)).max() <= room(model)
    with pytest.raises(hs.TargetError, match="softmax attention"):
        model.export(tmp_path / "lens", "transformerlens")


def test_transformer_lens(model: Any, tmp_path: Path) -> None:
    """A TransformerBridge runs with cache; every pattern is the model's own."""
    folder = model.export(tmp_path / "model", "transformerlens")
    hs.verify(folder)
    lens, x = module(folder / "headsmith_lens.py").load(folder), inputs_of(model)
    with torch.no_grad():
        found, cache = lens.run_with_cache(x)
        assert torch.equal(lens(x), found)
    assert np.abs(found.numpy() - model(x)).max() <= room(model)
    _, own = model.run(x[0], cache=True)
    names = [name for name in own if name.endswith(" / pattern")]
    for layer, heads in enumerate(model.bill.heads_per_layer):
        mine = [own[name] for name in names if name.startswith(f"layer {layer + 1} /")]
        assert len(mine) == heads
        for head, pattern in enumerate(mine):
            np.testing.assert_allclose(cache["pattern", layer][0, head].numpy(), pattern, atol=1e-6)


def test_a_head_is_silenced_in_transformer_lens(tmp_path: Path) -> None:
    """Hooks reach single heads: without one, the bridge computes what model.ablate computes."""
    model = network()
    lens = module(model.export(tmp_path / "model", "transformerlens") / "headsmith_lens.py").load(tmp_path / "model")

    def silence(z: Any, hook: Any) -> Any:
        z = z.clone()
        z.view(*z.shape[:2], -1, lens.bridge.cfg.d_head)[:, :, 1] = 0.0
        return z

    x = inputs_of(model)
    with torch.no_grad():
        found = lens.run_with_hooks(x, fwd_hooks=[("blocks.0.attn.hook_z", silence)]).numpy()
    assert np.abs(found - model.ablate("layer 1 / head 1")(x)).max() <= 1e-12
    assert np.abs(found - model(x)).max() > 1e-3


def module(path: Path) -> Any:
    """The code of a folder."""
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
