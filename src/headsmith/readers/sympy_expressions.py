"""Expressions of sympy as targets, and targets as expressions of sympy. sympy is an extra, imported here alone.

Symbolic regression ends in an expression of sympy. It is read node by node, as a formula is: numbers that are no
rationals (pi, sqrt(2)) are rounded to doubles, and what is no function of real numbers that is known is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import add, mul
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.extras import install
from headsmith.language import library
from headsmith.language.graph import (
    Affine,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Product,
    Quotient,
    Relu,
)
from headsmith.language.trace import graph_of

NAMES = {
    "Abs": "absolute",
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "exp": "exp",
    "log": "log",
    "Max": "maximum",
    "Min": "minimum",
    "sin": "sin",
    "sinh": "sinh",
    "tan": "tan",
    "tanh": "tanh",
}
"""Functions of sympy, and those of `hs` that compute the same."""


def from_sympy(expression: Any, symbols: Sequence[Any] | None = None) -> Graph:
    """An expression of sympy, or a list of them (several outputs), as a target for `hs.compile`.

    Its inputs are the free symbols in alphabetical order, or `symbols` in theirs. TargetError names what cannot be
    read.
    """
    sympy = _package()
    expressions = [
        sympy.sympify(each) for each in (expression if isinstance(expression, list | tuple) else [expression])
    ]
    free = sorted(set().union(*(each.free_symbols for each in expressions)), key=str)
    inputs = free if symbols is None else [sympy.sympify(symbol) for symbol in symbols]
    missing = [symbol for symbol in free if symbol not in inputs]
    if missing:
        raise TargetError(f"the expression has the symbol {missing[0]}, which is not among symbols: {inputs}")
    names = [str(symbol) for symbol in inputs]

    def traced(*values: Any) -> list[Any]:
        known = dict(zip(inputs, values, strict=True))
        return [_read(each, known, sympy) + 0 * values[0] for each in expressions]

    if not names:
        raise TargetError("the expression has no symbols: a constant needs no transformer")
    return graph_of(traced, names)


def as_sympy(graph: Graph) -> list[Any]:
    """What a graph computes, one expression of sympy for each output. Numbers are the exact doubles, as rationals."""
    sympy = _package()
    components: list[list[Any]] = []
    for node in graph.nodes:
        components.append(_written(node, components, sympy))
    return components[graph.output]


def _package() -> Any:
    try:
        import sympy
    except ImportError:
        raise TargetError(f"expressions of sympy need sympy: {install('sympy')}") from None
    return sympy


def _read(expression: Any, known: Mapping[Any, Any], sympy: Any) -> Any:
    """The value of an expression of traced values."""
    if expression in known:
        return known[expression]
    if expression.is_Rational:
        return Fraction(int(expression.p), int(expression.q))
    if expression.is_number:
        value = complex(expression.evalf(30))
        if value.imag or not abs(value.real) < float("inf"):
            raise TargetError(f"{expression} is no finite real number")
        return value.real
    name = type(expression).__name__
    values = [_read(each, known, sympy) for each in expression.args]
    if expression.is_Add:
        return reduce(add, values)
    if expression.is_Mul:
        return _quotient(expression, known, sympy)
    if expression.is_Pow:
        return _power(expression, values, sympy)
    if name == "besselj" and expression.args[0] in (0, 1):
        return getattr(library, f"j{expression.args[0]}")(values[1])
    if name in NAMES:
        function: Callable[..., Any] = getattr(library, NAMES[name])
        return function(*values)
    raise TargetError(
        f"{name} is not read, in {expression}: known are +, *, /, powers, sqrt, besselj of order 0 and 1, and "
        f"{', '.join(sorted(NAMES))}. A jump needs a gap: write it with Max and Min"
    )


def _quotient(expression: Any, known: Mapping[Any, Any], sympy: Any) -> Any:
    """A product; what has a negative power stands below the line, so that a/b is one quotient."""
    above, below = expression.as_numer_denom()
    if below == 1:
        return reduce(mul, (_read(each, known, sympy) for each in expression.args))
    return _read(above, known, sympy) / _read(below, known, sympy)


def _power(expression: Any, values: Sequence[Any], sympy: Any) -> Any:
    base, exponent = expression.base, expression.exp
    if exponent.is_Integer:
        return values[0] ** int(exponent)
    if exponent.is_Rational and exponent.q == 2:
        root = library.sqrt(values[0])
        return root ** int(exponent.p) if exponent.p > 0 else 1 / root ** int(-exponent.p)
    # What is no square root is a power of e: base^exponent = e^(exponent log base), for a positive base.
    logarithm = _read(sympy.log(base), {}, sympy) if base.is_number else library.log(values[0])
    return library.exp(values[1] * logarithm)


def _written(node: Any, components: list[list[Any]], sympy: Any) -> list[Any]:
    def exact(number: Any) -> Any:
        return sympy.Rational(*float(number).as_integer_ratio())

    match node:
        case Input():
            return [sympy.Symbol(name, real=True) for name in node.names]
        case Affine():
            sums = [exact(number) for number in node.bias]
            for term in node.terms:
                read = components[term.node]
                for row in range(node.size):
                    diagonal = term.weights.ndim == 1
                    weights = {row: term.weights[row]} if diagonal else dict(enumerate(np.asarray(term.weights)[row]))
                    sums[row] += sum(exact(weight) * read[place] for place, weight in weights.items() if weight)
            return sums
        case Relu():
            return [sympy.Max(0, each) for each in components[node.argument]]
        case Maximum() | Minimum():
            function = sympy.Max if isinstance(node, Maximum) else sympy.Min
            return [
                function(*each) for each in zip(*(components[argument] for argument in node.arguments), strict=True)
            ]
        case Product():
            return [a * b for a, b in zip(components[node.left], components[node.right], strict=True)]
        case Quotient():
            return [a / b for a, b in zip(components[node.numerator], components[node.denominator], strict=True)]
        case Hypotenuse():
            return [sympy.sqrt(a**2 + b**2) for a, b in zip(components[node.left], components[node.right], strict=True)]
        case Function():
            return [_function(node, each, sympy) for each in components[node.argument]]
    raise TargetError(f"{type(node).__name__.lower()} nodes have no expression in sympy: they are about several tokens")


def _function(node: Function, argument: Any, sympy: Any) -> Any:
    own: dict[str, Callable[[Any], Any]] = {
        "square": lambda x: x**2,
        "sqrt": sympy.sqrt,
        "reciprocal": lambda x: 1 / x,
        "sigmoid": lambda x: 1 / (1 + sympy.exp(-x)),
        "softplus": lambda x: sympy.log(1 + sympy.exp(x)),
        "gelu": lambda x: x * (1 + sympy.erf(x / sympy.sqrt(2))) / 2,
        "gaussian": lambda x: sympy.exp(-(x**2) / 2),
        "expm1": lambda x: sympy.exp(x) - 1,
        "log1p": lambda x: sympy.log(1 + x),
        "j0": lambda x: sympy.besselj(0, x),
        "j1": lambda x: sympy.besselj(1, x),
        "power": lambda x: x ** sympy.Rational(str(node.parameter)),
    }
    if node.name in own:
        return own[node.name](argument)
    theirs = {ours: name for name, ours in NAMES.items()}
    if node.name not in theirs:
        raise TargetError(f"the function {node.name} has no expression in sympy")
    return getattr(sympy, theirs[node.name])(argument)
