"""A function of one or two variables as a short program: what one table head may stand for.

    program ::= variables  step*              operands are numbers: the variables first, then the steps in their order
    step    ::= Linear   constant + sum of coefficient * operand
              | Call     a named function of one operand, see core.functions
              | Times    operand * operand
              | Over     operand / operand

The last step is the value. The semantics is exact real arithmetic: coefficients are rationals.

`program_values` runs it on numbers, which is an estimate; `program_range` on many small boxes at once, by interval
arithmetic in float64, rounded outwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Any, assert_never

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.functions import FUNCTIONS
from headsmith.core.intervals import Interval, added, divided, interval_of, multiple, multiplied, squared
from headsmith.kernel.core.functions import Program as KernelProgram


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * operand."""

    terms: tuple[tuple[Fraction, int], ...]
    constant: Fraction = Fraction(0)


@dataclass(frozen=True)
class Call:
    """A named function of one operand."""

    name: str
    operand: int
    parameter: float | None = None


@dataclass(frozen=True)
class Times:
    """left * right."""

    left: int
    right: int


@dataclass(frozen=True)
class Over:
    """numerator / denominator."""

    numerator: int
    denominator: int


Step = Linear | Call | Times | Over


@dataclass(frozen=True)
class Program:
    """A straight-line program of `variables` numbers; hashable, so that what is known of it is found once."""

    variables: int
    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def kernel_program(program: Program) -> KernelProgram:
    """This program in the kernel's own types."""
    steps: list[tuple[Any, ...]] = []
    for step in program.steps:
        match step:
            case Linear():
                steps.append(("linear", step.terms, step.constant))
            case Call():
                steps.append(("call", step.name, step.operand, step.parameter))
            case Times():
                steps.append(("times", step.left, step.right))
            case Over():
                steps.append(("over", step.numerator, step.denominator))
            case _:
                assert_never(step)
    return KernelProgram(program.variables, tuple(steps))


def fault_of(program: Program) -> str | None:
    """Why this is no program, or None."""
    if not program.steps:
        return "a program has no step"
    for number, step in enumerate(program.steps, start=program.variables):
        match step:
            case Linear():
                operands = tuple(operand for _, operand in step.terms)
            case Call():
                if step.name not in FUNCTIONS:
                    return f"there is no function named {step.name!r}"
                if (step.name == "power") != (step.parameter is not None):
                    return f"{step.name} has the parameter {step.parameter}: power needs its exponent, no other has one"
                operands = (step.operand,)
            case Times():
                operands = (step.left, step.right)
            case Over():
                operands = (step.numerator, step.denominator)
            case _:
                assert_never(step)
        if not all(0 <= operand < number for operand in operands):
            return f"step {number} of a program has the operands {operands}, which are not all before it"
    return None


def straightened(program: Program, incline: Sequence[float], intercept: float, unit: float) -> Program:
    """(f - incline . x - intercept) / unit, exactly."""
    value = program.variables + len(program.steps) - 1
    share = 1 / Fraction(unit)
    lines = tuple((-Fraction(each) * share, place) for place, each in enumerate(incline) if each)
    last = Linear(((share, value), *lines), -Fraction(intercept) * share)
    return Program(program.variables, (*program.steps, last))


def gate_program(intercept: float, incline: float) -> Program:
    """(x, y) -> y (intercept + incline x): what a gate head stands for."""
    return Program(2, (Linear(((Fraction(incline), 0),), Fraction(intercept)), Times(1, 2)))


@dataclass(frozen=True)
class Arithmetic:
    """What a program needs of the numbers that it runs on."""

    constant: Callable[[Fraction], Any]
    scaled: Callable[[Fraction, Any], Any]
    added: Callable[[Any, Any], Any]
    multiplied: Callable[[Any, Any], Any]
    divided: Callable[[Any, Any], Any]
    called: Callable[[str, float | None, Any], Any]


def run_program(program: Program, arguments: Sequence[Any], on: Arithmetic) -> Any:
    """The program's value for the given numbers, intervals or series."""
    known = list(arguments)
    for step in program.steps:
        match step:
            case Linear():
                total = on.constant(step.constant)
                for coefficient, operand in step.terms:
                    total = on.added(total, on.scaled(coefficient, known[operand]))
                known.append(total)
            case Call():
                known.append(on.called(step.name, step.parameter, known[step.operand]))
            case Times():
                known.append(on.multiplied(known[step.left], known[step.right]))
            case Over():
                known.append(on.divided(known[step.numerator], known[step.denominator]))
            case _:
                assert_never(step)
    return known[-1]


