"""Convolutions, pooling and picks of a network are read as sparse matrices: the same function as full matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headsmith as hs
from headsmith.core.sparse import SparseArray
from headsmith.language.graph import Affine


class Skip(torch.nn.Module):
    """Grouped, dilated and depthwise convolutions, batch norm, pooling, up-sampling, and a skip by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        part = torch.nn
        self.first = part.Sequential(part.Conv2d(1, 4, 3, padding=1), part.BatchNorm2d(4), part.ReLU())
        self.down = part.Sequential(
            part.MaxPool2d(2), part.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2), part.ReLU()
        )
        self.up = part.Sequential(part.Upsample(scale_factor=2), part.Conv2d(4, 4, 3, padding=1, groups=4))
        self.last = part.Sequential(part.Flatten(), part.Linear(8 * 256, 2))

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        return self.last(torch.cat([first, self.up(self.down(first))], dim=1))


def sizes(network: Any) -> list[tuple[bool, int]]:
    """Of every matrix, whether it is sparse, and how many numbers are stored."""
    terms = [term.weights for node in network.graph.nodes if isinstance(node, Affine) for term in node.terms]
    return [(isinstance(each, SparseArray), each.size) for each in terms]


def test_sparse_layers_are_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, example = Skip().eval(), torch.rand(2, 1, 16, 16)
    thin = hs.from_torch(module, example)
    for place in ("headsmith.readers.tensors.LARGE", "headsmith.core.arrays.LARGE"):
        monkeypatch.setattr(place, 1 << 40)
    whole = hs.from_torch(module, example)
    inputs = np.random.default_rng(0).uniform(0, 1, (20, 256))
    np.testing.assert_allclose(thin(inputs), whole(inputs), atol=1e-13)
    images = torch.tensor(inputs.reshape(-1, 1, 16, 16)).float()
    np.testing.assert_allclose(thin(inputs), module(images).detach(), atol=1e-4)
    assert any(sparse for sparse, _ in sizes(thin))
    assert sum(size for _, size in sizes(thin)) * 20 < sum(size for _, size in sizes(whole))


def test_sparse_layers_compile_and_are_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Pooling between sparse layers, and all that a circuit makes of it."""
    for place in ("headsmith.readers.tensors.LARGE", "headsmith.core.arrays.LARGE"):
        monkeypatch.setattr(place, 64)
    torch.manual_seed(0)
    part = torch.nn
    module = part.Sequential(
        part.Conv2d(1, 2, 3, padding=1), part.ReLU(), part.MaxPool2d(2), part.Flatten(), part.Linear(18, 2)
    ).eval()
    network = hs.from_torch(module, torch.rand(2, 1, 6, 6))
    assert sum(sparse for sparse, _ in sizes(network)) >= 4
    model = hs.compile(network, (0, 1), 1e-3)
    model.save(tmp_path / "model.safetensors")
    assert hs.verify(tmp_path / "model.safetensors").error <= 1e-3
    inputs = np.random.default_rng(0).uniform(0, 1, (50, 36))
    assert np.abs(model(inputs) - network(inputs)).max() <= model.certificate.error
