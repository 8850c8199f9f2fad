"""Models of other attentions whose data tokens see each other, with every head that there is for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headsmith as hs

over = hs.tokens


def _program(function: Callable[[Any], Any], kind: Any, error: float = 1e-2, **options: Any) -> Callable[[Any], Any]:
    given = {"tokens": 4, "domain": (-1, 1), "error": error, "attention": kind, **options}
    return lambda dtype: hs.compile_sequence(function, dtype=dtype, **given)


AMONG_TOKENS: dict[str, Callable[[Any], Any]] = {
    "hardmax": _program(lambda x: over.sort(x) + over.mean(x) - over.max(x), "hardmax"),
    "hardmax, causal": _program(lambda x: over.max(x) + over.mean(x), "hardmax", causal=True),
    "sparsemax": _program(lambda x: over.max(x) + over.mean(x), "sparsemax"),
    "sparsemax, causal": _program(lambda x: over.mean(x) + hs.relu(over.shift(x, 1) - x), "sparsemax", causal=True),
    "sigmoid": _program(lambda x: over.shift(x, -1) + abs(x), "sigmoid"),
    "sigmoid, causal": _program(lambda x: over.cumulative_sum(x) + hs.relu(x), "sigmoid", causal=True),
    "relu": _program(over.sort, "relu"),
    "relu, causal": _program(
        lambda x: over.cumulative_sum(x) / (over.position(x) + 1), "relu", error=5e-2, causal=True
    ),
}
"""By name, a function of the format."""
