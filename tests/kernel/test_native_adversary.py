"""Theorem: |run(model, x) - target(x)| <= certificate for every x, for models of table, gate and ramp heads.

The oracle has fifty digits. Inputs are random, at corners and ends, and climb towards the largest error; both the
runner and a textbook run, in float64 and float32, and in an arithmetic that rounds every operation the wrong way.
Targets are what might break a proof: singularities beside the domain, domains that are points, tiny or enormous,
coefficients over many orders of magnitude, two and three layers, vectors, columns that share a head, equal nodes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.attacks import mutation
from helpers.attacks.sequences import starts, worst_ratio
from helpers.oracles.precise import Grower, error_at, precise
from helpers.oracles.textbook import Rounded, run_dense

import headsmith as hs
from headsmith.kernel.core.arithmetic import EXP_ULPS
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.heads import ramp_sides
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.transformer.dense import dense


def tightness(model: hs.Compiled, rng: np.random.Generator, **options: Any) -> float:
    """found / certified, and it is at most 1."""
    ratio = worst_ratio(model, model.certificate.outputs, rng, **options)
    assert ratio <= 1.0, f"found {ratio:.6g} times what is certified"
    assert hs.verify(model).error <= model.certificate.error * (1.0 + 1e-9)
    return ratio


# Formulas, by what is awkward about them -----------------------------------------------------------------------------

FORMULAS: dict[str, tuple[Any, Any, float]] = {
    "pole beside the domain": ("1/x", {"x": (0.01, 1)}, 1e-3),
    "logarithm near zero": ("log(x)*x", {"x": (1e-2, 1)}, 1e-3),
    "root near zero": ("sqrt(x + 1/1000)", {"x": (0, 1)}, 1e-3),
    "complex poles": ("1/(1 + 100*x*x)", {"x": (-1, 1)}, 1e-3),
    "essential singularity": ("exp(-1/x)", {"x": (0.1, 1)}, 1e-4),
    "steep": ("tanh(20*x) + x*x", {"x": (-1, 1)}, 1e-3),
    "tiny domain": ("sin(x)*exp(x)", {"x": (0.7 - 1e-8, 0.7 + 1e-8)}, 1e-10),
    "huge domain": ("sqrt(1 + x*x)", {"x": (-1e6, 1e6)}, 1e3),
    "far away": ("1/x", {"x": (1e6, 3e6)}, 1e-9),
    "small inputs": ("sin(1e8*x)", {"x": (0, 3e-8)}, 1e-5),
    "coefficients": ("1e6*sin(x) + 0.001*exp(5*x)", {"x": (-1, 1)}, 1.0),
    "a point": ("sin(x)*exp(y)", {"x": (0.3, 0.3), "y": (0.1, 0.1)}, 1e-6),
    "half a point": ("sin(x)*y", {"x": (0.3, 0.3), "y": (-1, 1)}, 1e-6),
    "one point for a pole": ("y/x", {"x": (0.3, 0.3), "y": (-1, 1)}, 1e-5),
    "at the rounding": ("sin(3*x)", {"x": (-1, 1)}, 3e-13),
    "a constant": ("sin(x) - sin(x) + 1/3", {"x": (-1, 1)}, 1e-6),
    "quotient of equals": ("exp(x)/(exp(x) + exp(y))", {"x": (-2, 2), "y": (-2, 2)}, 1e-3),
    "surface": ("x*y*(x + y)/(3 + x - y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),
    "two layers": ("exp(sin(x + y)*z)", (-1, 1), 5e-3),
    "gates between": ("max(sin(x), y)*abs(x - y)", (-1, 1), 1e-2),
    "columns": (["sin(x)", "cos(x)", "1e-3*x**3", "1e3/(x + 2)", "3"], {"x": (-1, 1)}, 1e-2),
    "parallel forms": ("sin(0.1*x + 0.2*y)*exp(0.2*x + 0.4*y) + (x + 2*y)**3", (-1, 1), 1e-4),
}


@pytest.mark.one_in(22)
@pytest.mark.parametrize("name", FORMULAS)
def test_awkward_formulas(name: str, rng: np.random.Generator) -> None:
    formula, domain, error = FORMULAS[name]
    model = hs.compile(formula, domain, error=error, recipe="native" if name != "a constant" else "auto")
    assert model.certificate.error <= error
    tightness(model, rng, count=120)


SINGLE = {"five layers": 5e-3, "columns": 0.3, "gates between": 1e-2, "steep": 2e-3}


@cache
def single(name: str) -> hs.Compiled:
    """A model in float32 whose error is near what that can do."""
    target, domain, _ = (chain(), (-1, 1), 0.0) if name == "five layers" else FORMULAS[name]
    return hs.compile(target, domain, error=SINGLE[name], recipe="native", dtype="float32")


@pytest.mark.one_in(24)
@pytest.mark.parametrize("push", ["float32", "up", "down", "out", "in", "random"])
@pytest.mark.parametrize("name", SINGLE)
def test_single_precision(name: str, push: str, rng: np.random.Generator) -> None:
    """Where rounding is a good part of the bound: as it is, and with every operation rounded the wrong way."""
    model = single(name)
    if push == "float32":
        tightness(model, rng, count=60)
        return
    written = dense(model.transformer)
    for point in starts(model, rng, 3, 1):
        got = run_dense(written, point, Rounded(2.0**-24, 2 * EXP_ULPS, push, rng))
        assert np.all(error_at(got, precise(model.graph, point)) <= model.certificate.outputs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", ["native", "ramp", "auto"])
def test_several_tokens_are_apart(recipe: str, rng: np.random.Generator) -> None:
    """A token-wise target: other tokens leak in, and no more than the bound says."""
    for dtype in ("float64", "float32"):
        model = hs.compile("max(x, y/2)*0.7 + abs(x)", (-1, 1), error=0.03, tokens=5, recipe=recipe, dtype=dtype)
        tightness(model, rng, count=60, steps=2)


# Graphs that no formula makes -----------------------------------------------------------------------------------------


def vector_functions() -> Graph:
    """Vectors through functions: each component has a head, each pair of functions shares it."""
    b = Builder(["x", "y", "z"])
    wide = b.affine([(0, [[1.0, 0.1, 0.0], [0.0, 1.0, 0.3], [-0.7, 0.0, 1.0]])], [0.1, 0.0, -0.2])
    sine, bell = b.function("sin", wide), b.function("gaussian", wide)
    product = b.product(sine, b.affine([(bell, np.ones(3)), (wide, np.full(3, 0.1))], np.zeros(3)))
    return b.graph(b.affine([(product, [[1.0, 1.0, 1.0], [0.1, -3.0, 0.0]])], [0.0, 1.0]))


def equal_nodes() -> Graph:
    """The same expression several times, and affine maps of affine maps with constants."""
    b = Builder(["x"])
    squares = [b.product(0, 0) for _ in range(3)]
    inner = b.affine([(square, [[weight]]) for square, weight in zip(squares, (0.1, 0.2, 1.0), strict=True)], [0.3])
    outer = b.affine([(inner, [[2.0]]), (b.function("sin", inner), [[1.0]])], [0.7])
    return b.graph(b.affine([(outer, [[3.0]]), (inner, [[-1.0]])], [0.1]))


def chain() -> Graph:
    """Five layers of vectors: the error of the first goes through all others."""
    b = Builder(["x", "y"])
    value = b.affine([(0, [[1.0, 0.5], [-0.5, 1.0]])], [0.0, 0.1])
    for name in ("sin", "tanh", "gelu", "softplus", "cos"):
        value = b.affine([(b.function(name, value), [[1.0, 0.3], [0.2, -1.0]])], [0.1, 0.0])
    return b.graph(value)


@pytest.mark.campaign
@pytest.mark.parametrize("make", [chain, vector_functions, equal_nodes])
@pytest.mark.parametrize("error", [1e-3, 1e-2])
def test_graphs(make: Any, error: float, rng: np.random.Generator) -> None:
    """In make test, random graphs (below) say the same."""
    model = hs.compile(make(), (-1, 1), error=error, recipe="native")
    tightness(model, rng, count=100)


KINDS = ("affine", "affine", "function", "product", "square", "quotient", "relu", "extreme", "singular")


@pytest.mark.one_in(8)
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int) -> None:
    """Anything; certified models are true, and a refusal is one of this project's own."""
    rng = np.random.default_rng([seed, 5])
    grower = Grower(rng, int(rng.integers(1, 3)))
    for _ in range(int(rng.integers(1, 4))):
        grower.grow(KINDS, int(rng.choice([1, 1, 2])))
    graph = grower.graph(int(rng.choice([1, 2])))
    width = 10.0 ** rng.choice([-6.0, -2.0, -0.3, 0.0])
    dtype = "float32" if seed % 4 == 3 else "float64"
    error = 10.0 ** -float(rng.integers(2, 4 if dtype == "float32" else 6))
    try:
        model = hs.compile(graph, (0.3 - width, 0.3 + width), error=error, dtype=dtype)
    except hs.HeadsmithError:
        return
    tightness(model, rng, count=60, steps=3)


