"""Which circuits can stand in for a function at an asked error: the choices between few gates and little depth."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headsmith.circuits.fragment import Fragment
from headsmith.circuits.reciprocal import reciprocal_options
from headsmith.circuits.shallow import shallow_option
from headsmith.circuits.square import square_options
from headsmith.circuits.target import Target


def options(
    name: str, parameter: float | None, low: float, high: float, error: float, *, max_depth: int | None = None
) -> list[Fragment]:
    """Fragments for f = FUNCTIONS[name] on [low, high] whose estimated error is at most `error`.

    Pareto-optimal in (gates, depth), fewest gates first. Empty where no family can do it (f not finite, far too many gates, max_depth).
    """
    return list(_options(name, parameter, float(low), float(high), float(error), max_depth))


@lru_cache(maxsize=512)
def _options(
    name: str, parameter: float | None, low: float, high: float, error: float, max_depth: int | None
) -> tuple[Fragment, ...]:
    found: list[Fragment] = []
    if low < high:
        found += _folds(name, parameter, low, high, error, max_depth)
    if not any(fragment.depth <= 1 and fragment.family == "square" for fragment in found):
        fragment = shallow_option(Target(name, parameter), low, high, error)
        found += [fragment] if fragment is not None else []
    return tuple(pareto(fragment for fragment in found if fragment.error <= error and _fits(fragment, max_depth)))


def _folds(
    name: str, parameter: float | None, low: float, high: float, error: float, max_depth: int | None
) -> list[Fragment]:
    """The deep families that know this function."""
    if name == "square" or (name == "power" and parameter == 2.0):
        return square_options(low, high, error, max_depth)
    if name == "reciprocal" or (name == "power" and parameter == -1.0):
        return reciprocal_options(low, high, error, max_depth)
    return []


def pareto(fragments: Iterable[Fragment]) -> list[Fragment]:
    """Those that no other beats in both gates and depth, fewest gates first; of equals the most accurate."""
    front: list[Fragment] = []
    for fragment in sorted(fragments, key=lambda each: (each.gates, each.depth, each.error)):
        if not front or fragment.depth < front[-1].depth:
            front.append(fragment)
    return front


def _fits(fragment: Fragment, max_depth: int | None) -> bool:
    return max_depth is None or fragment.depth <= max_depth