def program_values(program: Program, *arguments: Any) -> Any:
    """The program in the floating point of the arguments: an estimate."""
    kind = np.result_type(*arguments, np.float64).type

    def number(value: Fraction) -> Any:
        # Numerator over denominator in the wider format keeps the bits that float(value) would lose.
        return kind(float(value)) if kind is not np.longdouble else _long(value)

    on = Arithmetic(
        constant=number,
        scaled=lambda coefficient, value: number(coefficient) * value,
        added=lambda left, right: left + right,
        multiplied=lambda left, right: left * right,
        divided=lambda left, right: left / right,
        called=lambda name, parameter, value: FUNCTIONS[name].value(value, parameter),
    )
    with np.errstate(all="ignore"):
        value = run_program(program, [np.asarray(argument) for argument in arguments], on)
    return np.broadcast_to(value, np.broadcast_shapes(*(np.shape(argument) for argument in arguments)))


def _long(value: Fraction) -> Any:
    nearest = float(value)
    return np.longdouble(nearest) + np.longdouble(float(value - Fraction(nearest)))


# Ranges on boxes ------------------------------------------------------------------------------------------------------


def program_range(program: Program, lows: Any, highs: Any) -> tuple[Array, Array]:
    """Bounds of the program over each box: `lows` and `highs` have the shape (variables, boxes).

    Guarantee: low <= f(s) <= high for all s of the box; (-inf, inf) where the program may not be defined on all of it,
    or overflows; never nan.
    """
    low, high = np.broadcast_arrays(np.asarray(lows, dtype=np.float64), np.asarray(highs, dtype=np.float64))
    shape = low.shape[1:]
    with np.errstate(all="ignore"):
        result = run_program(program, [_known(Interval(a, b)) for a, b in zip(low, high, strict=True)], NUMBERS)
    return np.broadcast_to(result.low, shape).copy(), np.broadcast_to(result.high, shape).copy()


MOST_BOXES, DEEPEST = 400, 30


def defined_on(program: Program, box: Sequence[tuple[float, float]]) -> bool:
    """Whether the program has bounded values on all of the box; no, where halving boxes does not show it soon."""
    low, high = (np.array([[pair[end]] for pair in box], dtype=np.float64) for end in (0, 1))
    for level in range(DEEPEST * len(box)):
        unknown = ~np.isfinite(program_range(program, low, high)[0])
        if not unknown.any():
            return True
        low, high = low[:, unknown], high[:, unknown]
        if low.shape[1] > MOST_BOXES:
            return False
        middle = low / 2.0 + high / 2.0
        axis = (np.arange(len(box)) == level % len(box))[:, None]
        low, high = (
            np.concatenate([low, np.where(axis, middle, low)], axis=1),
            np.concatenate([np.where(axis, middle, high), high], axis=1),
        )
    return False


def _known(interval: Interval) -> Interval:
    """What is infinite, crossed or not a number at one end is unknown: nothing that follows from it is known."""
    fine = np.isfinite(interval.low) & np.isfinite(interval.high) & (interval.low <= interval.high)
    return Interval(np.where(fine, interval.low, -inf), np.where(fine, interval.high, inf))


def _lifted(operation: Callable[..., Interval]) -> Callable[..., Interval]:
    """The operation where all operands are known."""

    def lifted(*operands: Interval) -> Interval:
        found = _known(operation(*operands))
        known = np.asarray(True)
        for operand in operands:
            known = known & np.isfinite(operand.low)
        return Interval(np.where(known, found.low, -inf), np.where(known, found.high, inf))

    return lifted


def _product(left: Interval, right: Interval) -> Interval:
    return squared(left) if left is right else multiplied(left, right)


def _quotient(numerator: Interval, denominator: Interval) -> Interval:
    zero = (denominator.low <= 0.0) & (denominator.high >= 0.0)
    safe = Interval(np.where(zero, 1.0, denominator.low), np.where(zero, 1.0, denominator.high))
    found = divided(numerator, safe)
    return Interval(np.where(zero, -inf, found.low), np.where(zero, inf, found.high))


def _multiple(coefficient: Fraction, value: Interval) -> Interval:
    return value if coefficient == 1 else _lifted(lambda operand: multiple(coefficient, operand))(value)


def _image(name: str, parameter: float | None, value: Interval) -> Interval:
    function = FUNCTIONS[name]

    def image(operand: Interval) -> Interval:
        fine = np.isfinite(operand.low) & function.domain(parameter).covers(operand.low, operand.high)
        low, high = np.full(operand.low.shape, -inf), np.full(operand.low.shape, inf)
        low[fine], high[fine] = function.enclose(operand.low[fine], operand.high[fine], 0, parameter)
        return Interval(low, high)

    return _lifted(image)(value)


NUMBERS = Arithmetic(
    constant=interval_of,
    scaled=_multiple,
    added=_lifted(added),
    multiplied=_lifted(_product),
    divided=_lifted(_quotient),
    called=_image,
)
