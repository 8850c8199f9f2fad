"""What nodes of a model's circuit compute, as trees that JSON can hold and as the text of Python: never cut.

    tree ::= name                     an input, or another variable by its id
           | number
           | [operation, tree, ...]   "+", "-", "*", "/", "**", "relu", "max", "min", "sin", "tokens.mean", ...

Below the root, whatever a variable stands for is named by it: trees stay small, however deep a program is, and all of
them together say everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.language.describe import Reading
from headsmith.language.graph import (
    Affine,
    Attend,
    Average,
    Expression,
    Function,
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
    Sampled,
)

Tree = Any
"""A name, a number, or a list of an operation and its trees."""

Names = Mapping[tuple[int, int, int], str]
"""The variable that a component of a node is: by the identity of its graph, its number, and the component."""

_INFIX = {"+": 0, "-": 0, "*": 1, "/": 1, "**": 3}
_ATOM = 4


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes trees; inputs have other names than in the graph where `inputs` says so."""

    names: Names
    inputs: Mapping[str, str]

    def tree(self, reading: Reading, place: int, component: int, root: bool = True) -> Tree:
        """What a component of a node computes."""
        named = None if root else self.names.get((id(reading.graph), place, component))
        if named is not None:
            return named
        if place in reading.elsewhere:
            return self.tree(*reading.elsewhere[place], component, root)
        node = reading.graph.nodes[place]

        def inner(argument: int, other: int = component) -> Tree:
            return self.tree(reading, argument, other, root=False)

        match node:
            case Input():
                return self.inputs.get(node.names[component], node.names[component])
            case Affine():
                return self._affine(reading, node, component)
            case Relu():
                return ["relu", inner(node.argument)]
            case Maximum() | Minimum():
                name = "max" if isinstance(node, Maximum) else "min"
                return [name, *(inner(argument) for argument in node.arguments)]
            case Product():
                return ["*", inner(node.left), inner(node.right)]
            case Quotient():
                return ["/", inner(node.numerator), inner(node.denominator)]
            case Hypotenuse():
                return ["norm", inner(node.left), inner(node.right)]
            case Function():
                return called(node.name, inner(node.argument), node.parameter)
            case Expression():
                return program_tree(node.program, [inner(argument) for argument in node.arguments])
            case Positional():
                return ["tokens.constants", *(float(row[component]) for row in node.values)]
            case Pool():
                name = f"tokens.{node.kind}" + (".causal" if node.causal else "")
                return [name, inner(node.argument)]
            case Move():
                return ["tokens.gather", inner(node.argument), *node.targets]
            case Attend():
                size = getattr(reading.graph.nodes[node.queries], "size", 1)
                sides = [[inner(side, k) for k in range(size)] for side in (node.queries, node.keys)]
                return ["tokens.attend", *([["list", *side] for side in sides]), inner(node.values)]
            case Average():
                return ["softmax", inner(node.scores, 0), inner(node.values, 0)]
            case Sampled():
                size = getattr(reading.graph.nodes[node.arguments[0]], "size", 1)
                return ["sampled", *(inner(node.arguments[0], k) for k in range(size))]
            case _:
                assert_never(node)

    def _affine(self, reading: Reading, node: Affine, component: int) -> Tree:
        terms: dict[str, tuple[float, Tree]] = {}
        for term in node.terms:
            row = term.weights[component]
            for column in [component] if term.diagonal else row.nonzero()[0].tolist():
                weight = float(row if term.diagonal else row[column])
                inner = self.tree(reading, term.node, column, root=False) if weight else 0.0
                terms[repr(inner)] = (terms.get(repr(inner), (0.0, None))[0] + weight, inner)
        return summed([term for term in terms.values() if term[0]], float(node.bias[component]))


def summed(terms: list[tuple[float, Tree]], constant: float = 0.0) -> Tree:
    """The tree of weight * tree + ... + constant."""
    found: Tree = None
    for weight, inner in terms:
        each = inner if abs(weight) == 1.0 else ["*", abs(weight), inner]
        if found is None:
            found = each if weight > 0.0 else ["neg", each]
        else:
            found = ["+" if weight > 0.0 else "-", found, each]
    if found is None:
        return constant
    return found if constant == 0.0 else ["+" if constant > 0.0 else "-", found, abs(constant)]


def called(name: str, argument: Tree, parameter: float | None = None) -> Tree:
    """A named function of one tree."""
    match name:
        case "square":
            return ["**", argument, 2.0]
        case "reciprocal":
            return ["/", 1.0, argument]
        case "power" if parameter is not None:
            return ["**", argument, parameter]
    return [name, argument]


def program_tree(program: Program, arguments: list[Tree]) -> Tree:
    """A program of trees as one tree."""
    known = list(arguments)
    for step in program.steps:
        match step:
            case Linear():
                known.append(summed([(float(c), known[k]) for c, k in step.terms if c], float(step.constant)))
            case Call():
                known.append(called(step.name, known[step.operand], step.parameter))
            case Times():
                known.append(["*", known[step.left], known[step.right]])
            case Over():
                known.append(["/", known[step.numerator], known[step.denominator]])
            case _:
                assert_never(step)
    return known[-1]


def text(tree: Tree, outer: int = -1) -> str:
    """A tree as Python writes it."""
    if not isinstance(tree, list):
        return tree if isinstance(tree, str) else _number(tree)
    operation, *inner = tree
    if operation == "neg":
        return f"-{text(inner[0], 1)}" if outer < 1 else f"(-{text(inner[0], 1)})"
    if operation == "list":
        return f"[{', '.join(map(text, inner))}]"
    if operation == "tokens.constants":
        return f"tokens.constants([{', '.join(map(_number, inner))}])"
    if operation == "tokens.gather":
        return f"tokens.gather({text(inner[0])}, [{', '.join(str(int(place)) for place in inner[1:])}])"
    if operation not in _INFIX:
        return f"{operation}({', '.join(map(text, inner))})"
    binding = _INFIX[operation]
    left = text(inner[0], binding + (operation == "**"))
    joined = f"{left}{operation if binding else f' {operation} '}{text(inner[1], binding + 1)}"
    return joined if binding >= outer else f"({joined})"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
