"""Stock models in transformers: loaded from the folder without code of ours, run as the README says, they never leave
their certificate, whatever attention implementation runs them; norms and rotations change no bit of a number above
2^-100."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
from transformers.models.llama import modeling_llama

import headsmith as hs

over = hs.tokens


def single(formula: Any, error: float, recipe: str = "auto") -> Callable[[], Any]:
    return lambda: hs.compile(formula, (-1, 1), error, dtype="float32", recipe=recipe)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "product": (single("x*y", 2e-4), lambda x: x[..., :1] * x[..., 1:]),
    "gpt2: product": (single("x*y", 2e-4), lambda x: x[..., :1] * x[..., 1:]),
    "gpt2: three factors": (single("x*y*z", 1e-2), lambda x: x.prod(axis=-1, keepdims=True)),
    "gpt2: two outputs": (
        single("exp(x), relu(x)", 1e-2),
        lambda x: np.concatenate([np.exp(x), np.maximum(x, 0)], axis=-1),
    ),
    "three factors": (single("x*y*z", 1e-2), lambda x: x.prod(axis=-1, keepdims=True)),
    "maximum": (single("max(x, y)*z", 1e-2), lambda x: x[..., :2].max(axis=-1, keepdims=True) * x[..., 2:]),
    "two outputs": (
        single("exp(x), relu(x)", 1e-3),
        lambda x: np.concatenate([np.exp(x), np.maximum(x, 0)], axis=-1),
    ),
    "gpt2: means": (
        lambda: hs.compile_sequence(
            lambda x: over.mean(x) - over.shift(x, 1),
            tokens=6,
            domain=(-1, 1),
            error=1e-3,
            causal=True,
            dtype="float32",
        ),
        lambda x: (
            np.cumsum(x, axis=-2) / np.arange(1, x.shape[-2] + 1)[:, None]
            - np.concatenate([np.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2)
        ),
    ),
    "gpt2: products of tokens": (
        lambda: hs.compile_sequence(
            lambda x: x * over.shift(x, 1), tokens=6, domain=(-1, 1), error=1e-2, causal=True, dtype="float32"
        ),
        lambda x: x * np.concatenate([np.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2),
    ),
    "swiglu: product": (single("x*y", 1e-6, "swiglu"), lambda x: x[..., :1] * x[..., 1:]),
    "swiglu: polynomial": (
        single("x**3*y - 2*x*y*z + z", 2e-5, "swiglu"),
        lambda x: x[..., :1] ** 3 * x[..., 1:2] - 2 * x.prod(axis=-1, keepdims=True) + x[..., 2:],
    ),
    "swiglu: heads and neurons": (
        single("x*y/(2 + max(x, y))", 1e-3, "swiglu"),
        lambda x: x.prod(axis=-1, keepdims=True) / (2 + x.max(axis=-1, keepdims=True)),
    ),
    "swiglu: squares so far": (
        lambda: hs.compile_sequence(
            lambda x: over.mean(x * x) * x,
            tokens=6,
            domain=(-1, 1),
            error=1e-5,
            causal=True,
            dtype="float32",
            recipe="swiglu",
        ),
        lambda x: np.cumsum(x * x, axis=-2) / np.arange(1, x.shape[-2] + 1)[:, None] * x,
    ),
    "sum so far": (
        lambda: hs.compile_sequence(
            over.cumulative_sum, tokens=6, domain=(-1, 1), error=1e-4, causal=True, dtype="float32"
        ),
        lambda x: np.cumsum(x, axis=-2),
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Any]:
    make, exact = MODELS[request.param]
    model, to = make(), "gpt2" if request.param.startswith("gpt2") else "llama"
    return model, model.export(tmp_path_factory.mktemp("stock") / "model", to), exact


def loaded(folder: Path, **options: Any) -> Any:
    sequences = "TokenClassification" in (folder / "config.json").read_text()
    auto = AutoModelForTokenClassification if sequences else AutoModelForSequenceClassification
    return auto.from_pretrained(folder, **options).eval()


def points(model: Any, count: int = 4096) -> Any:
    tokens, inputs = model.transformer.tokens, model.box.size
    shape = (count, inputs) if tokens == 1 else (count // tokens, tokens, inputs)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def logits(model: Any, loaded_model: Any, x: Any) -> Any:
    stock = model.to_stock(loaded_model.config.model_type)
    with torch.no_grad():
        found = loaded_model(inputs_embeds=torch.tensor(stock.embed(x))).logits.numpy()
    return found if stock.tokens == 1 else found[:, stock.reference_tokens :]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_within_the_certificate(exported: Any, attention: str) -> None:
    model, folder, exact = exported
    certificate, x = hs.verify(folder), points(model)
    running = loaded(folder, attn_implementation=attention)
    found = logits(model, running, x)
    assert found.dtype == np.float32
    assert np.abs(found - exact(x.astype(np.float64))).max() <= certificate.error
    in_numpy = model.to_stock(running.config.model_type)(x)
    assert np.abs(found - in_numpy).max() <= 2 * certificate.parts["rounding"]


@pytest.mark.parametrize("recipe", ["auto", "swiglu"])
def test_a_fine_grid_of_products(tmp_path: Path, recipe: str) -> None:
    """1,001 x 1,001 points, x*y at 1e-5 or better with weights below 1e5."""
    model = single("x*y", 1e-5, recipe)()
    folder = model.export(tmp_path / "product", "llama")
    certificate, running = hs.verify(folder), loaded(folder)
    line = np.linspace(-1, 1, 1001).astype(np.float32)
    worst = 0.0
    for part in np.array_split(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), 20):
        off = logits(model, running, part)[:, 0] - part[:, 0].astype(np.float64) * part[:, 1]
        worst = max(worst, float(np.abs(off).max()))
    assert worst <= certificate.error <= 1e-5
    assert (
        max(float(each.detach().abs().max()) for name, each in running.named_parameters() if "norm" not in name) < 1e5
    )


def test_norms_and_rotations_change_no_bit(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder, _ = exported
    x = points(model)
    found = logits(model, loaded(folder), x)
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", lambda self, x: x)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *rest, **options: (q, k))
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: x)
    without = logits(model, loaded(folder), x)
    if (folder / "config.json").read_text().count('"gpt2"'):
        assert np.abs(found - without).max() <= hs.verify(folder).parts["rounding"]  # nearly, there
        return
    assert np.array_equal(found[np.abs(without) > 2.0**-100], without[np.abs(without) > 2.0**-100])
    assert np.abs(found - without).max() < 2.0**-130  # what a norm divides by 4096 may underflow


@pytest.mark.parametrize(("to", "recipe"), [("llama", "auto"), ("llama", "swiglu"), ("gpt2", "auto")])
def test_prompts(tmp_path: Path, to: str, recipe: str) -> None:
    """All 66,049 prompts of two numbers, and the tokenizer that reads them."""
    error = 2e-2 if to == "gpt2" else 1e-3
    folder = single("x*y", error, recipe)().export(tmp_path / "product", to, vocabulary=256)
    certificate, tokenizer, model = hs.verify(folder), AutoTokenizer.from_pretrained(folder), loaded(folder)
    values = np.arange(-128, 129) / 128
    prompts = [
        f"x={x:.7f}".rstrip("0").rstrip(".") + f" y={y:.7f}".rstrip("0").rstrip(".") for x in values for y in values
    ]
    ids = tokenizer([prompt.replace("=-0 ", "=0 ") for prompt in prompts], return_tensors="pt")
    with torch.no_grad():
        found = model(**ids).logits.numpy().reshape(257, 257)
    assert np.abs(found - np.outer(values, values)).max() <= certificate.error
    with pytest.raises(Exception, match="UNK"):
        tokenizer("x=0.3 y=0.5")
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    with contextlib.chdir(folder):
        names: dict[str, Any] = {}
        exec(code, names)
    assert names["y"].shape == (1, 1)


def test_the_card_runs(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines in README.md, as they stand, in the folder."""
    model, folder, exact = exported
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    x = points(model, 64)
    names = {"x": torch.tensor(x)}
    monkeypatch.chdir(folder)
    exec(code, names)
    assert np.abs(names["y"].numpy() - exact(x.astype(np.float64))).max() <= model.certificate.error
