"""compile_sequence: shapes, refusals, the table's interface, files, intermediates by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.report.pattern import plot_pattern
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import CompiledSequence, compile_sequence, load_sequence

WEIGHTS = np.array([[1.0, 0.0], [-0.5, 2.0], [0.25, 0.0]])


def program(x: Any) -> Any:
    """Uses most of the table's interface."""
    y = 2 * x - 1 + x[:, 0] / 2 - np.array([0.0, 0.5, 1.0])
    z = (y @ WEIGHTS) + x.mean(axis=0)[:, :2]
    return [z[:, 0], z[:, 1] + x[1, 2], x.sum(axis=1), x.mean(axis=1), hs.maximum(x, 0.25).max(axis=1), abs(-x[:, 0:1])]


def wanted(x: Any) -> Any:
    y = 2 * x - 1 + x[:, :1] / 2 - np.array([0.0, 0.5, 1.0])
    z = y @ WEIGHTS + x.mean(axis=0)[:2]
    rest = [x.sum(1), x.mean(1), np.maximum(x, 0.25).max(1), abs(x[:, 0])]
    return np.stack([z[:, 0], z[:, 1] + x[1, 2], *rest], axis=1)


@pytest.fixture(scope="module")
def model() -> CompiledSequence:
    return compile_sequence(program, tokens=5, features=3, domain=[(-1, 1), (0, 1), (-2, 2)], error=1e-6)


@pytest.fixture(scope="module")
def points(model: CompiledSequence) -> Any:
    return np.random.default_rng(0).uniform(model.box.low, model.box.high, (7, 5, 3))


def test_the_table_is_written_as_in_numpy(model: CompiledSequence, points: Any) -> None:
    for length in (2, 3, 4, 5):
        x = points[:, :length]
        assert np.abs(model(x) - [wanted(each) for each in x]).max() <= model.certificate.error
        assert np.abs(model.target(x) - [wanted(each) for each in x]).max() <= 1e-14


def test_shapes(model: CompiledSequence, points: Any) -> None:
    assert model.lengths == (2, 3, 4, 5)
    assert model(points).shape == (7, 5, 6)
    assert model(points[0]).shape == (5, 6)
    assert model(points.reshape(7, 1, 5, 3)[:, :, :2]).shape == (7, 1, 2, 6)
    assert model(points[:0]).shape == (0, 5, 6)
    single = compile_sequence(over.mean, tokens=3, domain=(0, 1))
    assert single([0.5, 1.0]).shape == (2, 1)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 3)), "a sequence of 1 tokens; this program takes 2 to 5"),
        (np.zeros((6, 3)), "a sequence of 6 tokens; this program takes 2 to 5"),
        (np.zeros((5, 2)), r"expected an array \(..., m, 3\)"),
        (np.zeros(3), r"expected an array \(..., m, 3\)"),
        (np.full((5, 3), 1.5), r"x\[:, 0\]"),
        (np.full((5, 3), np.nan), "nan"),
    ],
)
def test_inputs_that_are_refused(model: CompiledSequence, array: Any, message: str) -> None:
    with pytest.raises(hs.DomainError, match=message):
        model(array)


def test_masks_are_refused(model: CompiledSequence, points: Any) -> None:
    with pytest.raises(hs.DomainError, match="no padding and no mask"):
        model(points, mask=np.ones(5, dtype=bool))
    with pytest.raises(hs.DomainError, match="one array"):
        model(points, points)
    with pytest.raises(hs.DomainError, match="causal=False"):
        model(points, causal=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[0], "a choice of tokens"),
        (lambda x: x[1:, 0], "all or one at a time"),
        (lambda x: x[:, 2], "no feature 2"),
        (lambda x: x[4, 0], "no token 4"),
        (lambda x: x.sum(), "axis=0, over the tokens"),
        (lambda x: np.cumprod(x), "cumprod cannot be traced"),
        (lambda x: list(x), "iterating over tokens"),
        (lambda x: x if x[:, 0] > 0 else -x, "branches"),
        (lambda x: x if x > 0 else -x, "comparing"),
        (lambda x: len(x), "number of tokens"),
        (lambda x: over.mean(3.0), "takes the traced values"),
        (lambda x: over.shift(x, 0.5), "whole numbers"),
        (lambda x: over.shift(x, 1, fill="wrap"), "give a number, or 'edge'"),
        (lambda x: over.moving_average(x, 0), "1 or more"),
        (lambda x: over.constants(x, [1.0]), "1 constants for 4 tokens"),
        (lambda x: x @ np.ones((3, 1)), "2 features cannot be multiplied"),
        (lambda x: x + np.ones(3), "3 values cannot be combined with 2"),
        (lambda x: "text", "must return"),
    ],
)
def test_functions_that_are_refused(function: Any, message: str) -> None:
    with pytest.raises(hs.TargetError, match=message):
        compile_sequence(function, tokens=4, features=2, domain=(-1, 1))


