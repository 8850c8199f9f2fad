"""Which nodes of a circuit are steps of gradient descent or soft thresholds (kernel/steps.py)."""

from __future__ import annotations

from headsmith.kernel.errors import Refused
from headsmith.kernel.graph import needed
from headsmith.kernel.proof import Proof
from headsmith.kernel.steps import Step, step_of


def find_steps(proof: Proof) -> dict[int, Step]:
    """All steps whose inside nobody else reads, by their results."""
    circuit, found = proof.circuit, dict[int, Step]()
    readers: dict[int, set[int]] = {}
    for number in needed(circuit, [circuit.output]):
        for argument in circuit.nodes[number].arguments:
            readers.setdefault(argument, set()).add(number)

    def alone(inner: int, reader: int) -> bool:
        inside = proof.regions[reader].inside if reader in proof.regions else frozenset()
        return readers.get(inner, set()) <= {reader, *inside} and inner != circuit.output

    anew = {number for region in proof.regions.values() for number in region.inside}
    for number in readers.keys() - anew:
        try:
            step = step_of(circuit, proof.regions, number)
        except (Refused, LookupError):
            continue
        if all(alone(inner, reader) for inner, reader in step.closed):
            found[number] = step
    return dict(sorted(found.items()))
