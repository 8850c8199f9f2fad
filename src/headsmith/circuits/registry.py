"""Every family by its name: a fragment is rebuilt from (family, parameters), which is all that needs to be stored."""

from __future__ import annotations

from collections.abc import Callable

from headsmith.circuits import reciprocal, shallow, square
from headsmith.circuits.fragment import Fragment, Parameters
from headsmith.core.errors import TargetError

FAMILIES: dict[str, Callable[[Parameters], Fragment]] = {
    "square": square.rebuild,
    "reciprocal": reciprocal.rebuild,
    "shallow": shallow.rebuild,
}


def build(family: str, parameters: Parameters) -> Fragment:
    """The fragment of these parameters, the same bit for bit each time."""
    if family not in FAMILIES:
        raise TargetError(f"unknown circuit family {family!r}; known are {', '.join(sorted(FAMILIES))}")
    return FAMILIES[family](parameters)
