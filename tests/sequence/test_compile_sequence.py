"""compile_sequence: shapes, refusals, the table's interface, files, intermediates by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.files import load
from headsmith.model import Compiled, parts_of
from headsmith.report.pattern import plot_head, plot_pattern
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import CompiledSequence, compile_sequence

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
        (np.zeros((1, 3)), "a sequence of 1 token; this program takes 2 to 5"),
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


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.cumprod(x),
        lambda x: np.linalg.norm(x, axis=0),
        lambda x: x.flatten(),
        lambda x: np.asarray(x)[::-1],
        lambda x: x[::-1],
        lambda x: list(x),
        lambda x: sorted(x),
        lambda x: x.tolist(),
        lambda x: "text",
    ],
)
def test_what_cannot_be_traced_can_be_sampled(function: Any) -> None:
    with pytest.raises(hs.TargetError, match=r"is to be sampled, give its Lipschitz bound: .*lipschitz=L"):
        compile_sequence(function, tokens=2, domain=(-1, 1))


def falling(x: Any) -> Any:
    """Branches on its numbers: no program."""
    return x if x[0, 0] >= x[1, 0] else x[::-1]


def test_a_callable_with_a_lipschitz_bound_is_sampled() -> None:
    model = compile_sequence(falling, tokens=2, domain=(-1, 1), error=0.25, lipschitz=1, norm=np.inf)
    assert isinstance(model, hs.Universal)
    assert np.abs(model([[-0.5], [0.75]]) - [[0.75], [-0.5]]).max() <= model.certificate.error <= 0.25
    assert model.bill.layers == 2
    plane: dict[str, Any] = {"tokens": 1, "features": 2, "domain": [(-1, 1), (0, 1)], "lipschitz": [[2, 2]]}
    wide = compile_sequence(lambda x: np.hstack([x, -x, 2 * x]), error=0.5, **plane)
    assert wide(np.zeros((1, 2))).shape == (1, 6)
    last: dict[str, Any] = {"architecture": "one layer and a softmax", "max_layers": 1, "outputs": 1}
    one = compile_sequence(falling, tokens=2, domain=(-1, 1), error=0.25, lipschitz=1.0, norm=np.inf, **last)
    assert one.bill.layers == 1
    # The same, traced: certified far below what samples can say, with a few heads.
    traced = compile_sequence(lambda x: -hs.tokens.sort(-x), tokens=2, domain=(-1, 1), error=1e-6)
    assert traced.certificate.error <= 1e-6 < 0.01 < model.error
    assert traced.bill.reference_tokens < model.bill.reference_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": True}, "causal is True; a callable that is sampled .* every token looks at all"),
        ({"recipe": "relu"}, "recipe is 'relu'"),
        ({"dtype": "float32"}, "dtype is 'float32'; .* proven for float64 alone"),
        ({"cost": {"heads": 1.0}}, "cost is"),
        ({"max_layers": 1}, "max_layers is 1; a callable that is sampled takes 2 layers"),
        ({"max_layers": 0, "architecture": "one layer and a softmax"}, "max_layers is 0"),
        ({"architecture": "three layers"}, "choose one of two layers"),
        ({"outputs": 0}, "outputs is 0; it must be a positive integer"),
        ({"outputs": True}, "outputs is True"),
        ({"outputs": 2}, r"returned an array \(2, 1\); it needs \(2, 2\)"),
        ({"tokens": 2.0}, "tokens is 2.0"),
        ({"features": True}, "features is True"),
        ({"function": 3.0}, "a sequence program is a function"),
        ({"function": lambda x: 1.0}, r"returned an array \(\); it needs \(2, outputs\)"),
        ({"function": lambda x: x[:1]}, r"returned an array \(1, 1\)"),
        ({"function": lambda x: np.zeros((2, 0))}, r"returned an array \(2, 0\)"),
        ({"function": lambda x: 3.0 * x}, "the stated Lipschitz bound is false"),
        ({"lipschitz": None, "norm": 1}, "norm is for a callable that is sampled"),
        ({"lipschitz": None, "evaluation": 0.0}, "evaluation is for a callable"),
        ({"lipschitz": None, "outputs": 1}, "outputs is for a callable"),
        ({"lipschitz": None, "architecture": "one layer and a softmax"}, "architecture is for a callable"),
        ({"lipschitz": -1.0}, "not negative"),
        ({"lipschitz": "steep"}, "real numbers"),
        ({"max_nodes": 2}, "so many dimensions"),
    ],
)
def test_options_that_make_no_sense_for_samples(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"function": falling, "tokens": 2, "domain": (-1, 1), "error": 0.5, "lipschitz": 1.0}
    with pytest.raises(hs.TargetError, match=message):
        compile_sequence(**{**given, **options})


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
    again = load(tmp_path / "model.safetensors")
    assert np.array_equal(again(points), model(points))
    assert hs.verify(tmp_path / "model.safetensors").error <= model.certificate.error * (1 + 1e-9)
    assert hs.verify(again).error <= model.certificate.error * (1 + 1e-9)
    assert not again.masked


@pytest.mark.parametrize("causal", [False, True])
def test_files_know_their_mask_and_their_length(causal: bool, tmp_path: Path) -> None:
    model = compile_sequence(
        lambda x: over.sum(x) + over.max(x), tokens=4, domain=(-1, 1), causal=causal, error=1e-3, dtype="float32"
    )
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.masked is causal
    assert again.lengths == model.lengths == ((1, 2, 3, 4) if causal else (4,))
    # The bare transformer refuses as well what would be silently wrong: another mask, or a sum over fewer tokens.
    plain = Compiled(**parts_of(again))
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
    # The quick run may add in another order.
    assert np.allclose(outputs, model(x), rtol=1e-14, atol=1e-15)
    assert np.array_equal(model(x), model.run(x))
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


@pytest.mark.usefixtures("coarse_pictures")
def test_patterns_are_drawn_by_name(tmp_path: Path) -> None:
    model = compile_sequence(lambda x: over.shift(x), tokens=4, domain=(-1, 1))
    weights = plot_pattern(model, np.zeros(3), "layer 1 / move head 0", tmp_path / "pattern.png")
    assert weights.shape == (4, 4)
    assert (tmp_path / "pattern.png").stat().st_size > 1000
    with pytest.raises(hs.DomainError, match="no head named"):
        plot_pattern(model, np.zeros(3), "layer 9 / move head 0", tmp_path / "other.png")
    assert plot_head(model, "layer 1 / move head 0", tmp_path / "worst.png").input.shape[1] == 1
    assert (tmp_path / "worst.png").stat().st_size > 1000


def test_a_larger_error_is_not_refused_where_a_smaller_one_is_met() -> None:
    """The scores of heads that are as accurate as can be are beyond float16: models of large errors remain."""
    for error in (9.2, 0.3):
        found = hs.compile_sequence(hs.tokens.sort, tokens=3, domain=(-1, 1), error=error, dtype="float16")
        assert found.certificate.error <= 0.3
    with pytest.raises(hs.UnreachableError) as refusal:
        hs.compile_sequence(hs.tokens.sort, tokens=3, domain=(-1, 1), error=0.1, dtype="float16")
    assert 0.1 < refusal.value.smallest <= 0.3


def test_a_sampled_callable_without_heads_is_drawn(tmp_path: Path) -> None:
    model = hs.universal(np.sin, 1, 1, 1, (-1, 1), 0.3, lipschitz=1.01, architecture="one layer and a softmax")
    hs.plot(model, tmp_path / "model.png")
    assert (tmp_path / "model.png").stat().st_size > 1000
