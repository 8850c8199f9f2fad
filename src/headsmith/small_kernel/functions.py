"""Named functions and programs over Arb: power series with balls as coefficients, and bounds over intervals.

A ball run is an enclosure (Arb). This module, and the two that need it for tables and circuits of one variable, are
the only ones that load python-flint."""

from __future__ import annotations

from fractions import Fraction
from math import factorial, inf, nextafter
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx, fmpq

from headsmith.small_kernel.bounds import Array, Span, point
from headsmith.small_kernel.file import NORM, PAIRS, RECIPROCAL, SQUARE

Program = tuple[int, tuple[Any, ...]]
BITS, HALVINGS = 128, 7
CALLS: dict[str, Any] = {
    **{name: lambda x, name=name: getattr(x, name)() for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "erf")},
    **{name: lambda x, name=name: getattr(x, "a" + name[3:])() for name in ("arcsin", "arccos", "arctan")},
    "expm1": lambda x: x.exp() - 1,
    "log1p": lambda x: (1 + x).log(),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "sinh": lambda x: (x.exp() - (-x).exp()) / 2,
    "cosh": lambda x: (x.exp() + (-x).exp()) / 2,
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "tanh": lambda x: 2 / (1 + (-2 * x).exp()) - 1,
    "softplus": lambda x: (1 + x.exp()).log(),
    "gelu": lambda x: x * (-x / arb(2).sqrt()).erfc() / 2,
    "gaussian": lambda x: (-x * x / 2).exp(),
    "hypotenuse": lambda x: (1 + x * x).sqrt(),
}
RISING = "exp log sqrt erf expm1 log1p sinh tanh sigmoid softplus arcsin arccos arctan".split()  # noqa: SIM905
KNOWN = {("square", 0): (0.0, inf), ("sigmoid", 1): (0.0, 0.25), ("erf", 1): (0.0, 1.13), ("gelu", 1): (-0.13, 1.13)}
KNOWN |= dict.fromkeys((("sigmoid", 0), ("gaussian", 0), ("tanh", 1), ("softplus", 1), ("arctan", 1)), (0.0, 1.0))
KNOWN |= {(name, order): (-1.0, 1.0) for name in ("sin", "cos") for order in (0, 1, 2)}  # what is known of all values


def ball(low: float, high: float) -> Any:
    return arb(low).union(arb(high))


def ends(x: Any) -> tuple[float, float]:
    """The doubles around a ball."""
    if not x.is_finite():
        return -inf, inf
    low, high = float(x.lower()), float(x.upper())
    return low if arb(low) <= x.lower() else nextafter(low, -inf), high if arb(high) >= x.upper() else nextafter(
        high, inf
    )


def power(x: Any, exponent: float) -> Any:
    if exponent != int(exponent):
        return x ** arb(exponent)
    result = arb_series([1])
    for _ in range(int(abs(exponent))):
        result = result * x
    return 1 / result if exponent < 0 else result


def run(program: Program, variables: list[list[Any]], length: int, bits: int = BITS) -> list[Any]:
    """The first coefficients of a program on power series; no numbers if an operand of a step is not finite."""
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, length
    try:
        values = [arb_series(x, prec=length) for x in variables]
        for operation, *rest in program[1]:
            if operation == "linear":
                value, read = arb_series([number(rest[1])], prec=length), [i for _, i in rest[0]]
                for c, i in rest[0]:
                    value = value + number(c) * values[i]
            elif operation == "call":
                name, i, *exponent = rest
                value, read = power(values[i], *exponent) if exponent else CALLS[name](values[i]), []
            else:
                value, read = values[rest[0]] * (values[rest[1]] if operation == "times" else 1 / values[rest[1]]), rest
            if not all(values[i][k].is_finite() for i in read for k in range(length)):
                return [arb("nan")] * length
            values.append(value)
        return [values[-1][k] for k in range(length)]
    finally:
        ctx.prec, ctx.cap = before


def number(c: Fraction) -> Any:
    return arb(fmpq(c.numerator, c.denominator))


def at(program: Program, order: int, x: float) -> tuple[float, float]:
    """Bounds of F = f^(order) at a point; the second derivative of it that the longer series wants may not be
    there."""
    longer = run(program, [[arb(x), 1]], order + 2)[order]
    value = longer if longer.is_finite() else run(program, [[arb(x), 1][: order + 1]], order + 1)[order]
    return ends(value * factorial(order))


