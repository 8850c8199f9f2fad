"""Gains of models that exist: reverse passes against finite differences, and bounds that no input exceeds."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.lab.signal.certified import certified_gains, working_columns
from headsmith.lab.signal.gain import _gains_at, run_held
from headsmith.lab.signal.softmax_slopes import steepness
from headsmith.transformer.dense import dense

BOX = {"x": (-1, 1), "y": (-1, 1)}


SEQUENCE: dict[str, Any] = {"tokens": 4, "domain": (-1, 1), "error": 1e-3}
MODELS: dict[str, Callable[[], hs.Compiled]] = {
    "gate": lambda: hs.compile("x*y", BOX, error=1e-6),
    "table": lambda: hs.compile("tanh(2*x)*exp(y)", BOX, error=1e-4),
    "sink": lambda: hs.compile(random_network([3, 5, 4, 2]), (-1, 1), error=1e-4),
    "ramp": lambda: hs.compile("max(x, y)", BOX, error=1e-2, recipe="ramp"),
    "boltzmann": lambda: hs.compile("max(x, y, 0.3)", BOX, error=1e-3, recipe="maxout"),
    "circuit": lambda: hs.compile("x*y", BOX, error=1e-1, recipe="relu"),
    "several tokens": lambda: hs.compile("x*y + relu(x)", BOX, error=1e-2, tokens=3),
    "mean": lambda: hs.compile_sequence(lambda x: x - hs.tokens.mean(x), features=1, **SEQUENCE),
    "maximum": lambda: hs.compile_sequence(lambda x: hs.tokens.max(x), features=1, **SEQUENCE),
    "causal": lambda: hs.compile_sequence(lambda x: hs.tokens.mean(x), features=1, causal=True, **SEQUENCE),
}


@cache
def made(name: str) -> hs.Compiled:
    """One model for each kind of head."""
    return MODELS[name]()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", MODELS)
def test_no_gain_found_is_above_the_certified_one(name: str) -> None:
    found = hs.signal.measure(made(name), samples=100, seed=3)
    assert found.layers == made(name).bill.layers
    assert found.certified is not None
    assert np.isfinite(found.certified).all()
    assert (found.average <= found.largest_found * (1 + 1e-12)).all()
    assert (found.largest_found <= found.certified).all()
    # After the last layer nothing depends on the input: the read-out's own weights.
    assert found.certified[-1] == pytest.approx(found.average[-1], rel=1e-6)


@pytest.mark.parametrize("name", ["gate", "table", "sink", "ramp", "several tokens", "maximum"])
def test_shallow_models_have_tight_bounds(name: str) -> None:
    found = hs.signal.measure(made(name), samples=200)
    assert found.certified is not None
    assert found.certified[0] <= 12.0 * found.largest_found[0]


def test_the_bound_holds_at_the_kinks_of_gates() -> None:
    compiled = hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-3, recipe="relu")
    model, gate = dense(compiled.transformer), compiled.transformer.layers[0].banks[0]
    scale = float(gate.query_scale[0] * gate.key_scale[0])
    found = hs.signal.measure(compiled, samples=2)
    near = [_gains_at(compiled.transformer, model, np.array([[y / scale]]), False, False)[0] for y in (-2.3994, 2.3994)]
    assert found.certified is not None
    # One for the register of the output itself, and the square of the gate's slope, which overshoots to 1.0998.
    assert 2.2 < max(near) <= found.certified[0] <= 2.22


@pytest.mark.parametrize("name", ["gate", "sink", "several tokens", "mean", "maximum", "causal"])
def test_the_reverse_pass_is_the_derivative(name: str) -> None:
    """The gain before the first layer, by moving the working registers at the start through the embedding's bias."""
    compiled = made(name)
    transformer, causal = compiled.transformer, name == "causal"
    model, rng = dense(transformer), np.random.default_rng(4)
    x = compiled.box.low + (compiled.box.high - compiled.box.low) * rng.random((transformer.tokens, compiled.box.size))
    total, step = 0.0, 1e-6
    for token in range(transformer.tokens):
        for column in np.flatnonzero(working_columns(transformer)):
            ends = []
            for sign in (1.0, -1.0):
                W_pos = model.W_pos.copy()
                W_pos[token, column] += sign * step
                ends.append(run_held(replace(model, W_pos=W_pos), x, causal)[0])
            total += float((((ends[0] - ends[1]) / (2 * step)) ** 2).sum())
    outputs = transformer.tokens * transformer.outputs
    assert _gains_at(transformer, model, x, causal, False)[0] == pytest.approx(total / outputs, rel=1e-3)


