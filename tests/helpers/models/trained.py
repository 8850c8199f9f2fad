"""Small networks that are trained in a second or two on scikit-learn's data, for tests of readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import headsmith as hs

FIRST_UNSEEN = 1400


def digits() -> tuple[Any, Any]:
    """Images of digits, (1797, 64) from 0 to 1 in float32, and what they show."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels


def train(module: Any, steps: int = 100, images: Any = None, labels: Any = None) -> Any:
    """The module after some steps of Adam on the digits, in inference mode."""
    if images is None:
        images, labels = digits()
    x, wanted = torch.as_tensor(images[:FIRST_UNSEEN]), torch.as_tensor(labels[:FIRST_UNSEEN])
    optimiser = torch.optim.Adam(module.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(0)
    module.train()
    for _ in range(steps):
        chosen = torch.randint(0, len(x), (64,), generator=generator)
        loss = nn.functional.cross_entropy(module(x[chosen]), wanted[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return module.eval()


class Convolutional(nn.Module):
    """Convolutions with batch norm, max-pooling and dropout."""

    def __init__(self, first: int = 4, second: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1),
            nn.BatchNorm2d(first),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.BatchNorm2d(second),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * second, 10))

    def forward(self, x: Any) -> Any:
        return self.head(self.features(x.view(-1, 1, 8, 8)))


class Residual(nn.Module):
    """A residual network of convolutions with batch norm, and average pooling at its end."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(4 * channels, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.first(x.view(-1, 1, 8, 8)))
        x = torch.relu(x + self.norm(self.second(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))


def check_predictions(model: hs.Compiled, difference: float, theirs: Any, images: Any, labels: Any) -> None:
    """What a compiled classifier must do: stay within its certificate (and the rounding of the network's own run), and
    predict the same wherever the two largest outputs are further apart than twice that."""
    ours = model(np.asarray(images, dtype=np.float64))
    allowed = model.certificate.error + 4 * difference
    assert np.abs(ours - theirs).max() <= allowed
    ordered = np.sort(ours, axis=1)
    decided = ordered[:, -1] - ordered[:, -2] > 2 * allowed
    same = ours.argmax(axis=1) == theirs.argmax(axis=1)
    assert same[decided].all()
    assert decided.mean() > 0.99
    assert abs((ours.argmax(axis=1) == labels).mean() - (theirs.argmax(axis=1) == labels).mean()) <= (~decided).mean()
