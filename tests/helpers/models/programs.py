"""Programs for tests: a catalogue, random ones, and what they are in 50 digits."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import mpmath
import numpy as np

from headsmith.core.program import Arithmetic, Call, Linear, Over, Program, Step, Times, run_program
from helpers.oracles import mathematics

EXACT = {**mathematics.EXACT, "hypotenuse": lambda x: mpmath.sqrt(1 + x * x)}


def exact_value(program: Program, place: Any) -> Any:
    """The program in mpmath, at its working precision."""

    def number(value: F) -> Any:
        return mpmath.mpf(value.numerator) / value.denominator

    def called(name: str, parameter: float | None, value: Any) -> Any:
        return mpmath.power(value, mpmath.mpf(parameter)) if name == "power" else EXACT[name](value)

    on = Arithmetic(
        constant=number,
        scaled=lambda coefficient, value: number(coefficient) * value,
        added=lambda left, right: left + right,
        multiplied=lambda left, right: left * right,
        divided=lambda left, right: left / right,
        called=called,
    )
    return run_program(program, [mpmath.mpf(float(s)) if not isinstance(s, mpmath.mpf) else s for s in place], on)


def linear(*terms: tuple[int, int], constant: F | int = 0) -> Linear:
    """constant + sum of coefficient * operand."""
    return Linear(tuple((F(coefficient), operand) for coefficient, operand in terms), F(constant))


def horner(coefficients: list[F]) -> Program:
    """A polynomial of one variable, the highest coefficient first."""
    steps: list[Step] = [Linear((), coefficients[0])]
    for coefficient in coefficients[1:]:
        steps += [Times(len(steps), 0), Linear(((F(1), len(steps) + 1),), coefficient)]
    return Program(1, tuple(steps))


ONE_VARIABLE: dict[str, tuple[Program, tuple[float, float]]] = {
    "exp(sin(x)^2)": (Program(1, (Call("sin", 0), Times(1, 1), Call("exp", 2))), (-2.0, 2.0)),
    "1/(1+25x^2)": (
        Program(1, (Times(0, 0), linear((25, 1), constant=1), Linear((), F(1)), Over(3, 2))),
        (-1.0, 1.0),
    ),
    "horner": (horner([F(i * 7 % 5 - 2, 3) for i in range(13)]), (-1.0, 1.0)),
    "3 sigmoid(2x+1) - 4": (
        Program(1, (linear((2, 0), constant=1), Call("sigmoid", 1), linear((3, 2), constant=-4))),
        (-3.0, 3.0),
    ),
    "log(x + 1/100)": (Program(1, (linear((1, 0), constant=F(1, 100)), Call("log", 1))), (0.0, 1.0)),
    "1/(x + 1/50)": (Program(1, (linear((1, 0), constant=F(1, 50)), Linear((), F(1)), Over(2, 1))), (0.0, 1.0)),
    "gelu(x) cos(x)": (Program(1, (Call("gelu", 0), Call("cos", 0), Times(1, 2))), (-2.0, 2.0)),
    "softplus(tanh(3x))": (Program(1, (linear((3, 0)), Call("tanh", 1), Call("softplus", 2))), (-1.0, 1.0)),
    "x^1.7 hypotenuse(x)": (
        Program(1, (Call("power", 0, 1.7), Call("hypotenuse", 0), Times(1, 2))),
        (0.125, 2.0),
    ),
    "sqrt(erf(x) + 2)": (Program(1, (Call("erf", 0), linear((1, 1), constant=2), Call("sqrt", 2))), (-2.0, 2.0)),
}

SUM = linear((1, 0), (1, 1))
TWO_VARIABLES: dict[str, tuple[Program, tuple[float, float], tuple[float, float]]] = {
    "exp(-x^2) cos(3y)": (
        Program(2, (Times(0, 0), linear((-1, 2)), Call("exp", 3), linear((3, 1)), Call("cos", 5), Times(4, 6))),
        (-1.0, 1.0),
        (-1.0, 1.0),
    ),
    "x y (x+y)": (Program(2, (Times(0, 1), SUM, Times(2, 3))), (-1.0, 1.0), (-0.5, 2.0)),
    "log(1 + x y)": (
        Program(2, (Times(0, 1), linear((1, 2), constant=1), Call("log", 3))),
        (-0.75, 0.75),
        (-1.0, 1.0),
    ),
    "sqrt(1+x^2+y^2)": (
        Program(2, (Times(0, 0), Times(1, 1), linear((1, 2), (1, 3), constant=1), Call("sqrt", 4))),
        (-1.0, 1.0),
        (-1.0, 1.0),
    ),
    "(x-y)/(1+xy)": (
        Program(2, (Times(0, 1), linear((1, 2), constant=1), linear((1, 0), (-1, 1)), Over(4, 3))),
        (-0.5, 1.0),
        (-0.5, 1.0),
    ),
    "sin(x) exp(-y)": (
        Program(2, (Call("sin", 0), linear((-1, 1)), Call("exp", 3), Times(2, 4))),
        (-1.0, 1.0),
        (0.0, 1.0),
    ),
    "y tanh(x+y)": (Program(2, (SUM, Call("tanh", 2), Times(3, 1))), (-1.0, 1.0), (-1.0, 1.0)),
    "y / x": (Program(2, (Over(1, 0),)), (0.5, 1.0), (-1.0, 1.0)),
}

SMOOTH = ("sin", "cos", "exp", "tanh", "sigmoid", "softplus", "erf", "gelu", "gaussian", "square", "hypotenuse")
RISKY = ("log", "sqrt", "reciprocal")


def random_program(seed: int, variables: int, steps: int = 6) -> Program:
    """Any program, perhaps with singular points; operands are mostly recent ones."""
    random = np.random.default_rng(seed)
    made: list[Step] = []
    for number in range(variables, variables + steps):

        def operand(number: int = number) -> int:
            return int(max(random.integers(number), random.integers(number)))

        kind = random.integers(8)
        if kind < 2:
            terms = tuple((F(int(random.integers(-6, 7)), 4), operand()) for _ in range(int(random.integers(1, 3))))
            made.append(Linear(terms, F(int(random.integers(-9, 10)), 6)))
        elif kind < 5:
            made.append(Call(str(random.choice(SMOOTH if random.random() < 0.85 else RISKY)), operand()))
        elif kind < 7:
            made.append(Times(operand(), operand()))
        else:
            made.append(Over(operand(), operand()))
    return Program(variables, tuple(made))
