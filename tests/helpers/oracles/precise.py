"""Targets with fifty digits: any source graph on one sequence of tokens, and random graphs to try things on.

Nothing of the code under test computes here: mpmath evaluates node by node, stored doubles are exact, and pools and
moves are what the words say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import mpmath
import numpy as np
from mpmath import mpf

from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.language.builder import Builder
from headsmith.language.graph import (
    Affine,
    Attend,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Move,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
)
from helpers.oracles.mathematics import EXACT

DIGITS = 50


def called(name: str, parameter: float | None, value: Any) -> Any:
    """A named function of one number."""
    return mpmath.power(value, mpf(parameter)) if name == "power" else EXACT[name](value)


def run(program: Program, arguments: Sequence[Any]) -> Any:
    """A program of numbers."""
    known = list(arguments)
    for step in program.steps:
        match step:
            case Linear():
                parts = [mpf(c.numerator) / c.denominator * known[operand] for c, operand in step.terms]
                known.append(sum(parts, mpf(step.constant.numerator) / step.constant.denominator))
            case Call():
                known.append(called(step.name, step.parameter, known[step.operand]))
            case Times():
                known.append(known[step.left] * known[step.right])
            case Over():
                known.append(known[step.numerator] / known[step.denominator])
            case _:
                assert_never(step)
    return known[-1]


Rows = list[list[Any]]
"""Values of a node: rows[token][component]."""


def precise(graph: Graph, sequence: Any, causal: bool = False) -> Rows:
    """The output for one sequence (tokens, inputs), to about fifty digits of what is involved."""
    with mpmath.workdps(DIGITS):
        values: list[Rows] = []
        for node in graph.nodes:
            values.append(_node(node, values, np.atleast_2d(sequence), causal))
        return values[graph.output]


def _node(node: Any, values: list[Rows], sequence: Any, causal: bool) -> Rows:
    match node:
        case Input():
            return [[mpf(float(x)) for x in row] for row in sequence]
        case Affine():
            return [_affine(node, [value[token] for value in values]) for token in range(len(sequence))]
        case Relu():
            return [[max(x, mpf(0)) for x in row] for row in values[node.argument]]
        case Maximum() | Minimum():
            pick = max if isinstance(node, Maximum) else min
            rows = zip(*(values[argument] for argument in node.arguments), strict=True)
            return [[pick(parts) for parts in zip(*row, strict=True)] for row in rows]
        case Product():
            return _pairs(lambda a, b: a * b, values[node.left], values[node.right])
        case Quotient():
            return _pairs(lambda a, b: a / b, values[node.numerator], values[node.denominator])
        case Hypotenuse():
            return _pairs(mpmath.hypot, values[node.left], values[node.right])
        case Function():
            return [[called(node.name, node.parameter, x) for x in row] for row in values[node.argument]]
        case Expression():
            rows = zip(*(values[argument] for argument in node.arguments), strict=True)
            return [[run(node.program, parts) for parts in zip(*row, strict=True)] for row in rows]
        case Positional():
            return [[mpf(float(x)) for x in node.values[token]] for token in range(len(sequence))]
        case Pool():
            return [_pooled(node, values[node.argument], token) for token in range(len(sequence))]
        case Move():
            rows = values[node.argument]
            return [rows[t] if t >= 0 else [mpf(0)] * node.size for t in node.targets[: len(sequence)]]
        case Attend():
            return [_attended(node, values, token) for token in range(len(sequence))]
        case _:
            raise NotImplementedError(type(node).__name__)


def _affine(node: Affine, values: list[list[Any]]) -> list[Any]:
    total = [mpf(float(b)) for b in node.bias]
    for term in node.terms:
        weights = np.diag(term.weights) if term.diagonal else term.weights
        for row, column in np.argwhere(weights):
            total[row] += mpf(float(weights[row, column])) * values[term.node][column]
    return total


def _pairs(operation: Callable[[Any, Any], Any], left: Rows, right: Rows) -> Rows:
    return [[operation(a, b) for a, b in zip(*row, strict=True)] for row in zip(left, right, strict=True)]


def _pooled(node: Pool, rows: Rows, token: int) -> list[Any]:
    seen = rows[: token + 1] if node.causal else rows
    columns = list(zip(*seen, strict=True))
    match node.kind:
        case "mean":
            return [mpmath.fsum(column) / len(column) for column in columns]
        case "max":
            return [max(column) for column in columns]
        case _:
            return [min(column) for column in columns]


def _attended(node: Attend, values: list[Rows], token: int) -> list[Any]:
    query, keys, rows = values[node.queries][token], values[node.keys], values[node.values]
    seen = range(token + 1 if node.causal else len(keys))
    scores = [mpmath.fsum(q * k for q, k in zip(query, keys[other], strict=True)) for other in seen]
    powers = [mpmath.exp(score - max(scores)) for score in scores]
    columns = zip(*(rows[other] for other in seen), strict=True)
    return [mpmath.fsum(p * v for p, v in zip(powers, each, strict=True)) / mpmath.fsum(powers) for each in columns]


def error_at(got: Any, wanted: Rows) -> Any:
    """|got - wanted| for outputs (tokens, outputs), as doubles; nan where the model has no number."""
    with mpmath.workdps(DIGITS):
        found = [
            [float(abs(mpf(float(g)) - w)) if np.isfinite(g) else np.nan for g, w in zip(*row, strict=True)]
            for row in zip(np.atleast_2d(got), wanted, strict=True)
        ]
    return np.array(found)


# Random graphs -------------------------------------------------------------------------------------------------------

AWKWARD = (1.0, -1.0, 0.5, 2.0, 0.1, -0.3, 1 / 3, 0.7, 3.0, 0.2, -0.1)
BOUNDED = ("sin", "cos", "tanh", "sigmoid", "softplus", "erf", "gelu", "gaussian", "square", "exp")


class Grower:
    """Grows a random graph whose values stay of the size of one: affine maps with awkward coefficients, all kinds of
    non-linear nodes, and nodes that are read several times."""

    def __init__(self, rng: np.random.Generator, inputs: int, *, tokens: int = 1, causal: bool = False) -> None:
        self.rng, self.tokens, self.causal = rng, tokens, causal
        self.builder = Builder([f"x{i}" for i in range(inputs)])
        self.pool = [self.pick(0, 1) for _ in range(inputs)]

    def pick(self, node: int, size: int, bias: bool = True) -> int:
        """A linear form (or a vector of them) of one node."""
        weights = self.rng.choice(AWKWARD, (size, self.builder.size(node)))
        weights = weights * (self.rng.random(weights.shape) < 0.8) / max(1, self.builder.size(node) // 2)
        if not weights.any():
            weights[:, 0] = 1.0
        return self.builder.affine([(node, weights)], self.rng.choice(AWKWARD, size) * bias)

    def any(self, size: int = 1) -> int:
        fitting = [node for node in self.pool if self.builder.size(node) == size]
        if not fitting or self.rng.random() < 0.1:
            return self.pick(int(self.rng.choice(self.pool)), size)
        return int(self.rng.choice(fitting))

    def sum(self, size: int = 1) -> int:
        """A sum of two or three things that are there, some of them twice."""
        terms = []
        for _ in range(int(self.rng.integers(2, 4))):
            node = self.any(size) if self.rng.random() < 0.7 else int(self.rng.choice(self.pool))
            shape = (size, self.builder.size(node))
            diagonal = self.builder.size(node) == size and self.rng.random() < 0.5
            weights = self.rng.choice(AWKWARD, size if diagonal else shape)
            terms.append((node, weights / (1 + self.builder.size(node) // 2)))
        return self.builder.affine(terms, self.rng.choice(AWKWARD, size) * (self.rng.random() < 0.7))

    def tame(self, node: int) -> int:
        """The same through something bounded, so that products of products stay small."""
        return self.builder.function(str(self.rng.choice(["sin", "tanh", "cos"])), node)

    def positive(self, node: int) -> int:
        """Something in [3/2, 5/2], from anything."""
        ones = np.ones(self.builder.size(node))
        bounded = self.builder.function(str(self.rng.choice(["sin", "tanh", "cos"])), node)
        return self.builder.affine([(bounded, 0.5 * ones)], 2.0 * ones)

    def grow(self, kinds: Sequence[str], size: int = 1) -> int:
        """One more node of one of the kinds."""
        builder, rng = self.builder, self.rng
        match str(rng.choice(list(kinds))):
            case "affine":
                node = self.sum(size)
            case "function":
                name = str(rng.choice(BOUNDED))
                argument = self.tame(self.any(size)) if name in ("square", "exp") else self.any(size)
                node = builder.function(name, argument)
            case "singular":
                name = str(rng.choice(["log", "sqrt", "reciprocal", "power"]))
                exponent = float(rng.choice([-1.5, 0.3, 3.0, -2.0, 2.5])) if name == "power" else None
                node = builder.function(name, self.positive(self.any(size)), exponent)
            case "product":
                node = builder.product(self.tame(self.any(size)), self.any(size))
            case "square":
                same = self.any(size)
                node = builder.product(same, same)
            case "quotient":
                node = builder.quotient(self.any(size), self.positive(self.any(size)))
            case "relu":
                node = builder.relu(self.any(size))
            case "extreme":
                pick = builder.maximum if rng.random() < 0.5 else builder.minimum
                node = pick([self.any(size) for _ in range(int(rng.integers(1, 4)))])
            case "pool":
                node = builder.pool(rng.choice(["mean", "max", "min"]), self.any(size), self.causal)
            case "mean":
                node = builder.pool("mean", self.any(size), self.causal)
            case "move":
                targets = [
                    int(rng.integers(-1, (token if self.causal else self.tokens - 1) + 1))
                    for token in range(self.tokens)
                ]
                node = builder.move(self.any(size), targets)
            case "attend":
                width = int(rng.integers(1, 4))
                queries, keys = (self.pick(int(rng.choice(self.pool)), width) for _ in range(2))
                node = builder.attend(queries, keys, self.any(size), self.causal)
            case "positional":
                node = builder.positional(rng.choice(AWKWARD, (self.tokens, size)))
            case kind:
                raise NotImplementedError(kind)
        self.pool.append(node)
        return node

    def graph(self, outputs: int) -> Graph:
        """A read-out of the latest nodes."""
        latest = self.pool[-3:]
        weights = [self.rng.choice(AWKWARD, (outputs, self.builder.size(node))) for node in latest]
        if outputs == self.builder.size(latest[-1]) and self.rng.random() < 0.3:
            return self.builder.graph(latest[-1])
        return self.builder.graph(self.builder.affine(list(zip(latest, weights, strict=True)), np.zeros(outputs)))
