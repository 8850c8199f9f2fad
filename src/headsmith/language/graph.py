"""The source graph: what is to be computed, exactly.

    graph  ::= node*  output                  a node's number is its place; arguments have smaller numbers
    node   ::= Input                          the inputs, one vector
             | Affine  (weights @ node)* + bias
             | Relu    max(node, 0)
             | Maximum max(node, node, ...)
             | Minimum min(node, node, ...)
             | Product node * node
             | Quotient node / node
             | Hypotenuse sqrt(node^2 + node^2)
             | Function name(node)            a named function of one variable, see core.functions
             | Expression program(node, ...)  a program of one or two variables, see core.program
             | Positional table              constants of the token: its row of a table
             | Pool    mean, max or min of a node over the tokens (causal: over the tokens so far)
             | Move    a node's value at another token, or zero
             | Attend  softmax attention: the mean of values over the tokens, weighted by exp(query . key)
             | Average softmax means of values: as textbook attention has them, of all tokens in one vector (certify)
           | Sampled any function with a Lipschitz bound and these answers on a grid

Most graphs are about one token. Positional, Pool, Move, Attend and Sampled are about the tokens of a sequence: inputs
are then (..., tokens, inputs). All but Affine, Attend, Average and Sampled act component by component. A node is a
vector, whatever its width: a layer of a thousand neurons is one Affine and one Relu. The semantics is exact real
arithmetic on the stored doubles. `weights` is a matrix (to, from), or a vector that stands for a diagonal matrix; a
large matrix that is mostly zeros is kept by its entries. A graph of Input, Affine and Relu nodes alone is a circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar, assert_never
from weakref import WeakKeyDictionary

import numpy as np

from headsmith.core.arrays import Array, Weights, freeze
from headsmith.core.errors import TargetError
from headsmith.core.markup import table
from headsmith.core.program import Program
from headsmith.kernel.core.sparse import entries_of


@dataclass(frozen=True, eq=False)
class Input:
    """The vector of inputs."""

    names: tuple[str, ...]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.names))


@dataclass(frozen=True, eq=False)
class Term:
    """One summand of an affine node, which makes its weights read-only: weights @ (value of `node`)."""

    node: int
    weights: Weights

    @property
    def diagonal(self) -> bool:
        return bool(self.weights.ndim == 1)

    @property
    def rows(self) -> int:
        return int(self.weights.shape[0])

    @property
    def entries(self) -> Array:
        """The numbers that are stored of the weights, all that are not zero among them."""
        return np.asarray(entries_of(self.weights))


@dataclass(frozen=True, eq=False)
class Affine:
    """A sum of linear images of earlier nodes, plus a constant."""

    terms: tuple[Term, ...]
    bias: Array
    size: int = field(init=False)

    def __post_init__(self) -> None:
        freeze(self, arrays=("bias",), weighted=self.terms)
        object.__setattr__(self, "size", len(self.bias))


@dataclass(frozen=True, eq=False)
class Relu:
    """max(value of `argument`, 0): as many gates as components."""

    argument: int
    size: int


@dataclass(frozen=True, eq=False)
class Maximum:
    """The largest of the values of `arguments`."""

    arguments: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Minimum:
    """The smallest of the values of `arguments`."""

    arguments: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Product:
    """left * right."""

    left: int
    right: int
    size: int


@dataclass(frozen=True, eq=False)
class Quotient:
    """numerator / denominator."""

    numerator: int
    denominator: int
    size: int


@dataclass(frozen=True, eq=False)
class Hypotenuse:
    """sqrt(left^2 + right^2)."""

    left: int
    right: int
    size: int


@dataclass(frozen=True, eq=False)
class Function:
    """A named function of one variable, applied to every component of `argument`; `parameter` is the exponent of
    "power"."""

    name: str
    argument: int
    size: int
    parameter: float | None = None


@dataclass(frozen=True, eq=False)
class Expression:
    """A program applied to the values of `arguments`, component by component."""

    program: Program
    arguments: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Positional:
    """Constants of the tokens: row i of `values` (tokens, size) at token i."""

    values: Array

    def __post_init__(self) -> None:
        freeze(self, arrays=("values",))

    @property
    def size(self) -> int:
        return int(self.values.shape[1])


Norm = Literal["1", "2", "inf"]
PoolKind = Literal["mean", "max", "min"]


@dataclass(frozen=True, eq=False)
class Pool:
    """The mean, maximum or minimum of `argument` over all tokens, or over the tokens up to one's own if `causal`."""

    kind: PoolKind
    argument: int
    size: int
    causal: bool = False


@dataclass(frozen=True, eq=False)
class Move:
    """At token i, the value of `argument` at token targets[i]; zero where that is -1."""

    argument: int
    targets: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Attend:
    """At token i, the mean of `values` over all tokens j (up to i if `causal`) with weights exp(q_i . k_j), q and k the
    values of `queries` and `keys`."""

    queries: int
    keys: int
    values: int
    size: int
    causal: bool = False


