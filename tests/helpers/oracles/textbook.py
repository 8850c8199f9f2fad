"""A textbook transformer in plain loops: it knows W_Q, W_K, W_V, W_O, and nothing of registers, banks or sinks.

The arithmetic is a parameter. `Floating` is ordinary floating point, summed in any order; `Rounded` is the standard
model of rounding itself: every operation returns its result times (1 + d), |d| <= u, with signs of d chosen to hurt,
and exp off by several units in the last place. Of rounding to nearest it knows that a product with a power of two is
exact, and that a sum is no further off than its smaller term. The certificate must hold for all of them.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from headsmith.transformer.dense import DenseLayer, DenseTransformer


class Arithmetic(Protocol):
    def input(self, value: float) -> Any: ...
    def weight(self, value: float) -> Any: ...
    def total(self, terms: list[Any]) -> Any: ...
    def product(self, left: Any, right: Any) -> Any: ...
    def exp(self, value: Any, way: float) -> Any: ...
    def quotient(self, left: Any, right: Any) -> Any: ...


class Floating:
    """IEEE arithmetic in float64 or float32; sums run left to right, or in a random order."""

    def __init__(self, dtype: str = "float64", order: np.random.Generator | None = None) -> None:
        self.kind, self.order = np.dtype(dtype).type, order

    def input(self, value: float) -> Any:
        return self.kind(value)

    def weight(self, value: float) -> Any:
        return self.kind(value)

    def total(self, terms: list[Any]) -> Any:
        if self.order is not None:
            terms = [terms[i] for i in self.order.permutation(len(terms))]
        result = self.kind(0)
        for term in terms:
            result = result + term
        return result

    def product(self, left: Any, right: Any) -> Any:
        return left * right

    def exp(self, value: Any, way: float) -> Any:
        return np.exp(value)

    def quotient(self, left: Any, right: Any) -> Any:
        return left / right


class Rounded:
    """The standard model with unit roundoff u far above float64's own: every result is pushed by u, up, down or at
    random."""

    def __init__(self, unit: float, exp_ulps: int, push: str, rng: np.random.Generator) -> None:
        self.unit, self.exp_ulps, self.push, self.rng = unit, exp_ulps, push, rng

    def _pushed(self, value: float, units: float = 1.0) -> float:
        match self.push:
            case "up":  # towards +infinity
                sign = math.copysign(1.0, value)
            case "down":  # towards -infinity
                sign = -math.copysign(1.0, value)
            case "out":
                sign = 1.0
            case "in":
                sign = -1.0
            case _:
                sign = self.rng.choice([-1.0, 1.0])
        return value * (1.0 + sign * units * self.unit)

    def input(self, value: float) -> float:
        return self._pushed(float(value))

    def weight(self, value: float) -> float:
        return float(value)

    def total(self, terms: list[float]) -> float:
        terms = [float(term) for term in terms if term]
        result = terms[0] if terms else 0.0
        for term in terms[1:]:
            exact, least = result + term, min(abs(result), abs(term))
            result = exact + min(max(self._pushed(exact) - exact, -least), least)
        return result

    def product(self, left: float, right: float) -> float:
        exact = 0.5 in (abs(math.frexp(left)[0]), abs(math.frexp(right)[0]))
        return left * right if exact else self._pushed(left * right)

    def exp(self, value: float, way: float = 0.0) -> float:
        """Upwards means that the mean rises: `way` is the sign of what a token holds, less the mean."""
        way = {"up": way, "down": -way}.get(self.push, 0.0)
        power = math.exp(value)
        return power * (1.0 + way * self.exp_ulps * self.unit) if way else self._pushed(power, self.exp_ulps)

    def quotient(self, left: float, right: float) -> float:
        return self._pushed(left / right)


def run_dense(model: DenseTransformer, sequence: Any, arithmetic: Arithmetic, *, causal: bool = False) -> Any:
    """The outputs (tokens, outputs) for one sequence (tokens, inputs), token by token, head by head."""
    stream = stream_dense(model, sequence, arithmetic, causal=causal)
    outputs = []
    for token in stream[len(model.references) :]:
        columns = _times(token, model.W_U, arithmetic)
        outputs.append(
            [
                arithmetic.total([value, arithmetic.weight(bias)])
                for value, bias in zip(columns, model.b_U.tolist(), strict=True)
            ]
        )
    return np.array(outputs, dtype=np.float64)


def stream_dense(
    model: DenseTransformer, sequence: Any, arithmetic: Arithmetic, *, causal: bool = False
) -> list[list[Any]]:
    """The residual stream after the last layer, reference tokens first."""
    stream = _embed(model, sequence, arithmetic)
    for layer in model.layers:
        stream = _activate(layer, stream, arithmetic) if layer.neurons else _attend(layer, stream, arithmetic, causal)
    return stream


def _embed(model: DenseTransformer, sequence: Any, arithmetic: Arithmetic) -> list[list[Any]]:
    stream = [[arithmetic.weight(value) for value in row] for row in model.references.tolist()]
    for position, token in enumerate(np.asarray(sequence, dtype=np.float64).tolist()):
        columns = _times([arithmetic.input(x) for x in token], model.W_E, arithmetic)
        stream.append(
            [
                arithmetic.total([value, arithmetic.weight(b), arithmetic.weight(p)])
                for value, b, p in zip(columns, model.b_E.tolist(), model.W_pos[position].tolist(), strict=True)
            ]
        )
    return stream


def _attend(layer: DenseLayer, stream: list[list[Any]], arithmetic: Arithmetic, causal: bool) -> list[list[Any]]:
    additions: list[list[list[Any]]] = [[[value] for value in token] for token in stream]
    for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
        queries = [_times(token, W_Q, arithmetic) for token in stream]
        keys = [_times(token, W_K, arithmetic) for token in stream]
        values = [_times(token, W_V, arithmetic) for token in stream]
        for place, query in enumerate(queries):
            seen = range(place + 1) if causal else range(len(stream))
            scores = [_dot(query, keys[other], arithmetic) for other in seen]
            highest = max(scores)
            shares = np.exp(np.array(scores, dtype=np.float64) - float(highest))
            held = np.array([values[other][0] for other in seen], dtype=np.float64)
            ways = np.sign(held - shares @ held / shares.sum()).tolist()
            lower = [arithmetic.total([score, -highest]) for score in scores]
            powers = [arithmetic.exp(score, way) for score, way in zip(lower, ways, strict=True)]
            mass = arithmetic.total(powers)
            weights = [arithmetic.quotient(power, mass) for power in powers]
            mixed = [_dot(weights, [values[other][i] for other in seen], arithmetic) for i in range(W_V.shape[1])]
            for column, addition in enumerate(_times(mixed, W_O, arithmetic)):
                additions[place][column].append(addition)
    return [[arithmetic.total(terms) for terms in token] for token in additions]


def _activate(layer: DenseLayer, stream: list[list[Any]], arithmetic: Arithmetic) -> list[list[Any]]:
    """A SwiGLU block: silu(t) = t / (1 + e^-t)."""
    found = []
    for token in stream:
        gates, ups = _times(token, layer.W_gate, arithmetic), _times(token, layer.W_up, arithmetic)
        one = arithmetic.weight(1.0)
        with np.errstate(over="ignore"):
            silus = [arithmetic.quotient(each, arithmetic.total([one, arithmetic.exp(-each, 0.0)])) for each in gates]
        returned = [arithmetic.product(silu, up) for silu, up in zip(silus, ups, strict=True)]
        added = _times(returned, layer.W_down, arithmetic)
        found.append([arithmetic.total([held, more]) for held, more in zip(token, added, strict=True)])
    return found


def _times(vector: list[Any], matrix: Any, arithmetic: Arithmetic) -> list[Any]:
    """vector @ matrix. Exact zeros of the matrix are skipped: they change nothing in any order of summation."""
    result = []
    for column in matrix.T:
        used = np.flatnonzero(column)
        weights = [arithmetic.weight(column[i]) for i in used]
        result.append(_dot([vector[i] for i in used], weights, arithmetic))
    return result


def _dot(left: list[Any], right: list[Any], arithmetic: Arithmetic) -> Any:
    return arithmetic.total([arithmetic.product(a, b) for a, b in zip(left, right, strict=True)])
