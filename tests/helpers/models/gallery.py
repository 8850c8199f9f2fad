"""Small models of every kind, for pages and the studio."""

from collections.abc import Callable

import numpy as np

import headsmith as hs

SQUARE = {"x": (-1, 1), "y": (-1, 1)}


def _network() -> hs.Network:
    random = np.random.default_rng(0)
    return hs.Network([(random.normal(size=(6, 2)), random.normal(size=6)), (random.normal(size=(1, 6)), [0.0])])


MODELS: dict[str, Callable[[], hs.Compiled | hs.Universal]] = {
    "product": lambda: hs.compile("x*y", SQUARE, error=1e-6),
    "maximum": lambda: hs.compile("max(x, y, -x)", SQUARE, error=1e-6, recipe="maxout"),
    "two outputs": lambda: hs.compile("exp(-x)*y + gelu(x), sqrt(1.5 + y)", SQUARE, error=1e-4),
    "gates": lambda: hs.compile("1/x", {"x": (0.5, 1)}, error=1e-3, recipe="relu"),
    "ramps": lambda: hs.compile("relu(x - y)", SQUARE, error=1e-3, recipe="ramp"),
    "float32": lambda: hs.compile("sin(3*x)", {"x": (-1, 1)}, error=1e-3, dtype="float32"),
    "neurons": lambda: hs.compile("x*y/(2 + max(x, y))", SQUARE, error=1e-3, recipe="swiglu", dtype="float32"),
    "bfloat16": lambda: hs.compile("sin(3*x)", {"x": (-1, 1)}, error=0.2, dtype="bfloat16"),
    "float16": lambda: hs.compile("x*y, max(x, y)", SQUARE, error=0.1, dtype="float16"),
    "network": lambda: hs.compile(_network(), (-1, 1), error=1e-6),
    "four tokens": lambda: hs.compile("x*x", {"x": (-1, 1)}, error=1e-3, tokens=4),
    "sorting": lambda: hs.compile_sequence(lambda x: hs.tokens.sort(x[:, 0]), tokens=4, domain=(0, 10)),
    "centred": lambda: hs.compile_sequence(lambda x: x - hs.tokens.mean(x), tokens=64, domain=(-1, 1), error=1e-9),
    "causal": lambda: hs.compile_sequence(lambda x: hs.tokens.max(x[:, 0]), tokens=8, domain=(0, 1), causal=True),
    "ridge": lambda: hs.in_context.ridge(0.5, steps=2, features=1, examples=8, error=1e-3),
    "classes": lambda: hs.in_context.logistic(steps=2, features=2, examples=6, decay=0.1, error=1e-2),
    "neighbours": lambda: hs.in_context.kernel_regression(0.5, features=1, examples=16, error=1e-4),
    "hardmax": lambda: hs.compile("abs(x) + relu(y)", SQUARE, error=1e-3, attention="hardmax"),
    "sparsemax": lambda: hs.compile("abs(x) + relu(y)", SQUARE, error=1e-3, attention="sparsemax"),
    "sigmoid": lambda: hs.compile("abs(x) + relu(y)", SQUARE, error=1e-3, attention="sigmoid"),
    "relu attention": lambda: hs.compile("x*y", SQUARE, error=1e-2, attention="relu"),
    "linear": lambda: hs.compile("x*y + x*x*y", SQUARE, error=1e-9, attention="linear"),
    "elu+1": lambda: hs.compile("abs(x) + relu(y)", SQUARE, error=1e-3, attention="elu+1"),
    "a softmax at the end": lambda: hs.compile_sequence(
        lambda x: np.sin(x), tokens=2, domain=(-1, 1), error=0.5, lipschitz=1.0, architecture="one layer and a softmax"
    ),
    "sampled": lambda: hs.compile_sequence(
        lambda x: np.full((2, 1), np.sin(x.sum())), tokens=2, domain=(0, 1), error=0.3, lipschitz=1.5
    ),
}


class Gallery(dict[str, hs.Compiled | hs.Universal]):
    """Models by name, compiled on first use."""

    def __missing__(self, name: str) -> hs.Compiled | hs.Universal:
        self[name] = MODELS[name]()
        return self[name]