@dataclass(frozen=True, eq=False)
class Average:
    """Means of `values`, an array (owners, keys, width), with weights exp(s) over the `keys` of each group of `scores`,
    (groups, keys): (groups, width). Every owner has as many groups, one after the other. Heads of a textbook attention
    are owners, their queries groups. Such nodes are certified as they are given, and never compiled."""

    scores: int
    values: int
    keys: int
    size: int


@dataclass(frozen=True, eq=False)
class Sampled:
    """At token i any function f_i of D numbers with a Lipschitz bound, which was sampled on a grid.

    The first of `arguments` holds t_k = scale_k (x_k - origin_k), in steps of the grid: node g of an axis of p cells is
    at t = g - (p - 1)/2. `answers` (tokens, p_1, ..., p_D, size) are within `evaluation` of f at the nodes, and
    |f(x) - f(y)| <= sum of lipschitz_k |x_k - y_k|, or the 2-norm of lipschitz_k (x_k - y_k), or the largest of them.
    Where there are several tokens, the second of `arguments` holds constants that tell them apart.
    """

    arguments: tuple[int, ...]
    answers: Array
    lipschitz: Array
    scale: Array
    norm: Norm
    evaluation: float

    def __post_init__(self) -> None:
        freeze(self, arrays=("answers", "lipschitz", "scale"))

    @property
    def size(self) -> int:
        return int(self.answers.shape[-1])

    @property
    def counts(self) -> tuple[int, ...]:
        """How many cells the grid has along each axis."""
        return tuple(self.answers.shape[1:-1])


Node = (
    Input
    | Affine
    | Relu
    | Maximum
    | Minimum
    | Product
    | Quotient
    | Hypotenuse
    | Function
    | Expression
    | Positional
    | Pool
    | Move
    | Attend
    | Average
    | Sampled
)

Mixing = Pool | Move | Attend
"""The nodes that read other tokens."""

Approximated = Product | Quotient | Hypotenuse | Function | Expression
"""The nodes that heads can only approximate."""


def arguments(node: Node) -> tuple[int, ...]:
    """The nodes that a node reads."""
    match node:
        case Input() | Positional():
            return ()
        case Affine():
            return tuple(term.node for term in node.terms)
        case Relu() | Function() | Pool() | Move():
            return (node.argument,)
        case Maximum() | Minimum() | Expression() | Sampled():
            return node.arguments
        case Product() | Hypotenuse():
            return (node.left, node.right)
        case Quotient():
            return (node.numerator, node.denominator)
        case Attend():
            return (node.queries, node.keys, node.values)
        case Average():
            return (node.scores, node.values)
        case _:
            assert_never(node)


def needed(graph: Graph, number: int, stops: Container[int] = ()) -> list[int]:
    """The node and everything it depends on, in order; what a node in `stops` reads does not count."""
    found, stack = set(), [number]
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            if current not in stops:
                stack.extend(graph.reads[current])
    return sorted(found)


