"""Ten families of targets, each with as many models as there are seeds: what the suite is made of.

A target is drawn from a family by a seed, and compiled for an error: the same seed gives the same target, whatever the
error. Families whose non-linearity is a ReLU gate have sharp queries, which gradients miss; others are smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.language.network import Network
from headsmith.sequence import in_context
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import compile_sequence

Generator = np.random.Generator


@dataclass(frozen=True)
class Family:
    """How models of a family are drawn and compiled: `make(generator, error)` returns a model and what it computes.
    Those of level 3 are compiled for the error `sharp`."""

    name: str
    about: str
    make: Callable[[Generator, float], tuple[Any, str]]
    sharp: float = 2e-5


def _number(rng: Generator, low: float = 0.5, high: float = 1.5) -> float:
    """A number with few digits and a sign."""
    return float(np.round(rng.uniform(low, high) * rng.choice([-1.0, 1.0]) * 16.0) / 16.0)


def _signed(value: float, text: str) -> str:
    return f"{'+' if value >= 0.0 else '-'} {abs(value):g}*{text}"


def _formula(rng: Generator, error: float) -> tuple[Any, str]:
    terms = ["x*y", "y*z", "x*z", "x**2", "relu(x - y)", "relu(y + z)", "x*y*z", "max(x, z)", "min(y, z)"]
    picked = rng.choice(terms, 3, replace=False)
    text = " ".join(_signed(_number(rng), term) for term in picked).removeprefix("+ ")
    return compile(text, {"x": (-1, 1), "y": (-1, 1), "z": (-1, 1)}, error=error), text


def _comparison(rng: Generator, error: float) -> tuple[Any, str]:
    a, b, c = (_number(rng) for _ in range(3))
    forms = [
        f"relu(x - {abs(a):g}*y) + relu(z - max(x, y))",
        f"max(x, y) - min(y, z) {_signed(a, 'relu(x + z)')}",
        f"abs(x {_signed(b, 'y')}) - relu(z - x)",
        f"max(x, max(y, z)) {_signed(c, 'abs(x - z)')}",
        f"min(max(x, y), max(y, z)) {_signed(a, 'relu(x)')}",
        f"relu(relu(x + y) - {abs(b):g}*relu(z))",
    ]
    text = str(rng.choice(forms))
    names = ("x", "y", "z")
    return compile(text, {name: (-1, 1) for name in names if name in text}, error=error, recipe="relu"), text


def _sequence(function: Callable[[Any], Any], tokens: int, error: float, **options: Any) -> Any:
    return compile_sequence(function, tokens=tokens, domain=(-1, 1), error=error, **options)


def _sort(rng: Generator, error: float) -> tuple[Any, str]:
    tokens, scale = int(rng.integers(3, 5)), abs(_number(rng))
    kind = int(rng.integers(0, 3))
    if kind == 0:
        return _sequence(lambda x: scale * over.sort(x[:, 0]), tokens, error), f"{scale:g} * sort of {tokens} tokens"
    if kind == 1:
        return (
            _sequence(lambda x: over.sort(x[:, 0]) - scale * x[:, 0], tokens, error),
            f"sort of {tokens} tokens - {scale:g}*x",
        )
    place = int(rng.integers(0, tokens))
    return (
        _sequence(lambda x: scale * over.at(over.sort(x[:, 0]), place), tokens, error),
        f"{scale:g} * number {place} in order of {tokens} tokens",
    )


def _counting(rng: Generator, error: float) -> tuple[Any, str]:
    tokens, edge, steep = int(rng.integers(4, 9)), _number(rng, 0.0, 0.5), float(rng.integers(2, 5))

    def program(x: Any) -> Any:
        from headsmith.language.library import clip

        return over.mean(clip(steep * (x[:, 0] - edge), 0.0, 1.0))

    text = f"share of {tokens} tokens above {edge:g}, with a ramp of slope {steep:g}"
    return _sequence(program, tokens, error), text


def _averages(rng: Generator, error: float) -> tuple[Any, str]:
    tokens, window, scale = int(rng.integers(4, 8)), int(rng.integers(2, 4)), _number(rng)

    def program(x: Any) -> Any:
        from headsmith.language.library import relu

        return relu(x[:, 0] - over.moving_average(x[:, 0], window)) + scale * over.max(x[:, 0])

    text = f"relu(x - mean of the last {window}) {_signed(scale, 'max so far')}, {tokens} tokens"
    return _sequence(program, tokens, error, causal=True), text


def _induction(rng: Generator, error: float) -> tuple[Any, str]:
    tokens, back, scale = int(rng.integers(4, 8)), int(rng.integers(1, 3)), _number(rng)

    def program(x: Any) -> Any:
        from headsmith.language.library import relu

        return relu(over.shift(x[:, 0], back) - x[:, 0]) + scale * over.shift(x[:, 0], 1)

    text = f"relu(x {back} back - x) {_signed(scale, 'x 1 back')}, {tokens} tokens"
    return _sequence(program, tokens, error), text


def _lookup(rng: Generator, error: float) -> tuple[Any, str]:
    a, b, c = (_number(rng, 1.0, 3.0) for _ in range(3))
    forms = [
        f"sin({a:g}*x) {_signed(c, f'tanh({b:g}*y)')}",
        f"sin({a:g}*x)*y {_signed(c, 'z')}",
        f"tanh({a:g}*x)*y {_signed(c, 'z')}",
        f"cos({a:g}*x) {_signed(c, 'y*z')}",
        f"sin({a:g}*x) {_signed(c, f'cos({b:g}*y)')}",
    ]
    text = str(rng.choice(forms))
    return compile(
        text, {name: (-1, 1) for name in ("x", "y", "z") if name in text.replace("sin", "")}, error=error
    ), text


def _context(rng: Generator, error: float) -> tuple[Any, str]:
    steps, features, examples = 1, int(rng.integers(1, 3)), int(rng.integers(3, 5))
    decay = abs(_number(rng, 0.25, 1.0))
    model = in_context.ridge(decay, steps, features, examples, error=error)
    return (
        model,
        f"ridge regression in context: {steps} step, {features} features, {examples} examples, decay {decay:g}",
    )


def _trained(rng: Generator, error: float) -> tuple[Any, str]:
    """A network of two hidden layers, trained on a random smooth function by full gradients; its weights are stored."""
    sizes = (2, int(rng.integers(5, 8)), int(rng.integers(4, 7)), 1)
    points = rng.uniform(-1, 1, (256, 2))
    a, b, c = rng.uniform(0.5, 2.5, 3)
    wanted = np.sin(a * points[:, 0]) * np.cos(b * points[:, 1]) + c * points[:, 0] * points[:, 1]
    weights = trained(sizes, points, wanted[:, None], rng)
    rounded = [(np.round(W * 1024) / 1024, np.round(bias * 1024) / 1024) for W, bias in weights]
    text = f"network {'-'.join(map(str, sizes))}, trained on sin({a:.3f} x) cos({b:.3f} y) + {c:.3f} x y"
    return compile(Network(rounded), (-1, 1), error=error), text


def trained(sizes: tuple[int, ...], points: Any, wanted: Any, rng: Generator) -> list[tuple[Any, Any]]:
    """Weights of a ReLU network after 400 steps of Adam on the mean squared error."""
    weights = [rng.normal(size=(o, i)) * np.sqrt(2.0 / i) for i, o in pairwise(sizes)]
    biases = [rng.normal(size=o) * 0.1 for o in sizes[1:]]
    values = [*weights, *biases]
    first, second = ([np.zeros_like(each) for each in values] for _ in range(2))
    for step in range(1, 401):
        layers = [points]
        for number, (W, b) in enumerate(zip(values[: len(weights)], values[len(weights) :], strict=True)):
            line = layers[-1] @ W.T + b
            layers.append(line if number == len(weights) - 1 else np.maximum(line, 0.0))
        slope, slopes = 2.0 * (layers[-1] - wanted) / len(points), [np.zeros(0)] * len(values)
        for number in range(len(weights) - 1, -1, -1):
            slopes[number], slopes[len(weights) + number] = slope.T @ layers[number], slope.sum(axis=0)
            slope = (slope @ values[number]) * (layers[number] > 0.0)
        for place, each in enumerate(slopes):
            first[place] = 0.9 * first[place] + 0.1 * each
            second[place] = 0.999 * second[place] + 0.001 * each**2
            size = np.sqrt(second[place] / (1.0 - 0.999**step)) + 1e-8
            values[place] = values[place] - 0.02 * first[place] / (1.0 - 0.9**step) / size
    return list(zip(values[: len(weights)], values[len(weights) :], strict=True))


def _words(rng: Generator, error: float) -> tuple[Any, str]:
    tokens, shift, edge = int(rng.integers(3, 6)), int(rng.integers(1, 3)), _number(rng, 0.0, 0.5)

    def program(x: Any) -> Any:
        from headsmith.language.library import relu

        return relu(over.max(x[:, 0]) - x[:, 0]) + relu(over.shift(x[:, 0], shift) - edge)

    text = f"how far below the largest word, and how far word {shift} back is above {edge:g}; {tokens} words of 64"
    return _sequence(program, tokens, error), text


FAMILIES = {
    each.name: each
    for each in (
        Family("formulas", "sums of products, gates and extrema of three numbers", _formula),
        Family("comparisons", "gates, maxima and minima, all by sharp sink heads", _comparison),
        Family("sort", "compare and exchange over tokens", _sort),
        Family("counting", "shares of tokens above a threshold", _counting),
        Family("averages", "moving averages and running maxima under a causal mask", _averages),
        Family("induction", "copies of earlier tokens, and comparisons with them", _induction),
        Family("lookup", "smooth functions by tables, and products with them", _lookup),
        Family("in-context", "a step of gradient descent on examples in the context", _context, 2e-4),
        Family("networks", "trained ReLU networks, gate by gate", _trained),
        Family("words", "programs over words, each with a number", _words),
    )
}
