"""Numbers with many digits, and the named functions of them: for oracles, which share nothing with what they judge.

A number is a ball of Arb at a point, with so many bits that its radius is far below anything that is compared. The
functions are written out here once more, in other words than the kernel's: an oracle that calls what it should judge
would repeat its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flint import arb, ctx

BITS = 320

CALLS: dict[str, Callable[[Any], Any]] = {
    "exp": arb.exp,
    "expm1": arb.expm1,
    "log": arb.log,
    "log1p": arb.log1p,
    "sqrt": arb.sqrt,
    "sin": arb.sin,
    "cos": arb.cos,
    "tan": arb.tan,
    "sinh": arb.sinh,
    "cosh": arb.cosh,
    "tanh": arb.tanh,
    "arcsin": arb.asin,
    "arccos": arb.acos,
    "arctan": arb.atan,
    "erf": arb.erf,
    "square": lambda x: x**2,
    "reciprocal": lambda x: arb(1) / x,
    "sigmoid": lambda x: ((x / 2).tanh() + 1) / 2,
    "softplus": lambda x: x.exp().log1p(),
    "gelu": lambda x: x * (1 + (x / arb(2).sqrt()).erf()) / 2,
    "gaussian": lambda x: (-(x**2) / 2).exp(),
    "hypotenuse": lambda x: (x**2 + 1).sqrt(),
    "j0": lambda x: x.bessel_j(0),
    "j1": lambda x: x.bessel_j(1),
}


@contextmanager
def many_digits(bits: int = BITS) -> Iterator[None]:
    """Compute with so many bits inside."""
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


def exact(values: Any) -> Any:
    """Doubles, or numbers of the machine's widest format, as an array of exact balls."""
    wide = np.asarray(values)
    near = wide.astype(np.float64)
    rest = (wide - near).astype(np.float64) if wide.dtype == np.longdouble else np.zeros_like(near)
    return np.asarray(np.frompyfunc(lambda a, b: arb(a) + arb(b), 2, 1)(near, rest), dtype=object)


def called(name: str, parameter: float | None, values: Any) -> Any:
    """A named function of every number of an array."""
    function = CALLS[name] if name != "power" else lambda x: x ** _exponent(parameter)
    return np.asarray(np.frompyfunc(function, 1, 1)(values), dtype=object)


def _exponent(parameter: float | None) -> Any:
    assert parameter is not None
    return int(parameter) if float(parameter).is_integer() else arb(parameter)


def larger(left: Any, right: Any) -> Any:
    """The larger of two numbers, for arrays of them."""
    return np.frompyfunc(lambda a, b: a if a.mid() >= b.mid() else b, 2, 1)(left, right)


def least_distance(left: Any, right: Any) -> Any:
    """Doubles that |left - right| is at least, up to their own rounding; infinite where there is no number."""

    def distance(a: Any, b: Any) -> float:
        gap = abs(a - b)
        return float(gap.lower()) if gap.is_finite() else float("inf")

    return np.frompyfunc(distance, 2, 1)(left, right).astype(np.float64)