@dataclass(frozen=True, eq=False)
class Graph:
    """A checked source graph. `reads` has for each node those that it reads."""

    nodes: tuple[Node, ...]
    output: int
    input: Input = field(init=False)
    reads: tuple[tuple[int, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", tuple(map(arguments, self.nodes)))
        object.__setattr__(self, "input", check(self))

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The nodes that the output depends on, in order."""
        return tuple(needed(self, self.output))

    def __repr__(self) -> str:
        from headsmith.language.describe import outputs_text

        return f"<Graph {outputs_text(self)}: {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        from headsmith.language.describe import Reading, describe

        reading, output = Reading(self, digits=4), self.nodes[self.output].size
        rows = [[f"y{component}", describe(reading, self.output, component)] for component in range(min(output, 8))]
        return table(f"Graph: {len(self.nodes)} nodes", rows, figures=())

    @property
    def gates(self) -> int:
        return sum(node.size for node in self.nodes if isinstance(node, Relu))


Key = ParamSpec("Key")
Known = TypeVar("Known")


def once_for_graph(function: Callable[Concatenate[Graph, Key], Known]) -> Callable[Concatenate[Graph, Key], Known]:
    """The function of a graph (and of what else is hashable), which remembers its results as long as the graph lives:
    graphs never change. Nobody may change the results."""
    found: WeakKeyDictionary[Graph, dict[object, Known]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(graph: Graph, /, *key: Key.args, **named: Key.kwargs) -> Known:
        known = found.setdefault(graph, {})
        place = (key, *sorted(named.items()))
        if place not in known:
            known[place] = function(graph, *key, **named)
        return known[place]

    return remembered


def check(graph: Graph) -> Input:
    """The input node; TargetError unless every node is well formed: order, shapes, finite numbers."""
    first = graph.nodes[0] if graph.nodes else None
    if not isinstance(first, Input):
        raise TargetError("a source graph starts with its input node")
    for number, node in enumerate(graph.nodes):
        match node:
            case Input():
                if number:
                    raise TargetError(f"node {number} is a second input node")
            case Affine():
                _check_affine(graph, number, node)
            case Positional():
                if node.values.ndim != 2 or not np.isfinite(node.values).all():
                    raise TargetError(f"node {number}: constants of tokens are a finite table (tokens, size)")
            case Move() if any(not -1 <= target < len(node.targets) for target in node.targets):
                raise TargetError(f"node {number}: tokens can be moved from 0 .. {len(node.targets) - 1}, or -1")
            case Attend():
                for argument in graph.reads[number]:
                    _check_argument(number, argument)
                queries, keys, values = (graph.nodes[argument].size for argument in graph.reads[number])
                if queries != keys or values != node.size:
                    raise TargetError(
                        f"node {number}: attention of width {node.size} on {values} values, with queries of {queries} "
                        f"numbers and keys of {keys}"
                    )
            case Average():
                for argument in graph.reads[number]:
                    _check_argument(number, argument)
                scores, values = (graph.nodes[argument].size for argument in graph.reads[number])
                groups, width = average_shape(node, scores)
                if groups * node.keys != scores or groups * width != node.size or values % (node.keys * width):
                    raise TargetError(f"node {number}: {node.size} means under {scores} scores of {node.keys} keys")
            case Sampled():
                _check_sampled(graph, number, node)
            case (
                Relu()
                | Pool()
                | Move()
                | Maximum()
                | Minimum()
                | Product()
                | Quotient()
                | Hypotenuse()
                | Function()
                | Expression()
            ):
                for argument in graph.reads[number]:
                    _check_argument(number, argument)
                    if node.size != graph.nodes[argument].size:
                        kind = type(node).__name__.lower()
                        raise TargetError(f"node {number}: {kind} of width {node.size} on {graph.nodes[argument].size}")
                if not graph.reads[number]:
                    raise TargetError(f"node {number} has no arguments")
                if isinstance(node, Function):
                    _check_parameter(number, node)
                if isinstance(node, Expression) and len(node.arguments) != node.program.variables:
                    raise TargetError(f"node {number}: a program of {node.program.variables} variables")
            case _:
                assert_never(node)
    if not 0 <= graph.output < len(graph.nodes):
        raise TargetError(f"the output is node {graph.output}, and there are {len(graph.nodes)} nodes")
    return first


GIVEN = (
    "softmax means of one vector of all tokens are certified as they are given, by hs.certify; they are not compiled"
)


def average_shape(node: Average, scores: int) -> tuple[int, int]:
    """How many groups of keys there are in so many scores, and how many numbers each value has."""
    groups = max(scores // max(node.keys, 1), 1)
    return groups, max(node.size // groups, 1)


def _check_parameter(number: int, node: Function) -> None:
    given = node.parameter is not None
    if given != (node.name == "power") or (given and not np.isfinite(node.parameter or 0.0)):
        raise TargetError(
            f"node {number}: {node.name} with the parameter {node.parameter!r}; only power has one, a finite number"
        )


def _check_sampled(graph: Graph, number: int, node: Sampled) -> None:
    for argument in node.arguments:
        _check_argument(number, argument)
    bounds = (node.lipschitz, node.scale)
    fits = len(node.arguments) == (2 if len(node.answers) > 1 else 1) and node.answers.size > 0
    fits = fits and all(each.shape == (node.answers.ndim - 2,) for each in bounds)
    fits = fits and graph.nodes[node.arguments[0]].size == len(node.scale)
    sound = all(np.isfinite(each).all() for each in (node.answers, *bounds)) and np.isfinite(node.evaluation)
    sound = sound and all((each >= 0.0).all() for each in bounds) and node.evaluation >= 0.0
    if not fits or not sound or node.norm not in ("1", "2", "inf"):
        raise TargetError(
            f"node {number}: answers {node.answers.shape}, bounds {node.lipschitz.shape}, scales {node.scale.shape}, "
            f"norm {node.norm!r} and evaluation {node.evaluation!r} do not make a sampled function"
        )


def _check_argument(number: int, argument: int) -> None:
    if not 0 <= argument < number:
        raise TargetError(f"node {number} reads node {argument}, which does not come before it")


def _check_affine(graph: Graph, number: int, node: Affine) -> None:
    if node.bias.ndim != 1:
        raise TargetError(f"node {number}: the bias has shape {node.bias.shape}; it must be a vector")
    if not np.isfinite(node.bias).all():
        raise TargetError(f"node {number}: bias {int(np.argmin(np.isfinite(node.bias)))} is not a finite number")
    for term in node.terms:
        _check_argument(number, term.node)
        source = graph.nodes[term.node].size
        expected = (source,) if term.diagonal else (node.size, source)
        if term.weights.shape != expected or term.rows != node.size:
            raise TargetError(
                f"node {number}: weights of shape {term.weights.shape} cannot take node {term.node} (width {source}) "
                f"to width {node.size}"
            )
        if not np.isfinite(term.entries).all():
            where = np.argwhere(~np.isfinite(np.asarray(term.weights)))[0]
            raise TargetError(f"node {number}: weight {tuple(map(int, where))} is not a finite number")
