"""The values of a circuit's nodes, in plain numpy: what the nodes say, and nothing of what compiles or checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headsmith.core.functions import FUNCTIONS
from headsmith.kernel.core.functions import Program, run
from headsmith.kernel.core.graph import Graph, Node, needed

Values = dict[int, Any]


def as_it_is(number: int, arguments: list[Any], value: Any) -> Any:
    """The value of a node as it is."""
    return value


def evaluated(
    nodes: Sequence[Node],
    numbers: Sequence[int],
    x: Any,
    changed: Callable[[int, list[Any], Any], Any] = as_it_is,
) -> Values:
    """The values (..., tokens, size) of nodes and of all that they need; each is what `changed` makes of it."""
    found: Values = {}
    for number in needed(Graph(tuple(nodes), 0), numbers):
        arguments = [found[argument] for argument in nodes[number].arguments]
        found[number] = changed(number, arguments, _value(nodes[number], arguments, x))
    return found


def _value(node: Node, arguments: list[Any], x: Any) -> Any:
    match node.kind:
        case "input":
            return x
        case "positional":
            return np.broadcast_to(node.constants[: x.shape[-2]], (*x.shape[:-1], node.size))
        case "affine":
            total = np.broadcast_to(node.constants, (*x.shape[:-1], node.size))
            for weights, argument in zip(node.weights, arguments, strict=True):
                total = total + (argument * weights if weights.ndim == 1 else argument @ weights.T)
            return total
        case "relu":
            return np.maximum(arguments[0], 0.0)
        case "maximum":
            return np.max(arguments, axis=0)
        case "minimum":
            return np.min(arguments, axis=0)
        case "expression":
            return _run(node.program, arguments)
        case "pool":
            return _pooled(node, arguments[0])
        case "move":
            return _moved(node, arguments[0])
        case "exchange":
            value, above, below = arguments
            gap = value - _moved(node, value)
            return value - np.maximum(gap - above, 0.0) + np.maximum(-gap - below, 0.0)
        case "attend":
            return _attended(node, *arguments)
    raise NotImplementedError(node.kind)


def _run(program: Program, arguments: list[Any]) -> Any:
    return run(
        program,
        arguments,
        linear=lambda terms, constant: sum((x * float(c) for c, x in terms), start=float(constant)),
        call=lambda name, parameter, x: FUNCTIONS[name].value(x, parameter),
        times=lambda left, right: left * right,
    )


def _pooled(node: Node, values: Any) -> Any:
    tokens = values.shape[-2]
    pool: Any = {"mean": np.mean, "max": np.max, "min": np.min}[node.name]
    rows = [pool(values[..., : token + 1 if node.causal else tokens, :], axis=-2) for token in range(tokens)]
    return np.stack(rows, axis=-2)


def _moved(node: Node, values: Any) -> Any:
    targets = np.array(node.targets[: values.shape[-2]])
    return np.where((targets < 0)[:, None], 0.0, values[..., np.maximum(targets, 0), :])


def _attended(node: Node, queries: Any, keys: Any, values: Any) -> Any:
    scores = queries @ np.swapaxes(keys, -1, -2)
    if node.causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers @ values / powers.sum(axis=-1, keepdims=True)
