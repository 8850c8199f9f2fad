"""Expressions of sympy are targets, and targets are expressions of sympy: both ways the function is the same."""

from __future__ import annotations

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.errors import TargetError
from headsmith.language.evaluation import evaluate

sympy = pytest.importorskip("sympy")
x, y = sympy.symbols("x y")

EXPRESSIONS = [
    x * y,
    sympy.sin(x) * sympy.exp(-y) + sympy.Rational(1, 3),
    (x + 2) / (y**2 + 3),
    sympy.sqrt(x**2 + y**2 + 1) - sympy.pi * x,
    sympy.Max(x, y, 0) - sympy.Min(x - y, 1) + sympy.Abs(x),
    (y**2 + 1) ** sympy.Rational(3, 2) + 2**x,
    sympy.besselj(0, x) + sympy.erf(y) + sympy.atan(x * y),
    1 / (sympy.exp(x) * (y**2 + 1)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_both_ways_the_function_is_the_same(expression, rng) -> None:
    points = rng.uniform(-1, 1, (20, 2))
    wanted = [float(expression.subs({x: a, y: b}).evalf(30)) for a, b in points]
    graph = hs.from_sympy(expression, [x, y])
    assert np.allclose(evaluate(graph, points)[:, 0], wanted, rtol=1e-12, atol=1e-12)
    back = hs.from_sympy(_plain(graph), [x, y])
    assert np.allclose(evaluate(back, points)[:, 0], wanted, rtol=1e-12, atol=1e-12)


def _plain(graph):
    from headsmith.readers.sympy_expressions import as_sympy

    (expression,) = as_sympy(graph)
    return expression.subs({sympy.Symbol(name, real=True): sympy.Symbol(name) for name in ("x", "y")})


def test_a_model_tells_its_target() -> None:
    model = hs.compile(hs.from_sympy([x * y, x + y]), {"x": (-1, 1), "y": (-1, 1)}, error=1e-2)
    real = {name: sympy.Symbol(name, real=True) for name in ("x", "y")}
    assert model.sympy == [real["x"] * real["y"], real["x"] + real["y"]]


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(TargetError, match="Heaviside is not read"):
        hs.from_sympy(sympy.Heaviside(x))
    with pytest.raises(TargetError, match="which is not among symbols"):
        hs.from_sympy(x * y, [x])
    with pytest.raises(TargetError, match="no finite real number"):
        hs.from_sympy(x + sympy.I)
    with pytest.raises(TargetError, match="no symbols"):
        hs.from_sympy(sympy.Integer(3))
