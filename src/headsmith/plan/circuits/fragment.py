"""A fragment: a small ReLU circuit of one variable x that stands in for a function on [low, high].

How fragments are written, so that lowering keeps them small:
  running sums are affine nodes z' = 1 z + w relu, which the register allocator updates in place;
  thresholds are affine nodes of affine nodes, which are read and never stored;
  outputs that sum all gates are one affine node over the input and every relu node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Graph, Relu, arguments


@dataclass(frozen=True, eq=False)
class Fragment:
    """A circuit of a family, and how well it is expected to do: `error` estimates sup |circuit - f| on [low, high]; it
    is no bound."""

    family: str
    graph: Graph
    low: float
    high: float
    error: float
    gates: int = field(init=False)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gates", self.graph.gates)
        object.__setattr__(self, "depth", depth(self.graph))

    def __call__(self, x: Any) -> Array:
        """The circuit's value at each x, in double precision."""
        return np.asarray(evaluate(self.graph, np.asarray(x, dtype=np.float64)[..., None])[..., 0])


def depth(graph: Graph) -> int:
    """The longest chain of gates."""
    found: list[int] = []
    for node in graph.nodes:
        below = max((found[argument] for argument in arguments(node)), default=0)
        found.append(below + isinstance(node, Relu))
    return found[graph.output]


def scalar(builder: Builder, terms: Sequence[tuple[int, Any]], bias: float = 0.0) -> int:
    """A node of width 1: the sum of weight . node, plus `bias`; a wide node takes a vector of weights."""
    parts = []
    for node, weight in terms:
        row = np.array(weight, dtype=np.float64).reshape(-1)
        parts.append((node, row if builder.size(node) == 1 else row[None, :]))
    return builder.affine(parts, np.array([bias], dtype=np.float64))


def column(builder: Builder, terms: Sequence[tuple[int, Any]], biases: Any) -> int:
    """A node as wide as `biases`: each term is a node of width 1 and one weight for each component (or one for all)."""
    bias = np.array(biases, dtype=np.float64).reshape(-1)
    parts = []
    for node, weights in terms:
        each = np.array(np.broadcast_to(np.asarray(weights, dtype=np.float64), bias.shape))
        parts.append((node, each if len(bias) == 1 else each[:, None]))
    return builder.affine(parts, bias)


def gates(builder: Builder, terms: Sequence[tuple[int, Any]], biases: Any) -> int:
    """One relu node: max(terms + bias, 0) for each of `biases`."""
    return builder.relu(column(builder, terms, biases))


def embed(builder: Builder, graph: Graph, argument: int) -> int:
    """Copy a circuit of one variable into `builder`, reading node `argument` as its input; the number of its output."""
    number = {0: argument}
    for index, node in enumerate(graph.nodes[1:], start=1):
        if isinstance(node, Affine):
            number[index] = builder.affine([(number[term.node], term.weights) for term in node.terms], node.bias)
        else:
            assert isinstance(node, Relu)
            number[index] = builder.relu(number[node.argument])
    return number[graph.output]
