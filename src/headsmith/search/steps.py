"""Which nodes of a circuit are steps of gradient descent or soft thresholds (kernel/steps.py)."""

from __future__ import annotations

from contextlib import suppress

from headsmith.kernel.check import DAMAGE
from headsmith.kernel.errors import Refused
from headsmith.kernel.graph import needed
from headsmith.kernel.proof import Proof
from headsmith.kernel.steps import Power, Step, power_of, step_of


def find_powers(proof: Proof) -> dict[int, Power]:
    """All nodes of Newton's iteration, by their numbers."""
    found: dict[int, Power] = {}
    if any(node.kind == "pool" for node in proof.circuit.nodes):
        for number in needed(proof.circuit, [proof.circuit.output]):
            with suppress(Refused, *DAMAGE):
                found[number] = power_of(proof.circuit, proof.regions, number, found)
    # Means alone are no powers.
    made = {each for power in found.values() if power.level for each in (power.output, power.matrix, power.vector)}
    return {number: power for number, power in found.items() if number in made}


def find_steps(proof: Proof) -> dict[int, Step]:
    """All steps whose inside nobody else reads, by their results."""
    circuit, found = proof.circuit, dict[int, Step]()
    readers: dict[int, set[int]] = {}
    for number in needed(circuit, [circuit.output]):
        for argument in circuit.nodes[number].arguments:
            readers.setdefault(argument, set()).add(number)

    def alone(inner: int, inside: frozenset[int]) -> bool:
        computing = (proof.regions[each].inside for each in inside if each in proof.regions)
        return readers.get(inner, set()) <= inside.union(*computing) and inner != circuit.output

    anew = {number for region in proof.regions.values() for number in region.inside}
    for number in readers.keys() - anew:
        try:
            step = step_of(circuit, proof.regions, number)
        except (Refused, *DAMAGE):
            continue
        if all(alone(inner, step.inside) for inner in step.inside - {number}):
            found[number] = step
    return dict(sorted(found.items()))
