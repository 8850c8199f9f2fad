"""One model, every runtime: numpy, torch, ONNX Runtime, TransformerLens and Hugging Face agree within the certificate's
rounding part, on every model of the gallery, causal and full, in both formats."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.theorems.runtimes import MODELS, check_agreement, inputs_of, masks, near_runs
from transformers import AutoModel

import headsmith as hs


def far_runs(model: Any, x: Any, mask: dict[str, bool], folder: Path) -> Iterator[tuple[str, Any]]:
    """What the tools compute that folders are exported for."""
    for to in ("huggingface", "transformerlens"):
        hs.verify(model.export(folder / to, to, **mask))
    loaded = AutoModel.from_pretrained(folder / "huggingface", trust_remote_code=True)
    spec = importlib.util.spec_from_file_location("exported", folder / "transformerlens" / "headsmith_lens.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    with torch.no_grad():
        yield "Hugging Face", loaded(torch.tensor(x)).outputs.numpy()
        yield "TransformerLens", code.load(folder / "transformerlens")(x).numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_runtimes_agree(name: str, dtype: str, tmp_path: Path) -> None:
    model = MODELS[name](dtype)
    x = inputs_of(model)
    for mask in masks(model):
        wanted, folder = model(x, **mask), tmp_path / f"{mask}"
        folder.mkdir()
        check_agreement(model, near_runs(model, x, mask), wanted)
        check_agreement(model, far_runs(model, x, mask, folder), wanted)
