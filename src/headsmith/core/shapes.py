"""The shapes of the named functions: how each derivative is evaluated at a point, and where it turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import factorial, inf
from typing import Any

import numpy as np

from headsmith.core.balls import Ball, Evaluate, Shape, lower_float, point_bounds, precision, upper_float
from headsmith.core.bessel import bessel_derivatives, wave

CONSTANT_BITS = 320
LARGEST_ORDER = 3
HALF_LINE = (0.0, inf)


@lru_cache(maxsize=4096)
def shape_of(name: str, order: int, parameter: float | None = None) -> Shape:
    """The `order`-th derivative of a named function; orders 0 to 3."""
    if not 0 <= order <= LARGEST_ORDER:
        raise ValueError(f"derivatives of order 0 to {LARGEST_ORDER} are known; {order} was asked of {name}")
    with precision(CONSTANT_BITS):
        match name:
            case "sin" | "cos":
                return _periodic(order if name == "sin" else order + 1)
            case "log" if order == 0:
                return Shape(Ball.log, zero=(-inf, -inf), within=HALF_LINE)
            case "log":
                return _monomial(Ball((-1) ** (order - 1) * factorial(order - 1)), -order, -order, half_line=True)
            case "sqrt" | "square" | "reciprocal" | "power":
                exponent = {"sqrt": 0.5, "square": 2.0, "reciprocal": -1.0}.get(name, parameter)
                assert exponent is not None, "power needs its exponent as `parameter`"
                return _power(exponent, order)
            case "tan":
                return _tangent(order)
            case "arcsin" | "arccos":
                return _inverse_sine(order, -1 if name == "arccos" else 1)
            case "j0" | "j1":
                return wave(bessel_derivatives(int(name[1])), order)
        evaluate = DERIVATIVES[name][order]
        turns = tuple(_turn(evaluate, Ball(place)) for place in TURNS[name]()[order])
        return Shape(evaluate, turns, image=IMAGES.get((name, order), (-inf, inf)))


def _turn(evaluate: Evaluate, place: Ball) -> tuple[float, float, float, float]:
    value = evaluate(place)
    if place == 0:
        exact = point_bounds(evaluate, np.zeros(1))
        return 0.0, 0.0, float(exact[0][0]), float(exact[1][0])
    return lower_float(place), upper_float(place), lower_float(value), upper_float(value)


def _periodic(order: int) -> Shape:
    """The `order`-th derivative of sin: sin(x + order pi/2), with maxima at (1 - order) pi/2."""
    evaluate = (Ball.sin, Ball.cos, lambda x: -x.sin(), lambda x: -x.cos())[order % 4]
    return Shape(evaluate, waves=((1 - order, 4, 1.0), (3 - order, 4, -1.0)), image=(-1.0, 1.0))


def _tangent(order: int) -> Shape:
    """With t = tan: t, 1 + t^2, 2 t (1 + t^2), (1 + t^2)(2 + 6 t^2). Between two poles the odd orders of derivatives
    are even functions of t that rise with |t|: they turn where t = 0."""
    evaluate, least = (
        (Ball.tan, None),
        (lambda x: 1 + x.tan() ** 2, 1.0),
        (lambda x: 2 * x.tan() * (1 + x.tan() ** 2), None),
        (lambda x: (1 + x.tan() ** 2) * (2 + 6 * x.tan() ** 2), 2.0),
    )[order]
    if least is None:
        return Shape(evaluate, poles=(1, 2))
    return Shape(evaluate, waves=((0, 2, least),), poles=(1, 2), image=(least, inf))


def _inverse_sine(order: int, sign: int) -> Shape:
    """With s = 1 - x^2: arcsin, s^(-1/2), x s^(-3/2), (1 + 2 x^2) s^(-5/2), times `sign`; infinite at both ends."""
    if order == 0:
        return Shape(Ball.asin if sign > 0 else Ball.acos, within=(-1.0, 1.0))

    def evaluate(x: Ball) -> Ball:
        if x == 1 or x == -1:
            return Ball("inf") * (sign if order != 2 else sign * x)
        root = ((1 - x) * (1 + x)).rsqrt()
        return sign * root ** (2 * order - 1) * (1, x, 1 + 2 * x * x)[order - 1]

    if order == 2:
        return Shape(evaluate, within=(-1.0, 1.0))
    image = (1.0, inf) if sign > 0 else (-inf, -1.0)
    return Shape(evaluate, ((0.0, 0.0, float(sign), float(sign)),), within=(-1.0, 1.0), image=image)


def _power(exponent: float, order: int) -> Shape:
    """The derivative of x^a: a (a-1) ... (a-k+1) x^(a-k)."""
    coefficient, remaining = Ball(1), Ball(exponent)
    for _ in range(order):
        coefficient, remaining = coefficient * remaining, remaining - 1
    whole = int(exponent) - order if float(exponent).is_integer() else None
    return _monomial(coefficient, remaining, whole, half_line=whole is None)


def _monomial(coefficient: Ball, exponent: Any, whole: int | None, *, half_line: bool) -> Shape:
    """coefficient x^exponent; `whole` is the exponent where it is an integer."""
    if coefficient == 0 or whole == 0:
        value = coefficient + 0
        return Shape(lambda x: value, within=HALF_LINE if half_line else (-inf, inf))
    sign = 1.0 if coefficient > 0 else -1.0
    if whole is None:
        limit = 0.0 if exponent > 0 else sign * inf
        return Shape(lambda x: coefficient * x**exponent, zero=(limit, limit), within=HALF_LINE, image=_signed(sign))
    even = whole % 2 == 0
    within = HALF_LINE if half_line else (-inf, inf)
    image = _signed(sign) if even or half_line else (-inf, inf)
    if whole > 0:
        turns = ((0.0, 0.0, 0.0, 0.0),) if even else ()
        return Shape(lambda x: coefficient * x**whole, turns, within=within, image=image)
    limits = (sign * inf if even or half_line else -sign * inf, sign * inf)
    return Shape(lambda x: coefficient * x**whole, zero=limits, within=within, image=image)


def _signed(sign: float) -> tuple[float, float]:
    return (0.0, inf) if sign > 0 else (-inf, 0.0)


@cache
def _constant(name: str) -> Ball:
    with precision(CONSTANT_BITS):
        return {
            "1/sqrt 2": lambda: Ball(2).rsqrt(),
            "1/sqrt 2pi": lambda: (2 * Ball.pi()).rsqrt(),
            "2/sqrt pi": lambda: 2 * Ball.pi().rsqrt(),
        }[name]()


def _bell(x: Ball) -> Ball:
    return (-x * x / 2).exp()


def _density(x: Ball) -> Ball:
    return _bell(x) * _constant("1/sqrt 2pi")


def _normal(x: Ball) -> Ball:
    return (-x * _constant("1/sqrt 2")).erfc() / 2


def _erf_slope(x: Ball) -> Ball:
    return (-x * x).exp() * _constant("2/sqrt pi")


def _sigmoid(x: Ball) -> Ball:
    return 1 / (1 + (-x).exp())


def _softplus(x: Ball) -> Ball:
    return x + (-x).exp().log1p() if x > 0 else x.exp().log1p()


def _tanh_1(x: Ball) -> Ball:
    s = x.sech()
    return s * s


def _tanh_2(x: Ball) -> Ball:
    return -2 * x.tanh() * _tanh_1(x)


def _tanh_3(x: Ball) -> Ball:
    t = x.tanh()
    return (6 * t * t - 2) * _tanh_1(x)


def _sigmoid_1(x: Ball) -> Ball:
    return _tanh_1(x / 2) / 4


def _sigmoid_2(x: Ball) -> Ball:
    return _tanh_2(x / 2) / 8


def _sigmoid_3(x: Ball) -> Ball:
    return _tanh_3(x / 2) / 16


def _arctan(power: int, factor: Callable[[Ball], Any]) -> Evaluate:
    return lambda x: factor(x) / (1 + x * x) ** power


DERIVATIVES: dict[str, tuple[Evaluate, ...]] = {
    "exp": (Ball.exp,) * 4,
    "sinh": (Ball.sinh, Ball.cosh) * 2,
    "cosh": (Ball.cosh, Ball.sinh) * 2,
    "arctan": (
        Ball.atan,
        _arctan(1, lambda x: 1),
        _arctan(2, lambda x: -2 * x),
        _arctan(3, lambda x: 6 * x * x - 2),
    ),
    "tanh": (Ball.tanh, _tanh_1, _tanh_2, _tanh_3),
    "sigmoid": (_sigmoid, _sigmoid_1, _sigmoid_2, _sigmoid_3),
    "softplus": (_softplus, _sigmoid, _sigmoid_1, _sigmoid_2),
    "gaussian": (
        _bell,
        lambda x: -x * _bell(x),
        lambda x: (x * x - 1) * _bell(x),
        lambda x: x * (3 - x * x) * _bell(x),
    ),
    "erf": (
        Ball.erf,
        _erf_slope,
        lambda x: -2 * x * _erf_slope(x),
        lambda x: (4 * x * x - 2) * _erf_slope(x),
    ),
    "gelu": (
        lambda x: x * _normal(x),
        lambda x: _normal(x) + x * _density(x),
        lambda x: (2 - x * x) * _density(x),
        lambda x: x * (x * x - 4) * _density(x),
    ),
}


def _both(*places: Ball) -> list[Ball]:
    return [sign * place for place in places for sign in (-1, 1)]


def _gelu_turn() -> Ball:
    """The one root of gelu' = Phi + x phi, by Newton, enclosed by a change of sign.

    gelu'' = (2 - x^2) phi: gelu' falls from 0 until -sqrt 2, rises until sqrt 2, then falls to 1: there is one root.
    """
    slope, bend = DERIVATIVES["gelu"][1:3]
    place = Ball(-0.75)
    for _ in range(8):
        place = (place - slope(place) / bend(place)).mid()
    margin = Ball(2) ** -200
    if not (slope(place - margin) < 0 and slope(place + margin) > 0):
        raise ArithmeticError("no change of sign of gelu' round its root")
    return (place - margin).union(place + margin)


# Where each derivative turns: the roots of the next one. With t = tanh: tanh''' = (1 - t^2)(6 t^2 - 2) and
# tanh'''' = -8 t (1 - t^2)(3 t^2 - 2); sigmoid(x) = (1 + tanh(x/2)) / 2; gelu'''' = -(x^4 - 7 x^2 + 4) phi;
# with g the gaussian, g'''' = (x^4 - 6 x^2 + 3) g; erf'''' = (12 x - 8 x^3) erf';
# arctan'''' = 24 x (1 - x^2) / (1 + x^2)^4.
TURNS: dict[str, Callable[[], tuple[Sequence[Any], ...]]] = {
    "exp": lambda: ((), (), (), ()),
    "sinh": lambda: ((), (0,), (), (0,)),
    "cosh": lambda: ((0,), (), (0,), ()),
    "arctan": lambda: ((), (0,), _both(Ball(3).rsqrt()), (0, *_both(Ball(1)))),
    "tanh": lambda: ((), (0,), _both(Ball(3).rsqrt().atanh()), (0, *_both((Ball(2) / 3).sqrt().atanh()))),
    "sigmoid": lambda: ((), (0,), _both(2 * Ball(3).rsqrt().atanh()), (0, *_both(2 * (Ball(2) / 3).sqrt().atanh()))),
    "softplus": lambda: ((), (), (0,), _both(2 * Ball(3).rsqrt().atanh())),
    "gaussian": lambda: ((0,), _both(Ball(1)), (0, *_both(Ball(3).sqrt())), _both(*_roots(3, Ball(6).sqrt()))),
    "erf": lambda: ((), (0,), _both(Ball(2).rsqrt()), (0, *_both((Ball(3) / 2).sqrt()))),
    "gelu": lambda: (
        (_gelu_turn(),),
        _both(Ball(2).sqrt()),
        (-2, 0, 2),
        _both(*_roots(Ball(7) / 2, Ball(33).sqrt() / 2)),
    ),
}
IMAGES: dict[tuple[str, int], tuple[float, float]] = {
    **{("exp", order): (0.0, inf) for order in range(4)},
    **dict.fromkeys((("sinh", 1), ("sinh", 3), ("cosh", 0), ("cosh", 2)), (1.0, inf)),
    ("arctan", 1): (0.0, 1.0),
    ("tanh", 0): (-1.0, 1.0),
    ("tanh", 1): (0.0, 1.0),
    ("sigmoid", 0): (0.0, 1.0),
    ("sigmoid", 1): (0.0, 0.25),
    ("softplus", 0): (0.0, inf),
    ("softplus", 1): (0.0, 1.0),
    ("softplus", 2): (0.0, 0.25),
    ("gaussian", 0): (0.0, 1.0),
    ("erf", 0): (-1.0, 1.0),
    ("erf", 1): (0.0, inf),
}


def _roots(middle: Any, offset: Ball) -> tuple[Ball, Ball]:
    """sqrt(middle -+ offset): the positive roots of x^4 - 2 middle x^2 + middle^2 - offset^2."""
    return (middle - offset).sqrt(), (middle + offset).sqrt()
