"""One token for each affine piece: attention takes the maximum, token-wise affine maps do the rest.

Theorem. The laid-out graph computes the target at every token; the model is within W((k-1)/e)/b a maximum, propagated
with the largest piece and not with their sum; in the limit of large scales it is exact.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.attacks.proving import proven
from helpers.effort import tried

import headsmith as hs
from headsmith.core.balls import boltzmann_constant
from headsmith.kernel.core.check import check_file
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.plan.circuits.pieces import in_blocks, lay_out, tokens_for
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.ir import Layer


def random_maxout(widths: list[int], rank: int, seed: int = 0) -> hs.MaxoutNetwork:
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(size=(rank, b, a)) / np.sqrt(a), rng.normal(size=(rank, b)) / 3.0)
        for a, b in itertools.pairwise(widths[:-1])
    ]
    return hs.MaxoutNetwork([*layers, (rng.normal(size=(widths[-1], widths[-2])), rng.normal(size=widths[-1]))])


SHAPES = [([3, 4, 2], 3), ([3, 5, 4, 2], 2), ([4, 6, 6, 6, 1], 4), ([2, 1, 1], 5), ([1, 3, 3, 2], 8)]


@pytest.mark.parametrize(("widths", "rank"), SHAPES)
def test_the_layout_computes_the_network_at_every_token(widths, rank) -> None:
    network = random_maxout(widths, rank)
    laid = lay_out(network.graph)
    points = np.random.default_rng(1).uniform(-1, 1, (50, widths[0]))
    found = evaluate(laid.graph, in_blocks(points, laid.tokens))
    np.testing.assert_allclose(found, np.repeat(network(points)[:, None], laid.tokens, axis=1), atol=1e-12)
    assert laid.tokens == tokens_for(network.graph) == max(rank, 2)


@pytest.mark.parametrize(("widths", "rank"), SHAPES)
def test_certified_and_never_violated(widths, rank, tmp_path) -> None:
    network = random_maxout(widths, rank)
    model = hs.compile(network, (-1, 1), 1e-3, recipe="maxout")
    assert model.certificate.error <= 1e-3
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.uniform(-1, 1, (4000, widths[0])), rng.choice([-1.0, 1.0], (500, widths[0]))])
    assert np.abs(model(points) - network(points)).max() <= model.certificate.error
    # Every token has the output, not only the first.
    everywhere = run(model.transformer, in_blocks(points[:200], model.transformer.tokens))
    assert np.abs(everywhere - network(points[:200])[:, None]).max() <= model.certificate.error
    model.save(tmp_path / "model")
    assert hs.verify(tmp_path / "model").error == model.certificate.error
    assert np.array_equal(hs.load(tmp_path / "model")(points), model(points))


@pytest.mark.parametrize(("widths", "rank"), SHAPES)
def test_layers_and_heads(widths, rank) -> None:
    """A layer for each maximum, and one between two of them that restores the blocks: one head for each token."""
    network = random_maxout(widths, rank)
    bill = hs.compile(network, (-1, 1), 1e-3, recipe="maxout").bill
    hidden, tokens = widths[1:-1], max(rank, 2)
    assert bill.layers == 2 * len(hidden) - 1
    assert bill.heads == sum(hidden) + tokens * (len(hidden) - 1)
    assert bill.nonzeros <= 4.0 * network.parameters


@pytest.mark.parametrize("rank", [2, 3, 6])
def test_one_layer_has_the_sharp_constant(rank) -> None:
    """The bound of one maximum is W((k-1)/e)/b, and some input comes near."""
    slopes = np.linspace(-1.0, 1.0, rank)[:, None, None]
    network = hs.MaxoutNetwork([(slopes, np.zeros((rank, 1))), ([[1.0]], [0.0])])
    model = hs.compile(network, (-1, 1), 1e-2, recipe="maxout")
    (bank,) = model.transformer.layers[0].banks
    assert isinstance(bank, BoltzmannBank)
    scale = float(bank.query_scale[0] * bank.key_scale[0])
    assert model.certificate.parts["softmax"] == pytest.approx(boltzmann_constant(rank) / scale, rel=1e-6)
    if rank == 2:
        points = np.linspace(-1, 1, 20001)[:, None]
        assert np.abs(model(points) - network(points)).max() >= 0.999 * model.certificate.error


@pytest.mark.one_in(5)
@pytest.mark.parametrize("recipe", ["maxout", "relu"])
@pytest.mark.parametrize(("widths", "rank"), SHAPES)
def test_hardmax_is_exact(widths, rank, recipe) -> None:
    network = random_maxout(widths, rank)
    model = hs.compile(network, (-1, 1), 1e-1, recipe=recipe)
    points = np.random.default_rng(3).uniform(-1, 1, (1000, widths[0]))
    np.testing.assert_allclose(model(points, hardmax=True), network(points), atol=1e-10)


def test_relu_networks_are_of_rank_two() -> None:
    rng = np.random.default_rng(4)
    network = hs.Network([(rng.normal(size=(5, 3)), rng.normal(size=5)), (rng.normal(size=(2, 5)), np.zeros(2))])
    model = hs.compile(network, (-1, 1), 1e-3, recipe="maxout")
    points = rng.uniform(-1, 1, (2000, 3))
    assert model.transformer.tokens == 2
    assert np.abs(model(points) - network(points)).max() <= model.certificate.error <= 1e-3


def test_minima_skips_and_repeated_pieces() -> None:
    """min(a, ..) = -max(-a, ..); a read-out of the inputs themselves; maxima of different ranks and equal pieces."""
    builder = Builder(["x", "y"])
    pieces = [builder.affine([(0, [[a, b]])], [c]) for a, b, c in ((1, 0, 0), (0, 1, 0.5), (1, 0, 0))]
    high, low = builder.maximum(pieces), builder.minimum(pieces[:2])
    graph = builder.graph(builder.affine([(high, [[1.0]]), (low, [[-2.0]]), (0, [[0.5, 0.25]])], [1.0]))
    laid = lay_out(graph)
    points = np.random.default_rng(6).uniform(-1, 1, (20, 2))
    found = evaluate(laid.graph, in_blocks(points, 3))
    np.testing.assert_allclose(found, np.repeat(evaluate(graph, points)[:, None], 3, axis=1), atol=1e-12)
    model = hs.compile(graph, (-1, 1), 1e-4, recipe="maxout")
    points = np.random.default_rng(5).uniform(-1, 1, (3000, 2))
    assert np.abs(model(points) - evaluate(graph, points)).max() <= model.certificate.error <= 1e-4


def test_what_it_refuses() -> None:
    builder = Builder(["x"])
    graph = builder.graph(builder.function("sin", 0))
    with pytest.raises(hs.TargetError, match="node 1 is a function"):
        hs.compile(graph, (-1, 1), 1e-2, recipe="maxout")
    with pytest.raises(hs.TargetError, match="one token for each piece, 3 here"):
        hs.compile(random_maxout([2, 2, 1], 3), (-1, 1), 1e-2, recipe="maxout", tokens=8)


@pytest.mark.again
@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(6))
def test_a_changed_weight_is_covered_or_refused(seed) -> None:
    network = random_maxout([3, 4, 3, 2], 3, seed)
    model = hs.compile(network, (-1, 1), 1e-2, recipe="maxout")
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (500, 3))
    for _ in range(tried(12, 2)):
        number = int(rng.integers(len(model.transformer.layers)))
        layer = model.transformer.layers[number]
        place = int(rng.integers(len(layer.banks)))
        bank = layer.banks[place]
        links = list(bank.read if rng.random() < 0.5 else bank.write)
        which = int(rng.integers(len(links)))
        weights = np.array(links[which].weights)
        index = tuple(int(rng.integers(size)) for size in weights.shape)
        weights[index] += rng.choice([1e-6, 1e-2, -1.0])
        changed = [replace(link, weights=weights) if at == which else link for at, link in enumerate(links)]
        new = replace(bank, **{"read" if links == list(bank.read) else "write": tuple(changed)})
        banks = tuple(new if at == place else each for at, each in enumerate(layer.banks))
        layers = tuple(Layer(banks) if at == number else each for at, each in enumerate(model.transformer.layers))
        tampered = replace(model, transformer=replace(model.transformer, layers=layers))
        try:
            error = proven(tampered).error
        except hs.CertificateError:
            continue
        assert np.abs(tampered(points) - network(points)).max() <= error


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_of_maxima_minima_and_gates(seed) -> None:
    """Nothing else is trusted of the layout: it must be the target, whatever reads what."""
    rng = np.random.default_rng(seed)
    builder = Builder(["x", "y"])
    known = [0]
    for _ in range(4):
        size = int(rng.integers(1, 4))
        pieces = [
            builder.affine(
                [
                    (n, rng.normal(size=(size, builder.size(n))))
                    for n in rng.permutation(known)[: rng.integers(1, 3)].tolist()
                ],
                rng.normal(size=size),
            )
            for _ in range(int(rng.integers(1, 4)))
        ]
        kind = rng.choice(["max", "min", "relu"])
        known.append(
            builder.relu(pieces[0])
            if kind == "relu"
            else (builder.maximum if kind == "max" else builder.minimum)(pieces)
        )
    last = [(n, rng.normal(size=(2, builder.size(n)))) for n in known]
    graph = builder.graph(builder.affine(last, rng.normal(size=2)))
    laid = lay_out(graph)
    points = rng.uniform(-1, 1, (100, 2))
    wanted = evaluate(graph, points)
    found = evaluate(laid.graph, in_blocks(points, laid.tokens))
    np.testing.assert_allclose(found, np.repeat(wanted[:, None], laid.tokens, axis=1), atol=1e-10)
    model = hs.compile(graph, (-1, 1), 1e-2, recipe="maxout")
    assert np.abs(model(points) - wanted).max() <= model.certificate.error <= 1e-2


@pytest.mark.parametrize("levels", [2, 5])
def test_components_of_a_maximum_may_pick_different_tokens(levels) -> None:
    """z <- max(W_0 z + b_0, W_1 z + b_1), where the first component always picks one piece and the second the other:
    sum z doubles at every level, and so does an error of the first maximum."""
    b = Builder(["x", "y"])
    pieces = [b.affine([(0, [row, [0.0, 0.0]])], [0.0, -3.0]) for row in ([1.0, 0.0], [0.0, 1.0])]
    z, low, row = b.maximum(pieces), -4.0, [1.0, 0.0]
    for _ in range(levels):
        first = b.affine([(z, [row, [0.0, 0.0]])], [0.0, low])
        second = b.affine([(z, [[0.0, 0.0], row])], [low, 0.0])
        z, low, row = b.maximum([first, second]), 2.0 * low, [1.0, 1.0]
    graph = b.graph(b.affine([(z, [[1.0, 1.0]])], [0.0]))
    model = hs.compile(graph, (-1, 1), error=0.1, recipe="maxout")
    gaps = np.geomspace(1e-6, 1.0, 400)
    points = np.column_stack([np.full(400, 0.5), 0.5 - gaps])
    off = np.abs(model(points) - evaluate(graph, points))
    assert 0.2 * model.certificate.error < off.max() <= model.certificate.error


@pytest.mark.parametrize("recipe", ["auto", "relu", "native", "maxout"])
def test_units_whose_pieces_are_in_part_the_same(recipe: str, tmp_path: Path) -> None:
    """max(1 - x, 0, 0) beside max(1 - x, 1/2, x): the pairs of a tree are the same pairs for every unit."""
    weights, bias = [[[-1.0], [-1.0]], [[0.0], [0.0]], [[0.0], [1.0]]], [[1.0, 1.0], [0.0, 0.5], [0.0, 0.0]]
    network = hs.MaxoutNetwork([(weights, bias), ([[2.0, -2.0]], [0.0])], names=["x"])
    model = hs.compile(network, (0, 5), 1e-2, recipe=recipe)
    x = np.linspace(0.0, 5.0, 101)
    wanted = 2.0 * np.maximum(1.0 - x, 0.0) - 2.0 * np.maximum(np.maximum(1.0 - x, 0.5), x)
    assert np.abs(model(x=x) - wanted).max() <= model.certificate.error <= 1e-2
    model.save(tmp_path / "model.safetensors")
    assert check_file(tmp_path / "model.safetensors").error <= model.certificate.error
