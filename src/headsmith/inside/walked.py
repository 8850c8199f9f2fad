"""What the kernel knows of a model after its walk: ranges, gains, what every head commits, and how far registers are off."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headsmith.core.errors import CertificateError
from headsmith.kernel.check import contents, facts_of
from headsmith.kernel.errors import Refused
from headsmith.kernel.reading import read
from headsmith.kernel.walk import Facts, Walk, walk_through


@dataclass(frozen=True, eq=False)
class Walked:
    """The kernel's facts and its walk. `layers` has for each head of each layer its bank as the kernel reads it, what
    that commits, and the first and the last of its outputs."""

    facts: Facts
    walk: Walk
    layers: tuple[tuple[tuple[Any, Any, slice], ...], ...]


class Saved(Protocol):
    """What can be saved."""

    def save(self, path: Any) -> None: ...


def walked(model: Saved) -> Walked:
    """The walk of a model that carries a proof; CertificateError where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        model.save(path)
        header, tensors = read(path)
    if "proof" not in header:
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
