"""Callables that are sampled instead of traced, behind compile_sequence: what is refused, and how many outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.sequence.universal import Universal, universal
from headsmith.sequence.universal_inputs import box_of, numbers_of
from headsmith.sequence.universal_model import Architecture

HINT = (
    "if it is a callable of arrays that is to be sampled, give its Lipschitz bound: "
    "compile_sequence(function, ..., lipschitz=L)"
)

USUAL: dict[str, Any] = {"causal": False, "recipe": "auto", "dtype": "float64", "cost": None, "attention": "softmax"}
"""What a sampled callable leaves no choice of."""

WHY = {
    "causal": "every token looks at all of them",
    "recipe": "the model is a table of answers",
    "dtype": "its error is proven for float64 alone",
    "cost": "the grid has as few nodes as the bound allows",
    "attention": "its tables are read by softmax",
}


def sampled(
    function: Callable[[Array], Any],
    tokens: int,
    features: int,
    domain: Any,
    error: float,
    *,
    architecture: Architecture,
    max_layers: int | None,
    outputs: int | None,
    options: dict[str, Any],
    **stated: Any,
) -> Universal:
    """The universal model of a callable; TargetError for options that make no sense for one."""
    for name, value in options.items():
        if value != USUAL[name]:
            raise TargetError(
                f"{name} is {value!r}; a callable that is sampled (lipschitz) leaves no choice there: {WHY[name]}"
            )
    layers = 2 if architecture == "two layers" else 1
    if max_layers is not None and not (isinstance(max_layers, int) and max_layers >= layers):
        raise TargetError(
            f"max_layers is {max_layers!r}; a callable that is sampled takes 2 layers, or 1 with architecture='one "
            f"layer and a softmax'"
        )
    if outputs is not None and (isinstance(outputs, bool) or not isinstance(outputs, int | np.integer) or outputs < 1):
        raise TargetError(f"outputs is {outputs!r}; it must be a positive integer, or None")
    found = outputs if outputs is not None else _outputs(function, tokens, features, domain)
    return universal(function, tokens, features, int(found), domain, error, architecture=architecture, **stated)


def _outputs(function: Callable[[Array], Any], tokens: int, features: int, domain: Any) -> int:
    """How many numbers the function returns for each token, in the middle of the domain."""
    box = box_of(domain, tokens, features)
    result = function((box.low / 2.0 + box.high / 2.0).reshape(tokens, features))
    shape = numbers_of(result).shape
    if len(shape) not in (1, 2) or shape[0] != tokens or 0 in shape:
        raise TargetError(f"the function returned an array {shape}; it needs ({tokens}, outputs)")
    return shape[1] if len(shape) == 2 else 1
