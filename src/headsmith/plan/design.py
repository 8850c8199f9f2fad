"""From a target to a circuit that approximates it within the error, with as few gates as the search finds.

`choose` splits the budget by estimated gains; here the proof kernel's own analysis says what a choice really costs, and
the budget is scaled until the proven approximation part just fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.errors import TooManyPiecesError, UnreachableError
from headsmith.plan.approximation import Design, approximate, gained
from headsmith.plan.choose import Chooser
from headsmith.plan.circuits.assemble import Choice, assemble
from headsmith.plan.request import Policy, Request

ROUNDS = 14


def design_circuits(request: Request, policy: Policy) -> Design:
    """Choose circuits so that the proven approximation part is at most the policy's share of the error.

    Softmax scales cost no gates, so they can live on little: a share near one gives the fewest gates. An accurate
    request takes the first circuits that do.
    """
    search, max_layers = _Search(request, policy), request.max_layers
    if max_layers is None:
        return search.best(None)
    # The search goes by steps: now and then a tighter limit leads it to fewer gates.
    designs, refusal = [], None
    for layers in range(max_layers, max(max_layers - 3, 0), -1):
        try:
            designs.append(search.best(layers))
        except UnreachableError as problem:
            refusal = refusal or problem
    if not designs:
        assert refusal is not None
        raise refusal
    return min(designs, key=lambda design: design.gates)


@dataclass(frozen=True, eq=False)
class _Search:
    request: Request
    policy: Policy

    def best(self, max_layers: int | None) -> Design:
        """The design with the fewest gates whose proven approximation part is within the limit."""
        limit, request = self.policy.share * self.request.error, self.request
        budget, best = 0.998 * limit, None
        fits, exceeds = 0.0, np.inf
        smallest, stalled = np.inf, 0
        seen: set[tuple[Any, ...]] = set()
        chooser = Chooser(request.graph, request.ranges, max_layers)
        # Many nodes average out the steps of each: there is little to gain from looking longer.
        patience = 0 if request.accurate else 7 if len(chooser.nodes) <= 4 else 2
        for turn in range(ROUNDS):
            chosen = chooser.choose(budget)
            design = self._prove(chooser.with_margins(chosen, request.inputs, self.policy.room), chooser)
            if design is None:
                continue
            if design.approximation <= limit:
                fits = max(fits, budget)
                best = design if best is None or design.gates < best.gates else best
            else:
                exceeds = min(exceeds, budget)
                # Where rounding decides, smaller budgets prove nothing smaller.
                stalled = stalled + 1 if design.approximation > max(0.7 * smallest, 3.0 * limit) else 0
                smallest = min(smallest, design.approximation)
                if best is None and stalled >= 2:
                    break
            key = tuple((number, each.family, *each.fragments) for number, each in sorted(chosen.choices.items()))
            if (best is not None and (key in seen or turn >= patience)) or design.approximation == 0.0:
                break
            seen.add(key)
            # Aim just below the limit, from either side, and stay between what fitted and what did not.
            budget *= 0.995 * limit / design.approximation
            if best is None and turn >= 4:
                # Steps make the proven error jump about: take no more chances.
                budget = min(budget, 0.6 * exceeds)
            if not fits < budget < exceeds:
                if np.isinf(exceeds):
                    break
                budget = float(np.sqrt(fits * exceeds)) if fits > 0.0 else 0.8 * exceeds
        if best is None:
            raise UnreachableError(
                f"no circuits were found whose proven approximation error is at most {limit:.3g}; "
                f"the smallest was {smallest:.3g}: ask for more than that, or for a smaller domain",
                part="approximation",
                smallest=1.1 * float(smallest),
            )
        return best

    def _prove(self, choices: Mapping[int, Choice], chooser: Chooser) -> Design | None:
        """What the choices really cost; None if a circuit has too many pieces to prove, which rules its family out."""
        target = self.request.graph
        assembly = assemble(target, choices)
        try:
            approximation = approximate(target, self.request.ranges, assembly, choices)
        except TooManyPiecesError as refusal:
            chooser.exclude(refusal.target)
            return None
        return gained(target, choices, assembly, approximation)
