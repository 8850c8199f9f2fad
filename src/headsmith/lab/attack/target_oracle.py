"""What a file's target is, evaluated straight from the file: JSON nodes and tensors, in any arithmetic.

Nothing of the code that reads, compiles or checks models is used here. Values of a node are arrays (..., tokens, size):
of the machine's widest floating-point format for many sequences at once, or of numbers with many digits for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headsmith.core import functions, precise
from headsmith.core.errors import TargetError


class Numbers(Protocol):
    """An arithmetic: arrays of it know + - * / and @."""

    def exact(self, values: Any) -> Any: ...
    def called(self, name: str, parameter: float | None, values: Any) -> Any: ...
    def larger(self, left: Any, right: Any) -> Any: ...


@dataclass(frozen=True)
class Wide:
    """The widest format of the machine: good to about 1e-18 of the sizes involved."""

    def exact(self, values: Any) -> Any:
        return np.asarray(values, dtype=np.longdouble)

    def called(self, name: str, parameter: float | None, values: Any) -> Any:
        return functions.FUNCTIONS[name].value(values, parameter)

    def larger(self, left: Any, right: Any) -> Any:
        return np.maximum(left, right)


@dataclass(frozen=True)
class Digits:
    """Many digits. To be used inside `precise.many_digits()`."""

    def exact(self, values: Any) -> Any:
        return precise.exact(values)

    def called(self, name: str, parameter: float | None, values: Any) -> Any:
        return precise.called(name, parameter, values)

    def larger(self, left: Any, right: Any) -> Any:
        return precise.larger(left, right)


def target_values(source: Any, tensors: Mapping[str, Any], sequences: Any, on: Numbers) -> Any:
    """The target for sequences (..., tokens, inputs): (..., tokens, outputs)."""
    known: list[Any] = []
    for node in source["nodes"]:
        known.append(_node(node, tensors, known, on.exact(sequences), on))
    return known[source["output"]]


def _matrix(stored: Any, tensors: Mapping[str, Any]) -> Any:
    """Weights, written out if a file has them by their entries."""
    if isinstance(stored, str):
        return tensors[stored]
    found = np.zeros(stored["shape"])
    found.reshape(-1)[np.cumsum(tensors[stored["gaps"]], dtype=np.int64) - 1] = tensors[stored["values"]]
    return found


def _node(node: Any, tensors: Mapping[str, Any], known: list[Any], x: Any, on: Numbers) -> Any:
    match node["kind"]:
        case "input":
            return x
        case "affine":
            bias = on.exact(tensors[node["bias"]])
            total = np.broadcast_to(bias, (*x.shape[:-1], len(bias)))
            for term in node["terms"]:
                weights, values = on.exact(_matrix(term["weights"], tensors)), known[term["node"]]
                total = total + (values * weights if weights.ndim == 1 else values @ weights.T)
            return total
        case "positional":
            table = on.exact(tensors[node["values"]])[: x.shape[-2]]
            return np.broadcast_to(table, (*x.shape[:-1], table.shape[-1]))
        case "relu":
            values = known[node["argument"]]
            return on.larger(values, on.exact(np.zeros(values.shape)))
        case "maximum" | "minimum":
            return _extreme([known[each] for each in node["arguments"]], node["kind"] == "minimum", on)
        case "product":
            return known[node["left"]] * known[node["right"]]
        case "quotient":
            return known[node["numerator"]] / known[node["denominator"]]
        case "hypotenuse":
            left, right = known[node["left"]], known[node["right"]]
            return on.called("sqrt", None, left * left + right * right)
        case "function":
            return on.called(node["name"], node["parameter"], known[node["argument"]])
        case "pool":
            return _pooled(node, known[node["argument"]], on)
        case "move":
            values = known[node["argument"]]
            targets = np.array(node["targets"][: x.shape[-2]])
            missing = on.exact(np.zeros(values.shape))
            return np.where((targets < 0)[:, None], missing, values[..., np.maximum(targets, 0), :])
        case "attend":
            return _attended(node, known[node["queries"]], known[node["keys"]], known[node["values"]], on)
        case kind:
            raise TargetError(f"the oracle knows no node of kind {kind!r}")


def _extreme(values: list[Any], least: bool, on: Numbers) -> Any:
    sign = -1 if least else 1
    result = values[0] * sign
    for each in values[1:]:
        result = on.larger(result, each * sign)
    return result * sign


def _pooled(node: Any, values: Any, on: Numbers) -> Any:
    tokens = values.shape[-2]
    rows = []
    for token in range(tokens):
        seen = values[..., : token + 1 if node["causal"] else tokens, :]
        each = [seen[..., other, :] for other in range(seen.shape[-2])]
        rows.append(
            sum(each[1:], each[0]) / len(each) if node["of"] == "mean" else _extreme(each, node["of"] == "min", on)
        )
    return np.stack(rows, axis=-2)


def _attended(node: Any, queries: Any, keys: Any, values: Any, on: Numbers) -> Any:
    scores = queries @ np.swapaxes(keys, -1, -2)
    tokens, rows = values.shape[-2], []
    for token in range(tokens):
        seen = token + 1 if node["causal"] else tokens
        mine = scores[..., token, :seen]
        top = _extreme([mine[..., other] for other in range(seen)], False, on)
        powers = on.called("exp", None, mine - np.asarray(top)[..., None])
        mixed = (powers[..., None, :] @ values[..., :seen, :])[..., 0, :]
        rows.append(mixed / np.asarray(powers.sum(axis=-1))[..., None])
    return np.stack(rows, axis=-2)
