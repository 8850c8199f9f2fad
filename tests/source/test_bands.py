"""Large maps that are mostly zeros are cut into bands: the same function, in nodes with small matrices between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headsmith as hs
from headsmith.source.graph import Affine


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


@pytest.fixture
def small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands already in small networks."""
    monkeypatch.setattr("headsmith.source.tensors.LARGE", 64)
    monkeypatch.setattr("headsmith.source.bands.WIDTH", 16)


def test_bands_are_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one piece and in bands, up to the order of sums; and fewer weights are stored."""
    torch.manual_seed(0)
    module, example = Skip().eval(), torch.rand(2, 1, 16, 16)
    whole = hs.from_torch(module, example)
    monkeypatch.setattr("headsmith.source.tensors.LARGE", 64)
    monkeypatch.setattr("headsmith.source.bands.WIDTH", 64)
    cut = hs.from_torch(module, example)
    inputs = np.random.default_rng(0).uniform(0, 1, (20, 256))
    np.testing.assert_allclose(cut(inputs), whole(inputs), atol=1e-13)
    np.testing.assert_allclose(
        cut(inputs), module(torch.tensor(inputs.reshape(-1, 1, 16, 16)).float()).detach(), atol=1e-4
    )
    stored = [
        sum(term.weights.size for node in each.graph.nodes if isinstance(node, Affine) for term in node.terms)
        for each in (whole, cut)
    ]
    assert stored[1] < stored[0] / 2
    assert not any(isinstance(node, Affine) and node.scattered for node in cut.graph.nodes)


@pytest.mark.usefixtures("small_bands")
def test_bands_compile_and_are_proven(tmp_path: Any) -> None:
    """Everything after the reader takes bands as the ordinary nodes that they are."""
    torch.manual_seed(0)
    part = torch.nn
    module = part.Sequential(
        part.Conv2d(1, 2, 3, padding=1), part.ReLU(), part.MaxPool2d(2), part.Flatten(), part.Linear(18, 2)
    ).eval()
    network = hs.from_torch(module, torch.rand(2, 1, 6, 6))
    assert len(network.graph.nodes) > 9  # input, convolution, four picks, maximum, gates, linear layer: in one piece
    model = hs.compile(network, (0, 1), 1e-3)
    model.save(tmp_path / "model.safetensors")
    assert hs.verify(tmp_path / "model.safetensors").error <= 1e-3
    inputs = np.random.default_rng(0).uniform(0, 1, (50, 36))
    assert np.abs(model(inputs) - network(inputs)).max() <= model.certificate.error
