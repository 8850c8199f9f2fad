"""From combinations of nodes to links: how heads and the read-out read registers, and how heads write them."""

from __future__ import annotations

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lower.linear import applied, product
from headsmith.lower.registers import Allocation, Combination
from headsmith.transformer.heads.stream import Link


def writes(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[Link]:
    """What the given source nodes (with the number of their first head or input) add to each register."""
    return [link for _, link in sourced(allocation, names, sources)]


def sourced(allocation: Allocation, names: dict[int, str], sources: dict[int, int]) -> list[tuple[int, Link]]:
    """The same, with the source of each link."""
    found = []
    for register, combinations in allocation.writes.items():
        for combination in combinations:
            for source, weights in combination.parts.items():
                if source in sources and weights.any():
                    found.append((source, Link(names[register], weights, sources[source])))
    return found


def links(allocation: Allocation, names: dict[int, str], combination: Combination, first: int) -> list[Link]:
    """A combination of placed nodes as reads of their registers."""
    found = []
    for number, weights in combination.parts.items():
        home = allocation.homes[number]
        scaled = weights if np.all(home.scale == 1.0) else product(weights, home.scale)
        found.append(Link(names[home.register], scaled, first))
    return found


def constant(allocation: Allocation, combination: Combination) -> Array:
    total = np.array(combination.constant)
    for number, weights in combination.parts.items():
        offset = allocation.homes[number].offset
        if offset.any():
            total = total + applied(weights, offset)
    return total
