"""The falsifier finds what is there to be found, and never more than the certificate allows."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.balls import gate_constant
from headsmith.language.evaluation import node_values
from headsmith.language.graph import Affine, Relu
from headsmith.report.falsify import errors_at, falsify
from headsmith.report.kinks import aimed, crossings, kinks_of, vertices


def random_network(*widths: int, seed: int = 0) -> hs.Network:
    random = np.random.default_rng(seed)
    return hs.Network(
        [
            (random.normal(size=(after, before)) / np.sqrt(before), random.normal(size=after) / 4)
            for before, after in pairwise(widths)
        ]
    )


@pytest.mark.parametrize("error", [1e-1, 1e-4, 1e-9])
@pytest.mark.parametrize("place", [0.0, 0.123456789, -0.75])
def test_a_single_gate_is_attained(error: float, place: float) -> None:
    """One gate errs by exactly its bound, in an interval as wide as the error: random points would miss it."""
    model = hs.compile(hs.Network([([[1.0]], [-place]), ([[1.0]], [0.0])]), (-1.0, 1.0), error)
    found = falsify(model, effort=1000)
    assert 0.999 <= found.tightness <= 1.0
    assert found.error <= model.certificate.error


def test_several_gates_at_once_are_attained() -> None:
    """|x| + |y|: four gates, which err most together, at a vertex."""
    network = hs.Network([([[1, 0], [-1, 0], [0, 1], [0, -1]], np.zeros(4)), (np.ones((1, 4)), [0.0])])
    model = hs.compile(network, (-1.0, 1.0), 1e-6)
    assert falsify(model, effort=2000).tightness >= 0.95


@pytest.mark.parametrize(
    ("widths", "dtype", "tokens"),
    [
        ((1, 5, 1), "float32", 1),
        ((3, 20, 20, 2), "float64", 1),
        ((6, 12, 12, 12, 3), "float32", 7),
        ((2, 30, 1), "float64", 33),
    ],
)
def test_certificates_stand(widths: tuple[int, ...], dtype: str, tokens: int) -> None:
    model = hs.compile(random_network(*widths), (-1.0, 1.0), 1e-2, dtype=dtype, tokens=tokens)  # type: ignore[arg-type]
    found = falsify(model, effort=1500)
    assert found.ratio <= 1.0
    assert not found.refutes
    assert found.tightness == pytest.approx(found.error / model.certificate.error)
    assert found.error == pytest.approx(errors_at(model, found.input[None])[0, found.output], rel=1e-3)


def test_a_wrong_certificate_is_refuted() -> None:
    model = hs.compile(random_network(2, 8, 1), (-1.0, 1.0), 1e-3)
    wrong = replace(model.certificate, error=1e-6, outputs=(1e-6,))
    assert falsify(replace(model, certificate=wrong), effort=500).refutes


def test_searches_are_repeatable() -> None:
    model = hs.compile(random_network(3, 10, 2), (-1.0, 1.0), 1e-3)
    first, second, other = (falsify(model, effort=400, seed=seed) for seed in (1, 1, 2))
    assert first.error == second.error
    np.testing.assert_array_equal(first.input, second.input)
    assert not np.array_equal(first.input, other.input)
    assert first.evaluations <= 410


def test_models_without_heads_and_inputs_without_width() -> None:
    affine = hs.compile(hs.Network([([[2.0, -1.0]], [0.5])]), (0.0, 1.0), 1e-6)
    assert falsify(affine, effort=100).ratio <= 1.0
    pinned = hs.compile(random_network(3, 10, 2), [(-1.0, 1.0), (0.5, 0.5), (-1.0, 1.0)], 1e-3)
    found = falsify(pinned, effort=300)
    assert found.input[1] == 0.5
    assert found.ratio <= 1.0


def test_crossings_lie_beside_zeros() -> None:
    model = hs.compile(random_network(2, 12, 12, 1), (-1.0, 1.0), 1e-5)
    kinks, random = kinks_of(model), np.random.default_rng(0)
    assert len(kinks) == model.bill.heads
    starts, ends = random.uniform(-1.0, 1.0, (2, 64, 2))
    points = crossings(kinks, starts, ends, 400, random)
    # Each point was made for one gate; that gate's argument is one offset from zero, or the segment ended before.
    closest = np.min(np.abs(np.abs(kinks.arguments(points)) / kinks.offsets - 1.0), axis=1)
    assert len(points) >= 50
    assert np.mean(closest < 1e-3) > 0.9


def test_vertices_bring_several_arguments_near_zero() -> None:
    model = hs.compile(random_network(3, 12, 1), (-1.0, 1.0), 1e-5)
    kinks, random = kinks_of(model), np.random.default_rng(0)
    low, high = np.full(3, -1.0), np.full(3, 1.0)
    points = vertices(kinks, random.uniform(low, high, (200, 3)), low, high, random)
    near = np.sum(np.abs(np.abs(kinks.arguments(points)) / kinks.offsets - 1.0) < 1e-3, axis=1)
    assert near.max() == 3
    assert np.mean(near >= 1) > 0.5
    assert np.all((points >= low) & (points <= high))


def test_pulls_are_derivatives() -> None:
    """Of a combination of outputs by the value of a gate: sums over the paths from it, through gates that are open."""
    model = hs.compile(random_network(3, 6, 5, 2), (-1.0, 1.0), 1e-3, recipe="relu")
    kinks, random = kinks_of(model), np.random.default_rng(0)
    points, outputs = random.uniform(-1.0, 1.0, (20, 3)), random.standard_normal((20, 2))
    gates = [(number, node) for number, node in enumerate(kinks.circuit.nodes) if isinstance(node, Relu)]
    maps = [node.terms[-1].weights for node in kinks.circuit.nodes if isinstance(node, Affine)]
    last = outputs @ maps[-1]
    first = (last * (node_values(kinks.circuit, points)[gates[1][0]] > 0.0)) @ maps[1]
    assert np.allclose(kinks.pulls(points, outputs), np.hstack([first, last])[:, kinks.places])


def test_aimed_points_find_what_gates_do_together() -> None:
    """Of a network of three layers, more than half as much again as the search that does not aim."""
    model = hs.compile(random_network(12, 30, 30, 30, 1), (-1, 1), 1e-3, recipe="relu")
    kinks, low, high = kinks_of(model), np.array(model.box.low), np.array(model.box.high)
    starts = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 12))
    blind = vertices(kinks, starts, low, high, np.random.default_rng(1))
    found = aimed(kinks, starts, low, high, 1, np.random.default_rng(1))
    assert np.all((found >= low) & (found <= high))
    assert errors_at(model, found).max() > 1.5 * errors_at(model, blind).max()
    assert hs.falsify(model).error >= 0.9 * errors_at(model, found).max()


def test_the_offset_is_where_a_gate_errs_most() -> None:
    model = hs.compile(hs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])]), (-1.0, 1.0), 1e-3)
    (offset,) = kinks_of(model).offsets
    error = errors_at(model, np.array([[offset], [0.9 * offset], [1.1 * offset]]))[:, 0]
    bank = model.transformer.layers[0].banks[0]
    assert error[0] == pytest.approx(gate_constant() / float(bank.query_scale[0] * bank.key_scale[0]), rel=1e-9)
    assert error[0] > error[1]
    assert error[0] > error[2]
