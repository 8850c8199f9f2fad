"""Named functions of one variable: their values, their rigorous enclosures, where they are defined.

    FUNCTIONS["tanh"].value(x)               numpy, float64 or longdouble: an estimate
    FUNCTIONS["tanh"].derivative(x, 2)       float64 closed forms of orders 1, 2, 3: an estimate
    FUNCTIONS["tanh"].enclose(low, high, 1)  bounds of the first derivative over each interval: a proof, by Arb

`power` is x**parameter; no other function has a parameter. `user_function` adds a function that is given as a program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import Bounds, enclose, enclose_series, hits, midpoints
from headsmith.core.bessel import bessel_values
from headsmith.core.errors import TargetError
from headsmith.core.shapes import shape_of


@dataclass(frozen=True)
class Domain:
    """Where a function is defined: an interval, perhaps without the point 0, or without the poles of the tangent.

    `needs` says it in words.
    """

    low: float = -math.inf
    high: float = math.inf
    low_closed: bool = False
    high_closed: bool = False
    without_zero: bool = False
    between_poles: bool = False
    needs: str = "numbers"

    def covers(self, low: Any, high: Any) -> Any:
        """Whether each interval [low, high] lies inside."""
        above = low >= self.low if self.low_closed else low > self.low
        below = high <= self.high if self.high_closed else high < self.high
        inside = np.asarray(above) & np.asarray(below)
        if self.without_zero:
            inside = inside & ~((np.asarray(low) <= 0.0) & (np.asarray(high) >= 0.0))
        return inside & ~np.asarray(hits(low, high, 1, 2)) if self.between_poles else inside

    def contains_neighbourhood(self, low: float, high: float) -> bool:
        """Whether [low, high] lies inside, away from closed ends, where built-in functions are not analytic."""
        at_end = (self.low_closed and low <= self.low) or (self.high_closed and high >= self.high)
        return not at_end and bool(self.covers(low, high))


EVERYWHERE = Domain()
POSITIVE = Domain(low=0.0, needs="positive numbers")
NOT_NEGATIVE = Domain(low=0.0, low_closed=True, needs="numbers that are not negative")
NOT_ZERO = Domain(without_zero=True, needs="numbers other than 0")
SINES = Domain(-1.0, 1.0, True, True, needs="numbers from -1 to 1")
NO_POLES = Domain(between_poles=True, needs="an interval without a pole; its poles are pi/2 + n*pi")

Formula = Callable[[Any, float | None], Any]


@dataclass(frozen=True)
class Univariate:
    """One named function of one variable. `formulas` are f, f', f'', f''' in numpy."""

    name: str
    formulas: tuple[Formula, ...]
    where: Callable[[float | None], Domain] = lambda parameter: EVERYWHERE
    program: Callable[[Any], Any] | None = None

    def value(self, x: Any, parameter: float | None = None) -> Any:
        """f(x) in the floating point of `x`: an estimate, good to about 1e-15 of its size."""
        x = np.asarray(x)
        x = x if x.dtype == np.longdouble else x.astype(np.float64)
        with np.errstate(all="ignore"):
            return self.formulas[0](x, parameter)

    def derivative(self, x: Any, order: int, parameter: float | None = None) -> Array:
        """The derivative of order 0 to 3 in float64: an estimate."""
        with np.errstate(all="ignore"):
            return np.asarray(self.formulas[order](np.asarray(x, dtype=np.float64), parameter), dtype=np.float64)

    def enclose(self, low: Any, high: Any, order: int = 0, parameter: float | None = None) -> Bounds:
        """(lower, upper): bounds of the derivative of order 0 to 3 over each interval [low, high].

        Guarantee: lower <= f^(order)(x) <= upper for all x of the interval at which it exists. An infinite bound at a
        singular end; (-inf, inf) where the interval leaves the domain; never nan.
        """
        if self.program is not None:
            return enclose_series(self.program, order, low, high)
        return enclose(shape_of(self.name, order, parameter), low, high)

    def domain(self, parameter: float | None = None) -> Domain:
        """Where the function is defined."""
        return self.where(parameter)


class Known(dict[str, Univariate]):
    """The functions of this process by name; a name that is not there is explained."""

    def __missing__(self, name: str) -> Univariate:
        raise TargetError(missing(name))


def missing(name: str) -> str:
    """What to do about a function that is not known."""
    return (
        f"there is no function named {name!r} in this process: if it is a function of your own, define it first, with "
        f"the same hs.function({name!r}, ...) as where the model was made"
    )


FUNCTIONS = Known()


def register(function: Univariate) -> Univariate:
    """Make a function known by its name; names are taken once."""
    if function.name in FUNCTIONS:
        raise TargetError(f"there is already a function named {function.name!r}; choose another name")
    FUNCTIONS[function.name] = function
    return function


def user_function(
    name: str,
    evaluator: Callable[[Any], Any],
    value: Callable[[Any], Any] | None = None,
    domain: Domain = EVERYWHERE,
) -> Univariate:
    """Register a function that is given as a program.

    `evaluator` takes a flint arb_series, returns one, and stands for the function exactly: enclosures and derivatives
    come from it. `value` is the same in numpy; without it values come from `evaluator`, one at a time.
    """

    def derivative(order: int) -> Formula:
        return lambda x, parameter: midpoints(evaluator, order, x)

    def numpy_value(x: Any, parameter: float | None) -> Any:
        return value(x) if value is not None else midpoints(evaluator, 0, x).astype(x.dtype)

    formulas = (numpy_value, derivative(1), derivative(2), derivative(3))
    return register(Univariate(name, formulas, lambda parameter: domain, evaluator))


def _plain(formula: Callable[[Any], Any]) -> Formula:
    return lambda x, parameter: formula(x)


def _table(name: str, *formulas: Callable[[Any], Any], domain: Domain = EVERYWHERE) -> None:
    register(Univariate(name, tuple(map(_plain, formulas)), lambda parameter: domain))


def _length(x: Any) -> Any:
    return np.sqrt(1.0 + x * x)


_erf64 = np.vectorize(math.erf, otypes=[np.float64])
_erfc64 = np.vectorize(math.erfc, otypes=[np.float64])
_HALF = np.longdouble(1) / np.sqrt(np.longdouble(2))


def _erf(x: Any) -> Any:
    """math.erf at the nearest double, and its tangent for what is left of a longdouble."""
    nearest = x.astype(np.float64)
    return _erf64(nearest) + (x - nearest) * _erf_slope(nearest)


def _erf_slope(x: Any) -> Any:
    return (2.0 / math.sqrt(math.pi)) * np.exp(-x * x)


def _normal(x: Any) -> Any:
    """The distribution function of the normal law: erfc(-x / sqrt 2) / 2."""
    argument = np.asarray(-x * _HALF.astype(x.dtype))
    nearest = argument.astype(np.float64)
    return (_erfc64(nearest) - (argument - nearest) * _erf_slope(nearest)) / 2


def _density(x: Any) -> Any:
    return np.exp(-x * x / 2) / math.sqrt(2.0 * math.pi)


def _gaussian(x: Any) -> Any:
    return np.exp(-x * x / 2)


def _sech2(x: Any) -> Any:
    small = np.exp(-2 * np.abs(x))
    return 4 * small / (1 + small) ** 2


def _tanh_2(x: Any) -> Any:
    return -2 * np.tanh(x) * _sech2(x)


def _tanh_3(x: Any) -> Any:
    return _sech2(x) * (6 * np.tanh(x) ** 2 - 2)


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _sigmoid_1(x: Any) -> Any:
    return _sech2(x / 2) / 4


def _sigmoid_2(x: Any) -> Any:
    return _tanh_2(x / 2) / 8


def _arcsin(order: int, sign: int) -> Callable[[Any], Any]:
    """Derivatives of arcsin, of order 1 to 3, times `sign`."""
    factor = (lambda x: 1, lambda x: x, lambda x: 1 + 2 * x * x)[order - 1]
    return lambda x: sign * factor(x) * ((1 - x) * (1 + x)) ** (0.5 - order)


def _tan_3(x: Any) -> Any:
    return (1 + np.tan(x) ** 2) * (2 + 6 * np.tan(x) ** 2)


def _bessel(n: int) -> list[Callable[[Any], Any]]:
    return [partial(bessel_values, n, order) for order in range(4)]


def _power(order: int) -> Formula:
    def formula(x: Any, parameter: float | None) -> Any:
        assert parameter is not None, "power needs its exponent as `parameter`"
        factor = math.prod(parameter - k for k in range(order))
        return factor * np.power(x, x.dtype.type(parameter - order)) if factor else np.zeros_like(x)

    return formula


def _power_domain(parameter: float | None) -> Domain:
    assert parameter is not None, "power needs its exponent as `parameter`"
    if float(parameter).is_integer():
        return EVERYWHERE if parameter >= 0 else NOT_ZERO
    return NOT_NEGATIVE if parameter > 0 else POSITIVE


_table("exp", np.exp, np.exp, np.exp, np.exp)
_table("log", np.log, lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3, domain=POSITIVE)
_table(
    "sqrt", np.sqrt, lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5, lambda x: 0.375 * x**-2.5, domain=NOT_NEGATIVE
)
_table("sin", np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x))
_table("cos", np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin)
_table("sinh", np.sinh, np.cosh, np.sinh, np.cosh)
_table("cosh", np.cosh, np.sinh, np.cosh, np.sinh)
_table(
    "tan",
    np.tan,
    lambda x: 1 + np.tan(x) ** 2,
    lambda x: 2 * np.tan(x) * (1 + np.tan(x) ** 2),
    _tan_3,
    domain=NO_POLES,
)
_table(
    "arctan",
    np.arctan,
    lambda x: 1 / (1 + x * x),
    lambda x: -2 * x / (1 + x * x) ** 2,
    lambda x: (6 * x * x - 2) / (1 + x * x) ** 3,
)
_table("arcsin", np.arcsin, _arcsin(1, 1), _arcsin(2, 1), _arcsin(3, 1), domain=SINES)
_table("arccos", np.arccos, _arcsin(1, -1), _arcsin(2, -1), _arcsin(3, -1), domain=SINES)
_table("j0", *_bessel(0))
_table("j1", *_bessel(1))
_table("tanh", np.tanh, _sech2, _tanh_2, _tanh_3)
_table("sigmoid", _sigmoid, _sigmoid_1, _sigmoid_2, lambda x: _tanh_3(x / 2) / 16)
_table("softplus", lambda x: np.logaddexp(x, x.dtype.type(0)), _sigmoid, _sigmoid_1, _sigmoid_2)
_table("erf", _erf, _erf_slope, lambda x: -2 * x * _erf_slope(x), lambda x: (4 * x * x - 2) * _erf_slope(x))
_table(
    "gelu",
    lambda x: x * _normal(x),
    lambda x: _normal(x) + x * _density(x),
    lambda x: (2 - x * x) * _density(x),
    lambda x: (x**3 - 4 * x) * _density(x),
)
_table(
    "gaussian",
    _gaussian,
    lambda x: -x * _gaussian(x),
    lambda x: (x * x - 1) * _gaussian(x),
    lambda x: (3 * x - x**3) * _gaussian(x),
)
_table("square", lambda x: x * x, lambda x: 2 * x, lambda x: np.full_like(x, 2.0), np.zeros_like)
_table("reciprocal", lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4, domain=NOT_ZERO)
register(Univariate("power", (_power(0), _power(1), _power(2), _power(3)), _power_domain))

user_function("hypotenuse", lambda x: (1 + x * x).sqrt(), _length)
