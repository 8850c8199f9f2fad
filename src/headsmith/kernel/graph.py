"""Exact real functions as graphs: what is claimed (the target) and what the heads stand for (the circuit).

    node ::= input                                   the inputs of a token
           | affine      sum of weights @ node + bias
           | relu        max(node, 0)
           | maximum, minimum                        of several nodes
           | product, quotient, hypotenuse           x y, x / y, sqrt(x^2 + y^2)
           | function    a named function of one variable (functions.py)
           | expression  a program of one or two variables (functions.py), in a circuit
           | positional  constants of the token: its row of a table
           | pool        mean, max or min over the tokens (causal: over those so far)
           | move        a node's value at another token, or zero (-1)
           | attend      the mean of values over the tokens, weighted by exp(query . key)

A node's number is its place, and it reads nodes with smaller numbers. All but affine and attend act component by
component. The semantics is exact real arithmetic on the stored doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Array
from .errors import Refused
from .functions import Program, read_program
from .reading import Tensors, field, flag, items, mapping, numbers, real, text, whole

MOST_NODES, MOST_DIAGONAL = 1 << 14, 1 << 13

READS = {
    "relu": ("argument",),
    "function": ("argument",),
    "pool": ("argument",),
    "move": ("argument",),
    "product": ("left", "right"),
    "hypotenuse": ("left", "right"),
    "quotient": ("numerator", "denominator"),
    "attend": ("queries", "keys", "values"),
}


@dataclass(frozen=True, eq=False)
class Node:
    """One node. `weights` belong to the arguments of an affine node (a vector stands for a diagonal matrix);
    `constants` are its bias, or the table of a positional node; `name` is a function's, or the kind of a pool."""

    kind: str
    size: int
    arguments: tuple[int, ...] = ()
    weights: tuple[Array, ...] = ()
    constants: Array | None = None
    name: str = ""
    parameter: float | None = None
    causal: bool = False
    targets: tuple[int, ...] = ()
    program: Program | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, and which of them is the output."""

    nodes: tuple[Node, ...]
    output: int


def read_graph(stored: Any, tensors: Tensors, target: Graph | None = None) -> Graph:
    """A graph of a file. A circuit may also say that a node is a copy: the same operation as a node of the `target`, of
    other arguments."""
    nodes: list[Node] = []
    for number, each in enumerate(items(field(stored, "nodes"), MOST_NODES)):
        try:
            nodes.append(_node(each, tensors, nodes, target))
        except Refused as problem:
            raise Refused(f"node {number}: {problem}") from None
    if not nodes or nodes[0].kind != "input" or any(node.kind == "input" for node in nodes[1:]):
        raise Refused("a graph starts with its input node, and has no other")
    return Graph(tuple(nodes), whole(field(stored, "output"), 0, len(nodes) - 1))


def _node(stored: Any, tensors: Tensors, before: list[Node], target: Graph | None) -> Node:
    kind, last = text(field(stored, "kind")), len(before) - 1
    if kind == "copy" and target is not None:
        original = target.nodes[whole(field(stored, "node"), 0, len(target.nodes) - 1)]
        arguments = tuple(whole(each, 0, last) for each in items(field(stored, "arguments")))
        if len(arguments) != len(original.arguments):
            raise Refused(f"a copy has {len(arguments)} arguments, and what it copies {len(original.arguments)}")
        return _checked(Node(**{**vars(original), "arguments": arguments}), before)
    if kind == "input":
        names = tuple(text(name) for name in items(field(stored, "names")))
        return Node(kind, len(names), names=names)
    if kind == "positional":
        table = numbers(tensors, field(stored, "values"), 2)
        return Node(kind, table.shape[1], constants=table)
    if kind == "affine":
        terms = items(field(stored, "terms"))
        bias = numbers(tensors, field(stored, "bias"), 1)
        weights = tuple(numbers(tensors, field(term, "weights"), 1, 2) for term in terms)
        arguments = tuple(whole(field(term, "node"), 0, last) for term in terms)
        return _checked(Node(kind, len(bias), arguments, weights, bias), before)
    if kind in ("maximum", "minimum", "expression"):
        arguments = tuple(whole(each, 0, last) for each in items(field(stored, "arguments")))
    elif kind in READS:
        arguments = tuple(whole(field(stored, name), 0, last) for name in READS[kind])
    else:
        raise Refused(f"there is no kind of node named {kind!r}")
    parameter = mapping(stored).get("parameter")
    node = Node(
        kind,
        whole(field(stored, "size")),
        arguments,
        name=text(field(stored, "name" if kind == "function" else "of")) if kind in ("function", "pool") else "",
        parameter=None if parameter is None else real(parameter),
        causal=flag(field(stored, "causal")) if kind in ("pool", "attend") else False,
        targets=tuple(whole(each, -1) for each in items(field(stored, "targets"))) if kind == "move" else (),
        program=read_program(field(stored, "program")) if kind == "expression" else None,
    )
    return _checked(node, before)


def _checked(node: Node, before: list[Node]) -> Node:
    """The node, if shapes fit."""
    sizes = [before[argument].size for argument in node.arguments]
    if node.kind in ("input", "positional"):
        fits = not sizes
    elif node.kind == "affine":
        shapes = [weights.shape for weights in node.weights]
        fits = len(shapes) == len(sizes) and all(
            shape == (node.size, size) or shape == (size,) == (node.size,)
            for shape, size in zip(shapes, sizes, strict=True)
        )
    elif node.kind == "attend":
        fits = sizes[0] == sizes[1] and sizes[2] == node.size
    else:
        fits = bool(sizes) and all(size == node.size for size in sizes)
    if node.kind == "expression":
        fits = fits and node.program is not None and len(sizes) == node.program.variables
    if node.kind == "move":
        fits = fits and all(target < len(node.targets) for target in node.targets)
    if node.kind == "pool" and node.name not in ("mean", "max", "min"):
        raise Refused(f"there is no pool {node.name!r}")
    if not fits or not node.size:
        raise Refused(f"{node.kind} of width {node.size} on {sizes}: the shapes do not fit")
    return node


def needed(graph: Graph, numbers: Any, stops: Any = ()) -> list[int]:
    """These nodes and all that they depend on, in order; what a node in `stops` reads does not count."""
    found: set[int] = set()
    stack = list(numbers)
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            if current not in stops:
                stack.extend(graph.nodes[current].arguments)
    return sorted(found)


def tokens_of(graph: Graph) -> set[int]:
    """All numbers of tokens that nodes of the graph are about."""
    tables = {len(node.constants) for node in graph.nodes if node.kind == "positional" and node.constants is not None}
    return tables | {len(node.targets) for node in graph.nodes if node.kind == "move"}


def masks_of(graph: Graph) -> set[bool]:
    """Which masks the graph's pools and attention are about: causal or not."""
    return {node.causal for node in graph.nodes if node.kind in ("pool", "attend")}


def dense(weights: Array) -> Array:
    """Weights as a matrix."""
    if weights.ndim == 1 and len(weights) > MOST_DIAGONAL:
        raise Refused(f"a diagonal matrix of {len(weights)} rows is too large to be written out")
    return np.diag(weights) if weights.ndim == 1 else weights
