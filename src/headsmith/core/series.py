"""Taylor series with proven tails, over Arb: the named functions, programs, products and quotients.

A series is in the scaled variable of its cell, s = centre + radius x with |x| <= 1, so that coefficients are sizes.

    f(c + r x) = sum_{i < M} f_i x^i + tail,     |tail| <= a sum of |f_i| over i >= M, bounded by one of

    powers     f_i = binom(a, i) (r/c)^i c^a: a geometric series from the term M on
    discs      |f^(k)| <= B on the disc of radius R > r round c: |f_i| <= B R^k (r/R)^i / (i (i-1) ... (i-k+1)), Cauchy
    programs   the coefficient M of the program over the whole cell as a ball (Lagrange)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb, prod
from typing import Any, Protocol

from flint import arb, arb_series, ctx

from headsmith.core.balls import Ball, precision, upper_float
from headsmith.core.bessel import bessel_program
from headsmith.core.functions import FUNCTIONS

Series = tuple[list[Ball], Ball, tuple[float, ...]]


@contextmanager
def series_arithmetic(bits: int, order: int) -> Iterator[None]:
    """Work with `bits` bits and series of `order` terms inside: flint keeps both for the whole process."""
    saved = ctx.cap
    ctx.cap = order
    try:
        with precision(bits):
            yield
    finally:
        ctx.cap = saved


# What a head is compared with ---------------------------------------------------------------------------------------


class Target(Protocol):
    """A function to expand. `expand` gives the coefficients at `support`, a bound of the tail, and a rate for each
    variable: how fast coefficients fall with its power."""

    @property
    def label(self) -> str: ...

    def support(self, order: int) -> Sequence[tuple[int, int]]: ...

    def expand(self, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> Series: ...


@dataclass(frozen=True)
class Named:
    """A function of headsmith.core.functions."""

    name: str
    parameter: float | None = None

    @property
    def label(self) -> str:
        return self.name if self.parameter is None else f"{self.name}({self.parameter:g})"

    def support(self, order: int) -> Sequence[tuple[int, int]]:
        return [(i, 0) for i in range(order)]

    def expand(self, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> Series:
        program, (place,), (size,) = program_of(self.name, self.parameter), centre, radius
        coefficients = _coefficients(program, place, size, order)
        if self.name in POWERS or self.name == "power":
            tail = _power_tail(POWERS.get(self.name, self.parameter), place, size, order)
        elif self.name in DISCS:
            tail = _disc_tail(*DISCS[self.name], place, size, order)
        else:
            over = _coefficients(program, place + size * arb(0, 1), size, order + 1)
            tail = abs(over[order])
        return coefficients, tail, (1.0,)


@dataclass(frozen=True)
class Pair:
    """x y, or x / y where `quotient`."""

    quotient: bool

    @property
    def label(self) -> str:
        return "x / y" if self.quotient else "x y"

    def support(self, order: int) -> Sequence[tuple[int, int]]:
        return [(a, b) for b in range(order if self.quotient else 2) for a in range(2) if a + b < order]

    def expand(self, centre: Sequence[Ball], radius: Sequence[Ball], order: int) -> Series:
        (x, y), (x_radius, y_radius) = centre, radius
        if not self.quotient:
            return [x * y, x_radius * y, x * y_radius, x_radius * y_radius], arb(0), (0.0, 0.0)
        # (x + x_r X) / (y + y_r Y) = (x/y + x_r/y X) sum_b (-y_r/y)^b Y^b; what is cut off has degree >= order.
        rate = y_radius / y
        rows, power = [], 1 / y
        for _ in range(order):
            rows.append((x * power, x_radius * power))
            power = -power * rate
        coefficients = [row[a] for b, row in enumerate(rows) for a in range(2) if a + b < order]
        size = abs(rate)
        known = size < 1
        tail = (abs(rows[-1][0]) * size + abs(rows[-1][1])) / (1 - size) if known else arb("inf")
        return coefficients, tail, (0.0, upper_float(size))


def _coefficients(program: Callable[[Any], Any], centre: Ball, radius: Ball, order: int) -> list[Ball]:
    """The first `order` coefficients of a program in the scaled variable; nan where it gives none."""
    try:
        with series_arithmetic(ctx.prec, order):
            result = program(arb_series([centre, radius], order))
    except (ArithmeticError, ValueError):
        return [arb("nan")] * order
    if not isinstance(result, arb_series):
        return [arb(result)] + [arb(0)] * (order - 1)
    # Past its precision a series is unknown, although flint reads zeros there.
    return [result[i] if i < result.prec else arb("nan") for i in range(order)]


# The named functions ------------------------------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _softplus(x: Any) -> Any:
    return x + (1 + (-x).exp()).log() if x[0] > 0 else (1 + x.exp()).log()


def _power(exponent: float) -> Callable[[Any], Any]:
    if not float(exponent).is_integer():
        return lambda x: x ** arb(exponent)
    whole = int(exponent)
    return (lambda x: x**whole) if whole >= 0 else lambda x: 1 / x**-whole


def _sinh(x: Any) -> Any:
    return (x.exp() - (-x).exp()) / 2


def _cosh(x: Any) -> Any:
    return (x.exp() + (-x).exp()) / 2


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tan": lambda x: x.tan(),
    "arctan": lambda x: x.atan(),
    "arcsin": lambda x: x.asin(),
    "arccos": lambda x: x.acos(),
    "sinh": _sinh,
    "cosh": _cosh,
    "j0": bessel_program(0),
    "j1": bessel_program(1),
    "tanh": lambda x: 2 * _sigmoid(2 * x) - 1,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "erf": lambda x: x.erf(),
    "gelu": lambda x: x * (-x * arb(2).rsqrt()).erfc() / 2,
    "gaussian": lambda x: (-x * x / 2).exp(),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
}


def program_of(name: str, parameter: float | None = None) -> Callable[[Any], Any]:
    """A named function as a program on series."""
    if name == "power":
        assert parameter is not None, "power needs its exponent as `parameter`"
        return _power(parameter)
    program = PROGRAMS.get(name) or FUNCTIONS[name].program
    assert program is not None, f"{name} has no program on series"
    return program


POWERS: dict[str, float | None] = {"log": None, "sqrt": 0.5, "square": 2.0, "reciprocal": -1.0}


def _power_tail(exponent: float | None, centre: Ball, radius: Ball, order: int) -> Ball:
    """Tail of x^exponent, or of log where it is None (coefficients (r/c)^i / i).

    |binom(a, i+1) / binom(a, i)| = |a - i| / (i + 1) <= max(1, |a - M| / (M + 1)) for i >= M: for a >= i it falls
    with i, for -1 <= a < i it is below 1, and for a < -1 it is 1 + (-1 - a)/(i + 1), which falls.
    """
    if exponent is not None and exponent >= 0.0 and float(exponent).is_integer():
        whole = int(exponent)
        if whole < order:
            return arb(0)
        return comb(whole, order) * radius**order * (abs(centre) + radius) ** (whole - order)
    rate = radius / abs(centre)
    if exponent is None:
        first, growth = rate**order / order, arb(1)
    else:
        binomial = abs(prod((arb(exponent) - i for i in range(order)), start=arb(1))) / _factorial(order)
        first = binomial * rate**order * abs(centre) ** arb(exponent)
        growth = (abs(arb(exponent) - order) / (order + 1)).max(arb(1))
    return first / (1 - growth * rate) if growth * rate < 1 else arb("inf")


def _factorial(n: int) -> Ball:
    return arb(n).fac() if n else arb(1)


Disc = Callable[[Ball, Ball], Ball]
Radii = Callable[[int, Ball], Sequence[Ball]]
"""Radii of discs that are worth a try, for so many terms at this centre."""


def _bell_disc(centre: Ball, radius: Ball) -> Ball:
    """|exp(-z^2/2)| = exp(-Re z^2 / 2) on the disc.

    With u = cos theta, -Re z^2 = R^2 - c^2 - 2 c R u - 2 R^2 u^2 on the circle: at most R^2 - c^2/2, its value at
    u = -c / (2 R); where that is no cosine, at most its value at the point of the circle that is nearest to 0.
    """
    size = abs(centre)
    exponent = radius * radius - size * size / 2 if not size > 2 * radius else -(size - radius) * (size - radius)
    return (exponent / 2).exp()


def _erf_disc(centre: Ball, radius: Ball) -> Ball:
    """erf' = 2/sqrt(pi) exp(-z^2)."""
    root = arb(2).sqrt()
    return _bell_disc(root * centre, root * radius) * 2 * arb.pi().rsqrt()


