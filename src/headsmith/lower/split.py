"""Long sums in parts: a register that many heads add to becomes several, and whoever read it reads all of them.

A sum of k terms, in any order, may be rounded k - 1 times at up to its full size; so k terms of about the same size
cost about k^2 / 2 of them. In p parts each sum has k/p terms: they cost k^2 / (2 p) together, and adding up the parts,
where they are read, p - 1 roundings more. The residual stream is wider for that: only where an error cannot be met
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.transformer.heads.stream import RESERVED, Link, Register
from headsmith.transformer.ir import Bank, Layer, Transformer

PARTS = (2, 4)
"""In how many parts long sums are tried, where they round too much."""

FEW = 16
"""Sums of fewer terms are left as they are."""


def less_rounded(transformer: Transformer) -> Iterator[dict[str, Any]]:
    """How to lay a model out so that it rounds less, and has more columns: options of `lower`."""
    if any(bank.cleared for layer in transformer.layers for bank in layer.banks):
        yield {"reuse": False}
    if transformer.dtype == "float32":
        yield from ({"reuse": False, "parts": parts} for parts in PARTS)


def with_sums_in_parts(transformer: Transformer, parts: int) -> Transformer:
    """The same function, with long sums in so many parts; the model as it is, if it has none."""
    terms = dict.fromkeys(transformer.sizes, 0)
    for link in [*transformer.embedding, *(link for bank in _banks(transformer) for link in bank.write)]:
        terms[link.register] += link.columns if link.weights.ndim == 2 else 1
    fixed = {*RESERVED, *transformer.positional}
    long = {name: _names(name, parts) for name, count in terms.items() if count >= FEW and name not in fixed}
    if not long:
        return transformer
    registers = [
        Register(name, register.size)
        for register in transformer.registers
        for name in long.get(register.name, [register.name])
    ]
    layers = [
        Layer(
            tuple(replace(each, read=_read(each.read, long), write=_written(each.write, long)) for each in layer.banks)
        )
        for layer in transformer.layers
    ]
    return replace(
        transformer,
        registers=tuple(registers),
        embedding=_written(transformer.embedding, long),
        layers=tuple(layers),
        readout=_read(transformer.readout, long),
    )


def _banks(transformer: Transformer) -> list[Bank]:
    return [bank for layer in transformer.layers for bank in layer.banks]


def _names(name: str, parts: int) -> list[str]:
    return [name, *(f"{name}+{part}" for part in range(2, parts + 1))]


def _read(links: Iterable[Link], long: Mapping[str, list[str]]) -> tuple[Link, ...]:
    """All parts are read alike."""
    return tuple(replace(link, register=name) for link in links for name in long.get(link.register, [link.register]))


def _written(links: Iterable[Link], long: Mapping[str, list[str]]) -> tuple[Link, ...]:
    """Each part gets a run of the terms; a single term goes to the first."""
    found = []
    for link in links:
        names = long.get(link.register, [link.register])
        if link.weights.ndim == 1 or len(names) == 1:
            found.append(link)
            continue
        ends = np.linspace(0, link.columns, len(names) + 1).astype(int)
        for name, start, stop in zip(names, ends, ends[1:], strict=False):
            if start < stop:
                found.append(Link(name, link.weights[:, start:stop], link.first + int(start)))
    return tuple(found)
