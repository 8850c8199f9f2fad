"""Named functions and short programs of them, with rigorous enclosures by Arb (python-flint).

    program ::= variables  step*         operands are numbered: the variables first, then the steps in their order
    step    ::= linear   constant + sum of coefficient * operand, with rational coefficients
              | call     a named function of one operand, perhaps with a parameter
              | times    operand * operand
              | over     operand / operand

The last step is the value, in exact real arithmetic. A program runs on balls (arb: a midpoint and a radius) and on
power series of balls (arb_series). Run on the series c + h t it gives balls that hold the Taylor coefficients of
t -> f(c + h t) for every real c and h in the given balls. So one run at a point gives derivatives there, and one run
with a wide ball bounds a derivative over an interval. Where a step is not defined on a whole ball (a pole, the end of a
domain), the answer is nan inside and an infinite bound outside.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import comb, copysign, factorial, inf, nextafter, prod, sqrt
from operator import methodcaller
from re import fullmatch
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx, fmpq

from .arithmetic import Interval
from .errors import Refused, refuse, spend
from .reading import field, items, real, text, whole

BITS = 128
MOST_STEPS, LONGEST_NUMBER, LARGEST_POWER = 256, 2048, 1024.0


@contextmanager
def working(bits: int, length: int) -> Iterator[None]:
    """Compute with `bits` bits and series of `length` terms inside: flint keeps both for the whole process."""
    saved = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, length
    try:
        yield
    finally:
        ctx.prec, ctx.cap = saved


# Named functions ----------------------------------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _bessel(order: int, x: Any) -> Any:
    """J_n, from J_n(x) = 1/pi times the integral over [0, pi] of cos(n s - x sin s) ds.

    By it |J_n^(i)| <= 1 for all i, so over a ball J^(i) lies within its radius of the value at the midpoint; and
    J_n' = (J_(n-1) - J_(n+1)) / 2 gives J_n^(i) = 2^-i sum_j (-1)^j binom(i, j) J_(n-i+2j), with J_-m = (-1)^m J_m.
    """
    place, inner, total = x[0], arb_series([0, *x.coeffs()[1:]], x.prec), arb_series([0], x.prec)
    at = [place.mid().bessel_j(m) for m in range(order + x.prec)]
    at += [at[m] * (-1) ** m for m in range(len(at) - 1, 0, -1)]  # so that at[-m] is J_-m
    for i in reversed(range(x.prec)):
        derivative = sum((-1) ** j * comb(i, j) * at[order - i + 2 * j] for j in range(i + 1)) / arb(2) ** i
        total = total * inner + (derivative + place.rad() * arb(0, 1)) / factorial(i)
    return total


def _power(x: Any, exponent: float) -> Any:
    if not exponent.is_integer():
        return x ** arb(exponent) if x.length() else arb_series([arb.nan()])  # flint makes 0 of any power of 0
    product = prod([x] * abs(int(exponent)), start=arb_series([1]))
    return product if exponent >= 0 else 1 / product


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: methodcaller(name) for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "erf")},
    **{f"arc{name[1:]}": methodcaller(name) for name in ("asin", "acos", "atan")},
    "expm1": lambda x: x.exp() - 1,
    "log1p": lambda x: (1 + x).log(),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "sinh": lambda x: (x.exp() - (-x).exp()) / 2,
    "cosh": lambda x: (x.exp() + (-x).exp()) / 2,
    "tanh": lambda x: 2 * _sigmoid(2 * x) - 1,
    "sigmoid": _sigmoid,
    "softplus": lambda x: x + (1 + (-x).exp()).log() if x[0] > 0 else (1 + x.exp()).log(),
    "gelu": lambda x: x * (-x * arb(2).rsqrt()).erfc() / 2,
    "gaussian": lambda x: (-x * x / 2).exp(),
    "hypotenuse": lambda x: (1 + x * x).sqrt(),
    "j0": partial(_bessel, 0),
    "j1": partial(_bessel, 1),
}
# And `power`, the one with a parameter: x**parameter.

SLOW = {"j0": 128.0, "j1": 128.0}  # what a call costs, of others 8, of powers their exponent

MONOTONE: tuple[str, ...] = ("exp", "log", "sqrt", "erf", "expm1", "log1p", "sinh", "tanh", "sigmoid", "softplus")
MONOTONE += ("arcsin", "arccos", "arctan")
# Each is defined on an interval, so between two points where it is defined.
IMAGES = {
    **dict.fromkeys((("square", 0), ("softplus", 0), ("exp", 1)), (0.0, inf)),
    **dict.fromkeys((("sigmoid", 0), ("gaussian", 0), ("tanh", 1), ("softplus", 1), ("arctan", 1)), (0.0, 1.0)),
    **dict.fromkeys(((name, order) for name in ("sin", "cos", "j0", "j1") for order in (0, 1, 2)), (-1.0, 1.0)),
    **dict.fromkeys((("tanh", 0), ("erf", 0), ("gaussian", 1), ("hypotenuse", 1)), (-1.0, 1.0)),
    **dict.fromkeys((("cosh", 0), ("hypotenuse", 0)), (1.0, inf)),
    **{("sigmoid", 1): (0.0, 0.25), ("erf", 1): (0.0, 1.13), ("gelu", 1): (-0.13, 1.13)},
}
# Where all values of a derivative lie, whatever the argument.


# Programs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """`steps` are ("linear", ((coefficient, operand), ...), constant), ("call", name, operand, parameter or None),
    ("times", left, right) and ("over", numerator, denominator)."""

    variables: int
    steps: tuple[tuple[Any, ...], ...]


def named(name: str, parameter: float | None = None) -> Program:
    """A named function as a program. Refuses names that nobody knows."""
    power = name == "power" and parameter is not None and abs(parameter) <= LARGEST_POWER
    if not power and (name not in FUNCTIONS or parameter is not None):
        raise Refused(f"there is no function {name!r} with the exponent {parameter}, at most {LARGEST_POWER} for power")
    return Program(1, (("call", name, 0, parameter),))


def read_program(data: Any) -> Program:
    """{"variables": n, "steps": [["linear", [["3/7", 0], ...], "1/2"], ["call", "tanh", 1], ["call", "power", 1, 2.5],
    ["times", 0, 1], ["over", 0, 1], ...]}; operands come before the step that uses them."""
    variables, steps = whole(field(data, "variables"), 1, 2), items(field(data, "steps"), MOST_STEPS)
    refuse(not steps, "a program has no step")
    return Program(variables, tuple(_step(items(step, 4), variables + i - 1) for i, step in enumerate(steps)))


def _step(step: list[Any], last: int) -> tuple[Any, ...]:
    match step:
        case ["linear", terms, constant]:
            pairs = [items(term, 2) for term in items(terms, MOST_STEPS)]
            if all(len(pair) == 2 for pair in pairs):
                return "linear", tuple((_rational(c), whole(i, 0, last)) for c, i in pairs), _rational(constant)
        case ["call", name, operand, *parameter]:
            call = named(text(name), real(parameter[0]) if parameter else None).steps[0]
            return "call", call[1], whole(operand, 0, last), call[3]
        case [("times" | "over") as kind, left, right]:
            return kind, whole(left, 0, last), whole(right, 0, last)
    raise Refused("a step of a program is neither linear, call, times nor over")


def _rational(value: Any) -> Fraction:
    """A whole number, or a text such as "3/7"."""
    written = value if isinstance(value, str) else str(whole(value, -(2**53), 2**53))
    if len(written) > LONGEST_NUMBER or not fullmatch("-?[0-9]+(/0*[1-9][0-9]*)?", written):
        raise Refused(f"{written[:40]!r} is no rational number such as 3/7")
    return Fraction(written)


def run(program: Program, arguments: Sequence[Any], linear: Any, call: Any, times: Any) -> Any:
    """The value of a program for any kind of numbers, from linear(pairs of coefficient and number, constant),
    call(name, parameter, number) and times(number, number)."""
    known = list(arguments)
    for step in program.steps:
        match step:
            case ("linear", terms, constant):
                known.append(linear([(c, known[i]) for c, i in terms], constant))
            case ("call", name, operand, parameter):
                known.append(call(name, parameter, known[operand]))
            case ("times", left, right):
                known.append(times(known[left], known[right]))
            case (_, left, right):
                known.append(times(known[left], call("reciprocal", None, known[right])))
    return known[-1]


def program_series(program: Program, lines: Sequence[tuple[Any, Any]], length: int) -> list[Any]:
    """The first coefficients of t -> f(place + t step), one pair (place, step) of balls for each variable.

    Guarantee: coefficient i is the ball of p^(i)(0) / i! for p(t) = f(c + t h) and all reals c, h in the balls. Where f
    may be undefined, all are nan. To be used inside `working(bits, length)`.
    """
    powers = sum(abs(step[3] or SLOW.get(step[1], 8.0)) for step in program.steps if step[0] == "call")
    terms = sum(len(step[1]) for step in program.steps if step[0] == "linear") + len(program.steps)
    spend(2e4 + 2000.0 * length * (terms + powers))
    try:
        result = run(program, [arb_series([*line], length) for line in lines], _linear, _call, _times)
    except (ArithmeticError, ValueError):  # from `_defined`, or flint's words for a pole
        return [arb.nan()] * length
    # Past its own precision a series is unknown, although flint reads zeros there.
    return [result[i] if i < result.prec else arb.nan() for i in range(length)]


def _linear(terms: list[tuple[Fraction, Any]], constant: Fraction) -> Any:
    return sum((_ball(c) * _defined(x) for c, x in terms), start=arb_series([_ball(constant)]))


def _call(name: str, parameter: float, x: Any) -> Any:
    return _power(x, parameter) if name == "power" else FUNCTIONS[name](x)


def _times(left: Any, right: Any) -> Any:
    return _defined(left) * _defined(right)


def _ball(value: Fraction) -> Any:
    return arb(fmpq(value.numerator, value.denominator))


def _defined(series: Any) -> Any:
    """What is not defined must stay so: flint makes 0 of it where it is multiplied by 0."""
    if not all(entry.is_finite() for entry in series.coeffs()):
        raise ArithmeticError("a step is not defined on all of a ball")
    return series


# Enclosures ---------------------------------------------------------------------------------------------------------


def ends(ball: Any) -> tuple[float, float]:
    """Doubles at or outside of the ends of a ball, next to them; infinite for nan."""
    bottom, top = ball.lower(), ball.upper()
    low, high = float(bottom), float(top)  # to nearest: may lie on the wrong side
    if not low <= high:
        return -inf, inf
    return low if low <= bottom else nextafter(low, -inf), high if high >= top else nextafter(high, inf)


def enclosed(balls: Any) -> Interval:
    """An array of balls as intervals."""
    found = np.reshape([ends(ball) for ball in np.ravel(balls)], (*np.shape(balls), 2))
    return Interval(found[..., 0], found[..., 1])


def enclose(program: Program, x: Interval, order: int = 0, halvings: int = 7) -> Interval:
    """Bounds of the derivative of an order (0, 1, 2, ...) of a function of one variable over each interval of x.

    Guarantee: they hold for every real number in the interval; infinite where that is not bounded, or Arb finds f not
    to be defined on all of it, never nan.

    A run over the whole interval bounds F = f^(order) and F'. Where F' keeps its sign, F lies between its values at the
    ends, and so does a function that is known to be monotone. Elsewhere the ball of F and the mean value form
    F(m) + F'(interval) (interval - m) both hold: they are intersected, and the interval is halved a few times. All that
    is done once for each part between neighbouring ends, whichever intervals it belongs to.
    """
    refuse(program.variables != 1, "no function of one variable")
    monotone, image = _known(program, order)
    bounded = np.isfinite(x.low) & np.isfinite(x.high) & (x.low <= x.high)
    points, place = np.unique(np.where(bounded, [x.low, x.high], 0.0), return_inverse=True)
    with working(BITS, order + 2):
        at = [(point, *_at(program, order, point)) for point in points.tolist()]
        inside = np.cumsum(np.bincount(place.ravel(), np.repeat([1.0, -1.0], x.low.size), len(at))) > 0.0
        parts = [_range(program, order, p, at[k + inside[k]], -1 if monotone else halvings) for k, p in enumerate(at)]
    every = np.array([bounds for k, part in enumerate(parts) for bounds in (at[k][1:], part)])  # of points, and between
    found = [(every[2 * i : 2 * j + 1, 0].min(), every[2 * i : 2 * j + 1, 1].max()) for i, j in place.reshape(2, -1).T]
    return Interval(*np.moveaxis(np.reshape(found, (*x.low.shape, 2)), -1, 0)).meet(Interval(*image)).where(bounded)


def _derivatives(program: Program, order: int, place: Any, count: int = 2) -> list[Any]:
    """Balls of F = f^(order) and of F', over a ball; or of F alone."""
    series = program_series(program, [(place, 1)], order + count)
    return [series[n] * factorial(n) for n in range(order, order + count)]


