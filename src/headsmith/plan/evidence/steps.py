"""Which nodes of a circuit are steps of gradient descent, soft thresholds or powers (kernel/rules/steps.py)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from headsmith.kernel.core.check import DAMAGE
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import needed
from headsmith.kernel.core.proof import Proof
from headsmith.kernel.rules.steps import Power, Step, power_of, step_of


def find_powers(proof: Proof) -> dict[int, Power]:
    """All nodes of Newton's iteration whose inside nobody else reads, by their numbers."""
    found, closed = dict[int, Power](), _closed(proof)
    if any(node.kind == "pool" for node in proof.circuit.nodes):
        for number in needed(proof.circuit, [proof.circuit.output]):
            with suppress(Refused, *DAMAGE):
                power = power_of(proof.circuit, proof.regions, number, found)
                if closed(number, power.inside):
                    found[number] = power
    # Means alone are no powers.
    made = {each for power in found.values() if power.level for each in (power.output, power.matrix, power.vector)}
    return {number: power for number, power in found.items() if number in made}


def find_steps(proof: Proof) -> dict[int, Step]:
    """All steps whose inside nobody else reads, by their results."""
    circuit, found, closed = proof.circuit, dict[int, Step](), _closed(proof)
    anew = {number for region in proof.regions.values() for number in region.inside}
    for number in needed(circuit, [circuit.output]):
        with suppress(Refused, *DAMAGE):
            step = step_of(circuit, proof.regions, number) if number not in anew else None
            if step is not None and closed(number, step.inside):
                found[number] = step
    return found


def _closed(proof: Proof) -> Callable[[int, frozenset[int]], bool]:
    """Whether what lies inside of a result, it aside, is read inside alone."""
    circuit, readers = proof.circuit, dict[int, set[int]]()
    for number in needed(circuit, [circuit.output]):
        for argument in circuit.nodes[number].arguments:
            readers.setdefault(argument, set()).add(number)

    def closed(result: int, inside: frozenset[int]) -> bool:
        every = inside.union(*(proof.regions[each].inside for each in inside if each in proof.regions))
        others = inside - {result}
        return circuit.output not in others and all(readers.get(inner, set()) <= every for inner in others)

    return closed