def test_causal_programs_do_not_look_ahead() -> None:
    for function in (lambda x: over.shift(x, -1), lambda x: over.at(x, 2)):
        with pytest.raises(hs.TargetError, match="causal program"):
            compile_sequence(function, tokens=4, domain=(-1, 1), causal=True)


@pytest.mark.parametrize(("tokens", "features"), [(0, 1), (2, 0), (1.5, 1), (True, 1)])
def test_sizes_that_are_refused(tokens: Any, features: Any) -> None:
    with pytest.raises(hs.TargetError, match="positive integer"):
        compile_sequence(lambda x: x, tokens=tokens, features=features, domain=(-1, 1))


def test_files(model: CompiledSequence, points: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    again = load_sequence(tmp_path / "model.safetensors")
    assert np.array_equal(again(points), model(points))
    assert hs.verify(tmp_path / "model.safetensors").error <= model.certificate.error * (1 + 1e-9)
    assert hs.verify(again).error <= model.certificate.error * (1 + 1e-9)
    assert not again.causal


@pytest.mark.parametrize("causal", [False, True])
def test_files_know_their_mask_and_their_length(causal: bool, tmp_path: Path) -> None:
    model = compile_sequence(
        lambda x: over.sum(x) + over.max(x), tokens=4, domain=(-1, 1), causal=causal, error=1e-3, dtype="float32"
    )
    model.save(tmp_path / "model.safetensors")
    again = load_sequence(tmp_path / "model.safetensors")
    assert again.causal is causal
    assert again.lengths == model.lengths == ((1, 2, 3, 4) if causal else (4,))
    # A plain load refuses as well what would be silently wrong: another mask, or a sum over fewer tokens.
    plain = hs.load(tmp_path / "model.safetensors")
    with pytest.raises(hs.DomainError, match="mask"):
        plain(np.zeros((4, 1)), causal=not causal)
    if not causal:
        with pytest.raises(hs.DomainError, match="fetches from token 3"):
            plain(np.zeros((3, 1)))
    assert hs.verify(plain).error <= 1e-3


def test_every_intermediate_has_a_name() -> None:
    model = compile_sequence(lambda x: x * over.shift(x) + over.max(x), tokens=4, domain=(-1, 1), error=1e-4)
    x = np.array([0.5, -0.5, 0.75])
    outputs, cache = model.run(x, cache=True)
    assert np.array_equal(outputs, model(x))
    assert np.array_equal(outputs, model.run(x))
    assert np.array_equal(outputs, cache["output"])
    prefix = model.transformer.reference_tokens
    move = cache["layer 1 / move head 0 / pattern"][prefix:, prefix:]
    assert np.allclose(move, np.eye(3, k=-1), atol=1e-6)
    assert np.allclose(cache["layer 1 / boltzmann head 0 / pattern"][prefix:, -1], 1.0, atol=1e-6)
    heads = [name for name in cache if name.endswith("pattern")]
    assert len(heads) == model.bill.heads
    assert all(np.allclose(cache[name].sum(axis=1), 1.0) for name in heads)
    assert {name.split(" / ")[0] for name in cache} == {"embedding", "layer 1", "layer 2", "output"}


def test_intermediates_of_formulas() -> None:
    model = hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-2)
    outputs, cache = model.run([0.25, -0.5], cache=True)
    assert np.array_equal(outputs, model([0.25, -0.5]))
    assert cache["layer 1 / sink head 0 / pattern"].shape == (2, 2)
    with pytest.raises(hs.DomainError):
        model.run([2.0, 0.0], cache=True)


def test_patterns_are_drawn_by_name(tmp_path: Path) -> None:
    model = compile_sequence(lambda x: over.shift(x), tokens=4, domain=(-1, 1))
    weights = plot_pattern(model, np.zeros(3), "layer 1 / move head 0", tmp_path / "pattern.png")
    assert weights.shape == (4, 4)
    assert (tmp_path / "pattern.png").stat().st_size > 1000
    with pytest.raises(hs.DomainError, match="no head named"):
        plot_pattern(model, np.zeros(3), "layer 9 / move head 0", tmp_path / "other.png")