def _at(program: Program, order: int, point: float) -> tuple[float, float]:
    """Bounds of F at a point, where F' need not be defined."""
    low, high = ends(_derivatives(program, order, arb(point))[0])
    return (low, high) if low > -inf else ends(_derivatives(program, order, arb(point), 1)[0])


Point = tuple[float, float, float]  # a place, and bounds of F there


def _range(program: Program, order: int, left: Point, right: Point, halvings: int, *seen: float) -> tuple[float, float]:
    """Bounds of F between two points; a monotone one has -1 halvings. What is hardly beyond what was `seen` of F at
    points outside is not looked at closer."""
    least, most = min(left[1], right[1]), max(left[2], right[2])
    if halvings < 0 or left[0] == right[0]:
        return least, most
    whole, middle = arb(left[0]).union(arb(right[0])), _middle(left[0], right[0])
    value, slope = _derivatives(program, order, whole)
    if value.is_finite() and (slope >= 0 or slope <= 0):
        return least, most
    centre = _derivatives(program, order, arb(middle))[0]
    low, high = np.array([ends(value), ends(centre + slope * (whole - middle))]).T
    low, high = low.max(), high.min()
    spare = 0.001 * (most - least) + 2.0**-12 * max(abs(low), abs(high))
    known = min(least, most, *seen) - spare <= low and high <= max(least, most, *seen) + spare < inf
    if halvings > 0 and left[0] < middle < right[0] and not known:
        cut = (left, (middle, *ends(centre))), ((middle, *ends(centre)), right)
        halves = [_range(program, order, *pair, halvings - 1, least, most, *seen) for pair in cut]
        low, high = max(low, min(half[0] for half in halves)), min(high, max(half[1] for half in halves))
    return low, high


def _middle(low: float, high: float) -> float:
    """A number between two others; the geometric mean, where one is more than four times the other."""
    if low * high > 0.0 and not 0.25 <= low / high <= 4.0:
        return min(max(copysign(sqrt(low * high), low), low), high)
    return low + (high - low) / 2


def _known(program: Program, order: int) -> tuple[bool, tuple[float, float]]:
    """Whether a derivative is known to be monotone, and between which numbers all its values lie."""
    match program.steps:
        case (("call", "power", 0, exponent),) if order == 0:
            return not exponent.is_integer(), (0.0 if exponent % 2 != 1 else -inf, inf)
        case (("call", name, 0, _),):
            return order == 0 and name in MONOTONE, IMAGES.get((name, order), (-inf, inf))
    return False, (-inf, inf)
