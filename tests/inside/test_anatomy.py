"""Models taken apart: every head with its words, its matrices and its share of the error; runs without a head, or with
activations of another run, which say what the certificate still proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs

over = hs.tokens


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile("relu(x), relu(y)*x, x + relu(x + y)", (-1, 1), 1e-3)


def test_a_head_in_words(model: hs.Compiled) -> None:
    head = model.layers[0].heads[0]
    assert (head.kind, head.computes, head.reads, head.writes) == ("sink", "relu(x)", ("z1",), ("out",))
    text = repr(head)
    for part in (
        "layer 1 / sink head 0: relu(x)",
        "so it returns z where z > 0",
        "W_Q",
        "slope",
        "share of the proven",
    ):
        assert part in text
    assert "2  sink head: relu(x + y)" in repr(model.layers[0])
    assert repr(model.directions).startswith("<Directions: data, reference, grid, z1")


def test_matrices_are_those_of_the_model(model: hs.Compiled) -> None:
    dense = model.dense()
    for layer, matrices in zip(model.layers, dense.layers, strict=True):
        for place, head in enumerate(layer.heads):
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                mine, whole = getattr(head, name), getattr(matrices, name)[place]
                assert np.array_equal(mine, whole[tuple(slice(size) for size in mine.shape)])
            assert len(head.features) == head.W_Q.shape[1]
            assert len(head.directions) == len(head.W_Q) == dense.d_model
    assert [len(layer.heads) for layer in model.layers] == list(model.bill.heads_per_layer)


@pytest.mark.parametrize(
    "made",
    [
        lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-3),
        lambda: hs.compile("exp(x)", (-1, 1), 1e-3, tokens=3),
        lambda: hs.compile("max(x, y, -x)", (-1, 1), 1e-4, recipe="maxout"),
        lambda: hs.compile_sequence(lambda x: over.shift(x, 1) + over.max(x), tokens=4, domain=(-1, 1), error=1e-3),
        lambda: hs.compile_sequence(lambda x: x - over.mean(x), tokens=4, domain=(-1, 1), error=1e-3),
        lambda: hs.compile_sequence(
            lambda x: over.attend(x[:, 0], x[:, 0], x[:, 0]), tokens=4, domain=(-1, 1), error=1e-3
        ),
    ],
    ids=["network", "table", "pieces", "moves", "mean", "attend"],
)
def test_shares_add_up_to_the_error(made: Any) -> None:
    """Shares are bounds of what each head commits; together they are about what is certified."""
    found = made()
    total = sum(sum(head.share.values()) for layer in found.layers for head in layer.heads)
    assert 0.4 * found.certificate.error <= total <= 2.5 * found.certificate.error
    for layer in found.layers:
        for head in layer.heads:
            assert len(head.features) == head.W_Q.shape[1]
            assert repr(head)


def test_without_a_head(model: hs.Compiled) -> None:
    point = np.array([0.5, 0.25])
    without = model.ablate("layer 1 / sink head 0")
    assert without(point)[0] == 0.0
    assert np.array_equal(without(point)[1:], model(point)[1:])
    assert without.proven[0] is None
    assert without.proven[1:] == model.certificate.outputs[1:]
    assert "of the others nothing is" in without.says
    assert "without layer 1 / sink head 0" in repr(without)
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    mean = model.ablate("layer 1 / head 0", mean_over=points)(point)[0]
    assert abs(mean - np.maximum(points[:, 0], 0).mean()) < 2e-3


def test_what_is_still_proven_is_computed_as_before(rng: np.random.Generator) -> None:
    """Two networks side by side, in one: outputs of the one do not see heads of the other."""
    one, two = (rng.normal(size=(4, 3)) for _ in range(2))
    first = np.zeros((8, 6))
    first[:4, :3], first[4:, 3:] = one, two
    last = np.zeros((2, 8))
    last[0, :4], last[1, 4:] = rng.normal(size=(2, 4))
    model = hs.compile(hs.Network([(first, np.zeros(8)), (last, np.zeros(2))]), (-1, 1), 1e-3)
    points, changed = rng.uniform(-1, 1, (20, 6)), rng.uniform(-1, 1, (20, 6))
    kept = 0
    for head in range(model.bill.heads):
        without = model.ablate(f"layer 1 / head {head}")
        patched = model.patch(points, changed, f"layer 1 / head {head}")
        assert without.proven == patched.proven
        for output, proven in enumerate(without.proven):
            same = np.array_equal(without(points)[:, output], model(points)[:, output])
            assert same == (proven is not None)
            assert np.array_equal(patched.outputs[:, output], patched.before[:, output]) == (proven is not None)
            kept += proven is not None
    assert kept == model.bill.heads


def test_everything_from_another_run_is_the_other_run(model: hs.Compiled, rng: np.random.Generator) -> None:
    points, source = rng.uniform(-1, 1, (7, 2)), rng.uniform(-1, 1, (7, 2))
    registers = [each for each in model.transformer.sizes if each not in ("data", "reference", "grid")]
    patched = model.patch(points, source, *(f"layer 2 / register {name}" for name in registers))
    assert np.array_equal(patched.outputs, model(source))
    assert patched.says == "every output depends on what was edited: nothing is proven of them any more"
    assert np.array_equal(patched.before, model(points))


def test_sequences(rng: np.random.Generator) -> None:
    program = hs.compile_sequence(lambda x: [over.shift(x[:, 0], 1), x[:, 1]], tokens=4, features=2, domain=(-1, 1))
    table = rng.uniform(-1, 1, (4, 2))
    without = program.ablate("layer 1 / move head 0")
    assert np.array_equal(without(table)[:, 1], program(table)[:, 1])
    assert np.all(without(table)[:, 0] == 0.0)
    assert without.proven[0] is None
    assert without.proven[1] is not None


def test_what_means_nothing_is_refused(model: hs.Compiled) -> None:
    for name, message in {
        "layer 9 / head 0": "the model has 2 layers",
        "layer 0 / head 0": "counted from 1",
        "layer 1 / head 99": "the layer has 3 heads",
        "layer 1 / gate head 0": "the layer has 0 gate heads",
        "the first one": "names no place",
        "layer 1 / register q": "there is no such register; there are z1",
        "layer 1 / register data": "constant and tells tokens apart",
        "layer 1 / register z1": "is no head; model.patch takes registers",
    }.items():
        with pytest.raises(hs.TargetError, match=message):
            model.ablate(name)
    with pytest.raises(hs.TargetError, match="name the heads to silence"):
        model.ablate()
    with pytest.raises(hs.TargetError, match="name what to patch"):
        model.patch(np.zeros(2), np.zeros(2))
    with pytest.raises(hs.DomainError, match=r"inputs of shape \(2,\) and a source of shape \(3,\)"):
        model.patch(np.zeros(2), np.zeros(3), "layer 1 / head 0")
    with pytest.raises(hs.DomainError, match="lies outside its domain"):
        model.ablate("layer 1 / head 0")(np.array([2.0, 0.0]))


def test_sampled_callables(tmp_path: Path) -> None:
    """Their heads are looked at and edited like all others; and they run under no mask, exported or not."""
    sampled = hs.universal(np.sin, 2, domain=(-1, 1), error=0.5, lipschitz=1.0)
    assert [len(layer.heads) for layer in sampled.layers] == list(sampled.bill.heads_per_layer)
    assert all(repr(head) for layer in sampled.layers for head in layer.heads)
    table = np.array([[0.5], [-0.5]])
    without = sampled.ablate("layer 1 / head 0")
    assert without(table).shape == sampled(table).shape
    assert without.proven == (None,)
    assert np.array_equal(sampled.patch(table, table, "layer 1 / head 0").outputs, sampled(table))
    for call in (
        lambda: sampled.to_torch(causal=True),
        lambda: sampled.export(tmp_path / "masked", "torch", causal=True),
        lambda: sampled.ablate("layer 1 / head 0")(table, causal=True),
    ):
        with pytest.raises(hs.DomainError, match="without a mask"):
            call()
