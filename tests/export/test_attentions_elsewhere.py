"""Other attentions in torch, ONNX Runtime and exported folders: the same numbers as here, within what rounding may do;
tools that have softmax attention alone are refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.among_tokens import AMONG_TOKENS
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.transformer.heads.attentions import ATTENTIONS, weights_of

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

KINDS = [kind for kind in ATTENTIONS if kind != "softmax"]


def model_of(kind: Any, dtype: Any = "float64", **options: Any) -> Any:
    target = "3*x*y - x*x*y*y + (x + 2*y)**2" if kind == "linear" else random_network([2, 5, 4, 1], 1)
    return hs.compile(target, (-1, 1), 1e-2, attention=kind, dtype=dtype, **options)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_runtimes_agree(kind: str, dtype: str, rng: np.random.Generator) -> None:
    model = model_of(kind, dtype)
    x = rng.uniform(-1, 1, (300, 2)).astype(dtype)
    x[:4] = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    here, allowed = model(x.astype(float)), 2.0 * model.certificate.parts["rounding"]
    module = model.to_torch()
    with torch.no_grad():
        there = module(torch.tensor(x)).numpy()
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    for other in (there, found):
        assert other.dtype == np.dtype(dtype)
        assert np.abs(other.astype(float) - here).max() <= allowed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", AMONG_TOKENS)
def test_other_runtimes_agree_on_sequences(name: str, dtype: Any, rng: np.random.Generator) -> None:
    """Tokens that see each other: gates, moves, means, maxima, sorts."""
    model = AMONG_TOKENS[name](dtype)
    x = rng.uniform(-1, 1, (200, model.lengths[-1], 1)).astype(dtype)
    here, allowed = model(x.astype(float)), 2.0 * model.certificate.parts["rounding"]
    with torch.no_grad():
        there = model.to_torch()(torch.tensor(x)).numpy()
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    for other in (there, session.run(None, {"x": x})[0]):
        assert other.dtype == np.dtype(dtype)
        assert np.abs(other.astype(float) - here).max() <= allowed


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_torch_are_the_textbooks(kind: str, rng: np.random.Generator) -> None:
    """Any queries and keys, five tokens, every mask: not only those that models have."""
    from headsmith.run.torch_model import weights_of as in_torch

    query, key = rng.normal(size=(2, 3, 5, 2)), rng.normal(size=(2, 3, 5, 2))
    prefix = np.eye(5, dtype=bool) | (np.arange(5) < 2)
    for visible in (np.ones((5, 5), dtype=bool), np.tril(np.ones((5, 5), dtype=bool)), prefix):
        found = in_torch(kind, torch.tensor(query), torch.tensor(key), torch.tensor(visible)).numpy()
        assert np.abs(found - weights_of(kind, query, key, visible)).max() <= 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_folders(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    model = model_of(kind, mask="self+prefix", tokens=3)
    x = rng.uniform(-1, 1, (20, 2))
    for to in ("torch", "onnx"):
        folder = model.export(tmp_path / to, to)
        assert hs.verify(folder).error == pytest.approx(model.certificate.error)
    from headsmith.run.torch_model import load

    with torch.no_grad():
        found = load(str(tmp_path / "torch"))(torch.tensor(x)).numpy()
    assert np.abs(found - model(x)).max() <= 2.0 * model.certificate.parts["rounding"]


@pytest.mark.parametrize("to", ["transformerlens", "llama", "gpt2"])
def test_tools_with_softmax_attention_alone(to: Any, tmp_path: Path) -> None:
    model = model_of("sparsemax", "float32")
    with pytest.raises(hs.HeadsmithError, match="softmax attention"):
        model.export(tmp_path / to, to)
    assert not (tmp_path / to).exists()


def test_closed_forms_are_those_of_softmax() -> None:
    model = model_of("relu")
    for make in (model.to_torch, model.to_onnx):
        with pytest.raises(hs.TargetError, match="without fused"):
            make(fused=True)
