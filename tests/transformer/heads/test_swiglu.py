"""Neurons of SwiGLU blocks, alone and between layers of heads: runner, textbook, bill and file agree on them.

Theorem: silu(x) y - silu(-x) y = x y, and relu(z) - 0.2785 / b <= silu(b z) / b <= relu(z).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.theorems import banks as models

from headsmith.core.errors import CertificateError
from headsmith.run.numpy_runner import run
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.stream import DATA, Link
from headsmith.transformer.heads.swiglu import SiluBank, SwigluBank
from headsmith.transformer.ir import Transformer

WRITE = (Link("out", np.eye(2)),)


def products() -> SwigluBank:
    """x0 x1 and (x1 + 1/4) x0."""
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), Link(DATA, [[0.25]], 2))
    return SwigluBank([-1, -1], [0, 1], read, WRITE)


def gates() -> SiluBank:
    """relu(x0 - x1) and relu(2 x1 + 1/4)."""
    return SiluBank([-1, -1], [0, 1], (Link("x", [[1.0, -1.0], [0.0, 2.0]]), Link(DATA, [[0.25]], 1)), WRITE, [256, 64])


BANKS = {"swiglu": products, "silu": gates}
each_kind = pytest.mark.parametrize("kind", BANKS)
each_place = pytest.mark.parametrize("how", ["alone", "deep"])


def model(kind: str, how: str, dtype: str = "float64") -> Transformer:
    return models.surround(BANKS[kind](), how, 5, dtype)


def test_what_neurons_compute(rng: Any) -> None:
    x = rng.uniform(-1, 1, (500, 5, 2))
    wanted = np.stack([x[..., 0] * x[..., 1], (x[..., 1] + 0.25) * x[..., 0]], axis=-1)
    assert np.abs(run(model("swiglu", "alone"), x) - wanted).max() <= 4e-16
    wanted = np.maximum(np.stack([x[..., 0] - x[..., 1], 2 * x[..., 1] + 0.25], axis=-1), 0.0)
    below = wanted - run(model("silu", "alone"), x)
    assert -1e-15 <= below.min() <= below.max() <= 0.2785 / 64
    assert below[..., 0].max() <= 0.2785 / 256


@each_kind
@each_place
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_runner_equals_textbook(kind: str, how: str, causal: bool, dtype: str, rng: Any) -> None:
    models.agrees_with_textbook(model(kind, how, dtype), 4, causal, rng)


@each_kind
@each_place
def test_bill_and_file(kind: str, how: str, tmp_path: Path, rng: Any) -> None:
    models.bill_counts_the_matrices(model(kind, how))
    models.file_brings_it_back(model(kind, how), tmp_path / "model.safetensors", rng)
    assert bill(model(kind, how), 1.0).neurons == {"swiglu": 4, "silu": 2}[kind]


def test_heads_and_neurons_are_layers_of_their_own() -> None:
    with pytest.raises(CertificateError, match="heads and neurons"):
        models.surround(products(), "gates", 5, "float64")
