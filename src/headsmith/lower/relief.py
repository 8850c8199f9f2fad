"""How much smaller scales may be because errors reach the outputs by norms (kernel/norms.py), and where to save them.

Scales are planned with gains entry by entry, b for all gates up to the weights of their reads. The kernel knows better
gains for layers of gates. So, with c_k what the gates of layer k would add to the softmax part at b = 1:

    ratio     (sum of c_k by the kernel's gains) / (the same entry by entry): b may be smaller by that
    factors   a score is b z, and later layers read larger z. Layers whose c_k are small may have smaller b, if the
              others have larger ones: b_k = b f_k with sum of c_k / f_k = sum of c_k, such that the largest f_k z_k is
              smallest. No f_k is more than 2, or than what the ratio has saved: weights are never larger than before
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.heads.scaling import heaviest_read
from headsmith.heads.sink import SinkBank
from headsmith.heads.swiglu import SiluBank
from headsmith.kernel.arithmetic import Interval
from headsmith.kernel.flow import Gain
from headsmith.kernel.walk import Facts
from headsmith.transformer.ir import Bank, Transformer

ENOUGH = 0.999
"""A ratio above that is none."""


@dataclass(frozen=True, eq=False)
class Relief:
    """By how much all scales may be smaller; and for each layer, a factor of its own."""

    ratio: float = 1.0
    factors: tuple[float, ...] = ()

    def of(self, layer: int) -> float:
        """By how much the scales of a layer differ from those without norms."""
        return self.ratio * (self.factors[layer] if self.factors else 1.0)


NONE = Relief()


def relief_of(facts: Facts, transformer: Transformer) -> Relief:
    """What the kernel's gains allow for a network of gates; nothing for all other models."""
    banks = [[bank for bank in layer.banks if isinstance(bank, SinkBank | SiluBank)] for layer in transformer.layers]
    roles = [[bank.node for bank in layer if not bank.copies] for layer in facts.model.layers]
    if not facts.proof.norms or any(len(mine) != len(each) for mine, each in zip(banks, roles, strict=True)):
        return NONE
    every = facts.gains
    known, plain, sizes = [], [], []
    for mine, nodes in zip(banks, roles, strict=True):
        pushes = [_pushes(bank, node, facts, every) for bank, node in zip(mine, nodes, strict=True)]
        known.append(np.sum([each[0] for each in pushes], axis=0))
        plain.append(np.sum([each[1] for each in pushes], axis=0))
        sizes.append(max(each[2] for each in pushes))
    ratio = float(np.sum(known, axis=0).max() / max(np.sum(plain, axis=0).max(), 1e-300))
    if not 0.0 < ratio < ENOUGH:
        return NONE
    worst = int(np.argmax(np.sum(known, axis=0)))
    shares = np.array([each.ravel()[worst] for each in known])
    return Relief(ratio, tuple(_factors(shares, np.array(sizes), min(2.0, 1.0 / ratio))))


def _pushes(bank: Bank, nodes: Array, facts: Facts, every: Mapping[int, Gain]) -> tuple[Array, Array, float]:
    """What errors of size 1, times the heaviest weight that a head reads by, do to each output, down and up: by all
    that the kernel knows, and entry by entry; and the largest score at a scale of 1."""
    heaviest, size = heaviest_read(bank), 0.0
    known, plain = np.zeros((2, 2, facts.circuit.nodes[facts.circuit.output].size))
    for number in np.unique(nodes).tolist():
        mine = nodes == number
        error = np.zeros(facts.circuit.nodes[number].size)
        error[bank.component[mine]] = heaviest[mine]
        argument = facts.ranges[facts.circuit.nodes[number].arguments[0]].magnitude.value[bank.component[mine]]
        size = max(size, float(np.max(argument / heaviest[mine])))
        if number in every:
            sides = Interval(-error, 0.0 * error)
            known = known + np.stack([each.value for each in every[number].pushes(sides)])
            plain = plain + np.stack([each.value for each in replace(every[number], via=None).pushes(sides)])
    return known, plain, size


def _factors(shares: Array, sizes: Array, most: float) -> Array:
    """Factors of at most `most` that make the largest score smallest and keep the sum of shares / factors."""
    low, high = 0.0, most * float(sizes.max())
    for _ in range(100):
        score = 0.5 * (low + high)
        found = np.minimum(score / np.maximum(sizes, 1e-300), most)
        if np.sum(shares / np.maximum(found, 1e-300)) > np.sum(shares):
            low = score
        else:
            high = score
    return np.minimum(high / np.maximum(sizes, 1e-300), most)
