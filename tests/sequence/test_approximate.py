"""Callables as transformers: within the error wherever we look, tight, and honest about what is proven."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headsmith.core.errors import DomainError, TargetError, UnreachableError
from headsmith.files import load
from headsmith.report.falsify import falsify
from headsmith.sequence.approximate import approximate
from headsmith.verify import verify

SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}

CASES = {
    "sine": (lambda x: math.sin(x), {"x": (0.0, 3.0)}, 1e-3, {"hessian": 1.0}, 0.9),
    "absolute value": (lambda x: abs(x - 0.1), {"x": (-1.0, 1.0)}, 1e-2, {"lipschitz": 1.0}, 0.0),
    "wave": (lambda x, y: math.sin(2 * x + y), SQUARE, 5e-2, {"hessian": [[4, 2], [2, 1]]}, 0.85),
    "wave, spectral": (lambda x, y: math.sin(2 * x + y), SQUARE, 5e-2, {"hessian": 5.0}, 0.7),
    "product": (lambda x, y: x * y, SQUARE, 1e-2, {"hessian": [[0, 1], [1, 0]]}, 0.85),
    "cone": (lambda x, y: math.hypot(x, y), SQUARE, 0.1, {"lipschitz": 1.0}, 0.4),
    "pyramid": (lambda x, y: max(abs(x), abs(y)), SQUARE, 0.1, {"lipschitz": 1.0, "norm": math.inf}, 0.4),
    "weighted": (lambda x, y: abs(2 * x) + 0.5 * abs(y), SQUARE, 0.1, {"lipschitz": [2.0, 0.5]}, 0.0),
    "bell": (lambda x, y, z: math.exp(-x * x - y * y - z * z), (-1.0, 1.0), 0.3, {"hessian": 2.0}, 0.6),
}


@pytest.mark.parametrize("name", CASES)
def test_within_the_error_and_tight(name) -> None:
    function, domain, error, stated, tightness = CASES[name]
    made = approximate(function, domain, error, **stated)
    assert made.error <= error
    assert made.error >= made.compiled + made.interpolation + made.sampling
    assert falsify(made.model).error <= made.compiled
    box = made.model.box
    points = np.random.default_rng(0).uniform(box.low, box.high, (4000, box.size))
    found = np.abs(made(points)[:, 0] - [function(*point) for point in points.tolist()]).max()
    assert tightness * made.error <= found <= made.error
    assert made.bill.heads <= 1.5 * made.grid.nodes


def test_what_is_proven_and_what_is_assumed_are_kept_apart(tmp_path) -> None:
    made = approximate(lambda x, y: x * y, SQUARE, 1e-2, hessian=[[0, 1], [1, 0]])
    assert f"{made.grid.nodes} sampled values" in made.proven
    assert "Hessian" in made.assumed
    assert "Hessian" not in made.proven
    assert verify(made.model).error <= made.compiled * (1.0 + 1e-9)
    made.save(tmp_path / "product.safetensors")
    again = load(tmp_path / "product.safetensors")
    assert again.certificate.error == made.compiled
    assert again(x=0.3, y=-0.7) == made(x=0.3, y=-0.7)


def test_vectors_several_outputs_and_coordinates_without_width() -> None:
    made = approximate(lambda p: (p[0] * p[1], p[0] + p[1]), [(-1, 1), (0, 1)], 0.05, hessian=[[0, 1], [1, 0]])
    points = np.random.default_rng(0).uniform([-1.0, 0.0], 1.0, (500, 2))
    wanted = np.stack([points.prod(axis=1), points.sum(axis=1)], axis=1)
    assert np.abs(made(points) - wanted).max() <= made.error
    flat = approximate(lambda x, y: x * y, {"x": (0.0, 1.0), "y": (2.0, 2.0)}, 0.05, lipschitz=2.0)
    assert flat.grid.counts[1] == 0
    assert abs(flat(x=0.37, y=2.0) - 0.74) <= flat.error


def test_a_domain_in_another_order_than_the_inputs() -> None:
    made = approximate(lambda x, y: x - 2.0 * y, {"y": (0.0, 1.0), "x": (0.0, 1.0)}, 0.1, hessian=0.0)
    assert made(x=1.0, y=0.0) == pytest.approx(1.0, abs=made.error)


def test_domains_far_from_zero() -> None:
    made = approximate(math.sin, {"x": (1e6, 1e6 + 3.0)}, 1e-3, hessian=1.0)
    points = np.linspace(1e6, 1e6 + 3.0, 3001)[:, None]
    assert np.abs(made(points) - np.sin(points)).max() <= made.error <= 1e-3


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"lipschitz": 1.0},
            r"stated Lipschitz bound is false: f\(\[.*\]\) = .* and f\(\[.*\]\) = .* differ by .* allows",
        ),
        (
            {"hessian": 1.0},
            r"stated Hessian bound is false: f\(\[.*\]\) = .*, f\(\[.*\]\) = .*, f\(\[.*\]\) = .* bend by",
        ),
    ],
)
def test_samples_that_contradict_the_statement_are_shown(stated, message) -> None:
    with pytest.raises(TargetError, match=message):
        approximate(lambda x, y: math.sin(9.0 * x) + y, SQUARE, 0.05, **stated)


def test_a_contradiction_between_the_nodes_is_seen_in_the_middles() -> None:
    """Zero at every node of the grid, and steep between them."""
    count = approximate(lambda x: 0.0, {"x": (0.0, 1.0)}, 0.1, lipschitz=1.0).grid.counts[0]
    with pytest.raises(TargetError, match="is false"):
        approximate(lambda x: math.sin(math.pi * count * x), {"x": (0.0, 1.0)}, 0.1, lipschitz=1.0)


@pytest.mark.parametrize("stated", [{"lipschitz": math.sqrt(2.0)}, {"hessian": [[0.0, 1.0], [1.0, 0.0]]}])
def test_statements_that_are_just_true_are_believed(stated) -> None:
    approximate(lambda x, y: x * y, SQUARE, 0.3, **stated)
    approximate(lambda x, y: (x - 1000.0) * (y - 1000.0), {"x": (999.0, 1001.0), "y": (999.0, 1001.0)}, 0.3, **stated)


def test_refusals() -> None:
    with pytest.raises(UnreachableError, match="nodes is needed"):
        approximate(lambda x, y, z: x, (-1.0, 1.0), 1e-4, lipschitz=1.0)
    with pytest.raises(UnreachableError, match="what rounding does"):
        approximate(lambda x: 1e9 + math.sin(x), (0.0, 1.0), 1e-6, hessian=1.0)
    with pytest.raises(TargetError, match=r"returned inf at \[0.0\]"):
        approximate(lambda x: math.inf if x == 0.0 else 1.0 / x, (0.0, 1.0), 0.1, lipschitz=1.0)
    with pytest.raises(TargetError, match="returned 'a'"):
        approximate(lambda x: "a", (0.0, 1.0), 0.1, lipschitz=1.0)
    with pytest.raises(TargetError, match="error is -1"):
        approximate(lambda x: x, (0.0, 1.0), -1, lipschitz=1.0)
    with pytest.raises(TargetError, match="evaluation is -1"):
        approximate(lambda x: x, (0.0, 1.0), 0.1, lipschitz=1.0, evaluation=-1)
    with pytest.raises(DomainError, match="does not name its inputs"):
        approximate(lambda *x: x[0], (0.0, 1.0), 0.1, lipschitz=1.0)
