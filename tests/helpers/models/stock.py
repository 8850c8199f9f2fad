"""Small models that stock architectures can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headsmith as hs
from helpers.models.networks import random_network

T = hs.tokens


def sequence(program: Callable[[Any], Any], **options: Any) -> Any:
    options = {"tokens": 5, "causal": True, "dtype": "float32", "error": 1e-2} | options
    return hs.compile_sequence(program, domain=(-1, 1), **options)


MODELS: dict[str, Callable[[], Any]] = {
    "product": lambda: hs.compile("x*y", (-1, 1), 1e-3, dtype="float32"),
    "table": lambda: hs.compile("exp(x)/2 + y, relu(x)", (-1, 1), 1e-2, dtype="float32"),
    "ramp": lambda: hs.compile("relu(x)", (-1, 1), 5e-2, dtype="float32", recipe="ramp"),
    "network": lambda: hs.compile(random_network([3, 6, 5, 2]), (-1, 1), 1e-1, dtype="float32"),
    "tokens": lambda: hs.compile("x*abs(y)", (-1, 1), 1e-2, dtype="float32", tokens=3),
    "mean and maximum": lambda: sequence(lambda x: T.cumulative_sum(x) + T.max(x)),
    "shift": lambda: sequence(lambda x: x * T.shift(x, 1)),
    "neurons": lambda: hs.compile("x*y - relu(y)*x", (-1, 1), 1e-3, dtype="float32", recipe="swiglu"),
    "heads and neurons": lambda: hs.compile("y*x/(2 + y)", (-1, 1), 1e-2, dtype="float32", recipe="swiglu"),
    "means of products": lambda: sequence(lambda x: T.mean(x * x) * x, recipe="swiglu"),
    "attention": lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0])),
}

GPT2: dict[str, Callable[[], Any]] = {
    "product": lambda: hs.compile("x*y", (-1, 1), 2e-4, dtype="float32"),
    "network": lambda: hs.compile(random_network([2, 3, 1]), (-1, 1), 1e-1, dtype="float32"),
    "table": lambda: hs.compile("exp(x)", (-1, 1), 1e-2, dtype="float32"),
    "cleared": lambda: hs.compile(random_network([2, *[8] * 5, 1], weight=0.7), (-1, 1), 1e-1, dtype="float32"),
    "means": lambda: sequence(lambda x: T.mean(x) - T.shift(x, 1), error=1e-3),
    "maximum": lambda: sequence(T.max),
    "products": lambda: sequence(lambda x: x * T.shift(x, 1)),
    "attention": lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0])),
}


def points(model: Any, rng: np.random.Generator) -> Any:
    tokens, inputs = model.transformer.tokens, model.box.size
    shape = (512, inputs) if tokens == 1 else (100, tokens, inputs)
    return rng.uniform(-1, 1, shape).astype(np.float32)
