"""What the kernel knows of a model after its walk: ranges, gains, what heads commit, how far registers are off."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headsmith.core.errors import CertificateError
from headsmith.kernel.core.arithmetic import Upper
from headsmith.kernel.core.check import contents, facts_of
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.kernel.core.walk import Facts, Walk, walk_through


@dataclass(frozen=True, eq=False)
class Walked:
    """The kernel's facts and its walk. `layers` has for each head of each layer its bank as the kernel reads it, what
    that commits, and the first and the last of its outputs."""

    facts: Facts
    walk: Walk
    layers: tuple[tuple[tuple[Any, Any, slice], ...], ...]

    def off(self, number: int) -> Upper | None:
        """How far a node may be from its exact value. Inside of a region that compares itself anew, the walk does not
        count what the region's arguments are off by; here it arrives, too. None where that is not known."""
        anew = {
            each
            for region in self.facts.proof.regions.values()
            if region.margin is not None
            for each in region.inside - {region.output}
        }
        if number not in anew:
            return self.walk.final.get(number)
        node, own = self.facts.circuit.nodes[number], self.walk.own.get(number, Upper(0.0))
        arriving = [self.off(each) for each in node.arguments]
        if any(each is None for each in arriving) or node.kind not in ("affine", "relu", "expression"):
            return None
        slopes: Any = node.weights if node.kind == "affine" else [np.ones(node.size)]
        if node.kind == "expression":
            slopes = [each.magnitude.value for each in self.facts.tables[number].slopes]
        total = own
        for slope, each in zip(slopes, arriving, strict=True):
            total = total + slope @ each
        return total


class Saved(Protocol):
    """What can be saved."""

    def save(self, path: Any) -> None: ...


def walked(model: Saved) -> Walked:
    """The walk of a model that carries a proof; CertificateError where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        model.save(path)
        header, tensors = read(path)
    if "circuit" not in header["proof"]:
        raise CertificateError("the model carries no proof: it was saved without one")
    try:
        with np.errstate(all="ignore"):
            target, kernel, proof, box, _ = contents(header, tensors)
            facts = facts_of(target, kernel, proof, box)
            walk = walk_through(facts)
    except Refused as problem:
        raise CertificateError(str(problem)) from None
    committed, layers = iter(walk.locals_), []
    for layer in kernel.layers:
        heads: list[tuple[Any, Any, slice]] = []
        for bank in layer:
            _, local = next(committed)
            each = bank.outputs // bank.heads
            heads += [(bank, local, slice(head * each, (head + 1) * each)) for head in range(bank.heads)]
        layers.append(tuple(heads))
    return Walked(facts, walk, tuple(layers))
