"""What is wanted, as text that Rocq reads, and as pieces on which it is affine.

A target is a graph of one token. It is either *smooth*, of one input and made of functions that the library Interval
knows; or *piecewise affine*, made of affine, relu, maximum and minimum nodes alone, of any number of inputs. Then its
kinks must lie where the heads' form takes one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.export.rocq_terms import Poly, along
from headsmith.language.builder import program_of
from headsmith.language.graph import (
    Affine,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Product,
    Quotient,
    Relu,
    needed,
)

LONGEST = 20_000
"""Characters of a target."""
MOST_KINKS = 6
"""Each doubles the cases that are told apart when the target is simplified on a piece."""
WIDEST = 64

CALLS = {
    "exp": "exp {0}",
    "log": "ln {0}",
    "sqrt": "sqrt {0}",
    "sin": "sin {0}",
    "cos": "cos {0}",
    "tan": "tan {0}",
    "arctan": "atan {0}",
    "sinh": "sinh {0}",
    "cosh": "cosh {0}",
    "tanh": "tanh {0}",
    "expm1": "exp {0} - 1",
    "log1p": "ln (1 + {0})",
    "square": "{0} * {0}",
    "reciprocal": "1 / {0}",
    "sigmoid": "1 / (1 + exp (- {0}))",
    "softplus": "ln (1 + exp {0})",
    "gaussian": "exp (- ({0} * {0}) / 2)",
    "hypotenuse": "sqrt (1 + {0} * {0})",
}
"""Functions by what Interval knows; erf, gelu, Bessel functions and inverse sines are not among it."""


def number(value: Fraction | float) -> str:
    """A number as Rocq reads it: exactly."""
    exact = Fraction(value)
    text = str(exact.numerator) if exact.denominator == 1 else f"{exact.numerator} / {exact.denominator}"
    return text if exact >= 0 and exact.denominator == 1 else f"({text})"


def polynomial(coefficients: Sequence[Fraction], factors: Sequence[str]) -> str:
    """The sum of coefficients times factors, of which the first is 1."""
    parts = [number(coefficients[0])] if coefficients[0] else []
    for value, factor in zip(coefficients[1:], factors[1:], strict=True):
        if value:
            parts.append(factor if value == 1 else f"{number(value)} * {factor}")
    return " + ".join(parts) or "0"


def has_kinks(graph: Graph) -> bool:
    """Whether the target is piecewise affine; if not it is smooth. TargetError if it is neither."""
    kinds = {type(graph.nodes[each]) for each in needed(graph, graph.output)}
    kinks, affine = kinds & {Relu, Maximum, Minimum}, kinds <= {Input, Affine, Relu, Maximum, Minimum}
    if kinks and not affine:
        raise TargetError(
            "a theorem is written of targets that are smooth or piecewise affine, and this one is neither"
        )
    return bool(kinks)


# Text ---------------------------------------------------------------------------------------------------------------


def target_text(graph: Graph, component: int, names: Sequence[str]) -> str:
    """An output of the graph, as a term of Rocq in the inputs."""
    whole = _text(graph, graph.output, component, names)
    if len(whole) > LONGEST:
        raise TargetError(
            f"a theorem is written of targets of up to {LONGEST:,} characters, and this has {len(whole):,}"
        )
    return whole


def _text(graph: Graph, place: int, component: int, names: Sequence[str]) -> str:
    node: Any = graph.nodes[place]

    def read(argument: int) -> str:
        return _text(graph, argument, component, names)

    match node:
        case Input():
            return names[component]
        case Affine():
            constant, rows = Fraction(float(node.bias[component])), []
            for term in node.terms:
                for column, weight in _row(term, component):
                    rows.append((weight, _text(graph, term.node, column, names)))
            return "(" + polynomial([constant, *(w for w, _ in rows)], ["1", *(t for _, t in rows)]) + ")"
        case Relu():
            return f"(Rmax {read(node.argument)} 0)"
        case Maximum() | Minimum():
            name = "Rmax" if isinstance(node, Maximum) else "Rmin"
            first, *others = [read(each) for each in node.arguments]
            for other in others:
                first = f"({name} {first} {other})"
            return first
        case Function() | Product() | Quotient() | Hypotenuse() | Expression():
            program, arguments = program_of(node)
            return _program_text(program, [read(each) for each in arguments])
        case _:
            raise TargetError(
                f"a theorem is written of targets of one token, and this has a {type(node).__name__} node"
            )


def _row(term: Any, row: int) -> list[tuple[int, Fraction]]:
    """The weights of a row that are not zero, and their columns."""
    if max(term.weights.shape) > WIDEST:
        raise TargetError(f"a theorem is written of targets with up to {WIDEST} numbers in a node")
    if term.diagonal:
        return [(row, Fraction(float(term.weights[row])))]
    whole = np.asarray(term.weights @ np.eye(term.weights.shape[1]))[row]
    return [(column, Fraction(float(weight))) for column, weight in enumerate(whole) if weight]


def _program_text(program: Program, operands: list[str]) -> str:
    for step in program.steps:
        match step:
            case Linear():
                weights = [weight for weight, _ in step.terms]
                text = polynomial([step.constant, *weights], ["1", *(operands[each] for _, each in step.terms)])
            case Times():
                text = f"{operands[step.left]} * {operands[step.right]}"
            case Over():
                text = f"{operands[step.numerator]} / {operands[step.denominator]}"
            case Call():
                text = _call_text(step, operands[step.operand])
        operands.append(f"({text})")
        if len(operands[-1]) > LONGEST:
            raise TargetError(f"a theorem is written of targets of up to {LONGEST:,} characters")
    return operands[-1]


def _call_text(step: Call, operand: str) -> str:
    if step.name == "power" and step.parameter is not None:
        exponent = step.parameter
        if exponent != int(exponent):
            return f"exp ({number(exponent)} * ln {operand})"
        power = f"{operand} ^ {abs(int(exponent))}"
        return power if exponent >= 0 else f"1 / ({power})"
    if step.name not in CALLS:
        raise TargetError(f"the library Interval does not know {step.name}, so no theorem is written of it")
    return CALLS[step.name].format(operand)


# Pieces -------------------------------------------------------------------------------------------------------------


def affine_pieces(
    graph: Graph, component: int, form: Poly, low: Fraction, high: Fraction
) -> list[tuple[Fraction, Fraction, Poly]]:
    """Pieces [first, last] of the form's range, on each of which an output is one affine function of the inputs (by its
    coefficients of 1 and of them)."""
    waiting, found = [(low, high)], []
    while waiting:
        first, last = waiting.pop()
        values, kinks = _resolved(graph, component, form, (first + last) / 2)
        inside = [each for each in kinks if first < each < last]
        if inside:
            waiting += [(inside[0], last), (first, inside[0])]
        else:
            found.append((first, last, values))
        if len(found) + len(waiting) > MOST_KINKS + 1:
            raise TargetError(f"a theorem is written of targets with up to {MOST_KINKS} kinks")
    return found


def _resolved(graph: Graph, component: int, form: Poly, place: Fraction) -> tuple[Poly, list[Fraction]]:
    """An output as an affine function, with every gate as it is where the form is `place`; and where gates change."""
    kinks: list[Fraction] = []
    zero = (Fraction(0),) * (1 + len(form))

    def larger(one: Poly, other: Poly) -> bool:
        difference = along((a - b for a, b in zip(one, other, strict=True)), form)
        if difference is None:
            raise TargetError(
                "a theorem is written of targets whose kinks lie where the form that the heads read has one value"
            )
        constant, slope = difference
        if slope:
            kinks.append(-constant / slope)
        return constant + slope * place >= 0

    def value(number: int, row: int) -> Poly:
        node: Any = graph.nodes[number]
        match node:
            case Input():
                return tuple(Fraction(each == row + 1) for each in range(1 + len(form)))
            case Affine():
                total = [Fraction(float(node.bias[row])), *zero[1:]]
                for term in node.terms:
                    for column, weight in _row(term, row):
                        total = [a + weight * b for a, b in zip(total, value(term.node, column), strict=True)]
                return tuple(total)
            case Relu():
                inner = value(node.argument, row)
                return inner if larger(inner, zero) else zero
            case _:
                best, *others = [value(each, row) for each in node.arguments]
                for other in others:
                    best = best if larger(best, other) == isinstance(node, Maximum) else other
                return best

    return value(graph.output, component), kinks