@pytest.mark.parametrize("name", ["gate", "table", "sink", "several tokens", "maximum"])
def test_the_run_with_held_references_is_the_model(name: str) -> None:
    compiled, rng = made(name), np.random.default_rng(5)
    tokens = compiled.transformer.tokens
    x = compiled.box.low + (compiled.box.high - compiled.box.low) * rng.random((tokens, compiled.box.size))
    outputs, _ = run_held(dense(compiled.transformer), x, False)
    assert np.abs(outputs - compiled(x)).max() <= 2.0 * compiled.certificate.error


@pytest.mark.parametrize("arguments", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_slopes_of_softmax_means_are_enclosed(arguments: int, seed: int) -> None:
    rng = np.random.default_rng([arguments, seed])
    slope = rng.standard_normal((7, arguments)) * 10.0 ** rng.uniform(-1, 1.5)
    offset, values = rng.standard_normal(7) * 3.0, rng.standard_normal((7, 2)) * 5.0
    low, high = np.full(arguments, -1.0), np.full(arguments, 0.5)
    found = steepness(slope, offset, values, low, high)
    points = low + (high - low) * rng.random((40_000, arguments))
    scores = points @ slope.T + offset
    w = np.exp(scores - scores.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    g = w @ values
    slopes = np.einsum("ck,cka,ckv->cva", w, slope[None] - (w @ slope)[:, None], values[None] - g[:, None])
    assert (slopes.min(axis=0) >= found.slopes.low).all()
    assert (slopes.max(axis=0) <= found.slopes.high).all()
    assert ((g.min(axis=0) >= found.values.low) & (g.max(axis=0) <= found.values.high)).all()
    # And not by much.
    assert (found.slopes.magnitude <= 1.5 * np.abs(slopes).max(axis=0) + 1e-3).all()


def test_blocks_of_ones_own() -> None:
    rng = np.random.default_rng(0)
    W = [rng.standard_normal((6, 6)) / 2 for _ in range(3)]
    found = hs.signal.measure([lambda h, M=M: h @ M for M in W], np.ones((2, 6)), samples=400)
    whole = [np.eye(6), W[2], W[1] @ W[2], W[0] @ W[1] @ W[2]][::-1]
    for place, matrix in enumerate(whole):
        exact = float((matrix**2).sum()) / 6
        assert abs(found.average[place] - exact) <= 4.0 * found.standard_error[place] + 1e-9
    assert found.certified is None
    assert found.average[-1] == 1.0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(TargetError, match="give the inputs"):
        hs.signal.measure([np.tanh])
    with pytest.raises(TargetError, match="cannot measure a int"):
        hs.signal.measure(3)
    with pytest.raises(TargetError, match="no blocks"):
        hs.signal.measure([], np.ones(3))
    with pytest.raises(TargetError, match="a block is a str"):
        hs.signal.measure(["tanh"], np.ones(3))
    with pytest.raises(TargetError, match="measured on its domain"):
        hs.signal.measure(made("gate"), np.ones(2))
    with pytest.raises(TargetError, match="unknown norm 'batchnorm'"):
        hs.signal.measure("batchnorm")


@pytest.mark.parametrize(("target", "error"), [("x*x", 3e-3), ("sin(3*x)", 3e-2), ("abs(x) + relu(x - 0.2)", 1e-1)])
def test_circuits_stay_below_their_bound_between_all_kinks(target: str, error: float) -> None:
    compiled = hs.compile(target, {"x": (-1, 1)}, error=error, recipe="relu")
    model = dense(compiled.transformer)
    bound = certified_gains(compiled.transformer, model, compiled.box)
    points = np.linspace(-1.0, 1.0, 801)[:, None, None]
    worst = np.max([_gains_at(compiled.transformer, model, x, False, False) for x in points], axis=0)
    assert (worst <= bound).all()
    # Folds write into the register that they read: without that, 9 for each layer would be lost.
    assert bound[0] <= 12.0 * worst[0]


def test_torch_modules_are_blocks_too() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    chain = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Tanh())
    inputs = np.linspace(-1.0, 1.0, 10).reshape(2, 5)
    W, b = (value.detach().double().numpy() for value in chain[0].parameters())
    same = hs.signal.measure([lambda h: h @ W.T + b, np.tanh], inputs, samples=8)
    assert np.allclose(hs.signal.measure(chain, inputs, samples=8).average, same.average, rtol=1e-10)
