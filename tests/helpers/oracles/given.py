"""Given networks in balls of many bits: the truth about a Taylor model at a point. Shares no code with the package, but
for what a graph is."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb, ctx

BITS = 240


def ball(value: float) -> Any:
    """A double, exactly."""
    return arb(float(value))


def apply(name: str, parameter: float | None, x: Any) -> Any:
    """A named function at a ball."""
    match name:
        case "gelu":
            return x * (1 + (x / arb(2).sqrt()).erf()) / 2
        case "sigmoid":
            return 1 / (1 + (-x).exp())
        case "square":
            return x * x
        case "reciprocal":
            return 1 / x
        case "power":
            return x ** ball(parameter)
        case _:
            return getattr(x, name)()


def monomial(exponents: list[int], places: list[tuple[int, Any]]) -> Any:
    """The product of powers of coordinates; those that are not named are zero."""
    known, found = dict(places), ball(1.0)
    for variable, power in enumerate(exponents):
        found *= known.get(variable, ball(0.0)) ** power
    return found


def values(graph: Any, point: Any) -> dict[int, list[Any]]:
    """The value of every node of a language graph at a point of balls."""
    saved, ctx.prec = ctx.prec, BITS
    try:
        found: dict[int, list[Any]] = {}
        for number, node in enumerate(graph.nodes):
            found[number] = _value(node, found, point)
        return found
    finally:
        ctx.prec = saved


def _value(node: Any, found: dict[int, list[Any]], point: Any) -> list[Any]:
    zero = ball(0.0)
    match type(node).__name__:
        case "Input":
            return list(point)
        case "Affine":
            result = [ball(each) for each in node.bias]
            for term in node.terms:
                W = term.weights
                W = W if isinstance(W, np.ndarray) else W.written()
                W = np.diag(W) if W.ndim == 1 else W
                for row, column in zip(*np.nonzero(W), strict=True):
                    result[row] += ball(W[row, column]) * found[term.node][column]
            return result
        case "Relu":
            return [x.max(zero) for x in found[node.argument]]
        case "Maximum" | "Minimum":
            rows = [found[each] for each in node.arguments]
            result = rows[0]
            for row in rows[1:]:
                result = [
                    a.max(b) if type(node).__name__ == "Maximum" else a.min(b) for a, b in zip(result, row, strict=True)
                ]
            return result
        case "Product":
            return [a * b for a, b in zip(found[node.left], found[node.right], strict=True)]
        case "Quotient":
            return [a / b for a, b in zip(found[node.numerator], found[node.denominator], strict=True)]
        case "Function":
            return [apply(node.name, node.parameter, x) for x in found[node.argument]]
        case "Average":
            return _average(node, found[node.scores], found[node.values])
    raise NotImplementedError(type(node).__name__)


def _average(node: Any, scores: list[Any], held: list[Any]) -> list[Any]:
    keys = node.keys
    groups = len(scores) // keys
    width = node.size // groups
    owners = len(held) // (keys * width)
    result = []
    for group in range(groups):
        own = group // (groups // owners)
        mine = scores[group * keys : (group + 1) * keys]
        top = max(mine, key=lambda each: float(each.mid()))
        powers = [(each - top).exp() for each in mine]
        for column in range(width):
            terms = [p * held[(own * keys + key) * width + column] for key, p in enumerate(powers)]
            result.append(sum(terms, start=ball(0.0)) / sum(powers, start=ball(0.0)))
    return result
