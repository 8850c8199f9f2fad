"""The planner's split of the error over non-linear nodes, against exhaustive search over splits.

For each node of a small target, every circuit on its front of gates against error is listed. The search then takes all
combinations with the next smaller gate count than the planner's, compiles each as it is (proof and scales included),
and goes on to smaller counts as long as one is certified. Combinations whose estimated error is beyond HOPELESS times
the error asked for are left out.

    planner, best       gates (heads) of the planner's model, and of the best combination that was certified
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import headsmith as hs
from headsmith.plan.choose import Chooser, Option, Plan, candidates

HOPELESS = 20.0

CASES: list[tuple[str, dict[str, tuple[float, float]], float]] = [
    ("x*y*z", dict.fromkeys("xyz", (-1.0, 1.0)), 1e-2),
    ("x*y*z", dict.fromkeys("xyz", (-1.0, 1.0)), 1e-4),
    ("1/(1 + exp(-x*y))", dict.fromkeys("xy", (-1.0, 1.0)), 1e-2),
    ("1/(1 + exp(-x*y))", dict.fromkeys("xy", (-1.0, 1.0)), 1e-4),
    ("sin(x)*exp(y)", dict.fromkeys("xy", (-1.0, 1.0)), 1e-2),
    ("sin(x)*exp(y)", dict.fromkeys("xy", (-1.0, 1.0)), 1e-4),
    ("exp(sin(x))", {"x": (-2.0, 2.0)}, 1e-4),
    ("x**2/(1 + y**2)", dict.fromkeys("xy", (-1.0, 1.0)), 1e-4),
]

planners_choice = Chooser.choose


class NotCertified(Exception):
    """A combination whose proven error is too large."""


def planned(formula: str, domain: Mapping[str, tuple[float, float]], error: float) -> tuple[hs.Compiled, Chooser, int]:
    """The planner's model, its chooser, and the gates of the options it took."""
    seen: list[tuple[Chooser, Plan]] = []

    def watch(chooser: Chooser, *arguments: Any) -> Plan:
        seen.append((chooser, planners_choice(chooser, *arguments)))
        return seen[-1][1]

    Chooser.choose = watch  # type: ignore[method-assign]
    try:
        model = hs.compile(formula, dict(domain), error, recipe="relu")
    finally:
        Chooser.choose = planners_choice  # type: ignore[method-assign]
    for chooser, plan in reversed(seen):
        if plan.gates == model.computed.graph.gates:
            return model, chooser, plan.gates
    raise AssertionError("the model's choices are not among the planner's")


def certified(
    formula: str, domain: Mapping[str, tuple[float, float]], error: float, options: Mapping[int, Option]
) -> hs.Compiled | None:
    """The model with these circuits and no others, if it can be certified."""
    asked: dict[int, int] = {}

    def forced(chooser: Chooser, *_: Any) -> Plan:
        asked[id(chooser)] = asked.get(id(chooser), 0) + 1
        # The planner asks a second time after a plan that fits, and a third time only after one that does not.
        if asked[id(chooser)] > 2:
            raise NotCertified
        chooser.last = Plan(dict(options))
        return chooser.last

    Chooser.choose = forced  # type: ignore[method-assign]
    try:
        return hs.compile(formula, dict(domain), error, recipe="relu")
    except (NotCertified, hs.UnreachableError):
        return None
    finally:
        Chooser.choose = planners_choice  # type: ignore[method-assign]


def fronts(chooser: Chooser, error: float) -> dict[int, list[Option]]:
    """For every node its circuits, each gate count with the smallest error that it reaches."""
    found: dict[int, list[Option]] = {}
    for number in chooser.nodes:
        gain = max(float(np.max(chooser.gains[number])), 1e-12)
        best: dict[int, Option] = {}
        for allowed in np.geomspace(HOPELESS * error / gain, 1e-3 * error / gain, 130):
            node: Any = chooser.target.nodes[number]
            for option in candidates(chooser.target, node, chooser.found, float(allowed))[:1]:
                if option.gates not in best or option.error < best[option.gates].error:
                    best[option.gates] = option
        found[number] = list(best.values())
    return found


def attainable(listed: Mapping[int, list[Option]], gates: int) -> list[int]:
    """The gate counts below `gates` that some combination has, largest first."""
    sums = {0}
    for options in listed.values():
        sums = {total + option.gates for total in sums for option in options}
    return sorted((total for total in sums if total < gates), reverse=True)


def combinations(chooser: Chooser, listed: Mapping[int, list[Option]], gates: int, error: float) -> Iterator[Any]:
    """All with exactly `gates` gates, most promising first."""
    estimates = []
    for picked in itertools.product(*listed.values()):
        if sum(option.gates for option in picked) == gates:
            options = dict(zip(listed, picked, strict=True))
            total = sum((chooser.gains[number] * option.error for number, option in options.items()), np.zeros(1))
            estimates.append((float(np.max(total)), len(estimates), options))
    for estimate, _, options in sorted(estimates):
        if estimate <= HOPELESS * error:
            yield options


def main() -> None:
    print(f"{'target':20s} {'error':>7s}  nodes  planner  best  ratio  tried     time")
    ratios = []
    for formula, domain, error in CASES:
        start = time.perf_counter()
        model, chooser, gates = planned(formula, domain, error)
        listed = fronts(chooser, error)
        best, tried = model.bill.heads, 0
        for fewer in attainable(listed, gates):
            other = None
            for options in combinations(chooser, listed, fewer, error):
                tried += 1
                other = certified(formula, domain, error, options)
                if other is not None:
                    best = min(best, other.bill.heads)
                    break
            if other is None:
                break
        ratios.append(model.bill.heads / best)
        print(
            f"{formula:20s} {error:7g} {len(chooser.nodes):6d} {model.bill.heads:8d} {best:5d} {ratios[-1]:6.3f} "
            f"{tried:6d} {time.perf_counter() - start:6.1f} s",
            flush=True,
        )
    print(f"gates of the planner over the best found: {np.mean(ratios):.3f} on average, {max(ratios):.3f} at most")


if __name__ == "__main__":
    main()
