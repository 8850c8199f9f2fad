"""The normal form of a piecewise linear network: levels of maxima of affine pieces.

    network ::= level*  read-out
    level   ::= rows    affine forms of the state, weights @ state + bias
                pieces  each a row, or the constant zero; consecutive pieces with the same unit form a unit
                carry   which components of the state live on
    state   ::= the inputs;  after a level: what it carries, then its units, each the largest of its pieces

A ReLU is the unit max(0, z), a minimum the negative of a unit with negated pieces, and an affine node that another
one reads is a unit of one piece: composing two matrices would round, and the form means exact real arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen, frozen_indices
from headsmith.core.errors import TargetError
from headsmith.language.formula import formula_graph
from headsmith.language.graph import Affine, Graph, Input, Maximum, Minimum, Relu, arguments
from headsmith.language.network import Network
from headsmith.language.trace import graph_of

ZERO = -1
"""The row of a piece that is the constant zero."""


@dataclass(frozen=True, eq=False)
class Level:
    """Units over a state: `row` says for each piece which row it is (or ZERO), `unit` which unit it belongs to."""

    weights: Array
    bias: Array
    row: Indices
    unit: Indices
    carry: Indices

    def __post_init__(self) -> None:
        for name in ("weights", "bias"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        for name in ("row", "unit", "carry"):
            object.__setattr__(self, name, frozen_indices(getattr(self, name)))

    @property
    def units(self) -> int:
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    @cached_property
    def first(self) -> Indices:
        """The first piece of each unit."""
        return np.searchsorted(self.unit, np.arange(self.units))

    @cached_property
    def is_relu(self) -> bool:
        """Whether piece 2i is zero and piece 2i + 1 is row i, for every unit i."""
        return len(self.row) == 2 * len(self.bias) == 2 * self.units and bool(
            np.all(self.row[0::2] == ZERO) and np.all(self.row[1::2] == np.arange(len(self.bias)))
        )


@dataclass(frozen=True, eq=False)
class Levels:
    """A piecewise linear network in normal form: levels, then outputs = weights @ state + bias."""

    names: tuple[str, ...]
    levels: tuple[Level, ...]
    weights: Array
    bias: Array

    def __call__(self, inputs: Any) -> Array:
        """The outputs (..., outputs) in float64 for inputs (..., inputs)."""
        state = np.asarray(inputs, dtype=np.float64)
        for level in self.levels:
            state = np.concatenate([state[..., level.carry], unit_values(level, state)], axis=-1)
        return np.asarray(state @ self.weights.T + self.bias)

    @property
    def units(self) -> int:
        return sum(level.units for level in self.levels)


def unit_values(level: Level, state: Array) -> Array:
    """The units (..., units) of a level over states (..., n)."""
    rows = state @ level.weights.T + level.bias
    rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], 1))], axis=-1)
    if not level.units:
        return np.asarray(rows[..., :0])
    return np.asarray(np.maximum.reduceat(rows[..., level.row], level.first, axis=-1))


def relu_level(weights: Any, bias: Any, carry: Any = ()) -> Level:
    """max(0, weights @ state + bias), component by component."""
    count = len(bias)
    row = np.stack([np.full(count, ZERO), np.arange(count)], axis=1).ravel()
    return Level(weights, bias, row, np.repeat(np.arange(count), 2), np.asarray(carry, dtype=np.int64))


def levels_of(target: Any, names: Sequence[str] | None = None) -> Levels:
    """The normal form of a network, a compiled model, a source graph, a formula or a function of traced values."""
    match target:
        case Levels():
            return target
        case Graph():
            return _from_graph(target)
        case Network():
            *hidden, (weights, bias) = target.layers
            return Levels(target.names, tuple(relu_level(W, b) for W, b in hidden), weights, bias)
        case str():
            return _from_graph(formula_graph(target, names))
        case list() | tuple() if target and all(isinstance(each, str) for each in target):
            return _from_graph(formula_graph(list(target), names))
    graph = getattr(target, "graph", None)
    if isinstance(graph, Graph):
        return _from_graph(graph)
    if callable(target):
        return _from_graph(graph_of(target, names))
    raise TargetError(
        f"cannot enumerate the regions of a {type(target).__name__}; give a network, a compiled model, a source graph, "
        "or a formula of + - * by constants, relu, abs, min, max and clip"
    )


def _from_graph(graph: Graph) -> Levels:
    """Schedule a graph of Input, Affine, Relu, Maximum and Minimum nodes."""
    wanted = graph.used
    for number in wanted:
        if not isinstance(graph.nodes[number], Input | Affine | Relu | Maximum | Minimum):
            raise TargetError(
                f"node {number} is a {type(graph.nodes[number]).__name__}, which is not piecewise linear: regions are "
                "counted of networks of affine maps, relu, max and min"
            )
    level_of = _schedule(graph, wanted)
    depth = max(level_of.values(), default=-1) + 1
    layout, levels = [0], []
    for stage in range(depth):
        after = [n for n in wanted if level_of.get(n, -1) > stage]
        alive = set(_reads(graph, after + [graph.output] * (graph.output not in level_of), level_of))
        alive |= {graph.output} & set(level_of)
        kept = [number for number in layout if number in alive]
        born = [number for number in wanted if level_of.get(number) == stage]
        levels.append(_level(graph, layout, kept, born))
        layout = kept + born
    weights, bias = _rows(graph, layout, graph.output)
    return Levels(graph.input.names, tuple(levels), frozen(weights), frozen(bias))


def _schedule(graph: Graph, wanted: Sequence[int]) -> dict[int, int]:
    """The level that computes each node; nodes that their readers can fold into their rows have none.

    An affine node is folded into relu, max, min and the read-out; where another affine node reads it, it is computed.
    """
    inner = {term for n in wanted if isinstance(graph.nodes[n], Affine) for term in arguments(graph.nodes[n])}
    level_of: dict[int, int] = {}
    for number in wanted:
        node = graph.nodes[number]
        if isinstance(node, Input) or (isinstance(node, Affine) and number not in inner):
            continue
        level_of[number] = max((level_of[n] + 1 for n in _reads(graph, [number], level_of) if n in level_of), default=0)
    return level_of


def _reads(graph: Graph, numbers: Iterable[int], computed: Mapping[int, int]) -> list[int]:
    """The nodes of the state that the rows of these nodes read: through affine nodes that are not computed."""
    found: list[int] = []
    for number in numbers:
        node = graph.nodes[number]
        for argument in [number] if isinstance(node, Input) else arguments(node):
            inner = graph.nodes[argument]
            folded = isinstance(inner, Affine) and argument not in computed and not isinstance(node, Affine)
            found += arguments(inner) if folded else [argument]
    return found


def _level(graph: Graph, layout: Sequence[int], kept: Sequence[int], born: Sequence[int]) -> Level:
    places = _places(graph, layout)
    weights: list[Array] = [np.zeros((0, sum(graph.nodes[n].size for n in layout)))]
    bias: list[Array] = [np.zeros(0)]
    row: list[Indices] = [np.zeros(0, dtype=np.int64)]
    unit: list[Indices] = [np.zeros(0, dtype=np.int64)]
    count = units = 0
    for number in born:
        node = graph.nodes[number]
        sources = [number] if isinstance(node, Affine) else list(arguments(node))
        sign = -1.0 if isinstance(node, Minimum) else 1.0
        for source in sources:
            matrix, constant = _rows(graph, layout, source)
            weights.append(sign * matrix)
            bias.append(sign * constant)
        pieces = count + np.arange(len(sources) * node.size).reshape(len(sources), node.size)
        count += pieces.size
        if isinstance(node, Relu):
            pieces = np.concatenate([np.full((1, node.size), ZERO), pieces])
        row.append(pieces.T.ravel())
        unit.append(np.repeat(units + np.arange(node.size), len(pieces)))
        units += node.size
    carry = np.concatenate([np.zeros(0, dtype=np.int64), *(places[number] for number in kept)])
    return Level(np.concatenate(weights), np.concatenate(bias), np.concatenate(row), np.concatenate(unit), carry)


def _places(graph: Graph, layout: Sequence[int]) -> dict[int, Indices]:
    """Where each node of the state lies."""
    ends = np.cumsum([0, *(graph.nodes[number].size for number in layout)])
    return {number: np.arange(ends[i], ends[i + 1]) for i, number in enumerate(layout)}


def _rows(graph: Graph, layout: Sequence[int], number: int) -> tuple[Array, Array]:
    """A node as rows over the state: itself where it lies there, otherwise the affine node that it is.

    A minimum lies in the state as the maximum of its negated pieces: whoever reads it negates.
    """
    places, node = _places(graph, layout), graph.nodes[number]
    matrix = np.zeros((node.size, sum(graph.nodes[n].size for n in layout)))
    if number in places:
        _add(matrix, places[number], np.ones(node.size), node)
        return matrix, np.zeros(node.size)
    assert isinstance(node, Affine)
    for term in node.terms:
        _add(matrix, places[term.node], term.weights, graph.nodes[term.node])
    return matrix, np.array(node.bias)


def _add(matrix: Array, columns: Indices, weights: Array, node: Any) -> None:
    """Add weights (a matrix, or the diagonal of one) to the columns of a node. Two terms of one node add up."""
    sign = -1.0 if isinstance(node, Minimum) else 1.0
    added = np.diag(weights) if weights.ndim == 1 else weights
    before, added = matrix[:, columns], sign * added
    total = before + added
    # What two-sum would find is zero where the sum is exact.
    if np.any((total - before != added) | (total - added != before)):
        raise TargetError("two terms of an affine node read the same node, and their weights do not add up exactly")
    matrix[:, columns] = total
