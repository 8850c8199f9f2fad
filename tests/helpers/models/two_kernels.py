"""A corpus of compiled models for the two kernels: networks, formulas and programs over tokens, of every kind that
compiles to softmax attention in float64 and float32."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import headsmith as hs

T = hs.tokens
FORMULAS = (
    "x*y, x*x, sin(x), exp(x)*y, x*y*z, 1/(2+x), max(x, y), max(x, y, z), abs(x), relu(x-y), tanh(x)*y + z, x**3 - y,"
    "sin(3*x)*cos(y), log(2+x), x/(2+y), gelu(x) + y, abs(x-y)*z, min(x, y) + x*y, x**2*y**2, softplus(x) - erf(y),"
    "clip(x, -0.5, 0.5), relu(x)*relu(y), x*y + y*z + z*x, cos(x+y+z), abs(x) + relu(y), exp(-x)*y + gelu(x),"
    "sinh(x) - y*y, arctan(2*x)*y, expm1(x)*z, x*(y - z), sigmoid(3*x) + y, sqrt(2+x), (x+y)**2, x/(3+x*x), exp(-x*x),"
    "max(x*y, z), min(x, y, z), relu(x*y), abs(x*y), sin(x)*sin(y), x*relu(y), log1p(x/2)*y, cosh(x), tan(x/2) + y"
)


def split(text: str) -> list[str]:
    """The formulas of a list: commas inside of brackets do not part them."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def network(seed: int, widths: list[int], empty: float = 0.0) -> hs.Network:
    """A random network; with `empty`, so large a part of its weights is zero."""
    random = np.random.default_rng(seed)
    layers = []
    for columns, rows in pairwise(widths):
        weights = random.normal(size=(rows, columns)) / np.sqrt(columns) * (random.random((rows, columns)) >= empty)
        layers.append((weights, 0.3 * random.normal(size=rows)))
    return hs.Network(layers)


def a_network(seed: int) -> Callable[[], Any]:
    random = np.random.default_rng(1000 + seed)
    widths = [int(random.integers(2, 8)), *random.integers(3, 20, size=int(random.integers(1, 4))).tolist()]
    widths.append(int(random.integers(1, 4)))
    dtype = "float32" if seed % 3 == 2 else "float64"
    error = 10.0 ** -int(random.integers(2, 4 if dtype == "float32" else 8))
    options: dict[str, Any] = {"tokens": 3} if seed % 10 == 9 else {}
    empty = 0.8 if seed % 7 == 5 else 0.0
    return lambda: hs.compile(network(seed, widths, empty), (-1, 1), error=error, dtype=dtype, **options)


def a_formula(seed: int) -> Callable[[], Any]:
    formulas = split(FORMULAS)
    formula, turn = formulas[seed % len(formulas)], seed // len(formulas)
    options: dict[str, Any] = [
        {"error": 1e-4},
        {"error": 1e-2, "dtype": "float32"},
        {"error": 1e-2, "recipe": "relu"},
        {"error": 1e-2, "tokens": 4},
        {"error": 1e-6},
    ][turn % 5]
    return lambda: hs.compile(formula, (-1, 1), **options)


PROGRAMS: list[tuple[Callable[[Any], Any], dict[str, Any]]] = [
    (lambda x: x - T.mean(x), {}),
    (lambda x: T.max(x[:, 0]), {"causal": True}),
    (T.cumulative_sum, {"causal": True}),
    (lambda x: T.min(x[:, 0]), {}),
    (lambda x: T.max(x[:, 0]) - T.min(x[:, 0]), {}),
    (lambda x: T.mean(x * x) - T.mean(x) * T.mean(x), {"error": 1e-3}),
    (lambda x: T.shift(x, 1), {"causal": True}),
    (lambda x: T.mean(abs(x)), {"error": 1e-3}),
    (lambda x: x * T.mean(x), {"error": 1e-3}),
    (lambda x: T.max(x[:, 0]) * 2 - T.mean(x[:, 0]), {"error": 1e-3}),
]


def a_program(seed: int) -> Callable[[], Any]:
    program, options = PROGRAMS[seed % len(PROGRAMS)]
    options = {"error": 1e-4, "tokens": 2 + seed // len(PROGRAMS), "domain": (-1, 1), **options}
    if seed // len(PROGRAMS) % 2:
        options |= {"dtype": "float32", "error": max(options["error"], 1e-3)}
    return lambda: hs.compile_sequence(program, **options)


KINDS: dict[str, Callable[[int], Callable[[], Any]]] = {
    "network": a_network,
    "formula": a_formula,
    "program": a_program,
}