def _gelu_disc(centre: Ball, radius: Ball) -> Ball:
    """gelu'' = (2 - z^2) exp(-z^2/2) / sqrt(2 pi)."""
    size = abs(centre) + radius
    return (2 + size * size) * _bell_disc(centre, radius) * (2 * arb.pi()).rsqrt()


def _tanh_disc(centre: Ball, radius: Ball) -> Ball:
    """|tanh'(x + iy)| = 1 / (sinh^2 x + cos^2 y), with |x| >= |c| - R and |y| <= R."""
    real = (abs(centre) - radius).sinh() if radius < abs(centre) else arb(0)
    imaginary = radius.cos() if 2 * radius < arb.pi() else arb(0)
    return 1 / (real * real + imaginary * imaginary)


def _sigmoid_disc(centre: Ball, radius: Ball) -> Ball:
    """sigmoid'(z) = tanh'(z/2) / 4, and softplus'' = sigmoid'."""
    return _tanh_disc(centre / 2, radius / 2) / 4


def _cosh_disc(centre: Ball, radius: Ball) -> Ball:
    """|sinh z| and |cosh z| are at most cosh(Re z)."""
    return (abs(centre) + radius).cosh()


def _arctan_disc(centre: Ball, radius: Ball) -> Ball:
    """arctan' = 1 / ((z - i)(z + i)), and |z -+ i| >= sqrt(1 + c^2) - R."""
    distance = (1 + centre * centre).sqrt() - radius
    return 1 / (distance * distance) if distance > 0 else arb("inf")


