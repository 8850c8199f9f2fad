"""What every tightening of the kernel buys: each is switched off, and the bounds of a corpus are proved again.

    python benchmarks/ablation.py             120 models; some minutes
    python benchmarks/ablation.py 12          every tenth of them

For each tightening: of how many models the bound moves by 0.5 % or more, the largest factor, the sum of all bounds over
what it was (in logarithms: the geometric mean of the factors), and how many models are no longer certified at all,
because what they read is further off than their proof allows. A tightening that moves no bound and refuses nothing
earns no line in the kernel.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

import headsmith as hs
from headsmith.export.file import header_of
from headsmith.kernel.core import arithmetic, flow, ranges, walk
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused

MOVED = 1.005

Contents = tuple[Any, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Tightening:
    """What is switched off: lists of the proof that are left out, and functions of the kernel with what takes their
    place."""

    name: str
    lists: tuple[str, ...] = ()
    patches: tuple[tuple[Any, str, Any], ...] = ()

    def bound(self, contents: Contents) -> float:
        """The bound without it; infinity where nothing is certified any more."""
        header, tensors = json.loads(json.dumps(contents[0])), contents[1]
        header["proof"] |= {name: [] for name in self.lists}
        with ExitStack() as stack:
            for module, name, other in self.patches:
                stack.enter_context(patch.object(module, name, other))
            try:
                return proved(header, tensors).error
            except Refused:
                return math.inf


def one_step(result: Any, _: Any, direction: float) -> Any:
    """Every end one step further out, whether or not it was exact."""
    return np.nextafter(result, direction)


TIGHTENINGS = [
    Tightening("nothing"),
    Tightening("views", ("views",)),
    Tightening("steps of descent, thresholds", ("steps",)),
    Tightening("powers of Newton's iteration", ("powers",)),
    Tightening("diagonals of norms", ("norms",)),
    Tightening("linear bounds of ranges", ("linear",)),
    Tightening("folds", patches=((flow, "collect", lambda c, readers, number, *_: (None, readers[number])),)),
    Tightening("a closer look by gains", patches=((walk, "CLOSE", math.inf),)),
    Tightening("ends of sums and products that are exact", patches=((arithmetic, "stepped", one_step),)),
    Tightening("piecewise linear functions of one node", ("bends",)),
    Tightening("gaps of means and extremes", patches=((ranges, "_is_gap", lambda *_: False),)),
]


def network(widths: tuple[int, ...], seed: int) -> hs.Network:
    """A random network of these widths."""
    rng = np.random.default_rng(seed)
    return hs.Network([(rng.normal(size=(b, a)) / np.sqrt(a), 0.3 * rng.normal(size=b)) for a, b in pairwise(widths)])


FORMULAS = (
    "x*y",
    "x*y*y",
    "sin(x)",
    "exp(x*y)",
    "x/(2+y)",
    "max(x, y, x*y)",
    "norm(x, y)",
    "tanh(2*x) - y",
    "abs(x - y) + x*y",
    "sigmoid(x)*y",
    "sqrt(2 + x) + y**3",
    "log(2 + x*y)",
    "relu(x) - relu(y - x)",
    "gelu(x + y)",
    "cos(x*y) + sin(y)",
)
SHAPES = ((2, 8, 1), (3, 8, 8, 2), (4, 12, 12, 12, 2), (2, 6, 6, 6, 6, 1), (8, 16, 16, 4))
T = hs.tokens
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x - T.mean(x),
    "spread": lambda x: T.max(x) - T.min(x),
    "sort": T.sort,
    "attention": lambda x: T.attend(x, x, x),
    "shift": lambda x: hs.relu(T.shift(x, 1) - x),
    "variance": lambda x: T.mean((x - T.mean(x)) ** 2),
}


def corpus() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Models of all kinds, by name, each made when it is asked for."""
    box = (-1, 1)
    for formula in FORMULAS:
        for recipe, error in (("native", 1e-4), ("native", 1e-7), ("relu", 1e-2)):
            yield f"{formula} {recipe} {error:g}", lambda f=formula, r=recipe, e=error: hs.compile(f, box, e, recipe=r)
    for widths in SHAPES:
        for seed in range(4):
            yield f"network {widths} {seed}", lambda w=widths, s=seed: hs.compile(network(w, s), box, 1e-3)
        yield f"network {widths} float32", lambda w=widths: hs.compile(network(w, 9), box, 2e-2, dtype="float32")
    for attention in ("hardmax", "sparsemax", "sigmoid", "relu", "elu+1"):
        for formula in ("relu(x) - relu(y - x)", "max(x, y)", "x*y"):
            other = 1e-3 if attention != "relu" else 0.1
            yield f"{formula} {attention}", lambda f=formula, a=attention, e=other: hs.compile(f, box, e, attention=a)
    for name, program in PROGRAMS.items():
        for tokens, dtype in ((4, "float64"), (8, "float64"), (4, "float32")):
            options: Any = {"tokens": tokens, "dtype": dtype, "domain": box, "error": 1e-2}
            yield f"{name} {tokens} {dtype}", lambda p=program, o=options: hs.compile_sequence(p, **o)
    for steps in (1, 2, 3):
        for name in ("least_squares", "logistic"):
            yield f"{name} {steps}", lambda n=name, s=steps: getattr(hs.in_context, n)(s, 2, 4, error=1e-2)
        yield f"ridge {steps}", lambda s=steps: hs.in_context.ridge(0.5, s, 2, 4, error=1e-2)
        yield f"lasso {steps}", lambda s=steps: hs.in_context.lasso(0.05, s, 2, 4, error=5e-2)
        yield f"newton {steps}", lambda s=steps: hs.in_context.newton(0.1, s, 1, 3, error=1e-2)
    for seed in range(3):
        yield f"pieces {seed}", lambda s=seed: hs.compile(network((2, 5, 1), s), box, 1e-3, recipe="maxout")


def contents_of(make: Callable[[], Any]) -> Contents | None:
    """The header and the tensors of a model, or None where there is none within its error."""
    try:
        model = make()
    except hs.HeadsmithError:
        return None
    tensors: dict[str, Any] = {}
    return json.loads(json.dumps(header_of(model.contents(), tensors))), tensors


@dataclass(frozen=True)
class Row:
    """What became of all bounds without one tightening."""

    name: str
    moved: int
    largest: float
    mean: float
    refused: int


def table(models: list[Contents]) -> list[Row]:
    """One row for each tightening."""
    before, rows = [TIGHTENINGS[0].bound(each) for each in models], []
    for tightening in TIGHTENINGS:
        after = [tightening.bound(each) for each in models]
        ratios = [b / a if a else 1.0 for a, b in zip(before, after, strict=True)]
        finite = [ratio for ratio in ratios if math.isfinite(ratio)]
        moved, mean = sum(ratio >= MOVED for ratio in finite), float(np.exp(np.mean(np.log(finite or [1.0]))))
        rows.append(Row(tightening.name, moved, max(finite, default=1.0), mean, len(ratios) - len(finite)))
    return rows


def main(count: int) -> None:
    makers = list(corpus())
    chosen = makers[:: max(len(makers) // count, 1)]
    models = [each for each in (contents_of(make) for _, make in chosen) if each is not None]
    print(f"{len(models)} models\n\n{'without':42s} {'moved':>5s} {'largest':>9s} {'mean':>7s} {'refused':>7s}")
    for row in table(models):
        print(f"{row.name:42s} {row.moved:5d} {row.largest:9.4g} {row.mean:7.4g} {row.refused:7d}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20)
