"""Exact real functions as graphs: what is claimed (the target) and what the heads stand for (the circuit).

    node ::= input                                   the inputs of a token
           | affine      sum of weights @ node + bias
           | relu        max(node, 0)
           | maximum, minimum                        of several nodes
           | expression  a program of one or two variables (functions.py)
           | positional  constants of the token: its row of a table
           | pool        mean, max or min over the tokens (causal: over those so far)
           | move        a node's value at another token, or zero (-1)
           | exchange    x - relu(x - m - c) + relu(m - x - d), m the value x of another token, c and d not negative
           | attend      the mean of values over the tokens, weighted by exp(query . key)
           | average     means of values, weighted by e to the scores, `keys` for each (rule Given)
           | sampled     any function with these answers on a grid and this Lipschitz bound (sampled.py)

Products, quotients, hypotenuses and named functions of a file are expressions. A node's number is its place, and it
reads nodes with smaller numbers. All but affine and attend act component by component. The semantics is exact real
arithmetic on the stored doubles.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from dataclasses import field as default
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from .arithmetic import Array, Weights
from .errors import Refused, refuse, spend
from .functions import Program, named, read_program
from .reading import Tensors, field, flag, items, mapping, numbers, real, text, weights, whole
from .sparse import parts_of, sparse_of

MOVES = ("move", "exchange")
MOST_NODES = 1 << 14

READS = {
    **dict.fromkeys(("relu", "function", "pool", "move"), ("argument",)),
    **dict.fromkeys(("product", "hypotenuse"), ("left", "right")),
    "quotient": ("numerator", "denominator"),
    "attend": ("queries", "keys", "values"),
    "average": ("scores", "values"),
    "exchange": ("value", "above", "below"),
}
SUM = ("linear", ((Fraction(1), 2), (Fraction(1), 3)), Fraction(0))
PRODUCT, QUOTIENT = Program(2, (("times", 0, 1),)), Program(2, (("over", 0, 1),))
HYPOTENUSE = Program(2, (("times", 0, 0), ("times", 1, 1), SUM, ("call", "sqrt", 4, None)))
NOTHING = Program(0, ())
PROGRAMS = {"product": PRODUCT, "quotient": QUOTIENT, "hypotenuse": HYPOTENUSE}


@dataclass(frozen=True, eq=False)
class Node:
    """One node. `weights` belong to the arguments of an affine node (a vector stands for a diagonal matrix, and others
    may be sparse); `constants` are its bias, or the table of a positional node; `name` is the kind of a pool. Of a
    sampled function, `constants` are the answers, `weights` the Lipschitz bounds, the scales and the evaluation, `name`
    the norm."""

    kind: str
    size: int
    arguments: tuple[int, ...] = ()
    weights: tuple[Weights, ...] = ()
    constants: Array = default(default_factory=lambda: np.zeros(0))
    name: str = ""
    causal: bool = False
    targets: tuple[int, ...] = ()
    program: Program = NOTHING
    names: tuple[str, ...] = ()
    keys: int = 0

    @property
    def operation(self) -> tuple[Any, ...]:
        """What a node does, up to the numbers in its arrays, and which of its weights are sparse."""
        held = map(len, map(parts_of, self.weights))
        return self.kind, self.size, self.name, self.causal, self.targets, self.program, self.keys, *held


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
            node = _node(each, tensors, len(nodes) - 1, target)
            _refuse_misfit(node, [nodes[argument].size for argument in node.arguments])
        except Refused as problem:
            raise Refused(f"node {number}: {problem}") from None
        nodes.append(node)
    if not nodes or nodes[0].kind != "input" or any(node.kind == "input" for node in nodes[1:]):
        raise Refused("a graph starts with its input node, and has no other")
    return Graph(tuple(nodes), whole(field(stored, "output"), 0, len(nodes) - 1))


def _node(stored: Any, tensors: Tensors, last: int, target: Graph | None) -> Node:
    kind = text(field(stored, "kind"))
    refuse(target is None and kind in ("copy", "exchange"), f"a target has no {kind}")
    if kind == "input":
        names = tuple(text(name) for name in items(field(stored, "names")))
        return Node(kind, len(names), names=names)
    if kind == "positional":
        table = numbers(tensors, field(stored, "values"), 2)
        return Node(kind, table.shape[1], constants=table)
    if kind == "affine":
        terms, bias = items(field(stored, "terms")), numbers(tensors, field(stored, "bias"), 1)
        matrices = tuple(weights(tensors, field(term, "weights")) for term in terms)
        return Node(kind, len(bias), tuple(whole(field(term, "node"), 0, last) for term in terms), matrices, bias)
    if kind == "sampled":
        answers = numbers(tensors, field(stored, "answers"), *range(3, 32))
        bounds = [numbers(tensors, field(stored, name), 1) for name in ("lipschitz", "scale")]
        limits = (*bounds, np.array([real(field(stored, "evaluation"))]))
        arguments = tuple(whole(each, 0, last) for each in items(field(stored, "arguments")))
        return Node(kind, answers.shape[-1], arguments, limits, answers, text(field(stored, "norm")))
    if kind in ("maximum", "minimum", "expression", "copy"):
        read = items(field(stored, "arguments"))
    elif kind in READS:
        read = [field(stored, name) for name in READS[kind]]
    else:
        raise Refused(f"there is no kind of node named {kind!r}")
    arguments = tuple(whole(each, 0, last) for each in read)
    if target is not None and kind == "copy":
        original = target.nodes[whole(field(stored, "node"), 0, len(target.nodes) - 1)]
        if len(arguments) != len(original.arguments):
            raise Refused(f"a copy has {len(arguments)} arguments, not {len(original.arguments)}")
        return replace(original, arguments=arguments)
    program = PROGRAMS.get(kind, NOTHING)
    if kind == "function":
        parameter = mapping(stored).get("parameter")
        program = named(text(field(stored, "name")), None if parameter is None else real(parameter))
    elif kind == "expression":
        program = read_program(field(stored, "program"))
    elif kind == "product" and arguments[0] == arguments[1]:
        arguments, program = arguments[:1], named("square")
    name = text(field(stored, "of")) if kind == "pool" else ""
    causal = kind in ("pool", "attend") and flag(field(stored, "causal"))
    targets = tuple(whole(each, -1) for each in items(field(stored, "targets"))) if kind in MOVES else ()
    found = Node(kind, whole(field(stored, "size"), 1), arguments, (), np.zeros(0), name, causal, targets)
    if kind == "average":
        return replace(found, keys=whole(field(stored, "keys"), 1))
    return replace(found, kind="expression", program=program) if program.steps else found


def _refuse_misfit(node: Node, sizes: list[int]) -> None:
    """Raise Refused unless shapes fit."""
    spend(1000.0 * len(node.targets))  # copies name them once more without saying so
    fits = node.size > 0 and all(target < len(node.targets) for target in node.targets)
    match node.kind:
        case "affine":
            pairs = zip((each.shape for each in node.weights), sizes, strict=True)
            fits &= all(shape == (node.size, size) or shape == (size,) == (node.size,) for shape, size in pairs)
        case "attend":
            fits &= sizes[0] == sizes[1] and sizes[2] == node.size
        case "average":
            # Groups of scores, and for each owner of groups the values of all keys.
            groups = sizes[0] // node.keys
            fits &= groups > 0 and groups * node.keys == sizes[0] and node.size % groups == 0
            owned = node.keys * (node.size // max(groups, 1))
            fits = fits and sizes[1] % owned == 0 and groups % (sizes[1] // owned) == 0
        case "expression":
            fits &= sizes == [node.size] * node.program.variables
        case "pool" if node.name not in ("mean", "max", "min"):
            raise Refused(f"there is no pool {node.name!r}")
        case "input" | "positional":
            pass
        case "sampled":
            # Of t, and of the token's place where there are several tokens.
            fits &= len(sizes) == 1 + (len(node.constants) > 1) and sizes[0] == node.constants.ndim - 2
            fits &= {each.shape for each in node.weights[:2]} == {(sizes[0],)} and node.constants.size > 0
            fits &= node.name in ("1", "2", "inf") and all(bool(np.all(each >= 0.0)) for each in node.weights)
        case _:
            fits &= bool(sizes) and set(sizes) == {node.size}
    refuse(not fits, f"{node.kind} of width {node.size} on {sizes}: the shapes do not fit")


def identical(left: Graph, right: Graph) -> bool:
    """Whether two graphs do the same with the same numbers, node by node."""
    first, second = ([(node.operation, node.arguments) for node in graph.nodes] for graph in (left, right))
    arrays = ([each for node in graph.nodes for each in arrays_of(node)] for graph in (left, right))
    return (left.output, first) == (right.output, second) and all(map(np.array_equal, *arrays))


def arrays_of(node: Node) -> list[Any]:
    """All numbers of a node."""
    return [*chain(*map(parts_of, node.weights)), node.constants]


def needed(graph: Graph, numbers: Iterable[int], stops: Iterable[int] = ()) -> list[int]:
    """These nodes and all that they depend on, in order; what a node in `stops` reads does not count."""
    found, stack, ends = set[int](), list(numbers), {*stops}
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack.extend(graph.nodes[current].arguments if current not in ends else ())
            spend(1000.0 + 100.0 * len(graph.nodes[current].arguments))
    return sorted(found)


def dense(weights: Weights) -> Array:
    """Weights as a matrix that is written out."""
    plain = isinstance(weights, np.ndarray) and weights.ndim == 2
    return np.asarray(weights if plain else sparse_of(weights).written())
