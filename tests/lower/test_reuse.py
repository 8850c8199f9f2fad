"""Registers are used again: a deep network is no wider than its widest layers, and formulas cost what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN
from helpers.models.networks import random_network, shifted_network

import headsmith as hs
from headsmith.lower.reuse import Lifetime, allotted


def cleared(model: Any) -> int:
    return sum(bool(bank.cleared) for layer in model.transformer.layers for bank in layer.banks)


@pytest.mark.again
def test_the_width_does_not_grow_with_the_depth() -> None:
    width, depths = (16, (2, 4, 8)) if CAMPAIGN else (8, (2, 3, 5))
    models = [hs.compile(random_network([width, *[width] * depth, 1]), (-9, 9), 1e-2) for depth in depths]
    shallow, deeper, deep = (model.bill for model in models)
    assert deep.d_model == deeper.d_model <= shallow.d_model
    assert deep.parameters <= 1.05 * 2 * deeper.parameters
    assert (shallow.heads, deep.heads) == (2 * width, depths[-1] * (width + 1))
    assert [cleared(model) for model in models] == [0, *depths[1:]]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_layers_of_any_widths_share_columns(dtype: Any, tokens: int) -> None:
    network = random_network([4, 9, 12, 10, 16, 9, 12, 10, 9, 3], 3)
    model = hs.compile(network, (-1, 1), 1e-2, dtype=dtype, tokens=tokens)
    assert cleared(model) >= 3
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (50, tokens, 4) if tokens > 1 else (50, 4))
    for run in ({}, {"fused": True}, {"hardmax": True}):
        off = np.abs(model(points, **run) - network(points)).max()
        assert off <= model.certificate.error, run


def test_columns_are_as_few_as_live_at_once() -> None:
    """Registers that live in layers 0-1, 1-2, 2-3 and to the end: in place, or with a layer in between."""
    lives = [("a", 5, 0, 1), ("b", 3, 1, 2), ("c", 6, 2, 3), ("skip", 2, 0, 3), ("out", 1, 3, 5)]
    found = {name: Lifetime(name, size, first, last) for name, size, first, last in lives}
    for apart in (False, True):
        shared = allotted(found, apart)
        live = [sum(e.size for e in found.values() if e.first - apart < layer <= e.last) for layer in range(1, 5)]
        assert sum(home.size for home in shared) == max(*live, 7)
        for name, size, _, _ in lives:
            parts = [
                part for home in shared for each, part in zip(home.tenants, home.parts, strict=True) if each == name
            ]
            assert sorted(place for part in parts for place in range(part.start, part.stop)) == list(range(size))
        for home in shared:
            for before, after in zip(home.tenants, home.tenants[1:], strict=False):
                assert found[before].last + apart <= found[after].first


@pytest.mark.parametrize("formula", ["sin(5*x)", "abs(x - y) + x*y"])
def test_formulas_cost_what_they_did(formula: str) -> None:
    names = {name: (-1, 1) for name in "xy" if name in formula}
    assert not cleared(hs.compile(formula, names, 1e-1, recipe="relu"))


def test_what_active_gates_pass_on_does_not_make_the_stream_wider() -> None:
    """With biases some gates are active, and have no heads: the head that clears carries on what they pass on."""
    models = [hs.compile(random_network([12, *[12] * depth, 2], 1), (-1, 1), 1e-2) for depth in (3, 5)]
    assert len({model.bill.d_model for model in models}) == 1
    network = shifted_network([6, *[12] * 4, 3], 5, -1.0, 1.0, ("free", "free", "free", "active"))
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 6))
    for tokens in (1, 2):
        model = hs.compile(network, (-1, 1), 1e-3, tokens=tokens)
        writes = [link.weights for layer in model.transformer.layers for link in layer.banks[-1].write]
        assert cleared(model)
        assert any(weights.ndim == 2 and 1 < weights.shape[1] < 12 for weights in writes)
        given = points if tokens == 1 else points.reshape(50, 2, 6)
        assert np.abs(model(given) - network(given)).max() <= hs.verify(model).error <= 1e-3


@pytest.mark.again
def test_several_heads_clear_a_wide_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One head as wide as the layer would make all heads as wide, where tools pad them: several share the outputs."""
    width, room = (420, 1.05) if CAMPAIGN else (128, 1.1)
    if not CAMPAIGN:
        monkeypatch.setattr("headsmith.lower.reuse.MOST_PADDED", 1 << 18)
    network = random_network([6, *[width] * 4, 3])
    model = hs.compile(network, (-1, 1), 1e-1)
    assert model.bill.d_model <= room * width
    assert model.bill.heads <= 1.125 * 4 * width
    split = [bank for layer in model.transformer.layers for bank in layer.banks if bank.cleared]
    assert split
    assert all(bank.heads > 1 and bank.outputs // bank.heads <= 32 for bank in split)
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 6))
    assert np.abs(model(points) - network(points)).max() <= hs.verify(model).error
