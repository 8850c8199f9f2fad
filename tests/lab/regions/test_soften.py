"""Lemma: the softmax mean of k numbers at scale b is within W((k-1)/e)/b of their maximum, and that is reached."""

from __future__ import annotations

import numpy as np
import pytest

from headsmith.lab.regions.levels import levels_of
from headsmith.lab.regions.soften import measure, soft_bound, soften, softened
from headsmith.language.network import Network


@pytest.mark.parametrize("pieces", [2, 3, 8, 64, 1024])
@pytest.mark.parametrize("scale", [0.5, 10.0, 1e4])
def test_the_bound_holds_and_is_reached(pieces: int, scale: float) -> None:
    found = measure(pieces, scale)
    assert 1.0 - 1e-9 <= found.attained <= 1.0 + 1e-12


def test_a_soft_relu_is_the_sink_head() -> None:
    network = Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    z = np.linspace(-3.0, 3.0, 41)[:, None]
    assert np.allclose(softened(levels_of(network), z, 5.0), z / (1.0 + np.exp(-5.0 * z)))


def test_errors_of_deep_networks_stay_within_the_bound() -> None:
    random = np.random.default_rng(0)
    shapes = ((8, 2), (8, 8), (2, 8))
    network = Network([(random.normal(size=shape), random.normal(size=shape[0])) for shape in shapes])
    points = random.uniform(-2.0, 2.0, (4000, 2))
    for target in (network, "max(x, y, 0.3) - abs(x - min(y, 0.1))"):
        levels = levels_of(target, ["x", "y"])
        rows = soften(levels, points, [1.0, 10.0, 100.0, 1000.0])
        assert all(row.found <= row.bound for row in rows)
        assert np.allclose([row.scale * row.bound for row in rows], rows[0].bound)
        assert soft_bound(levels, 10.0).shape == levels.bias.shape


def test_the_error_withdraws_to_the_borders() -> None:
    """A gap g to the second piece leaves (k - 1) g e^(-b g): the share of points in error falls like 1 / b."""
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (20000, 2))
    rows = soften(levels_of("max(x, y, -x, -y)"), points, [64.0, 128.0, 256.0])
    shares = [row.share_above for row in rows]
    assert shares[0] > 1.8 * shares[1] > 3.2 * shares[2] > 0.0
