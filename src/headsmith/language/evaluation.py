"""The value of a graph, in floating point of any precision: a fast stand-in for exact arithmetic, not a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.core.program import program_values
from headsmith.language.graph import (
    Affine,
    Attend,
    Average,
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
    Sampled,
    arguments,
    average_shape,
)


def apply(weights: Any, values: Any) -> Any:
    """weights @ values along the last axis of `values`, for dense or diagonal weights of any dtype."""
    return values * weights if weights.ndim == 1 else values @ weights.T


def evaluate(graph: Graph, inputs: Any, dtype: Any = np.float64) -> Any:
    """The graph's output for `inputs` (..., inputs), in floating point of `dtype`: a fast stand-in, not a bound."""
    return node_values(graph, inputs, dtype)[graph.output]


def node_values(
    graph: Graph, inputs: Any, dtype: Any = np.float64, instead: Mapping[int, Callable[[Any], Any]] | None = None
) -> list[Any]:
    """The value of every node for `inputs` (..., inputs), in floating point of `dtype`; what is given `instead` of a
    node takes its value, and returns another one."""
    inputs = np.asarray(inputs, dtype=dtype)
    values: list[Any] = []
    for number, node in enumerate(graph.nodes):
        match node:
            case Input():
                values.append(inputs)
            case Affine():
                value = np.broadcast_to(node.bias.astype(dtype), (*inputs.shape[:-1], node.size))
                for term in node.terms:
                    value = value + apply(term.weights.astype(dtype), values[term.node])
                values.append(value)
            case Relu():
                values.append(np.maximum(values[node.argument], 0))
            case Maximum():
                values.append(np.maximum.reduce([values[argument] for argument in node.arguments]))
            case Minimum():
                values.append(np.minimum.reduce([values[argument] for argument in node.arguments]))
            case Product():
                values.append(values[node.left] * values[node.right])
            case Quotient():
                values.append(values[node.numerator] / values[node.denominator])
            case Hypotenuse():
                values.append(np.hypot(values[node.left], values[node.right]))
            case Function():
                values.append(FUNCTIONS[node.name].value(values[node.argument], node.parameter))
            case Expression():
                values.append(program_values(node.program, *(values[argument] for argument in node.arguments)))
            case Positional():
                rows = node.values[: inputs.shape[-2]].astype(dtype)
                values.append(np.broadcast_to(rows, (*inputs.shape[:-1], node.size)))
            case Pool():
                values.append(_pooled(node, values[node.argument]))
            case Move():
                values.append(_fetched(node, values[node.argument]))
            case Attend():
                values.append(_attended(node, *(values[argument] for argument in arguments(node))))
            case Average():
                values.append(_averaged(node, values[node.scores], values[node.values]))
            case Sampled():
                raise TargetError("a function that was sampled is known at the nodes of its grid alone")
            case _:
                assert_never(node)
        if instead is not None and number in instead:
            values[number] = instead[number](values[number])
    return values


def _pooled(node: Pool, value: Any) -> Any:
    """Over the tokens, the axis before the last."""
    if node.causal:
        if node.kind == "mean":
            return np.cumsum(value, axis=-2) / np.arange(1, value.shape[-2] + 1)[:, None]
        return (np.maximum if node.kind == "max" else np.minimum).accumulate(value, axis=-2)
    reducers: dict[str, Any] = {"mean": np.mean, "max": np.max, "min": np.min}
    reduced = reducers[node.kind](value, axis=-2, keepdims=True)
    return np.broadcast_to(reduced, value.shape)


def _attended(node: Attend, queries: Any, keys: Any, values: Any) -> Any:
    """Each token's softmax mean, in extended precision where the arithmetic has it."""
    scores = queries @ np.swapaxes(keys, -1, -2)
    if node.causal:
        hidden = np.triu(np.ones(scores.shape[-2:], dtype=bool), 1)
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ values


def _averaged(node: Average, scores: Any, values: Any) -> Any:
    """Softmax means of one vector that holds all tokens."""
    lead, (groups, width) = scores.shape[:-1], average_shape(node, scores.shape[-1])
    owners = values.shape[-1] // (node.keys * width)
    scores = scores.reshape(*lead, owners, groups // owners, node.keys)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = (weights / weights.sum(axis=-1, keepdims=True)) @ values.reshape(*lead, owners, node.keys, width)
    return found.reshape(*lead, node.size)


def _fetched(node: Move, value: Any) -> Any:
    """Each token's row from its target."""
    present = value.shape[-2]
    targets = np.array(node.targets[:present])
    if np.any(targets >= present):
        raise TargetError(f"a token fetches from token {int(targets.max())}, but the sequence has {present} tokens")
    return np.where(targets[:, None] < 0, 0, value[..., np.maximum(targets, 0), :])