# What must be refused -------------------------------------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("formula", ["sqrt(x*x)", "sqrt(x)", "x**0.5*x**1.5", "abs(x)**1.5"])
def test_no_table_stands_for_a_kink(formula: str) -> None:
    """Where an expression has no Taylor series, no head is proven to be it: circuits do it, or nobody."""
    low = -1.0 if "x*x" in formula or "abs" in formula else 0.0
    try:
        model = hs.compile(formula, {"x": (low, 1.0)}, error=0.03)
    except hs.HeadsmithError:
        return
    points = np.concatenate([np.linspace(low, 1.0, 401), 10.0 ** -np.arange(1.0, 300.0, 7.0)])[:, None]
    wanted = [precise(model.graph, point)[0] for point in points]
    got = model(points)
    assert np.all(error_at(got, wanted) <= model.certificate.error)


@pytest.mark.parametrize("ends", [(np.nan, np.nan), (0.0, np.nan), (-np.inf, 1.0), (1.0, np.inf)])
def test_a_ramp_on_no_interval_is_refused(ends: tuple[float, float]) -> None:
    """Bounds that overflowed are not certified, and nothing else is raised."""
    steps = np.array([0.0, 1.0])
    with pytest.raises(Refused):
        ramp_sides(steps, np.zeros(2), steps, *ends, 8)


def test_unknown_functions_are_refused() -> None:
    """A stored target whose function nobody knows, on its own or inside an expression."""
    model = hs.compile(["sin(x)", "exp(x)*x"], (-1, 1), error=0.05, recipe="native")
    for number, node in enumerate(model.graph.nodes):
        if hasattr(node, "name"):
            graph = mutation.put(model.graph, ("nodes", number, "name"), "nobody")
            with pytest.raises(hs.HeadsmithError):
                hs.verify(replace(model, graph=graph))