def _arcsin_disc(centre: Ball, radius: Ball) -> Ball:
    """arcsin' = 1 / sqrt((1 - z)(1 + z)), and |1 -+ z| >= 1 -+ c - R; arccos' = -arcsin'."""
    left, right = 1 + centre - radius, 1 - centre - radius
    return (left * right).rsqrt() if left > 0 and right > 0 else arb("inf")


def _to_pole(centre: Ball) -> Ball:
    """How far the nearest pole of the tangent is, at least; pi/2 + n pi for whole n."""
    period = arb.pi()
    nearest = (centre / period - 0.5).mid().floor() + 0.5
    gaps = [abs(centre - period * (nearest + step)) for step in (-1, 0, 1, 2)]
    return gaps[0].min(gaps[1]).min(gaps[2]).min(gaps[3])


def _tan_disc(centre: Ball, radius: Ball) -> Ball:
    """tan' = 1 / cos^2, and |cos(x + iy)| >= |cos x| >= sin(D - R), D <= pi/2 the distance to the nearest pole."""
    distance = _to_pole(centre) - radius
    return 1 / distance.lower().sin() ** 2 if distance > 0 else arb("inf")


def _before(distance: Callable[[Ball], Ball]) -> Radii:
    """Radii on the way to the nearest singularity, closer to it for more terms."""
    return lambda order, centre: [distance(centre) * (1 - arb(share) / order) for share in (1, 3)]


def _fixed(*radii: Callable[[int], float]) -> Radii:
    return lambda order, centre: [arb(radius(order)) for radius in radii]


# A bound on discs, the derivative that it bounds, and radii that are worth a try.
DISCS: dict[str, tuple[Disc, int, Radii]] = {
    "exp": (lambda c, r: (c + r).exp(), 0, _fixed(float)),
    # |sin z|, |cos z| and |J_n(z)| are at most exp(|Im z|).
    **{name: (lambda c, r: r.exp(), 0, _fixed(float)) for name in ("sin", "cos", "j0", "j1")},
    **{name: (_cosh_disc, 0, _fixed(float)) for name in ("sinh", "cosh")},
    "gaussian": (_bell_disc, 0, _fixed(lambda order: 0.5 * order**0.5, lambda order: order**0.5)),
    "erf": (_erf_disc, 1, _fixed(lambda order: 0.35 * order**0.5, lambda order: 0.7 * order**0.5)),
    "gelu": (_gelu_disc, 2, _fixed(lambda order: 0.5 * order**0.5, lambda order: order**0.5)),
    "tanh": (_tanh_disc, 1, _fixed(lambda order: 1.4)),
    "sigmoid": (_sigmoid_disc, 1, _fixed(lambda order: 2.8)),
    "softplus": (_sigmoid_disc, 2, _fixed(lambda order: 2.8)),
    "tan": (_tan_disc, 1, _before(_to_pole)),
    "arctan": (_arctan_disc, 1, _before(lambda centre: (1 + centre * centre).sqrt())),
    **{name: (_arcsin_disc, 1, _before(lambda centre: 1 - abs(centre))) for name in ("arcsin", "arccos")},
}


def _disc_tail(disc: Disc, derivative: int, radii: Radii, centre: Ball, radius: Ball, order: int) -> Ball:
    """The best tail over a few discs.

    With q = r/R: sum_{i >= M} B R^k q^i / (i ... (i-k+1)) <= B R^k q^M / (M ... (M-k+1)) / (1 - q).
    """
    divisor = prod(range(order - derivative + 1, order + 1))
    best = arb("inf")
    for large in (*radii(order, centre), abs(centre) / 2, 3 * abs(centre) / 4, 4 * radius):
        if not large > radius:
            continue
        rate = radius / large
        tail = disc(centre, large) * large**derivative * rate**order / ((1 - rate) * divisor)
        if tail < best:
            best = tail
    return best
