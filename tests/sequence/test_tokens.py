"""Every operation over tokens against plain numpy: at every length, on ties, equal tokens and extremes, the certified
bound holds; pooled programs do not care for the order of tokens; causal programs are those of the prefixes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.report.sequences import SequenceSpace, candidates, falsify_sequence
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import CompiledSequence, compile_sequence

N = 6


@dataclass(frozen=True)
class Case:
    """A program of one feature, and the same in numpy: (batch, m) -> (batch, m)."""

    program: Callable[[Any], Any]
    wanted: Callable[[Any], Any]
    lengths: tuple[int, ...] = tuple(range(1, N + 1))
    symmetric: bool = False
    error: float = 1e-6


def spread(reduced: Any, v: Any) -> Any:
    return np.broadcast_to(reduced, v.shape)


def last(v: Any, k: int, fill: float) -> Any:
    """v[i - k], or the fill."""
    m = v.shape[1]
    places = np.arange(m) - k
    inside = (places >= 0) & (places < m)
    return np.where(inside, v[:, np.clip(places, 0, m - 1)], fill)


def window(v: Any, size: int) -> Any:
    padded = np.concatenate([np.repeat(v[:, :1], size - 1, axis=1), v], axis=1)
    return np.stack([padded[:, i : i + size].mean(axis=1) for i in range(v.shape[1])], axis=1)


def attended(v: Any, steep: float) -> Any:
    """The mean of v_j with weights exp(steep v_i v_j)."""
    weights = np.exp(steep * v[:, :, None] * v[:, None, :])
    return (weights * v[:, None, :]).sum(2) / weights.sum(2)


def nearby(v: Any, steep: float) -> Any:
    """The mean of v_j with weights exp(-steep (v_i - v_j)^2)."""
    weights = np.exp(-steep * (v[:, :, None] - v[:, None, :]) ** 2)
    return (weights * v[:, None, :]).sum(2) / weights.sum(2)


FULL = (N,)
CASES = {
    "mean": Case(over.mean, lambda v: spread(v.mean(1, keepdims=True), v), symmetric=True),
    "max": Case(over.max, lambda v: spread(v.max(1, keepdims=True), v), symmetric=True),
    "min": Case(over.min, lambda v: spread(v.min(1, keepdims=True), v), symmetric=True),
    "sum": Case(over.sum, lambda v: spread(v.sum(1, keepdims=True), v), FULL, True),
    "variance": Case(over.variance, lambda v: spread(v.var(1, keepdims=True), v), symmetric=True, error=2e-2),
    "softmax": Case(over.softmax, lambda v: np.exp(v) / np.exp(v).sum(1, keepdims=True), FULL, True, 0.1),
    "before": Case(lambda x: over.shift(x, 1), lambda v: last(v, 1, 0.0)),
    "after, filled": Case(lambda x: over.shift(x, -2, fill=3.0), lambda v: last(v, -2, 3.0), FULL),
    "at": Case(lambda x: over.at(x, 2), lambda v: spread(v[:, 2:3], v), (3, 4, 5, 6)),
    "the last": Case(lambda x: x[-1, 0], lambda v: spread(v[:, -1:], v), FULL),
    "attend": Case(lambda x: over.attend(3.0 * x, x, x), lambda v: attended(v, 3.0), symmetric=True),
    "attend to squares": Case(
        lambda x: over.attend([x[:, 0], 1.0, 2.0], [x[:, 0] * 4, -2 * x[:, 0] ** 2, 1.0], x[:, 0] * 2),
        lambda v: 2 * nearby(v, 2.0),
        symmetric=True,
        error=1e-3,
    ),
    "reversed": Case(lambda x: over.gather(x, range(N)[::-1]), lambda v: v[:, ::-1], FULL),
    "pairs swapped": Case(
        lambda x: over.gather(x, [1, 0, 3, 2, 5, 4]), lambda v: v[:, [1, 0, 3, 2, 5, 4][: v.shape[1]]], (2, 4, 6)
    ),
    "moving average": Case(lambda x: over.moving_average(x, 3), lambda v: window(v, 3)),
    "cumulative sum": Case(over.cumulative_sum, lambda v: np.cumsum(v, 1)),
    "position": Case(lambda x: x[:, 0] + hs.sin(over.position(x)), lambda v: v + np.sin(np.arange(v.shape[1]))),
    "length": Case(lambda x: x[:, 0] + over.length(x), lambda v: v + v.shape[1]),
    "neighbours' product": Case(lambda x: x * over.shift(x), lambda v: v * last(v, 1, 0.0), error=1e-2),
    "times the mean": Case(
        lambda x: x[:, 0] * over.mean(x[:, 0]), lambda v: v * v.mean(1, keepdims=True), symmetric=True, error=1e-2
    ),
    "hinges": Case(
        lambda x: hs.relu(x[:, 0] - over.mean(x[:, 0])) + over.max(hs.abs(x[:, 0])),
        lambda v: np.maximum(v - v.mean(1, keepdims=True), 0) + np.abs(v).max(1, keepdims=True),
        symmetric=True,
    ),
}


def compiled(case: Case, **options: Any) -> CompiledSequence:
    options = {"tokens": N, "domain": (-1, 1), "error": case.error, **options}
    return compile_sequence(case.program, **options)


@pytest.mark.parametrize("name", CASES)
def test_the_bound_holds_at_every_length(name: str) -> None:
    case = CASES[name]
    model = compiled(case)
    assert model.certificate.error <= case.error
    assert model.lengths == case.lengths
    random = np.random.default_rng(1)
    for length in case.lengths:
        x = candidates(SequenceSpace(model.box.low, model.box.high, model.lengths), length, 30, random)
        wanted = case.wanted(x[..., 0].astype(np.longdouble))
        assert np.allclose(model.target(x)[..., 0], wanted.astype(float), rtol=0, atol=1e-13)
        assert np.abs(model(x)[..., 0] - wanted).max() <= model.certificate.error
        if case.symmetric:
            order = random.permutation(length)
            # Far closer than the bound: heads that treat tokens alike do so up to rounding.
            assert np.abs(model(x)[:, order] - model(x[:, order])).max() <= 1e-9
    assert falsify_sequence(model, effort=60).ratio <= 1.0


CAUSAL = {
    "mean": lambda v: v.mean(),
    "max": lambda v: v.max(),
    "min": lambda v: v.min(),
    "sum": lambda v: v.sum(),
    "variance": lambda v: v.var(),
    "cumulative_sum": lambda v: v.sum(),
    "length": len,
    "attended": lambda v: attended(v[None], 1.0)[0, -1],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_program_is_that_of_the_prefixes(name: str) -> None:
    model = compile_sequence(
        lambda x: (over.attend(x, x, x[:, 0]) if name == "attended" else getattr(over, name)(x[:, 0])) + x[:, 0],
        tokens=N,
        domain=(-1, 1),
        error=1e-4,
        causal=True,
    )
    assert model.lengths == tuple(range(1, N + 1))
    x = candidates(SequenceSpace(model.box.low, model.box.high, model.lengths), N, 40, np.random.default_rng(2))
    got = model(x)[..., 0]
    for row, v in zip(got, x[..., 0], strict=True):
        wanted = [CAUSAL[name](v[: i + 1]) + v[i] for i in range(N)]
        assert np.abs(row - wanted).max() <= model.certificate.error + 1e-14
    for length in range(1, N):
        assert np.abs(model(x[:, :length])[..., 0] - got[:, :length]).max() <= 1e-12


def test_maxima_err_as_much_as_their_lemma_says() -> None:
    model = compile_sequence(over.max, tokens=N, domain=(-1, 1), error=1e-3)
    found = falsify_sequence(model, effort=3000)
    assert 0.8 <= found.ratio <= 1.0


def test_one_token_needs_nobody_else() -> None:
    programs = {
        "mean": over.mean,
        "max": over.max,
        "sum": over.sum,
        "sort": over.sort,
        "softmax + x": lambda x: over.softmax(x) + x - 1.0,
        "at": lambda x: over.at(x, 0),
        "edge": lambda x: over.shift(x, 1, fill="edge"),
        "average": lambda x: over.moving_average(x, 5),
        "position": lambda x: over.position(x) + x[:, 0],
        "shift": lambda x: over.shift(x, 1) + x,
        "causal": lambda x: over.cumulative_sum(x),
    }
    for name, program in programs.items():
        model = compile_sequence(program, tokens=1, domain=(-1, 1), error=1e-6, causal=name == "causal")
        assert abs(model([[0.25]]).item() - 0.25) <= model.certificate.error, name
        with pytest.raises(hs.DomainError, match="2 tokens; this program takes one"):
            model([[0.25], [0.5]])


def test_what_constants_make_up_is_folded() -> None:
    def program(x: Any) -> Any:
        place = over.position(x) / 4
        return x[:, 0] + hs.exp(-(place**2)) / (1 + place) + hs.maximum(place, 0.5) + hs.relu(place - 1) + 2**place

    model = compile_sequence(program, tokens=4, domain=(-1, 1))
    assert model.bill.heads == 0
    place = np.arange(4) / 4
    wanted = np.exp(-(place**2)) / (1 + place) + np.maximum(place, 0.5) + 2**place
    assert np.abs(model(np.zeros(4))[:, 0] - wanted).max() < 1e-14


def test_what_all_tokens_share_is_not_pooled_again() -> None:
    def program(x: Any) -> Any:
        return over.mean(over.max(x[:, 0]) + x[:, 0] - over.mean(x[:, 0])) + over.shift(over.shift(x[:, 0], 1), 1)

    model = compile_sequence(program, tokens=4, domain=(-1, 1))
    # The means cancel, and two steps are one move: a maximum and a move are left.
    assert (model.bill.layers, model.bill.heads) == (1, 2)
    x = np.array([0.1, 0.5, -0.25, 0.75])
    assert np.abs(model(x)[:, 0] - (x.max() + np.array([0, 0, *x[:2]]))).max() <= 1e-6


def test_long_sequences() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (128, 1))
    average = compile_sequence(lambda x: over.moving_average(x, 8) - over.mean(x), tokens=128, domain=(-1, 1))
    for length in (1, 7, 127, 128):
        v = x[None, :length, 0]
        wanted = window(v, 8)[0] - v.mean()
        assert np.abs(average(x[:length])[:, 0] - wanted).max() <= average.certificate.error <= 1e-11
    largest = compile_sequence(over.max, tokens=128, domain=(-1, 1))
    assert np.abs(largest(x) - x.max()).max() <= largest.certificate.error
    product = compile_sequence(lambda x: x * over.shift(x), tokens=128, domain=(-1, 1), error=1e-2)
    wanted = x * np.concatenate([[[0.0]], x[:-1]])
    assert np.abs(product(x) - wanted).max() <= product.certificate.error


NUMBERS = np.array([1.0, 2.0, 3.0])
AMBIGUOUS: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda x: x[:, 0] * NUMBERS,
    "numbers first": lambda x: NUMBERS + x[:, 0],
    "numbers, summed": lambda x: x[:, 0] - (x[:, 0] * NUMBERS).sum(),
    "numbers, larger": lambda x: hs.maximum(x[:, 0], NUMBERS),
    "constants": lambda x: np.ones((3, 1)),
    "constants beside a value": lambda x: [x[:, 0], np.ones(3)],
    "a mask": lambda x: x[:, np.array([True, False])],
    "a truth": lambda x: x[:, True],
    "complex": lambda x: x * np.array([1j, 2.0]),
    "a complex matrix": lambda x: x @ np.array([[1j], [2.0]]),
    "options": lambda x: np.multiply(x[:, 0], 2.0, where=[True, False, True]),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_numpy_would_mean_otherwise_is_refused(name: str) -> None:
    """A value stands for a number of every token; numpy would take an array beside it as one number for each."""
    with pytest.raises(hs.TargetError):
        compile_sequence(AMBIGUOUS[name], tokens=3, features=2, domain=(-1, 1))


@pytest.mark.parametrize("places", [[0, 1], [0, 1, 6], [0, 1, -1], [0, 1, 2.0]])
def test_places_that_are_none(places: list[Any]) -> None:
    with pytest.raises(hs.TargetError, match="gather"):
        compile_sequence(lambda x: over.gather(x, places), tokens=3, domain=(-1, 1))
