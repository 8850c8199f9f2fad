"""Every family by its name: a fragment is rebuilt from (family, parameters), which is all that needs to be stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headsmith.core.errors import TargetError
from headsmith.plan.circuits import (
    circular,
    composite,
    exponential,
    hypotenuse,
    logarithm,
    mirror,
    power,
    quadratic,
    reciprocal,
    root,
    shallow,
    square,
)
from headsmith.plan.circuits.fragment import Fragment, Parameters


def build(family: str, parameters: Parameters) -> Fragment:
    """The fragment of these parameters, the same bit for bit each time."""
    if family not in FAMILIES:
        raise TargetError(f"unknown circuit family {family!r}; known are {', '.join(sorted(FAMILIES))}")
    return FAMILIES[family](parameters)


FAMILIES: dict[str, Callable[[Parameters], Fragment]] = {
    "shallow": shallow.rebuild,
    "quadratic": quadratic.rebuild,
    "square": square.rebuild,
    "reciprocal": reciprocal.rebuild,
    "sqrt": root.rebuild,
    "hypotenuse": hypotenuse.rebuild,
    "exp": exponential.rebuild,
    "log": logarithm.rebuild,
    "power": power.rebuild,
    "sin": circular.rebuild,
    "cos": circular.rebuild,
    "sigmoid": partial(composite.rebuild, "sigmoid"),
    "tanh": partial(composite.rebuild, "tanh"),
    "softplus": partial(composite.rebuild, "softplus"),
    "gaussian": partial(composite.rebuild, "gaussian"),
    "even": partial(mirror.rebuild_even, build),
    "odd": partial(mirror.rebuild_odd, build),
    "flipped": partial(mirror.rebuild_flipped, build),
}
