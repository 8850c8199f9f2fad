"""The named functions as mpmath has them: the oracle of every test that calls one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath

EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "arctan": mpmath.atan,
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "j0": lambda x: mpmath.besselj(0, x),
    "j1": lambda x: mpmath.besselj(1, x),
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "erf": mpmath.erf,
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "gaussian": lambda x: mpmath.exp(-x * x / 2),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
}
