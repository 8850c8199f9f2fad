"""Models with their proofs, made once: what the tests of the kernel's rules share."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import headsmith as hs
from headsmith.export.file import header_of

SQUARE = {"x": (-1, 1), "y": (-1, 1)}


def network(*widths: int, seed: int = 0) -> hs.Network:
    """A random network of these widths."""
    random = np.random.default_rng(seed)
    pairs = pairwise(widths)
    return hs.Network([(random.normal(size=(b, a)) / np.sqrt(a), 0.3 * random.normal(size=b)) for a, b in pairs])


def maxout(*widths: int) -> hs.MaxoutNetwork:
    """A random network of maxima of three, with an affine layer at the end."""
    random = np.random.default_rng(0)
    *layers, (last, outputs) = pairwise(widths)
    pairs = [(random.normal(size=(3, b, a)) / np.sqrt(a), random.normal(size=(3, b))) for a, b in layers]
    return hs.MaxoutNetwork([*pairs, (random.normal(size=(outputs, last)), np.zeros(outputs))])


MODELS: dict[str, Any] = {
    "network": lambda: hs.compile(network(3, 8, 8, 2), (-1, 1), 1e-3),
    "network of several tokens": lambda: hs.compile(network(3, 8, 2), (-1, 1), 1e-3, tokens=5),
    "network in float32": lambda: hs.compile(network(3, 8, 2), (-1, 1), 1e-2, dtype="float32"),
    "product": lambda: hs.compile("x*y", SQUARE, 1e-6),
    "three functions": lambda: hs.compile(["sigmoid(x)", "tanh(x)", "gelu(x)"], {"x": (-5, 5)}, 1e-6),
    "quotient": lambda: hs.compile("x/y", {"x": (-1, 1), "y": (0.5, 2)}, 1e-4),
    "maximum": lambda: hs.compile("max(x, y, x*y)", SQUARE, 1e-4, recipe="native"),
    "absolute value": lambda: hs.compile("log(1 + abs(x))*y", SQUARE, 1e-3),
    "product of circuits": lambda: hs.compile("x*y", SQUARE, 1e-3, recipe="relu"),
    "quotient of circuits": lambda: hs.compile("x/y", {"x": (-1, 1), "y": (0.5, 2)}, 1e-2, recipe="relu"),
    "norm of circuits": lambda: hs.compile("norm(x, y)", SQUARE, 1e-2, recipe="relu"),
    "circuit": lambda: hs.compile("sin(x)", {"x": (-3, 3)}, 1e-3, recipe="relu"),
    "one token for each piece": lambda: hs.compile("max(x, y, x - y, 0.5)", SQUARE, 1e-3, recipe="maxout"),
    "wide maxima": lambda: hs.compile(maxout(8, 16, 16, 2), (-1, 1), 1e-3, recipe="maxout"),
    "ramps of ramps": lambda: hs.compile("max(x, y, z)", dict.fromkeys("xyz", (-1, 1)), 1e-2, recipe="ramp"),
    "ramps": lambda: hs.compile("max(x, y)", SQUARE, 1e-1, recipe="ramp"),
    "mean": lambda: _sequence(lambda x: x - hs.tokens.mean(x)),
    "spread": lambda: _sequence(lambda x: hs.tokens.max(x) - hs.tokens.min(x)),
    "sort": lambda: _sequence(lambda x: hs.tokens.sort(x)),
    "sort of three": lambda: hs.compile_sequence(hs.tokens.sort, tokens=3, domain=(-1, 1), error=0.1),
    "scaling": lambda: hs.compile_sequence(scaled, tokens=4, domain=(-1, 1), error=1e-2),
    "attention": lambda: _sequence(lambda x: hs.tokens.attend(x, x, x)),
    "ridge regression in context": lambda: hs.in_context.ridge(0.5, 3, 3, 4, error=1e-4),
    "least squares in context": lambda: hs.in_context.least_squares(2, 2, 4, error=1e-3, weights=True),
    "logistic regression in context": lambda: hs.in_context.logistic(2, 2, 4, error=1e-3, decay=0.1),
    "newton's iteration in context": lambda: hs.in_context.newton(0.1, 2, 2, 4, error=1e-4, weights=True),
    "lasso in context": lambda: hs.in_context.lasso(0.05, 2, 2, 4, error=1e-2),
}


def scaled(x: Any) -> Any:
    """Min-max scaling: the denominator is positive because the largest is not below the smallest."""
    low, high = hs.tokens.min(x), hs.tokens.max(x)
    return (x - low) / (high - low + 0.1)


def _sequence(program: Any) -> Any:
    return hs.compile_sequence(program, tokens=4, features=1, domain=(-1, 1), error=1e-4)


@cache
def model_of(name: str) -> Any:
    """A compiled model, by its name."""
    return MODELS[name]()


def carried(model: Any) -> tuple[Any, dict[str, Any]]:
    """The header and the tensors of a model with its proof."""
    tensors: dict[str, Any] = {}
    header = header_of(model.contents(), tensors)
    return json.loads(json.dumps(header)), tensors


@cache
def _stored(name: str) -> tuple[str, dict[str, Any]]:
    header, tensors = carried(model_of(name))
    return json.dumps(header), tensors


def contents_of(name: str) -> tuple[Any, dict[str, Any]]:
    """The header and the tensors of a model with its proof: copies, to be changed at will."""
    header, tensors = _stored(name)
    return json.loads(header), {key: array.copy() for key, array in tensors.items()}
