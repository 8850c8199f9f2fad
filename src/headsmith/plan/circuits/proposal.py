"""A fragment that is not built yet: what it would cost, and how to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headsmith.plan.circuits.fragment import Fragment


@dataclass(frozen=True, eq=False)
class Proposal:
    """`make` builds a fragment with so many gates at such a depth."""

    gates: int
    depth: int
    make: Callable[[], Fragment]


def smallest(passes: Callable[[int], bool], guess: float, largest: int = 1 << 20) -> int | None:
    """The least count that passes, near `guess` (which should pass or nearly so); None where there is none in reach."""
    if not guess <= largest:
        return None
    count = max(int(guess) + 1, 1)
    if passes(count):
        while count > 1 and passes(count - 1):
            count -= 1
        return count
    return next((more for more in range(count + 1, count + 4 + count // 8) if passes(more)), None)
