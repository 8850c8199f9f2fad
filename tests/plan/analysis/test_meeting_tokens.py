"""Theorem: where an error reaches the output through its own token and through others, the two never cancel in a bound.

Errors at different tokens are different numbers, and so are the slopes of gates there. A bound that adds the gains of
both ways first, r + mean(r) as an error times 2, or r - mean(r) as an error times 0, is false: the worst case has one
sign here and the other everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.attacks.proving import proven
from helpers.attacks.sequences import worst_ratio
from helpers.oracles.precise import error_at, precise

import headsmith as hs
from headsmith.core.intervals import Box
from headsmith.kernel.core.arithmetic import Interval, Upper
from headsmith.kernel.core.flow import Far, Gain
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.plan.analysis.flow import flow_of, known_of
from headsmith.plan.analysis.ranges import ranges
from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import Link
from headsmith.transformer.ir import Layer

TOKENS = 8


def one_against_all(model: hs.CompiledSequence, here: Any, others: Any) -> float:
    """The largest error over bound at the first token, which holds `here` where all others hold `others`."""
    worst = 0.0
    for own in here:
        for other in others:
            x = np.tile(np.atleast_1d(other), (TOKENS, 1)).astype(np.float64)
            x[0] = own
            off = error_at(model(x), precise(model.graph, x))[0]
            worst = max(worst, float(np.max(off / model.certificate.outputs)))
    return worst


@pytest.mark.parametrize("how", ["mean", "attend"])
def test_one_sided_errors(how: str) -> None:
    """r and q err downwards. At the first token q is exact, everywhere else both err."""

    def program(x: Any) -> Any:
        r, q = hs.relu(x[:, 0]), hs.relu(x[:, 1])
        zero = 0.0 * x[:, 0] + x[:, 1] * 0.0
        pooled = hs.tokens.mean(r + q) if how == "mean" else hs.tokens.attend([x[:, 2]], [x[:, 2]], r + q)
        return r - q + pooled + zero

    model = hs.compile_sequence(program, tokens=TOKENS, features=3, domain=[(-1, 1), (-1, 1), (0, 0)], error=1e-2)
    gates = next(bank for bank in model.transformer.layers[0].banks if isinstance(bank, SinkBank))
    peak = 1.278 / float(gates.query_scale[0] * gates.key_scale[0])
    found = one_against_all(model, [(peak, -1.0, 0.0)], [(peak, peak, 0.0), (-peak, -peak, 0.0)])
    assert 0.9 < found <= 1.0


def test_gates_at_other_tokens_have_other_slopes() -> None:
    """z is a square that a table approximates, r - q + mean(r + q) two gates of it: here both gates may be closed, or
    one open, and elsewhere both are open."""

    def program(x: Any) -> Any:
        z = x[:, 0] ** 2
        r, q = hs.relu(z - 1), hs.relu(z - 2)
        return r - q + hs.tokens.mean(r + q)

    model = hs.compile_sequence(program, tokens=TOKENS, domain=(-2, 2), error=1e-2)
    sharp = model.transformer
    layers = [
        Layer(
            tuple(
                replace(b, query_scale=1024 * b.query_scale, position_gain=64 * b.position_gain, reference_gain=400.0)
                if isinstance(b, SinkBank)
                else b
                for b in layer.banks
            )
        )
        for layer in sharp.layers
    ]
    sharp = replace(sharp, layers=tuple(layers))
    bound = proven(model, sharp)
    assert bound.parts["approximation"] > 0.9 * bound.error
    grid = np.linspace(-2, 2, 41)
    found = one_against_all(replace(model, transformer=sharp, certificate=bound), grid, [1.5, 1.7, 1.9, 2.0])
    assert 0.5 < found <= 1.0


def test_gains_here_and_elsewhere_are_kept_apart() -> None:
    """out = 2 g - mean(g), g = relu(x): an error of g moves it by 2 here and by -1 elsewhere, one of x through slopes
    that differ."""
    b = Builder(["x"])
    gate = b.relu(0)
    graph = b.graph(b.affine([(gate, [[2.0]]), (b.pool("mean", gate), [[-1.0]])], [0.0]))
    found = ranges(graph, Box(("x",), np.array([-1.0]), np.array([1.0])))
    gains = flow_of(known_of(graph, {}), found, {}).gains
    far = gains[gate].far
    assert far is not None
    assert (gains[gate].here.low.item(), gains[gate].here.high.item()) == pytest.approx((2.0, 2.0))
    sums = [each.value.item() for each in (far.rising, far.falling, far.size)]
    assert sums == pytest.approx([0.0, 1.0, 1.0], abs=1e-12)
    assert gains[0].anywhere.size.value.item() == pytest.approx(3.0)
    down, up = gains[gate].pushes(Interval(np.array([-1.0]), np.array([0.0])))
    assert (down.value.item(), up.value.item()) == pytest.approx((2.0, 1.0))


def test_pushes_bound_every_choice_of_errors(rng: np.random.Generator) -> None:
    """Random gains of five tokens, random errors at each: the output moves by no more than is said, and the worst is
    attained."""
    for _ in range(200):
        here, others = rng.normal(0, 1), rng.normal(0, 1, 5)
        rising, falling = np.maximum(others, 0).sum(), np.maximum(-others, 0).sum()
        far = Far(*(Upper([[each]]) for each in (rising, falling, rising + falling)))
        gain = Gain(Interval(np.array([[here]]), np.array([[here]])), far)
        low, high = -rng.random(), rng.random() * rng.integers(0, 2)
        down, up = (float(each.value.item()) for each in gain.pushes(Interval(np.array([low]), np.array([high]))))
        ends = [
            sum(max(g * low, g * high) for g in (here, *others)),
            sum(min(g * low, g * high) for g in (here, *others)),
        ]
        assert ends[0] <= up
        assert -ends[1] <= down
        assert up <= ends[0] * (1.0 + 1e-12) + 1e-300 or high > 0.0


def gates_here_and_there(rng: np.random.Generator, tokens: int, causal: bool) -> Graph:
    """A few gates that are read here with one sign and through other tokens with another."""
    inputs = int(rng.integers(1, 4))
    b = Builder([f"x{i}" for i in range(inputs)])

    def image(node: int, values: list[float], size: int = 2) -> tuple[int, Any]:
        return node, rng.choice(values, (size, b.size(node)))

    pool = [b.relu(b.affine([image(0, [-1.0, 1.0, 0.0, 0.5])], rng.choice([0.0, 0.3, -0.3], 2))) for _ in range(2)]
    for _ in range(int(rng.integers(1, 4))):
        read = [image(int(node), [-1.0, 1.0, 0.0, 1.0]) for node in rng.choice(pool, 2, replace=False)]
        sums = b.affine(read, rng.choice([0.0, -0.5], 2))
        match str(rng.choice(["mean", "move", "attend", "extreme", "relu"])):
            case "mean":
                pool.append(b.pool("mean", sums, causal))
            case "move":
                ends = [i if causal else tokens - 1 for i in range(tokens)]
                pool.append(b.move(sums, [int(rng.integers(-1, end + 1)) for end in ends]))
            case "attend":
                query = b.affine([image(0, [-3.0, 3.0, 0.0], 1)], [0.0])
                key = b.affine([image(int(rng.choice(pool)), [-1.0, 1.0], 1)], [0.0])
                pool.append(b.attend(query, key, sums, causal))
            case "extreme":
                pool.append(b.pool(rng.choice(["max", "min"]), sums, causal))
            case _:
                pool.append(b.relu(sums))
    return b.graph(b.affine([image(node, [-1.0, 1.0, 0.0], 1) for node in pool], [0.0]))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(24))
def test_random_gates_here_and_there(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    tokens = int(rng.integers(2, 5))
    graph = gates_here_and_there(rng, tokens, bool(rng.integers(2)))
    try:
        model = hs.compile(graph, (-1, 1), error=0.3, tokens=tokens, recipe="relu")
    except hs.UnreachableError:
        return
    assert worst_ratio(model, model.certificate.outputs, rng, count=100, steps=10, exact=False) <= 1.0 + 1e-9


CLAIMS: dict[str, tuple[Any, Callable[[Builder, int], int]]] = {
    "mean": (MeanBank, lambda b, v: b.pool("mean", v)),
    "move": (MoveBank, lambda b, v: b.move(v, [-1, 0, 1])),
    "attend": (AttendBank, lambda b, v: b.attend(v, v, v)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_component_that_no_head_computes(name: str) -> None:
    """One of two components is neither claimed nor read nor written: nothing computes it."""
    kind, node = CLAIMS[name]
    b = Builder(["x", "y"])
    graph = b.graph(node(b, b.affine([(0, np.eye(2))], np.zeros(2))))
    model = hs.compile(graph, (-1, 1), error=1e-3, tokens=3)
    (bank,) = model.transformer.layers[0].banks
    assert isinstance(bank, kind)
    read = [Link(link.register, dense(link.weights)[:-1], link.first) for link in bank.read]
    write = [Link(link.register, dense(link.weights)[:, :-1], link.first) for link in bank.write]
    less = replace(bank, node=bank.node[:1], component=bank.component[:1], read=tuple(read), write=tuple(write))
    broken = replace(model.transformer, layers=(Layer((less,)),))
    with pytest.raises(hs.CertificateError, match=r"heads claim \[0\]... of the 2 of node"):
        proven(model, broken)


def dense(weights: Any) -> Any:
    return np.diag(weights) if weights.ndim == 1 else weights
