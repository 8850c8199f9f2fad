"""What a universal model is given: a domain, a callable to sample, inputs to run on; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, reals
from headsmith.core.errors import DomainError, TargetError
from headsmith.core.intervals import Box, shortly
from headsmith.model import check_outside, real_inputs
from headsmith.run.numpy_runner import run
from headsmith.transformer.ir import Transformer


def box_of(domain: Any, tokens: int, features: int) -> Box:
    """The box of the flattened input, in the order of tokens, then features."""
    if tokens < 1 or features < 1:
        raise TargetError(f"{tokens} tokens of {features} features: both must be at least 1")
    if domain is None:
        raise DomainError("no domain was given; give one interval for all numbers, e.g. (-1, 1)")
    try:
        pairs = reals(domain)
    except (TypeError, ValueError):
        pairs = np.zeros(0)
    if pairs.shape not in ((2,), (features, 2), (tokens, features, 2)):
        raise DomainError(
            f"the domain {shortly(domain)} is neither a pair (low, high), nor one for each of {features} features, "
            f"nor an array ({tokens}, {features}, 2)"
        )
    pairs = np.broadcast_to(pairs, (tokens, features, 2)).reshape(-1, 2)
    names = tuple(f"[{token}, {feature}]" for token in range(tokens) for feature in range(features))
    return Box(names, pairs[:, 0], pairs[:, 1])


def run_inside(
    model: Transformer, box: Box, array: Any, outside: str = "refuse", runner: Callable[..., Any] = run
) -> Array:
    """Run a model on (..., tokens, features) inside its box, or anywhere."""
    inputs = table_inside(model, box, array, outside)
    found = runner(model, inputs.reshape(-1, model.tokens, model.inputs))
    return np.asarray(found.reshape(*inputs.shape[:-1], found.shape[-1]))


def table_inside(model: Transformer, box: Box, array: Any, outside: str = "refuse") -> Array:
    """The input as (..., tokens, features); DomainError for another number of tokens, or outside the box."""
    check_outside(outside)
    inputs = real_inputs(array)
    shape = (model.tokens, model.inputs)
    if inputs.ndim == 1 and model.inputs == 1:
        inputs = inputs[:, None]
    if inputs.shape[-2:] != shape:
        raise DomainError(
            f"the input has shape {inputs.shape}; the model takes (..., {shape[0]}, {shape[1]}): all tokens, exactly "
            f"{shape[0]} of them"
        )
    flat = inputs.reshape(-1, box.size)
    inside = box.contains(flat)
    if outside != "allow" and not inside.all():
        row, place = np.argwhere(~inside)[0].tolist()
        raise DomainError(
            f"token {place // shape[1]}, feature {place % shape[1]} of the input is {float(flat[row, place])!r}, "
            f"outside its domain [{float(box.low[place])!r}, {float(box.high[place])!r}]; build the model for "
            f'a larger one, or pass outside="allow" to run without any promise'
        )
    return inputs


def sample(function: Callable[[Array], Any], points: Array, tokens: int, outputs: int) -> Array:
    """The function's values (points, tokens, outputs), point by point; TargetError where they are not that."""
    found = np.empty((len(points), tokens, outputs))
    for row, point in enumerate(points):
        given = point.reshape(tokens, -1).copy()
        result = function(given)
        values = numbers_of(result)
        if values.shape != (tokens, outputs) and not (outputs == 1 and values.shape == (tokens,)):
            raise TargetError(f"the function returned an array {values.shape}; it needs ({tokens}, {outputs})")
        if not np.isfinite(values).all():
            raise TargetError(f"the function returned {result!r} at {point.reshape(tokens, -1).tolist()}: not finite")
        found[row] = values.reshape(tokens, outputs)
    return found


def numbers_of(result: Any) -> Array:
    """What a callable returned as an array of doubles; TargetError where it is none, or something would be lost."""
    try:
        if np.iscomplexobj(result) or np.ma.isMaskedArray(result):
            raise TypeError
        return np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        raise TargetError(f"the function returned {result!r}; an array of real numbers is needed") from None
