"""How much of the proven error each head accounts for: what it commits itself, carried to the output that errs most.

The figures are the kernel's own, from the proof that a saved model carries: what every bank commits (softmax, leak,
rounding; for tables, approximation), times the gain of its output. They are bounds, and add up to about the certified
error; what is left is that of circuits without heads, of inputs and of the read-out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from headsmith.kernel.core.check import box_of, facts_of
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import read_graph
from headsmith.kernel.core.model import read_model
from headsmith.kernel.core.proof import read_proof
from headsmith.kernel.core.reading import read
from headsmith.kernel.core.walk import carried, walk_through

Share = Mapping[str, float]
"""By part of the certificate: how far a head's own errors move the output."""


def head_shares(path: str | os.PathLike[str]) -> list[list[Share]] | None:
    """The shares of all heads of a saved model, layer by layer; None if it carries no proof."""
    header, tensors = read(path)
    if "circuit" not in header["proof"]:
        return None
    with np.errstate(all="ignore"):
        target = read_graph(header["source"], tensors)
        model = read_model(header["transformer"], tensors, header["proof"]["roles"])
        proof = read_proof(header["proof"], tensors, target)
        try:
            facts = facts_of(target, model, proof, box_of(header["domain"], target))
            walk = walk_through(facts)
        except Refused:
            return None
        worst = int(np.argmax(sum(part.value for part in carried(facts, walk).values())))
    found: list[list[Share]] = []
    committed = iter(walk.locals_)
    for layer in model.layers:
        mine: list[Share] = []
        for bank in layer:
            _, local = next(committed)
            softmax = np.maximum(local.below.value, local.above.value)
            parts = {"softmax": softmax, "leak": local.leak.value, "rounding": local.rounding.value}
            parts["approximation"] = np.zeros(bank.outputs)
            gain = np.zeros(bank.outputs)
            for output, (node, component) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
                if node in facts.gains:
                    gain[output] = facts.gains[node].anywhere.size.value[component, worst]
                if node in facts.approximations:
                    parts["approximation"][output] = facts.approximations[node].magnitude.value[component]
            columns = bank.outputs // bank.heads
            moved = {name: (gain * value).reshape(bank.heads, columns).sum(axis=1) for name, value in parts.items()}
            mine += [{name: float(moved[name][head]) for name in moved} for head in range(bank.heads)]
        found.append(mine)
    return found
