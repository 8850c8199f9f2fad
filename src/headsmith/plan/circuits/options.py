"""Which circuits can stand in for a function at an asked error: the choices between few gates and little depth."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial

from headsmith.plan.circuits.circular import circular_proposals
from headsmith.plan.circuits.composite_search import composite_proposals
from headsmith.plan.circuits.exponential import exponential_proposals
from headsmith.plan.circuits.fragment import Fragment
from headsmith.plan.circuits.hypotenuse import hypotenuse_proposals
from headsmith.plan.circuits.logarithm import logarithm_proposals
from headsmith.plan.circuits.mirror import mirror_proposals
from headsmith.plan.circuits.power import power_proposals
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.quadratic import quadratic_proposals
from headsmith.plan.circuits.reciprocal import reciprocal_proposals
from headsmith.plan.circuits.root import root_proposals
from headsmith.plan.circuits.shallow import shallow_option, shallow_proposals
from headsmith.plan.circuits.square import square_proposals
from headsmith.plan.circuits.target import Target

MOST_GATES = 3000


def options(
    name: str, parameter: float | None, low: float, high: float, error: float, *, max_depth: int | None = None
) -> list[Fragment]:
    """Fragments for f = FUNCTIONS[name] on [low, high] whose estimated error is at most `error`.

    Pareto-optimal in (gates, depth), fewest gates first. Empty where no family can do it: f not finite there, far
    too many gates, or max_depth too small.
    """
    return list(_options(name, parameter, float(low), float(high), float(error), max_depth))


@lru_cache(maxsize=512)
def _options(
    name: str, parameter: float | None, low: float, high: float, error: float, max_depth: int | None
) -> tuple[Fragment, ...]:
    target = Target(name, parameter)
    if low == high:
        constant = shallow_option(target, low, high, error)
        return (constant,) if constant is not None else ()
    proposals = [*_deep(name, parameter, low, high, error), *_generic(target, low, high, error)]
    if _exponent(name, parameter) != 2.0:
        proposals += mirror_proposals(target, low, high, partial(_one_side, error))
    # Cheapest first; a proposal is built only if it is shallower than all that are built, and counts once its
    # error is seen.
    built: list[Fragment] = []
    for proposal in sorted(proposals, key=lambda each: (each.gates, each.depth)):
        if proposal.gates > MOST_GATES or (max_depth is not None and proposal.depth > max_depth):
            continue
        if all(proposal.depth < fragment.depth for fragment in built):
            fragment = proposal.make()
            built += [fragment] if fragment.error <= error else []
    return tuple(pareto(built))


def pareto(fragments: Iterable[Fragment]) -> list[Fragment]:
    """Those that no other beats in both gates and depth, fewest gates first; of equals the most accurate."""
    front: list[Fragment] = []
    for fragment in sorted(fragments, key=lambda each: (each.gates, each.depth, each.error)):
        if not front or fragment.depth < front[-1].depth:
            front.append(fragment)
    return front


def _exponent(name: str, parameter: float | None) -> float | None:
    """The exponent, where the function is a power."""
    return {"square": 2.0, "reciprocal": -1.0, "sqrt": 0.5, "power": parameter}.get(name)


def _deep(name: str, parameter: float | None, low: float, high: float, error: float) -> list[Proposal]:
    """The families that know this function."""
    match name, _exponent(name, parameter):
        case _, 2.0:
            return square_proposals(low, high, error)
        case _, -1.0:
            return reciprocal_proposals(low, high, error)
        case _, 0.5:
            return root_proposals(low, high, error) if low >= 0.0 else []
        case "power", exponent if exponent is not None:
            return power_proposals(exponent, low, high, error) if low >= 0.0 else []
        case "exp", _:
            return exponential_proposals(low, high, error)
        case "log", _:
            return logarithm_proposals(low, high, error) if low > 0.0 else []
        case "sin" | "cos", _:
            return circular_proposals(name, low, high, error)
        case "hypotenuse", _:
            return hypotenuse_proposals(error) if low >= 0.0 and high <= 1.0 else []
        case "sigmoid" | "tanh" | "softplus" | "gaussian", _:
            return composite_proposals(name, low, high, error)
    return []


def _generic(target: Target, low: float, high: float, error: float) -> list[Proposal]:
    """What every function has: piecewise linear, and piecewise quadratic where it is smooth enough."""
    exponent = _exponent(target.name, target.parameter)
    shallow = shallow_proposals(target, low, high, error)
    if exponent in (2.0, 0.5) or (target.name == "power" and low == 0.0 and exponent is not None and exponent < 3.0):
        return shallow
    return [*shallow, *quadratic_proposals(target, low, high, error)]


def _one_side(error: float, target: Target, low: float, high: float) -> list[Proposal]:
    """Proposals for a function that is to be mirrored."""
    deep = power_proposals(target.parameter, low, high, error) if target.name == "power" and target.parameter else []
    return [*deep, *_generic(target, low, high, error)]
