"""Shared weights, found again in a compiled module: the matrices of step t are those of step t + 1.

The compiled stream is unrolled: every step has registers of its own, and a layer's matrices act on those. Names of
registers apart, all steps from the second on have the same matrices; the first one composes nothing. So a module has
the parameters of one step, counted once, and those of its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.lab.iprm.model import Reasoner
from headsmith.transformer.heads.bank import HeadBank
from headsmith.transformer.heads.stream import Link

Matrices = tuple[tuple[Any, ...], ...]
"""What the heads of one step read and write: name, register by its first use within the step, place, weights."""


def step_matrices(model: Reasoner) -> list[Matrices]:
    """The matrices of each step, in the order of its attentions; registers are numbered by their first use."""
    banks = _banks(model)
    clocks = sorted(_of_kind(model, "mean"), key=lambda bank: int(bank.node[0]))
    ends = {link.register for link in model.transformer.readout}
    found = []
    for step, named in enumerate(model.reasoning.steps):
        roles: dict[str, int] = {}
        rows: list[tuple[Any, ...]] = []
        for name, node in named.items():
            rows += _rows(name, banks[node].read, banks[node].write, roles, ends)
        query = banks[named["formation"]].read[0].register
        if step and clocks:
            clock = clocks[step - 1]
            rows += _rows("clock", clock.read, [link for link in clock.write if link.register == query], roles, ends)
        found.append(tuple(rows))
    return found


def same_matrices(first: Matrices, second: Matrices) -> bool:
    """Whether two steps have the same matrices, number for number."""
    return len(first) == len(second) and all(
        one[:-1] == other[:-1] and np.array_equal(one[-1], other[-1]) for one, other in zip(first, second, strict=True)
    )


def nonzeros(matrices: Matrices) -> int:
    """How many weights of these matrices are not zero."""
    return sum(int(np.count_nonzero(row[-1])) for row in matrices)


def shared_parameters(model: Reasoner) -> int:
    """Weights that are not zero, those that steps share counted once: of the longest step and of the output."""
    steps = max(nonzeros(each) for each in step_matrices(model))
    if model.reasoning.pooling is None:
        return steps
    bank = _banks(model)[model.reasoning.pooling]
    return steps + nonzeros(tuple(_rows("pooling", bank.read, bank.write, {}, set())))


def _rows(
    name: str, read: Sequence[Link], write: Sequence[Link], roles: dict[str, int], ends: set[str]
) -> list[tuple[Any, ...]]:
    # What the last step writes into the output as well, or instead of the memory that no later step reads.
    inner = [link for link in write if link.register not in ends] or list(write)
    kept = [("read", link) for link in read] + [("write", link) for link in inner]
    return [(name, way, roles.setdefault(link.register, len(roles)), link.first, link.weights) for way, link in kept]


def _banks(model: Reasoner) -> dict[int, HeadBank]:
    """The bank of every attention, by its node in the program."""
    banks = sorted(_of_kind(model, "attend"), key=lambda bank: int(bank.node[0]))
    return dict(zip(sorted(model.patterns), banks, strict=True))


def _of_kind(model: Reasoner, kind: str) -> list[HeadBank]:
    return [bank for layer in model.transformer.layers for bank in layer.banks if bank.kind == kind]