def over(
    program: Program, order: int, low: float, high: float, halvings: int, hull: tuple[float, float]
) -> tuple[float, float]:
    """Bounds of F over [low, high]: its ends where F is monotone, else the mean value form, or those of halves.

    `hull` is what F is known to reach at the ends of intervals that this one is a half of: bounds that are not much
    beyond it, and beyond the ends of this one, are good enough."""
    a, b = at(program, order, low), at(program, order, high)
    own = min(a[0], b[0]), max(a[1], b[1])
    hull = min(hull[0], own[0]), max(hull[1], own[1])
    name, rest = (
        (program[1][0][1], program[1][0][3:]) if program[1][0][0] == "call" and len(program[1]) == 1 else ("", ())
    )
    if low == high or (order == 0 and (name in RISING or any(e != int(e) for e in rest))):
        return own
    c = run(program, [[ball(low, high), 1]], order + 2)
    f, slope = c[order] * factorial(order), c[order + 1] * factorial(order + 1)
    if f.is_finite() and slope.is_finite() and (slope >= 0 or slope <= 0):
        return own
    middle = low + (high - low) / 2
    if low * high > 0 and not 0.25 <= low / high <= 4:
        middle = min(max(float(np.sign(low) * np.sqrt(low * high)), low), high)
    bounds, centre = ends(f), at(program, order, middle)
    if slope.is_finite() and abs(centre[0]) + abs(centre[1]) < inf:
        by_mean = ends(ball(*centre) + slope * (ball(low, high) - arb(middle)))
        bounds = max(bounds[0], by_mean[0]), min(bounds[1], by_mean[1])
    enough = 0.001 * (own[1] - own[0]) + 2.0**-12 * max(abs(bounds[0]), abs(bounds[1]))
    good = bounds[1] - bounds[0] < inf and bounds[0] >= hull[0] - enough and bounds[1] <= hull[1] + enough
    if halvings and low < middle < high and not good:
        left, right = (over(program, order, *part, halvings - 1, hull) for part in ((low, middle), (middle, high)))
        bounds = max(bounds[0], min(left[0], right[0])), min(bounds[1], max(left[1], right[1]))
    return bounds


def enclose(program: Program, order: int, x: Span, halvings: int = HALVINGS) -> Span:
    """Bounds of f^(order) over intervals; all their ends cut the line, so that what overlaps is bounded once."""
    lows, highs = x.low.ravel(), x.high.ravel()
    if not np.isfinite(x.size).all():
        return Span(np.full(x.low.shape, -inf), np.full(x.low.shape, inf))
    known = (
        KNOWN.get((program[1][0][1], order), (-inf, inf))
        if len(program[1]) == 1 and program[1][0][0] == "call"
        else (-inf, inf)
    )
    if (
        program[1][0][0] == "call"
        and order == 0
        and len(program[1]) == 1
        and [e for e in program[1][0][3:] if e % 2 != 1]
    ):
        known = 0.0, inf  # a power
    knots = np.unique(np.concatenate([lows, highs]))
    first, last = np.searchsorted(knots, lows), np.searchsorted(knots, highs)
    used = np.cumsum(np.bincount(first, minlength=len(knots)) - np.bincount(last, minlength=len(knots)))
    points = [at(program, order, k) for k in knots.tolist()]
    pieces = [
        over(program, order, a, b, halvings, (inf, -inf)) if u else (0.0, 0.0)
        for a, b, u in zip(knots.tolist(), knots.tolist()[1:], used, strict=False)
    ]
    hulls = [points[i : j + 1] + pieces[i:j] for i, j in zip(first, last, strict=True)]
    low = np.array([max(min(a for a, _ in hull), known[0]) for hull in hulls]).reshape(x.low.shape)
    high = np.array([min(max(b for _, b in hull), known[1]) for hull in hulls]).reshape(x.low.shape)
    unbounded = np.array([any(b - a == inf for a, b in hull) for hull in hulls]).reshape(x.low.shape) & (
        known == (-inf, inf)
    )
    return Span(np.where(unbounded, -inf, low), np.where(unbounded, inf, high))


def image_of(program: Program, arguments: list[Span]) -> Span:
    """A program's range, step by step; a b of the same operand twice is a square."""
    values = list(arguments)
    for operation, *rest in program[1]:
        if operation == "linear":
            value = doubles(rest[1], values[0])
            for c, i in rest[0]:
                value = value + doubles(c, values[0]) * values[i]
        elif operation == "call":
            value = enclose((1, (("call", rest[0], 0, *rest[2:]),)), 0, values[rest[1]])
        elif operation == "times":
            value = enclose(SQUARE, 0, values[rest[0]]) if rest[0] == rest[1] else values[rest[0]] * values[rest[1]]
        else:
            value = values[rest[0]] * enclose(RECIPROCAL, 0, values[rest[1]])
        values.append(value)
    return values[-1]


def doubles(c: Fraction, like: Span) -> Span:
    x, one = float(c), np.ones(like.low.shape)
    return Span(
        one * (x if Fraction(x) <= c else nextafter(x, -inf)), one * (x if Fraction(x) >= c else nextafter(x, inf))
    )


def slopes_of(program: Program, arguments: list[Span]) -> list[Span]:
    """Slopes of a program by each of its arguments, over their ranges."""
    if program[0] == 1:
        return [enclose(program, 1, arguments[0])]
    if program == PAIRS["product"]:
        return [arguments[1], arguments[0]]
    if program == PAIRS["quotient"]:
        inverse = enclose(RECIPROCAL, 0, arguments[1])
        return [inverse, -arguments[0] * inverse * inverse]
    bound = np.full(arguments[0].low.shape, 1.0 if program == NORM else inf)
    return [Span(-bound, bound)] * 2


__all__ = ["Array", "Program", "ball", "enclose", "ends", "image_of", "point", "run", "slopes_of"]
