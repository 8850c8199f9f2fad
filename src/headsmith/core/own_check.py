"""First looks at a program on Arb's series: whether it runs, and whether its derivatives belong to its values."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nan
from typing import Any

from flint import arb, arb_series

from headsmith.core.balls import FINE_BITS, precision, taylor

STEP = 2.0**-20
PLACES = (0.3, 1.7, -0.6, 4.2)
Evaluator = Callable[[Any], Any]


def problem_of(evaluator: Evaluator) -> str | None:
    """Why this is no program on series, in the words of what it raised; None where it is one."""
    problem = "it has no value at any place"
    for place in PLACES:
        try:
            with precision(FINE_BITS):
                result = evaluator(arb_series([arb(place), 1], 4))
        except (ArithmeticError, ValueError):
            continue  # not defined there
        except Exception as raised:
            return f"{type(raised).__name__}: {raised}"
        if isinstance(result, arb_series | arb | int | float):
            return None
        problem = f"it returned a {type(result).__name__}"
    return problem


def value_of(evaluator: Evaluator, place: float) -> float:
    """The value at a place; nan where there is none."""
    return _derivative(evaluator, arb(place), 0)[0]


def derivatives(evaluator: Evaluator, place: float) -> list[tuple[float, float]]:
    """For the orders 1 and 2: what the program says, and what differences of the order below say, where finite.

    With h = 2^-20 a central difference is off by h^2 / 6 of the derivative two orders up, about 1e-13 of it.
    """
    found = []
    for order in (1, 2):
        told = _derivative(evaluator, arb(place), order)
        sides = [_derivative(evaluator, arb(place) + sign * arb(STEP), order - 1) for sign in (-1, 1)]
        if all(isfinite(value) and radius < 1e-20 * (1 + abs(value)) for value, radius in (told, *sides)):
            with precision(FINE_BITS):
                low, high = (_ball(evaluator, arb(place) + sign * arb(STEP), order - 1) for sign in (-1, 1))
                found.append((told[0], float((high - low) / (2 * arb(STEP)))))
    return found


def _ball(evaluator: Evaluator, place: arb, order: int) -> arb:
    return taylor(evaluator, place, order)[0]


def _derivative(evaluator: Evaluator, place: arb, order: int) -> tuple[float, float]:
    """Middle and radius."""
    try:
        with precision(FINE_BITS):
            ball = _ball(evaluator, place, order)
            return float(ball.mid()), float(ball.rad())
    except (ArithmeticError, ValueError):
        return nan, inf
